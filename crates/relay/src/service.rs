//! The service of a host that relays: who may have tickets, and what a ticket opens.

use std::convert::Infallible;
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use net::holder::{Holder, Transport};
use peer::host::{Asking, BARE, Entry, Service, SessionRequest};
use peer::listen::TokenRefusal;
use peer::metrics::{Counter, Registry, register_budget};
use peer::places::{Places, WorkPlace};
use peer::striped::follow_timetable;
use peer::{Conn, Error, Fingerprint, Peer, Timetable};
use reach::{For, dial};
use stripe::{Endpoint, Listening, UdpSocket};
use tokio::net::TcpStream;
use tokio::task::spawn_blocking;
use tokio::time::{interval, sleep, timeout};
use wire::meet::{Knock, Place};
use wire::relay::{Reason, SERVICE, Ticket};
use wire::session::SessionId;
use wire::tunnel::Code;

use crate::bounds::{
    DRAIN, GUEST_TIME, HALF_OPEN_EACH, HALF_OPEN_IN_ALL, HALF_OPEN_PATIENCE, NAMEPLATE_TIME,
    PATHS_EACH, PATHS_IN_ALL,
};
use crate::control;
use crate::datagrams::{DatagramFigures, Datagrams};
use crate::keys::KeyFigures;
use crate::labels::ASSOCIATIONS_IN_ALL;
use crate::meter::{Divider, PathMeter};
use crate::movers::Movers;
use crate::rights::RelayRights;
use crate::state::{Destination, Permit, RelayGrant, RelayOptions, RelayState};
use crate::told::Told;

/// The service that carries connections for peers of a host.
pub struct RelayService {
    state: Arc<RelayState>,
    half_open: Arc<Places>,
    paths: Arc<Places>,
    divider: Arc<Divider>,
    movers: Movers,
    unknown: Counter,
}

/// The time between counts against monthly caps.
const CHARGE_EVERY: Duration = Duration::from_secs(1);
impl RelayService {
    /// A relay that nobody uses yet.
    #[must_use]
    pub fn new(options: RelayOptions) -> Arc<RelayService> {
        let rate = options.max_rate.as_ref().and_then(Timetable::at_present);
        let state = Arc::new(RelayState::new(options));
        Arc::new(RelayService {
            divider: Divider::new(state.clock, rate),
            state,
            half_open: Places::new(HALF_OPEN_IN_ALL, HALF_OPEN_EACH),
            paths: Places::new(PATHS_IN_ALL, PATHS_EACH),
            movers: Movers::default(),
            unknown: Counter::default(),
        })
    }

    /// Opens the UDP side at these addresses; none: at that port of all.
    ///
    /// # Errors
    /// [`Error::System`] with the address that the kernel refused; there is no UDP side then, or
    /// only the one that there was.
    pub fn open_udp(&self, addresses: &[SocketAddr], port: u16) -> Result<(), Error> {
        let listening = match addresses {
            [] => Listening::everywhere(port),
            named => Listening { addresses: named.to_vec(), ..Listening::at(named[0]) },
        };
        let mut sockets = Vec::new();
        for address in listening.addresses {
            let socket = UdpSocket::listening(address, listening.both_families);
            sockets.push(socket.map_err(|source| {
                let source = Holder::explain(Transport::Udp, address, source);
                Error::System { action: format!("listen on {address} (UDP)"), source }
            })?);
        }
        self.begin_udp((sockets, true)).map(drop)
    }

    /// Opens the UDP side at the listening sockets of an endpoint, which passes on what is none of
    /// its own.
    ///
    /// # Errors
    /// [`Error::System`], if the system has no descriptors, threads or random numbers left.
    pub async fn open_udp_at(self: &Arc<Self>, endpoint: &Endpoint) -> Result<(), Error> {
        let failed = |source| Error::System { action: "relay over UDP".into(), source };
        let service = Arc::clone(self);
        let make = move |sockets| {
            let datagrams = service.begin_udp((sockets, false)).map_err(io::Error::other)?;
            Ok(datagrams.passing())
        };
        endpoint.pass_on(make).await.map_err(failed)
    }

    /// Begins the UDP side; a second one ends at once.
    fn begin_udp(&self, sockets: (Vec<UdpSocket>, bool)) -> Result<&Datagrams, Error> {
        let divider = (&self.divider, self.state.options.max_rate.is_some());
        let datagrams = Datagrams::start(sockets, self.state.clock, divider)?;
        Ok(self.state.datagrams.get_or_init(|| datagrams))
    }

