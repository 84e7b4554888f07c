//! What the caller may choose: policies and limits of connections, and their routes.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex};

use policy::cc::Controller;
use policy::named::NameError;
use policy::sched::packet::PacketScheduler;
use policy::{cc, sched};
use ptcp::{Class, Config};
use units::{Bytes, PathId, Rate, Span, SubflowId};

use crate::{Lead, Qlog, Sites, TotalRate};

/// The controller of connections that name none: fair beside others, and robust on lossy lines.
pub const CONTROLLER: &str = "coupled-bbr";
/// The packet scheduler of connections that name none.
pub const SCHEDULER: &str = "lowest-rtt";

/// What a connection does at this end; the peer is told what it has to know.
///
/// ```
/// use policy::cc::{Reno, Uncoupled};
/// use policy::sched::packet::lowest_rtt::LowestRtt;
/// use stripe::Options;
///
/// let background = Options::named("ledbat++", "lowest-rtt").expect("both are known");
/// assert_eq!(background.controller.copy().name(), "ledbat++");
/// let unknown = Options::named("cubik", "lowest-rtt").unwrap_err();
/// assert!(unknown.to_string().contains("cubic"));
/// // Or a controller and a scheduler of the program's own:
/// let own = Options::of(Box::new(Uncoupled::new(Reno::default())), Box::new(LowestRtt));
/// assert_eq!(own.controller.copy().name(), "reno");
/// ```
#[derive(Clone, Debug)]
pub struct Options {
    /// The congestion controller of all paths together, of connections that are not in the
    /// [background](Config::effort).
    pub controller: Prototype<dyn Controller>,
    /// The choice of a path for each packet.
    pub scheduler: Prototype<dyn PacketScheduler>,
    /// The controllers of connections in the background, one for each peer.
    pub sites: Sites,
    /// Limits and timeouts, and whether connections are in the background. `holds_bytes` is set by
    /// the driver.
    pub config: Config,
    /// The receive buffer before [`Connection::admit`](crate::Connection::admit), on the side that
    /// listens. What nobody reads is granted to other streams once, so that a peer can make this
    /// side hold twice as much.
    pub buffer_before_admission: Bytes,
    /// How long the side that dialed is silent over a route before it asks for a sign of life over
    /// it, which keeps idle connections and what translators on their way know of their routes;
    /// `None`: for ever. The side that listens asks too, for about as long after the peer's latest
    /// data.
    pub keep_alive: Option<Span>,
    /// Bytes written into a stream and not sent, above which a writer waits. More than eight
    /// streams have less each, and at least 16 KiB.
    pub unsent: Bytes,
    /// A bound of what all connections with a copy of it send together.
    pub max_rate: Option<TotalRate>,
    /// Where each connection's log goes; `None`: there is none.
    pub qlog: Option<Qlog>,
}

impl Options {
    /// The defaults with a controller and a scheduler by their names, with parameters in brackets.
    ///
    /// # Errors
    /// If a name is unknown; the text lists those that are known.
    pub fn named(controller: &str, scheduler: &str) -> Result<Options, NameError> {
        Ok(Options::of(cc::by_name(controller)?, sched::packet::by_name(scheduler)?))
    }

    /// The defaults with this controller and this scheduler, of which each connection gets a copy.
    #[must_use]
    pub fn of(controller: Box<dyn Controller>, scheduler: Box<dyn PacketScheduler>) -> Options {
        // What falls less at a mark than others do has queues of its own (RFC 9331).
        let is_scalable = controller.is_scalable();
        let (controller, scheduler) = (Prototype::new(controller), Prototype::new(scheduler));
        let config = Config { holds_bytes: true, ecn: true, is_scalable, ..Config::default() };
        let (buffer_before_admission, unsent) = (Bytes::kib(64), Bytes::kib(512));
        let keep_alive = Some(Span::from_secs(15));
        Options {
            controller,
            scheduler,
            sites: Sites::default(),
            config,
            buffer_before_admission,
            keep_alive,
            unsent,
            max_rate: None,
            qlog: None,
        }
    }
}

impl Default for Options {
    fn default() -> Options {
        Options::named(CONTROLLER, SCHEDULER).expect("both are known")
    }
}

/// A policy of which each connection gets a copy.
#[derive(Debug)]
pub struct Prototype<T: ?Sized>(Arc<Mutex<Box<T>>>);

