//! Two network namespaces, near and far, and a TUN device in each for every link between them.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread;

use link::config::{LinkSpec, Network};
use sys::clock::Clock;
use sys::netlink::Netlink;
use sys::netns::{self, NetNs};
use sys::poll::Waker;
use sys::tun::Tun;
use thiserror::Error;

use crate::driver::{self, Control, Outcome, Running};
use crate::engine::{Engine, Port, Side};
use crate::report::{DirectionReport, Drops, LinkReport, Report, seconds};

/// Packets that a device may hold before the emulator reads them. The emulator's own queues are the
/// links' queues; this one must never fill.
pub(crate) const DEVICE_QUEUE: u32 = 10_000;
/// The first routing table; one a link.
const FIRST_TABLE: u8 = 1;

/// A network of namespaces that is running. Dropping it ends it.
#[derive(Debug)]
pub struct Emulation {
    network: Network,
    near: NetNs,
    far: NetNs,
    control: Arc<Control>,
    thread: Option<Running<Engine>>,
    /// Drops that devices counted before the first packet.
    drops_before: u64,
}

/// Why the emulation failed.
#[derive(Debug, Error)]
pub enum EmulationError {
    /// The caller may not make namespaces.
    #[error(
        "making network namespaces and devices needs root, or unprivileged user namespaces (sysctl \
         user.max_user_namespaces, and on \
         some systems kernel.apparmor_restrict_unprivileged_userns) and a /dev/net/tun for all: \
         {0}; without there is --loopback"
    )]
    NotPermitted(#[source] io::Error),
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

impl EmulationError {
    /// Of making a namespace.
    pub(crate) fn of_namespace(error: io::Error) -> EmulationError {
        EmulationError::of_device("making a network namespace".into(), error)
    }

    /// Of making what needs a privilege.
    pub(crate) fn of_device(doing: String, error: io::Error) -> EmulationError {
        match error.kind() {
            io::ErrorKind::PermissionDenied => EmulationError::NotPermitted(error),
            _ => EmulationError::World { doing, error },
        }
    }
}

pub(crate) fn doing(doing: impl Into<String>) -> impl FnOnce(io::Error) -> EmulationError {
    let doing = doing.into();
    move |error| EmulationError::World { doing, error }
}

/// The IPv4 address of one end of a link.
#[must_use]
pub fn address(link: usize, is_far: bool) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, number(link), 1 + u8::from(is_far))
}

/// The IPv6 address of one end of a link.
#[must_use]
pub fn address_v6(link: usize, is_far: bool) -> Ipv6Addr {
    Ipv6Addr::new(0xfd77, u16::from(number(link)), 0, 0, 0, 0, 0, 1 + u16::from(is_far))
}

fn number(link: usize) -> u8 {
    u8::try_from(link + 1).expect("a network has at most 250 links")
}

impl Emulation {
    /// Builds the network and starts it. The schedule's clock starts with the first packet that an
    /// application causes: a SYN, or TCP or UDP payload.
    ///
    /// # Errors
    /// If the caller may not, or something is missing (`/dev/net/tun`).
    pub fn namespaces(network: &Network) -> Result<Emulation, EmulationError> {
        let make = || NetNs::new().map_err(EmulationError::of_namespace);
        let (near, far) = (make()?, make()?);
        let mut devices = Vec::new();
        for side in [Side::Near, Side::Far] {
            let ns = if side == Side::Near { &near } else { &far };
            prepare(ns).map_err(doing("preparing a network namespace"))?;
            for (index, link) in network.links.iter().enumerate() {
                let device = ns.run(|| build(index, link, side)).and_then(|built| built);
                let what = format!("making the device {}", link.name);
                let device = device.map_err(|error| EmulationError::of_device(what, error))?;
                devices.push((Port { link: index, side }.index(), device));
            }
        }
        devices.sort_by_key(|(index, _)| *index);
        let devices: Vec<Tun> = devices.into_iter().map(|(_, device)| device).collect();
        let waker = Waker::new().map_err(doing("making an eventfd"))?;
        let control = Arc::new(Control { waker, stop: AtomicBool::new(false) });
        let engine = Engine::new(network);
        let thread = thread::Builder::new().name("links".into()).spawn({
            let control = Arc::clone(&control);
            move || driver::run(engine, &devices, &control, Clock::start())
        });
        let thread = thread.map_err(doing("starting a thread"))?;
        let mut emulation = Emulation {
            network: network.clone(),
            near,
            far,
            control,
            thread: Some(thread),
            drops_before: 0,
        };
        emulation.drops_before = emulation.drops()?;
        Ok(emulation)
    }

