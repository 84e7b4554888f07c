//! The striped connection.

use std::cell::Cell;
use std::net::Ipv4Addr;
use std::rc::Rc;

use peer::Identity;
use peer::tls::{ClientTls, ServerTls};
use stripe::{Endpoint, Listening, Options, Route};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::LocalSet;
use units::Bytes;

use crate::{CHUNK, DATAGRAM, READ, Result, Sending, ZEROS, cpu};

fn options() -> Options {
    let mut options = Options::default();
    options.config.max_datagram = Bytes(DATAGRAM.into());
    options.config.max_streams = 1_024;
    options
}

pub(crate) async fn receive() -> Result<()> {
    let identity = Identity::generate()?;
    let listening = Listening::at((Ipv4Addr::LOCALHOST, 0).into());
    let tls = ServerTls::new(&identity)?;
    let endpoint = Endpoint::listen(&listening, tls.config(), options())?;
    println!("ready {} {}", endpoint.local_addresses()[0], identity.fingerprint());
    let connection = endpoint.accept().await.ok_or("the endpoint has ended")?;
    connection.admit(options().config.max_receive_buffer);
    let before = cpu();
    let all = Rc::new(Cell::new(0));
    let tasks = LocalSet::new();
    tasks
        .run_until(async {
            while let Ok(stream) = connection.accept_stream().await {
                let all = Rc::clone(&all);
                tokio::task::spawn_local(async move {
                    let (sending, mut receiving) = stream.split();
                    let _ = sending.finish();
                    let mut buffer = vec![0; READ];
                    while let Ok(read @ 1..) = receiving.read(&mut buffer).await {
                        all.set(all.get() + read);
                    }
                });
            }
        })
        .await;
    println!("received {} {}", all.get(), cpu() - before);
    Ok(())
}

pub(crate) async fn send(sending: &Sending) -> Result<()> {
    let identity = Identity::generate()?;
    let tls = ClientTls::new(&identity, sending.key.parse()?)?;
    let endpoint = Endpoint::new()?;
    let routes = vec![Route::to(sending.address); sending.paths];
    let connection = endpoint.connect(routes, tls.config(), options()).await?;
    let tasks = LocalSet::new();
    for _ in 0..sending.streams {
        let mut stream = connection.open_stream().await?;
        let mut left = sending.of_each();
        tasks.spawn_local(async move {
            while left > 0 {
                let most = CHUNK.min(usize::try_from(left).unwrap_or(CHUNK));
                left -= stream.write(&ZEROS[..most]).await.expect("it is open") as u64;
            }
            stream.shutdown().await.expect("it is open");
            stream.sending().delivered().await.expect("it is open");
        });
    }
    tasks.await;
    connection.close(0);
    endpoint.wait_idle().await;
    Ok(())
}
