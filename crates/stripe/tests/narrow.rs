//! A line that comes to carry only packets that are too small for this protocol.

mod common;

use std::sync::Arc;

use common::between::{Between, Fate, Mischief};
use common::{anywhere, listen, run};
use secure::testing::{Key, client};
use stripe::{ConnectionError, Endpoint, Options, Route};
use tokio::io::AsyncWriteExt;

/// What the line does: so many datagrams of any size pass, then small ones only.
const SHRINK: Mischief = |dice, datagram| {
    // The choices count the datagrams.
    dice.0 += 1;
    if dice.0 > 200 && datagram.len() >= 1_200 { Fate::Lost } else { Fate::Passes }
};

/// Both ends learn why, whichever of them sent the data.
#[test]
fn a_connection_whose_last_line_is_too_narrow_ends_and_says_why() {
    for dialing_side_sends in [true, false] {
        run(async {
            let (listening, key) = listen(&anywhere(), Options::default());
            let port = listening.local_addresses()[0].port();
            let between = Between::new(([127, 0, 0, 1], port).into(), 0, SHRINK);
            let dialing = Endpoint::new().expect("there are threads");
            let tls = Arc::new(client(&Key::generate(), &key));
            let routes = vec![Route::to(between.address)];
            let connecting = dialing.connect(routes, &tls, Options::default());
            let (near, far) = tokio::join!(connecting, listening.accept());
            let (near, far) = (near.expect("it answers"), far.expect("it listens"));
            let (sends, reads) = if dialing_side_sends { (near, far) } else { (far, near) };
            let mut stream = sends.open_stream().await.expect("it is open");
            let data = vec![1; 64 << 20];
            let sending = tokio::spawn(async move { stream.write_all(&data).await });
            let mut arriving = reads.accept_stream().await.expect("it is opened");
            let reading =
                async move { tokio::io::copy(&mut arriving, &mut tokio::io::sink()).await };
            tokio::spawn(reading);
            assert_eq!(sends.ended().await, ConnectionError::Narrow);
            assert_eq!(reads.ended().await, ConnectionError::Narrow);
            sending.await.expect("no panic").expect_err("it has ended");
        });
    }
}
