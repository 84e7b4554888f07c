//! The one file of a session, written to an [`Output`] in order, while it arrives.
//!
//! Verified data wait in the part of the file until all before them are written; then they are
//! written, and freed in the part. Positions are granted to the sender a window ahead of what is
//! written, [`MOST_GRANTED`] or half of the room that the folder has, so that a slow reader of the
//! output, or a slow path, holds the others back instead of filling the disk.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use tokio::sync::watch;
use units::Bytes;

use super::directory::Directory;
use super::large::Part;
use crate::{Error, Output};

/// The most that is granted beyond what is written.
const MOST_GRANTED: u64 = 256 << 20;
/// The least: a stream begins with two blocks.
const LEAST_GRANTED: u64 = 1 << 20;
/// Bytes that are written at once.
const AT_ONCE: usize = 1 << 20;

/// The delivery of one file.
pub(crate) struct Delivery {
    output: Output,
    state: Mutex<DeliveryState>,
    /// Rings when the state changes.
    changed: Condvar,
    granted: watch::Sender<u64>,
    /// What is granted beyond what is written.
    window: u64,
}

#[derive(Default)]
struct DeliveryState {
    /// The file, once data came.
    part: Option<Arc<Part>>,
    /// Bytes of the file that are verified, without a gap, and the positions of the data in them.
    verified: u64,
    positions: u64,
    /// Bytes that are written to the output.
    written: u64,
    failure: Option<io::Error>,
    has_failed: bool,
    /// The session is over.
    is_closed: bool,
}

impl Delivery {
    /// Begins to deliver; data wait in `folder`.
    ///
    /// # Errors
    /// If the output has a part of another file already, or the folder has no room at all.
    pub(crate) fn begin(output: Output, folder: &Directory) -> Result<Arc<Delivery>, Error> {
        if output.is_begun() {
            let text = "a part of it was written to the output already, and cannot be taken back";
            return Err(Error::refused(text));
        }
        let free = folder.room()?;
        let Some(window) = window(free.0) else {
            let need = Bytes(2 * LEAST_GRANTED);
            return Err(Error::NoSpace { path: folder.shown(b""), need, free });
        };
        let delivery = Arc::new(Delivery {
            output,
            state: Mutex::default(),
            changed: Condvar::new(),
            granted: watch::Sender::new(window),
            window,
        });
        let delivering = Arc::clone(&delivery);
        let thread = std::thread::Builder::new().name("output".into());
        let thread = thread.spawn(move || delivering.run());
        thread.map_err(|source| Error::system("start to write the output", source))?;
        Ok(delivery)
    }

    /// The positions that the sender may send, with news of each change.
    pub(crate) fn granted(&self) -> watch::Receiver<u64> {
        self.granted.subscribe()
    }

    /// The positions that the sender may send now.
    pub(super) fn granted_now(&self) -> u64 {
        *self.granted.borrow()
    }

    /// Whether verified bytes wait for the output.
    pub(super) fn is_behind(&self) -> bool {
        let state = self.state();
        state.written < state.verified
    }

    /// The first `bytes` of the file are verified, and the first `positions` of the layout.
    pub(super) fn note_verified(&self, part: &Arc<Part>, bytes: u64, positions: u64) {
        let mut state = self.state();
        if bytes > state.verified {
            state.part.get_or_insert_with(|| Arc::clone(part));
            (state.verified, state.positions) = (bytes, positions);
            self.changed.notify_all();
        }
    }

    /// Waits until all verified bytes are written; blocks for as long as the reader of the output
    /// takes.
    ///
    /// # Errors
    /// [`Error::Output`].
    pub(super) fn drain(&self) -> Result<(), Error> {
        let is_busy = |state: &mut DeliveryState| {
            state.written < state.verified && !state.has_failed && !state.is_closed
        };
        let state = self.changed.wait_while(self.state(), is_busy).expect("no panic while held");
        if state.has_failed || state.written < state.verified {
            return Err(Error::Output { source: io::ErrorKind::BrokenPipe.into() });
        }
        Ok(())
    }

    /// Writes the rest of the complete file: holes at its end, or all of a small one.
    ///
    /// # Errors
    /// [`Error::Output`].
    pub(super) fn write_rest(&self, file: &File) -> Result<(), Error> {
        let failed = |source| Error::Output { source };
        let size = file.metadata().map_err(failed)?.len();
        let from = self.state().written;
        self.copy(file, from, size, |_| ()).map_err(failed)?;
        self.output.writer().flush().map_err(failed)
    }

    /// Takes the error that ended the delivery.
    pub(crate) fn take_failure(&self) -> Option<Error> {
        self.state().failure.take().map(|source| Error::Output { source })
    }

    /// The session is over: the thread ends.
    pub(super) fn close(&self) {
        self.state().is_closed = true;
        self.changed.notify_all();
    }

    /// Writes what is verified until the session is over.
    fn run(&self) {
        loop {
            let is_idle =
                |state: &mut DeliveryState| !state.is_closed && state.written == state.verified;
            let state =
                self.changed.wait_while(self.state(), is_idle).expect("no panic while held");
            if state.is_closed {
                return;
            }
            let (from, to, positions) = (state.written, state.verified, state.positions);
            let part = state.part.clone().expect("verified bytes are in a part");
            drop(state);
            let written = self.copy(part.data(), from, to, |at| {
                let before = std::mem::replace(&mut self.state().written, at);
                part.free(before, at);
                // Holes take no positions.
                self.granted.send_replace(at.min(positions) + self.window);
            });
            if let Err(error) = written {
                let mut state = self.state();
                state.failure = Some(error);
                state.has_failed = true;
                self.changed.notify_all();
                return;
            }
            self.changed.notify_all();
        }
    }

    /// Copies bytes of a file to the output, and calls `then` with the end of each piece.
    fn copy(&self, file: &File, from: u64, to: u64, then: impl Fn(u64)) -> io::Result<()> {
        let mut buffer = vec![0; AT_ONCE];
        let mut at = from;
        while at < to {
            let length = AT_ONCE.min(usize::try_from(to - at).unwrap_or(AT_ONCE));
            file.read_exact_at(&mut buffer[..length], at)?;
            self.output.writer().write_all(&buffer[..length])?;
            at += length as u64;
            then(at);
        }
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, DeliveryState> {
        self.state.lock().expect("no panic while held")
    }
}

/// What is granted beyond what is written to a folder with this free space; `None` if it is too
/// small. The other half of the space is for what is written and not yet freed.
fn window(free: u64) -> Option<u64> {
    let window = (free / 2 / transfer::BLOCK * transfer::BLOCK).min(MOST_GRANTED);
    (window >= LEAST_GRANTED).then_some(window)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn little_room_is_a_short_window() {
        const MIB: u64 = 1 << 20;
        let windows = [(u64::MAX, 256), (600 * MIB, 256), (16 * MIB, 8), (2 * MIB, 1)];
        for (free, granted) in windows {
            assert_eq!(window(free), Some(granted * MIB), "{free}");
        }
        assert_eq!((window(2 * MIB - 1), window(0)), (None, None));
    }
}
