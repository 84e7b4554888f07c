//! The thread that writes logs.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
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

/// What the logs of a process may take.
#[derive(Clone, Copy, Debug)]
pub(super) struct LogBounds {
    /// Bytes of one log, which ends there.
    pub(super) each: u64,
    /// Bytes of all. The oldest of those that are complete gives way.
    pub(super) all: u64,
    /// Files. The same gives way.
    pub(super) files: usize,
}

impl Default for LogBounds {
    fn default() -> LogBounds {
        LogBounds { each: 1 << 30, all: 4 << 30, files: 256 }
    }
}

/// What the thread is told.
#[derive(Debug)]
pub(super) enum Message {
    /// Something of a connection waits to be written.
    Waiting(Arc<Shared>),
    /// Everything before this is to be written, and the sender told.
    Flush(SyncSender<()>),
}

type Open = Box<dyn FnMut(&str) -> io::Result<Sink> + Send>;
type Remove = Box<dyn FnMut(&str) + Send>;
type Warn = Box<dyn FnMut(&str) + Send>;

/// The logs that are open.
pub(super) struct Writer {
    open: Open,
    remove: Remove,
    /// `None` after the first warning.
    warn: Option<Warn>,
    bounds: LogBounds,
    outputs: HashMap<u64, Output>,
    /// Names and sizes of the logs that are complete, oldest first.
    complete: VecDeque<(String, u64)>,
    /// Memory for the next group of events.
    spare: Vec<Record>,
}

/// The log of one connection.
struct Output {
    shared: Arc<Shared>,
    name: String,
    into: BufWriter<CountedSink>,
    /// The time of the latest event.
    latest: Time,
}

/// A sink, and how many bytes it has taken.
struct CountedSink {
    sink: Sink,
    bytes: u64,
}

impl Write for CountedSink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.sink.write(bytes)?;
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.sink.flush()
    }
}

impl Writer {
    pub(super) fn new(open: Open, remove: Remove, warn: Warn, bounds: LogBounds) -> Writer {
        Writer {
            open,
            remove,
            warn: Some(warn),
            bounds,
            outputs: HashMap::new(),
            complete: VecDeque::new(),
            spare: Vec::new(),
        }
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
                self.keep(output);
            }
            if let Err(error) = written {
                if let Some(output) = self.outputs.remove(&id) {
                    self.keep(output);
                }
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
        if !self.outputs.contains_key(&head.id) {
            self.make_room()?;
        }
        let output = match self.outputs.entry(head.id) {
            Entry::Occupied(open) => open.into_mut(),
            Entry::Vacant(place) => {
                let name = text::file_name(head);
                let counted = CountedSink { sink: (self.open)(&name)?, bytes: 0 };
                let mut into = BufWriter::with_capacity(BUFFER, counted);
                text::write_head(&mut into, head)?;
                let (shared, latest) = (Arc::clone(shared), head.began);
                place.insert(Output { shared, name, into, latest })
            }
        };
        for record in records {
            output.latest = record.at;
            text::write_record(&mut output.into, head, record)?;
        }
        if missing > 0 {
            text::write_missing(&mut output.into, head, output.latest, missing)?;
        }
        if output.into.get_ref().bytes >= self.bounds.each {
            text::write_full(&mut output.into, head, output.latest)?;
            output.into.flush()?;
            shared.is_over.store(true, Ordering::Relaxed);
            if let Some(output) = self.outputs.remove(&head.id) {
                self.keep(output);
            }
        }
        while self.bytes() > self.bounds.all && self.remove_oldest() {}
        Ok(())
    }

    /// Bytes of all logs that there are.
    fn bytes(&self) -> u64 {
        let open = self.outputs.values().map(|output| output.into.get_ref().bytes);
        open.chain(self.complete.iter().map(|(_, bytes)| *bytes)).sum()
    }

    /// Makes room for one more log.
    fn make_room(&mut self) -> io::Result<()> {
        while self.outputs.len() + self.complete.len() >= self.bounds.files {
            if !self.remove_oldest() {
                let text = format!("{} connections have one already", self.bounds.files);
                return Err(io::Error::new(io::ErrorKind::QuotaExceeded, text));
            }
        }
        Ok(())
    }

    /// Removes the oldest log that is complete, if there is one.
    fn remove_oldest(&mut self) -> bool {
        let Some((name, _)) = self.complete.pop_front() else { return false };
        (self.remove)(&name);
        true
    }

