//! Two endpoints on loopback.
#![allow(dead_code, reason = "each test uses some of it")]

pub(crate) mod between;

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use secure::testing::{Key, client, server};
use stripe::{Connection, Endpoint, Listening, Options, Route};
use units::Bytes;

/// A test that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Two ends and what connects them.
pub(crate) struct Pair {
    /// The endpoint that dials.
    pub(crate) dialing: Endpoint,
    /// The endpoint that listens.
    pub(crate) listening: Endpoint,
    /// The connection at the dialing end.
    pub(crate) near: Connection,
    /// The connection at the listening end.
    pub(crate) far: Connection,
}

/// Runs a test that may wait.
pub(crate) fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let limited = async { tokio::time::timeout(PATIENCE, test).await };
    runtime.expect("a runtime").block_on(limited).expect("the test ends in time");
}

/// An address of loopback, one for each path.
pub(crate) fn address(host: u8) -> IpAddr {
    Ipv4Addr::new(127, 0, 0, host).into()
}

/// An endpoint that listens on loopback, and its key.
pub(crate) fn listen(listening: &Listening, options: Options) -> (Endpoint, Key) {
    let key = Key::generate();
    let endpoint = Endpoint::listen(listening, &Arc::new(server(&key)), options);
    (endpoint.expect("a port is free"), key)
}

/// Listens at a free port of all of loopback.
pub(crate) fn anywhere() -> Listening {
    Listening::at((Ipv4Addr::UNSPECIFIED, 0).into())
}

/// Routes to so many addresses of loopback, each from an address of its own.
pub(crate) fn routes(port: u16, count: u8) -> Vec<Route> {
    let route = |host| Route::to(SocketAddr::new(address(host), port)).from(address(100 + host));
    (1..=count).map(route).collect()
}

/// Two connected ends over so many routes.
pub(crate) async fn pair(count: u8, options: Options) -> Pair {
    let (listening, key) = listen(&anywhere(), options.clone());
    let port = listening.local_addresses()[0].port();
    let dialing = Endpoint::new().expect("there are threads");
    let tls = Arc::new(client(&Key::generate(), &key));
    let connecting = dialing.connect(routes(port, count), &tls, options);
    let (near, far) = tokio::join!(connecting, listening.accept());
    let (near, far) = (near.expect("it answers"), far.expect("it listens"));
    far.admit(Bytes::mib(64));
    Pair { dialing, listening, near, far }
}

/// Bytes that differ from place to place.
pub(crate) fn content(len: usize) -> Vec<u8> {
    (0..len as u64).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 13).to_le_bytes()[0]).collect()
}
