//! Settings of the system, and its paths.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;

use net::interfaces::{
    Discovery, LocalPath, Reversal, connect_time, discover, discover_remote, reversal,
};
use peer::dial::{no_path, no_such_path, resolve};
use peer::{Error, PathSpec};

use super::{Connection, Scope};

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
            let ways = ELSEWHERE.map(|target| ways(discover(target)?.usable, target, None));
            return Ok(ways.into_iter().collect::<Result<Vec<_>, _>>()?.concat());
        }
        Scope::Remote(to, specs) => (to, specs, &[]),
        Scope::Receiver(terms) => (&terms.to[0].0, &terms.options.paths, &terms.options.no_paths),
    };
    let mut found: Vec<LocalEnd> = Vec::new();
    let mut unusable = Vec::new();
    if specs.is_empty() {
        for remote in resolve(to).await? {
            let Discovery { mut usable, unusable: others } = discover_remote(remote)?;
            // One path for each interface, in the family that comes first.
            let known: Vec<String> = found.iter().map(|way| way.local.interface.clone()).collect();
            usable.retain(|local| {
                !excluded.contains(&local.interface) && !known.contains(&local.interface)
            });
            found.extend(ways(usable, remote.ip(), Some(remote))?);
            unusable.extend(others);
        }
    }
    for spec in specs {
        let mut exists = false;
        for remote in resolve(spec.to.as_ref().unwrap_or(to)).await? {
            let Discovery { mut usable, unusable: mut others } = discover_remote(remote)?;
            usable.retain(|local| spec.is_over(local));
            others.retain(|device| device.interface == spec.interface);
            exists |= !usable.is_empty() || !others.is_empty();
            unusable.extend(others);
            if !usable.is_empty() {
                found.extend(ways(usable, remote.ip(), Some(remote))?);
                break;
            }
        }
        if !exists && !spec.may_be_absent {
            return Err(no_such_path(spec));
        }
    }
    if found.is_empty() {
        return Err(no_path(to, &unusable));
    }
    Ok(found)
}

/// The local ends of `usable` paths to `target`, and the settings that concern each.
fn ways(
    usable: Vec<LocalPath>,
    target: IpAddr,
    remote: Option<SocketAddr>,
) -> Result<Vec<LocalEnd>, Error> {
    usable
        .into_iter()
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
