//! The service of a host: it lets sites' gateways in, and dials those whose addresses are known.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Place;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use events::Events;
use harp::Scale;
use peer::dial::Terms;
use peer::host::{Asking, Entry, Service, SessionRequest};
use peer::metrics::{
    Registry, Unit, register_budget, register_counter_of_peers, register_gauge_of_peers,
};
use peer::striped::{connect_at, open_service};
use peer::{
    AuthorizedPeers, Conn, Credential, DialOptions, Error, Fingerprint, Identity, Peer,
    RelayOptions, RelaySpec, Remote,
};
use stripe::Endpoint;
use sys::conntrack::Conntrack;
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use units::{Bytes, Span};
use wire::closing::CloseCode;
use wire::gateway::SERVICE;
use wire::session::{Hello, SessionId};

use crate::config::{Background, Fail, GatewayConfig, SiteConfig};
use crate::device::Device;
use crate::figures::SiteFigures;
use crate::guest::{GatewayGuest, SharedPlane};
use crate::plane::{AskScales, MOST_WAITING, Plane, SiteId};
use crate::programs;
use crate::rights::GatewayRights;
use crate::rules;
use crate::session::{Opened, run};
use crate::shared::{FindRelays, Shared};

/// The pause before the first attempt to connect again; it doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// The longest pause between attempts.
const LONGEST_PAUSE: Duration = Duration::from_secs(10);
/// A session that lasted so long makes the next pause short again.
const LASTED: Duration = Duration::from_secs(30);
/// How long the peer may take to let this host in.
const PATIENCE: Duration = Duration::from_secs(10);
/// The side that dialed asks for a sign of life after so much silence.
const KEEP_ALIVE: Span = Span::from_secs(3);
/// A connection without any ends after this.
const IDLE: Span = Span::from_secs(10);
/// What streams of a peer may fill: the control stream alone carries anything.
const RECEIVE_BUFFER: Bytes = Bytes::kib(256);

/// The options of the striped connections between gateways: raw datagrams carry everything, and
/// streams next to nothing.
#[must_use]
pub fn stripe_options() -> stripe::Options {
    let mut options = stripe::Options { keep_alive: Some(KEEP_ALIVE), ..Default::default() };
    options.config.idle_timeout = Some(IDLE);
    options
}

/// What a gateway begins with.
pub struct GatewayOptions {
    /// Its file.
    pub config: GatewayConfig,
    /// Its key.
    pub identity: Identity,
    /// The peers that are authorized.
    pub authorized: AuthorizedPeers,
    /// The endpoint of the host's port.
    pub endpoint: Arc<Endpoint>,
    /// What is told.
    pub events: Events,
    /// What opens paths over relays.
    pub relays: FindRelays,
}

/// The gateways of sites, as a service of a host.
pub struct GatewayService(Arc<Shared>);

impl GatewayService {
    /// Makes the device, and moves into the endpoint's thread. `Self::attend` dials.
    ///
    /// # Errors
    /// [`Error::System`] if the device cannot be made.
    pub async fn start(options: GatewayOptions) -> Result<Arc<GatewayService>, Error> {
        let GatewayOptions { config, identity, authorized, endpoint, events, relays } = options;
        let GatewayConfig { device, table, mark, fail, networks, sites, background, .. } = config;
        let (device, tun) = Device::create(&device, table)?;
        for text in device.prepare() {
            events.notice(text);
        }
        let plane = Plane::new(networks.clone(), kernel_scales());
        let plane = SharedPlane::new(plane.closed(fail == Fail::Closed));
        let guest = GatewayGuest::new(tun, plane.clone());
        let action = "wait for the device".to_string();
        let attached = endpoint.attach(Box::new(guest)).await;
        attached.map_err(|source| Error::System { action, source })?;
        let shared = Shared {
            plane,
            device,
            networks: watch::Sender::new(networks),
            mark,
            background: watch::Sender::new(background),
            events,
            own: identity.fingerprint(),
            identity,
            endpoint,
            sites: Mutex::default(),
            sites_changed: watch::Sender::new(0),
            find_relays: relays,
            authorized,
            present: Mutex::default(),
            left: Notify::new(),
        };
        shared.update_sites(sites);
        Ok(Arc::new(GatewayService(Arc::new(shared))))
    }

