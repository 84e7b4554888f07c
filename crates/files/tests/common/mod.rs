//! Transfers over real sockets on loopback, in directories of their own.
#![allow(dead_code, missing_docs, unreachable_pub, reason = "each test uses its part")]

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use events::{Event, Events, Subscription, Summary};
use files::{
    Error, FetchOptions, ReceiveOptions, Selection, SendOptions, ServeOptions, Server,
    TransferOptions,
};
use peer::{Credential, Identity, ListenOptions, Remote, Token};
use tokio::runtime::Runtime;
use tokio::time::timeout;
use units::Span;

/// A directory of the test's own.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Scratch {
        let path =
            std::env::temp_dir().join(format!("anabranch-transfer-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).expect("a scratch directory");
        Scratch(path)
    }

    /// A file of `size` bytes that differ from block to block.
    pub fn file(&self, name: &str, size: usize) -> PathBuf {
        let path = self.0.join(name);
        let mut state = 1u64;
        let content: Vec<u8> = (0..size)
            .map(|_| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                state.to_be_bytes()[0]
            })
            .collect();
        fs::write(&path, content).expect("a source file");
        path
    }

    pub fn inbox(&self) -> PathBuf {
        self.0.join("inbox")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Listens on loopback, for the holder of a token.
fn on_loopback(identity: &Identity, token: &Token) -> ListenOptions {
    ListenOptions {
        addresses: vec!["127.0.0.1:0".parse().expect("an address")],
        port: 0,
        token: Some(token.clone()),
        ..ListenOptions::new(identity.clone())
    }
}

/// The default options of transfers in tests.
fn short_of_patience() -> TransferOptions {
    let mut options = TransferOptions::new(Identity::generate().expect("a key"));
    options.dial.patience = Span::from_secs(5);
    options
}

pub fn receive_options(scratch: &Scratch, identity: &Identity, token: &Token) -> ReceiveOptions {
    ReceiveOptions {
        directory: scratch.inbox(),
        output: None,
        listen: on_loopback(identity, token),
        keep: false,
        parallel: 1,
        timeout: None,
        overwrite: files::Overwrite::OnRequest,
        allow_delete: false,
        archive: false,
        meetings: None,
    }
}

pub fn send_options(sources: &[&Path], port: u16, token: &Token) -> SendOptions {
    SendOptions {
        sources: sources.iter().map(|path| path.to_path_buf()).collect(),
        stream: None,
        spool: None,
        rename: None,
        selection: Selection::default(),
        to: Remote { host: "127.0.0.1".into(), zone: None, port },
        credential: Credential::Token(token.clone()),
        transfer: short_of_patience(),
    }
}

/// A running receiver or server: its port, its outcome, and its events.
pub struct Host {
    pub port: u16,
    pub task: tokio::task::JoinHandle<Result<Summary, Error>>,
    pub events: Subscription,
}

impl Host {
    pub async fn receive(options: ReceiveOptions) -> Host {
        Host::start(|events| files::receive(options, events)).await
    }

    /// A receiver with a runtime of its own, which can be killed like a process.
    pub async fn receive_apart(options: ReceiveOptions) -> (Host, Apart) {
        let runtime = Runtime::new().expect("a runtime");
        let host = runtime.spawn(Host::receive(options)).await.expect("it listens");
        (host, Apart(Some(runtime)))
    }

    pub async fn serve(options: ServeOptions) -> Host {
        Host::start(|events| files::serve(options, events)).await
    }

    async fn start<F>(run: impl FnOnce(Events) -> F) -> Host
    where
        F: Future<Output = Result<Summary, Error>> + Send + 'static,
    {
        let (sender, mut events) = Events::observed();
        let task = tokio::spawn(run(sender));
        // The thread of a host that was killed may have its UDP port for a moment longer, which is
        // a notice.
        let addresses = loop {
            match events.recv().await {
                Some(Event::Listening { addresses }) => break addresses,
                Some(Event::Notice { .. }) => {}
                other => panic!("it does not listen: {other:?}"),
            }
        };
        Host { port: addresses[0].port(), task, events }
    }

    /// Waits until `bytes` bytes are done: a moment that does not depend on the load of the
    /// machine.
    pub async fn has(&mut self, bytes: u64) {
        let there = async {
            loop {
                match self.events.recv().await {
                    Some(Event::Progress(progress)) if progress.done.0 >= bytes => return,
                    Some(_) => {}
                    None => panic!("it ended before {bytes} bytes were there"),
                }
            }
        };
        timeout(Duration::from_secs(30), there).await.expect("it gets on");
    }

    pub async fn outcome(self) -> Result<Summary, Error> {
        timeout(Duration::from_secs(30), self.task)
            .await
            .expect("it ends")
            .expect("it does not panic")
    }
}

/// The runtime of one host, as a process has one.
pub struct Apart(Option<Runtime>);

impl Apart {
    /// Ends all tasks of the host and waits for its operations on the disk. An aborted task alone
    /// would leave these running beside the next host.
    pub async fn kill(mut self) {
        let runtime = self.0.take();
        tokio::task::spawn_blocking(move || drop(runtime)).await.expect("it ends");
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        // After a failed test: blocking is not allowed here.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

pub async fn send(options: SendOptions) -> Result<Summary, Error> {
    let (events, _) = unheard();
    timeout(Duration::from_secs(30), files::send(options, events)).await.expect("it ends")
}

pub fn unheard() -> (Events, Subscription) {
    Events::observed()
}

pub fn parties() -> (Identity, Token) {
    let identity = Identity::generate().expect("a key");
    let token = Token::generate(&identity).expect("a token");
    (identity, token)
}

pub fn serve_options(directory: &Path, identity: &Identity, token: &Token) -> ServeOptions {
    ServeOptions {
        directory: directory.to_path_buf(),
        listen: on_loopback(identity, token),
        once: true,
        meetings: None,
    }
}

/// Fetches from one server; others can be added to `from`.
pub fn fetch_options(scratch: &Scratch, names: &[&str], port: u16, token: &Token) -> FetchOptions {
    let remote = Remote { host: "127.0.0.1".into(), zone: None, port };
    FetchOptions {
        from: vec![Server { remote, credential: Credential::Token(token.clone()) }],
        names: names.iter().map(PathBuf::from).collect(),
        served: None,
        selection: Selection::default(),
        into: scratch.inbox(),
        rename: None,
        output: None,
        blake3: None,
        list: false,
        transfer: short_of_patience(),
    }
}

pub async fn fetch(options: FetchOptions) -> Result<Summary, Error> {
    let (events, _heard) = unheard();
    timeout(Duration::from_secs(30), files::fetch(options, events)).await.expect("it ends")
}

/// The counted bytes of an interface, all months together.
pub fn counted(usage: &Path, interface: &str) -> u64 {
    let text = fs::read_to_string(usage.join(interface)).expect("a count");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            line.split_once(' ').and_then(|(_, bytes)| bytes.parse::<u64>().ok()).expect("a line")
        })
        .sum()
}
