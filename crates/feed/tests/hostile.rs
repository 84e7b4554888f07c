//! Sources that break the rules, and collectors that do.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use feed::bounds;
use peer::conn::{Conn, ConnError};
use peer::{Identity, May};
use tempfile::TempDir;
use tokio::time::{Instant, sleep, timeout};
use wire::Emit;
use wire::feed::{FeedFrame, MAX_RECORD, Records, Watch, push_record};
use wire::measure::{MeasureFrame, Measured};
use wire::session::{AbortCode, SessionFrame};

use common::{Collector, entry, long_frame, offer};

/// What the collector says next, but for its welcome.
async fn next(conn: &mut Conn) -> Result<Said, ConnError> {
    loop {
        let said = conn.receive(|frame| match FeedFrame::try_from(frame)? {
            FeedFrame::From { next, .. } => Ok(Some(Said::From(next))),
            FeedFrame::Kept { kept, arrived } => Ok((kept == arrived).then_some(Said::Kept(kept))),
            FeedFrame::Over(why) => Ok(Some(Said::Over(why))),
            FeedFrame::Session(SessionFrame::Abort(code, text)) => {
                Ok(Some(Said::Abort(code, text)))
            }
            FeedFrame::Session(_) | FeedFrame::Channel(_) => Ok(None),
            FeedFrame::Report(report) => Ok(Some(Said::Report(report.paths))),
            other @ (FeedFrame::Records(_)
            | FeedFrame::Offer(_)
            | FeedFrame::Watch(_)
            | FeedFrame::State(_)) => Err(ConnError::unexpected(&other)),
        });
        let said = timeout(Duration::from_secs(10), said).await.expect("it answers")?;
        if let Some(said) = said {
            return Ok(said);
        }
    }
}

#[derive(Debug, PartialEq)]
enum Said {
    From(u64),
    Kept(u64),
    Over(String),
    Abort(AbortCode, String),
    Report(Vec<(u32, u64)>),
}

fn push(conn: &mut Conn, first: u64, records: &[&[u8]]) {
    let mut body = Vec::new();
    for record in records {
        push_record(&mut body, record);
    }
    conn.push(&FeedFrame::Records(Records::of(first, &body).unwrap()));
}

#[tokio::test(flavor = "multi_thread")]
async fn records_are_kept_over_tcp_as_well() {
    let (folder, own) = (TempDir::new().unwrap(), Identity::generate().unwrap());
    let collector = Collector::start(folder.path(), vec![entry(&own, "anna", May::Feed)]).await;
    let mut conn = collector.meet(&own, offer(1)).await;
    assert_eq!(next(&mut conn).await.unwrap(), Said::From(0));
    push(&mut conn, 0, &[b"one", b"two"]);
    conn.flush().await.unwrap();
    assert_eq!(next(&mut conn).await.unwrap(), Said::Kept(2));
    let name = format!("anna/logs/{}-{:020}.log", "01".repeat(16), 0);
    assert_eq!(std::fs::read(folder.path().join(name)).unwrap(), b"one\ntwo\n");
}

