//! The hashes of a file's blocks, sent before its data, and cached until the file changes.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use tokio::sync::mpsc;
use transfer::Packing;
use wire::files::FileFrame;
use wire::files::Hashes;

use super::read::{FileId, Source, Supply};
use crate::Error;
use crate::protocol::source_abort;
use peer::listen::admission::refuse;
use peer::{Conn, ConnError};

/// The block hashes of recently requested files.
#[derive(Default)]
pub(crate) struct HashCache(Mutex<VecDeque<(FileId, BlockHashes)>>);

/// The chaining values of a file's blocks.
type BlockHashes = Arc<Vec<[u8; 32]>>;

/// Capacity of the cache in hashes: 64 MiB, for half a terabyte of data.
const MOST_CACHED: usize = 1 << 21;
/// Hashes per frame: those of 64 MiB.
const AT_ONCE: usize = 256;

impl HashCache {
    fn get(&self, file: &FileId) -> Option<BlockHashes> {
        let known = self.0.lock().expect("no panic while held");
        known.iter().find(|(known, _)| known == file).map(|(_, hashes)| Arc::clone(hashes))
    }

    fn put(&self, file: FileId, hashes: BlockHashes) {
        let mut known = self.0.lock().expect("no panic while held");
        known.push_back((file, hashes));
        while known.iter().map(|(_, hashes)| hashes.len()).sum::<usize>() > MOST_CACHED {
            known.pop_front();
        }
    }
}

/// Sends the hashes of the blocks of the one file of `source`.
pub(crate) async fn send(
    conn: &mut Conn,
    cache: &Arc<HashCache>,
    source: &Arc<Source>,
) -> Result<(), ConnError> {
    let (sender, mut parts) = mpsc::channel(4);
    let (cache, source) = (Arc::clone(cache), Arc::clone(source));
    tokio::task::spawn_blocking(move || {
        if let Err(error) = hash(&cache, &source, &sender) {
            let _ = sender.blocking_send(Err(error));
        }
    });
    let mut first = 0;
    while let Some(part) = conn.ping_during(parts.recv()).await? {
        match part {
            Ok(hashes) => {
                let next = first + hashes.len() as u64;
                conn.push(&FileFrame::Hashes(Hashes { first, hashes }));
                conn.flush_to_reader().await?;
                first = next;
            }
            Err(error) => {
                let (code, text) = source_abort(&error);
                return Err(refuse(conn, code, text).await);
            }
        }
    }
    conn.push(&FileFrame::Ready);
    conn.flush_to_reader().await
}

/// Hashes the file block by block, unless the hashes are cached.
fn hash(
    cache: &HashCache,
    source: &Arc<Source>,
    out: &mpsc::Sender<Result<Vec<[u8; 32]>, Error>>,
) -> Result<(), Error> {
    let packing =
        Packing::new(source.tree(), |_| true).map_err(|error| Error::usage(error.to_string()))?;
    let [entry] = source.tree().entries() else {
        return Err(Error::usage(
            "hashes are sent for one file only, and several entries were requested",
        ));
    };
    if source.tree().file(0).is_none() {
        return Err(Error::usage(format!("{} is no file", String::from_utf8_lossy(&entry.path))));
    }
    let file = source.file_id(0)?;
    if let Some(known) = cache.get(&file) {
        for part in known.chunks(AT_ONCE) {
            if out.blocking_send(Ok(part.to_vec())).is_err() {
                return Ok(());
            }
        }
        return Ok(());
    }
    let blocks = packing.layout().blocks();
    let supply = Supply::new(Arc::clone(source), packing);
    let (mut all, mut part) = (Vec::new(), Vec::new());
    let (mut buffer, mut is_same) = (super::read::Buffer::default(), true);
    for block in 0..blocks {
        if out.is_closed() {
            return Ok(());
        }
        part.push(supply.block_hash(block, &mut buffer)?.0);
        if part.len() == AT_ONCE || block + 1 == blocks {
            // A file that has lost its name is not hashed to its end.
            is_same &= source.file_id(0)? == file;
            all.extend_from_slice(&part);
            if out.blocking_send(Ok(std::mem::take(&mut part))).is_err() {
                return Ok(());
            }
        }
    }
    if is_same {
        cache.put(file, Arc::new(all));
    }
    Ok(())
}