impl<T: ?Sized> Prototype<T>
where
    Box<T>: Clone,
{
    /// Copies of this policy.
    #[must_use]
    pub fn new(policy: Box<T>) -> Prototype<T> {
        Prototype(Arc::new(Mutex::new(policy)))
    }

    /// A copy.
    ///
    /// # Panics
    /// If copying it did before.
    #[must_use]
    pub fn copy(&self) -> Box<T> {
        self.0.lock().expect("no panic while held").clone()
    }
}

impl<T: ?Sized> Clone for Prototype<T> {
    fn clone(&self) -> Prototype<T> {
        Prototype(Arc::clone(&self.0))
    }
}

/// The number of a route in its connection, in the order of being given or accepted. It is never
/// given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RouteId(pub u32);

impl fmt::Display for RouteId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "route {}", self.0)
    }
}

/// What a path of a connection is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathStanding {
    /// Its number, which both sides have.
    pub path: SubflowId,
    /// Its class.
    pub class: Class,
    /// The most that may be sent over it; `None`: it is not bounded.
    pub rate: Option<Rate>,
    /// Whether it is in the background, also where its connection is not.
    pub is_background: bool,
}

/// One way to the peer: a local device or address, and one of the peer's addresses.
///
/// ```
/// use std::net::SocketAddr;
///
/// use stripe::{Class, Route};
/// use units::Rate;
///
/// let remote = SocketAddr::from(([192, 0, 2, 7], 7_707));
/// let routes = [
///     // Two subflows: with a controller such as `reno` or `cubic`, the shares of two flows.
///     Route::to(remote).over("eth0").with_weight(2),
///     Route { max_rate: Some(Rate::mbit(20)), ..Route::to(remote).over("wlan0") },
///     // It costs money: data goes over it while no other route carries any.
///     Route { class: Class::Reserve, ..Route::to(remote).over("wwan0") },
/// ];
/// assert_eq!(routes.map(|route| route.weight), [2, 1, 1]);
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// The number of the path that it belongs to, by the caller's count: events and counters have
    /// it. Routes between other addresses may belong to the same path.
    pub path: PathId,
    /// Its name for people: the interface, say.
    pub name: String,
    /// The device to bind to; `None`: any.
    pub device: Option<String>,
    /// The local address to bind to; `None`: the system's choice.
    pub local: Option<IpAddr>,
    /// The peer's address.
    pub remote: SocketAddr,
    /// Whether it carries data only while no usual route does.
    pub class: Class,
    /// Whether it is in the background, also where its connection is not: it has what nobody else
    /// there asks for, while other routes carry as usual.
    pub is_background: bool,
    /// An upper bound of the data sent over it, without headers.
    pub max_rate: Option<Rate>,
    /// How many subflows it has (the paper's weight), at least one.
    pub weight: u16,
    /// What it says to the relay that it leads over, whose address is `remote`; `None`: it leads
    /// over none.
    pub lead: Option<Lead>,
}

impl Route {
    /// A route to an address by the system's choice of a device.
    #[must_use]
    pub fn to(remote: SocketAddr) -> Route {
        Route {
            path: PathId(0),
            name: remote.ip().to_string(),
            device: None,
            local: None,
            remote,
            class: Class::Usual,
            is_background: false,
            max_rate: None,
            weight: 1,
            lead: None,
        }
    }

    /// The same from a local address.
    #[must_use]
    pub fn from(self, local: IpAddr) -> Route {
        Route { local: Some(local), ..self }
    }

    /// The same over a device.
    #[must_use]
    pub fn over(self, device: &str) -> Route {
        Route { name: device.to_string(), device: Some(device.to_string()), ..self }
    }

    /// The same with so many subflows.
    #[must_use]
    pub fn with_weight(self, weight: u16) -> Route {
        Route { weight: weight.max(1), ..self }
    }
}

/// How long a handshake over one route is waited for before a further one is tried as well (RFC
/// 8305, section 5: the delay of connection attempts).
pub(crate) const NEXT_ROUTE: Span = Span::from_millis(250);

#[cfg(test)]
mod tests {
    use super::*;

    /// What halves at a mark would starve in a queue that is for others, and starve others in one
    /// that is for itself.
    #[test]
    fn only_scalable_controllers_have_ect_1() {
        for (name, is_scalable) in
            [("prague", true), ("dctcp", true), ("cubic", false), ("coupled-bbr", false)]
        {
            let options = Options::named(name, SCHEDULER).expect("both are known");
            assert_eq!(options.config.is_scalable, is_scalable, "{name}");
        }
    }
}
