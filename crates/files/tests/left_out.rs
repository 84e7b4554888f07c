//! What cannot be read is named and left out, in both directions, and everything else arrives.

mod common;

use std::fs;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use common::{
    Host, Scratch, fetch_options, parties, receive_options, send_options, serve_options, unheard,
};
use events::{Event, Events, Summary};
use files::Error;
use rustix::fs::{CWD, FileType, Mode, mknodat};

/// A tree with two files, and a pipe and a socket between them: neither can be read by anybody,
/// root included.
fn tree(scratch: &Scratch) -> PathBuf {
    let root = scratch.0.join("tree");
    fs::create_dir_all(root.join("folder")).expect("a folder");
    fs::write(root.join("first"), "1").expect("a file");
    fs::write(root.join("second"), "2").expect("a file");
    mknodat(CWD, root.join("folder/pipe"), FileType::Fifo, Mode::RUSR, 0).expect("a pipe");
    drop(UnixListener::bind(root.join("open")).expect("a socket"));
    root
}

/// The result of a transfer that is given its channel of events, and what was left out.
async fn reported<F>(run: impl FnOnce(Events) -> F) -> (Result<Summary, Error>, Vec<String>)
where
    F: Future<Output = Result<Summary, Error>>,
{
    let (events, mut heard) = unheard();
    let result = run(events).await;
    let mut left_out = Vec::new();
    while let Some(event) = heard.try_recv() {
        if let Event::LeftOut { path, reason } = event {
            let name = path.file_name().expect("a name").to_string_lossy().into_owned();
            left_out.push(format!("{name}: {reason}"));
        }
    }
    (result, left_out)
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("a folder");
    let mut names: Vec<String> = entries
        .map(|entry| entry.expect("an entry").file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

const EXPECTED: [&str; 2] = ["pipe: a pipe is not sent", "open: a socket is not sent"];

#[tokio::test(flavor = "multi_thread")]
async fn a_sender_names_what_it_leaves_out_and_sends_the_rest() {
    let scratch = Scratch::new("send-left-out");
    let root = tree(&scratch);
    for strict in [true, false] {
        let (identity, token) = parties();
        let mut receiving = Host::receive(receive_options(&scratch, &identity, &token)).await;
        let mut options = send_options(&[&root], receiving.port, &token);
        options.selection.strict = strict;
        let (result, left_out) = reported(|events| files::send(options, events)).await;
        if strict {
            let error = result.expect_err("it is strict");
            assert!(error.to_string().contains("pipe") && error.exit_code() == 3, "{error}");
            receiving.task.abort();
            continue;
        }
        assert_eq!(
            (result.expect("sent").left_out, left_out),
            (2, EXPECTED.map(String::from).to_vec())
        );
        let mut told = false;
        while let Some(event) = receiving.events.recv().await {
            if let Event::Notice { text } = event {
                told |= text.contains("left out") && text.contains("and another one");
            }
        }
        assert!(told, "the receiver says that something is missing");
        assert_eq!(receiving.outcome().await.expect("received").left_out, 0);
    }
    assert_eq!(names(&scratch.inbox().join("tree")), ["first", "folder", "second"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_names_what_it_leaves_out_and_gives_the_rest() {
    let scratch = Scratch::new("get-left-out");
    let root = tree(&scratch);
    for (name, strict, code) in [
        ("tree", true, Some(3)),
        ("tree/folder/pipe", false, Some(3)),
        ("tree/gone", false, Some(3)),
        ("tree", false, None),
    ] {
        let (identity, token) = parties();
        let above = root.parent().expect("a folder");
        let serving = Host::serve(serve_options(above, &identity, &token)).await;
        let mut options = fetch_options(&scratch, &[name], serving.port, &token);
        options.selection.strict = strict;
        let (result, left_out) = reported(|events| files::fetch(options, events)).await;
        serving.task.abort();
        if let Some(code) = code {
            let error = result.expect_err("it is needed");
            assert_eq!(error.exit_code(), code, "{name}: {error}");
            continue;
        }
        assert_eq!(
            (result.expect("got").left_out, left_out),
            (2, EXPECTED.map(String::from).to_vec())
        );
    }
    assert_eq!(names(&scratch.inbox().join("tree")), ["first", "folder", "second"]);
}
