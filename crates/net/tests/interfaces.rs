//! Path discovery in a network of the test's own: a user namespace if there is no privilege.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod own_network;

use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::time::Duration;

use net::CongestionControl;
use net::interfaces::{
    Discovery, LocalPath, connect_time, discover, discover_remote, interface_index, own_addresses,
};
use net::socket::{Attempt, connect, listen};
use own_network::in_own_network;

fn found(target: &str) -> Discovery {
    discover(target.parse().unwrap()).unwrap()
}

fn paths(found: &Discovery) -> Vec<(&str, String)> {
    found.usable.iter().map(|path| (path.interface.as_str(), path.address.to_string())).collect()
}

fn why(found: &Discovery, interface: &str) -> String {
    let unusable = found.unusable.iter().find(|unusable| unusable.interface == interface);
    unusable.map_or_else(|| "(not listed)".into(), |unusable| unusable.why.to_string())
}

#[test]
fn the_loopback_is_the_one_path_to_this_machine() {
    for target in ["127.0.0.1", "127.77.0.3"] {
        let found = found(target);
        let interfaces: Vec<&str> =
            found.usable.iter().map(|path| path.interface.as_str()).collect();
        assert_eq!(interfaces, ["lo"], "{found:?}");
    }
}

#[test]
fn default_routes_and_what_has_none() {
    if !in_own_network(
        "default_routes_and_what_has_none",
        "
        ip link add a0 type veth peer name a1; ip link add b0 type veth peer name b1
        ip link add down0 type veth peer name down1; ip link add bare0 type veth peer name bare1
        ip link add lost0 type veth peer name lost1; ip link add br-test type bridge
        ip link add docker0 type bridge
        for i in a0 a1 b0 b1 bare0 bare1 lost0 br-test docker0 ; do ip link set $i up; done
        ip link add port0 type veth peer name port1; ip link set port0 master docker0 up
        ip link set port1 up
        ip addr add 10.1.0.1/24 dev a0; ip addr add 10.1.0.9/24 dev a0
        ip addr add 10.2.0.1/24 dev b0; ip addr add 10.3.0.1/24 dev down0
        ip addr add 10.4.0.1/24 dev bare0
        ip addr add 10.5.0.1/24 dev lost0; ip addr add 172.17.0.1/16 dev docker0
        ip route add default via 10.1.0.254 dev a0
        ip route add default via 10.2.0.254 dev b0 metric 200
        ip route add 192.0.2.128/25 dev docker0
        ",
    ) {
        return;
    }
    let outside = found("192.0.2.7");
    assert_eq!(
        paths(&outside),
        [("a0", "10.1.0.1".into()), ("b0", "10.2.0.1".into())],
        "{outside:#?}"
    );
    assert_eq!(why(&outside, "lo"), "is the loopback and reaches this machine only");
    assert_eq!(why(&outside, "down0"), "is down");
    assert_eq!(why(&outside, "lost0"), "is up but has no carrier");
    assert_eq!(why(&outside, "bare0"), "has no route to 192.0.2.7");
    assert_eq!(why(&outside, "docker0"), "is a bridge for containers or virtual machines");
    assert_eq!(why(&outside, "port0"), "belongs to docker0");
    assert_eq!(why(&outside, "port1"), "has no IPv4 address");
    // The bridge is a path to its own containers.
    let container = found("172.17.0.2");
    assert!(paths(&container).contains(&("docker0", "172.17.0.1".into())), "{container:#?}");
    // The neighbour of a0 is reached by b0 too, through its gateway.
    assert_eq!(paths(&found("10.1.0.77")), [("a0", "10.1.0.1".into()), ("b0", "10.2.0.1".into())]);
    // An address of this machine.
    let own = found("10.1.0.1");
    assert_eq!(paths(&own), [("lo", "10.1.0.1".into())], "{own:#?}");
    // No IPv6 anywhere.
    assert!(found("2001:db8::1").usable.is_empty());
    let LocalPath { metered, .. } = &outside.usable[0];
    assert!(!metered);
}

