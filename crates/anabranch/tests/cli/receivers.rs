//! Known receivers: a host, or one of its ports.

use std::fs;

use crate::home::{Home, receiver};

/// The fingerprint of a home's key.
fn key_of(home: &Home) -> String {
    home.run(&["keys"]).1.trim().to_string()
}

#[test]
fn a_key_counts_at_its_port_before_that_of_the_host() {
    let (far, near, stranger) = (Home::new(), Home::new(), Home::new());
    let (key, other) = (key_of(&far), key_of(&stranger));
    let trust = |host: &str, key: &str| {
        let (code, _, stderr) = near.run(&["keys", "trust", "receiver", host, key]);
        assert_eq!(code, 0, "{host}: {stderr}");
    };
    let inbox = far.0.join("inbox");
    fs::create_dir(&inbox).unwrap();
    let allowed = far.run(&["keys", "trust", "sender", &key_of(&near)]);
    assert_eq!(allowed.0, 0, "{}", allowed.2);
    let (_receiver, address, _) = receiver(&far, &inbox, &[]);
    let source = near.file("data", b"whole");
    let send = ["send", source.to_str().unwrap(), "--to", &address];

    // The key of the host is right, and that of this port is not.
    trust("127.0.0.1", &key);
    trust(&address, &other);
    let (code, _, stderr) = near.run(&send);
    assert_eq!(code, 4, "{stderr}");
    let remedy = format!("'anabranch keys trust receiver {address} FINGERPRINT' here replaces");
    assert!(stderr.contains(&remedy), "{stderr}");

    // As it says; that of the host does not count.
    trust(&address, &key);
    trust("127.0.0.1", &other);
    let port = address.rsplit_once(':').unwrap().1;
    let list = fs::read_to_string(near.0.join("known_receivers")).unwrap();
    assert!(list.ends_with(&format!("[127.0.0.1]:{port} {key}\n127.0.0.1 {other}\n")), "{list}");
    let (code, _, stderr) = near.run(&send);
    assert_eq!(code, 0, "{stderr}");
    assert_eq!(fs::read(inbox.join("data")).unwrap(), b"whole");

    let listed = near.run(&["keys", "list"]).1;
    assert!(listed.contains(&format!("receiver  {key}  [127.0.0.1]:{port}\n")), "{listed}");
    assert_eq!(near.run(&["keys", "remove", "receiver", "127.0.0.1:1"]).0, 2);
    assert_eq!(near.run(&["keys", "remove", "receiver", &address]).0, 0);
    let list = fs::read_to_string(near.0.join("known_receivers")).unwrap();
    assert!(list.ends_with(&format!("'\n127.0.0.1 {other}\n")), "the other stays: {list}");
}
