//! A mesh on real devices: a namespace for each host, and the thread that carries the packets.

use std::io;
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Instant;

use serde::Serialize;
use sys::clock::Clock;
use sys::netlink::Netlink;
use sys::netns::{self, NetNs};
use sys::poll::Waker;
use sys::tun::Tun;
use units::Time;

use super::engine::MeshEngine;
use super::{DevicePlan, HostPlan, LinkMeasures, Plan};
use crate::driver::{self, Control, Outcome, Running};
use crate::namespaces::{DEVICE_QUEUE, EmulationError, device_drops, doing, prepare};
use crate::report::{Quantiles, exceeded};

/// The MTU of the devices.
const MTU: u32 = 1_500;

/// A mesh that is running. Dropping it ends it.
#[derive(Debug)]
pub struct Mesh {
    plan: Plan,
    namespaces: Vec<NetNs>,
    control: Arc<Control>,
    clock: Clock,
    start: Arc<OnceLock<Time>>,
    thread: Option<Running<MeshEngine>>,
    /// Drops that devices counted before the first packet.
    drops_before: u64,
}

/// The report of a run of a mesh.
#[derive(Clone, Debug, Default, Serialize)]
pub struct MeshReport {
    /// Whether the emulator kept within its own bounds; if not, no figure of this run counts.
    pub valid: bool,
    /// The bounds that it exceeded.
    pub why: Vec<String>,
    /// From the start to the end of the run.
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
    /// Packets between addresses without a route.
    pub unrouted: u64,
    /// The devices of all hosts.
    pub devices: Vec<DeviceReport>,
    /// The links, each direction on its own.
    pub links: Vec<LinkMeasures>,
}

/// A device of a host.
#[derive(Clone, Debug, Default, Serialize)]
pub struct DeviceReport {
    /// The host.
    pub host: String,
    /// The device.
    pub device: String,
    /// How late packets arrived there, in µs.
    pub late_us: Quantiles,
}

impl Mesh {
    /// Builds the network. Its links carry packets from now on, at their first rates.
    ///
    /// # Errors
    /// If the caller may not, or something is missing (`/dev/net/tun`).
    ///
    /// # Panics
    /// If a route of the plan has no links, or has an address that no device has.
    pub fn new(plan: Plan) -> Result<Mesh, EmulationError> {
        let start = Arc::new(OnceLock::new());
        let engine = MeshEngine::new(&plan, Arc::clone(&start));
        let mut namespaces = Vec::with_capacity(plan.hosts.len());
        let mut devices = Vec::new();
        for host in &plan.hosts {
            let ns = NetNs::new().map_err(EmulationError::of_namespace)?;
            prepare(&ns).map_err(doing(format!("preparing the namespace of {}", host.name)))?;
            prepare_host(&ns, host)
                .map_err(doing(format!("preparing the namespace of {}", host.name)))?;
            for (device, table) in host.devices.iter().zip(1..) {
                let made = ns.run(|| build(device, table)).and_then(|built| built);
                let what = format!("making the device {} of {}", device.name, host.name);
                devices.push(made.map_err(|error| EmulationError::of_device(what, error))?);
            }
            namespaces.push(ns);
        }
        let waker = Waker::new().map_err(doing("making an eventfd"))?;
        let control = Arc::new(Control { waker, stop: AtomicBool::new(false) });
        let clock = Clock::start();
        let thread = thread::Builder::new().name("links".into()).spawn({
            let control = Arc::clone(&control);
            move || driver::run(engine, &devices, &control, clock)
        });
        let thread = Some(thread.map_err(doing("starting a thread"))?);
        let mut mesh = Mesh { plan, namespaces, control, clock, start, thread, drops_before: 0 };
        mesh.drops_before = mesh.drops()?;
        Ok(mesh)
    }

    /// Lets the command run on the host of this index. It gets SIGTERM when the thread that spawns
    /// it ends.
    ///
    /// # Errors
    /// If there are no descriptors left.
    ///
    /// # Panics
    /// If there is no such host.
    pub fn place(&self, command: &mut Command, host: usize) -> io::Result<()> {
        netns::die_with_parent(command, rustix::process::Signal::TERM);
        self.namespaces[host].enter_on_spawn(command)
    }

    /// Starts the schedules of the links and the windows of the measures at `at`. Only the first
    /// call counts.
    ///
    /// # Errors
    /// If the thread cannot be woken.
    pub fn start(&self, at: Instant) -> Result<(), EmulationError> {
        let _ = self.start.set(self.clock.time(at));
        self.control.waker.wake().map_err(doing("waking the links"))
    }

