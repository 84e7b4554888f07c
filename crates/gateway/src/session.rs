//! The connection to a site's gateway: both sides announce their networks, the guest has the raw
//! datagrams, and marked packets are led into the device.

use std::time::Duration;

use peer::{Conn, ConnError, Peer};
use reach::Network;
use stripe::Connection;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use wire::closing::CloseCode;
use wire::gateway::{GatewayFrame, Networks};

use crate::device::LEAST_V6;
use crate::plane::{Salts, SiteId};
use crate::present::Present;
use crate::shared::Shared;

/// How long the peer may take to announce its networks.
const PATIENCE: Duration = Duration::from_secs(10);
/// The interval of looks at the room of the path.
const LOOK: Duration = Duration::from_millis(100);
/// Packets are led into the device once the room has been the same for this long: hosts keep the
/// segment size of their first packets for the life of a connection.
const SETTLED: Duration = Duration::from_millis(500);
/// Or after this.
const LONGEST_SETTLING: Duration = Duration::from_secs(5);

/// What a session begins with.
pub(crate) struct Opened {
    pub(crate) site: SiteId,
    pub(crate) connection: Connection,
    /// The stream of the hello.
    pub(crate) control: Conn,
    /// The entry of the peer among the authorized ones.
    pub(crate) peer: Peer,
    pub(crate) has_dialed: bool,
}

/// Why a session has ended.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SessionEnd {
    /// The connection is gone.
    #[error("{0}")]
    Connection(#[from] stripe::ConnectionError),
    /// The peer broke the protocol, or the control stream failed.
    #[error("{0}")]
    Control(#[from] ConnError),
    /// It said nothing in time.
    #[error("it has not announced its networks")]
    Silent,
    /// Both sides have dialed, and the other connection stays.
    #[error("another connection to it is in use")]
    Second,
    /// There are no random numbers.
    #[error("{0}")]
    System(#[from] peer::Error),
}

/// Serves a session to its end.
pub(crate) async fn run(shared: &Shared, opened: Opened) -> SessionEnd {
    match serve(shared, opened).await {
        Ok(never) => match never {},
        Err(end) => end,
    }
}

async fn serve(shared: &Shared, opened: Opened) -> Result<std::convert::Infallible, SessionEnd> {
    let Opened { site, connection, mut control, peer, has_dialed } = opened;
    let own_salt = peer::random()?;
    let mut changes = shared.networks.subscribe();
    let mut sites_changed = shared.sites_changed.subscribe();
    let own = changes.borrow_and_update().clone();
    announce(&mut control, own_salt, &own).await?;
    let mut theirs = tokio::select! {
        theirs = timeout(PATIENCE, receive(&mut control)) => {
            theirs.map_err(|_| SessionEnd::Silent)??
        }
        error = connection.ended() => return Err(error.into()),
    };
    let dialer = if has_dialed { shared.own } else { peer.fingerprint };
    if !shared.enter(site, Present { connection: connection.clone(), dialer }) {
        connection.close(CloseCode::Replaced.number());
        return Err(SessionEnd::Second);
    }
    let mut open = OpenSite { shared, site, connection: &connection, led: Vec::new() };
    let networks = shared.permitted(site, &peer, &theirs.networks);
    let (dialing, listening) =
        if has_dialed { (own_salt, theirs.salt) } else { (theirs.salt, own_salt) };
    let salts = Salts { dialing, listening };
    shared.plane.lock().open(site, connection.key(), networks.clone(), &salts);
    connection.entrust();
    shared.events.notice(format!("the gateway of {} is connected", peer.label()));
    let mut leading = Leading::new(networks);
    let mut look = interval(LOOK);
    look.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            error = connection.ended() => return Err(error.into()),
            _ = look.tick() => leading.look(&mut open),
            is_new = changes.changed() => {
                if is_new.is_ok() {
                    let own = changes.borrow_and_update().clone();
                    announce(&mut control, own_salt, &own).await?;
                }
            }
            again = receive(&mut control) => {
                theirs = again?;
                open.permit(&peer, &theirs, &mut leading);
            }
            // This side's file may have more of what it has announced, or less.
            _ = sites_changed.changed() => open.permit(&peer, &theirs, &mut leading),
        }
    }
}

