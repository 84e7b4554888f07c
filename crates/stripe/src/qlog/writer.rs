//! The thread that writes logs.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::io::{self, BufWriter, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError};

use units::Time;

use super::Sink;
use super::log::{Record, Shared};
use super::text;

/// Bytes that are written together.
const BUFFER: usize = 1 << 16;

/// What the thread is told.
#[derive(Debug)]
pub(super) enum Message {
    /// Something of a connection waits to be written.
    Waiting(Arc<Shared>),
    /// Everything before this is to be written, and the sender told.
    Flush(SyncSender<()>),
}

type Open = Box<dyn FnMut(&str) -> io::Result<Sink> + Send>;
type Warn = Box<dyn FnMut(&str) + Send>;

/// The logs that are open.
pub(super) struct Writer {
    open: Open,
    /// `None` after the first warning.
    warn: Option<Warn>,
    outputs: HashMap<u64, Output>,
    /// Memory for the next group of events.
    spare: Vec<Record>,
}

/// The log of one connection.
struct Output {
    shared: Arc<Shared>,
    into: BufWriter<Sink>,
    /// The time of the latest event.
    latest: Time,
}

impl Writer {
    pub(super) fn new(open: Open, warn: Warn) -> Writer {
        Writer { open, warn: Some(warn), outputs: HashMap::new(), spare: Vec::new() }
    }

    /// Writes until nobody can have anything to be written.
    pub(super) fn run(mut self, messages: &Receiver<Message>) {
        loop {
            let message = match messages.try_recv() {
                Ok(message) => message,
                Err(TryRecvError::Empty) => {
                    // Readers of the files see what there is.
                    self.flush();
                    match messages.recv() {
                        Ok(message) => message,
                        Err(_) => return,
                    }
                }
                Err(TryRecvError::Disconnected) => {
                    self.flush();
                    return;
                }
            };
            match message {
                Message::Waiting(shared) => self.write(&shared),
                Message::Flush(done) => {
                    self.flush();
                    // Whoever waited may have gone.
                    let _ = done.send(());
                }
            }
        }
    }

    /// Writes what waits of a connection.
    fn write(&mut self, shared: &Arc<Shared>) {
        let (mut records, missing, has_ended) = {
            let mut waiting = shared.waiting.lock().expect("no panic while held");
            waiting.is_announced = false;
            let records = std::mem::replace(&mut waiting.records, std::mem::take(&mut self.spare));
            (records, std::mem::take(&mut waiting.missing), waiting.has_ended)
        };
        if !shared.is_over.load(Ordering::Relaxed) {
            let mut written = self.try_write(shared, &records, missing);
            let id = shared.head.id;
            if has_ended && let Some(mut output) = self.outputs.remove(&id) {
                written = written.and_then(|()| output.into.flush());
            }
            if let Err(error) = written {
                self.outputs.remove(&id);
                self.fail(shared, &error);
            }
        }
        records.clear();
        self.spare = records;
    }

    fn try_write(
        &mut self,
        shared: &Arc<Shared>,
        records: &[Record],
        missing: u64,
    ) -> io::Result<()> {
        let head = &shared.head;
        let output = match self.outputs.entry(head.id) {
            Entry::Occupied(open) => open.into_mut(),
            Entry::Vacant(place) => {
                let sink = (self.open)(&text::file_name(head))?;
                let mut into = BufWriter::with_capacity(BUFFER, sink);
                text::write_head(&mut into, head)?;
                place.insert(Output { shared: Arc::clone(shared), into, latest: head.began })
            }
        };
        for record in records {
            output.latest = record.at;
            text::write_record(&mut output.into, head, record)?;
        }
        if missing > 0 {
            text::write_missing(&mut output.into, head, output.latest, missing)?;
        }
        Ok(())
    }

    fn flush(&mut self) {
        let mut failures = Vec::new();
        self.outputs.retain(|_, output| match output.into.flush() {
            Ok(()) => true,
            Err(error) => {
                failures.push((Arc::clone(&output.shared), error));
                false
            }
        });
        for (shared, error) in failures {
            self.fail(&shared, &error);
        }
    }

    /// A connection has no log any more.
    fn fail(&mut self, shared: &Shared, error: &io::Error) {
        shared.is_over.store(true, Ordering::Relaxed);
        tracing::warn!(%error, "a log of a connection ends");
        if let Some(mut warn) = self.warn.take() {
            warn(&format!("cannot write the log of a connection: {error}"));
        }
    }
}
