//! The sources that are connected to a collector: what arrives from each, and what each says of
//! itself. A file in the collector's folder has it for whoever reads the folder.

use std::collections::BTreeMap;
use std::fs::{self, OpenOptions};
use std::io::{self, Read, Write};
use std::net::IpAddr;
use std::num::NonZeroU64;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use peer::metrics::{PeerRows, Registry, register_gauge_of_peers};
use peer::private::open_regular;
use serde_json::{Value, json};
use tokio::time::Instant;
use units::{Bytes, Rate, Span};
use wire::feed::SourceState;

use crate::reports::SourceId;

/// The file, in the folder of a collector.
const FILE: &str = ".sources";
/// The time between looks at what has arrived, each of which writes the file.
pub(crate) const LOOK: Duration = Duration::from_secs(2);
/// A collector that has not written the file for so long is gone.
const STALE: Duration = Duration::from_secs(15);
/// The most octets of the file that are read: it has a few hundred for each of some sources.
const MOST: u64 = 16 << 20;

/// What is counted of a host's feeds that are connected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Figure {
    Feeds,
    Rate,
    Waiting,
    Oldest,
    Demand,
    Unmet,
    Dropped,
}

/// Each with its name and what it is.
const FIGURES: [(&str, &str, Figure); 7] = [
    ("source_feeds", "Feeds of a host that are connected", Figure::Feeds),
    ("source_rate_bits", "Bits of records a second that arrive from a host", Figure::Rate),
    ("source_waiting_octets", "Octets that wait at a host, as it says", Figure::Waiting),
    (
        "source_waiting_seconds",
        "Seconds for which the oldest record at a host has waited, as it says",
        Figure::Oldest,
    ),
    ("source_demand_bits", "Bits a second that a host's feeds have to send", Figure::Demand),
    ("source_unmet_demands", "Feeds of a host whose demand is not met", Figure::Unmet),
    (
        "source_dropped_records",
        "Records that a host's feeds have dropped before they were sent",
        Figure::Dropped,
    ),
];

/// A source that is, or was, connected to a collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceStatus {
    /// The folder of its host.
    pub host: String,
    /// Its feed.
    pub feed: String,
    /// The rate at which its records arrive.
    pub rate: Rate,
    /// Its paths: where each comes from, which is a relay or the source, and the rate over it.
    pub paths: Vec<(IpAddr, Rate)>,
    /// What it said of itself last; `None` until then.
    pub state: Option<SourceState>,
}

/// The sources of a collector, as it wrote them last.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourcesStatus {
    /// Whether they are those of this moment: a collector is running.
    pub is_present: bool,
    /// When they were written.
    pub at: SystemTime,
    /// By hosts and feeds.
    pub sources: Vec<SourceStatus>,
}

/// All sources that are connected.
#[derive(Default)]
pub(crate) struct Sources(Mutex<BTreeMap<SourceId, Weak<Connected>>>);

/// One source that is connected.
pub(crate) struct Connected {
    host: String,
    feed: String,
    paths: Mutex<Vec<Weak<SourcePath>>>,
    state: Mutex<Option<SourceState>>,
    /// When rates were taken last, and what had arrived then.
    looked: Mutex<Looked>,
}

struct Looked {
    at: Instant,
    received: BTreeMap<usize, u64>,
    rates: Vec<(IpAddr, Rate)>,
}

/// One connection of a source. The source is forgotten with the last one.
pub(crate) struct SourcePath {
    source: Arc<Connected>,
    from: IpAddr,
    received: AtomicU64,
}

impl SourcePath {
    /// So many octets of records have arrived.
    pub(crate) fn count(&self, octets: Bytes) {
        self.received.fetch_add(octets.0, Ordering::Relaxed);
    }

    /// The source says how it does.
    pub(crate) fn note_state(&self, state: SourceState) {
        *self.source.state.lock().expect("no panic while held") = Some(state);
    }
}

impl Sources {
    /// A connection of a source is there.
    pub(crate) fn connect(
        &self,
        id: SourceId,
        (host, feed): (&str, &str),
        from: IpAddr,
    ) -> Arc<SourcePath> {
        let mut all = self.all();
        all.retain(|_, source| source.strong_count() > 0);
        let source = all.get(&id).and_then(Weak::upgrade).unwrap_or_else(|| {
            let looked = Looked { at: Instant::now(), received: BTreeMap::new(), rates: vec![] };
            let source = Arc::new(Connected {
                host: host.into(),
                feed: feed.into(),
                paths: Mutex::default(),
                state: Mutex::default(),
                looked: Mutex::new(looked),
            });
            all.insert(id, Arc::downgrade(&source));
            source
        });
        let path = Arc::new(SourcePath { source, from, received: AtomicU64::new(0) });
        path.source.paths.lock().expect("no panic while held").push(Arc::downgrade(&path));
        path
    }

    /// Takes the rates since the last look.
    pub(crate) fn look(&self, now: Instant) {
        for source in self.connected() {
            source.look(now);
        }
    }