    /// Dials the sites whose gateways have addresses, and keeps the rules of programs as their
    /// cgroups are, for ever.
    pub async fn attend(&self) -> Infallible {
        let Shared { mark, background, events, .. } = &*self.0;
        let refilled = |background: &[Background]| rules::refilled(*mark, background);
        let following = programs::follow(background.subscribe(), refilled, events);
        tokio::select! {
            never = self.dial_sites() => never,
            never = following => never,
        }
    }

    async fn dial_sites(&self) -> Infallible {
        let mut changes = self.0.sites_changed.subscribe();
        let (mut dialing, mut dialed) = (JoinSet::new(), BTreeMap::new());
        loop {
            changes.borrow_and_update();
            let wanted = self.0.dialed();
            dialed.retain(|site, how| wanted.get(site) == Some(how));
            for (site, how) in wanted {
                if let Place::Vacant(place) = dialed.entry(site) {
                    place.insert(how.clone());
                    dialing.spawn(keep_dialing(Arc::clone(&self.0), site, how));
                }
            }
            // This holds the sender.
            let _ = changes.changed().await;
            while dialing.try_join_next().is_some() {}
        }
    }

    /// Takes over what has changed in the file, without a word to the hosts: sites come and go, and
    /// networks of this side and of sites change.
    pub fn reload(&self, config: &GatewayConfig) {
        let shared = &self.0;
        shared.update_sites(config.sites.clone());
        shared.plane.lock().set_networks(config.networks.clone());
        shared.networks.send_replace(config.networks.clone());
        shared.background.send_replace(config.background.clone());
    }

    /// What is known of each site.
    #[must_use]
    pub fn figures(&self) -> Vec<SiteFigures> {
        self.0.figures()
    }
}

impl Shared {
    fn figures(&self) -> Vec<SiteFigures> {
        let sites: Vec<SiteId> = self
            .sites
            .lock()
            .expect("no panic while held")
            .present()
            .map(|(site, _)| site)
            .collect();
        let plane = self.plane.lock();
        let mut all: Vec<(SiteId, SiteFigures)> =
            sites.into_iter().filter_map(|site| Some((site, plane.figures(site)?))).collect();
        drop(plane);
        let present = self.present.lock().expect("no panic while held");
        for (site, figures) in &mut all {
            if let Some(Some(present)) = present.get(site.0) {
                figures.add_routes(&present.connection);
            }
        }
        all.into_iter().map(|(_, figures)| figures).collect()
    }

    /// The sites that are dialed.
    fn dialed(&self) -> BTreeMap<SiteId, Dialed> {
        let sites = self.sites.lock().expect("no panic while held");
        let of = |(site, config): (SiteId, &SiteConfig)| {
            let SiteConfig { name, at, relays, .. } = config.clone();
            Some((site, Dialed { name, at: at?, relays, ends: sites.ends(site) }))
        };
        sites.present().filter_map(of).collect()
    }

    async fn dial(
        &self,
        site: SiteId,
        Dialed { name, at, .. }: &Dialed,
        relays: &[RelayOptions],
    ) -> Result<Opened, Error> {
        let peer = self.peer_of(name)?;
        let credential = Credential::Pinned(peer.fingerprint);
        let options = DialOptions {
            relays: relays.to_vec(),
            // Of more than there are numbers, those that carry most.
            use_paths: (!relays.is_empty()).then_some(wire::harp::MOST_PATHS),
            ..DialOptions::new(self.identity.clone())
        };
        let terms = Terms::new(vec![(at.clone(), credential)], options)?.over_relays()?;
        let striped = connect_at(
            Arc::clone(&self.endpoint),
            &terms,
            stripe_options(),
            // Its paths are no news: the site is.
            Events::new(),
        )
        .await?;
        let connection = striped.connection().clone();
        connection.admit(RECEIVE_BUFFER);
        let hello = Hello::new(SERVICE, None, peer::random()?);
        let remedy = "'anabranch gateway' there would let it";
        let control = open_service(&connection, hello, PATIENCE, remedy).await?;
        // What keeps its routes lasts as long as the connection.
        let kept = connection.clone();
        tokio::spawn(async move {
            let _ = kept.ended().await;
            drop(striped);
        });
        Ok(Opened { site, connection, control, peer, has_dialed: true })
    }
}

