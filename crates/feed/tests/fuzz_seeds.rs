//! The seeds of the fuzz target of feeds through the same function as under the fuzzer.

use std::fs;
use std::path::Path;

#[expect(unreachable_pub, reason = "under the fuzzer it is a crate")]
#[path = "../../../fuzz/src/feed.rs"]
mod target;

/// Each seed, whole and cut off at every byte.
#[test]
fn wire_feed() {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/wire_feed");
    let mut count = 0;
    for entry in fs::read_dir(seeds).expect("the folder is there") {
        let bytes = fs::read(entry.expect("it is listed").path()).expect("it can be read");
        (0..=bytes.len()).for_each(|cut| target::wire_feed(&bytes[..cut]));
        count += 1;
    }
    assert!(count >= 8, "{count} seeds");
}
