//! A routed mesh on real devices: a namespace for each host, and the thread that carries packets.

use std::collections::BTreeMap;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::{self, Sender};
use std::thread;
use std::time::Duration;

use link::{Amendment, Counters};
use serde::Serialize;
use sys::clock::Clock;
use sys::netns::NetNs;
use sys::poll::Waker;

use super::description::{Description, NodeRole};
use super::engine::{MeshCounters, NodeCounters, Order, Place, RoutedEngine, places};
use super::kernel::HostNamespace;
use super::routes::Routes;
use crate::driver::{self, Control, Outcome, Running};
use crate::mesh::DeviceReport;
use crate::namespaces::{EmulationError, device_drops, doing};
use crate::report::{Drops, Quantiles, exceeded};

/// The time that the emulator's thread has to answer.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// A mesh that is running. Dropping it ends it.
#[derive(Debug)]
pub struct RoutedMesh {
    mesh: Arc<Description>,
    hosts: Vec<HostNamespace>,
    control: Arc<Control>,
    orders: Sender<Order>,
    thread: Option<Running<RoutedEngine>>,
    /// Drops that devices counted before the first packet.
    drops_before: u64,
    /// Whether the process made itself root of a user namespace.
    is_unprivileged: bool,
}

/// The report of a run of a mesh.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RoutedReport {
    /// The mesh's name.
    pub name: String,
    /// Whether the emulator kept within its own bounds; if not, no figure of this run counts.
    pub valid: bool,
    /// The bounds that it exceeded.
    pub why: Vec<String>,
    /// The time of the run.
    pub seconds: f64,
    /// The emulator's processor time over the run's time.
    pub cpu_share: f64,
    /// Whether the emulator ran before ordinary threads.
    pub realtime: bool,
    /// The emulator's busy periods, in which it reads no packets, in µs.
    pub busy_us: Quantiles,
    /// Packets that a device dropped before the emulator saw them.
    pub tun_drops: u64,
    /// Packets that a device did not take back.
    pub tun_errors: u64,
    /// The devices of all hosts.
    pub devices: Vec<DeviceReport>,
    /// What was counted.
    #[serde(flatten)]
    pub counts: RoutedCounts,
}

/// What a mesh counted.
#[derive(Clone, Debug, Default, Serialize)]
pub struct RoutedCounts {
    /// The links, by name.
    pub links: BTreeMap<String, BothWays>,
    /// The routers and translators, by name.
    pub nodes: BTreeMap<String, NodeCounts>,
}

/// Both directions of a link.
#[derive(Clone, Debug, Default, Serialize)]
pub struct BothWays {
    /// From its first end to its second.
    pub up: WayCounts,
    /// From its second end to its first.
    pub down: WayCounts,
}

/// One direction of a link.
#[derive(Clone, Debug, Default, Serialize)]
pub struct WayCounts {
    /// Packets that arrived at the other end.
    pub packets: u64,
    /// Their bytes, headers included.
    pub bytes: u64,
    /// Packets that did not arrive.
    pub dropped: Drops,
    /// Packets that the queue marked.
    pub marked: u64,
    /// The largest backlog in bytes, the packet on the wire included.
    pub max_queue_bytes: u64,
}

/// A router or a translator.
#[derive(Clone, Debug, Default, Serialize)]
pub struct NodeCounts {
    /// Packets to addresses to which there is no route.
    pub unrouted: u64,
    /// Packets whose hop limit was used up.
    pub expired: u64,
    /// Packets too large for the next link.
    pub too_large: u64,
    /// Packets that a translator dropped, by cause.
    pub refused: BTreeMap<&'static str, u64>,
    /// The flows that a translator knows.
    pub flows: usize,
}

