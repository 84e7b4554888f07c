//! The seeds of the fuzz targets of gateways through the same functions as under the fuzzer.

use std::fs;
use std::path::Path;

#[expect(unreachable_pub, reason = "under the fuzzer it is a crate")]
#[path = "../../../fuzz/src/gateway.rs"]
mod target;

/// Each seed of a target, whole and cut off at every step of octets.
fn feed(name: &str, step: usize, check: fn(&[u8])) {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(name);
    let mut count = 0;
    for entry in fs::read_dir(seeds).expect("the folder is there") {
        let bytes = fs::read(entry.expect("it is listed").path()).expect("it can be read");
        (0..=bytes.len()).step_by(step).for_each(|cut| check(&bytes[..cut]));
        check(&bytes);
        count += 1;
    }
    assert!(count >= 2, "{count} seeds");
}

#[test]
fn gateway_packets() {
    feed("gateway_packets", 7, target::gateway_packets);
}

#[test]
fn gateway_config() {
    feed("gateway_config", 1, target::gateway_config);
}