#[test]
fn policy_rules_by_source_address() {
    if !in_own_network(
        "policy_rules_by_source_address",
        "
        for i in 1 2 3; do
            ip link add p$i type veth peer name q$i; ip link set p$i up; ip link set q$i up
            ip addr add 10.77.$i.1/32 dev p$i
            ip rule add from 10.77.$i.1 lookup $i
            ip route add default dev p$i table $i
        done
        ip addr add 10.77.3.9/32 dev p3; ip rule add from 10.77.3.9 lookup 9
        ip route add default via inet 10.77.3.254 dev p3 onlink table 9
        ip route add 10.88.0.0/16 dev p1
        ip route add unreachable 198.51.100.0/24 table 2
        ",
    ) {
        return;
    }
    let found = found("10.88.1.1");
    let expected =
        [("p1", "10.77.1.1"), ("p2", "10.77.2.1"), ("p3", "10.77.3.1"), ("p3", "10.77.3.9")];
    let expected: Vec<(&str, String)> =
        expected.map(|(name, address)| (name, address.to_string())).into();
    assert_eq!(paths(&found), expected, "{found:#?}");
    let partial = discover("198.51.100.1".parse::<IpAddr>().unwrap()).unwrap();
    assert_eq!(partial.usable.len(), 3, "{partial:#?}");
    assert!(why(&partial, "p2").contains("198.51.100.1"), "{partial:#?}");
}

#[test]
fn ipv6_global_and_link_local() {
    if !in_own_network(
        "ipv6_global_and_link_local",
        "
        for i in 1 2; do
            ip link add p$i type veth peer name q$i; ip link set p$i addrgenmode none
            ip link set q$i up; ip link set p$i up
            ip addr add 2001:db8:$i::1/64 dev p$i nodad; ip addr add fe80::$i/64 dev p$i nodad
        done
        ip addr add 2001:db8:1::2/64 dev p1 nodad
        ip -6 route add default via 2001:db8:1::fe dev p1
        ip -6 route add default via 2001:db8:2::fe dev p2 metric 2048
        ip link add p3 type veth peer name q3; ip link set p3 addrgenmode none; ip link set q3 up
        ip link set p3 up
        ip addr add fe80::3/64 dev p3 nodad
        ",
    ) {
        return;
    }
    let outside = found("2001:db8:ffff::1");
    let interfaces: Vec<&str> = outside.usable.iter().map(|path| path.interface.as_str()).collect();
    assert_eq!(interfaces, ["p1", "p2"], "{outside:#?}");
    assert_eq!(why(&outside, "p3"), "has no IPv6 address");
    let neighbour = found("fe80::77");
    let expected = [("p1", "fe80::1"), ("p2", "fe80::2"), ("p3", "fe80::3")];
    let mut of_ours = paths(&neighbour);
    of_ours.retain(|(name, _)| name.starts_with('p'));
    assert_eq!(
        of_ours,
        expected.map(|(name, address)| (name, address.to_string())),
        "{neighbour:#?}"
    );
    // With a zone, the address is at the end of one interface.
    let zone = interface_index("p2").unwrap();
    let remote = |ip: &str| SocketAddrV6::new(ip.parse().unwrap(), 80, 0, zone).into();
    for elsewhere in ["fe80::77", "fe80::1"] {
        let in_zone = discover_remote(remote(elsewhere)).unwrap();
        assert_eq!(paths(&in_zone), [("p2", "fe80::2".to_string())], "{in_zone:#?}");
        assert_eq!(why(&in_zone, "p1"), format!("is not p2, where {elsewhere} is"));
    }
    let own = discover_remote(remote("fe80::2")).unwrap();
    assert_eq!(paths(&own), [("lo", "fe80::2".to_string())], "{own:#?}");
}