    /// The sender's namespace.
    #[must_use]
    pub fn near(&self) -> &NetNs {
        &self.near
    }

    /// The receiver's namespace.
    #[must_use]
    pub fn far(&self) -> &NetNs {
        &self.far
    }

    /// Lets the command run in a namespace of this network, and tells it about the network:
    /// `ANABRANCH_FAR` (an address), `ANABRANCH_LINKS` (names, separated by spaces),
    /// `ANABRANCH_NEAR_ADDRS` and `ANABRANCH_FAR_ADDRS` (separated by commas, in the links' order).
    /// It gets SIGTERM when the thread that spawns it ends: without this process there is no
    /// network.
    ///
    /// # Errors
    /// If there are no descriptors left.
    pub fn place(&self, command: &mut Command, ns: &NetNs) -> io::Result<()> {
        let all = |is_far| -> Vec<String> {
            (0..self.network.links.len()).map(|link| address(link, is_far).to_string()).collect()
        };
        let names: Vec<&str> = self.network.links.iter().map(|link| link.name.as_str()).collect();
        command
            .env("ANABRANCH_NETWORK", &self.network.name)
            .env("ANABRANCH_FAR", address(0, true).to_string())
            .env("ANABRANCH_LINKS", names.join(" "))
            .env("ANABRANCH_NEAR_ADDRS", all(false).join(","))
            .env("ANABRANCH_FAR_ADDRS", all(true).join(","));
        netns::die_with_parent(command, rustix::process::Signal::TERM);
        ns.enter_on_spawn(command)
    }

