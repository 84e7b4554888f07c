//! A copy from another host: the names to get, and the local target.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use files::{Error, FetchOptions, SendOptions, Server};

use super::target::Target;
use crate::commands::far::messages::Ready;
use crate::commands::far::sources::matches;
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
    for name in &ready.names {
        // A malicious remote side must not choose names here.
        if !sources.iter().any(|source| was_requested(name, ready.rename.as_deref(), source)) {
            let text =
                format!("the remote side offers {}, which was not requested", name.display());
            return Err(Error::protocol(text).into());
        }
    }
    let mut names: Vec<PathBuf> = ready.names.iter().map(PathBuf::from).collect();
    let one = match (&ready.names[..], &ready.rename) {
        ([_], Some(rename)) => Some(rename.clone()),
        ([name], None) => Some(last(name).to_os_string()),
        _ => None,
    };
    let target = Target::find(to, one.as_deref(), &Dirs::from_env())?;
    if target.rename.is_some() {
        // The folder itself takes the new name.
        names = ready.names.iter().map(without_slash).collect();
    }
    let rename = target.rename.clone().or(ready.rename.filter(|_| one.is_some()));
    let options = FetchOptions {
        from: vec![Server { remote: options.to, credential: options.credential }],
        names,
        selection: options.selection,
        into: target.directory.clone(),
        rename,
        output: None,
        blake3: None,
        list: false,
        transfer: options.transfer,
    };
    Ok((target, options))
}

/// Whether a file served as `name`, or as `rename` if that is given, was requested by `source`.
fn was_requested(name: &OsStr, rename: Option<&OsStr>, source: &OsStr) -> bool {
    let requested = source.as_bytes().rsplit(|&byte| byte == b'/').next().unwrap_or_default();
    // The contents of a folder have names that this side cannot know: only who asks for contents
    // gets them.
    let asks_for_contents = matches!(requested, b"" | b"." | b".." | b"~");
    let has_contents = name.is_empty() || name.as_bytes().ends_with(b"/");
    if asks_for_contents || has_contents {
        return asks_for_contents && has_contents;
    }
    let name = rename.unwrap_or_else(|| last(name)).as_bytes();
    name == requested || matches(requested, name)
}

/// The last component, with or without a slash at its end.
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
    fn only_requested_names_are_accepted() {
        for (name, rename, source, expected) in [
            ("file", None, "a/file", true),
            ("below/file", None, "/a/below/file", true),
            (".bashrc", None, "file", false),
            ("file/", None, "file", false),
            ("file/", None, "f*", false),
            ("file/", Some("file"), "file", false),
            ("", None, "file", false),
            ("logs/", None, "*/", true),
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
            let requested =
                was_requested(OsStr::new(name), rename.map(OsStr::new), OsStr::new(source));
            assert_eq!(requested, expected, "{name} {rename:?} for {source}");
        }
    }
}
