//! The name of the program. One that adds controllers or schedulers has a name of its own.

use std::path::Path;
use std::sync::OnceLock;

use crate::sanitize;

/// The name of this program, where nothing is added to it.
const PLAIN: &str = "anabranch";

/// The name under which the process was started, without folders.
pub(crate) fn of_program() -> &'static str {
    static NAME: OnceLock<String> = OnceLock::new();
    NAME.get_or_init(|| {
        let first = std::env::args_os().next().unwrap_or_default();
        let name = Path::new(&first).file_name().map(|name| name.to_string_lossy().into_owned());
        name.map_or_else(|| PLAIN.into(), |name| sanitize::clean(&name).into_owned())
    })
}

/// The version of `--version`. That of a program with another name is unknown here.
pub(crate) fn version() -> &'static str {
    const OF_ANOTHER: &str = concat!("(anabranch ", env!("CARGO_PKG_VERSION"), ")");
    if of_program() == PLAIN { env!("CARGO_PKG_VERSION") } else { OF_ANOTHER }
}

/// A command line of the documentation with this program's name.
pub(crate) fn in_line(line: &str) -> String {
    match line.strip_prefix(PLAIN) {
        Some(arguments) => format!("{}{arguments}", of_program()),
        None => line.into(),
    }
}