    /// Ends the network and returns the report.
    ///
    /// # Errors
    /// If the emulator's thread failed.
    pub fn finish(mut self) -> Result<MeshReport, EmulationError> {
        let drops = self.drops()?.saturating_sub(self.drops_before);
        let outcome = self.stop().map_err(doing("running the links"))?;
        Ok(report(&self.plan, &outcome, drops))
    }

    fn stop(&mut self) -> io::Result<Outcome<MeshEngine>> {
        self.control.end(self.thread.take())
    }

    /// Packets that devices dropped on the way to the emulator.
    fn drops(&self) -> Result<u64, EmulationError> {
        device_drops(&self.namespaces)
    }
}

impl Drop for Mesh {
    fn drop(&mut self) {
        if self.thread.is_some() {
            // The run is abandoned; there is no caller to return an error to.
            let _ = self.stop();
        }
    }
}

/// Sysctls of the hosts of a mesh.
fn prepare_host(ns: &NetNs, host: &HostPlan) -> io::Result<()> {
    // Without this, the end of one connection would decide where the next one begins.
    ns.set_sysctl("net/ipv4/tcp_no_metrics_save", "1")?;
    ns.set_sysctl("net/ipv4/tcp_ecn", if host.ecn { "1" } else { "0" })?;
    ns.set_sysctl("net/ipv4/ip_forward", if host.forwards { "1" } else { "0" })?;
    // Routes are of IPv4 alone: a kernel that announces itself over IPv6 would only be in the way.
    // A kernel without IPv6 has no such file.
    match ns.set_sysctl("net/ipv6/conf/default/disable_ipv6", "1") {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Makes a device, in the calling thread's namespace; packets from its addresses look up `table`.
fn build(device: &DevicePlan, table: u8) -> io::Result<Tun> {
    let tun = Tun::create(&device.name)?;
    let mut netlink = Netlink::open()?;
    let index = netlink.index(&device.name)?;
    netlink.set_up_with(index, MTU, DEVICE_QUEUE)?;
    for (number, address) in device.addresses.iter().enumerate() {
        netlink.add_address(index, (*address).into(), 32)?;
        if number == 0 {
            netlink.add_default_route(table, index, (*address).into())?;
        }
        netlink.add_rule((*address).into(), table)?;
    }
    for address in &device.behind {
        netlink.set_route(index, ((*address).into(), 32), 0)?;
    }
    Ok(tun)
}

fn report(plan: &Plan, outcome: &Outcome<MeshEngine>, tun_drops: u64) -> MeshReport {
    let engine = &outcome.engine;
    let hosts = plan.hosts.iter();
    let devices = hosts.flat_map(|host| host.devices.iter().map(move |device| (host, device)));
    let devices: Vec<DeviceReport> = devices
        .zip(&outcome.lateness)
        .map(|((host, device), lateness)| DeviceReport {
            host: host.name.clone(),
            device: device.name.clone(),
            late_us: lateness.quantiles(),
        })
        .collect();
    let cpu_share = outcome.cpu.as_secs_f64() / outcome.wall.as_secs_f64().max(1e-9);
    let busy_us = outcome.busy.quantiles();
    let late = devices.iter().map(|one| (format!("{} of {}", one.device, one.host), one.late_us));
    let mut why = exceeded(tun_drops, cpu_share, busy_us, late);
    if outcome.tun_errors > 0 {
        why.push(format!("devices did not take {} packets", outcome.tun_errors));
    }
    if !engine.measurer().is_complete() {
        why.push("the run ended before the last window of its measures".into());
    }
    let started = engine.started();
    MeshReport {
        valid: why.is_empty(),
        why,
        seconds: started.map_or(0.0, |start| outcome.ended.since(start).as_secs_f64()),
        cpu_share,
        realtime: outcome.realtime,
        busy_us,
        tun_drops,
        tun_errors: outcome.tun_errors,
        unrouted: engine.unrouted(),
        devices,
        links: engine.measurer().reports(plan),
    }
}

/// A name for the device before a link, whose number among the devices of its host is `number`: the
/// link's own, unless a device cannot be called so. That is up to 15 letters, digits, hyphens and
/// underscores.
#[must_use]
pub fn device_name(link: &str, number: usize) -> String {
    let fits = link.len() <= 15
        && link.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte))
        && !["lo", "all", "default"].contains(&link);
    if fits { link.to_owned() } else { format!("link.{number}") }
}

#[cfg(test)]
mod tests {
    use super::device_name;

    #[test]
    fn devices_are_called_like_links_where_they_can_be() {
        let links = ["wifi", "a-link-with-a-long-name", "a/b", "lo"];
        let names: Vec<String> =
            (1..).zip(links).map(|(number, link)| device_name(link, number)).collect();
        assert_eq!(names, ["wifi", "link.2", "link.3", "link.4"]);
    }
}
