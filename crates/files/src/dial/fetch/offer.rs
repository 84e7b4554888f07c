//! A server's offer: its manifest, and the hashes of its blocks if these were asked for.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use transfer::digest::Merge;
use transfer::{Cv, Packing, Tree};
use wire::Frame;
use wire::frame::{Ask, MAX_NAME};
use wire::manifest::{Assembly, AttributesOf, Entry, Kind, is_plain};

use crate::left_out::{LeftOuts, MOST_NAMED};
use crate::protocol::{MANIFEST_BYTES, error_of, footprint};
use crate::source::{is_glob, matches};
use crate::{Error, FetchOptions, Selection};
use peer::dial::Gate;
use peer::{Conn, ConnError};

/// A server's offer.
pub(super) struct Offer {
    /// The requested files, under their local names.
    pub(super) tree: Tree,
    /// The entries that the server could not read.
    pub(super) left_out: LeftOuts,
    /// The chaining values of all blocks and the file's hash, if they were asked for.
    pub(super) hashes: Option<(Vec<[u8; 32]>, Cv)>,
}

/// The reason for a missing offer.
pub(super) enum Refusal {
    /// The connection failed; another one may succeed.
    Lost(ConnError),
    /// The server cannot be used.
    Unusable(Error),
    /// The fetch is over, and the driver has been told why.
    Over,
}

impl From<ConnError> for Refusal {
    fn from(error: ConnError) -> Refusal {
        Refusal::Lost(error)
    }
}

/// Checks the options, before any connection.
///
/// # Errors
/// [`Error::usage`].
pub(super) fn check(options: &FetchOptions) -> Result<(), Error> {
    let usage = |text: String| Err(Error::usage(text));
    if options.from.is_empty() {
        return usage("no server is named".into());
    }
    if options.names.is_empty() {
        return usage("no file is named".into());
    }
    if options.selection.files_from.is_some() {
        return usage("a list of files is for sending only".into());
    }
    for name in &options.names {
        let bytes = plain_name(name);
        if bytes.len() > MAX_NAME
            || !bytes.is_empty() && !is_plain(bytes.strip_suffix(b"/").unwrap_or(bytes))
        {
            return usage(format!(
                "{} is no plain name below what a server offers: '..' and the like lead nowhere \
                 there",
                name.display()
            ));
        }
    }
    options.selection.check_filters()?;
    if options.output.is_some() && options.selection.archive {
        return usage("--archive: an output keeps neither owners nor attributes".into());
    }
    if let Some(name) = &options.rename
        && (!is_plain(name.as_bytes()) || name.as_bytes().contains(&b'/'))
    {
        return usage(format!("{} is no plain name for a file", Path::new(name).display()));
    }
    if wants_hashes(options) && options.names.len() != 1 {
        return usage("several servers, or a hash, are for one file: name it alone".into());
    }
    Ok(())
}

/// Whether servers must send the hashes of all blocks before data.
pub(super) fn wants_hashes(options: &FetchOptions) -> bool {
    options.from.len() > 1 || options.blake3.is_some()
}

/// A name as servers expect it: relative to their root.
fn plain_name(name: &Path) -> &[u8] {
    let bytes = name.as_os_str().as_bytes();
    let start = bytes.iter().position(|&byte| byte != b'/').unwrap_or(bytes.len());
    let mut bytes = &bytes[start..];
    while let Some(rest) = bytes.strip_prefix(b"./") {
        bytes = rest;
    }
    if bytes == b"." { b"" } else { bytes }
}

/// Queues the request for a server's offer.
pub(super) fn push_request(conn: &mut Conn, options: &FetchOptions) {
    for name in &options.names {
        conn.push(&Frame::Name(plain_name(name)));
    }
    options.selection.push_filters(conn);
    let Selection { checksum, strict, archive, .. } = options.selection;
    let ask = Ask { checksum, hashes: wants_hashes(options), strict, archive };
    conn.push(&Frame::Ask(ask));
}

/// Reads a server's offer.
pub(super) async fn read_offer<T: Clone>(
    conn: &mut Conn,
    options: &FetchOptions,
    gate: &Gate<T>,
) -> Result<Offer, Refusal> {
    let (mut entries, mut bytes) = (Assembly::new(options.selection.archive), 0);
    let mut left_out = LeftOuts::default();
    loop {
        let heard = conn.receive(|frame| {
            match frame {
                Frame::Entries(chunk) => {
                    for part in wire::manifest::entries(chunk) {
                        let part = part?;
                        bytes += footprint(&part);
                        if bytes > MANIFEST_BYTES {
                            return Err(ConnError::Unexpected("endless manifest".into()));
                        }
                        entries.add(part)?;
                    }
                }
                Frame::LeftOut(one) => left_out.hear(&one, MOST_NAMED).ok_or_else(|| {
                    ConnError::Unexpected("endless list of what is left out".into())
                })?,
                Frame::ManifestEnd(count) => return Ok(Some(Ok(count))),
                Frame::Ping(_) => {}
                Frame::Abort(code, text) => return Ok(Some(Err(error_of(code, text)))),
                other => return Err(ConnError::Unexpected(String::from(&other))),
            }
            Ok(None)
        });
        let heard = heard.await;
        gate.note_heard();
        gate.note_working();
        match heard {
            Ok(None) => {}
            Ok(Some(Ok(count)))
                if count > 0 && usize::try_from(count) == Ok(entries.entries().len()) =>
            {
                break;
            }
            Ok(Some(Ok(_))) => {
                return Err(Refusal::Unusable(Error::protocol("the manifest does not add up")));
            }
            Ok(Some(Err(error))) => return Err(Refusal::Unusable(error)),
            Err(error @ (ConnError::Wire(_) | ConnError::Unexpected(_))) => {
                return Err(Refusal::Unusable(Error::protocol(error.to_string())));
            }
            Err(error) => return Err(error.into()),
        }
    }
    let (entries, attributes) = entries.into_parts();
    was_asked_for(&entries, &options.names).map_err(Refusal::Unusable)?;
    let tree = tree(entries, attributes, options.rename.as_deref()).map_err(Refusal::Unusable)?;
    let hashes = if wants_hashes(options) { Some(hashes(conn, &tree, gate).await?) } else { None };
    Ok(Offer { tree, left_out, hashes })
}