async fn announce(
    control: &mut Conn,
    salt: [u8; wire::gateway::SALT],
    own: &[Network],
) -> Result<(), ConnError> {
    let networks = own.iter().map(|network| (network.address(), network.bits())).collect();
    control.push(&GatewayFrame::Networks(Networks { salt, networks }));
    control.flush().await
}

async fn receive(control: &mut Conn) -> Result<Networks, ConnError> {
    control
        .receive(|raw| match GatewayFrame::try_from(raw)? {
            GatewayFrame::Networks(networks) => Ok(networks),
            frame @ GatewayFrame::Session(_) => Err(ConnError::unexpected(&frame)),
        })
        .await
}

/// When marked packets are led into the device.
struct Leading {
    networks: Vec<Network>,
    /// The room for packets, and since when it is the same.
    room: Option<(usize, Instant)>,
    began: Instant,
    is_led: bool,
}

impl Leading {
    fn new(networks: Vec<Network>) -> Leading {
        Leading { networks, room: None, began: Instant::now(), is_led: false }
    }

    /// Looks at the room of the path.
    fn look(&mut self, open: &mut OpenSite<'_>) {
        let found = open.shared.plane.lock().room(open.site);
        let Some(found) = found else { return };
        match self.room {
            Some((room, since)) if room == found => {
                let is_settled = since.elapsed() >= SETTLED;
                if !self.is_led && (is_settled || self.began.elapsed() >= LONGEST_SETTLING) {
                    self.is_led = true;
                    self.lead(open);
                }
            }
            _ => {
                self.room = Some((found, Instant::now()));
                self.lead(open);
            }
        }
    }

    /// Leads packets to the site's networks into the device, and to no others.
    fn lead(&self, open: &mut OpenSite<'_>) {
        if self.is_led {
            open.shared.fit_device();
            open.lead(&self.networks);
        }
    }
}

/// A site that is open; dropped, its packets take the normal route.
struct OpenSite<'a> {
    shared: &'a Shared,
    site: SiteId,
    connection: &'a Connection,
    /// The networks whose packets are led into the device, or will be once it has IPv6.
    led: Vec<Network>,
}

impl OpenSite<'_> {
    /// The site may have other networks than before.
    fn permit(&mut self, peer: &Peer, announced: &Networks, leading: &mut Leading) {
        let networks = self.shared.permitted(self.site, peer, &announced.networks);
        if networks == leading.networks {
            return;
        }
        self.shared.plane.lock().set_site_networks(self.connection.key(), networks.clone());
        leading.networks = networks;
        leading.lead(self);
    }

    fn lead(&mut self, networks: &[Network]) {
        let device = &self.shared.device;
        for network in self.led.iter().filter(|network| !networks.contains(network)) {
            device.remove(network);
        }
        self.led.retain(|network| networks.contains(network));
        for network in networks {
            if self.led.contains(network) {
                continue;
            }
            match device.add(network) {
                Ok(carries) => {
                    self.led.push(*network);
                    if !carries {
                        self.shared.events.notice(format!(
                            "{network}: IPv6 needs packets of {LEAST_V6} octets, and the paths \
                             carry less: it takes the normal route until they do"
                        ));
                    }
                }
                Err(error) => self
                    .shared
                    .events
                    .notice(format!("no route to {network}: {error}; it takes the normal route")),
            }
        }
        let is_led = device.leads_any(&self.led);
        self.shared.plane.lock().set_led(self.connection.key(), is_led);
    }
}

impl Drop for OpenSite<'_> {
    fn drop(&mut self) {
        // A later session of the site has routes and a state of its own.
        if self.shared.leave(self.site, self.connection) {
            for network in &self.led {
                self.shared.device.remove(network);
            }
            self.shared.plane.lock().close(self.site);
        }
    }
}
