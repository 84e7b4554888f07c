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

/// The namespace's root may not set groups, as daemons of root do: they run as another user there.
fn as_user(program: &'static str) -> [&'static str; 3] {
    ["--user", "--map-user=1000", program]
}

#[test]
fn rsync_copies_to_a_daemon_in_the_background() {
    let test = "background_programs::rsync_copies_to_a_daemon_in_the_background";
    forwarding(test, &["rsync"], |near, far, token| {
        let inbox = far.home.join("inbox");
        fs::create_dir_all(&inbox).expect("there is room");
        let config = format!("[inbox]\npath = {}\nread only = no\n", inbox.display());
        fs::write(far.home.join("rsyncd.conf"), config + "use chroot = no\n")
            .expect("there is room");
        let place = ["--address", "127.0.0.1", "--port", "9000", "--config", "rsyncd.conf"];
        let arguments = ["--daemon", "--no-detach", "--log-file=/dev/stdout"];
        let arguments = [&as_user("rsync")[..], &arguments, &place].concat();
        let mut server = Running::start(far, "rsyncd", "unshare", &arguments);
        server.until("rsyncd version");
        let _tunnel = forward(near, token);
        let home = near.home.display();
        near.sh(&format!("rsync -a {home}/data/ rsync://127.0.0.1:9001/inbox/"));
        assert!(is_copied(near, far, "inbox"));
    });
}

#[test]
fn borg_keeps_and_restores_in_the_background() {
    let test = "background_programs::borg_keeps_and_restores_in_the_background";
    forwarding(test, &["borg", "ssh", "sshd"], |near, far, token| {
        let (own, other) = (near.home.display(), far.home.display());
        near.sh(&format!("ssh-keygen -q -t ed25519 -N '' -f {own}/ssh-key"));
        far.sh(&format!(
            "ssh-keygen -q -t ed25519 -N '' -f {other}/sshd-key
             echo keeper:x:1000:0::{other}:/bin/sh >{other}/passwd
             mount --bind {other}/passwd /etc/passwd"
        ));
        let config = format!(
            "ListenAddress 127.0.0.1\nPort 9000\nHostKey {other}/sshd-key\nPidFile none\nUsePAM \
             no\nStrictModes no\nAuthorizedKeysFile {own}/ssh-key.pub\n"
        );
        fs::write(far.home.join("sshd_config"), config).expect("there is room");
        let file = format!("{other}/sshd_config");
        let arguments = [&as_user("/usr/sbin/sshd")[..], &["-D", "-e", "-f", &file]].concat();
        let mut server = Running::start(far, "sshd", "unshare", &arguments);
        server.until("listening on 127.0.0.1 port 9000");
        let _tunnel = forward(near, token);
        near.sh(&format!(
            "export HOME={own} BORG_PASSPHRASE=secret BORG_BASE_DIR={own}
             export BORG_RSH='ssh -i {own}/ssh-key -o IdentitiesOnly=yes \
             -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null'
             export BORG_REPO=ssh://keeper@127.0.0.1:9001{other}/repository
             borg init --encryption repokey && cd {own}/data && borg create ::first folder
             mkdir {own}/restored && cd {own}/restored && borg extract ::first"
        ));
        assert!(is_copied(near, near, "restored"));
    });
}
