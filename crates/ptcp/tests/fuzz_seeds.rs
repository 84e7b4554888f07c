//! The seeds of the fuzz targets of the striped connection, through the same functions as under the
//! fuzzer.

use std::fs;
use std::path::Path;

#[expect(unreachable_pub, reason = "under the fuzzer it is a crate")]
#[path = "../../../fuzz/src/striped.rs"]
mod targets;

/// Runs a target on all its seeds. Returns their number.
fn run_all(name: &str, target: fn(&[u8])) -> usize {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds").join(name);
    let entries = fs::read_dir(folder).expect("the folder is there");
    let files = entries.map(|entry| entry.expect("it is listed").path());
    files.map(|path| target(&fs::read(path).expect("it can be read"))).count()
}

#[test]
fn peers() {
    assert!(run_all("striped_peer", targets::striped_peer) >= 3);
}

#[test]
fn strangers() {
    assert!(run_all("striped_strangers", targets::striped_strangers) >= 3);
}
