//! Reads what a sender offers.

use peer::conn::SIGN_OF_LIFE;
use peer::listen::admission::UNAUTHENTICATED_PATIENCE;
use peer::{Conn, ConnError};
use tokio::time::{Instant, timeout};
use transfer::Tree;
use wire::files::FileFrame;
use wire::manifest::{Assembly, is_plain};
use wire::session::{AbortCode, SessionFrame};

use super::declined::Declined;
use crate::budget::{CONNECTION_BYTES, Share};
use crate::left_out::LeftOuts;
use crate::protocol::{MANIFEST_BYTES, MOST_MIRRORS, footprint};
use crate::sink::Mirror;

/// What a sender offers.
pub(super) struct Offered {
    pub(super) tree: Tree,
    /// The folders in which it wants everything else deleted.
    pub(super) mirror: Mirror,
    /// What it could not read.
    pub(super) left_out: LeftOuts,
}

impl Offered {
    /// Reads a manifest, with attributes if it `is_archive`, and takes memory for it from `share`.
    pub(super) async fn read(
        conn: &mut Conn,
        share: &mut Share,
        is_archive: bool,
    ) -> Result<Offered, Declined> {
        let (mut entries, mut left_out) = (Assembly::new(is_archive), LeftOuts::default());
        let mut mirror = Mirror::default();
        let (mut chunk, mut bytes) = (Vec::new(), 0);
        let mut told = Instant::now();
        let busy = |share: &Share| Err(Declined::Told(AbortCode::Busy, share.why_not()));
        let broken = |text: String| Err(Declined::Told(AbortCode::Protocol, text));
        if !share.take(conn, CONNECTION_BYTES).await? {
            return busy(share);
        }
        loop {
            if told.elapsed() >= SIGN_OF_LIFE {
                told = Instant::now();
                conn.push(&SessionFrame::Ping(0));
                conn.try_flush()?;
            }
            let end = conn.receive(|frame| match FileFrame::try_from(frame)? {
                FileFrame::Entries(part) => {
                    // Paths are compressed: the entries are parsed only as memory for them is
                    // reserved.
                    chunk.clear();
                    chunk.extend_from_slice(part);
                    Ok(None)
                }
                FileFrame::LeftOut(one) => {
                    chunk.clear();
                    let heard = left_out.hear(&one, 1).map(|()| None);
                    heard.ok_or_else(|| ConnError::Unexpected("a second LeftOut".into()))
                }
                FileFrame::Mirror(folder) if mirror.folders.len() < MOST_MIRRORS => {
                    chunk.clear();
                    if !folder.is_empty() && !is_plain(folder) {
                        return Err(ConnError::Unexpected("Mirror of no plain path".into()));
                    }
                    mirror.folders.push(folder.to_vec());
                    Ok(None)
                }
                FileFrame::Filter(include, glob) if !mirror.folders.is_empty() => {
                    chunk.clear();
                    let heard = mirror.selection.hear_filter(include, glob).map(|()| None);
                    heard.ok_or_else(|| ConnError::Unexpected("too many patterns".into()))
                }
                FileFrame::ManifestEnd(count) => Ok(Some(count)),
                other => Err(ConnError::unexpected(&other)),
            });
            let end = timeout(UNAUTHENTICATED_PATIENCE, end)
                .await
                .map_err(|_| ConnError::Silent(UNAUTHENTICATED_PATIENCE));
            match end.and_then(|end| end) {
                Ok(None) => {}
                // A folder whose contents are sent may be empty.
                Ok(Some(count)) if usize::try_from(count) == Ok(entries.entries().len()) => {
                    let (entries, attributes) = entries.into_parts();
                    return match Tree::with_attributes(entries, attributes) {
                        Ok(tree) => Ok(Offered { tree, mirror, left_out }),
                        Err(error) => broken(error.to_string()),
                    };
                }
                Ok(Some(_)) => {
                    return broken("the manifest does not add up".into());
                }
                Err(ConnError::Refused(text)) => {
                    return Err(Declined::Told(AbortCode::Refused, text));
                }
                Err(error @ (ConnError::Wire(_) | ConnError::Unexpected(_))) => {
                    return broken(error.to_string());
                }
                Err(error) => return Err(error.into()),
            }
            for part in wire::manifest::entries(&chunk) {
                let part = match part {
                    Ok(part) => part,
                    Err(error) => {
                        return broken(ConnError::Wire(error).to_string());
                    }
                };
                bytes += footprint(&part);
                if bytes > MANIFEST_BYTES {
                    let text = ConnError::Unexpected("endless manifest".into()).to_string();
                    return broken(text);
                }
                if !share.take(conn, footprint(&part)).await? {
                    return busy(share);
                }
                if let Err(error) = entries.add(part) {
                    return broken(ConnError::Wire(error).to_string());
                }
                // A long list never blocks on the socket: other tasks must get their turn.
                tokio::task::consume_budget().await;
            }
        }
    }
}
