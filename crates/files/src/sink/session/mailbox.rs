//! Frames that other parts of a session leave for one of its paths.

use std::sync::Mutex;

use peer::ConnError;
use tokio::sync::Notify;
use transfer::Extent;
use wire::files::FileFrame;
use wire::files::Range;
use wire::{Emit, RawFrame};

/// Frames for one path from other parts of the session.
#[derive(Default)]
pub(crate) struct Mailbox {
    frames: Mutex<Vec<u8>>,
    pub(crate) filled: Notify,
}

impl Mailbox {
    pub(super) fn put(&self, frames: &[u8]) {
        if !frames.is_empty() {
            self.frames.lock().expect("no panic while held").extend_from_slice(frames);
            self.filled.notify_one();
        }
    }

    pub(super) fn put_frame(&self, frame: &FileFrame<'_>) {
        let mut bytes = Vec::new();
        frame.emit(&mut bytes);
        self.put(&bytes);
    }

    /// Takes the refused ranges; other frames are for paths to other hosts.
    pub(crate) fn refusals(&self) -> Result<Vec<Range>, ConnError> {
        let frames = self.take();
        let (mut rest, mut ranges) = (&frames[..], Vec::new());
        while let Some((frame, used)) = RawFrame::parse(rest)? {
            if let FileFrame::Refused(range) = FileFrame::try_from(frame)? {
                ranges.push(range);
            }
            rest = &rest[used..];
        }
        Ok(ranges)
    }

    /// Takes all frames.
    pub(crate) fn take(&self) -> Vec<u8> {
        std::mem::take(&mut self.frames.lock().expect("no panic while held"))
    }
}

/// The frame that refuses an extent.
pub(super) fn refusal(extent: Extent) -> FileFrame<'static> {
    FileFrame::Refused(Range { start: extent.start, len: extent.len })
}
