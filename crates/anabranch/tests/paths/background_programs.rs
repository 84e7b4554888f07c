//! Other programs in the background: the commands of docs/background.md, with the real programs,
//! through `tunnel --background`.

use std::fs;

use super::hosts::Host;
use super::needs::are_installed;
use super::tunnels::{Running, serve, tunnel};
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
fn rsync_copies_in_the_background() {
    let test = "background_programs::rsync_copies_in_the_background";
    forwarding(test, &["rsync"], |near, far, token| {
        let inbox = far.home.join("inbox");
        let config = format!(
            "use chroot = no\npid file = {0}/rsync.pid\n[backup]\npath = {1}\nread only = no\nuid = \
             root\ngid = root\n",
            far.home.display(),
            inbox.display()
        );
        fs::write(far.home.join("rsyncd.conf"), config).expect("there is room");
        let daemon = ["--daemon", "--no-detach", "--address=127.0.0.1", "--port=9000"];
        let arguments = [&daemon[..], &["--config=rsyncd.conf"]].concat();
        let _daemon = Running::start(far, "rsync", "rsync", &arguments);
        let _tunnel = forward(near, token);
        let home = near.home.display();
        near.sh(&format!("sleep 0.5; rsync -a {home}/data/ rsync://127.0.0.1:9001/backup/"));
        assert!(is_copied(near, far, "inbox"));
    });
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

#[test]
fn borg_keeps_and_restores_in_the_background() {
    let test = "background_programs::borg_keeps_and_restores_in_the_background";
    forwarding(test, &["borg", "sshd", "ssh"], |near, far, token| {
        let (home, away) = (near.home.display(), far.home.display());
        near.sh(&format!(
            "ssh-keygen -q -N '' -t ed25519 -f {home}/key; ssh-keygen -q -N '' -t ed25519 -f \
             {away}/host; cp {home}/key.pub {away}/keys; mkdir -p /run/sshd"
        ));
        let options = format!(
            "-D -e -f /dev/null -h {away}/host -o ListenAddress=127.0.0.1:9000 -o UsePAM=no -o \
             StrictModes=no -o PidFile=none -o AuthorizedKeysFile={away}/keys"
        );
        let arguments: Vec<&str> = options.split(' ').collect();
        let mut server = Running::start(far, "sshd", "/usr/sbin/sshd", &arguments);
        server.until("Server listening");
        let _tunnel = forward(near, token);
        near.sh(&format!(
            "export HOME={home} BORG_PASSPHRASE=secret BORG_REPO=ssh://root@127.0.0.1:9001{away}/inbox/b
             export BORG_RSH='ssh -i {home}/key -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null'
             borg init -e repokey && cd {home}/data && borg create ::first folder
             mkdir {home}/restored && cd {home}/restored && borg extract ::first"
        ));
        assert!(is_copied(near, near, "restored"));
    });
}
