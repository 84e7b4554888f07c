//! Settings of the system, and its paths.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use super::{Connection, Scope};
use crate::dial::{no_such_path, resolve};
use crate::{Error, PathSpec};
use net::interfaces::{LocalPath, Reversal, connect_time, discover_remote, reversal};

/// Settings of this host that concern every path; `None` for those that can't be read.
#[derive(Clone, Debug, Default)]
pub(super) struct Host {
    /// Whether the processor has instructions for AES.
    pub(super) aes: Option<bool>,
    /// Whether the kernel's clock is synchronised.
    pub(super) synchronised: Option<bool>,
    /// Names of the loaded congestion controls, and of those that unprivileged processes may use,
    /// separated by spaces.
    pub(super) available: Option<String>,
    pub(super) allowed: Option<String>,
    /// The largest send buffer that the kernel gives a connection by itself, in bytes.
    pub(super) send_buffer: Option<u64>,
    pub(super) window_scaling: Option<bool>,
    pub(super) sack: Option<bool>,
}

/// One path, before anything is sent over it.
#[derive(Clone, Debug)]
pub(super) struct LocalEnd {
    pub(super) local: LocalPath,
    /// The remote address, if the examination has one.
    pub(super) remote: Option<SocketAddr>,
    /// The larger `rp_filter` of the interface's and that of all interfaces, as the kernel takes
    /// it.
    pub(super) rp_filter: Option<u8>,
    /// The other interface by which the kernel sends from this path's address, if it does.
    pub(super) reversal: Option<Reversal>,
}

/// Addresses for examples (RFC 5737, RFC 3849): they take the default routes.
const ELSEWHERE: [IpAddr; 2] = [
    IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)),
    IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1)),
];
/// The time that a connection may take to open.
const PATIENCE: Duration = Duration::from_secs(3);

impl Host {
    pub(super) fn read() -> Host {
        let flag = |name: &str| sysctl(name).map(|value| value != "0");
        Host {
            aes: fs::read_to_string("/proc/cpuinfo").ok().as_deref().and_then(has_aes),
            synchronised: net::counters::is_synchronised().ok(),
            available: sysctl("net/ipv4/tcp_available_congestion_control"),
            allowed: sysctl("net/ipv4/tcp_allowed_congestion_control"),
            send_buffer: sysctl("net/ipv4/tcp_wmem").and_then(|values| {
                values.split_whitespace().nth(2).and_then(|largest| largest.parse().ok())
            }),
            window_scaling: flag("net/ipv4/tcp_window_scaling"),
            sack: flag("net/ipv4/tcp_sack"),
        }
    }
}

fn sysctl(name: &str) -> Option<String> {
    fs::read_to_string(format!("/proc/sys/{name}")).ok().map(|text| text.trim().to_string())
}

/// Whether the first processor of `/proc/cpuinfo` lists `aes` among its features; `None` if it
/// lists none at all.
fn has_aes(cpuinfo: &str) -> Option<bool> {
    let features =
        cpuinfo.lines().find(|line| line.starts_with("flags") || line.starts_with("Features"))?;
    Some(features.split_whitespace().any(|feature| feature == "aes"))
}

/// The paths of the scope.
pub(super) async fn paths(scope: &Scope) -> Result<Vec<LocalEnd>, Error> {
    let (to, specs, excluded): (_, &[PathSpec], &[String]) = match scope {
        Scope::Host => {
            let ways = ELSEWHERE.map(|target| ways(target, None, &|_| true));
            return Ok(ways.into_iter().collect::<Result<Vec<_>, _>>()?.concat());
        }
        Scope::Remote(to, specs) => (to, specs, &[]),
        Scope::Receiver(terms) => (&terms.to[0].0, &terms.options.paths, &terms.options.no_paths),
    };
    let mut found: Vec<LocalEnd> = Vec::new();
    if specs.is_empty() {
        for remote in resolve(to).await? {
            let more =
                ways(remote.ip(), Some(remote), &|local| !excluded.contains(&local.interface))?;
            // One path for each interface, in the family that comes first.
            let known: Vec<String> = found.iter().map(|way| way.local.interface.clone()).collect();
            found.extend(more.into_iter().filter(|way| !known.contains(&way.local.interface)));
        }
    }
    for spec in specs {
        let mut exists = false;
        for remote in resolve(spec.to.as_ref().unwrap_or(to)).await? {
            exists |= discover_remote(remote)?.interfaces().any(|name| name == spec.interface);
            let more = ways(remote.ip(), Some(remote), &|local| spec.is_over(local))?;
            if !more.is_empty() {
                exists = true;
                found.extend(more);
                break;
            }
        }
        if !exists {
            return Err(no_such_path(spec));
        }
    }
    if found.is_empty() {
        let why = "no interface has a route to it; 'anabranch paths' says why".into();
        return Err(Error::NoPath { to: to.to_string(), why });
    }
    Ok(found)
}

fn ways(
    target: IpAddr,
    remote: Option<SocketAddr>,
    wanted: &dyn Fn(&LocalPath) -> bool,
) -> Result<Vec<LocalEnd>, Error> {
    let found = discover_remote(remote.unwrap_or(SocketAddr::new(target, 0)))?;
    let usable = found.usable.into_iter().filter(|local| wanted(local));
    usable
        .map(|local| {
            let rp_filter =
                |name: &str| sysctl(&format!("net/ipv4/conf/{name}/rp_filter"))?.parse::<u8>().ok();
            // Loose mode (2) of either one overrides strict mode (1) of the other.
            let rp_filter = if target.is_ipv4() {
                rp_filter("all").max(rp_filter(&local.interface))
            } else {
                None
            };
            let reversal = reversal(&local, target)?;
            Ok(LocalEnd { local, remote, rp_filter, reversal })
        })
        .collect()
}

/// Opens a connection over each path with a remote address, one after the other.
pub(super) async fn connections(ways: &[LocalEnd]) -> Vec<Connection> {
    let mut connections = Vec::new();
    for way in ways {
        let Some(remote) = way.remote else { continue };
        let opened =
            connect_time(&way.local, remote, PATIENCE).await.map_err(|error| error.to_string());
        connections.push(Connection { interface: way.local.interface.clone(), remote, opened });
    }
    connections
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors() {
        assert_eq!(has_aes("processor\t: 0\nflags\t\t: fpu sse aes avx\n"), Some(true));
        assert_eq!(has_aes("Features\t: fp asimd crc32\n"), Some(false));
        assert_eq!(has_aes("isa\t: rv64imafdc\n"), None);
    }
}