    /// Whether something in the far namespace listens on the TCP port.
    ///
    /// # Errors
    /// If `/proc` is not there.
    pub fn far_listens(&self, port: u16) -> Result<bool, EmulationError> {
        // Local address, remote address, state: "00000000:1E1B 00000000:0000 0A", 0A for LISTEN.
        let suffix = format!(":{port:04X}");
        for table in ["tcp", "tcp6"] {
            let text = self.far.read_proc_net(table).map_err(doing("looking who listens"))?;
            let mut lines = text.lines().skip(1).map(|line| line.split_whitespace().skip(1));
            if lines.any(|mut fields| {
                fields.next().is_some_and(|local| local.ends_with(&suffix))
                    && fields.nth(1) == Some("0A")
            }) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Ends the network and returns the report.
    ///
    /// # Errors
    /// If the emulator's thread failed.
    pub fn finish(mut self) -> Result<Report, EmulationError> {
        let drops = self.drops()?.saturating_sub(self.drops_before);
        let outcome = self.stop().map_err(doing("running the links"))?;
        Ok(report(&self.network, &outcome, drops))
    }

    fn stop(&mut self) -> io::Result<Outcome<Engine>> {
        self.control.end(self.thread.take())
    }

    /// Packets that devices dropped on the way to the emulator.
    fn drops(&self) -> Result<u64, EmulationError> {
        device_drops([&self.near, &self.far])
    }
}

impl Drop for Emulation {
    fn drop(&mut self) {
        if self.thread.is_some() {
            // The run is abandoned; there is no caller to return an error to.
            let _ = self.stop();
        }
    }
}

/// Packets that the devices of the namespaces dropped before somebody read them.
pub(crate) fn device_drops<'a>(
    namespaces: impl IntoIterator<Item = &'a NetNs>,
) -> Result<u64, EmulationError> {
    let mut drops = 0;
    for ns in namespaces {
        let text = ns.read_proc_net("dev").map_err(doing("reading /proc/net/dev"))?;
        drops += text.lines().filter_map(tx_drops).sum::<u64>();
    }
    Ok(drops)
}

/// The transmit drops in a line of `/proc/net/dev`: the fourth field of the second eight.
fn tx_drops(line: &str) -> Option<u64> {
    let (name, fields) = line.split_once(':')?;
    if name.trim() == "lo" {
        return None;
    }
    fields.split_whitespace().nth(11)?.parse().ok()
}

/// The kernel's stock sizes of socket buffers (tcp(7), on a host with enough memory): least,
/// initial and largest, in bytes. Without them a namespace inherits what its host has been tuned
/// to, and a measurement over a long fat path depends on the host.
const BUFFERS: [(&str, &str); 2] =
    [("tcp_rmem", "4096 131072 6291456"), ("tcp_wmem", "4096 16384 4194304")];

/// Sysctls before the first device, so that each inherits them, and `lo`.
pub(crate) fn prepare(ns: &NetNs) -> io::Result<()> {
    for (name, sizes) in BUFFERS {
        ns.set_sysctl(&format!("net/ipv4/{name}"), sizes)?;
    }
    // With policy routing an answer may leave by another device than the request came in by.
    for conf in ["all", "default"] {
        ns.set_sysctl(&format!("net/ipv4/conf/{conf}/rp_filter"), "0")?;
    }
    // A kernel without IPv6 has none of these.
    for (name, value) in [("router_solicitations", "0"), ("accept_ra", "0"), ("addr_gen_mode", "1")]
    {
        match ns.set_sysctl(&format!("net/ipv6/conf/default/{name}"), value) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    ns.run(|| {
        let mut netlink = Netlink::open()?;
        let lo = netlink.index("lo")?;
        netlink.set_up(lo)
    })?
}

/// Makes one end of a link, in the calling thread's namespace.
fn build(index: usize, link: &LinkSpec, side: Side) -> io::Result<Tun> {
    let tun = Tun::create(&link.name)?;
    let mut netlink = Netlink::open()?;
    let device = netlink.index(&link.name)?;
    netlink.set_up_with(device, link.device_mtu, DEVICE_QUEUE)?;
    let is_far = side == Side::Far;
    let table = FIRST_TABLE + number(index) - 1;
    let addresses: [(IpAddr, u8); 2] =
        [(address(index, is_far).into(), 24), (address_v6(index, is_far).into(), 64)];
    for (address, prefix) in addresses {
        let is_there = netlink.add_address(device, address, prefix);
        match is_there {
            // A kernel without IPv6.
            Err(error) if address.is_ipv6() && error.raw_os_error().is_none() => continue,
            other => other?,
        }
        netlink.add_default_route(table, device, address)?;
        netlink.add_rule(address, table)?;
    }
    Ok(tun)
}

fn report(network: &Network, outcome: &Outcome<Engine>, tun_drops: u64) -> Report {
    let engine = &outcome.engine;
    let start = engine.started();
    let links = network.links.iter().enumerate().map(|(index, link)| LinkReport {
        name: link.name.clone(),
        up: direction(outcome, Port { link: index, side: Side::Near }),
        down: direction(outcome, Port { link: index, side: Side::Far }),
    });
    let ports = (0..2 * network.links.len()).map(|index| engine.tally(Port::from_index(index)));
    let first = ports.clone().filter_map(|tally| tally.first_payload).min();
    let last = ports.filter_map(|tally| tally.last_payload).max();
    let mut report = Report {
        network: network.name.clone(),
        seconds: seconds(start, Some(outcome.ended)).unwrap_or(0.0),
        first_payload_s: seconds(start, first),
        last_payload_s: seconds(start, last),
        cpu_share: outcome.cpu.as_secs_f64() / outcome.wall.as_secs_f64().max(1e-9),
        realtime: outcome.realtime,
        busy_us: outcome.busy.quantiles(),
        tun_drops,
        tun_errors: outcome.tun_errors,
        links: links.collect(),
        ..Report::default()
    };
    report.judge();
    report
}

fn direction(outcome: &Outcome<Engine>, port: Port) -> DirectionReport {
    let start = outcome.engine.started();
    let counters = outcome.engine.counters(port);
    let tally = outcome.engine.tally(port);
    DirectionReport {
        packets: tally.delivered.packets,
        bytes: tally.delivered.bytes.0,
        dropped: Drops {
            carry: tally.dropped_carry,
            nat: tally.dropped_nat,
            unreachable: tally.dropped_unreachable,
            ..Drops::from(counters)
        },
        duplicated: counters.duplicated,
        reordered: counters.reordered,
        corrupted: counters.corrupted,
        marked: counters.marked,
        max_queue_bytes: counters.max_queue.0,
        late_us: outcome.lateness[port.opposite().index()].quantiles(),
        first_payload_s: seconds(start, tally.first_payload),
        last_payload_s: seconds(start, tally.last_payload),
    }
}

/// Gets the right to make namespaces, as root or in a user namespace. Call it before the process
/// has a second thread. Returns whether it made a user namespace.
///
/// # Errors
/// If the process cannot get it.
pub fn gain_privilege() -> Result<bool, EmulationError> {
    if netns::is_privileged() {
        return Ok(false);
    }
    netns::become_root_of_user_namespace().map_err(EmulationError::NotPermitted)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_transmit_drops() {
        let line = "  wifi: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16";
        assert_eq!(tx_drops(line), Some(12));
        assert_eq!(tx_drops("    lo: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16"), None);
        assert_eq!(tx_drops(" face |bytes    packets errs drop"), None);
    }

    #[test]
    fn addresses_count_from_one() {
        assert_eq!(address(0, false).to_string(), "10.77.1.1");
        assert_eq!(address(2, true).to_string(), "10.77.3.2");
        assert_eq!(address_v6(1, true).to_string(), "fd77:2::2");
    }
}
