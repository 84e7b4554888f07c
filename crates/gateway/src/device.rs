//! The TUN device, and the routes of marked packets into it.

use std::fs;
use std::io;
use std::sync::Mutex;

use peer::Error;
use reach::Network;
use sys::netlink::Netlink;

use crate::tun::Tun;

/// The least packet that IPv6 allows.
pub(crate) const LEAST_V6: usize = 1_280;
/// The MTU of the device is no less, and this before a path is known. From a smaller device the
/// kernel takes IPv6 away, and packets of the site that come out of it would be lost; where paths
/// carry less, routes of IPv4 say so.
const FIRST_MTU: u32 = 1_280;
/// Packets that the kernel holds for the gateway.
const QUEUE: u32 = 1_000;

/// The device, as far as it is not the guest's.
pub(crate) struct Device {
    state: Mutex<State>,
    name: String,
    index: u32,
    table: u32,
}

struct State {
    netlink: Netlink,
    /// The largest packet that the paths carry.
    mtu: usize,
    /// The networks to which marked packets go into the device, or will once that is enough.
    networks: Vec<Network>,
}

impl State {
    /// Whether the paths carry packets of the network's family.
    fn carries(&self, network: &Network) -> bool {
        network.address().is_ipv4() || self.mtu >= LEAST_V6
    }
}

impl Device {
    /// Makes the device, in the namespace of the calling thread, and brings it up.
    ///
    /// # Errors
    /// [`Error::System`] with what to do.
    pub(crate) fn create(name: &str, table: u32) -> Result<(Device, Tun), Error> {
        let failed = |source: io::Error| {
            let hint = match source.kind() {
                io::ErrorKind::PermissionDenied => " (it needs root, or CAP_NET_ADMIN)",
                io::ErrorKind::ResourceBusy => " (another program has it)",
                _ => "",
            };
            Error::System { action: format!("make the device {name}{hint}"), source }
        };
        let tun = Tun::create(name).map_err(failed)?;
        let mut netlink = Netlink::open().map_err(failed)?;
        let index = netlink.index(name).map_err(failed)?;
        netlink.set_up_with(index, FIRST_MTU, QUEUE).map_err(failed)?;
        let state = State { netlink, mtu: LEAST_V6, networks: Vec::new() };
        let device = Device { state: Mutex::new(state), name: name.into(), index, table };
        Ok((device, tun))
    }

    /// What packets that come out of the device need, and what is missing: sentences for people.
    ///
    /// Their sources are hosts that the kernel reaches over other devices, or addresses of this
    /// host. On a device without an address even the loose check of sources drops all.
    pub(crate) fn prepare(&self) -> Vec<String> {
        let mut missing = Vec::new();
        for (key, value) in [("rp_filter", "0"), ("accept_local", "1")] {
            let path = format!("/proc/sys/net/ipv4/conf/{}/{key}", self.name);
            if let Err(error) = fs::write(&path, value) {
                missing.push(format!(
                    "net.ipv4.conf.{}.{key} cannot be set to {value} ({error}): packets that go \
                     back to the normal route may be dropped",
                    self.name
                ));
            }
        }
        let is_on = |key: &str| {
            let path = format!("/proc/sys/net/{key}");
            fs::read_to_string(path).is_ok_and(|value| value.trim() != "0")
        };
        // The larger of both values counts.
        if is_on("ipv4/conf/all/rp_filter") {
            missing.push(
                "net.ipv4.conf.all.rp_filter is not 0: packets of IPv4 that come out of the \
                 gateway are dropped; set it to 0, and that of each other device instead"
                    .into(),
            );
        }
        for (key, family) in [("ipv4/ip_forward", "IPv4"), ("ipv6/conf/all/forwarding", "IPv6")] {
            if !is_on(key) {
                missing.push(format!(
                    "net.{} is 0: {family} of other hosts is not forwarded",
                    key.replace('/', ".")
                ));
            }
        }
        missing
    }

    /// Sets the size of the largest packet that the paths carry, headers of IP included. Returns
    /// whether networks of IPv6 are led there from now on, where that has changed.
    ///
    /// # Errors
    /// That of the first route that could not be set; the others are.
    pub(crate) fn set_mtu(&self, mtu: usize) -> io::Result<Option<bool>> {
        let mut state = self.state();
        if state.mtu == mtu {
            return Ok(None);
        }
        let octets = u32::try_from(mtu).unwrap_or(FIRST_MTU).max(FIRST_MTU);
        state.netlink.set_up_with(self.index, octets, QUEUE)?;
        let before = std::mem::replace(&mut state.mtu, mtu) >= LEAST_V6;
        let (networks, now) = (state.networks.clone(), mtu >= LEAST_V6);
        let set = networks.iter().map(|network| self.set_route(&mut state, network));
        set.fold(Ok(()), Result::and)?;
        let has_v6 = networks.iter().any(|network| network.address().is_ipv6());
        Ok((has_v6 && now != before).then_some(now))
    }

    /// Marked packets to a network go into the device from now on. `false`: once the paths carry
    /// packets that are large enough for IPv6.
    pub(crate) fn add(&self, network: &Network) -> io::Result<bool> {
        let mut state = self.state();
        self.set_route(&mut state, network)?;
        if !state.networks.contains(network) {
            state.networks.push(*network);
        }
        Ok(state.carries(network))
    }

    /// Whether marked packets to any of these networks go into the device.
    pub(crate) fn leads_any(&self, networks: &[Network]) -> bool {
        let state = self.state();
        networks.iter().any(|network| state.networks.contains(network) && state.carries(network))
    }

    /// They do not any more.
    pub(crate) fn remove(&self, network: &Network) {
        let mut state = self.state();
        state.networks.retain(|known| known != network);
        self.remove_route(&mut state, network);
    }

    /// The route of a network as the size of packets asks for it.
    fn set_route(&self, state: &mut State, network: &Network) -> io::Result<()> {
        if !state.carries(network) {
            self.remove_route(state, network);
            return Ok(());
        }
        let to = (network.address(), network.bits());
        let mtu = u32::try_from(state.mtu).ok().filter(|mtu| *mtu < FIRST_MTU);
        state.netlink.set_route_in(self.table, self.index, to, mtu)
    }

    /// It may be that there was none, or that the device is gone.
    fn remove_route(&self, state: &mut State, network: &Network) {
        let to = (network.address(), network.bits());
        if let Err(error) = state.netlink.remove_route_in(self.table, self.index, to) {
            tracing::debug!(%error, %network, "no route to remove");
        }
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().expect("no panic while held")
    }
}
