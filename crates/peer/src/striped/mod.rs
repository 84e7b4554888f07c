//! Peers over striped UDP paths: one connection over all interfaces, in place of one TCP connection
//! over each.
//!
//! [`connect`] plans routes as paths over TCP are planned ([`plan`](crate::dial::plan)) and follows
//! the interfaces of this host and the addresses that the other host announces. [`UdpListener`]
//! takes connections of any key: the caller [admits](Admission::admit) those of welcome peers and
//! closes the others. The first stream that the listening side opens carries its announcement; all
//! other streams are the caller's.
//!
//! [`carrier`] makes such connections a carrier of sessions ([`crate::carrier`]): each stream is a
//! connection of a session.

mod announcement;
mod awaiting;
pub mod carrier;
mod connect;
mod dialed;
mod follow;
mod listen;
mod overflow;
mod past;
mod picking;
mod punching;
mod route;
mod service;
mod standings;
pub mod stream;
mod total_rate;

use stripe::{BackgroundStats, RouteChange, RouteState, RouteStats};

use events::{Background, PathState};

/// The state of a path after a change of its route, with the reason as a clause; `None` if people
/// know it in the same state.
#[must_use]
pub fn path_state(change: RouteChange) -> Option<(PathState, String)> {
    Some(match change {
        RouteChange::Opened | RouteChange::Back => (PathState::Active, String::new()),
        RouteChange::Silent => {
            (PathState::Stalled, "acknowledgements are overdue; its data goes elsewhere".into())
        }
        RouteChange::Failing { reason } => (PathState::Lost, reason),
        RouteChange::Narrow => (PathState::Dropped, format!("its line {NARROW}")),
        RouteChange::Removed => (PathState::Dropped, String::new()),
        RouteChange::Moved { .. } => return None,
    })
}

/// What has become of a route that nobody has heard of yet.
fn so_far(route: &RouteStats) -> Option<RouteChange> {
    match (route.state, &route.failure) {
        (RouteState::Open, _) => Some(RouteChange::Opened),
        (_, Some(reason)) => Some(RouteChange::Failing { reason: reason.clone() }),
        _ => None,
    }
}

/// What the controllers of connections in the background are.
const BACKGROUND: &str = "harp";

/// What a connection knows of the background, for people.
fn background(stats: BackgroundStats) -> Background {
    let BackgroundStats { is_backed_off, backed_off, best, queue } = stats;
    Background { is_backed_off, backed_off, best, queue }
}

/// What a line does whose MTU is below that of the least datagrams, and the remedy for sessions.
const NARROW: &str = "does not carry packets of 1,200 octets: it is too narrow for UDP, and \
                      --carrier tcp passes it";

pub use connect::{NotConnected, Striped, connect, connect_at, connect_over};
pub use dialed::{Dialed, Upkeep, is_final, tell_of_routes};
pub use listen::{Admission, Announcement, UdpListener};
pub use service::open_service;
pub use stripe::{Connection, Options};
pub use total_rate::{follow_timetable, total_rate};
