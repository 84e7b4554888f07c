//! Hands the records of streams to somebody who keeps them: a few batches at a time, one of a
//! stream, and in turn.

use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use events::Events;
use peer::metrics::{Registry, register_budget, register_counter, register_gauge};
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{sleep, timeout};
use wire::feed::Form;

use super::names::prefix;
use super::stream::KeptStream;
use crate::bounds::{DELIVERIES, DELIVERIES_EACH, FIRST_PAUSE, GRACE, LONGEST_PAUSE, WAITING};

/// Records of one stream that follow each other.
#[derive(Debug)]
pub struct Delivery {
    /// The name of the host, as that of a folder: [`crate::is_feed_name`].
    pub host: String,
    /// The name of the feed, which is one as well.
    pub feed: String,
    /// The name of the stream, in hexadecimal digits.
    pub stream: String,
    /// How records are told apart.
    pub form: Form,
    /// The number of the first one.
    pub first: u64,
    /// How many they are.
    pub records: u64,
    /// The records. As long as this, or what was inherited from it, is open, the stream has no
    /// other batch under way, not even by another collector.
    pub file: File,
}

/// Why a batch was not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotTaken {
    /// As the end of a sentence. One that stays the same is told once.
    pub why: String,
    /// What else was said of it, which may be another thing each time; safe for a terminal.
    pub said: Option<String>,
}

/// A batch that is being taken.
pub type Taking = Pin<Box<dyn Future<Output = Result<(), NotTaken>> + Send>>;

/// Somebody who keeps records.
pub trait Sink: Send + Sync + 'static {
    /// Takes a batch, whole; without an error it is kept. Dropping what this gives ends it.
    fn take(&self, batch: Delivery) -> Taking;
}

/// A count among those of deliveries.
type Count = fn(&DeliveryShared) -> &AtomicU64;

/// The deliveries of all streams.
pub(super) struct Deliveries(Arc<DeliveryShared>);

struct DeliveryShared {
    sink: Box<dyn Sink>,
    events: Events,
    queue: Mutex<DeliveryQueue>,
    /// The deliveries that are under way.
    running: watch::Sender<usize>,
    /// Whether those that are under way are to end.
    is_stopped: watch::Sender<bool>,
    /// Batches that were taken, their records, and batches that were not.
    taken: AtomicU64,
    taken_records: AtomicU64,
    failed: AtomicU64,
}

#[derive(Default)]
struct DeliveryQueue {
    waiting: VecDeque<Entry>,
    /// Deliveries that are under way, by the hosts of their streams.
    running: BTreeMap<String, usize>,
    is_over: bool,
}

/// A stream that has something to hand over. One that no connection has any more is left out: its
/// source has the records.
struct Entry {
    stream: Weak<KeptStream>,
    trouble: Option<Trouble>,
}

/// What was told of a batch that was not taken.
struct Trouble {
    why: String,
    pause: Duration,
}

impl Deliveries {
    pub(super) fn new(sink: impl Sink, events: Events) -> Deliveries {
        Deliveries(Arc::new(DeliveryShared {
            sink: Box::new(sink),
            events,
            queue: Mutex::default(),
            running: watch::Sender::new(0),
            is_stopped: watch::Sender::new(false),
            taken: AtomicU64::new(0),
            taken_records: AtomicU64::new(0),
            failed: AtomicU64::new(0),
        }))
    }

    /// The stream has something to hand over.
    pub(super) fn commit(&self, stream: &Arc<KeptStream>) {
        self.0.commit(stream);
    }

    /// Adds what is handed over to the figures.
    pub(super) fn register(&self, registry: &mut Registry) {
        let counters: [(&str, &str, Count); 3] = [
            ("deliveries", "Batches that were taken", |shared| &shared.taken),
            ("delivered_records", "Records of batches that were taken", |shared| {
                &shared.taken_records
            }),
            ("failed_deliveries", "Batches that were not taken", |shared| &shared.failed),
        ];
        for (name, help, count) in counters {
            let shared = Arc::clone(&self.0);
            let read = move || count(&shared).load(Ordering::Relaxed);
            register_counter(registry, name, help, read);
        }
        let shared = Arc::clone(&self.0);
        let what = "Batches that are being handed over";
        let taken = move || *shared.running.borrow() as u64;
        register_budget(registry, "deliveries_running", what, None, DELIVERIES as u64, taken);
        let shared = Arc::clone(&self.0);
        let help = "Streams with records that wait to be handed over";
        register_gauge(registry, "deliveries_waiting", help, None, move || {
            shared.queue().waiting.len() as u64
        });
    }

    /// Begins nothing more; what is under way has [`GRACE`] to end.
    pub(super) async fn close(&self) {
        self.0.queue().close();
        let mut running = self.0.running.subscribe();
        if timeout(GRACE, running.wait_for(|count| *count == 0)).await.is_err() {
            self.0.is_stopped.send_replace(true);
            let _ = timeout(GRACE, running.wait_for(|count| *count == 0)).await;
        }
    }
}

impl Drop for Deliveries {
    fn drop(&mut self) {
        self.0.queue().close();
        self.0.is_stopped.send_replace(true);
    }
}

impl DeliveryQueue {
    fn close(&mut self) {
        self.is_over = true;
        self.waiting.clear();
    }