    /// A log is complete.
    fn keep(&mut self, output: Output) {
        self.complete.push_back((output.name, output.into.get_ref().bytes));
    }

    fn flush(&mut self) {
        let mut failures = Vec::new();
        for (id, output) in &mut self.outputs {
            if let Err(error) = output.into.flush() {
                failures.push((*id, error));
            }
        }
        for (id, error) in failures {
            if let Some(output) = self.outputs.remove(&id) {
                let shared = Arc::clone(&output.shared);
                self.keep(output);
                self.fail(&shared, &error);
            }
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::atomic::AtomicBool;
    use std::sync::{Mutex, mpsc};

    use jiff::Timestamp;
    use ptcp::LostPacket;
    use units::{Bytes, SubflowId};

    use super::super::log::{Event, Head, Waiting};
    use super::*;

    type Files = Arc<Mutex<BTreeMap<String, usize>>>;

    /// Counts the bytes of a file.
    struct Length(Files, String);

    impl Write for Length {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            *self.0.lock().unwrap().entry(self.1.clone()).or_default() += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn writer(bounds: LogBounds) -> (Writer, Files, mpsc::Receiver<String>) {
        let (files, (warned, warnings)) = (Files::default(), mpsc::channel());
        let (opened, removed) = (Arc::clone(&files), Arc::clone(&files));
        let open = move |name: &str| {
            opened.lock().unwrap().insert(name.into(), 0);
            Ok(Box::new(Length(Arc::clone(&opened), name.into())) as Sink)
        };
        let remove = move |name: &str| {
            removed.lock().unwrap().remove(name).expect("it is there");
        };
        let warn = move |text: &str| warned.send(text.into()).unwrap();
        (Writer::new(Box::new(open), Box::new(remove), Box::new(warn), bounds), files, warnings)
    }

    fn connection(id: u64) -> Arc<Shared> {
        let head = Head { is_client: false, id, wall: Timestamp::UNIX_EPOCH, began: Time::ZERO };
        Arc::new(Shared { head, waiting: Mutex::default(), is_over: AtomicBool::new(false) })
    }

    /// The connection loses so many packets.
    fn write(writer: &mut Writer, shared: &Arc<Shared>, events: u64, has_ended: bool) {
        let lost =
            |number| Event::Lost(LostPacket { path: SubflowId(0), number, bytes: Bytes(1_200) });
        let records = (0..events).map(|number| Record { at: Time::ZERO, event: lost(number) });
        let waiting = Waiting { records: records.collect(), has_ended, ..Waiting::default() };
        *shared.waiting.lock().unwrap() = waiting;
        writer.write(shared);
    }

    #[test]
    fn the_oldest_complete_log_gives_way() {
        let (mut writer, files, warnings) = writer(LogBounds { files: 3, ..LogBounds::default() });
        let all: Vec<_> = (0..6).map(connection).collect();
        write(&mut writer, &all[0], 1, false);
        write(&mut writer, &all[1], 1, true);
        write(&mut writer, &all[2], 1, true);
        write(&mut writer, &all[3], 1, false);
        let there = |id: u64| {
            let id = format!("{id:016x}");
            files.lock().unwrap().keys().any(|name| name.contains(&id))
        };
        assert_eq!([0, 1, 2, 3].map(there), [true, false, true, true]);
        write(&mut writer, &all[4], 1, false);
        assert_eq!([0, 2, 3, 4].map(there), [true, false, true, true]);
        assert!(warnings.try_recv().is_err());
        write(&mut writer, &all[5], 1, false);
        assert!(!there(5), "those that are open stay");
        assert!(warnings.try_recv().unwrap().contains("3 connections have one already"));
    }

    #[test]
    fn a_log_ends_and_all_together_are_bounded() {
        let bounds = LogBounds { each: 100_000, all: 300_000, files: 100 };
        let (mut writer, files, warnings) = writer(bounds);
        let mut made = 0;
        for id in 0..10 {
            let shared = connection(id);
            for _ in 0..100 {
                write(&mut writer, &shared, 500, false);
            }
            assert!(shared.is_over.load(Ordering::Relaxed), "it goes on for ever");
            made += 1;
            let files = files.lock().unwrap();
            // A group of events and the buffer are written beyond it.
            assert!(files.values().all(|bytes| *bytes < 300_000), "{files:?}");
            assert!(files.values().sum::<usize>() < 700_000, "{files:?}");
        }
        assert!(made > files.lock().unwrap().len());
        assert!(warnings.try_recv().is_err());
    }
}
