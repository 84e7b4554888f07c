//! The seeds of the fuzz target of admission through the same function as under the fuzzer.

use std::fs;
use std::path::Path;

#[expect(unreachable_pub, reason = "under the fuzzer it is a crate")]
#[path = "../../../fuzz/src/admission.rs"]
mod target;

/// Each seed, whole and cut off at every byte. A panic of the host closes the connection too: the
/// hook tells it apart.
#[test]
fn admission() {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        hook(info);
        std::process::abort();
    }));
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/admission");
    let files = fs::read_dir(seeds).expect("the folder is there");
    let feed = |path: std::path::PathBuf| {
        let bytes = fs::read(path).expect("it can be read");
        (0..=bytes.len()).for_each(|cut| target::admission(&bytes[..cut]));
    };
    assert!(files.map(|entry| feed(entry.expect("it is listed").path())).count() >= 6);
}