    /// The next stream in turn whose host may have one more delivery.
    fn next(&mut self) -> Option<(Arc<KeptStream>, Option<Trouble>)> {
        self.waiting.retain(|entry| entry.stream.strong_count() > 0);
        if self.is_over || self.running.values().sum::<usize>() >= DELIVERIES {
            return None;
        }
        loop {
            let running = &self.running;
            let may = |entry: &Entry| {
                let stream = entry.stream.upgrade();
                let of_host = stream.and_then(|stream| running.get(stream.host()).copied());
                of_host.unwrap_or(0) < DELIVERIES_EACH
            };
            let at = self.waiting.iter().position(may)?;
            let Entry { stream, trouble } = self.waiting.remove(at)?;
            // It may have been left just now.
            if let Some(stream) = stream.upgrade() {
                *self.running.entry(stream.host().to_string()).or_default() += 1;
                return Some((stream, trouble));
            }
        }
    }

    /// A delivery of a host is over.
    fn end(&mut self, host: &str) {
        if let Some(count) = self.running.get_mut(host) {
            *count -= 1;
            if *count == 0 {
                self.running.remove(host);
            }
        }
    }
}

impl DeliveryShared {
    fn queue(&self) -> MutexGuard<'_, DeliveryQueue> {
        self.queue.lock().expect("no panic while held")
    }

    fn commit(self: &Arc<Self>, stream: &Arc<KeptStream>) {
        if !stream.is_queued.swap(true, Ordering::SeqCst) {
            self.add(Entry { stream: Arc::downgrade(stream), trouble: None });
        }
    }

    fn add(self: &Arc<Self>, entry: Entry) {
        let mut queue = self.queue();
        if !queue.is_over {
            queue.waiting.push_back(entry);
        }
        drop(queue);
        self.start();
    }

    /// Begins as many deliveries as there may be.
    fn start(self: &Arc<Self>) {
        loop {
            let mut queue = self.queue();
            let Some((stream, trouble)) = queue.next() else { return };
            self.running.send_modify(|count| *count += 1);
            drop(queue);
            tokio::spawn(Arc::clone(self).run(stream, trouble));
        }
    }

    async fn run(self: Arc<Self>, stream: Arc<KeptStream>, trouble: Option<Trouble>) {
        let trouble = self.deliver(&stream, trouble).await;
        self.queue().end(stream.host());
        self.running.send_modify(|count| *count -= 1);
        if let Some(trouble) = trouble {
            let (shared, pause) = (Arc::clone(&self), trouble.pause);
            let entry = Entry { stream: Arc::downgrade(&stream), trouble: Some(trouble) };
            drop(stream);
            tokio::spawn(async move {
                sleep(pause).await;
                shared.add(entry);
            });
        } else {
            stream.is_queued.store(false, Ordering::SeqCst);
            // What came before that did not ask for it.
            if stream.waiting() > 0 && !stream.has_failed() {
                self.commit(&stream);
            }
        }
        self.start();
    }

    /// Hands a batch over: the one that was not taken, or else what waits. Returns why it was not
    /// taken.
    async fn deliver(&self, stream: &Arc<KeptStream>, before: Option<Trouble>) -> Option<Trouble> {
        let own = Arc::clone(stream);
        let most = usize::try_from(WAITING.0).unwrap_or(usize::MAX);
        let prepared = spawn_blocking(move || match own.batch() {
            Ok(None) => {
                own.write(most);
                own.batch()
            }
            other => other,
        });
        let offer = stream.offer();
        let (mut first, mut records) = (0, 0);
        let taken = match prepared.await.expect("preparing does not panic") {
            Ok(None) => return None,
            Ok(Some((numbers, file))) => {
                (first, records) = (numbers.start, numbers.end - numbers.start);
                let (host, feed) = (stream.host().to_string(), offer.feed.clone());
                let (stream, form) = (prefix(offer.stream), offer.form);
                let batch = Delivery { host, feed, stream, form, first, records, file };
                let mut is_stopped = self.is_stopped.subscribe();
                tokio::select! {
                    taken = self.sink.take(batch) => taken,
                    _ = is_stopped.wait_for(|is_stopped| *is_stopped) => return None,
                }
            }
            Err(_) => {
                let why = "what an earlier command has started reads its records still".into();
                Err(NotTaken { why, said: None })
            }
        };
        let name = || format!("{}/{} ({})", stream.host(), offer.feed, offer.label);
        let Err(NotTaken { why, said }) = taken else {
            let own = Arc::clone(stream);
            spawn_blocking(move || own.sync()).await.expect("writing does not panic");
            self.taken.fetch_add(1, Ordering::Relaxed);
            self.taken_records.fetch_add(records, Ordering::Relaxed);
            if before.is_some() {
                self.events.notice(format!("{}: records are taken again", name()));
            }
            return None;
        };
        self.failed.fetch_add(1, Ordering::Relaxed);
        let is_told = before.as_ref().is_some_and(|before| before.why == why);
        if !is_told {
            let said = said.map(|said| format!(", and said: {said}")).unwrap_or_default();
            self.events.notice(format!(
                "{}: {why}{said}; {records} records from {first} on wait, and are handed over \
                 again",
                name()
            ));
        }
        let pause = before.map_or(FIRST_PAUSE, |before| (before.pause * 2).min(LONGEST_PAUSE));
        Some(Trouble { why, pause })
    }
}
