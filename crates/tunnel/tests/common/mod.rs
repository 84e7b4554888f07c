//! Both sides of a tunnel over loopback, in one process.
#![allow(dead_code, reason = "each test uses some of it")]

use std::net::{Ipv4Addr, SocketAddr};
use std::pin::Pin;
use std::time::Duration;

use events::{Event, EventId, Events, Numbered};
use peer::host::{Carriers, Host, Services};
use peer::tls::ClientTls;
use peer::{AuthorizedPeers, Identity, ListenOptions, Peer, Token};
use stripe::{Endpoint, Route};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tunnel::bounds::stripe_options;
use tunnel::rights::RIGHTS;
use tunnel::{Dialed, NearOptions, Place, TunnelError, Upkeep};
use tunnel::{TunnelRights, TunnelService};

/// A test that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a test that may wait.
pub(crate) fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let limited = async { tokio::time::timeout(PATIENCE, test).await };
    runtime.block_on(limited).expect("the test ends in time");
}

/// What one side has told.
#[derive(Clone, Default)]
pub(crate) struct Told(pub(crate) Events);

impl Told {
    fn all(&self) -> Vec<Numbered> {
        let since = self.0.since(EventId(0));
        assert!(since.is_complete, "a test tells little");
        since.events
    }

    /// Waits for an event.
    pub(crate) async fn until<T>(&self, mut find: impl FnMut(&Event) -> Option<T>) -> T {
        let mut more = self.0.subscribe();
        if let Some(found) = self.all().iter().find_map(|told| find(&told.event)) {
            return found;
        }
        loop {
            let told = more.recv().await.expect("this is one that could speak");
            if let Some(found) = find(&told) {
                return found;
            }
        }
    }

    /// Waits for a message with this text.
    pub(crate) async fn notice(&self, part: &str) -> String {
        let is = |event: &Event| match event {
            Event::Notice { text } | Event::Detail { text } if text.contains(part) => {
                Some(text.clone())
            }
            _ => None,
        };
        self.until(is).await
    }

    /// The number of messages with this text.
    pub(crate) fn count(&self, part: &str) -> usize {
        let has_it = |event: &Event| matches!(event, Event::Notice { text } if text.contains(part));
        let is = |told: &&Numbered| has_it(&told.event);
        self.all().iter().filter(is).count()
    }

    /// The address at which something listens.
    pub(crate) async fn address(&self, of: &str) -> SocketAddr {
        self.until(|event| match event {
            Event::Accepting { what, address } if what == of => {
                address.replace("localhost", "127.0.0.1").parse().ok()
            }
            _ => None,
        })
        .await
    }
}

/// Who is let in by the far side of a test.
#[derive(Default)]
pub(crate) struct FarOptions {
    pub(crate) authorized: AuthorizedPeers,
    pub(crate) token: Option<Token>,
    pub(crate) of_token: TunnelRights,
}

/// The far side of a test.
pub(crate) struct Far {
    host: Host,
    of_token: TunnelRights,
    pub(crate) key: Identity,
    pub(crate) told: Told,
}

impl Far {
    /// At a port; 0: a free one.
    pub(crate) fn at(port: u16, key: Identity, options: FarOptions) -> Far {
        Far::try_at(port, key, options).unwrap()
    }

    fn try_at(port: u16, key: Identity, options: FarOptions) -> Result<Far, peer::Error> {
        let FarOptions { authorized, token, of_token } = options;
        let told = Told::default();
        let listen = ListenOptions {
            addresses: vec![(Ipv4Addr::LOCALHOST, port).into()],
            token,
            authorized,
            ..ListenOptions::new(key.clone())
        };
        let host = Host::bind(listen, Carriers::Udp, &stripe_options(), told.0.clone())?;
        Ok(Far { host, of_token, key, told })
    }

    /// At a port that another one is about to leave.
    pub(crate) async fn soon_at(port: u16, key: Identity, options: impl Fn() -> FarOptions) -> Far {
        loop {
            if let Ok(far) = Far::try_at(port, key.clone(), options()) {
                return far;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.host.addresses()[0]
    }

    pub(crate) async fn serve(self) {
        let service = TunnelService::new(self.of_token, self.told.0.clone());
        let _hosting = self.host.serve(Services::new().with(&service)).unwrap();
        std::future::pending::<()>().await;
    }
}

/// A peer with these rights.
pub(crate) fn entry(key: &Identity, tunnel: &str, listen: &str) -> AuthorizedPeers {
    let mut peer = Peer::from(key.fingerprint());
    for (key, value) in RIGHTS.iter().zip([tunnel, listen]) {
        if !value.is_empty() {
            peer.rights.set(key, value).unwrap();
        }
    }
    AuthorizedPeers::new(vec![peer])
}

/// The endpoint of a test lasts longer than its connections.
struct Nothing;

impl Upkeep for Nothing {
    fn close(self: Box<Self>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
        Box::pin(std::future::ready(()))
    }
}

/// The near side, until it ends.
pub(crate) async fn near(
    key: &Identity,
    far: (SocketAddr, &Identity),
    options: NearOptions,
    told: &Told,
) -> Result<(), TunnelError> {
    let endpoint = Endpoint::new().unwrap();
    let tls = ClientTls::new(key, far.1.fingerprint()).unwrap();
    let dial = async || {
        let routes = vec![Route::to(far.0), Route::to(far.0)];
        let connected = endpoint.connect(routes, tls.config(), stripe_options()).await;
        let connection = connected.map_err(|error| peer::Error::NoPath {
            to: far.0.to_string(),
            why: error.to_string(),
        })?;
        Ok(Dialed { connection, keeper: Box::new(Nothing) })
    };
    tunnel::near::run(dial, options, told.0.clone(), std::future::pending()).await
}

/// A tunnel in which the peer has these rights, and what `test` does with the reports of both
/// sides.
pub(crate) async fn with_tunnel(
    (reach, listen): (&str, &str),
    options: NearOptions,
    test: impl AsyncFnOnce(&Told, &Told),
) {
    let own = Identity::generate().unwrap();
    let authorized = entry(&own, reach, listen);
    let far = Far::at(
        0,
        Identity::generate().unwrap(),
        FarOptions { authorized, ..FarOptions::default() },
    );
    let (address, far_key, far_told) = (far.address(), far.key.clone(), far.told.clone());
    let told = Told::default();
    tokio::select! {
        () = far.serve() => panic!("the far side ended"),
        ended = near(&own, (address, &far_key), options, &told) => panic!("{ended:?}"),
        () = async {
            told.notice("connected").await;
            test(&told, &far_told).await;
        } => {}
    }
}

/// Options of a near side with one SOCKS proxy at a free port.
pub(crate) fn socks() -> NearOptions {
    NearOptions { socks: vec![Place::Loopback(0)], ..NearOptions::default() }
}

/// A server's socket, and its port.
pub(crate) async fn target() -> (TcpListener, u16) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    (listener, port)
}

/// Asks a SOCKS proxy for a connection: the code of its reply, and the connection.
pub(crate) async fn through(proxy: SocketAddr, host: &str, port: u16) -> (u8, TcpStream) {
    let mut stream = TcpStream::connect(proxy).await.unwrap();
    let length = u8::try_from(host.len()).unwrap();
    let request = [&[5, 1, 0, 5, 1, 0, 3, length][..], host.as_bytes(), &port.to_be_bytes()];
    stream.write_all(&request.concat()).await.unwrap();
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer[..3], [5, 0, 5]);
    (answer[3], stream)
}
