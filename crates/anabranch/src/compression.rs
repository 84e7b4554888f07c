//! What is compressed on its way, as a flag and a key of the configuration.

use clap::ValueEnum;
use files::Compression;

/// What is compressed on its way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub(crate) enum CompressChoice {
    /// What arrives sooner by it, as measured on the way
    #[default]
    Auto,
    /// Nothing
    Off,
    /// All that becomes shorter
    Zstd,
}

impl From<CompressChoice> for Compression {
    fn from(choice: CompressChoice) -> Compression {
        match choice {
            CompressChoice::Auto => Compression::Auto,
            CompressChoice::Off => Compression::Off,
            CompressChoice::Zstd => Compression::Always,
        }
    }
}
