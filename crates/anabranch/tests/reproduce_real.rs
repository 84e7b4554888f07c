//! Reproductions with real programs, kernel TCP and emulated links: the experiment of the SAR-RMTP
//! paper at a tenth of its scale, a few live sources, and background gateways.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;
use std::process::Command;

/// Whether this process may create namespaces and TUN devices. With `CI=true` it must.
fn privileged() -> bool {
    let may = fs::OpenOptions::new().read(true).write(true).open("/dev/net/tun").is_ok()
        && Command::new("unshare")
            .args(["--net", "true"])
            .status()
            .is_ok_and(|status| status.success());
    if !may {
        let why = "no network namespaces and TUN devices without root here";
        assert!(std::env::var("CI").as_deref() != Ok("true"), "{why}");
        println!("SKIPPED: {why}");
    }
    may
}

/// A time in a table.
fn time(table: &str, by: &str, measure: &str) -> f64 {
    let mut rows = table.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let row = rows
        .find(|row| row[1] == by && row[4] == measure)
        .unwrap_or_else(|| panic!("no {measure} of {by}:\n{table}"));
    row[5].parse().unwrap()
}

/// What a study said that ran to its end. A row may differ: opening connections takes a tenth of
/// the time of short transfers, and other load on this machine makes a recovery longer.
fn reproduced(command: &mut Command) -> String {
    let output = command.output().unwrap();
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(matches!(output.status.code(), Some(0 | 1)), "{said}");
    said
}

/// The programs, not their order: other load on the machine makes any transfer longer, and none
/// shorter than fluids. `anabranch-transfer` has the order, in virtual time.
#[test]
fn programs_take_no_less_than_fluids() {
    if !privileged() {
        return;
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sar-rmtp");
    let _ = fs::remove_dir_all(&folder);
    let mut command = Command::new("timeout");
    command.args(["100", env!("CARGO_BIN_EXE_anabranch"), "reproduce", "sar-rmtp", "3", "5"]);
    command.args(["--runs", "1", "--count-late", "--out"]).arg(&folder);
    let said = reproduced(&mut command);
    assert!(said.contains("transfers: some") || said.contains("transfers, "), "{said}");
    for figure in ["3", "5"] {
        let table = fs::read_to_string(folder.join(format!("{figure}.csv"))).unwrap();
        assert!(table.starts_with("bytes,by,round,path,measure,value,unit\n10150000,"), "{table}");
        let picture = fs::read_to_string(folder.join(format!("{figure}.svg"))).unwrap();
        roxmltree::Document::parse(&picture).unwrap();
        // Links that run late may send what they missed in a burst.
        let (ideal, form) = (time(&table, "fluid", "ideal"), time(&table, "fluid", "closed_form"));
        for (by, least) in [("A", form), ("B", ideal), ("SAR", ideal)] {
            let seconds = time(&table, by, "time");
            assert!(seconds > 0.97 * least, "{by} {seconds} s, fluids {least} s:\n{table}");
        }
    }
}

/// Two sources over four relays that are ample: all are served, and again after each event.
#[test]
fn live_sources_are_served_and_recover() {
    if !privileged() {
        return;
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("wang2007-live");
    let _ = fs::remove_dir_all(&folder);
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../papers/wang2007-live/sources.toml");
    let mut text = fs::read_to_string(file).unwrap();
    for (from, to) in [
        ("runs = 5 ", "runs = 1 "),
        ("sources = 8", "sources = 2"),
        ("relays = 8 ", "relays = 4 "),
        ("\"5 Mbit/s\"", "\"800 kbit/s\""),
        ("f = [1.6, 1.2]", "f = [5]"),
    ] {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    fs::create_dir_all(folder.join("papers/wang2007-live")).unwrap();
    fs::write(folder.join("papers/wang2007-live/sources.toml"), text).unwrap();
    let mut command = Command::new("timeout");
    command.args(["300", env!("CARGO_BIN_EXE_anabranch"), "reproduce", "wang2007-live", "--quick"]);
    command.args(["--count-late", "--papers"]).arg(folder.join("papers"));
    command.arg("--out").arg(folder.join("out"));
    let said = reproduced(&mut command);
    assert!(said.contains("1 network: some"), "{said}");
    for (figure, pictures) in
        [("draws", &["draws.svg", "draws-time.svg"][..]), ("events", &["events.svg"])]
    {
        for picture in pictures {
            let picture = fs::read_to_string(folder.join("out").join(picture)).unwrap();
            roxmltree::Document::parse(&picture).unwrap();
        }
        let table =
            fs::read_to_string(folder.join("out").join(figure).with_extension("csv")).unwrap();
        let count = |of: &str| table.lines().filter(|line| line.contains(of)).count();
        match figure {
            "draws" => {
                assert_eq!(count(",real,0,,served,"), 1, "{table}");
                assert_eq!(count(",real,0,,draws,"), 2, "each source has said its draws: {table}");
            }
            _ => assert_eq!(count(",real,0,recovery,"), 3, "{table}"),
        }
    }
}

/// Transfers of 2 MB through gateways: they take no less than their lines do, and what waits at the
/// exit is counted.
#[test]
fn live_gateways_carry_transfers_and_count_waits() {
    if !privileged() {
        return;
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("harp-live");
    let _ = fs::remove_dir_all(&folder);
    let mut command = Command::new("timeout");
    command.args(["300", env!("CARGO_BIN_EXE_anabranch"), "reproduce", "harp-live", "--quick"]);
    command.args(["8b", "8c", "9a", "9b", "14", "--scale", "0.02", "--count-late", "--out"]);
    let said = reproduced(command.arg(&folder));
    assert!(said.contains("7 runs: some"), "{said}");
    for picture in ["8b", "8c", "9a", "9b", "9b-rates", "14"] {
        let picture = fs::read_to_string(folder.join(picture).with_extension("svg")).unwrap();
        roxmltree::Document::parse(&picture).unwrap();
    }
    let read =
        |figure: &str| fs::read_to_string(folder.join(figure).with_extension("csv")).unwrap();
    let value = |table: &str, keys: &str| -> f64 {
        let row = table.lines().find_map(|line| line.strip_prefix(keys));
        let row = row.unwrap_or_else(|| panic!("no {keys} in:\n{table}"));
        row.split(',').next().unwrap().parse().unwrap()
    };
    let times = read("8b");
    // 1,380 octets of a packet of 1,500 are a transfer's, on lines of 10 Mbit/s.
    let alone = 16e6 / 10e6 * 1_500.0 / 1_380.0;
    for (paths, lines) in [("one path", 1.0), ("two paths", 2.0), ("three paths", 3.0)] {
        let took = value(&times, &format!("\"set 1, {paths}\",real,0,bulk,,completion,"));
        assert!(took > 0.97 * alone / lines, "{paths}: {took} s\n{times}");
    }
    let waits = read("8c");
    let key = |measure: &str| format!("\"set 1, two paths\",real,0,,{measure},");
    let (at_once, below) = (value(&waits, &key(",at_once")), value(&waits, &key("20,waits_below")));
    assert!(0.0 < at_once && at_once <= below && below <= 1.0, "{waits}");
    let beside = read("9a");
    for flow in ["foreground", "background"] {
        value(&beside, &format!("both,real,0,{flow},,completion,"));
    }
    value(&read("9b"), "adaptive,real,0,s2,,completion,");
}
