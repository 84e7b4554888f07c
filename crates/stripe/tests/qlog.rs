//! Logs of connections over loopback: they agree with the connections' counters.

mod common;

use std::fs::{self, OpenOptions};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::between::{Between, Fate};
use common::{anywhere, content, listen, pair, routes, run};
use secure::testing::{Key, client};
use serde_json::Value;
use stripe::{Connection, Endpoint, Options, Qlog, Route, Sink, Stats};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::sleep;
use units::Bytes;

/// A folder of a test, removed at its end.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("stripe-qlog-{name}-{}", std::process::id()));
        fs::create_dir(&path).expect("there is room");
        Folder(path)
    }

    /// The log of one side, parsed: its head and its events.
    fn log(&self, side: &str) -> (Value, Vec<Value>) {
        let files = fs::read_dir(&self.0).expect("it is a folder");
        let mut paths = files.map(|file| file.expect("it is there").path());
        let is_of_side = |path: &PathBuf| {
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            name.contains(side) && path.extension().is_some_and(|known| known == "sqlog")
        };
        let path = paths.find(is_of_side).expect("a log");
        parse(&fs::read_to_string(path).expect("text"))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A sequence of JSON texts (RFC 7464), a line each.
fn parse(text: &str) -> (Value, Vec<Value>) {
    let mut records = text.lines().map(|line| {
        let json = line.strip_prefix('\u{1e}').expect("a separator");
        serde_json::from_str::<Value>(json).expect("JSON")
    });
    let head = records.next().expect("a head");
    (head, records.collect())
}

fn named<'a>(events: &'a [Value], name: &'a str) -> impl Iterator<Item = &'a Value> {
    events.iter().filter(move |event| event["name"] == name)
}

/// Number and sizes of the packets that are told of under a name, of one path.
fn packets(events: &[Value], name: &str, path: u32) -> (u64, u64) {
    let path = path.to_string();
    let of_path = named(events, name).filter(|event| event["path"] == path.as_str());
    of_path.fold((0, 0), |(count, bytes), event| {
        (count + 1, bytes + event["data"]["raw"]["length"].as_u64().expect("a size"))
    })
}

/// The counters of all these once nothing changes any more at any: a probe of a path's size may
/// come late.
async fn settled<const N: usize>(connections: [&Connection; N]) -> [Stats; N] {
    let stats = async || {
        let mut all = connections.map(|_| Stats::default());
        for (stats, connection) in all.iter_mut().zip(connections) {
            *stats = connection.stats().await;
        }
        all
    };
    let mut before = stats().await;
    loop {
        sleep(Duration::from_millis(300)).await;
        let now = stats().await;
        if now == before {
            return now;
        }
        before = now;
    }
}

async fn transfer(near: &Connection, far: &Connection, size: usize) {
    let sent = content(size);
    let mut stream = near.open_stream().await.expect("it is open");
    let write = async {
        stream.write_all(&sent).await.expect("it is open");
        stream.shutdown().await.expect("it is open");
    };
    let mut arrived = Vec::new();
    let read = async {
        let mut stream = far.accept_stream().await.expect("it is opened");
        stream.read_to_end(&mut arrived).await.expect("it is whole");
    };
    tokio::join!(write, read);
    assert!(arrived == sent, "other bytes arrived");
}

/// The events of a log before the connection was closed, here or by the peer.
fn while_open(events: Vec<Value>) -> Vec<Value> {
    let is_close = |event: &Value| {
        event["name"] == "connectivity:connection_closed"
            || event["data"]["frames"][0]["frame_type"] == "connection_close"
    };
    events.into_iter().take_while(|event| !is_close(event)).collect()
}

/// Compares packets and bytes of each path. Each route has one path here.
fn assert_agrees(events: &[Value], stats: &Stats) {
    for route in &stats.routes {
        let (sent, sent_bytes) = packets(events, "transport:packet_sent", route.route.0);
        let (received, received_bytes) =
            packets(events, "transport:packet_received", route.route.0);
        assert_eq!(sent_bytes, route.sent.0, "{route:?}");
        assert_eq!(received_bytes, route.received.0, "{route:?}");
        assert_eq!(sent + received, route.datagrams, "{route:?}");
        let (lost, _) = packets(events, "recovery:packet_lost", route.route.0);
        assert_eq!(lost, route.lost, "{route:?}");
    }
}

#[test]
fn a_log_agrees_with_the_counters() {
    let folder = Folder::new("agrees");
    let qlog = Qlog::into_folder(&folder.0, |why| panic!("{why}")).expect("a folder");
    let (mut near_stats, mut far_stats) = (Stats::default(), Stats::default());
    run(async {
        let options = Options { qlog: Some(qlog.clone()), ..Options::default() };
        let pair = pair(2, options).await;
        transfer(&pair.near, &pair.far, 3_000_000).await;
        [near_stats, far_stats] = settled([&pair.near, &pair.far]).await;
        pair.near.close(7);
        pair.far.ended().await;
        pair.dialing.wait_idle().await;
        pair.listening.wait_idle().await;
    });
    qlog.flush(Duration::from_secs(10));
    for (side, stats) in [("client", &near_stats), ("server", &far_stats)] {
        let (head, events) = folder.log(side);
        assert_eq!(head["qlog_version"], "0.3");
        assert_eq!(head["qlog_format"], "JSON-SEQ");
        assert_eq!(head["trace"]["vantage_point"]["type"], side);
        assert_eq!(events[0]["name"], "connectivity:connection_started");
        assert_eq!(named(&events, "anabranch:path_opened").count(), 2);
        assert_eq!(named(&events, "anabranch:events_missing").count(), 0);
        for two in events.windows(2) {
            assert!(two[0]["time"].as_f64() <= two[1]["time"].as_f64(), "{side}: {two:?}");
        }
        let closed: Vec<_> = named(&events, "connectivity:connection_closed").collect();
        assert_eq!(closed.len(), 1, "{side}");
        if side == "server" {
            assert_eq!(closed[0]["data"]["application_code"], 7);
        }
        let frames = |kind| {
            let sent = named(&events, "transport:packet_sent");
            sent.filter(|event| event["data"]["frames"][0]["frame_type"] == kind).count()
        };
        assert!(frames(if side == "client" { "stream" } else { "ack" }) > 5, "{side}");
        let metrics = named(&events, "recovery:metrics_updated");
        let metrics: Vec<_> = metrics.map(|event| &event["data"]).collect();
        assert!(metrics.iter().all(|data| data["congestion_window"].as_u64() > Some(0)));
        assert!(metrics.iter().any(|data| data["bytes_in_flight"].as_u64() > Some(0)));
        assert!(metrics.iter().any(|data| data["smoothed_rtt"].as_f64() > Some(0.0)));
        assert_agrees(&while_open(events), stats);
    }
}

#[test]
fn lost_packets_are_told() {
    let folder = Folder::new("losses");
    let qlog = Qlog::into_folder(&folder.0, |why| panic!("{why}")).expect("a folder");
    let mut stats = Stats::default();
    run(async {
        let (listening, key) = listen(&anywhere(), Options::default());
        let to = (Ipv4Addr::LOCALHOST, listening.local_addresses()[0].port()).into();
        let seed = 11;
        let between =
            Between::new(
                to,
                seed,
                |dice, _| {
                    if dice.below(30) == 0 { Fate::Lost } else { Fate::Passes }
                },
            );
        let dialing = Endpoint::new().expect("there are threads");
        let tls = Arc::new(client(&Key::generate(), &key));
        let options = Options { qlog: Some(qlog.clone()), ..Options::default() };
        let connecting = dialing.connect(vec![Route::to(between.address)], &tls, options);
        let (near, far) = tokio::join!(connecting, listening.accept());
        let (near, far) = (near.expect("it answers"), far.expect("it listens"));
        transfer(&near, &far, 2_000_000).await;
        [stats] = settled([&near]).await;
        near.close(0);
        dialing.wait_idle().await;
    });
    qlog.flush(Duration::from_secs(10));
    assert!(stats.routes[0].lost > 10, "{stats:?}");
    assert_agrees(&while_open(folder.log("client").1), &stats);
}

#[test]
fn a_full_disk_ends_the_log_and_no_connection() {
    let warnings = Arc::<Mutex<Vec<String>>>::default();
    let opened = Arc::<AtomicUsize>::default();
    let count = Arc::clone(&opened);
    let open = move |_: &str| {
        count.fetch_add(1, Ordering::Relaxed);
        let full = OpenOptions::new().write(true).open("/dev/full")?;
        Ok(Box::new(full) as Sink)
    };
    let told = Arc::clone(&warnings);
    let warn = move |text: &str| told.lock().expect("no panic").push(text.to_string());
    let qlog = Qlog::with(open, warn).expect("there are threads");
    run(async {
        let options = Options { qlog: Some(qlog.clone()), ..Options::default() };
        let pair = pair(2, options).await;
        transfer(&pair.near, &pair.far, 3_000_000).await;
        transfer(&pair.near, &pair.far, 3_000_000).await;
        assert!(!pair.near.has_ended() && !pair.far.has_ended());
    });
    qlog.flush(Duration::from_secs(10));
    let warnings = warnings.lock().expect("no panic");
    assert_eq!(warnings.len(), 1, "{warnings:?}");
    assert!(warnings[0].contains("No space left"), "{warnings:?}");
    assert_eq!(opened.load(Ordering::Relaxed), 2, "one for each side, and none again");
}

#[test]
fn a_writer_that_is_stuck_holds_nobody_up() {
    /// Writes nothing for a long time.
    struct Stuck;
    impl std::io::Write for Stuck {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            std::thread::sleep(Duration::from_secs(600));
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let qlog = Qlog::with(|_| Ok(Box::new(Stuck) as Sink), |_| {}).expect("there are threads");
    run(async {
        let options = Options { qlog: Some(qlog.clone()), ..Options::default() };
        let pair = pair(1, options.clone()).await;
        transfer(&pair.near, &pair.far, 3_000_000).await;
        let port = pair.listening.local_addresses()[0].port();
        assert!(pair.near.add_route(routes(port, 2).swap_remove(1)).await.is_ok());
    });
    qlog.flush(Duration::from_millis(10));
}

#[test]
fn a_stranger_leaves_no_log() {
    let folder = Folder::new("stranger");
    let qlog = Qlog::into_folder(&folder.0, |why| panic!("{why}")).expect("a folder");
    run(async {
        let options = Options { qlog: Some(qlog.clone()), ..Options::default() };
        let (listening, key) = listen(&anywhere(), options);
        let port = listening.local_addresses()[0].port();
        for number in 0..20 {
            let dialing = Endpoint::new().expect("there are threads");
            let tls = Arc::new(client(&Key::generate(), &key));
            let connecting = dialing.connect(routes(port, 1), &tls, Options::default());
            let (near, far) = tokio::join!(connecting, listening.accept());
            let (near, far) = (near.expect("it answers"), far.expect("it listens"));
            let mut stream = near.open_stream().await.expect("it is open");
            stream.write_all(b"here I am").await.expect("it is open");
            far.accept_stream().await.expect("it is opened");
            if number == 0 {
                far.admit(Bytes::mib(64));
                transfer(&near, &far, 300_000).await;
            }
            near.close(0);
            far.ended().await;
        }
        listening.wait_idle().await;
    });
    qlog.flush(Duration::from_secs(10));
    let logs = fs::read_dir(&folder.0).expect("it is a folder").count();
    assert_eq!(logs, 1, "that of the one that was admitted");
    assert_eq!(folder.log("server").1[0]["name"], "connectivity:connection_started");
}
