//! A copy from another host: the names to get, and the local target.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use files::{AskedFor, Error, FetchOptions, SendOptions, ServedNames, Server};

use super::target::Target;
use crate::commands::cp::messages::Ready;
use crate::dirs::Dirs;
use crate::exit::Failure;

/// The target below `to`, and options to get the names that the remote side serves (`ready`) for
/// `sources`, with the flags of `options`.
///
/// # Errors
/// Errors of [`Target::find`]; [`Error::protocol`] if the remote side serves a name that was not
/// requested.
pub(super) fn fetching(
    options: SendOptions,
    ready: Ready,
    sources: &[OsString],
    to: &Path,
) -> Result<(Target, FetchOptions), Failure> {
    if options.selection.files_from.is_some() {
        return Err(Error::usage(
            "--files-from works only for copies to another host; run the command there",
        )
        .into());
    }
    let names: Vec<PathBuf> = sources.iter().map(|source| requested(source)).collect();
    let served = ServedNames { names: ready.names, rename: ready.rename };
    // Before anything is looked at or made here in the remote side's words.
    AskedFor::new(names.clone(), None).answered(served.clone())?;
    let one = match (&served.names[..], &served.rename) {
        ([_], Some(rename)) => Some(rename.as_os_str()),
        ([name], None) => Some(Path::new(name).file_name().unwrap_or_default()),
        _ => None,
    };
    let target = Target::find(to, one, &Dirs::from_env())?;
    let options = FetchOptions {
        from: vec![Server { remote: options.to, credential: options.credential }],
        names,
        served: Some(served),
        selection: options.selection,
        into: target.directory.clone(),
        rename: target.rename.clone(),
        output: None,
        blake3: None,
        list: false,
        transfer: options.transfer,
    };
    Ok((target, options))
}

/// What a source asks for; the home folder has no name of its own.
fn requested(source: &OsStr) -> PathBuf {
    if source == "~" { PathBuf::new() } else { PathBuf::from(source) }
}