#[test]
fn own_addresses_are_those_of_every_interface_that_is_up() {
    if !in_own_network(
        "own_addresses_are_those_of_every_interface_that_is_up",
        "
        for i in wan0 cable0 down0 lost0; do
            ip link add $i type veth peer name peer-$i; ip link set $i addrgenmode none up
            case $i in lost0) ;; *) ip link set peer-$i addrgenmode none up;; esac
        done
        ip link add docker0 type bridge; ip link set docker0 addrgenmode none up
        ip addr add 192.168.5.1/24 dev cable0; ip addr add fd00:5::1/64 dev cable0 nodad
        ip addr add 10.1.0.1/24 dev wan0; ip addr add 2001:db8:1::1/64 dev wan0 nodad
        ip addr add 2001:db8:1::9/64 dev wan0 nodad preferred_lft 0
        ip route add default via 10.1.0.254
        ip addr add fe80::1/64 dev cable0 nodad; ip addr add 169.254.7.7/16 dev cable0
        ip addr add 10.2.0.1/24 dev down0; ip link set down0 down
        ip addr add 10.3.0.1/24 dev lost0; ip addr add 172.17.0.1/16 dev docker0
        ",
    ) {
        return;
    }
    // What leads to everywhere is what most others reach, whatever came first.
    // No zone is needed for 169.254.0.0/16: two hosts on one cable without DHCP have nothing else.
    let own: Vec<String> = own_addresses().iter().map(ToString::to_string).collect();
    assert_eq!(own[..3], ["10.1.0.1", "192.168.5.1", "169.254.7.7"]);
    let mut further = own[3..].to_vec();
    further.sort();
    assert_eq!(further, ["2001:db8:1::1", "fd00:5::1"]);
    let number = interface_index("cable0").unwrap();
    assert_eq!(interface_index(&number.to_string()).unwrap(), number);
    let unknown = interface_index("cable9").unwrap_err();
    assert_eq!(unknown.source.kind(), std::io::ErrorKind::NotFound);
    let unknown = unknown.to_string();
    assert!(unknown.contains("'cable9'") && unknown.contains("lo, "), "{unknown}");
    assert!(unknown.contains("cable0"), "{unknown}");
}

#[test]
fn a_socket_to_this_host_binds_to_no_device() {
    if !in_own_network(
        "a_socket_to_this_host_binds_to_no_device",
        "
        ip link add wan0 type veth peer name wan1; ip link set wan0 addrgenmode none up
        ip link set wan1 addrgenmode none up; ip addr add 10.1.0.1/24 dev wan0
        ip addr add 2001:db8:1::1/64 dev wan0 nodad; ip addr add fe80::1/64 dev wan0 nodad
        ip route add default via 10.1.0.254
        ",
    ) {
        return;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let port = 7_707;
        let _listening = listen(&[], port).unwrap();
        let scope = interface_index("wan0").unwrap();
        let link_local = SocketAddrV6::new("fe80::1".parse().unwrap(), port, 0, scope);
        let targets = ["127.0.0.1:7707", "[::1]:7707", "10.1.0.1:7707", "[2001:db8:1::1]:7707"];
        let targets = targets.map(|to| to.parse().unwrap());
        for remote in targets.into_iter().chain([SocketAddr::from(link_local)]) {
            let path = discover_remote(remote).unwrap().usable.remove(0);
            assert_eq!((path.interface.as_str(), path.device()), ("lo", None), "{remote}");
            let attempt = Attempt {
                device: path.device().map(String::from),
                local: path.address,
                remote,
                congestion_control: CongestionControl::default(),
                small_segments: false,
            };
            let opened = tokio::time::timeout(Duration::from_secs(10), connect(&attempt)).await;
            opened.expect("an answer").unwrap_or_else(|error| panic!("{remote}: {error}"));
            let patience = Duration::from_secs(10);
            let time = connect_time(&path, remote, patience).await;
            time.unwrap_or_else(|error| panic!("{remote}: {error}"));
        }
    });
}
