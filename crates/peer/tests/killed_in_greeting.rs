//! A host that is killed when it has acknowledged a greeting, and has yet to answer it, leaves
//! nothing that is overdue: whoever waits asks for signs of life.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use events::Events;
use peer::host::{Asking, Entry, Service};
use peer::{Conn, Error, Fingerprint, striped};
use tokio::net::UdpSocket;
use tokio::sync::oneshot;
use wire::session::{Hello, SessionId};

/// An answer that is missed by then was not asked for.
const PATIENCE: Duration = Duration::from_secs(60);

/// Says that it was asked, and answers when the test is over.
struct Slow {
    asked: Mutex<Option<oneshot::Sender<()>>>,
    over: Mutex<mpsc::Receiver<()>>,
}

impl Service for Slow {
    type Session = ();
    type Grant = ();

    fn name(&self) -> &'static str {
        "slow"
    }

    fn does(&self) -> &'static str {
        "waits"
    }

    fn takes_whole(&self) -> bool {
        true
    }

    fn find(&self, _: SessionId, _: Fingerprint) -> Option<()> {
        None
    }

    fn authorize(&self, _: &Asking<'_>) -> Result<(), String> {
        if let Some(asked) = self.asked.lock().unwrap().take() {
            asked.send(()).unwrap();
        }
        let _ = self.over.lock().unwrap().recv();
        Ok(())
    }

    async fn serve(self: Arc<Self>, _conn: Conn, _: Entry<Self>, _: SocketAddr) {}
}

/// Found with feeds whose collector was killed: they waited until a keep-alive asked.
#[tokio::test(flavor = "multi_thread", worker_threads = 3)]
async fn a_host_that_is_killed_before_it_answers_is_missed() {
    let (asked, is_asked) = oneshot::channel();
    let (done, over) = mpsc::channel();
    let slow = Slow { asked: Mutex::new(Some(asked)), over: Mutex::new(over) };
    let (_hosting, address, key) = common::host(&Arc::new(slow));

    // What has the host's port for the side that dials: once it is gone, no program has it.
    let inside = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let outside = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let to = outside.local_addr().unwrap();
    inside.connect(address).await.unwrap();
    let between = tokio::spawn(async move {
        let (mut one, mut other) = ([0; 2_048], [0; 2_048]);
        let mut dialer = None;
        loop {
            tokio::select! {
                came = outside.recv_from(&mut one) => {
                    let (length, from) = came.unwrap();
                    dialer = Some(from);
                    inside.send(&one[..length]).await.unwrap();
                }
                came = inside.recv(&mut other) => {
                    outside.send_to(&other[..came.unwrap()], dialer.unwrap()).await.unwrap();
                }
            }
        }
    });

    let terms = common::terms(to, key);
    // Either of these would notice it in the end.
    let mut silent = stripe::Options { keep_alive: None, ..stripe::Options::default() };
    silent.config.idle_timeout = None;
    let dialed = striped::connect(&terms, silent, Events::new()).await.unwrap();
    let hello = Hello::new("slow", None, terms.run);
    let killing = async {
        is_asked.await.unwrap();
        // Time for the acknowledgement.
        tokio::time::sleep(Duration::from_millis(300)).await;
        between.abort();
    };
    let opening = striped::open_service(dialed.connection(), hello, PATIENCE, "");
    let (opened, ()) = tokio::join!(opening, killing);
    let Err(Error::NoPath { why, .. }) = opened else { panic!("nobody answered") };
    assert!(why.contains("no program has that port"), "{why}");
    drop(done);
}
