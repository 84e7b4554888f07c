//! A collector on loopback, and what sources say to it.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use events::Events;
use feed::{CollectOptions, CollectService, Form, Store, StreamId, bounds};
use peer::conn::Conn;
use peer::dial::{Connector, Keeper, PlanKind, Terms};
use peer::host::{Hosting, Services, serve_at};
use peer::{
    AuthorizedPeers, Credential, DialOptions, Identity, ListenOptions, May, Peer, Remote, Rights,
};
use tokio::net::TcpListener;
use wire::Emit;
use wire::feed::{FeedFrame, MAX_RECORD, Offer, Records, SERVICE, push_record};
use wire::session::{Hello, SessionFrame};

/// A collector on loopback.
pub(crate) struct Collector {
    key: Identity,
    address: SocketAddr,
    hosting: Hosting,
}

impl Collector {
    pub(crate) async fn start(folder: &Path, peers: Vec<Peer>) -> Collector {
        let key = Identity::generate().unwrap();
        let store = Store::open(folder, bounds::FILE).unwrap();
        let service = CollectService::new(CollectOptions { store, events: Events::new() });
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let options = ListenOptions {
            authorized: AuthorizedPeers::new(peers),
            ..ListenOptions::new(key.clone())
        };
        let services = Services::new().with(&service);
        let hosting = serve_at(vec![Box::new(listener)], services, options, Events::new()).unwrap();
        Collector { key, address, hosting }
    }

    /// A figure of the collector.
    pub(crate) fn figure(&self, name: &str) -> u64 {
        let text = peer::metrics::text(&self.hosting.metrics());
        let row = text.lines().find_map(|line| line.strip_prefix(&format!("anabranch_{name} ")));
        row.expect("there is such a figure").parse().expect("a number")
    }

    /// A connection over TCP that has said hello, and offers a stream.
    pub(crate) async fn meet(&self, own: &Identity, offer: Offer) -> Conn {
        let mut conn = self.greet(own).await;
        conn.push(&FeedFrame::Offer(offer));
        conn.flush().await.unwrap();
        conn
    }

    /// A connection over TCP that has said hello.
    pub(crate) async fn greet(&self, own: &Identity) -> Conn {
        let credential = Credential::Pinned(self.key.fingerprint());
        let to = vec![(Remote::from(self.address), credential)];
        let terms = Terms::new(to, DialOptions::new(own.clone())).unwrap();
        let keeper = Keeper::plan(&terms, &[PlanKind::Tcp], Events::new()).await.unwrap();
        let connector = Connector::new(&terms, 0, terms.tls().unwrap().swap_remove(0));
        let plan = keeper.plans().remove(0);
        let mut conn = connector.open(&plan, Some(2), |_| {}).await.unwrap().conn;
        conn.push(&SessionFrame::Hello(Hello::new(SERVICE, None, [1; 16])));
        conn
    }
}

pub(crate) fn entry(own: &Identity, name: &str, may: May) -> Peer {
    Peer { name: name.into(), rights: Rights::from(may), ..Peer::from(own.fingerprint()) }
}

pub(crate) fn offer(stream: u8) -> Offer {
    let (feed, label) = ("logs".to_string(), "a test".to_string());
    Offer { stream: StreamId([stream; 16]), first: 0, elsewhere: 0, form: Form::Lines, feed, label }
}

/// A frame with one record, as long as one may be.
pub(crate) fn long_frame(number: u64) -> Vec<u8> {
    let (mut body, mut frame) = (Vec::new(), Vec::new());
    push_record(&mut body, &vec![b'x'; MAX_RECORD]);
    FeedFrame::Records(Records::of(number, &body).unwrap()).emit(&mut frame);
    frame
}
