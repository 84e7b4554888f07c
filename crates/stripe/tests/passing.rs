//! Datagrams of others at the listening sockets.

mod common;

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use common::{Pair, content, pair, run};
use stripe::{Arrived, Options, Passing};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::sleep;

/// Takes whatever it is told of.
#[derive(Debug)]
struct Greedy(Arc<AtomicUsize>);

impl Passing for Greedy {
    fn pass(&mut self, socket: usize, arrived: &Arrived<'_>) -> bool {
        assert_eq!(socket, 0);
        self.0.fetch_add(arrived.bytes.len().div_ceil(arrived.segment), Ordering::Relaxed);
        true
    }
}

/// As a relay at the same port would, that was told labels of the endpoint's connections.
#[test]
fn labels_of_the_endpoint_are_not_passed_on() {
    run(async {
        let Pair { dialing: _dialing, listening, near, far } = pair(2, Options::default()).await;
        let passed = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&passed);
        listening.pass_on(|_| Ok(Box::new(Greedy(counted)))).await.unwrap();
        let data = content(1 << 20);
        let mut sending = near.open_stream().await.unwrap();
        sending.write_all(&data).await.unwrap();
        sending.shutdown().await.unwrap();
        let mut arrived = Vec::new();
        far.accept_stream().await.unwrap().read_to_end(&mut arrived).await.unwrap();
        assert!(arrived == data);
        let before = passed.load(Ordering::Relaxed);
        // What has no label of the endpoint's is somebody else's.
        let stranger = UdpSocket::bind("127.0.0.1:0").unwrap();
        let port = listening.local_addresses()[0].port();
        stranger.send_to(&[0x40; 100], ("127.0.0.1", port)).unwrap();
        while passed.load(Ordering::Relaxed) == before {
            sleep(Duration::from_millis(1)).await;
        }
        assert_eq!(before, 0, "of the connection");
    });
}
