//! Files that go to an output in order, instead of a folder.

mod common;

use std::fs;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use common::{
    Host, Scratch, fetch, fetch_options, parties, receive_options, send, send_options,
    serve_options, unheard,
};
use events::Event;
use files::{Error, Output};
use peer::{PathSpec, Remote};
use tokio::time::timeout;
use units::Rate;

/// A reader of an output: it reads as much as it is allowed to.
#[derive(Clone, Default)]
struct Reader(Arc<(Mutex<Read>, Condvar)>);

#[derive(Default)]
struct Read {
    bytes: Vec<u8>,
    /// No more than this is read; then the writer waits.
    most: Option<usize>,
    is_closed: bool,
}

impl Reader {
    fn output(&self) -> Output {
        Output::new(self.clone())
    }

    fn allow(&self, most: Option<usize>) {
        self.0.0.lock().expect("no panic").most = most;
        self.0.1.notify_all();
    }

    fn close(&self) {
        self.0.0.lock().expect("no panic").is_closed = true;
        self.0.1.notify_all();
    }

    fn bytes(&self) -> Vec<u8> {
        self.0.0.lock().expect("no panic").bytes.clone()
    }
}

impl Write for Reader {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        let (read, changed) = &*self.0;
        let is_full = |read: &mut Read| {
            !read.is_closed && read.most.is_some_and(|most| read.bytes.len() >= most)
        };
        let mut read =
            changed.wait_while(read.lock().expect("no panic"), is_full).expect("no panic");
        if read.is_closed {
            return Err(std::io::ErrorKind::BrokenPipe.into());
        }
        read.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Three paths of unequal rates over loopback, so that blocks arrive out of order.
fn unequal_paths(port: u16) -> Vec<PathSpec> {
    let paths = (1..=3).map(|i| PathSpec {
        max: Some(Rate::mbit(20 * i)),
        to: Some(Remote { host: format!("127.0.7.{i}"), zone: None, port }),
        ..PathSpec::over("lo")
    });
    paths.collect()
}

fn everywhere() -> Vec<std::net::SocketAddr> {
    vec!["0.0.0.0:0".parse().expect("an address")]
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_any_size_is_fetched_in_order() {
    for size in [0, 1, 262_144, 262_145, 9_000_001] {
        let scratch = Scratch::new(&format!("output-{size}"));
        let (identity, token) = parties();
        let file = scratch.file("data", size);
        let mut options = serve_options(&scratch.0, &identity, &token);
        options.listen.addresses = everywhere();
        let serving = Host::serve(options).await;
        let reader = Reader::default();
        let mut options = fetch_options(&scratch, &["data"], serving.port, &token);
        options.transfer.dial.paths = unequal_paths(serving.port);
        options.output = Some(reader.output());
        let fetched = fetch(options).await.expect("fetched");
        assert_eq!(fetched.total.0, size as u64);
        assert!(reader.bytes() == fs::read(&file).expect("the source"), "{size} bytes differ");
        serving.outcome().await.expect("served");
        let left: u64 = blocks_in(&scratch.inbox());
        // A small file is written when it has its name.
        assert!(left <= 512, "{left} blocks of the disk are still held");
    }
}

/// 512-byte blocks that the files in a folder occupy.
fn blocks_in(folder: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let files = fs::read_dir(folder).expect("the folder").flatten();
    files.map(|file| file.metadata().map_or(0, |found| found.blocks())).sum()
}

#[tokio::test(flavor = "multi_thread")]
async fn holes_come_out_as_zeros() {
    for (name, data) in [
        ("middle", &[(0, 300_000), (2_000_000, 600_000)][..]),
        ("ends", &[(1_000_000, 700_000)]),
        ("none", &[]),
    ] {
        let scratch = Scratch::new(&format!("output-holes-{name}"));
        let (identity, token) = parties();
        let path = scratch.0.join("data");
        let file = fs::File::create(&path).expect("a file");
        file.set_len(4_000_000).expect("a hole");
        for &(at, length) in data {
            file.write_all_at(&vec![7; length], at).expect("data");
        }
        let serving = Host::serve(serve_options(&scratch.0, &identity, &token)).await;
        let reader = Reader::default();
        let mut options = fetch_options(&scratch, &["data"], serving.port, &token);
        options.output = Some(reader.output());
        fetch(options).await.expect("fetched");
        assert!(reader.bytes() == fs::read(&path).expect("the source"), "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_sent_file_goes_on_in_order() {
    for size in [0, 5, 9_000_001] {
        let scratch = Scratch::new(&format!("output-sent-{size}"));
        let (identity, token) = parties();
        let file = scratch.file("data", size);
        let reader = Reader::default();
        let mut options = receive_options(&scratch, &identity, &token);
        options.output = Some(reader.output());
        options.listen.addresses = everywhere();
        let receiving = Host::receive(options).await;
        let mut options = send_options(&[&file], receiving.port, &token);
        options.transfer.dial.paths = unequal_paths(receiving.port);
        options.transfer.verify = true;
        send(options).await.expect("sent");
        receiving.outcome().await.expect("received");
        assert!(reader.bytes() == fs::read(&file).expect("the source"), "{size} bytes differ");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_reader_holds_the_sender_back() {
    let scratch = Scratch::new("output-slow");
    let (identity, token) = parties();
    let size = 400 << 20;
    let path = scratch.0.join("data");
    // Data, not holes, but quick to make.
    let file = fs::File::create(&path).expect("a file");
    for index in 0..size >> 20 {
        let bytes = vec![u8::try_from(index % 251).expect("small"); 1 << 20];
        file.write_all_at(&bytes, index << 20).expect("data");
    }
    let reader = Reader::default();
    reader.allow(Some(1));
    let mut options = receive_options(&scratch, &identity, &token);
    options.output = Some(reader.output());
    let mut receiving = Host::receive(options).await;
    let sending = tokio::spawn(send(send_options(&[&path], receiving.port, &token)));
    receiving.has(200 << 20).await;
    let mut most = 0;
    let heard = async {
        while let Some(event) = receiving.events.recv().await {
            if let Event::Progress(progress) = event {
                most = most.max(progress.done.0);
            }
        }
    };
    let _ = timeout(Duration::from_secs(2), heard).await;
    assert!(most <= 258 << 20, "{most} bytes came beyond what was read");
    reader.allow(None);
    sending.await.expect("no panic").expect("sent");
    receiving.outcome().await.expect("received");
    assert!(reader.bytes() == fs::read(&path).expect("the source"), "the bytes differ");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_output_ends_both_sides() {
    let scratch = Scratch::new("output-closed");
    let (identity, token) = parties();
    let file = scratch.file("data", 5_000_000);
    let reader = Reader::default();
    reader.close();
    let mut options = receive_options(&scratch, &identity, &token);
    options.output = Some(reader.output());
    let receiving = Host::receive(options).await;
    let error = send(send_options(&[&file], receiving.port, &token)).await.expect_err("closed");
    assert!(matches!(error, Error::Receiver { .. }), "{error}");
    let error = receiving.outcome().await.expect_err("closed");
    assert!(matches!(error, Error::Output { .. }), "{error}");

    let serving = Host::serve(serve_options(&scratch.0, &identity, &token)).await;
    let mut options = fetch_options(&scratch, &["data"], serving.port, &token);
    options.output = Some(reader.output());
    // Nothing of it may be mixed with a second file.
    fetch(options.clone()).await.expect_err("it was written to");
    let reader = Reader::default();
    reader.close();
    options.output = Some(reader.output());
    let error = fetch(options).await.expect_err("closed");
    assert!(matches!(error, Error::Output { .. }), "{error}");
    serving.task.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn several_files_are_no_output() {
    let scratch = Scratch::new("output-several");
    let (identity, token) = parties();
    let files = [scratch.file("a", 10), scratch.file("b", 10)];
    let reader = Reader::default();
    let mut options = receive_options(&scratch, &identity, &token);
    options.output = Some(reader.output());
    let receiving = Host::receive(options).await;
    let sources: Vec<&Path> = files.iter().map(PathBuf::as_path).collect();
    let (events, _heard) = unheard();
    let mut options = send_options(&sources, receiving.port, &token);
    let sending = files::send(options.clone(), events);
    let error = timeout(Duration::from_secs(30), sending).await.expect("it ends");
    let error = error.expect_err("two files");
    assert!(error.to_string().contains("not one file"), "{error}");
    // Nothing was written: one file may still come.
    options.sources.pop();
    send(options).await.expect("sent");
    receiving.outcome().await.expect("received");
    assert_eq!(reader.bytes(), fs::read(&files[0]).expect("the source"));
}
