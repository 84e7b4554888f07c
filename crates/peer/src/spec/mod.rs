//! The grammar of paths and of rates over the week, on the command line and in the configuration
//! file.

mod path;
mod relay;
mod timetable;

pub use path::{Cap, PathClass, PathSpec};
pub use relay::RelaySpec;
pub use timetable::{MomentOfWeek, Timetable};

/// The error of a malformed text: its place, the reason, and a correct example.
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
    /// An error at byte `offset` of `text`.
    fn new(text: &str, offset: usize, why: String, example: &'static str) -> SpecError {
        let at = text.char_indices().take_while(|(start, _)| *start < offset).count() + 1;
        SpecError { text: text.to_string(), at, why, example }
    }
}

/// The parts of `text` between separators, without the whitespace around them, each with the offset
/// of its first byte.
fn parts(text: &str, separator: fn(char) -> bool) -> impl Iterator<Item = (usize, &str)> {
    text.split(separator).map(|part| {
        let offset = part.as_ptr().addr() - text.as_ptr().addr();
        (offset + (part.len() - part.trim_start().len()), part.trim())
    })
}
