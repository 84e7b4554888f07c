//! Received data of a session: written, hashed and verified by blocks.

use std::sync::atomic::Ordering;

use transfer::digest::block_cv;
use transfer::{BLOCK, Cv, Extent, Object, Verdict};
use units::{Bytes, Span, Time};
use wire::files::{Data, Grown, Range};

use std::sync::Arc;

use super::{MOST_REFUSALS, SinkSession, refusal};
use crate::Error;
use crate::sink::large::Part;
use crate::sink::settle::Completed;
use peer::ConnError;

/// The free space is looked at each time that a stream has grown by this much.
const ROOM_CHECKED: u64 = 16 << 20;

impl SinkSession {
    /// Handles the news that the stream has grown, or has ended.
    pub(crate) fn handle_grown(&self, grown: Grown) -> Result<(), ConnError> {
        let Grown { size, is_end } = grown;
        let (finished, missing, more) = {
            let mut core = self.core();
            let before = core.layout().total().0;
            // The part of a complete stream has its name already.
            let part = if core.layout().is_growing() { Some(self.part(0)) } else { None };
            let part = part.transpose().map_err(|error| self.fail(error))?;
            let finished = core.handle_grown(size, is_end).map_err(broken)?;
            if let Some(part) = part.as_ref().filter(|_| is_end) {
                part.note_end(size);
            }
            let known = core.layout().total();
            (
                part.zip(finished),
                known - core.verified().total(),
                known.0 / ROOM_CHECKED - before / ROOM_CHECKED,
            )
        };
        if let Some((part, (object, root))) = finished {
            self.deliver(&part);
            self.unnamed().push(Completed::Large(object, root, part));
        }
        if more > 0 {
            // For the part of the stream that is known by now.
            self.target.directory.need(missing).map_err(|error| self.fail(error))?;
        }
        Ok(())
    }

    /// Handles data from the path called `path`: writes the new bytes and verifies the blocks that
    /// they complete. Returns the range to acknowledge.
    /// Blocks for as long as the disk takes.
    pub(crate) fn handle_data(&self, path: &str, data: &Data<'_>) -> Result<Range, ConnError> {
        self.writes.run(|| self.write_data(path, data))
    }

    fn write_data(&self, path: &str, data: &Data<'_>) -> Result<Range, ConnError> {
        let extent = Extent::new(data.position, data.payload.len() as u64);
        let fresh = self.core().handle_data(extent).map_err(broken)?;
        let block = extent.start / BLOCK;
        let whole = self
            .target
            .packing
            .layout()
            .block_extent(block)
            .expect("the core checked that it lies in an object");
        // A block in one piece is hashed in memory; if it is a pack, it is not spooled either.
        let is_whole =
            whole == extent && fresh.duplicate == Bytes::ZERO && data.block_hash.is_some();
        let object = self.object(extent);
        if let Err(error) = self.write(object, extent, &fresh.pieces, data.payload, is_whole) {
            fresh.pieces.iter().for_each(|piece| self.core().handle_abandoned(*piece));
            return Err(self.fail(error));
        }
        let mut ready = Vec::new();
        {
            let mut core = self.core();
            for piece in &fresh.pieces {
                core.handle_written(*piece).map_err(broken)?;
            }
            if let Some(hash) = data.block_hash {
                core.handle_hash(block, Cv(hash)).map_err(broken)?;
            }
            while let Some(block) = core.poll_verify() {
                ready.push(block);
            }
        }
        for block in ready {
            let in_memory = (is_whole && block.extent == extent).then_some(data.payload);
            self.verify(block, in_memory).map_err(|error| self.fail(error))?;
        }
        if fresh.duplicate.0 < extent.len {
            self.last_position.store(extent.start, Ordering::Relaxed);
            let elapsed = self.clock.now() - Time::ZERO;
            let mut members = self.members();
            members.away = Span::ZERO;
            let path = members.path(path);
            path.bytes += Bytes(extent.len) - fresh.duplicate;
            path.last = elapsed;
        }
        Ok(Range { start: extent.start, len: extent.len })
    }

    /// Writes the new pieces of an extent.
    fn write(
        &self,
        object: usize,
        extent: Extent,
        pieces: &[Extent],
        payload: &[u8],
        is_whole: bool,
    ) -> Result<(), Error> {
        let object_extent =
            self.target.packing.layout().object_extent(object).expect("an object of the layout");
        for piece in pieces {
            let skip = usize::try_from(piece.start - extent.start).expect("within the payload");
            let bytes =
                &payload[skip..skip + usize::try_from(piece.len).expect("within the payload")];
            match self.target.packing.object(object) {
                // Of one that is left out there is no part any more.
                Some(Object::Large(_)) if self.target.is_missing(object) => {}
                Some(Object::Large(_)) => self.part(object)?.write(piece.start, bytes)?,
                _ if is_whole => {}
                _ => self.target.staging.spool(object, piece.start - object_extent.start, bytes)?,
            }
        }
        Ok(())
    }