    /// The sources at present, with their rates as of the last look, by hosts and feeds.
    pub(crate) fn status(&self) -> Vec<SourceStatus> {
        let mut sources: Vec<SourceStatus> =
            self.connected().iter().map(|source| source.status()).collect();
        sources.sort_by(|one, other| (&one.host, &one.feed).cmp(&(&other.host, &other.feed)));
        sources
    }

    /// Writes the file of a folder.
    pub(crate) fn write(&self, folder: &Path) -> io::Result<()> {
        let sources: Vec<Value> = self.status().iter().map(object).collect();
        let at = Timestamp::now().to_string();
        let next = folder.join(".sources-next");
        match fs::remove_file(&next) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
        // No link that somebody has put there is followed; whoever may read the folder reads it.
        let mut file = OpenOptions::new().write(true).create_new(true).open(&next)?;
        file.write_all(json!({ "v": 1, "at": at, "sources": sources }).to_string().as_bytes())?;
        fs::rename(next, folder.join(FILE))
    }

    /// Adds the figures of each host.
    pub(crate) fn register(self: &Arc<Sources>, registry: &mut Registry) {
        for (name, help, figure) in FIGURES {
            let all = Arc::clone(self);
            register_gauge_of_peers(registry, name, help, move || all.of_hosts(figure));
        }
    }

    /// A figure of each host, of all of its feeds together.
    fn of_hosts(&self, figure: Figure) -> PeerRows {
        let mut hosts: BTreeMap<String, u64> = BTreeMap::new();
        for source in self.status() {
            let state = source.state.unwrap_or_default();
            let value = match figure {
                Figure::Feeds => 1,
                Figure::Rate => source.rate.as_bits(),
                Figure::Waiting => state.waiting,
                Figure::Oldest => state.oldest.into(),
                Figure::Demand => state.demand.map_or(0, NonZeroU64::get),
                Figure::Unmet => u64::from(state.is_met == Some(false)),
                Figure::Dropped => state.dropped,
            };
            let of_host = hosts.entry(source.host).or_default();
            *of_host = if figure == Figure::Oldest {
                value.max(*of_host)
            } else {
                value.saturating_add(*of_host)
            };
        }
        hosts.into_iter().map(|(host, value)| (host, "", value)).collect()
    }

    fn connected(&self) -> Vec<Arc<Connected>> {
        self.all().values().filter_map(Weak::upgrade).collect()
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<SourceId, Weak<Connected>>> {
        self.0.lock().expect("no panic while held")
    }
}

impl Connected {
    fn look(&self, now: Instant) {
        let mut looked = self.looked.lock().expect("no panic while held");
        let elapsed: Span = (now - looked.at).into();
        if elapsed == Span::ZERO {
            return;
        }
        let mut paths = self.paths.lock().expect("no panic while held");
        paths.retain(|path| path.strong_count() > 0);
        let (mut received, mut rates) = (BTreeMap::new(), Vec::new());
        for path in paths.iter().filter_map(Weak::upgrade) {
            // As long as it is there no other one has its place.
            let place = Arc::as_ptr(&path).addr();
            let all = path.received.load(Ordering::Relaxed);
            let before = looked.received.get(&place).copied().unwrap_or(0).min(all);
            received.insert(place, all);
            rates.push((path.from, Bytes(all - before) / elapsed));
        }
        *looked = Looked { at: now, received, rates };
    }