/// Checks that every entry was asked for. A server decides only on the contents of a folder that
/// was asked for.
fn was_asked_for(entries: &[Entry], names: &[PathBuf]) -> Result<(), Error> {
    let asked: Vec<&[u8]> = names.iter().map(|name| plain_name(name)).collect();
    // The contents of a folder, without the folder itself.
    if asked.iter().any(|name| name.is_empty() || name.ends_with(b"/")) {
        return Ok(());
    }
    for entry in entries {
        let top = entry.path.split(|&byte| byte == b'/').next().unwrap_or_default();
        let stands_for = |name: &&[u8]| {
            let last = name.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
            Ok::<_, Error>(last == top || is_glob(last) && matches(last, top)?)
        };
        let mut is_asked = false;
        for name in &asked {
            is_asked = is_asked || stands_for(name)?;
        }
        if !is_asked {
            let shown = String::from_utf8_lossy(&entry.path).into_owned();
            return Err(Error::protocol(format!("it offers {shown}, which nobody asked for")));
        }
    }
    Ok(())
}

/// The folders here in which everything is deleted that the server does not have: those that were
/// asked for as folders. With a name of its own, the one folder of `tree`.
pub(super) fn mirrored(options: &FetchOptions, tree: &Tree) -> Vec<Vec<u8>> {
    let tops = options.names.iter().map(|name| {
        let name = plain_name(name);
        let last = name.rsplit(|&byte| byte == b'/').next().unwrap_or_default();
        options.rename.as_ref().map_or(last, |rename| rename.as_bytes()).to_vec()
    });
    let is_folder = |top: &Vec<u8>| {
        let is_this = |entry: &Entry| entry.path == *top;
        let found = tree.entries().iter().find(|entry| is_this(entry));
        top.is_empty() || found.is_some_and(|entry| matches!(entry.kind, Kind::Directory { .. }))
    };
    tops.filter(is_folder).collect()
}

/// The tree of the entries, with its one top entry renamed.
fn tree(
    mut entries: Vec<Entry>,
    attributes: AttributesOf,
    rename: Option<&OsStr>,
) -> Result<Tree, Error> {
    if let Some(name) = rename {
        let top = |path: &[u8]| path.iter().position(|&byte| byte == b'/').unwrap_or(path.len());
        let first = entries[0].path[..top(&entries[0].path)].to_vec();
        for entry in &mut entries {
            let end = top(&entry.path);
            if entry.path[..end] != first {
                let text = "several entries cannot share one new name: name an existing folder, \
                            or end it with a slash";
                return Err(Error::usage(text));
            }
            entry.path.splice(..end, name.as_bytes().iter().copied());
        }
    }
    let tree = Tree::with_attributes(entries, attributes);
    let tree = tree.map_err(|error| Error::protocol(error.to_string()))?;
    if tree.is_stream() {
        return Err(Error::protocol("it offers a stream, which nobody can ask for"));
    }
    Ok(tree)
}

/// Reads the hashes of the one file's blocks, and merges them into the file's hash.
async fn hashes<T: Clone>(
    conn: &mut Conn,
    tree: &Tree,
    gate: &Gate<T>,
) -> Result<(Vec<[u8; 32]>, Cv), Refusal> {
    let unusable = |text: &str| Refusal::Unusable(Error::protocol(text));
    let packing = Packing::new(tree, |_| true).map_err(|error| unusable(&error.to_string()))?;
    if tree.entries().len() != 1 || tree.file_count() != 1 {
        let text = "several servers, or a hash, are for one file, and this is not one file";
        return Err(Refusal::Unusable(Error::usage(text)));
    }
    let mut merge = Merge::new(packing.layout().total().0);
    let mut all: Vec<[u8; 32]> = Vec::new();
    loop {
        let heard = conn.receive(|frame| match frame {
            Frame::Hashes(hashes) => Ok(Some(Ok(Some(hashes)))),
            Frame::Ready => Ok(Some(Ok(None))),
            Frame::Ping(_) => Ok(None),
            Frame::Abort(code, text) => Ok(Some(Err(error_of(code, text)))),
            other => Err(ConnError::Unexpected(String::from(&other))),
        });
        let heard = heard.await?;
        gate.note_heard();
        gate.note_working();
        match heard {
            None => {}
            Some(Err(error)) => return Err(Refusal::Unusable(error)),
            Some(Ok(Some(part))) => {
                let blocks = packing.layout().blocks();
                if part.first != all.len() as u64 || part.first + part.hashes.len() as u64 > blocks
                {
                    return Err(unusable("it sent hashes of blocks that do not exist"));
                }
                for hash in part.hashes {
                    merge
                        .insert(all.len() as u64, Cv(hash))
                        .map_err(|error| unusable(&error.to_string()))?;
                    all.push(hash);
                }
            }
            Some(Ok(None)) => {
                let root = merge
                    .root()
                    .ok_or_else(|| unusable("it sent the hashes of some blocks only"))?;
                return Ok((all, root));
            }
        }
    }
}
