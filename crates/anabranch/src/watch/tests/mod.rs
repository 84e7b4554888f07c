//! The exact output, and the JSON stream against docs/json.md.

mod screens;

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};

use events::{
    Action, Changed, DryRun, Event, Failed, FeedDemand, FeedPath, FeedProgress, Listed, PathEvent,
    PathProgress, PathState, PlannedChange, Progress, Standstill, Summary,
};
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use serde_json::Value;
use units::{Bytes, PathId, Rate, Span};

use super::fit::Size;
use super::screen::Printer;
use super::{HostRole, Names, Style, Verbosity, WatchArgs, json, notes, rows, text};

fn path(n: u32, name: &str, state: PathState, mbit: u64, share: f64) -> PathProgress {
    PathProgress {
        path: PathId(n),
        name: name.into(),
        state,
        local: Some("192.0.2.1:40000".parse().unwrap()),
        remote: Some("192.0.2.2:7707".parse().unwrap()),
        rate: Rate::mbit(mbit),
        rtt: Some(Span::from_micros(12_340)),
        done: Bytes(9_000_000),
        share,
        congestion_control: Some("cubic".into()),
        retransmits: Some(3),
        key_updates: None,
        connections: Some(1),
        background: None,
    }
}

fn progress() -> Progress {
    Progress {
        transfer: 0,
        files: 3,
        files_done: 1,
        current: Some("a".into()),
        elapsed: Span::from_millis(3_200),
        done: Bytes(12_300_000),
        total: Bytes(24_000_000),
        is_growing: false,
        rate: Rate::mbit(46),
        eta: Some(Span::from_secs(62)),
        standstill: None,
        repeated: Bytes(1_500),
        gain: Some(1.94),
        paths: vec![
            path(0, "wlan0", PathState::Active, 24, 0.73),
            path(1, "wwan0", PathState::Lost, 0, 0.27),
        ],
    }
}

fn summary() -> Summary {
    Summary {
        files: 1,
        total: Bytes(24_000_000),
        moved: Bytes(18_000_000),
        repeated: Bytes::ZERO,
        elapsed: Span::from_secs(4),
        sync: Span::from_millis(250),
        left_out: 0,
        lost_owners: 0,
        lost_attributes: 0,
        lost_modes: 0,
        lost_entries: 0,
        finished_at: vec![("wlan0".into(), Span::from_secs(4))],
        paths: vec![
            path(0, "wlan0", PathState::Active, 24, 0.5),
            path(2, "wlan0", PathState::Active, 24, 0.5),
        ],
    }
}

fn lost(why: &str) -> PathEvent {
    PathEvent { path: PathId(1), name: "wwan0".into(), state: PathState::Lost, why: why.into() }
}

#[test]
fn lines_are_exact() {
    assert_eq!(
        text::plain(&progress()),
        "0:03  12.3 MB of 24.0 MB   51 %  46.0 Mbit/s  1.9 x the best path  ETA 1:02  1.5 kB \
         repeated | wlan0 24.0 Mbit/s, wwan0 lost"
    );
    assert_eq!(
        text::summary(&summary()),
        "1 file, 18.0 MB in 4.0 s, 36.0 Mbit/s (6.0 MB were there already), then 0.2 s to sync; \
         wlan0 100 %; nothing repeated"
    );
    let nothing = Summary { files: 2, total: Bytes(10), ..Summary::default() };
    assert_eq!(text::summary(&nothing), "2 files, 10 B: nothing had to be sent");
}

#[test]
fn rows_of_paths_are_exact() {
    let rows: Vec<String> =
        progress().paths.iter().map(|path| rows::path_row(path, 6, 79)).collect();
    assert_eq!(
        rows,
        [
            "wlan0   ━━━━━━━━━━━━────   73 %   24.0 Mbit/s  rtt   12.3 ms",
            "wwan0   ━━━━────────────   27 %          lost  rtt   12.3 ms",
        ]
    );
}

#[test]
fn an_end_too_far_away_is_withheld() {
    let far = Progress { eta: Some(Span::from_secs(103_296 * 3_600)), ..progress() };
    assert_eq!(text::eta(&far), None);
    assert_eq!(text::eta(&progress()), Some("1:02".into()));
    assert!(!text::plain(&far).contains("ETA"));
}

#[test]
fn a_standstill_stands_in_the_place_of_the_end() {
    let (since, patience) = (Span::from_secs(12), Span::from_secs(120));
    let still = Progress { standstill: Some(Standstill { since, patience }), ..progress() };
    let line = text::total(&still);
    assert!(line.contains("nothing for 0:12 of 2:00") && !line.contains("ETA"), "{line}");
}

