//! The first stream of the side that listens has its addresses: neither a service there nor the
//! program that dials ever has it, whichever task runs first.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use events::Events;
use peer::host::{Asking, Entry, Service};
use peer::{Conn, Fingerprint, striped};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use wire::session::{Hello, SessionId};

/// Opens a stream for a word as soon as a peer is let in.
struct Caller;

const WORD: &[u8] = b"from the service";

impl Service for Caller {
    type Session = ();
    type Grant = ();

    fn name(&self) -> &'static str {
        "caller"
    }

    fn does(&self) -> &'static str {
        "calls"
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

    async fn serve(self: Arc<Self>, _conn: Conn, entry: Entry<Self>, _: SocketAddr) {
        let Entry::Open(request) = entry else { panic!("nobody joins") };
        let whole = request.whole.unwrap();
        let mut stream = whole.open_stream().await.unwrap();
        stream.write_all(WORD).await.unwrap();
        stream.shutdown().await.unwrap();
        whole.ended().await;
    }
}

/// Found with connections of `tunnel -R`: now and then the first one was taken for the addresses.
#[tokio::test]
async fn what_a_service_opens_is_not_taken_for_the_addresses() {
    let (_hosting, address, key) = common::host(&Arc::new(Caller));
    let terms = common::terms(address, key);
    let stripe = stripe::Options::default();
    let dialed = striped::connect(&terms, stripe, Events::new()).await.unwrap();
    // On this one thread, no other task has run since: this one waits first.
    let hello = Hello::new("caller", None, terms.run);
    let patience = Duration::from_secs(30);
    let (stream, opened) = tokio::join!(
        dialed.connection().accept_stream(),
        striped::open_service(dialed.connection(), hello, patience, ""),
    );
    let _conn = opened.unwrap();
    // Addresses are longer than that, and their stream would not end.
    let mut heard = [0; WORD.len()];
    stream.unwrap().read_exact(&mut heard).await.unwrap();
    assert_eq!(heard, WORD);
}