/// How a site is dialed.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Dialed {
    name: String,
    at: Remote,
    relays: Vec<RelaySpec>,
    /// As [`Sites::ends`](crate::sites::Sites::ends).
    ends: u64,
}

/// Dials a site again and again while it has no session, as long as the file has it so.
async fn keep_dialing(shared: Arc<Shared>, site: SiteId, how: Dialed) {
    let mut pause = FIRST_PAUSE;
    let mut told = String::new();
    let mut relays = None;
    loop {
        let is_wanted = || shared.dialed().get(&site) == Some(&how);
        let is_present = || {
            let present = shared.present.lock().expect("no panic while held");
            present[site.0].as_ref().is_some_and(|present| !present.connection.has_ended())
        };
        while is_present() {
            tokio::select! {
                () = shared.left.notified() => {}
                () = sleep(FIRST_PAUSE) => {}
            }
        }
        if !is_wanted() {
            return;
        }
        let began = Instant::now();
        // Each keeps a connection to its relay.
        let found = match relays.take() {
            Some(known) => Ok(known),
            None => (shared.find_relays)(&how.relays),
        };
        let opened = match &found {
            Ok(over) => shared.dial(site, &how, over).await.map_err(|error| error.to_string()),
            Err(error) => Err(error.to_string()),
        };
        relays = found.ok();
        if !is_wanted() {
            if let Ok(opened) = opened {
                opened.connection.close(CloseCode::Stopped.number());
            }
            return;
        }
        let why = match opened {
            Ok(opened) => {
                told.clear();
                run(&shared, opened).await.to_string()
            }
            Err(why) => why,
        };
        if began.elapsed() > LASTED {
            pause = FIRST_PAUSE;
        }
        if !is_wanted() {
            return;
        }
        if told != why {
            let name = &how.name;
            shared.events.notice(format!(
                "no connection to the gateway of {name}: {why}; it is dialed again and again"
            ));
            told = why;
        }
        sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// What the kernel knows of window scales.
fn kernel_scales() -> AskScales {
    let mut conntrack = Conntrack::open().ok();
    Box::new(move |near, far| {
        let scales = conntrack.as_mut()?.scales(near, far);
        let scales = scales.inspect_err(|error| tracing::debug!(%error, "no scales")).ok()??;
        let known = |shift: Option<u8>| shift.map_or(Scale::Absent, Scale::Shift);
        Some([known(scales.near), known(scales.far)])
    })
}

impl Service for GatewayService {
    type Session = Infallible;
    type Grant = (SiteId, Peer);

    fn name(&self) -> &'static str {
        SERVICE
    }

    fn does(&self) -> &'static str {
        "is the gateway of a site"
    }

    fn takes_whole(&self) -> bool {
        true
    }

    fn find(&self, _: SessionId, _: Fingerprint) -> Option<Infallible> {
        None
    }

    fn authorize(&self, asking: &Asking<'_>) -> Result<(SiteId, Peer), String> {
        let peer = asking.peer;
        let known = asking.known.filter(|known| !GatewayRights::of(known).is_empty());
        let Some(known) = known else {
            return Err(format!(
                "the key {peer} is no gateway's here: 'anabranch keys trust sender {peer} NAME \
                 --gateway NETWORKS', there, makes it one"
            ));
        };
        let Some(site) = self.0.site_of(known) else {
            let name = known.label();
            return Err(format!("the gateway there has no [[site]] of the name '{name}'"));
        };
        Ok((site, known.clone()))
    }

    fn register(&self, registry: &mut Registry) {
        let gauges: [Gauge; 9] = [
            ("connected", "Whether the site's gateway answers", |site| site.is_answering.into()),
            ("flows", "TCP connections with the site", |site| site.flows as u64),
            ("governed_flows", "Those whose windows are told", |site| site.governed as u64),
            ("window_bytes", "What may be in flight to the site", |site| {
                site.paths.iter().map(|path| path.window).sum()
            }),
            ("in_flight_bytes", "What is in flight to the site", |site| {
                site.paths.iter().map(|path| path.in_flight).sum()
            }),
            ("round_trip_microseconds", "The shortest smoothed round-trip time", |site| {
                let times = site.paths.iter().filter_map(|path| path.round_trip);
                times.min().map_or(0, Span::as_micros)
            }),
            ("queue_microseconds", "The longest queue that packets from the site meet", |site| {
                site.queues.iter().map(|queue| queue.latest.as_micros()).max().unwrap_or(0)
            }),
            ("paths", "Paths to the site", |site| site.paths.len() as u64),
            ("choked_paths", "Those that only probes go over", |site| {
                site.paths.iter().filter(|path| path.is_choked).count() as u64
            }),
        ];
        let (what, most) = ("Memory of packets that wait", MOST_WAITING as u64);
        let shared = Arc::downgrade(&self.0);
        register_budget(registry, "waiting", what, Some(Unit::Bytes), most, move || {
            shared.upgrade().map_or(0, |shared| shared.plane.lock().waiting() as u64)
        });
        for (name, help, value) in gauges {
            let shared = Arc::downgrade(&self.0);
            register_gauge_of_peers(registry, name, help, move || {
                let sites = shared.upgrade().map(|shared| shared.figures());
                let rows = sites.into_iter().flatten();
                rows.map(|site| (site.name.clone(), "", value(&site))).collect()
            });
        }
        for (name, help) in COUNTERS {
            let shared = Arc::downgrade(&self.0);
            register_counter_of_peers(registry, name, help, None, move || {
                let sites = shared.upgrade().map(|shared| shared.figures());
                let value = |site: &SiteFigures| {
                    let found = site.counters().into_iter().find(|(own, _)| *own == name);
                    found.map_or(0, |(_, value)| value)
                };
                let rows = sites.into_iter().flatten();
                rows.map(|site| (site.name.clone(), "", value(&site))).collect()
            });
        }
    }

    async fn serve(self: Arc<Self>, conn: Conn, entry: Entry<Self>, _: SocketAddr) {
        let request = match entry {
            Entry::Join(session) => match session {},
            Entry::Open(request) => request,
        };
        let SessionRequest { grant: (site, peer), whole, .. } = request;
        let connection = whole.expect("the service takes whole connections");
        let name = peer.label();
        let opened = Opened { site, connection, control: conn, peer, has_dialed: false };
        let why = run(&self.0, opened).await;
        self.0.events.notice(format!("the gateway of {name} has left: {why}"));
    }
}

/// A figure of a site: its name, what it is, and its value.
type Gauge = (&'static str, &'static str, fn(&SiteFigures) -> u64);

/// The counters of sites, and what they count.
const COUNTERS: [(&str, &str); 10] = [
    ("sent_packets", "Packets to the site"),
    ("sent_octets", "Octets of packets to the site"),
    ("received_packets", "Packets from the site"),
    ("received_octets", "Octets of packets from the site"),
    ("normal_packets", "Packets that took the route without gateways"),
    ("edited_windows", "Windows that were made smaller"),
    ("foreign_packets", "Packets of addresses that are not the site's, or not of this side"),
    ("malformed_packets", "Packets from the site that are no whole TCP segments"),
    ("unheld_packets", "Packets that were dropped because too many waited"),
    ("marked_packets", "Marked packets of hosts that know no marks"),
];
