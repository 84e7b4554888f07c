//! A stream that is open: what has arrived, how far it is kept, and who wants to know.

use std::io;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use tokio::sync::Notify;
use wire::feed::{Form, Offer, Records};

use super::arrived::{AddError, Arrived};
use super::output::{self, Output};
use crate::room::Room;

/// How far a stream is kept: the number of the next record, or why nothing more can be.
pub(crate) type Kept = Result<u64, String>;

/// A stream that is open.
pub(crate) struct KeptStream {
    /// The name of the host's folder.
    host: String,
    offer: Offer,
    arrived: Mutex<Arrived>,
    output: Mutex<Box<dyn Output>>,
    kept: Mutex<Kept>,
    /// Connections that tell how far it is.
    listeners: Mutex<Vec<Weak<Notify>>>,
    /// Whether somebody is to write what it has: those who hand it over look at it.
    pub(super) is_queued: AtomicBool,
}

impl KeptStream {
    /// A stream of a host that goes on behind what its output has.
    pub(super) fn new(
        (host, room): (&str, &Room),
        offer: &Offer,
        output: Box<dyn Output>,
    ) -> KeptStream {
        let next = output.next();
        KeptStream {
            host: host.to_string(),
            offer: offer.clone(),
            arrived: Mutex::new(Arrived::new(offer.form, next, (host, room))),
            output: Mutex::new(output),
            kept: Mutex::new(Ok(next)),
            listeners: Mutex::default(),
            is_queued: AtomicBool::new(false),
        }
    }

    /// The name of its host's folder.
    pub(super) fn host(&self) -> &str {
        &self.host
    }

    /// What its source offered.
    pub(super) fn offer(&self) -> &Offer {
        &self.offer
    }

    /// How far it is safe.
    pub(crate) fn kept(&self) -> Kept {
        self.safe().clone()
    }

    /// How records are told apart.
    pub(crate) fn form(&self) -> Form {
        self.offer.form
    }

    /// The first record of the file that is written to, if there is one, and the length of it that
    /// is on the disk.
    pub(crate) fn safe_part(&self) -> (Option<u64>, u64) {
        self.output().safe_part()
    }

    /// Whether nothing more can be kept.
    pub(super) fn has_failed(&self) -> bool {
        self.kept().is_err()
    }

    /// Has `listener` ring when the stream is further than before, or can keep nothing more.
    pub(crate) fn listen(&self, listener: &Arc<Notify>) {
        let mut listeners = self.listeners.lock().expect("no panic while held");
        listeners.retain(|listener| listener.strong_count() > 0);
        listeners.push(Arc::downgrade(listener));
    }

    /// Tells those who listen.
    fn tell(&self) {
        let listeners = self.listeners.lock().expect("no panic while held");
        listeners.iter().filter_map(Weak::upgrade).for_each(|listener| listener.notify_one());
    }

    /// The number of the next record that a source is to send: all earlier ones are safe. A source
    /// that has no records before `first`, or whose other collector has those before `elsewhere`,
    /// goes on there; the second number is that of records that nobody has.
    ///
    /// # Errors
    /// If there are such records, and earlier ones that arrived are not safe yet: the source has to
    /// offer the stream again.
    pub(crate) fn begin(&self, first: u64, elsewhere: u64) -> Result<(u64, u64), &'static str> {
        let mut arrived = self.arrived();
        let lost = first.saturating_sub(arrived.next().max(elsewhere));
        let to = first.max(elsewhere);
        if to > arrived.next() && !self.has_failed() {
            if self.kept() != Ok(arrived.next()) {
                return Err("what came before the next records is not kept yet");
            }
            let mut output = self.output();
            match output.skip_to(to) {
                Ok(()) => {
                    arrived.skip_to(to);
                    *self.safe() = Ok(to);
                }
                Err(error) => self.fail(&mut **output, &error),
            }
        }
        // What has arrived may not be on the disk when this process is killed.
        let safe = self.kept().unwrap_or(arrived.next());
        Ok((safe, lost))
    }

    /// Takes records in that follow each other. What has arrived before is left out; what comes
    /// before its turn waits for it. A connection that cannot be left unread `holds` what there is
    /// no room for in the same way. Returns the octets that wait to be written.
    ///
    /// # Errors
    /// [`AddError`]; what came in its turn is taken in, but for [`AddError::Full`].
    pub(crate) fn add(&self, records: &Records<'_>, holds: bool) -> Result<usize, AddError> {
        let mut arrived = self.arrived();
        let before = arrived.next();
        let added = arrived.add(records, holds);
        if arrived.next() > before {
            self.tell();
        }
        added.map(|()| arrived.waiting())
    }

    /// The number of the next record: all earlier ones have arrived.
    pub(crate) fn next(&self) -> u64 {
        self.arrived().next()
    }

    /// The octets that are not written yet.
    pub(crate) fn waiting(&self) -> usize {
        self.arrived().waiting()
    }

    /// Writes what has arrived, whole records of at most so many octets.
    pub(super) fn write(&self, most: usize) {
        let (numbers, octets, is_further) = {
            let mut arrived = self.arrived();
            let before = arrived.next();
            let (numbers, octets) = arrived.take(most);
            (numbers, octets, arrived.next() > before)
        };
        if is_further {
            self.tell();
        }
        if !octets.is_empty() && !self.has_failed() {
            let mut output = self.output();
            if let Err(error) = output.write(numbers, &octets) {
                self.fail(&mut **output, &error);
            }
        }
        self.arrived().handle_written();
    }

    /// What is written for somebody else to take, if it is not synced.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`], if somebody has it still.
    pub(super) fn batch(&self) -> io::Result<Option<output::Records>> {
        if self.has_failed() {
            return Ok(None);
        }
        let mut output = self.output();
        match output.batch() {
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => {
                self.fail(&mut **output, &error);
                Ok(None)
            }
            found => found,
        }
    }

    /// Syncs what was written, and tells.
    pub(super) fn sync(&self) {
        if self.has_failed() {
            return;
        }
        let mut output = self.output();
        match output.sync() {
            Ok(()) => {
                *self.safe() = Ok(output.next());
                self.tell();
            }
            Err(error) => self.fail(&mut **output, &error),
        }
    }

    /// Nothing more is kept until the stream is opened anew.
    fn fail(&self, output: &mut dyn Output, error: &io::Error) {
        output.undo();
        *self.safe() = Err(error.to_string());
        self.tell();
    }

    fn arrived(&self) -> MutexGuard<'_, Arrived> {
        self.arrived.lock().expect("no panic while held")
    }

    fn safe(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().expect("no panic while held")
    }

    fn output(&self) -> MutexGuard<'_, Box<dyn Output>> {
        self.output.lock().expect("no panic while held")
    }
}
