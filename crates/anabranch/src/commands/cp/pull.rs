//! A copy from another host: what is fetched, and where it goes here.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use net::{Error, FetchOptions, SendOptions, Server};

use super::arrival::Arrival;
use crate::commands::far::messages::Ready;
use crate::commands::far::sources::matches;
use crate::dirs::Dirs;
use crate::exit::Failure;

/// What the far side serves of `sources`, to `to`, with the flags that `options` have.
///
/// # Errors
/// Those of [`Arrival::find`]; [`Error::Protocol`] if the far side names what was not asked for.
pub(super) fn fetching(
    options: SendOptions,
    ready: Ready,
    sources: &[OsString],
    to: &Path,
) -> Result<(Arrival, FetchOptions), Failure> {
    if options.selection.files_from.is_some() {
        return Err(Error::Usage(
            "--files-from is for copying to another host; run the command there".into(),
        )
        .into());
    }
    for name in &ready.names {
        // What arrives here has the names that were asked for, whatever the far side would like.
        if !sources.iter().any(|source| was_asked_for(name, ready.rename.as_deref(), source)) {
            let text = format!("the far side offers {}, which was not asked for", name.display());
            return Err(Error::Protocol(text).into());
        }
    }
    let mut names: Vec<PathBuf> = ready.names.iter().map(PathBuf::from).collect();
    let one = match (&ready.names[..], &ready.rename) {
        ([_], Some(called)) => Some(called.clone()),
        ([name], None) => Some(last(name).to_os_string()),
        _ => None,
    };
    let arrival = Arrival::find(to, one.as_deref(), &Dirs::from_env())?;
    if arrival.rename.is_some() {
        // The folder itself takes the new name.
        names = ready.names.iter().map(without_slash).collect();
    }
    let rename = arrival.rename.clone().or(ready.rename.filter(|_| one.is_some()));
    let options = FetchOptions {
        from: vec![Server { remote: options.to, credential: options.credential }],
        names,
        selection: options.selection,
        into: arrival.directory.clone(),
        rename,
        blake3: None,
        transfer: options.transfer,
    };
    Ok((arrival, options))
}

/// Whether what is served by `name`, and `called` otherwise if that is given, is what `source` asks
/// for.
fn was_asked_for(name: &OsStr, called: Option<&OsStr>, source: &OsStr) -> bool {
    let asked = source.as_bytes().rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    // Of a folder, what is in it: these names nobody knows before.
    if matches!(asked, b"" | b"." | b".." | b"~") {
        return name.is_empty() || name.as_bytes().ends_with(b"/");
    }
    let name = called.unwrap_or_else(|| last(name)).as_bytes();
    name == asked || matches(asked, name)
}

/// The last component, be there a slash behind it or not.
fn last(name: &OsStr) -> &OsStr {
    Path::new(name).file_name().unwrap_or_default()
}

fn without_slash(name: &OsString) -> PathBuf {
    let bytes = name.as_bytes();
    PathBuf::from(OsString::from_vec(bytes.strip_suffix(b"/").unwrap_or(bytes).to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_asked_for_is_taken() {
        for (name, called, source, is) in [
            ("file", None, "a/file", true),
            ("below/file", None, "/a/below/file", true),
            (".bashrc", None, "file", false),
            ("file/", None, "file", true),
            ("a.log", None, "logs/*.log", true),
            ("a.txt", None, "logs/*.log", false),
            (".log", None, "*", false),
            ("target", Some("link"), "a/link", true),
            ("file", Some(".bashrc"), "file", false),
            ("home/", None, "", true),
            ("a/", None, "a/", true),
            ("", None, "/", true),
            ("a", None, "a/", false),
        ] {
            let asked = was_asked_for(OsStr::new(name), called.map(OsStr::new), OsStr::new(source));
            assert_eq!(asked, is, "{name} {called:?} for {source}");
        }
    }
}