/// What arrives over all paths of a source is told over one of them.
#[tokio::test(flavor = "multi_thread")]
async fn a_source_hears_what_arrives_over_its_paths_and_of_no_other() {
    let folder = TempDir::new().unwrap();
    let keys = [Identity::generate().unwrap(), Identity::generate().unwrap()];
    let peers = vec![entry(&keys[0], "anna", May::Feed), entry(&keys[1], "bob", May::Feed)];
    let collector = Collector::start(folder.path(), peers).await;
    let watch = |path, interval| {
        FeedFrame::Watch(Watch { path, interval: NonZeroU32::new(interval), relay: None })
    };
    let mut first = collector.greet(&keys[0]).await;
    let mut second = collector.greet(&keys[0]).await;
    let mut other = collector.greet(&keys[1]).await;
    for (conn, path, stream) in [(&mut second, 7, 1), (&mut other, 9, 2)] {
        conn.push(&watch(path, 0));
        conn.push(&FeedFrame::Offer(offer(stream)));
        conn.flush().await.unwrap();
        assert_eq!(next(conn).await.unwrap(), Said::From(0));
        push(conn, 0, &[b"one"]);
        conn.flush().await.unwrap();
        assert_eq!(next(conn).await.unwrap(), Said::Kept(1));
    }
    first.push(&watch(3, 50));
    first.flush().await.unwrap();
    assert_eq!(next(&mut first).await.unwrap(), Said::Report(vec![(7, 7), (3, 0)]));
    // A connection cannot become another path, whose count would then be wrong.
    first.push(&watch(4, 50));
    first.flush().await.unwrap();
    loop {
        match next(&mut first).await.unwrap() {
            Said::Report(_) => {}
            Said::Abort(AbortCode::Protocol, text) => {
                break assert_eq!(text, "the connection is path 3 already");
            }
            said => panic!("{said:?}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn only_who_may_feed_is_let_in() {
    let folder = TempDir::new().unwrap();
    let keys: Vec<Identity> = (0..4).map(|_| Identity::generate().unwrap()).collect();
    let mays = [May::Send, May::Relay, May::None];
    let peers = keys.iter().zip(mays).map(|(own, may)| entry(own, "a", may)).collect();
    let collector = Collector::start(folder.path(), peers).await;
    for own in &keys {
        let mut conn = collector.meet(own, offer(1)).await;
        let said = next(&mut conn).await;
        let Ok(Said::Abort(AbortCode::Refused, text)) = said else { panic!("{said:?}") };
        assert!(text.contains("--may feed"), "{text}");
    }
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "nothing was made");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_name_leads_nowhere_else() {
    let (folder, own) = (TempDir::new().unwrap(), Identity::generate().unwrap());
    // A name of a host that is no name of a folder.
    let peers = vec![entry(&own, "../anna", May::Feed)];
    let collector = Collector::start(folder.path(), peers).await;
    let mut conn = collector.meet(&own, offer(1)).await;
    assert_eq!(next(&mut conn).await.unwrap(), Said::From(0));
    push(&mut conn, 0, &[b"one"]);
    conn.flush().await.unwrap();
    assert_eq!(next(&mut conn).await.unwrap(), Said::Kept(1));
    assert!(folder.path().join(own.fingerprint().to_string()).join("logs").is_dir());
    for feed in ["..", ".x", "a/b", ""] {
        let mut conn = collector.greet(&own).await;
        let mut frame = Vec::new();
        FeedFrame::Offer(offer(1)).emit(&mut frame);
        let length = u8::try_from(feed.len()).unwrap();
        frame.splice(5 + 25..5 + 26 + 4, [&[length], feed.as_bytes()].concat());
        frame[4] = u8::try_from(frame.len() - 5).unwrap();
        conn.push_parts(&frame, &[]);
        conn.flush().await.unwrap();
        let said = next(&mut conn).await.unwrap();
        assert!(matches!(&said, Said::Abort(AbortCode::Protocol, _)), "{feed}: {said:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_that_breaks_the_rules_is_told_and_keeps_what_was_kept() {
    let (folder, own) = (TempDir::new().unwrap(), Identity::generate().unwrap());
    let collector = Collector::start(folder.path(), vec![entry(&own, "anna", May::Feed)]).await;
    let mut kept = 0;
    for wrong in [
        // It sends more before its turn than anybody has to hold.
        &(|conn: &mut Conn, next: u64| {
            let long = vec![0; MAX_RECORD];
            (1..40).for_each(|number| push(conn, next + number, &[&long]));
        }) as &dyn Fn(&mut Conn, u64),
        // A second stream in the same channel.
        &|conn, _| conn.push(&FeedFrame::Offer(offer(2))),
        // A record that would be two.
        &|conn, next| push(conn, next, &[b"a\nb"]),
        // A frame of another service, and one that only a collector sends.
        &|conn, _| conn.push(&MeasureFrame::Measured(Measured::default())),
        &|conn, _| conn.push(&FeedFrame::Kept { kept: 1, arrived: 1 }),
    ] {
        let mut conn = collector.meet(&own, offer(1)).await;
        assert_eq!(next(&mut conn).await.unwrap(), Said::From(kept));
        push(&mut conn, kept, &[b"right"]);
        conn.flush().await.unwrap();
        kept += 1;
        assert_eq!(next(&mut conn).await.unwrap(), Said::Kept(kept));
        wrong(&mut conn, kept);
        let _ = conn.flush().await;
        let said = next(&mut conn).await;
        assert!(matches!(&said, Ok(Said::Abort(AbortCode::Protocol, _))), "{said:?}");
    }
    // Octets that are no frame.
    let mut conn = collector.meet(&own, offer(1)).await;
    assert_eq!(next(&mut conn).await.unwrap(), Said::From(kept));
    let mut frame = Vec::new();
    FeedFrame::Kept { kept: 1, arrived: 1 }.emit(&mut frame);
    conn.push_parts(&[0xff; 5], &frame);
    let _ = conn.flush().await;
    assert!(matches!(next(&mut conn).await, Ok(Said::Abort(..)) | Err(_)));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_host_has_so_many_streams_at_a_time() {
    let folder = TempDir::new().unwrap();
    let keys: Vec<Identity> = (0..2).map(|_| Identity::generate().unwrap()).collect();
    let names = ["anna", "bert"];
    let peers = keys.iter().zip(names).map(|(own, name)| entry(own, name, May::Feed)).collect();
    let collector = Collector::start(folder.path(), peers).await;
    let mut open = Vec::new();
    for stream in 0..bounds::STREAMS_EACH {
        let offer = offer(u8::try_from(stream).unwrap());
        let mut conn = collector.meet(&keys[0], offer).await;
        assert_eq!(next(&mut conn).await.unwrap(), Said::From(0));
        open.push(conn);
    }
    let mut conn = collector.meet(&keys[0], offer(255)).await;
    let said = next(&mut conn).await.unwrap();
    assert!(matches!(&said, Said::Over(why) if why.contains("as many streams")), "{said:?}");
    let mut conn = collector.meet(&keys[1], offer(1)).await;
    assert_eq!(next(&mut conn).await.unwrap(), Said::From(0), "others have theirs");
    // One that is over, on a connection or a channel of it, makes room.
    let mut first = open.swap_remove(0);
    first.push(&FeedFrame::Over(String::new()));
    first.flush().await.unwrap();
    first.push(&FeedFrame::Channel(7));
    first.push(&FeedFrame::Offer(offer(255)));
    first.flush().await.unwrap();
    assert_eq!(next(&mut first).await.unwrap(), Said::From(0));
    // Another connection of a stream that is open needs no place of its own, ...
    let mut conn = collector.meet(&keys[0], offer(2)).await;
    assert_eq!(next(&mut conn).await.unwrap(), Said::From(0));
    // ... and has no more channels than there may be streams.
    for channel in 1..=bounds::STREAMS_EACH {
        conn.push(&FeedFrame::Channel(u16::try_from(channel).unwrap()));
        conn.push(&FeedFrame::Offer(offer(2)));
        conn.flush().await.unwrap();
        let said = next(&mut conn).await.unwrap();
        let is_over = matches!(&said, Said::Over(why) if why.contains("as many streams"));
        assert_eq!(is_over, channel == bounds::STREAMS_EACH, "{channel}: {said:?}");
    }
    drop(Arc::new(open));
}

#[tokio::test(flavor = "multi_thread")]
async fn several_connections_carry_one_stream() {
    let (folder, own) = (TempDir::new().unwrap(), Identity::generate().unwrap());
    let collector = Collector::start(folder.path(), vec![entry(&own, "anna", May::Feed)]).await;
    let mut one = collector.meet(&own, offer(1)).await;
    let mut two = collector.meet(&own, offer(1)).await;
    for conn in [&mut one, &mut two] {
        assert_eq!(next(conn).await.unwrap(), Said::From(0));
    }
    push(&mut one, 1, &[b"b"]);
    push(&mut one, 3, &[b"d"]);
    one.flush().await.unwrap();
    push(&mut two, 0, &[b"a"]);
    push(&mut two, 2, &[b"c"]);
    two.flush().await.unwrap();
    for conn in [&mut one, &mut two] {
        while next(conn).await.unwrap() != Said::Kept(4) {}
    }
    let name = format!("anna/logs/{}-{:020}.log", "01".repeat(16), 0);
    assert_eq!(std::fs::read(folder.path().join(name)).unwrap(), b"a\nb\nc\nd\n");
}

/// The memory for long records that have come in part is shared: who has taken much gets no more,
/// and others get theirs.
#[tokio::test(flavor = "multi_thread")]
async fn long_records_in_part_leave_others_room() {
    let folder = TempDir::new().unwrap();
    let keys: Vec<Identity> = (0..2).map(|_| Identity::generate().unwrap()).collect();
    let names = ["anna", "bert"];
    let peers = keys.iter().zip(names).map(|(own, name)| entry(own, name, May::Feed)).collect();
    let collector = Collector::start(folder.path(), peers).await;
    let (long, half) = (vec![b'x'; MAX_RECORD], bounds::WAITING_IN_ALL.0 / 2);
    assert_eq!(collector.figure("feed_waiting_memory_limit_bytes"), bounds::WAITING_IN_ALL.0);
    let taken = || collector.figure("feed_waiting_memory_bytes");
    let frame = long_frame(0);
    let mut open = Vec::new();
    for number in 0..200_u8 {
        let mut conn = collector.meet(&keys[0], offer(number % 4)).await;
        assert_eq!(next(&mut conn).await.unwrap(), Said::From(0));
        conn.push_parts(&frame[..bounds::READ], &[]);
        conn.flush().await.unwrap();
        open.push(conn);
    }
    let began = Instant::now();
    while taken() < half - 2 * MAX_RECORD as u64 {
        assert!(began.elapsed() < Duration::from_secs(20), "{} are taken", taken());
        sleep(Duration::from_millis(20)).await;
    }
    assert!(taken() <= half, "{} are taken", taken());
    let mut conn = collector.meet(&keys[1], offer(1)).await;
    assert_eq!(next(&mut conn).await.unwrap(), Said::From(0));
    push(&mut conn, 0, &[&long]);
    push(&mut conn, 1, &[b"short"]);
    conn.flush().await.unwrap();
    while next(&mut conn).await.unwrap() != Said::Kept(2) {}
    // What has room goes on, and what it had is free when the connections are over.
    open[0].push_parts(&frame[bounds::READ..], &[]);
    open[0].flush().await.unwrap();
    assert_eq!(next(&mut open[0]).await.unwrap(), Said::Kept(1));
    drop(open);
    while taken() > 0 {
        assert!(began.elapsed() < Duration::from_secs(40), "{} are taken", taken());
        sleep(Duration::from_millis(20)).await;
    }
}