#[test]
fn hash_lines_are_those_that_b3sum_checks() {
    let hash = "ab".repeat(32);
    let line = |name: &str| text::checksum(&hash, name, false);
    assert_eq!(line("a b.txt"), format!("{hash}  a b.txt"));
    assert_eq!(line("a\\b"), format!("\\{hash}  a\\\\b"));
    assert_eq!(line("a\nb\rc"), format!("\\{hash}  a\\nb\\rc"));
    let long = "x/".repeat(2_000);
    for name in ["ü 東京", "\u{1b}[2J", "\\n", "\\", "a\n\\\n", &long] {
        assert_eq!(b3sum_name(&line(name), &hash), name);
    }
    assert!(!text::checksum(&hash, "\u{1b}[2J\n", true).contains(['\u{1b}', '\n']));
}

/// The name in a line of checksums, as b3sum documents them: two spaces behind the hash; a
/// backslash at the start of the line means that backslashes and line ends of the name are escaped.
fn b3sum_name(line: &str, hash: &str) -> String {
    let (escaped, rest) = line.strip_prefix('\\').map_or((false, line), |rest| (true, rest));
    let name = rest.strip_prefix(hash).unwrap().strip_prefix("  ").unwrap();
    if !escaped {
        return name.into();
    }
    let mut plain = String::new();
    let mut chars = name.chars();
    while let Some(c) = chars.next() {
        plain.push(match c {
            '\\' => match chars.next().unwrap() {
                'n' => '\n',
                'r' => '\r',
                '\\' => '\\',
                other => panic!("b3sum knows no \\{other}"),
            },
            other => other,
        });
    }
    plain
}

#[test]
fn trouble_and_its_end_are_printed_once() {
    let mut troubles = text::Troubles::default();
    let active = PathEvent { state: PathState::Active, why: "opened again".into(), ..lost("") };
    assert_eq!(troubles.line(0, &active), None);
    assert_eq!(
        troubles.line(0, &lost("reset by peer")),
        Some("path wwan0: lost (reset by peer)".into())
    );
    assert_eq!(troubles.line(0, &PathEvent { state: PathState::Connecting, ..lost("") }), None);
    assert_eq!(troubles.line(0, &active), Some("path wwan0: active (opened again)".into()));
    assert_eq!(troubles.line(0, &active), None);
}

#[test]
fn clocks_and_shares() {
    assert_eq!(text::clock(Span::from_millis(59_600)), "1:00");
    assert_eq!(text::clock(Span::from_secs(3_723)), "1:02:03");
    assert_eq!(text::percent(Bytes(999), Bytes(1_000)), 99);
    assert_eq!(text::percent(Bytes::ZERO, Bytes::ZERO), 100);
}

#[test]
fn names_from_peers_are_escaped_for_the_terminal() {
    assert!(
        !rows::path_row(&path(0, "a\u{1b}[2J", PathState::Active, 1, 0.0), 40, 80)
            .contains('\u{1b}')
    );
    assert!(
        !text::plain(&Progress {
            paths: vec![path(0, "\u{7}", PathState::Active, 1, 0.0)],
            ..progress()
        })
        .contains('\u{7}')
    );
}

/// The keys of each section in docs/json.md.
fn documented() -> BTreeMap<String, BTreeSet<String>> {
    let page = include_str!("../../../../../docs/json.md");
    let section = |section: &str| {
        let (title, body) = section.split_once('\n').unwrap();
        let keys = body
            .lines()
            .filter_map(|row| row.strip_prefix("| `"))
            .filter_map(|row| row.split_once('`'));
        (title.trim().to_string(), keys.map(|(key, _)| key.to_string()).collect())
    };
    page.split("\n## ").skip(1).map(section).collect()
}

fn keys(value: &Value) -> BTreeSet<String> {
    value
        .as_object()
        .unwrap()
        .keys()
        .filter(|key| !matches!(key.as_str(), "v" | "event"))
        .cloned()
        .collect()
}

