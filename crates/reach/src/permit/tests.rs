use proptest::prelude::*;

use super::*;

fn reach(text: &str) -> Reach {
    text.parse().expect(text)
}

fn may(rights: &str, name: Option<&str>, address: &str, port: u16) -> bool {
    reach(rights).permits(name, address.parse().expect(address), port)
}

#[test]
fn targets_permit_what_they_name_and_nothing_else() {
    for (rights, name, address, port, expected) in [
        ("*:443", Some("example.org"), "192.0.2.7", 443, true),
        ("*:443", None, "2001:db8::7", 443, true),
        ("*:443", None, "192.0.2.7", 80, false),
        ("db.internal:5432", Some("DB.Internal."), "10.1.2.3", 5_432, true),
        ("db.internal:5432", Some("xdb.internal"), "10.1.2.3", 5_432, false),
        ("db.internal:5432", None, "10.1.2.3", 5_432, false),
        ("*.internal:*", Some("a.b.internal"), "10.1.2.3", 1, true),
        ("*.internal:*", Some("internal"), "10.1.2.3", 1, false),
        ("*.internal:*", Some(".internal"), "10.1.2.3", 1, false),
        ("10.0.0.0/8:22", Some("anything"), "10.255.0.1", 22, true),
        ("10.0.0.0/8:22", None, "11.0.0.1", 22, false),
        ("10.0.0.0/8:22", None, "::ffff:10.0.0.1", 22, true),
        ("10.0.0.0/8:22", None, "64:ff9b::a00:1", 22, true),
        ("[2001:db8::/32]:22", None, "2001:db8:1::1", 22, true),
        ("[2001:db8::/32]:22", None, "2001:db9::1", 22, false),
        ("192.0.2.7:80-90", None, "192.0.2.7", 90, true),
        ("192.0.2.7:80-90", None, "192.0.2.8", 90, false),
        ("a:1,192.0.2.7:80-90,b:2", None, "192.0.2.7", 80, true),
        ("0.0.0.0/0:*", None, "192.0.2.7", 80, true),
    ] {
        assert_eq!(may(rights, name, address, port), expected, "{rights} {name:?} {address}");
    }
    assert!(!Reach::default().permits(Some("a"), "192.0.2.7".parse().unwrap(), 80));
}

#[test]
fn protected_addresses_are_named_or_refused() {
    let protected = [
        "127.0.0.1",
        "127.9.9.9",
        "0.0.0.0",
        "169.254.169.254",
        "224.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::7f00:1",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "64:ff9b::a9fe:a9fe",
        "fe80::1",
        "ff02::1",
        "fd00:ec2::254",
        "fd20:ce::254",
        "100.100.100.200",
        "168.63.129.16",
        "192.0.0.192",
    ];
    for address in protected {
        assert_protected(address.parse().unwrap());
    }
    for address in ["100.100.100.201", "168.63.129.17", "192.0.0.191", "fd20:ce::253"] {
        assert!(may("*:*", Some("metadata.internal"), address, 80), "{address}");
    }
    assert!(may("127.0.0.1:80", None, "127.0.0.1", 80));
    assert!(may("127.0.0.0/8:80", Some("anything"), "127.0.0.1", 80));
    assert!(may("169.254.169.254:80", None, "::ffff:169.254.169.254", 80));
    assert!(may("[::1]:80", None, "::1", 80));
    assert!(may("[fe80::/10]:80", None, "fe80::1", 80));
    assert!(!may("126.0.0.0/7:80", None, "127.0.0.1", 80), "it has others too");
}

/// Rights that name more than protected addresses.
const BROAD: [&str; 6] = [
    "*:*",
    "0.0.0.0/0:*,[::/0]:*",
    "metadata.internal:*",
    "*.internal:*",
    "[2002::/16]:*,[2001::/32]:*,[2000::/3]:*",
    "[64:ff9b::/32]:*,[64:ff9b:1::/48]:*,[64:ff9b:1::/96]:*",
];

#[track_caller]
fn assert_protected(address: IpAddr) {
    for rights in BROAD {
        let is_permitted = reach(rights).permits(Some("metadata.internal"), address, 80);
        assert!(!is_permitted, "{rights} {address}");
    }
}

