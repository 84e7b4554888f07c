//! The SAR-RMTP paper's experiment at a tenth of its scale: real programs, kernel TCP, emulated links.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::Path;
use std::process::Command;

/// Whether this machine lets us make namespaces and TUN devices. With `CI=true` it must.
fn privileged() -> bool {
    let may = fs::OpenOptions::new().read(true).write(true).open("/dev/net/tun").is_ok()
        && Command::new("unshare").args(["--net", "true"]).status().is_ok_and(|status| status.success());
    if !may {
        let why = "no network namespaces and TUN devices without root here";
        assert!(std::env::var("CI").as_deref() != Ok("true"), "{why}");
        println!("SKIPPED: {why}");
    }
    may
}

/// The least time of a scheduler: the run that other tests on this machine disturbed least.
fn least(table: &str, by: &str) -> f64 {
    let rows = table.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let times = rows.filter(|row| row[1] == by && row[4] == "time").map(|row| row[5].parse::<f64>().unwrap());
    times.fold(f64::INFINITY, f64::min)
}

#[test]
fn sar_is_faster_than_b_which_is_no_slower_than_a() {
    if !privileged() {
        return;
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("sar-rmtp");
    let _ = fs::remove_dir_all(&folder);
    let mut command = Command::new("timeout");
    command.args([
        "100",
        env!("CARGO_BIN_EXE_anabranch"),
        "reproduce",
        "sar-rmtp",
        "3",
        "5",
        "--runs",
        "2",
        "--jobs",
        "1",
    ]);
    let output = command.arg("--out").arg(&folder).output().unwrap();
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    // A row may differ: opening connections is a tenth of so short a transfer.
    assert!(matches!(output.status.code(), Some(0 | 1)), "{said}");
    assert!(said.contains("transfers: some"), "{said}");
    for (figure, most) in [("3", 0.97), ("5", 0.75)] {
        let table = fs::read_to_string(folder.join(format!("{figure}.csv"))).unwrap();
        assert!(table.starts_with("bytes,by,round,path,measure,value,unit\n10150000,"), "{table}");
        let [a, b, sar] = ["A", "B", "SAR"].map(|by| least(&table, by));
        assert!(sar < b && b < 1.02 * a && sar < most * a, "figure {figure}: A {a} s, B {b} s, SAR {sar} s\n{said}");
        roxmltree::Document::parse(&fs::read_to_string(folder.join(format!("{figure}.svg"))).unwrap()).unwrap();
    }
}