#[test]
fn a_feed_says_what_is_safe_and_what_waits() {
    let feed = FeedProgress { elapsed: Span::from_secs(80), kept: 12_345, ..Default::default() };
    assert_eq!(text::feed(&feed), "1:20  12345 records are at the collector");
    let feed = FeedProgress { kept: 1, waiting: Bytes(1_200_000), ..feed };
    assert_eq!(text::feed(&feed), "1:20  1 record is at the collector, 1.2 MB wait here");
    let oldest = Some(Span::from_secs(75));
    let outage = FeedProgress { oldest, dropped: 3, ..feed.clone() };
    assert_eq!(
        text::feed(&outage),
        "1:20  1 record is at the collector, 1.2 MB wait here, the oldest for 1:15; 3 records \
         were dropped"
    );
    let path =
        |name: &str, mbit| FeedPath { name: name.into(), set: None, received: Rate::mbit(mbit) };
    let demand = FeedDemand {
        rate: Rate::mbit(5),
        satisfied: Some(true),
        since: Span::from_secs(48),
        draws: 3,
        paths: vec![path("wan0", 3), path("wan1 via r2", 2)],
    };
    let feed = FeedProgress { waiting: Bytes::ZERO, demand: Some(demand), ..feed };
    assert_eq!(
        text::feed(&feed),
        "1:20  1 record is at the collector; a demand of 5.0 Mbit/s, met for 0:48: wan0 3.0 \
         Mbit/s, wan1 via r2 2.0 Mbit/s"
    );
}

#[test]
fn every_event_has_the_documented_keys() {
    let identity = peer::Identity::generate().unwrap();
    let token = peer::Token::generate(&identity).unwrap();
    let mut lines = vec![json::of_token(&token)];
    let failed = Failed { exit_code: 6, text: "lost".into() };
    let dry_run = DryRun {
        changes: vec![PlannedChange {
            action: Action::Create,
            name: "a".into(),
            what: Changed::File(Bytes(1)),
        }],
        ..DryRun::default()
    };
    let events = [
        Event::Listening { addresses: vec!["192.0.2.1:7707".parse().unwrap()] },
        Event::Started {
            transfer: 0,
            peer: identity.fingerprint().to_string(),
            files: 1,
            total: Bytes(1),
            resumed: Bytes(0),
        },
        Event::Path { transfer: 0, event: lost("reset by peer") },
        Event::Progress(progress()),
        Event::Feed(FeedProgress::default()),
        Event::FileDone {
            transfer: 0,
            name: "a\nb".into(),
            size: Bytes(1),
            blake3: Some("00".into()),
        },
        Event::DryRun(dry_run.clone()),
        Event::LeftOut { path: "a".into(), reason: "because".into() },
        Event::Notice { text: "a sentence".into() },
        Event::Detail { text: "another one".into() },
        Event::Meeting { via: "192.0.2.9:7707,KEY".into(), code: Some("48213-a-b-c".into()) },
        Event::Accepting { what: "SOCKS".into(), address: "127.0.0.1:1080".into() },
        Event::Ended { transfer: 1, result: Ok(summary()) },
        Event::Ended { transfer: 1, result: Err(failed) },
    ];
    lines.extend(events.iter().map(json::of_event));
    lines.extend(dry_run.changes.iter().map(|change| json::of_change(0, change)));
    let listed = Listed { name: "a".into(), what: Changed::Link, mtime: None };
    lines.push(json::of_listed(&listed));
    lines.push(json::of_summary(0, &summary()));
    lines.push(json::of_failure(2, "no"));
    let documented = documented();
    let mut seen = BTreeSet::new();
    for line in &lines {
        let value: Value = serde_json::from_str(line).unwrap();
        let event = value["event"].as_str().unwrap();
        assert_eq!(value["v"], 1);
        assert_eq!(keys(&value), documented[event], "{event}");
        for path in value["paths"].as_array().into_iter().flatten() {
            assert_eq!(keys(path), documented["Each path"]);
        }
        seen.insert(event.to_string());
    }
    // `perf` writes one object, which tests of the command compare with the schema.
    let is_event = |title: &String| !["Each path", "perf"].contains(&title.as_str());
    let all: BTreeSet<String> = documented.into_keys().filter(is_event).collect();
    assert_eq!(seen, all, "each documented event is written once");
    assert!(lines[0].contains(&format!("\"token\":\"{}\"", token.reveal())));
}

#[test]
fn a_stream_has_no_share_and_no_end() {
    let line = text::total(&Progress {
        done: Bytes(12_000_000),
        total: Bytes(12_300_000),
        is_growing: true,
        ..Progress::default()
    });
    assert!(line.starts_with("12.0 MB of a stream") && !line.contains('%'), "{line}");
}

