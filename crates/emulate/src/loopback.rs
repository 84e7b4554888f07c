//! Links between sockets on loopback, without privilege.

mod links;
mod tcp;
mod udp;

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};

use link::config::{Carry, Direction, LinkSpec, Network};
use link::{Aqm, Loss, Profile};
use sys::poll::Waker;
use thiserror::Error;
use units::{Bytes, Span};

use crate::driver::Control;
use crate::report::Report;

/// The protocol of the sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Protocol {
    /// Connections, shaped by rate, delay and a bounded backlog. A blackout is a standstill.
    Tcp,
    /// Datagrams, with everything that a link can do to them.
    Udp,
}

/// Emulated links in front of one address: the link number i listens on 127.77.0.i, with the port
/// of that address, and forwards what arrives there through the link. It runs on a thread of its
/// own. Dropping it ends it, with all connections.
#[derive(Debug)]
pub struct Loopback {
    addresses: Vec<SocketAddr>,
    control: Arc<Control>,
    thread: Option<JoinHandle<io::Result<Report>>>,
}

/// Why links on loopback could not be started or run.
#[derive(Debug, Error)]
pub enum LoopbackError {
    /// The network file asks for an impairment that sockets cannot emulate.
    #[error(
        "link {link}: {what} cannot be done to {protocol} between sockets on loopback; the \
         namespace mode can (leave out --loopback)"
    )]
    Unsupported {
        /// The link.
        link: String,
        /// The impairment.
        what: &'static str,
        /// TCP or UDP.
        protocol: &'static str,
    },
    /// The address of a link is taken, as by a program that listens at all addresses.
    #[error(
        "{0} is taken: the program behind --forward has to listen at that address alone, as with \
         'receive --listen 127.0.0.1'"
    )]
    Taken(SocketAddr),
    /// A system call failed.
    #[error("{doing}: {error}")]
    World {
        /// The operation and its object.
        doing: String,
        /// The system's error.
        #[source]
        error: io::Error,
    },
}

impl Loopback {
    /// Listens on every link's address and forwards to `forward`. The schedule's clock starts with
    /// the first connection or datagram.
    ///
    /// # Errors
    /// If the network asks for something that cannot be done here, or an address is taken.
    pub fn start(
        network: &Network,
        forward: SocketAddr,
        protocol: Protocol,
    ) -> Result<Loopback, LoopbackError> {
        check(network, protocol)?;
        let doing = |doing: String| move |error| LoopbackError::World { doing, error };
        let addresses: Vec<SocketAddr> = (1..)
            .zip(&network.links)
            .map(|(n, _)| SocketAddr::from((Ipv4Addr::new(127, 77, 0, n), forward.port())))
            .collect();
        let waker = Waker::new().map_err(doing("making an eventfd".into()))?;
        let control = Arc::new(Control { waker, stop: AtomicBool::new(false) });
        let builder = thread::Builder::new().name("links".into());
        let listening = |address: &SocketAddr| {
            let address = *address;
            move |error: io::Error| match error.kind() {
                io::ErrorKind::AddrInUse => LoopbackError::Taken(address),
                _ => LoopbackError::World { doing: format!("listening on {address}"), error },
            }
        };
        let thread = match protocol {
            Protocol::Tcp => {
                let listeners = addresses
                    .iter()
                    .map(|address| tcp::listen(*address).map_err(listening(address)));
                let proxy =
                    tcp::TcpProxy::new(network, listeners.collect::<Result<_, _>>()?, forward);
                let mut proxy = proxy.map_err(doing("starting the links".into()))?;
                let control = Arc::clone(&control);
                builder.spawn(move || proxy.run(&control))
            }
            Protocol::Udp => {
                let sockets = addresses
                    .iter()
                    .map(|address| udp::listen(*address).map_err(listening(address)));
                let proxy =
                    udp::UdpProxy::new(network, sockets.collect::<Result<_, _>>()?, forward);
                let mut proxy = proxy.map_err(doing("starting the links".into()))?;
                let control = Arc::clone(&control);
                builder.spawn(move || proxy.run(&control))
            }
        };
        let thread = thread.map_err(doing("starting a thread".into()))?;
        Ok(Loopback { addresses, control, thread: Some(thread) })
    }

    /// Where each link listens, in the network's order.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Ends the links and returns the report.
    ///
    /// # Errors
    /// If their thread failed.
    pub fn finish(mut self) -> Result<Report, LoopbackError> {
        self.stop()
            .map_err(|error| LoopbackError::World { doing: "running the links".into(), error })
    }

    fn stop(&mut self) -> io::Result<Report> {
        self.control.stop.store(true, Ordering::Release);
        self.control.waker.wake()?;
        let thread =
            self.thread.take().ok_or_else(|| io::Error::other("they were stopped already"))?;
        thread.join().map_err(|_| io::Error::other("the thread panicked"))?
    }
}

impl Drop for Loopback {
    fn drop(&mut self) {
        if self.thread.is_some() {
            // The run is abandoned; there is no caller to return an error to.
            let _ = self.stop();
        }
    }
}

/// Fails if the network asks for an impairment that sockets cannot emulate.
fn check(network: &Network, protocol: Protocol) -> Result<(), LoopbackError> {
    for link in &network.links {
        let what = unsupported(link, protocol);
        if let Some(what) = what {
            let protocol = if protocol == Protocol::Tcp { "TCP" } else { "UDP" };
            return Err(LoopbackError::Unsupported { link: link.name.clone(), what, protocol });
        }
    }
    Ok(())
}

fn unsupported(link: &LinkSpec, protocol: Protocol) -> Option<&'static str> {
    if link.nat_idle.is_some() {
        return Some("nat_idle");
    }
    let both = [&link.up, &link.down];
    let any = |asks: fn(&Direction) -> bool| both.iter().any(|direction| asks(direction));
    // Sockets show no IP headers to mark.
    if any(|direction| direction.profile.aqm.marks()) {
        return Some("aqm.ecn");
    }
    if protocol == Protocol::Udp {
        return None;
    }
    if link.unreachable.is_some() {
        return Some("unreachable");
    }
    let is_black_hole = |direction: &Direction| {
        direction.profile.mtu.is_some_and(|mtu| mtu < Bytes(u64::from(link.device_mtu)))
    };
    if any(|direction| direction.profile.loss != Loss::None || !direction.profile.losses.is_empty())
    {
        Some("loss")
    } else if any(|direction| direction.profile.duplicate > 0.0) {
        Some("duplicate")
    } else if any(|direction| direction.profile.reorder.is_some()) {
        Some("reorder")
    } else if any(|direction| direction.profile.aqm != Aqm::DropTail) {
        Some("aqm")
    } else if any(|direction| direction.profile.jitter.is_some_and(|jitter| jitter.reorders)) {
        Some("jitter.reorder")
    } else if any(|direction| {
        let profile = &direction.profile;
        profile.rate.opportunities.is_some() && !profile.blackouts.is_empty()
    }) {
        // A blackout is a standstill for connections, which a trace of opportunities cannot have.
        Some("trace with blackout")
    } else if any(|direction| direction.profile.corrupt > 0.0) {
        Some("corrupt")
    } else if any(|direction| direction.carry != Carry::All) {
        Some("carry")
    } else if both.iter().any(|direction| is_black_hole(direction)) {
        Some("blackhole_above")
    } else {
        None
    }
}

/// A link's profile for connections: nothing is dropped, and a blackout is a standstill.
fn patient(profile: &Profile) -> Profile {
    const HORIZON: Span = Span::from_secs(3_600);
    Profile { mtu: None, ..profile.holding(HORIZON) }
}
