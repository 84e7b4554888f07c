use peer::May;
use proptest::prelude::*;
use units::Rate;

use super::*;

#[test]
fn lines_round_trip() {
    let fingerprint = peer::Identity::generate().unwrap().fingerprint();
    let line = format!("  nas.example {fingerprint}  # in the cellar");
    assert_eq!(
        List::Receivers.parse(&line),
        Some(Ok(Peer { name: "nas.example".into(), fingerprint, rights: Rights::default() }))
    );
    let with_port = List::Receivers.parse(&format!("[2001:DB8::1]:80 {fingerprint}"));
    assert_eq!(with_port.unwrap().unwrap().name, "[2001:db8::1]:80");
    let sender = List::Senders.parse(&fingerprint.to_string());
    assert_eq!(
        sender,
        Some(Ok(Peer { name: String::new(), fingerprint, rights: Rights::default() }))
    );
    assert_eq!(List::Senders.parse("# nobody"), None);
    assert!(List::Receivers.parse("nas.example").unwrap().is_err());
    assert!(List::Receivers.parse(&format!("a b {fingerprint}")).unwrap().is_err());
}

#[test]
fn the_key_of_a_port_wins_over_that_of_its_host() {
    let key = |octet: u8| Fingerprint::from([octet; 32]);
    // As it may stand in the file: in any order and spelling, and without ports as before.
    let lines = [
        ("nas", 1),
        ("[nas]:80", 2),
        ("nas:81", 3),
        ("2001:DB8:0::1", 4),
        ("[2001:db8::1]:80", 5),
        ("[fe80::1%eth0]:80", 6),
        ("[alone]:80", 7),
    ];
    let parse = |(name, octet): (&str, u8)| {
        List::Receivers.parse(&format!("{name} {}", key(octet))).unwrap().unwrap()
    };
    let list: Vec<Peer> = lines.into_iter().map(parse).collect();
    for (to, octet) in [
        ("nas", Some(1)),
        ("nas:7707", Some(1)),
        ("nas:80", Some(2)),
        ("nas:81", Some(3)),
        ("2001:db8::1", Some(4)),
        ("[2001:db8::1]:81", Some(4)),
        ("[2001:db8::1]:80", Some(5)),
        ("[fe80::1%eth0]:80", Some(6)),
        ("fe80::1%eth0", None),
        ("[fe80::1%eth1]:80", None),
        ("alone:80", Some(7)),
        ("alone", None),
        ("other:80", None),
    ] {
        assert_eq!(key_of(&list, &to.parse().unwrap()), octet.map(key), "{to}");
    }
}

#[test]
fn rights_round_trip_and_mistakes_are_reported() {
    let fingerprint = peer::Identity::generate().unwrap().fingerprint();
    let parse = |rest: &str| List::Senders.parse(&format!("{fingerprint} {rest}")).unwrap();
    let line = "anna dir=/srv/photos may=both max=20mbit tunnel=*:443,a.b:1-9 listen=22 # why";
    let anna = parse(line).unwrap();
    let written = " may=both dir=/srv/photos max=20mbit tunnel=*:443,a.b:1-9 listen=22";
    assert_eq!(words(&anna.rights), written);
    let known = peer::Peer::from(anna.clone());
    assert_eq!((known.may(), known.max()), (May::Both, Some(Rate::mbit(20))));
    let tunnel = tunnel::TunnelRights::of(&known);
    assert_eq!(tunnel.reach, "*:443,a.b:1-9".parse().unwrap());
    assert_eq!(tunnel.listen, "22".parse().unwrap());
    assert_eq!(parse(&format!("anna{written}")).unwrap(), anna);
    assert_eq!(parse("anna may=send").unwrap().rights, Rights::default());
    assert_eq!(parse("may=get").unwrap().name, "");
    for (line, why) in [
        ("anna may=all", "may=: 'all' is not get, send, both, none, relay or feed"),
        ("anna max=fast", "max=: "),
        ("anna tunnel=*", "tunnel=: '*' is not HOST:PORT"),
        ("anna listen=a:1", "listen=: "),
        ("anna dir=", "dir=: expected a folder"),
        ("anna dir=photos/../..", "dir=: '..' would lead out of the folder"),
        ("anna rate=5mbit", "'rate=5mbit' is no option; the options are may=get"),
        ("anna bert", "'bert' is no option"),
    ] {
        let error = parse(line).unwrap_err();
        assert!(error.contains(why), "{line}: {error}");
    }
}