/// The addresses of IPv6 that lead to one of IPv4, with these bits where it leaves any.
fn ways(to: Ipv4Addr, other: u128) -> Vec<Ipv6Addr> {
    let inside = u128::from(to.to_bits());
    let (first, second) = (inside >> 16, inside & 0xffff);
    let low = |bits: u32| other & ((1 << bits) - 1);
    let (own, teredo) = (0x64_ff9b_0001 << 80, 0x2001 << 112);
    let ways = [
        inside,
        0xffff << 32 | inside,
        0xffff << 48 | inside,
        0x64_ff9b << 96 | inside,
        own | inside,
        // RFC 6052, section 2.4, for prefixes of 48, 56 and 64 bits, with bits behind the address.
        own | first << 64 | second << 40 | low(40),
        own | 0xaa << 72 | inside >> 24 << 64 | (inside & 0xff_ffff) << 32 | low(32),
        own | 0xaabb << 64 | inside << 24 | low(24),
        0x2002 << 112 | inside << 80 | low(80),
        teredo | inside << 64 | low(64),
        teredo | low(64) << 32 | (inside ^ 0xffff_ffff),
        0x2001_0db8 << 96 | low(32) << 64 | 0x5efe << 32 | inside,
        0x2001_0db8 << 96 | low(32) << 64 | 0x0200_5efe << 32 | inside,
    ];
    ways.map(Ipv6Addr::from_bits).into()
}

#[test]
fn what_leads_to_a_protected_address_is_protected() {
    for address in [
        "64:ff9b::7f00:1",
        "64:ff9b:1::a9fe:a9fe",
        "64:ff9b:1:a9fe:a9:fe00::",
        "64:ff9b:1:00a9:fe:a9fe::",
        "64:ff9b:1:0:a9:fea9:fe00::",
        "2002:a9fe:a9fe::1",
        "2002:7f00:1:9::7",
        "2001:0:a9fe:a9fe::",
        "2001:0:c000:201:0:0:5601:5601",
        "2001:db8::5efe:169.254.169.254",
        "2001:db8::200:5efe:127.0.0.1",
        "::ffff:0:127.0.0.1",
        "::169.254.169.254",
        "2002:6464:64c8::",
    ] {
        assert_protected(address.parse().expect(address));
    }
    for address in ["64:ff9b:1::a00:1", "2002:a00:1::1", "2001:db8::5efe:10.0.0.1"] {
        assert!(may("*:*", None, address, 80), "{address}");
    }
    for (rights, address) in [
        ("[2002:7f00:1::/48]:*", "2002:7f00:1:9::7"),
        ("[2002:7f00::/24]:*", "2002:7f00:1:9::7"),
        ("[2001:0:a9fe::/48]:*", "2001:0:a9fe:1::"),
        ("[64:ff9b:1::a9fe:0/112]:*", "64:ff9b:1::a9fe:a9fe"),
        ("[2001:db8::5efe:7f00:1]:*", "2001:db8::5efe:7f00:1"),
        ("[64:ff9b:1:a9fe:a9:fe00::]:*", "64:ff9b:1:a9fe:a9:fe00::"),
        ("127.0.0.1:*", "64:ff9b::7f00:1"),
    ] {
        assert!(may(rights, None, address, 80), "{rights} {address}");
    }
    assert!(!may("[2002:7e00::/23]:*", None, "2002:7f00:1::", 80), "it has others too");
}

#[test]
fn localhost_is_loopback_and_no_other_address() {
    assert!(may("localhost:80", Some("localhost"), "127.0.0.1", 80));
    assert!(may("localhost:80", Some("LOCALHOST"), "::1", 80));
    assert!(!may("localhost:80", Some("localhost"), "192.0.2.7", 80));
    assert!(!may("localhost:80", Some("other"), "127.0.0.1", 80));
    assert!(!may("localhost:80", None, "127.0.0.1", 80));
}

#[test]
fn only_names_that_may_lead_somewhere_are_resolved() {
    assert!(reach("db.internal:1").may_resolve(1, "db.internal"));
    assert!(!reach("db.internal:1").may_resolve(2, "db.internal"));
    assert!(!reach("db.internal:1").may_resolve(1, "other"));
    assert!(reach("10.0.0.0/8:1").may_resolve(1, "other"));
    assert!(reach("*:1").may_resolve(1, "other"));
}

