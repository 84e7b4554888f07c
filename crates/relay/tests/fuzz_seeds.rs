//! The seeds of the fuzz targets of relays through the same functions as under the fuzzer.

use std::fs;
use std::path::Path;

#[expect(unreachable_pub, reason = "under the fuzzer it is a crate")]
#[path = "../../../fuzz/src/relay.rs"]
mod target;

/// Each seed of a target, whole and cut off at every byte.
fn run(name: &str, least: usize, check: fn(&[u8])) {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(name);
    let mut count = 0;
    for entry in fs::read_dir(seeds).expect("the folder is there") {
        let bytes = fs::read(entry.expect("it is listed").path()).expect("it can be read");
        (0..=bytes.len()).for_each(|cut| check(&bytes[..cut]));
        count += 1;
    }
    assert!(count >= least, "{count} seeds of {name}");
}

#[test]
fn wire_relay() {
    run("wire_relay", 21, target::wire_relay);
}

#[test]
fn wire_meet() {
    run("wire_meet", 5, target::wire_meet);
}

#[test]
fn wire_bind() {
    run("wire_bind", 3, target::wire_bind);
}