#[test]
fn a_change_of_the_list_counts_and_a_mistake_changes_nothing() {
    let home = std::env::temp_dir().join(format!("anabranch-peers-{}", std::process::id()));
    let dirs = Dirs::below(&home);
    let key = peer::Identity::generate().unwrap().fingerprint();
    let anna = Peer { name: "anna".into(), fingerprint: key, rights: Rights::default() };
    List::Senders.add(&dirs, anna).unwrap();
    let mut authorized = Authorized::load(&dirs).unwrap();
    let name = |authorized: &Authorized| authorized.peers.find(key).map(|peer| peer.name);
    assert_eq!((authorized.look(), name(&authorized)), (None, Some("anna".into())));

    let path = dirs.authorized_peers();
    fs::write(&path, format!("{key} bert rate=5mbit\n")).unwrap();
    let told = authorized.look().unwrap();
    assert!(told.contains("line 1") && told.contains("still counts"), "{told}");
    assert_eq!(name(&authorized), Some("anna".into()));
    assert_eq!(authorized.look(), None, "it is told once");

    fs::write(&path, format!("{key} bert\n")).unwrap();
    assert!(authorized.look().unwrap().contains("1 hosts"));
    assert_eq!(name(&authorized), Some("bert".into()));
    fs::remove_file(&path).unwrap();
    assert!(authorized.look().is_some());
    assert_eq!(name(&authorized), None);
    fs::remove_dir_all(home).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever stands in names and folders: a peer that is written is read back as it was,
    /// beside those that were there before, or it is refused and nothing changes.
    #[test]
    fn what_is_written_is_read_back_or_refused(
        name in "(\\PC{0,8}|[a-z#= \t\n\r\u{85}\u{a0}\u{2028}\u{0}.:/@-]{0,6}|may=get|dir=x)",
        folder in "(\\PC{1,8}|[a-z#= \t\n\r\u{85}\u{a0}\u{2028}\u{0}./-]{1,6})",
        bits in 1u64..,
        may in prop::sample::select(vec![
            May::Get,
            May::Send,
            May::Both,
            May::None,
            May::Relay,
            May::Feed,
        ]),
    ) {
        let home = std::env::temp_dir().join(format!("anabranch-lines-{}", std::process::id()));
        let dirs = Dirs::below(&home);
        let key = |octet| Fingerprint::from([octet; 32]);
        let mut rights = Rights::default();
        for word in [
            format!("may={may}"),
            format!("dir={folder}"),
            format!("max={bits}bit/s"),
            "tunnel=*.a:1-2,[::1]:*".into(),
            "listen=*:80".into(),
        ] {
            // What is no folder is refused here.
            prop_assert!(set_right(&mut rights, &word).unwrap().is_ok() || word.starts_with("dir"));
        }
        for (list, rights) in [(List::Senders, rights), (List::Receivers, Rights::default())] {
            let known =
    Peer { name: "known".into(), fingerprint: key(1), rights: Rights::default() };
            list.add(&dirs, known.clone()).unwrap();
            let peer = Peer { name: name.clone(), fingerprint: key(2), rights };
            let expected = match list.add(&dirs, peer.clone()) {
                Ok(()) => vec![known, peer],
                Err(error) => {
                    prop_assert!(error.to_string().contains("one word"), "{}", error);
                    vec![known]
                }
            };
            prop_assert_eq!(list.load(&dirs).unwrap(), expected);
        }
        fs::remove_dir_all(home).unwrap();
    }
}

#[test]
fn any_edit_of_a_line_gives_a_peer_or_a_message() {
    let fingerprint = peer::Identity::generate().unwrap().fingerprint();
    let line = format!("nas.example {fingerprint}");
    for at in 0..line.len() {
        for with in ["", " ", "#", "ü", "=", "1", "\t\u{0}"] {
            for kept in [at, at + 1] {
                let text = [&line[..at], with, &line[kept..]].concat();
                for list in [List::Receivers, List::Senders] {
                    if let Some(Err(why)) = list.parse(&text) {
                        assert!(!why.is_empty(), "{text}");
                    }
                }
            }
        }
    }
}
