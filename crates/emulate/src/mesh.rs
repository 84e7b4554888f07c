//! Many hosts in namespaces of their own, joined by the links of a topology.
//!
//! A [`Plan`] names the hosts, their devices and addresses, the links, and the route of each pair
//! of addresses. [`Mesh::new`] makes the namespaces and carries packets from link to link: routers
//! are a matter of routes and need no namespace. The schedules of the links begin at
//! [`Mesh::start`], from which the windows of the measures count too.

mod engine;
mod measure;
mod namespaces;

use std::net::Ipv4Addr;

use link::SharedProfile;
use thiserror::Error;
use units::{Seed, Span};

pub use measure::{LinkMeasures, LinkWindow, WindowSpan};
pub use namespaces::{DeviceReport, Mesh, MeshReport, device_name};

/// A network of hosts.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The hosts, each of which becomes a namespace.
    pub hosts: Vec<HostPlan>,
    /// The directions of links.
    pub links: Vec<LinkPlan>,
    /// The routes between addresses. Packets between other addresses are dropped and counted.
    pub routes: Vec<RoutePlan>,
    /// The random delays of packets that hosts send.
    pub lanes: Vec<LanePlan>,
    /// The windows of the measures, from the start on.
    pub windows: Vec<WindowSpan>,
}

/// A host.
#[derive(Clone, Debug, Default)]
pub struct HostPlan {
    /// Its name, for messages.
    pub name: String,
    /// Its devices.
    pub devices: Vec<DevicePlan>,
    /// Whether its kernel asks for ECN (RFC 3168) when it opens TCP connections, and agrees to it.
    pub ecn: bool,
    /// Whether its kernel forwards packets between its devices.
    pub forwards: bool,
}

/// A TUN device of a host.
#[derive(Clone, Debug, Default)]
pub struct DevicePlan {
    /// Its name: up to 15 bytes.
    pub name: String,
    /// Its addresses; packets from them leave by this device. [`Plan::add_address`] adds one.
    pub addresses: Vec<Ipv4Addr>,
    /// Addresses of other hosts. Packets to them leave by this device, if no address of their
    /// sender says otherwise.
    pub behind: Vec<Ipv4Addr>,
}

/// Where a device is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeviceAt {
    /// The index of its host.
    pub host: usize,
    /// Its index among the devices of the host.
    pub device: usize,
}

/// One direction of a link.
#[derive(Clone, Debug)]
pub struct LinkPlan {
    /// Its name.
    pub name: String,
    /// What it does.
    pub profile: SharedProfile,
    /// The seed of its random draws.
    pub seed: Seed,
}

/// The route of the packets from one address to another.
#[derive(Clone, Debug)]
pub struct RoutePlan {
    /// The address of the sender.
    pub from: Ipv4Addr,
    /// The address of the receiver.
    pub to: Ipv4Addr,
    /// The indices of the links, in order.
    pub links: Vec<usize>,
    /// The index of the lane in which packets are delayed before the first link.
    pub lane: Option<usize>,
    /// The devices where the packets enter and leave, if those are not the ones with the two
    /// addresses: a host that forwards has packets of others.
    pub between: Option<[DeviceAt; 2]>,
}

/// A random delay of each packet before its first link, uniform from zero to a bound, in order: the
/// `jitter` of a flow in a scenario file.
#[derive(Clone, Copy, Debug)]
pub struct LanePlan {
    /// The bound.
    pub most: Span,
    /// The seed of the draws.
    pub seed: Seed,
}

/// Why there is no further address.
#[derive(Debug, Error)]
pub enum PlanError {
    /// Too many hosts or devices.
    #[error(
        "an emulated network has up to {MOST} hosts, {MOST} devices of a host and {MOST} \
         addresses of a device"
    )]
    Full,
}

/// The hosts of a network, the devices of a host, and the addresses of a device.
const MOST: usize = 250;

impl Plan {
    /// Gives a device a further address: `10.HOST.DEVICE.NUMBER`, all counted from one.
    ///
    /// # Errors
    /// If there is none left.
    ///
    /// # Panics
    /// If there is no such host or device.
    pub fn add_address(&mut self, host: usize, device: usize) -> Result<Ipv4Addr, PlanError> {
        let addresses = &mut self.hosts[host].devices[device].addresses;
        let octet = |index: usize| {
            u8::try_from(index + 1).ok().filter(|_| index < MOST).ok_or(PlanError::Full)
        };
        let address = Ipv4Addr::new(10, octet(host)?, octet(device)?, octet(addresses.len())?);
        addresses.push(address);
        Ok(address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_count_from_one() {
        let devices = vec![DevicePlan::default(), DevicePlan::default()];
        let host = HostPlan { devices, ..HostPlan::default() };
        let mut plan = Plan { hosts: vec![host.clone(), host], ..Plan::default() };
        assert_eq!(plan.add_address(0, 0).expect("free"), Ipv4Addr::new(10, 1, 1, 1));
        assert_eq!(plan.add_address(1, 1).expect("free"), Ipv4Addr::new(10, 2, 2, 1));
        for number in 2..=250 {
            let address = plan.add_address(1, 1).expect("free");
            assert_eq!(address, Ipv4Addr::new(10, 2, 2, number));
        }
        assert!(plan.add_address(1, 1).is_err());
    }
}
