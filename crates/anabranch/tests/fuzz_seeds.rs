//! The seeds of the fuzz target of `cp`'s lines through the same function as under the fuzzer.

use std::fs;
use std::path::Path;

#[expect(unreachable_pub, reason = "under the fuzzer it is a crate")]
#[path = "../../../fuzz/src/ssh_lines.rs"]
mod target;

#[test]
fn ssh_lines() {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/ssh_lines");
    let files = fs::read_dir(seeds).expect("the folder is there");
    let feed = |path: std::path::PathBuf| {
        let bytes = fs::read(path).expect("it can be read");
        for cut in 0..bytes.len() {
            target::ssh_lines(&bytes[..cut]);
        }
        // A refused seed teaches the fuzzer nothing.
        assert!(target::ssh_lines(&bytes) > 0, "no message");
    };
    assert!(files.map(|entry| feed(entry.expect("it is listed").path())).count() >= 5);
}
