//! The memory that sources which are let in may make a collector take, as the system counts it: a
//! process of its own, which is both ends.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::fs::read_to_string;
use std::time::Duration;

use feed::bounds;
use peer::conn::Conn;
use peer::{Identity, May};
use tempfile::TempDir;
use tokio::time::{sleep, timeout};

use common::{Collector, entry, long_frame, offer};

/// Connections of a key, each of which carries one of its streams.
const EACH: usize = 64;
/// What both ends of a connection take at most, buffers of 64 KiB among it, in KiB.
const OF_CONNECTION: u64 = 450;

/// The memory of this process, in KiB.
fn resident() -> u64 {
    sys::memory::give_back();
    let status = read_to_string("/proc/self/status").unwrap();
    let row = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    row.trim().strip_suffix(" kB").unwrap().parse().unwrap()
}

/// The worst of a key: each connection has 2 MiB of records before their turn, and the most of a
/// further frame behind them, and goes on.
async fn attack(collector: &Collector, own: &Identity) -> Vec<Conn> {
    // Encoded once, so that this end holds little.
    let frames: Vec<Vec<u8>> = (1..=9).map(long_frame).collect();
    let mut open = Vec::new();
    for stream in 0..u8::try_from(EACH).unwrap() {
        let mut conn = collector.meet(own, offer(stream)).await;
        for (at, frame) in frames.iter().enumerate() {
            let cut = if at == 8 { 100 } else { 0 };
            conn.push_parts(&frame[..frame.len() - cut], &[]);
            // The collector may not read all of it.
            let _ = timeout(Duration::from_secs(1), conn.flush()).await;
        }
        open.push(conn);
    }
    open
}

/// What is taken of the memory that hosts share, in KiB.
fn shared(collector: &Collector) -> u64 {
    let [early, waiting] =
        ["early", "waiting"].map(|name| collector.figure(&format!("feed_{name}_memory_bytes")));
    (early + waiting) / 1_024
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_do_their_worst_take_what_is_stated() {
    let folder = TempDir::new().unwrap();
    let keys: Vec<Identity> = (0..6).map(|_| Identity::generate().unwrap()).collect();
    let peers = keys.iter().enumerate().map(|(n, own)| entry(own, &format!("h{n}"), May::Feed));
    let collector = Collector::start(folder.path(), peers.collect()).await;
    let most = (bounds::EARLY_IN_ALL.0 + bounds::WAITING_IN_ALL.0) / 1_024;
    let before = resident();
    let mut open = Vec::new();
    for (number, own) in keys.iter().enumerate() {
        open.push(attack(&collector, own).await);
        sleep(Duration::from_millis(500)).await;
        let (taken, connections) = (resident() - before, (open.len() * EACH) as u64);
        let shared = shared(&collector);
        println!("{connections} connections: {taken} KiB, {shared} KiB of them shared");
        if number == 0 {
            assert!(shared <= most / 2, "{shared} KiB are shared");
            assert!(shared >= bounds::EARLY_IN_ALL.0 / 1_024 / 3, "it was an attack: {shared} KiB");
        }
        assert!(shared <= most, "{shared} KiB are shared");
        assert!(taken <= shared + connections * OF_CONNECTION, "{taken} KiB");
    }
    drop(open);
    while shared(&collector) > 0 {
        sleep(Duration::from_millis(20)).await;
    }
}