    /// Divides the rate, which follows its timetable, among paths and counts against monthly caps,
    /// as long as it is polled: it never ends.
    pub async fn attend(&self) {
        let counting = async {
            let mut ticks = interval(CHARGE_EVERY);
            loop {
                ticks.tick().await;
                let keys = self.state.keys.clone();
                spawn_blocking(move || keys.charge()).await.expect("counting does not panic");
            }
        };
        let following = async {
            let Some(table) = &self.state.options.max_rate else { return pending().await };
            let tell = |text: &str| self.state.options.events.notice(text);
            follow_timetable(table, |rate| self.divider.set_rate(rate), tell).await;
        };
        tokio::select! {
            () = self.divider.run() => {}
            () = counting => {}
            () = following => {}
        }
    }

    /// What was done for each key.
    #[must_use]
    pub fn figures(&self) -> Vec<KeyFigures> {
        self.state.keys.figures()
    }

    /// Stops: issues no further tickets and tells the peers so, and waits until there are no paths,
    /// for 30 s at most. Whatever is left ends with the host.
    pub async fn drain(&self) {
        self.state.drain();
        let empty = async {
            while self.paths.count() > 0 {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        let _ = timeout(DRAIN, empty).await;
    }

    /// Carries the connection that showed a ticket. Nobody is told anything on it.
    async fn relay(&self, stream: TcpStream, ticket: Ticket) {
        let Err(stream) = self.state.meetings.take(&ticket, stream) else {
            // A guest waits for it.
            return;
        };
        let Some((_, permit)) = self.state.spend(&ticket) else {
            self.unknown.inc();
            return;
        };
        let key = permit.key.fingerprint();
        let ended = tokio::select! {
            // Rights are looked at before anybody is dialed.
            biased;
            () = self.state.options.authorized.changed(key, permit.known.as_ref()) => {
                Err(Reason::new(Code::Forbidden, "the rights of this host have changed there"))
            }
            why = until_over(&permit) => Err(Reason::new(Code::Forbidden, &why)),
            why = permit.key.until_used_up() => Err(Reason::new(Code::Forbidden, &why)),
            ended = self.connect(stream, key, &permit) => ended,
        };
        let how = match ended {
            Ok(how) => how,
            Err(reason) => {
                permit.key.refuse();
                let text = reason.text.clone();
                // A host that has gone, or reads nothing, is not waited for.
                let _ = permit.control.try_send(Told::Failed(ticket, reason));
                text
            }
        };
        let text = format!("{} to {}: {how}", permit.key.label(), permit.destination);
        self.state.options.events.detail(text);
    }

    /// Dials the destination, and moves bytes until the path ends. Returns how it ended.
    async fn connect(
        &self,
        stream: TcpStream,
        key: Fingerprint,
        permit: &Permit,
    ) -> Result<String, Reason> {
        let busy = |text| Reason::new(Code::Busy, text);
        let place = self.paths.try_take(key);
        let _path = place.ok_or_else(|| busy("the relay has as many paths as it takes"))?;
        let half_open = self.half_open(key).await?;
        let (dialed, guest) = match &permit.destination {
            Destination::Target(target) => {
                let lookups = self.state.lookups.of(*key.as_bytes());
                (dial(target, For::Peer(&permit.rights.reach), &lookups).await?, None)
            }
            Destination::Waiting(place) => {
                let guest = self.state.meetings.path(key)?;
                (self.state.meetings.call(place).await?, Some(guest))
            }
        };
        let is_guest = guest.is_some();
        let to = &permit.destination;
        let failed = |error: &io::Error| Reason::new(Code::Failed, &format!("{to}: {error}"));
        net::socket::tune(&dialed).map_err(|error| failed(&error))?;
        let _open = permit.key.open();
        let meters = [true, false].map(|is_up| {
            let meter = PathMeter::new(&permit.key, is_up);
            let meter = if is_guest { meter.of_guest() } else { meter };
            if self.state.options.max_rate.is_none() && permit.rights.max.is_none() {
                return meter;
            }
            meter.within(&self.divider, permit.rights.max)
        });
        let carried = self.movers.carry([stream, dialed], meters, self.state.clock, half_open);
        match carried.await {
            Ok(()) => Ok("ended".into()),
            Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                let text = format!("{to} has accepted, and says nothing");
                Err(Reason::new(Code::TimedOut, &text))
            }
            Err(error) => Ok(format!("reset: {error}")),
        }
    }

    /// Lets in whoever may use the relay.
    fn authorize_host(&self, asking: &Asking<'_>) -> Result<RelayGrant, String> {
        let (known, peer) = (asking.known.cloned(), asking.peer);
        let label = known.as_ref().map_or_else(|| peer.to_string(), Peer::label);
        let own = known.as_ref().map(RelayRights::of).filter(|own| !own.is_empty());
        if let Some(rights) = own {
            return Ok(RelayGrant { rights, known, label, guest: None });
        }
        match asking.holds_token() {
            Ok(()) => {
                let rights = self.state.options.of_token.clone();
                Ok(RelayGrant { rights, known, label, guest: None })
            }
            Err(TokenRefusal::Wrong) => {
                Err("the token is not the one that this relay printed; each start prints a new \
                     one"
                .into())
            }
            Err(TokenRefusal::Taken) => Err("the token is another host's".into()),
            Err(TokenRefusal::NotShown) => Err(format!(
                "the key {peer} may not use this relay: 'anabranch keys trust sender {peer} NAME \
                 --may relay', there, lets it"
            )),
        }
    }

    /// Lets in whoever knows where a host waits here.
    fn authorize_guest(&self, asking: &Asking<'_>) -> Result<RelayGrant, String> {
        if !self.state.options.takes_guests {
            return Err("this relay takes no guests: its owner has switched them off".into());
        }
        let knock = Knock::of_request(&asking.hello.request);
        let knock = knock.ok_or("that is no invitation of this version")?;
        if let Knock::Key(_) = knock {
            self.authorize_host(asking)?;
        }
        let (from, now) = (asking.from.ip(), self.state.clock.now());
        let guest = self.state.meetings.admit(knock, from, now)?;
        let label = format!("the guest {}", asking.peer);
        let (rights, known) = (RelayRights::default(), None);
        Ok(RelayGrant { rights, known, label, guest: Some(guest) })
    }

    /// A place for a connection whose destination has said nothing yet.
    async fn half_open(&self, key: Fingerprint) -> Result<WorkPlace, Reason> {
        let place = timeout(HALF_OPEN_PATIENCE, self.half_open.take(key)).await;
        place.map_err(|_| {
            Reason::new(Code::Busy, "too many connections of this host wait for an answer there")
        })
    }
}

/// Waits until a path of a guest has had its time, or its host's guests have had their bytes.
async fn until_over(permit: &Permit) -> String {
    let Destination::Waiting(place) = &permit.destination else { return pending().await };
    let time = match place {
        Place::Invited(_) | Place::Key(_) => GUEST_TIME,
        Place::Nameplate(_) => NAMEPLATE_TIME,
    };
    let used_up = async {
        loop {
            if let Some(why) = permit.key.guests_used_up() {
                return why;
            }
            sleep(CHARGE_EVERY).await;
        }
    };
    timeout(time, used_up).await.unwrap_or_else(|_| "a guest's path has had its time".into())
}

impl Service for RelayService {
    type Session = Infallible;
    type Grant = RelayGrant;

