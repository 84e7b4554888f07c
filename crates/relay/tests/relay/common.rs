//! A relay on loopback, hosts that use it, and destinations.
#![allow(dead_code, reason = "each test uses a part of this")]

use events::Events;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::sync::Arc;

use net::CongestionControl;
use peer::carrier::Attempt;
use peer::host::{Hosting, Services, serve_at};
use peer::rights::RIGHTS;
use peer::{
    AuthorizedPeers, Credential, Identity, ListenOptions, May, Peer, Remote, Rights, RightsKey,
    Timetable, Token,
};
use relay::{Client, ClientOptions, RelayOptions, RelayRights, RelayService};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use units::Rate;
use wire::tunnel::Target;

/// A relay that serves.
pub(crate) struct Relay {
    pub(crate) key: Identity,
    pub(crate) address: SocketAddr,
    pub(crate) service: Arc<RelayService>,
    pub(crate) authorized: AuthorizedPeers,
    pub(crate) hosting: Hosting,
    attending: tokio::task::JoinHandle<()>,
}

impl Relay {
    pub(crate) async fn start(peers: Vec<Peer>) -> Relay {
        Relay::with(Identity::generate().unwrap(), 0, peers, None, (None, None)).await
    }

    /// One at which nobody waits.
    pub(crate) async fn without_guests(peers: Vec<Peer>) -> Relay {
        let key = Identity::generate().unwrap();
        Relay::made(key, 0, peers, None, (None, None, false)).await
    }

    pub(crate) async fn with(
        key: Identity,
        port: u16,
        peers: Vec<Peer>,
        token: Option<Token>,
        (max_rate, usage): (Option<Rate>, Option<&Path>),
    ) -> Relay {
        Relay::made(key, port, peers, token, (max_rate, usage, true)).await
    }

    async fn made(
        key: Identity,
        port: u16,
        peers: Vec<Peer>,
        token: Option<Token>,
        (max_rate, usage, takes_guests): (Option<Rate>, Option<&Path>, bool),
    ) -> Relay {
        let authorized = AuthorizedPeers::new(peers);
        let of_token =
            RelayRights { reach: "127.0.0.1:*".parse().unwrap(), ..RelayRights::default() };
        let service = RelayService::new(RelayOptions {
            authorized: authorized.clone(),
            of_token,
            max_rate: max_rate.map(Timetable::always),
            usage: usage.map(Path::to_path_buf),
            takes_guests,
            events: Events::new(),
        });
        let listener = loop {
            // A port that was just given up may still be busy for a moment.
            match TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await {
                Ok(listener) => break listener,
                Err(_) => tokio::task::yield_now().await,
            }
        };
        let address = listener.local_addr().unwrap();
        let options = ListenOptions {
            authorized: authorized.clone(),
            token,
            ..ListenOptions::new(key.clone())
        };
        let services = Services::new().with(&service);
        let hosting = serve_at(vec![Box::new(listener)], services, options, Events::new()).unwrap();
        let attended = Arc::clone(&service);
        let attending = tokio::spawn(async move { attended.attend().await });
        Relay { key, address, service, authorized, hosting, attending }
    }

    /// A host that uses it.
    pub(crate) fn client(&self, own: &Identity) -> Arc<Client> {
        let credential = Credential::Pinned(self.key.fingerprint());
        let dial = Remote::from(self.address);
        Client::start(ClientOptions::new(dial, credential, own.clone())).unwrap()
    }

    pub(crate) fn attempt(&self) -> Attempt {
        attempt(self.address)
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.attending.abort();
    }
}

pub(crate) fn attempt(remote: SocketAddr) -> Attempt {
    Attempt {
        device: None,
        local: IpAddr::V4(Ipv4Addr::LOCALHOST),
        remote,
        congestion_control: CongestionControl::Auto,
        small_segments: false,
    }
}

/// An entry of the list of authorized peers.
pub(crate) fn entry(own: &Identity, targets: &str, more: &[(&RightsKey, &str)]) -> Peer {
    let mut rights = Rights::from(May::Relay);
    rights.set(&relay::rights::RIGHTS[0], targets).unwrap();
    for (key, value) in more {
        rights.set(key, value).unwrap();
    }
    Peer { rights, ..Peer::from(own.fingerprint()) }
}

/// An entry that may reach loopback, no faster than a rate.
pub(crate) fn bounded(own: &Identity, rate: &str) -> Peer {
    entry(own, "127.0.0.1:*", &[(&RIGHTS[1], rate)])
}

pub(crate) fn identity() -> Identity {
    Identity::generate().unwrap()
}

/// A destination: its listener, and how it is named.
pub(crate) async fn destination() -> (TcpListener, Target) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
    let target = Target::from(listener.local_addr().unwrap());
    (listener, target)
}

/// Opens a connection, as the program has it, and accepts it at the destination.
pub(crate) async fn open(
    client: &Arc<Client>,
    relay: &Relay,
    (listener, target): (&TcpListener, &Target),
) -> (TcpStream, TcpStream) {
    let near = client.open(&relay.attempt(), target).await.unwrap();
    let near = near.into_tcp().expect("it is of TCP");
    let (far, _) = listener.accept().await.unwrap();
    (near, far)
}

/// Both sides say something.
pub(crate) async fn greet(near: &mut TcpStream, far: &mut TcpStream) {
    near.write_all(b"hello").await.unwrap();
    let mut heard = [0; 5];
    far.read_exact(&mut heard).await.unwrap();
    far.write_all(b"HELLO").await.unwrap();
    near.read_exact(&mut heard).await.unwrap();
    assert_eq!(&heard, b"HELLO");
}
