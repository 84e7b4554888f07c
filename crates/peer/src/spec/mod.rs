//! What people write on the command line and in the configuration file: paths with their policy,
//! and rates over the week.

mod path;
mod timetable;

pub use path::{Cap, PathClass, PathSpec};
pub use timetable::{MomentOfWeek, Timetable};

/// Why a text could not be understood: where in it, what stands there, and one that works.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{text}', character {at}: {why}; write for example {example}")]
pub struct SpecError {
    text: String,
    /// Counted from one, in characters.
    at: usize,
    why: String,
    example: &'static str,
}

impl SpecError {
    /// At byte `offset` of `text`.
    fn new(text: &str, offset: usize, why: String, example: &'static str) -> SpecError {
        let at = text.char_indices().take_while(|(start, _)| *start < offset).count() + 1;
        SpecError { text: text.to_string(), at, why, example }
    }
}

/// The parts of `text` between the places where `separator` holds, each with the offset of its
/// first byte, without the whitespace around it.
fn parts(text: &str, separator: fn(char) -> bool) -> impl Iterator<Item = (usize, &str)> {
    text.split(separator).map(|part| {
        let offset = part.as_ptr().addr() - text.as_ptr().addr();
        (offset + (part.len() - part.trim_start().len()), part.trim())
    })
}
