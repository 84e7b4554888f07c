//! Many peers dialed by one process over UDP: its threads, descriptors and memory with none, and
//! with so many. The peers are hosts in a process of their own, which this one starts.
//!
//!     dialed_peers COUNT          prints a line of JSON
//!
//! Every connection is admitted, carries a word there and back, and stays open.
#![expect(clippy::unwrap_used, reason = "a measurement fails by panicking")]

use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};
use std::sync::Arc;

use events::Events;
use peer::dial::Terms;
use peer::host::{Asking, Carriers, Entry, Host, Service, Services};
use peer::{Conn, Credential, DialOptions, Fingerprint, Identity, ListenOptions, striped};
use wire::session::{Hello, SessionFrame, SessionId};

/// Connections that one listening host has.
const EACH: usize = 200;
/// Connections that are opened at the same time.
const AT_ONCE: usize = 16;
/// Answers what it is told.
const SERVICE: &str = "echo";

struct Echo;

impl Service for Echo {
    type Session = ();
    type Grant = ();

    fn name(&self) -> &'static str {
        SERVICE
    }

    fn does(&self) -> &'static str {
        "echoes"
    }

    fn takes_whole(&self) -> bool {
        true
    }

    fn find(&self, _: SessionId, _: Fingerprint) -> Option<()> {
        None
    }

    fn authorize(&self, _: &Asking<'_>) -> Result<(), String> {
        Ok(())
    }

    async fn serve(self: Arc<Self>, mut conn: Conn, _: Entry<Self>, _: std::net::SocketAddr) {
        while let Ok(number) = heard(&mut conn).await {
            conn.push(&SessionFrame::Pong(number));
            let _ = conn.flush().await;
        }
    }
}

async fn heard(conn: &mut Conn) -> Result<u64, peer::ConnError> {
    let heard = conn.receive(|frame| match SessionFrame::try_from(frame)? {
        SessionFrame::Ping(number) | SessionFrame::Pong(number) => Ok(number),
        other => Err(peer::ConnError::unexpected(&other)),
    });
    heard.await
}

/// A number of this process, from its status.
fn status(field: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

/// The peers: hosts that print their addresses and keys, until standard input ends.
async fn listen(count: usize) {
    let mut all = Vec::new();
    for _ in 0..count.div_ceil(EACH) {
        let identity = Identity::generate().unwrap();
        let key = identity.fingerprint();
        let options = ListenOptions {
            addresses: vec!["127.0.0.1:0".parse().unwrap()],
            ..ListenOptions::new(identity)
        };
        let (stripe, events) = (stripe::Options::default(), Events::new());
        let host = Host::bind(options, Carriers::Udp, &stripe, events).unwrap();
        println!("{} {key}", host.addresses()[0]);
        all.push(host.serve(Services::new().with(&Arc::new(Echo))).unwrap());
    }
    println!();
    let ends = tokio::task::spawn_blocking(|| std::io::stdin().lines().for_each(drop));
    ends.await.unwrap();
}

/// Dials the peer of that number, each with an identity of its own, and says a word.
async fn dial(number: usize, hosts: Arc<Vec<(String, Fingerprint)>>) -> (striped::Striped, Conn) {
    let (address, key) = &hosts[number / EACH];
    let mut options = DialOptions::new(Identity::generate().unwrap());
    options.paths = vec!["lo".parse().unwrap()];
    let to = vec![(address.parse().unwrap(), Credential::Pinned(*key))];
    let terms = Terms::new(to, options).unwrap();
    let striped =
        striped::connect(&terms, stripe::Options::default(), Events::new()).await.unwrap();
    let hello = Hello::new(SERVICE, None, terms.run);
    let patience = std::time::Duration::from_secs(30);
    let mut conn = striped::open_service(striped.connection(), hello, patience, "").await.unwrap();
    conn.push(&SessionFrame::Ping(number as u64));
    conn.flush().await.unwrap();
    assert_eq!(heard(&mut conn).await.unwrap(), number as u64);
    (striped, conn)
}

async fn measure(count: usize) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["listen", &count.to_string()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    let hosts: Vec<(String, Fingerprint)> = lines
        .take_while(|line| !line.is_empty())
        .map(|line| {
            let (address, key) = line.split_once(' ').unwrap();
            (address.into(), key.parse().unwrap())
        })
        .collect();
    let hosts = Arc::new(hosts);
    let before = (status("Threads:"), descriptors(), status("VmRSS:"));
    let mut open = Vec::new();
    while open.len() < count {
        let mut dialing = tokio::task::JoinSet::new();
        for number in open.len()..count.min(open.len() + AT_ONCE) {
            dialing.spawn(dial(number, Arc::clone(&hosts)));
        }
        open.extend(dialing.join_all().await);
    }
    let after = (status("Threads:"), descriptors(), status("VmRSS:"));
    println!(
        "{{\"peers\": {count}, \"threads_before\": {}, \"threads\": {}, \"descriptors_before\": \
         {}, \"descriptors\": {}, \"kib_before\": {}, \"kib\": {}}}",
        before.0, after.0, before.1, after.1, before.2, after.2
    );
    std::io::stdout().flush().unwrap();
    drop(child.stdin.take());
    child.wait().unwrap();
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    match &arguments[..] {
        [word, count] if word == "listen" => runtime.block_on(listen(count.parse().unwrap())),
        [count] => runtime.block_on(measure(count.parse().unwrap())),
        _ => {
            eprintln!("dialed_peers COUNT");
            std::process::exit(2);
        }
    }
}
