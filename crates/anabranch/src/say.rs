//! The one way to write lines to standard output and standard error: a reader that has left, as
//! with `| head`, is no failure, a full disk is one, and neither ends the program in mid-work. The
//! macros of the standard library panic instead.

use std::fmt::Arguments;
use std::io::{self, Write};
use std::sync::Mutex;

use crate::exit::Failure;

/// Why standard output took no more.
static FAILED: Mutex<Option<io::Error>> = Mutex::new(None);

/// Writes to standard output.
macro_rules! out {
    ($($words:tt)*) => { $crate::say::out(format_args!($($words)*)) };
}

/// Writes a line to standard output.
macro_rules! outln {
    () => { $crate::say::out(format_args!("\n")) };
    ($($words:tt)*) => { $crate::say::out(format_args!("{}\n", format_args!($($words)*))) };
}

/// Writes a line to standard error.
macro_rules! errln {
    ($($words:tt)*) => { $crate::say::error(format_args!("{}\n", format_args!($($words)*))) };
}

/// Writes to standard output. [`check`] tells later whether it could.
pub(crate) fn out(text: Arguments<'_>) {
    let mut out = io::stdout().lock();
    if let Err(error) = out.write_fmt(text).and_then(|()| out.flush()) {
        note(error);
    }
}

/// Writes to standard error; nobody can be told if that fails.
pub(crate) fn error(text: Arguments<'_>) {
    let _ = io::stderr().lock().write_fmt(text);
}

/// Whether standard output took everything, or its reader left.
///
/// # Errors
/// Why it did not.
pub(crate) fn check() -> Result<(), Failure> {
    match FAILED.lock().expect("no panic while held").take() {
        Some(error) => Err(files::Error::system("write to standard output", error).into()),
        None => Ok(()),
    }
}

fn note(error: io::Error) {
    // One that is closed from the start has no reader either.
    let is_closed = error.kind() == io::ErrorKind::BrokenPipe
        || error.raw_os_error() == Some(rustix::io::Errno::BADF.raw_os_error());
    if !is_closed {
        FAILED.lock().expect("no panic while held").get_or_insert(error);
    }
}
