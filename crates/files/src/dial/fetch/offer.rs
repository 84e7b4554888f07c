//! A server's offer: its manifest, and the hashes of its blocks if these were asked for.

use transfer::digest::Merge;
use transfer::{Cv, Packing, Tree};
use wire::files::{Ask, FileFrame};
use wire::manifest::Assembly;
use wire::session::SessionFrame;

use crate::asked::AskedFor;
use crate::left_out::{LeftOuts, MOST_NAMED};
use crate::protocol::{MANIFEST_BYTES, error_of, footprint};
use crate::{Compression, Error, FetchOptions, Selection};
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

/// Checks the options, before any connection. Returns what they ask for.
///
/// # Errors
/// [`Error::usage`]; [`Error::protocol`] if the other host answered with other names.
pub(super) fn check(options: &FetchOptions) -> Result<AskedFor, Error> {
    let usage = |text: String| Err(Error::usage(text));
    if options.from.is_empty() {
        return usage("no server is named".into());
    }
    if options.selection.files_from.is_some() {
        return usage("a list of files is for sending only".into());
    }
    let asked = AskedFor::of(options)?;
    options.selection.check_filters()?;
    if options.output.is_some() && options.selection.archive {
        return usage("--archive: an output keeps neither owners nor attributes".into());
    }
    if wants_hashes(options) && options.names.len() != 1 {
        return usage("several servers, or a hash, are for one file: name it alone".into());
    }
    Ok(asked)
}

/// Whether servers must send the hashes of all blocks before data.
pub(super) fn wants_hashes(options: &FetchOptions) -> bool {
    options.from.len() > 1 || options.blake3.is_some()
}

/// Queues the request for a server's offer.
pub(super) fn push_request(conn: &mut Conn, options: &FetchOptions, asked: &AskedFor) {
    for name in asked.wire_names() {
        conn.push(&FileFrame::Name(name));
    }
    options.selection.push_filters(conn);
    let Selection { checksum, strict, archive, .. } = options.selection;
    let hashes = wants_hashes(options);
    let (compress, compress_all) = match options.transfer.compression {
        Compression::Off => (false, false),
        Compression::Auto => (true, false),
        Compression::Always => (true, true),
    };
    let ask = Ask { checksum, hashes, strict, archive, compress, compress_all };
    conn.push(&FileFrame::Ask(ask));
}

/// Reads a server's offer.
pub(super) async fn read_offer<T: Clone>(
    conn: &mut Conn,
    options: &FetchOptions,
    asked: &AskedFor,
    gate: &Gate<T>,
) -> Result<Offer, Refusal> {
    let (mut entries, mut bytes) = (Assembly::new(options.selection.archive), 0);
    let mut left_out = LeftOuts::default();
    loop {
        let heard = conn.receive(|frame| {
            match FileFrame::try_from(frame)? {
                FileFrame::Entries(chunk) => {
                    for part in wire::manifest::entries(chunk) {
                        let part = part?;
                        bytes += footprint(&part);
                        if bytes > MANIFEST_BYTES {
                            return Err(ConnError::Unexpected("endless manifest".into()));
                        }
                        entries.add(part)?;
                    }
                }
                FileFrame::LeftOut(one) => left_out.hear(&one, MOST_NAMED).ok_or_else(|| {
                    ConnError::Unexpected("endless list of what is left out".into())
                })?,
                FileFrame::ManifestEnd(count) => return Ok(Some(Ok(count))),
                FileFrame::Session(SessionFrame::Ping(_)) => {}
                FileFrame::Session(SessionFrame::Abort(code, text)) => {
                    return Ok(Some(Err(error_of(code, text))));
                }
                other => return Err(ConnError::unexpected(&other)),
            }
            Ok(None)
        });
        let heard = heard.await;
        gate.note_heard();
        gate.note_working();
        match heard {
            Ok(None) => {}
            Ok(Some(Ok(count)))
                if (count > 0 || asked.has_contents())
                    && usize::try_from(count) == Ok(entries.entries().len()) =>
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
    let tree = asked.tree(entries, attributes).map_err(Refusal::Unusable)?;
    let hashes = if wants_hashes(options) { Some(hashes(conn, &tree, gate).await?) } else { None };
    Ok(Offer { tree, left_out, hashes })
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
        let heard = conn.receive(|frame| match FileFrame::try_from(frame)? {
            FileFrame::Hashes(hashes) => Ok(Some(Ok(Some(hashes)))),
            FileFrame::Ready => Ok(Some(Ok(None))),
            FileFrame::Session(SessionFrame::Ping(_)) => Ok(None),
            FileFrame::Session(SessionFrame::Abort(code, text)) => {
                Ok(Some(Err(error_of(code, text))))
            }
            other => Err(ConnError::unexpected(&other)),
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
