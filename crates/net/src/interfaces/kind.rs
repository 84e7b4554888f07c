//! Properties of an interface: a bridge of containers, a modem, its speed.

use std::fs;
use std::path::Path;

use units::Rate;

use super::netlink::Link;

/// Prefixes of the names of modems.
const MODEM_NAMES: [&str; 4] = ["wwan", "wwp", "rmnet", "ccmni"];
/// Drivers of modems, and of telephones that share their connection over USB. Some wired adapters
/// use `cdc_ncm` and `cdc_ether` too; naming such an interface by `--path` makes it a primary.
const MODEM_DRIVERS: [&str; 7] =
    ["rndis_host", "cdc_ncm", "cdc_ether", "cdc_mbim", "huawei_cdc_ncm", "qmi_wwan", "ipheth"];
/// Prefixes of the names of bridges that container engines and hypervisors make.
const BRIDGE_NAMES: [&str; 9] =
    ["docker", "br-", "virbr", "cni", "podman", "lxcbr", "lxdbr", "incusbr", "cbr"];

/// Properties of an interface in sysfs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Traits {
    pub(super) metered: bool,
    pub(super) speed: Option<Rate>,
}

impl Traits {
    /// The properties of the interface `name`; without entries in sysfs, neither metered nor of a
    /// known speed.
    pub(super) fn of(name: &str) -> Traits {
        let folder = Path::new("/sys/class/net").join(name);
        let driver = fs::read_link(folder.join("device/driver")).ok();
        let driver = driver.as_deref().and_then(Path::file_name).and_then(|driver| driver.to_str());
        let uevent = fs::read_to_string(folder.join("uevent")).unwrap_or_default();
        let speed = fs::read_to_string(folder.join("speed")).unwrap_or_default();
        Traits { metered: is_metered(name, driver, &uevent), speed: parse_speed(&speed) }
    }
}

fn is_metered(name: &str, driver: Option<&str>, uevent: &str) -> bool {
    MODEM_NAMES.iter().any(|start| name.starts_with(start))
        || driver.is_some_and(|driver| MODEM_DRIVERS.contains(&driver))
        || uevent.lines().any(|line| line == "DEVTYPE=wwan")
}

/// Reads the speed of sysfs: Mbit/s, or -1 if unknown.
fn parse_speed(text: &str) -> Option<Rate> {
    text.trim().parse().ok().filter(|mbit| *mbit > 0).map(Rate::mbit)
}

/// Whether `link` is a bridge that joins containers or virtual machines rather than this host to a
/// network: it has the name of one, or all its `members` are ends of virtual cables.
pub(super) fn is_container_bridge<'a>(
    link: &Link,
    members: impl Iterator<Item = &'a Link>,
) -> bool {
    if link.kind.as_deref() != Some("bridge") {
        return false;
    }
    let virtual_only = |member: &Link| matches!(member.kind.as_deref(), Some("veth" | "tun"));
    BRIDGE_NAMES.iter().any(|start| link.name.starts_with(start))
        || members.into_iter().all(virtual_only)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(name: &str, kind: Option<&str>) -> Link {
        let kind = kind.map(str::to_string);
        Link {
            index: 1,
            name: name.into(),
            kind,
            up: true,
            carrier: true,
            loopback: false,
            controller: None,
        }
    }

    #[test]
    fn modems_are_metered() {
        assert!(is_metered("wwan0", None, ""));
        assert!(is_metered("enx0", Some("rndis_host"), ""));
        assert!(is_metered("odd0", None, "INTERFACE=odd0\nDEVTYPE=wwan\n"));
        assert!(!is_metered("wlan0", Some("iwlwifi"), "DEVTYPE=wlan\nINTERFACE=wlan0\n"));
    }

    #[test]
    fn speeds() {
        assert_eq!(parse_speed("1000\n"), Some(Rate::mbit(1_000)));
        assert_eq!(parse_speed("-1\n"), None);
        assert_eq!(parse_speed(""), None);
    }

    #[test]
    fn a_bridge_to_a_wire_is_a_path() {
        let (wire, veth) = (link("eth0", None), link("veth1", Some("veth")));
        assert!(!is_container_bridge(&link("br0", Some("bridge")), [&wire, &veth].into_iter()));
        assert!(is_container_bridge(&link("br0", Some("bridge")), [&veth].into_iter()));
        assert!(is_container_bridge(&link("docker0", Some("bridge")), [&wire].into_iter()));
        assert!(!is_container_bridge(&link("docker0", None), [].into_iter()));
    }
}
