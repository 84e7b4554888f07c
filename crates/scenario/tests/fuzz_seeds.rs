//! The seeds of the fuzz targets, and the repository's own files, through the same functions as
//! under the fuzzer.

use std::fs;
use std::path::{Path, PathBuf};

#[expect(unreachable_pub, reason = "under the fuzzer it is a crate")]
#[path = "../../../fuzz/src/simulations.rs"]
mod targets;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// Runs a target on all files of these folders. Returns the number of files.
fn run_all(folders: &[&str], target: fn(&[u8])) -> usize {
    let entries = folders
        .iter()
        .flat_map(|folder| fs::read_dir(root().join(folder)).expect("the folder is there"));
    let files =
        entries.map(|entry| entry.expect("it is listed").path()).filter(|path| path.is_file());
    files.map(|path| target(&fs::read(path).expect("it can be read"))).count()
}

#[test]
fn scenarios() {
    let count = run_all(&["fuzz/seeds/scenario", "scenarios", "papers/theory"], targets::scenario);
    assert!(count > 10, "{count} files");
    // A seed that is refused leads the fuzzer nowhere.
    for name in
        ["all-keys.toml", "gateways.toml", "one-flow.toml", "striped.toml", "workloads.toml"]
    {
        let document = scenario::Document::load(&root().join("fuzz/seeds/scenario").join(name));
        assert!(document.is_ok(), "{name}: {document:?}");
    }
}

#[test]
fn networks() {
    let count = run_all(&["fuzz/seeds/network", "bench/networks"], targets::network);
    assert!(count > 10, "{count} files");
    for name in ["all-keys.toml", "plain.toml"] {
        let network =
            link::config::Network::read(&root().join("fuzz/seeds/network").join(name), None);
        assert!(network.is_ok(), "{name}: {network:?}");
    }
}

#[test]
fn traces() {
    assert!(run_all(&["fuzz/seeds/trace"], targets::trace) >= 3);
}

#[test]
fn frames() {
    assert!(run_all(&["fuzz/seeds/wire_frame"], targets::wire_frame) >= 5);
    for name in ["opening", "join", "data", "answer", "after", "stream", "left-out", "mirror"] {
        let bytes =
            fs::read(root().join("fuzz/seeds/wire_frame").join(name)).expect("it can be read");
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            let (_, length) =
                wire::RawFrame::parse(rest).expect("a frame").expect("the whole of it");
            rest = &rest[length..];
        }
    }
}

#[test]
fn manifests() {
    assert!(run_all(&["fuzz/seeds/wire_manifest"], targets::wire_manifest) >= 3);
    for name in ["tree", "files", "links", "stream", "extents", "attributes"] {
        let bytes =
            fs::read(root().join("fuzz/seeds/wire_manifest").join(name)).expect("it can be read");
        let entries: Result<Vec<_>, _> = wire::manifest::entries(&bytes).collect();
        // A stream is alone.
        let least = if name == "stream" { 1 } else { 4 };
        assert!(entries.as_ref().is_ok_and(|all| all.len() >= least), "{name}: {entries:?}");
    }
}

#[test]
fn packets() {
    assert!(run_all(&["fuzz/seeds/wire_packet"], targets::wire_packet) >= 9);
    for name in [
        "acknowledgement",
        "all-ranges",
        "data",
        "datagram",
        "last",
        "ping",
        "ranges",
        "reset",
        "window",
    ] {
        let bytes =
            fs::read(root().join("fuzz/seeds/wire_packet").join(name)).expect("it can be read");
        wire::ptcp::Packet::parse(0, &bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

#[test]
fn gateways() {
    assert!(run_all(&["fuzz/seeds/gateway"], targets::gateway) >= 4);
    assert!(run_all(&["fuzz/seeds/wire_gateway"], targets::wire_gateway) >= 4);
    for name in ["data", "return", "probe", "report"] {
        let bytes =
            fs::read(root().join("fuzz/seeds/wire_gateway").join(name)).expect("it can be read");
        wire::harp::parse(&bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

proptest::proptest! {
    #[test]
    fn gateways_take_anything(data: Vec<u8>, pieces in 0_usize..60) {
        // Pieces that follow each other, made of arbitrary bytes.
        let data: Vec<u8> = data.iter().copied().cycle().take(1 + 24 * pieces).collect();
        targets::gateway(&data);
        targets::wire_gateway(&data);
    }
}

#[test]
fn datagrams() {
    assert!(run_all(&["fuzz/seeds/wire_datagram"], targets::wire_datagram) >= 8);
    for name in ["data", "initial", "handshake", "versions", "retry", "reset"] {
        let bytes =
            fs::read(root().join("fuzz/seeds/wire_datagram").join(name)).expect("it can be read");
        wire::datagram::Outer::parse(&bytes).unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}