impl RoutedMesh {
    /// Builds the network. It carries packets from now on, and the schedules of its links begin.
    ///
    /// # Errors
    /// If the caller may not, or something is missing (`/dev/net/tun`).
    pub fn new(description: Description) -> Result<RoutedMesh, EmulationError> {
        let mesh = Arc::new(description);
        let routes = routes(&mesh)?;
        let mut hosts = Vec::new();
        let mut devices = Vec::new();
        for (index, node) in mesh.nodes.iter().enumerate() {
            if !matches!(node.role, NodeRole::Host { .. }) {
                continue;
            }
            let at_host =
                |error| EmulationError::of_device(format!("making the host {}", node.name), error);
            let (mut host, made) = HostNamespace::new(&mesh, index).map_err(at_host)?;
            host.set_routes(&mesh, &routes).map_err(at_host)?;
            hosts.push(host);
            devices.extend(made);
        }
        let waker = Waker::new().map_err(doing("making an eventfd"))?;
        let control = Arc::new(Control { waker, stop: AtomicBool::new(false) });
        let (orders, ordered) = mpsc::channel();
        let engine = RoutedEngine::new(Arc::clone(&mesh), routes, ordered);
        let clock = Clock::start();
        let thread = thread::Builder::new().name("links".into()).spawn({
            let control = Arc::clone(&control);
            move || driver::run(engine, &devices, &control, clock)
        });
        let thread = Some(thread.map_err(doing("starting a thread"))?);
        let mut mesh = RoutedMesh {
            mesh,
            hosts,
            control,
            orders,
            thread,
            drops_before: 0,
            is_unprivileged: false,
        };
        mesh.drops_before = mesh.drops()?;
        Ok(mesh)
    }

    /// Says that the process is root of a user namespace of its own, which those that enter its
    /// hosts have to enter first.
    pub fn set_unprivileged(&mut self) {
        self.is_unprivileged = true;
    }

    /// Its description, with the changes so far.
    #[must_use]
    pub fn description(&self) -> &Description {
        &self.mesh
    }

    /// The namespace of a host.
    #[must_use]
    pub fn namespace(&self, host: &str) -> Option<&NetNs> {
        let node = self.mesh.node(host)?;
        self.hosts.iter().find(|one| one.node == node).map(|one| &one.ns)
    }

    /// The words before a command that let it run on a host, for any process of the same user, by
    /// the names of the hosts. They hold while this lives.
    #[must_use]
    pub fn entrances(&self) -> BTreeMap<String, Vec<String>> {
        let process = std::process::id();
        let entrance = |host: &HostNamespace| {
            let mut words = vec!["nsenter".to_owned()];
            if self.is_unprivileged {
                let user = format!("--user=/proc/{process}/ns/user");
                words.extend([user, "--preserve-credentials".to_owned()]);
            }
            let descriptor = host.ns.as_fd().as_raw_fd();
            words.push(format!("--net=/proc/{process}/fd/{descriptor}"));
            words.push("--".to_owned());
            (self.mesh.nodes[host.node].name.clone(), words)
        };
        self.hosts.iter().map(entrance).collect()
    }

    /// Changes a link: from its first end to its second (`up`), back, or both.
    ///
    /// # Errors
    /// If the emulator's thread ended.
    pub fn amend(
        &self,
        link: usize,
        up: bool,
        down: bool,
        amendment: Amendment,
    ) -> Result<(), EmulationError> {
        for (is_meant, way) in [(up, 0), (down, 1)] {
            if is_meant {
                self.order(Order::Amend { direction: 2 * link + way, amendment })?;
            }
        }
        Ok(())
    }

    /// Gives the end of a link at a node other addresses. A translator whose address outside
    /// changes forgets its flows.
    ///
    /// # Errors
    /// If another node has one of them, or the kernel does not take it.
    pub fn set_addresses(
        &mut self,
        link: usize,
        end: usize,
        addresses: &[(IpAddr, u8)],
    ) -> Result<(), EmulationError> {
        let mut after = Description::clone(&self.mesh);
        after.links[link].ends[end].addresses = addresses.to_vec();
        let routes = routes(&after)?;
        let node = self.mesh.links[link].ends[end].node;
        let name = &self.mesh.nodes[node].name;
        if let Some(host) = self.hosts.iter().find(|host| host.node == node) {
            host.replace_addresses(Place { link, end }, &self.mesh.links[link], addresses)
                .map_err(doing(format!("changing the addresses of {name}")))?;
        }
        for host in &mut self.hosts {
            let name = &after.nodes[host.node].name;
            host.set_routes(&after, &routes)
                .map_err(doing(format!("changing the routes of {name}")))?;
        }
        self.mesh = Arc::new(after);
        self.order(Order::Replace { mesh: Arc::clone(&self.mesh), routes })
    }

    /// Lets the translator at this node forget its flows, as after a loss of power.
    ///
    /// # Errors
    /// If the emulator's thread ended.
    pub fn forget(&self, node: usize) -> Result<(), EmulationError> {
        self.order(Order::Forget { node })
    }

