//! Files and folders over many paths.
//!
//! A transfer has a source and a sink of files; one side dials and the other listens. All four
//! combinations exist: [`send`] dials with a source, [`receive`] listens with a sink, [`fetch`]
//! dials with a sink, and [`serve`] listens with a source. All report their progress as [events].

#[cfg(test)]
mod adversarial;
mod asked;
mod attributes;
mod beneath;
mod blocking;
mod budget;
mod compress;
mod dial;
mod dry_run;
mod error;
mod left_out;
mod listen;
mod listing;
mod options;
mod protocol;
mod rates;
pub mod rights;
mod sink;
mod source;
mod stop;

pub use asked::{AskedFor, ServedNames};
pub use compress::Compression;
pub use dial::{fetch, send, send_to_each};
pub use error::Error;
pub use listen::{Receiving, Serving, TransferNumbers, receive, serve};
pub use options::{
    CarrierChoice, FetchOptions, Output, Overwrite, ReceiveOptions, Selection, SendOptions,
    ServeOptions, Server, StreamInput, TransferOptions,
};
pub use source::{folder_name, matches_glob, pattern};
pub use stop::Stop;