/// People hear of the paths of a tunnel that carry data, and of every attempt only if they ask.
#[test]
fn a_tunnel_says_which_paths_carry_data() {
    let said = |verbosity| {
        let role = HostRole::Service(None);
        let mut notes = notes::Notes::new(Printer::plain(), verbosity, role);
        let path = |path, name: &str, state, why: &str| Event::Path {
            transfer: 0,
            event: PathEvent { path: PathId(path), name: name.into(), state, why: why.into() },
        };
        let events = [
            path(1, "eth0", PathState::Active, ""),
            path(2, "wlan0", PathState::Lost, "no answer"),
            path(2, "wlan0", PathState::Active, ""),
            Event::Detail { text: "example.org:443: 10 kB".into() },
            path(1, "eth0", PathState::Lost, "silent"),
        ];
        let lines: Vec<String> = events.iter().filter_map(|event| notes.line(event)).collect();
        lines
    };
    let most = [
        "path eth0: active; carrying data: eth0",
        "path wlan0: active; carrying data: eth0, wlan0",
        "path eth0: lost (silent); carrying data: wlan0",
    ];
    assert_eq!(said(Verbosity::Normal), most);
    let all = said(Verbosity::Verbose);
    assert_eq!(all.len(), 5);
    assert_eq!(all[1], "path wlan0: lost (no answer); carrying data: eth0");
    assert_eq!(all[3], "example.org:443: 10 kB");
    assert!(said(Verbosity::Quiet).is_empty());
}

/// A unit that runs without a display of progress still has its refusals in the log.
#[test]
fn notices_are_printed_whatever_is_said_of_progress() {
    let said = |args: WatchArgs| {
        let mut style = args.progress.unwrap_or_default();
        if args.quiet {
            style = Style::None;
        }
        let verbosity = args.verbosity(style);
        let role = HostRole::Receiver { keeps: true };
        let mut notes = notes::Notes::new(Printer::plain(), verbosity, role);
        notes.line(&Event::Notice { text: "192.0.2.7 was refused".into() }).is_some()
    };
    for style in [Style::Auto, Style::Bar, Style::Plain, Style::None] {
        assert!(said(WatchArgs { progress: Some(style), ..WatchArgs::default() }), "{style:?}");
    }
    assert!(!said(WatchArgs { quiet: true, ..WatchArgs::default() }));
    let json = WatchArgs { json: true, progress: Some(Style::None), ..WatchArgs::default() };
    assert!(!said(json), "it is an event on standard output");
}

/// Of every path that is shown the screen has the name, and the rate or the state, that JSON has;
/// and so have the lines of a log.
#[test]
fn screen_and_json_say_the_same() {
    let screens = Cell::new(0);
    let paths = proptest::collection::vec((0_usize..6, 0_u64..10_000_000_000), 1..8);
    let same = |paths: Vec<(usize, u64)>| {
        compare_screen_and_json(paths)?;
        screens.set(screens.get() + 1);
        Ok(())
    };
    TestRunner::new(ProptestConfig::with_cases(64)).run(&paths, same).unwrap();
    println!("screens {}", screens.get());
}

fn compare_screen_and_json(paths: Vec<(usize, u64)>) -> Result<(), TestCaseError> {
    let states = [
        PathState::Connecting,
        PathState::Active,
        PathState::Standby,
        PathState::Stalled,
        PathState::Lost,
        PathState::Dropped,
    ];
    let of = |(number, (state, rate)): (u32, (usize, u64))| PathProgress {
        rate: Rate::from_bits(rate),
        ..path(number, &format!("eth{number}"), states[state], 1, 0.5)
    };
    let paths: Vec<PathProgress> = (0..).zip(paths).map(of).collect();
    let rate = paths.iter().map(|path| path.rate).sum();
    let snapshot = Progress { rate, paths, ..progress() };
    let line = json::of_event(&Event::Progress(snapshot.clone()));
    let told: Value = serde_json::from_str(&line).unwrap();
    let log = text::plain(&snapshot);
    let size = Size { columns: 100, rows: 50 };
    let rows = rows::rows(&BTreeMap::from([(0, snapshot)]), &Names::default(), size);
    let paths = told["paths"].as_array().unwrap();
    for path in paths {
        let name = path["name"].as_str().unwrap();
        let state = path["state"].as_str().unwrap();
        let says = match state {
            "active" => Rate::from_bits(path["rate"].as_u64().unwrap()).to_string(),
            other => other.to_string(),
        };
        let row = rows.iter().find(|row| row.starts_with(name));
        prop_assert_eq!(row.is_some(), state != "dropped");
        prop_assert!(row.is_none_or(|row| row.contains(&says)), "{:?}: {}", row, says);
        prop_assert!(log.contains(&format!("{name} {says}")), "{}", log);
    }
    let sum: u64 = paths.iter().map(|path| path["rate"].as_u64().unwrap()).sum();
    prop_assert_eq!(told["rate"].as_u64(), Some(sum));
    prop_assert!(rows.last().unwrap().contains(&Rate::from_bits(sum).to_string()));
    Ok(())
}