    fn name(&self) -> &'static str {
        SERVICE
    }

    fn does(&self) -> &'static str {
        "relays"
    }

    fn takes_bare(&self, first: u8) -> bool {
        Ticket::may_begin_with(first)
    }

    fn find(&self, _: SessionId, _: Fingerprint) -> Option<Infallible> {
        None
    }

    fn authorize(&self, asking: &Asking<'_>) -> Result<RelayGrant, String> {
        if asking.hello.service == SERVICE && !asking.hello.request.is_empty() {
            return self.authorize_guest(asking);
        }
        self.authorize_host(asking)
    }

    fn register(&self, registry: &mut Registry) {
        self.state.keys.register(registry);
        let help = "Data connections whose ticket was not issued, had lapsed or was shown before";
        registry.register("unknown_tickets", help, self.unknown.clone());
        if let Some(datagrams) = self.state.datagrams.get() {
            let DatagramFigures { unknown, dropped } = datagrams.figures();
            let help = "Datagrams whose label is not known, or whose source is not bound";
            registry.register("unknown_datagrams", help, unknown);
            let help = "Datagrams for which there was no room";
            registry.register("dropped_datagrams", help, dropped);
            let state = Arc::clone(&self.state);
            let count = move || state.datagrams.get().map_or(0, Datagrams::count) as u64;
            let (what, most) = ("Associations over UDP in all", ASSOCIATIONS_IN_ALL as u64);
            register_budget(registry, "associations", what, None, most, count);
        }
        for (name, what, places) in [
            ("path_places", "Paths in all", &self.paths),
            ("half_open", "Paths whose destination has said nothing yet", &self.half_open),
            ("guests", "Control connections of guests in all", &self.state.meetings.guests),
            ("guest_paths", "Paths of guests in all", &self.state.meetings.paths),
        ] {
            let (most, places) = (places.most() as u64, Arc::clone(places));
            register_budget(registry, name, what, None, most, move || places.count() as u64);
        }
    }

    async fn serve(self: Arc<Self>, conn: Conn, entry: Entry<Self>, _: SocketAddr) {
        let request = match entry {
            Entry::Join(session) => match session {},
            Entry::Open(request) => request,
        };
        let SessionRequest { grant, peer, opening, .. } = request;
        // No other connection joins: nobody waits for a session.
        drop(opening);
        control::serve(&self.state, conn, peer, grant).await;
    }

    async fn serve_bare(self: Arc<Self>, stream: TcpStream, begin: [u8; BARE], _: SocketAddr) {
        if let Some(ticket) = Ticket::of_octets(begin) {
            self.relay(stream, ticket).await;
        }
    }
}