    fn status(&self) -> SourceStatus {
        let mut by_address: BTreeMap<IpAddr, Rate> = BTreeMap::new();
        for (from, rate) in &self.looked.lock().expect("no panic while held").rates {
            let sum = by_address.entry(*from).or_default();
            *sum = *sum + *rate;
        }
        SourceStatus {
            host: self.host.clone(),
            feed: self.feed.clone(),
            rate: by_address.values().fold(Rate::ZERO, |sum, rate| sum + *rate),
            paths: by_address.into_iter().collect(),
            state: *self.state.lock().expect("no panic while held"),
        }
    }
}

/// Removes the file: the collector ends.
pub(crate) fn remove(folder: &Path) {
    // One that stays is stale soon.
    let _ = fs::remove_file(folder.join(FILE));
}

/// A source as the file has it.
#[must_use]
pub fn object(source: &SourceStatus) -> Value {
    let path = |(from, rate): &(IpAddr, Rate)| json!({ "from": from, "rate": rate.as_bits() });
    let state = source.state.as_ref();
    json!({
        "host": source.host,
        "feed": source.feed,
        "rate": source.rate.as_bits(),
        "paths": source.paths.iter().map(path).collect::<Vec<_>>(),
        "demand": state.and_then(|state| state.demand),
        "satisfied": state.and_then(|state| state.is_met),
        "since": state.map(|state| state.since),
        "waiting": state.map(|state| state.waiting),
        "oldest": state.map(|state| state.oldest),
        "dropped": state.map(|state| state.dropped),
    })
}

fn of_object(object: &Value) -> Option<SourceStatus> {
    let text = |key: &str| object[key].as_str().map(String::from);
    let number = |key: &str| object[key].as_u64();
    let seconds = |key: &str| u32::try_from(number(key).unwrap_or(0)).ok();
    let path = |path: &Value| {
        let from = path["from"].as_str()?.parse().ok()?;
        Some((from, Rate::from_bits(path["rate"].as_u64()?)))
    };
    let state = match number("waiting") {
        None => None,
        Some(waiting) => Some(SourceState {
            demand: number("demand").and_then(NonZeroU64::new),
            is_met: object["satisfied"].as_bool(),
            since: seconds("since")?,
            waiting,
            oldest: seconds("oldest")?,
            dropped: number("dropped")?,
        }),
    };
    Some(SourceStatus {
        host: text("host")?,
        feed: text("feed")?,
        rate: Rate::from_bits(number("rate")?),
        paths: object["paths"].as_array()?.iter().map(path).collect::<Option<_>>()?,
        state,
    })
}

/// The sources of the collector whose folder it is, as it wrote them last; `None` if none ever did,
/// or what is there is no list of sources.
///
/// # Errors
/// The system's.
pub fn sources(folder: &Path) -> io::Result<Option<SourcesStatus>> {
    let file = match open_regular(&folder.join(FILE)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let (at, mut text) = (file.metadata()?.modified()?, Vec::new());
    file.take(MOST).read_to_end(&mut text)?;
    let Ok(all) = serde_json::from_slice::<Value>(&text) else { return Ok(None) };
    let sources = all["sources"].as_array().map(|all| all.iter().map(of_object).collect());
    let Some(Some(sources)) = sources else { return Ok(None) };
    // A clock that was set back makes nothing stale.
    let is_present = at.elapsed().is_ok_and(|passed| passed < STALE);
    Ok(Some(SourcesStatus { is_present, at, sources }))
}

#[cfg(test)]
mod tests {
    use tempfile::TempDir;

    use super::*;

    const STATE: SourceState = SourceState {
        demand: NonZeroU64::new(5_000_000),
        is_met: Some(true),
        since: 48,
        waiting: 12,
        oldest: 3,
        dropped: 1,
    };

    fn id(octet: u8) -> SourceId {
        let identity = peer::Identity::generate().expect("random numbers");
        (identity.fingerprint(), [octet; 16])
    }

    #[tokio::test(start_paused = true)]
    async fn a_folder_says_what_its_sources_send_and_how_they_do() {
        let (all, folder, own) = (Sources::default(), TempDir::new().unwrap(), id(1));
        assert_eq!(sources(folder.path()).unwrap(), None);
        let [one, two] = ["10.0.0.1", "10.0.0.2"].map(|text| text.parse::<IpAddr>().unwrap());
        let paths = [one, two, two].map(|from| all.connect(own, ("web1", "nginx"), from));
        let other = all.connect(id(2), ("db1", "audit"), one);
        all.look(Instant::now());
        tokio::time::advance(Duration::from_secs(2)).await;
        for path in &paths {
            path.count(Bytes(250_000));
        }
        paths[1].note_state(STATE);
        all.look(Instant::now());
        all.write(folder.path()).unwrap();
        let read = sources(folder.path()).unwrap().unwrap();
        assert!(read.is_present);
        let of_other = SourceStatus {
            host: "db1".into(),
            feed: "audit".into(),
            rate: Rate::ZERO,
            paths: vec![(one, Rate::ZERO)],
            state: None,
        };
        let of_own = SourceStatus {
            host: "web1".into(),
            feed: "nginx".into(),
            rate: Rate::mbit(3),
            paths: vec![(one, Rate::mbit(1)), (two, Rate::mbit(2))],
            state: Some(STATE),
        };
        assert_eq!(read.sources, [of_other, of_own.clone()]);
        assert_eq!(
            all.of_hosts(Figure::Waiting),
            [("db1".to_string(), "", 0), ("web1".to_string(), "", 12)]
        );
        assert_eq!(all.of_hosts(Figure::Unmet)[1].2, 0);
        assert_eq!(all.of_hosts(Figure::Rate)[1].2, 3_000_000);
        // Nothing is counted twice, and nobody is left when its connections are over.
        drop((paths, other));
        assert_eq!(all.status(), []);
        // Nothing is written through a link that somebody has put there.
        let victim = folder.path().join("victim");
        fs::write(&victim, "whole").unwrap();
        std::os::unix::fs::symlink(&victim, folder.path().join(".sources-next")).unwrap();
        all.write(folder.path()).unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "whole");
        assert_eq!(sources(folder.path()).unwrap().unwrap().sources, []);
        // A file of something else is none.
        for text in ["", "[]", "{\"sources\":[{}]}", "{\"sources\":[1]}"] {
            fs::write(folder.path().join(FILE), text).unwrap();
            assert_eq!(sources(folder.path()).unwrap(), None, "{text}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn rates_are_those_since_the_last_look() {
        let (all, own) = (Sources::default(), id(1));
        let path = all.connect(own, ("web1", "nginx"), "::1".parse().unwrap());
        for mbit in [8, 0, 16] {
            tokio::time::advance(Duration::from_secs(1)).await;
            path.count(Bytes(mbit * 125_000));
            all.look(Instant::now());
            assert_eq!(all.status()[0].rate, Rate::mbit(mbit));
        }
    }
}
