//! noq with its defaults, but for the size of datagrams and the number of streams.

use std::cell::Cell;
use std::net::Ipv4Addr;
use std::rc::Rc;
use std::sync::Arc;

use noq::{ClientConfig, Endpoint, MtuDiscoveryConfig, ServerConfig, TransportConfig};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use tokio::task::LocalSet;

use crate::{CHUNK, DATAGRAM, READ, Result, Sending, ZEROS, cpu};

const NAME: &str = "localhost";

fn transport() -> Arc<TransportConfig> {
    let mut discovery = MtuDiscoveryConfig::default();
    discovery.upper_bound(DATAGRAM);
    let mut transport = TransportConfig::default();
    transport.mtu_discovery_config(Some(discovery));
    transport.max_concurrent_uni_streams(1_024_u32.into());
    Arc::new(transport)
}

pub(crate) async fn receive() -> Result<()> {
    let certified = rcgen::generate_simple_self_signed(vec![NAME.into()])?;
    let certificate = CertificateDer::from(certified.cert);
    let key = PrivatePkcs8KeyDer::from(certified.signing_key.serialize_der());
    let mut config = ServerConfig::with_single_cert(vec![certificate.clone()], key.into())?;
    config.transport_config(transport());
    let endpoint = Endpoint::server(config, (Ipv4Addr::LOCALHOST, 0).into())?;
    let hex: String = certificate.iter().map(|octet| format!("{octet:02x}")).collect();
    println!("ready {} {hex}", endpoint.local_addr()?);
    let connection = endpoint.accept().await.ok_or("the endpoint has ended")?.await?;
    let before = cpu();
    let all = Rc::new(Cell::new(0));
    let tasks = LocalSet::new();
    tasks
        .run_until(async {
            while let Ok(mut stream) = connection.accept_uni().await {
                let all = Rc::clone(&all);
                tokio::task::spawn_local(async move {
                    let mut buffer = vec![0; READ];
                    while let Ok(Some(read)) = stream.read(&mut buffer).await {
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
    let octets = (0..sending.key.len()).step_by(2);
    let der: std::result::Result<Vec<u8>, _> =
        octets.map(|at| u8::from_str_radix(&sending.key[at..at + 2], 16)).collect();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(CertificateDer::from(der?))?;
    let mut config = ClientConfig::with_root_certificates(Arc::new(roots))?;
    config.transport_config(transport());
    let endpoint = Endpoint::client((Ipv4Addr::LOCALHOST, 0).into())?;
    endpoint.set_default_client_config(config);
    let connection = endpoint.connect(sending.address, NAME)?.await?;
    let tasks = LocalSet::new();
    for _ in 0..sending.streams {
        let mut stream = connection.open_uni().await?;
        let mut left = sending.of_each();
        tasks.spawn_local(async move {
            while left > 0 {
                let most = CHUNK.min(usize::try_from(left).unwrap_or(CHUNK));
                left -= stream.write(&ZEROS[..most]).await.expect("it is open") as u64;
            }
            stream.finish().expect("it is open");
            // Until all of it is acknowledged.
            let _ = stream.stopped().await;
        });
    }
    tasks.await;
    connection.close(0_u32.into(), b"");
    endpoint.wait_idle().await;
    Ok(())
}