#[test]
fn a_peer_listens_on_loopback_unless_more_is_named() {
    let may = |rights: &str, address: &str, port| {
        let rights: ListenRights = rights.parse().expect(rights);
        rights.permits(address.parse().expect(address), port)
    };
    assert!(may("2222", "127.0.0.1", 2_222));
    assert!(may("2222", "::1", 2_222));
    assert!(!may("2222", "0.0.0.0", 2_222));
    assert!(!may("2222", "192.0.2.7", 2_222));
    assert!(!may("2222", "127.0.0.1", 2_223));
    assert!(may("8000-8010,*:9000", "0.0.0.0", 9_000));
    assert!(may("0.0.0.0:9000", "::", 9_000));
    assert!(may("192.0.2.7:*", "192.0.2.7", 0));
    assert!(!may("192.0.2.7:*", "0.0.0.0", 80));
    assert!(!ListenRights::default().permits(Ipv4Addr::LOCALHOST.into(), 80));
}

#[test]
fn mistakes_are_reported() {
    for text in [
        "",
        "*",
        "host",
        "host:",
        "host:x",
        "host:90-80",
        "host:70000",
        "host:+1",
        ":80",
        "ho st:80",
        "*x:80",
        "a.*:80",
        "10.0.0.1/8:22",
        "10.0.0.0/33:22",
        "2001:db8::1:80",
        "[2001:db8::/129]:80",
        "[2001:db8::1/32]:80",
        "[host]:80",
        "a:1,,b:1",
    ] {
        assert!(text.parse::<Reach>().is_err(), "{text}");
    }
    for text in ["", "x", "host:80", "1-", "::1:80", "[127.0.0.1]:80", "1,"] {
        assert!(text.parse::<ListenRights>().is_err(), "{text}");
    }
}

proptest! {
    #[test]
    fn rights_are_read_as_they_were_written(
        host in "(\\*|[a-z]{1,8}(\\.[a-z]{1,5})?|\\*\\.[a-z]{1,8}|10\\.0\\.0\\.0/8|\\[::1\\])",
        ports in "(\\*|[1-9][0-9]{0,3}|1-9)",
    ) {
        let text = format!("{host}:{ports}");
        prop_assert_eq!(reach(&text).to_string(), text);
    }

    #[test]
    fn any_text_gives_rights_or_a_message(
        text in "\\PC{0,40}", other in "[0-9a-f:.,*/\\[\\]-]{0,30}",
    ) {
        for text in [text, other] {
            if let Ok(rights) = text.parse::<Reach>() {
                prop_assert_eq!(rights.to_string().parse(), Ok(rights));
            }
            if let Ok(rights) = text.parse::<ListenRights>() {
                prop_assert_eq!(rights.to_string().parse(), Ok(rights));
            }
        }
    }

    /// No way to write a protected address passes, whatever stands in the bits around it.
    #[test]
    fn no_way_to_write_a_protected_address_passes(
        network in 0usize..8, suffix: u32, other: u128,
    ) {
        let (first, bits) = [
            ("0.0.0.0", 8),
            ("100.100.100.200", 32),
            ("127.0.0.0", 8),
            ("168.63.129.16", 32),
            ("169.254.0.0", 16),
            ("192.0.0.192", 32),
            ("224.0.0.0", 4),
            ("255.255.255.255", 32),
        ][network];
        let first: Ipv4Addr = first.parse().unwrap();
        let to = Ipv4Addr::from_bits(first.to_bits() | suffix.unbounded_shr(bits));
        assert_protected(to.into());
        // A shorter prefix with an address of 0.0.0.0/8 is one of a longer prefix without any.
        let skipped = if network == 0 { 5..8 } else { 0..0 };
        for (at, way) in ways(to, other).into_iter().enumerate() {
            if !skipped.contains(&at) {
                assert_protected(way.into());
            }
        }
    }

    /// Networks beside a model that compares bit by bit.
    #[test]
    fn a_network_has_the_addresses_with_its_first_bits(own: u128, other: u128, bits in 0u8..=128) {
        let network = Network { address: Ipv6Addr::from_bits(own).into(), bits };
        let bit = |value: u128, at: u8| value >> (127 - at) & 1;
        let is_same = (0..bits).all(|at| bit(own, at) == bit(other, at));
        prop_assert_eq!(network.has(Ipv6Addr::from_bits(other).into()), is_same);
        let near = own ^ 1;
        prop_assert_eq!(network.has(Ipv6Addr::from_bits(near).into()), bits < 128);
    }
}