    /// What was counted so far.
    ///
    /// # Errors
    /// If the emulator's thread ended.
    pub fn count(&self) -> Result<RoutedCounts, EmulationError> {
        let (answer, answered) = mpsc::channel();
        self.order(Order::Count(answer))?;
        let counters = answered.recv_timeout(ANSWER_LIMIT).map_err(io::Error::other);
        Ok(counts(&self.mesh, &counters.map_err(doing("asking the links"))?))
    }

    /// Ends the network and returns the report.
    ///
    /// # Errors
    /// If the emulator's thread failed.
    pub fn finish(mut self) -> Result<RoutedReport, EmulationError> {
        let drops = self.drops()?.saturating_sub(self.drops_before);
        let outcome = self.stop().map_err(doing("running the links"))?;
        Ok(report(&self.mesh, &outcome, drops))
    }

    fn order(&self, order: Order) -> Result<(), EmulationError> {
        self.orders.send(order).map_err(io::Error::other).map_err(doing("changing the links"))?;
        self.control.waker.wake().map_err(doing("waking the links"))
    }

    fn stop(&mut self) -> io::Result<Outcome<RoutedEngine>> {
        self.control.end(self.thread.take())
    }

    fn drops(&self) -> Result<u64, EmulationError> {
        device_drops(self.hosts.iter().map(|host| &host.ns))
    }
}

impl Drop for RoutedMesh {
    fn drop(&mut self) {
        if self.thread.is_some() {
            // The run is abandoned; there is no caller to return an error to.
            let _ = self.stop();
        }
    }
}

fn routes(mesh: &Description) -> Result<Routes, EmulationError> {
    Routes::new(mesh).map_err(io::Error::other).map_err(doing("looking for routes"))
}

fn report(mesh: &Description, outcome: &Outcome<RoutedEngine>, tun_drops: u64) -> RoutedReport {
    let devices: Vec<DeviceReport> = places(mesh)
        .iter()
        .zip(&outcome.lateness)
        .map(|(place, lateness)| {
            let link = &mesh.links[place.link];
            DeviceReport {
                host: mesh.nodes[link.ends[place.end].node].name.clone(),
                device: link.name.clone(),
                late_us: lateness.quantiles(),
            }
        })
        .collect();
    let wall = outcome.wall.as_secs_f64();
    let cpu_share = outcome.cpu.as_secs_f64() / wall.max(1e-9);
    let busy_us = outcome.busy.quantiles();
    let late = devices.iter().map(|one| (format!("{} of {}", one.device, one.host), one.late_us));
    let mut why = exceeded(tun_drops, cpu_share, busy_us, late);
    if outcome.tun_errors > 0 {
        why.push(format!("devices did not take {} packets", outcome.tun_errors));
    }
    RoutedReport {
        name: mesh.name.clone(),
        valid: why.is_empty(),
        why,
        seconds: wall,
        cpu_share,
        realtime: outcome.realtime,
        busy_us,
        tun_drops,
        tun_errors: outcome.tun_errors,
        devices,
        counts: counts(mesh, &outcome.engine.counters(outcome.ended)),
    }
}

fn counts(mesh: &Description, counters: &MeshCounters) -> RoutedCounts {
    let links =
        mesh.links.iter().zip(&counters.links).map(|(link, [up, down])| {
            (link.name.clone(), BothWays { up: way(up), down: way(down) })
        });
    let nodes = mesh.nodes.iter().zip(&counters.nodes);
    let nodes = nodes.filter(|(node, _)| !matches!(node.role, NodeRole::Host { .. }));
    let nodes = nodes.map(|(node, counters)| {
        let NodeCounters { unrouted, expired, too_large, refused, flows } = counters;
        let refused = refused.iter().map(|(refusal, number)| (refusal.name(), *number)).collect();
        let counts = NodeCounts {
            unrouted: *unrouted,
            expired: *expired,
            too_large: *too_large,
            refused,
            flows: *flows,
        };
        (node.name.clone(), counts)
    });
    RoutedCounts { links: links.collect(), nodes: nodes.collect() }
}

fn way(counters: &Counters) -> WayCounts {
    WayCounts {
        packets: counters.delivered.packets,
        bytes: counters.delivered.bytes.0,
        dropped: Drops::from(counters),
        marked: counters.marked,
        max_queue_bytes: counters.max_queue.0,
    }
}