    /// Hashes a complete block, from memory if possible; journals or stages it if it is right.
    fn verify(&self, block: transfer::Block, in_memory: Option<&[u8]>) -> Result<(), Error> {
        let object = self.object(block.extent);
        let object_extent =
            self.target.packing.layout().object_extent(object).expect("an object of the layout");
        let offset = block.extent.start - object_extent.start;
        match self.target.packing.object(object).expect("an object of the layout") {
            Object::Large(file) => {
                let part = self.part(object)?;
                let found = match in_memory {
                    Some(bytes) => block_cv(part.data_len(), offset, bytes),
                    None => part.hash_block(block.extent)?,
                };
                let ok = found == block.expected;
                if ok {
                    // Journaled first: what the core counts as verified must outlive this process.
                    if self.delivery.is_none() {
                        part.record_block(offset / BLOCK, block.expected)?;
                    }
                }
                let finished = self.handle_hashed(block, ok, file, offset / BLOCK)?;
                self.deliver(&part);
                if let Some((object, root)) = finished {
                    self.unnamed().push(Completed::Large(object, root, part));
                }
            }
            Object::Pack(files) => {
                let mut spooled = Vec::new();
                let bytes = if let Some(bytes) = in_memory {
                    bytes
                } else {
                    spooled.resize(
                        usize::try_from(block.extent.len).expect("a block fits in memory"),
                        0,
                    );
                    self.target.staging.read_spooled(object, &mut spooled)?;
                    &spooled
                };
                let found = block_cv(object_extent.len, offset, bytes);
                let ok = found == block.expected;
                let mut staged = Vec::new();
                if ok {
                    let mut rest = bytes;
                    for &index in files {
                        let file = self.tree().file(index).expect("a file of the tree");
                        let (data, after) =
                            rest.split_at(usize::try_from(file.data_len()).expect("a small one"));
                        staged.push(self.target.staging.put(
                            index,
                            &self.tree().entries()[index].path,
                            file,
                            data,
                        )?);
                        rest = after;
                    }
                    self.target.staging.free_slot(object);
                }
                if let Some((object, root)) = self.handle_hashed(block, ok, files[0], 0)? {
                    self.unnamed().push(Completed::Small(Some((object, root)), staged));
                }
            }
        }
        Ok(())
    }

    /// Lets the output have what is verified from the file's start.
    fn deliver(&self, part: &Arc<Part>) {
        let Some(delivery) = &self.delivery else { return };
        let (verified, total) = {
            let core = self.core();
            let first = core.verified().iter().next().filter(|first| first.start == 0);
            (first.map_or(0, |first| first.end()), core.layout().total().0)
        };
        // Behind a piece of data a hole may follow, which is at its place already.
        let next = self.target.packing.pieces(Extent::new(verified, 1)).next();
        let bytes = match next {
            Some(piece) if verified < total || self.tree().is_stream() => piece.offset,
            // The rest, holes at the end, follows when the file is complete.
            _ => {
                let last = verified.saturating_sub(1);
                let last = self.target.packing.pieces(Extent::new(last, 1)).next();
                last.map_or(0, |piece| piece.offset + 1)
            }
        };
        delivery.note_verified(part, bytes, verified);
    }

    /// Handles the result of hashing a block. Returns index and hash of the object that the block
    /// completes, if it does.
    fn handle_hashed(
        &self,
        block: transfer::Block,
        ok: bool,
        file: usize,
        in_file: u64,
    ) -> Result<Option<(usize, Cv)>, Error> {
        let (verdict, refusals) = {
            let mut core = self.core();
            (core.handle_verified(block.index, ok), core.refused())
        };
        match verdict {
            Verdict::Verified { finished } => {
                self.note_unsynced(block.extent.len);
                if refusals > 0 {
                    self.members().refused.remove(block.extent);
                }
                Ok(finished)
            }
            Verdict::Refuse(extent) => {
                let path = self.target.directory.shown(&self.tree().entries()[file].path);
                let path = path.display();
                let text = format!(
                    "block {in_file} of {path} does not match its hash: asking for it again"
                );
                self.events.notice(text);
                if refusals > MOST_REFUSALS + self.members().extra_refusals {
                    let what = path.to_string();
                    let detail = format!(
                        "{refusals} blocks came with another content than the sender hashed"
                    );
                    return Err(Error::Integrity { what, detail });
                }
                self.members().refused.insert(extent);
                self.broadcast(&refusal(extent), false);
                Ok(None)
            }
        }
    }
}

fn broken(error: transfer::PeerError) -> ConnError {
    ConnError::Unexpected(error.to_string())
}
