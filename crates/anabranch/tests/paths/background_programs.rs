//! Other programs in the background: the commands of docs/background.md, with the real programs,
//! through `tunnel --background`.

use std::fs;

use super::hosts::Host;
use super::needs::are_installed;
use super::running::Running;
use super::tunnels::{serve, tunnel};
use super::{two_hosts, uplink};

/// Two hosts with a tunnel in the background between them, which forwards this port of the near one
/// to one of the far one's loopback; what is to be copied is in `data`.
fn forwarding(test: &str, programs: &[&str], work: impl FnOnce(&Host, &Host, &str)) {
    if !are_installed(programs) {
        return;
    }
    let Some((_scratch, near, far)) = two_hosts(test) else { return };
    uplink(&near, &far);
    let data = near.home.join("data/folder");
    fs::create_dir_all(&data).expect("there is room");
    for number in 0..20_u8 {
        fs::write(data.join(format!("{number}.bin")), vec![number; 100_000])
            .expect("there is room");
    }
    let (_server, token) = serve(&far, "127.0.0.1:9000");
    work(&near, &far, &token);
    // Nothing of it was in the clear, or beside the tunnel.
    near.sh("! ss -Htn state established dst 10.1.0.2 | grep -q .");
}

fn forward(near: &Host, token: &str) -> Running {
    tunnel(near, token, &["--background", "-L", "9001:127.0.0.1:9000"])
}

/// Whether a copy of the data is at a host's folder.
fn is_copied(near: &Host, host: &Host, folder: &str) -> bool {
    (0..20).all(|number| {
        let file = format!("folder/{number}.bin");
        let copy = fs::read(host.home.join(folder).join(&file));
        copy.is_ok_and(|copy| copy == fs::read(near.home.join("data").join(&file)).expect("it is"))
    })
}

#[test]
fn rclone_copies_in_the_background() {
    let test = "background_programs::rclone_copies_in_the_background";
    forwarding(test, &["rclone"], |near, far, token| {
        let arguments = ["serve", "webdav", "--addr", "127.0.0.1:9000", "inbox"];
        let mut server = Running::start(far, "rclone", "rclone", &arguments);
        server.until("127.0.0.1:9000");
        let _tunnel = forward(near, token);
        let home = near.home.display();
        near.sh(&format!(
            "export HOME={home}; rclone copy {home}/data \":webdav,url='http://127.0.0.1:9001':\""
        ));
        assert!(is_copied(near, far, "inbox"));
    });
}

#[test]
fn restic_keeps_and_restores_in_the_background() {
    let test = "background_programs::restic_keeps_and_restores_in_the_background";
    forwarding(test, &["restic", "rclone"], |near, far, token| {
        let arguments = ["serve", "restic", "--addr", "127.0.0.1:9000", "inbox"];
        let mut server = Running::start(far, "rclone", "rclone", &arguments);
        server.until("127.0.0.1:9000");
        let _tunnel = forward(near, token);
        let home = near.home.display();
        near.sh(&format!(
            "export HOME={home} RESTIC_PASSWORD=secret RESTIC_REPOSITORY=rest:http://127.0.0.1:9001/
             restic init && cd {home}/data && restic backup folder
             restic restore latest --target {home}/restored"
        ));
        assert!(is_copied(near, near, "restored"));
    });
}
