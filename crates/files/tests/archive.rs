//! Owners, modes and extended attributes (`--archive`).
//!
//! Only root may give files away, and not in every container: without that right the tests check
//! what is said instead.

mod common;

use std::fs::{self, File};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown, symlink};
use std::path::{Path, PathBuf};

use common::{
    Host, Scratch, fetch_options, parties, receive_options, send_options, serve_options, unheard,
};
use events::{Action, Event, Summary};
use files::Error;
use rustix::fs::{XattrFlags, getxattr, setxattr};

/// A user and a group that are not this process's.
const OTHER: (u32, u32) = (12_345, 23_456);

/// Whether this process may give files away.
fn may_chown(scratch: &Scratch) -> bool {
    let probe = scratch.file("probe", 0);
    chown(&probe, Some(OTHER.0), Some(OTHER.1)).is_ok()
}

fn set(path: &Path, name: &str, value: &[u8]) {
    setxattr(path, name, value, XattrFlags::empty()).expect("the file system has attributes");
}

fn get(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut value = vec![0; 100_000];
    let length = getxattr(path, name, &mut value[..]).ok()?;
    value.truncate(length);
    Some(value)
}

/// An access list that names another user: read for the owner and for them.
fn access_list(user: u32) -> Vec<u8> {
    let none = u32::MAX;
    let entries =
        [(1u16, 6u16, none), (2, 4, user), (4, 0, none), (0x10, 4, none), (0x20, 0, none)];
    let mut bytes = 2u32.to_le_bytes().to_vec();
    for (tag, rights, id) in entries {
        bytes.extend([&tag.to_le_bytes()[..], &rights.to_le_bytes(), &id.to_le_bytes()].concat());
    }
    bytes
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).expect("it is there").mode() & 0o7777
}

fn owner(path: &Path) -> (u32, u32) {
    let metadata = fs::symlink_metadata(path).expect("it is there");
    (metadata.uid(), metadata.gid())
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("its mode is set");
}

/// A folder `out/tree` with a bit of everything, of other users as far as that `is_possible`.
fn tree(scratch: &Scratch, is_possible: bool) -> PathBuf {
    let tree = scratch.0.join("out/tree");
    fs::create_dir_all(tree.join("folder")).expect("folders");
    fs::write(tree.join("program"), "small").expect("a file");
    fs::write(tree.join("large"), vec![7; 700_000]).expect("a file");
    fs::write(tree.join("plain"), "x").expect("a file");
    fs::hard_link(tree.join("program"), tree.join("second")).expect("a name");
    symlink("program", tree.join("link")).expect("a link");
    if is_possible {
        for name in ["program", "folder", "large"] {
            chown(tree.join(name), Some(OTHER.0), Some(OTHER.1)).expect("it may");
        }
        lchown(tree.join("link"), Some(OTHER.0), Some(OTHER.1)).expect("it may");
    }
    set(&tree.join("program"), "user.note", b"\x00any bytes\xff");
    set(&tree.join("folder"), "user.empty", b"");
    set(&tree.join("large"), "system.posix_acl_access", &access_list(OTHER.0));
    set_mode(&tree.join("program"), 0o4751);
    set_mode(&tree.join("folder"), 0o2770);
    tree
}

/// What a transfer ended with, and what it said.
struct Outcome {
    result: Result<Summary, Error>,
    events: Vec<Event>,
}

impl Outcome {
    fn notices(&self) -> String {
        let notices = self.events.iter().filter_map(|event| match event {
            Event::Notice { text } => Some(text.as_str()),
            _ => None,
        });
        notices.collect::<Vec<_>>().join("\n")
    }

    fn planned(&self) -> Vec<(Action, String)> {
        let found = self.events.iter().find_map(|event| match event {
            Event::DryRun(dry_run) => Some(dry_run),
            _ => None,
        });
        let changes = &found.expect("a dry run").changes;
        changes.iter().map(|change| (change.action, change.name.clone())).collect()
    }
}

/// How `tree` is transferred.
#[derive(Clone, Copy, Default)]
#[expect(clippy::struct_excessive_bools, reason = "independent switches")]
struct How {
    by_get: bool,
    without_consent: bool,
    plainly: bool,
    dry_run: bool,
    overwrite: bool,
}

async fn transfer(scratch: &Scratch, how: How) -> Outcome {
    let (identity, token) = parties();
    let (events, mut heard) = unheard();
    let change = |transfer: &mut files::TransferOptions| {
        (transfer.dry_run, transfer.overwrite) = (how.dry_run, how.overwrite);
    };
    let result = if how.by_get {
        let serving = Host::serve(serve_options(&scratch.0.join("out"), &identity, &token)).await;
        let mut options = fetch_options(scratch, &["tree"], serving.port, &token);
        options.selection.archive = !how.plainly;
        change(&mut options.transfer);
        let got = files::fetch(options, events).await;
        serving.task.abort();
        got
    } else {
        let mut options = receive_options(scratch, &identity, &token);
        options.archive = !how.without_consent;
        let receiving = Host::receive(options).await;
        let source = scratch.0.join("out/tree");
        let mut options = send_options(&[&source], receiving.port, &token);
        options.selection.archive = !how.plainly;
        change(&mut options.transfer);
        let sent = files::send(options, events).await;
        if let Ok(sent) = sent.as_ref()
            && !how.dry_run
        {
            let received = receiving.outcome().await.expect("received");
            let lost = |summary: &Summary| (summary.lost_owners, summary.lost_attributes);
            assert_eq!(lost(&received), lost(sent), "both sides know");
        } else {
            receiving.task.abort();
        }
        sent
    };
    let mut events = Vec::new();
    while let Some(event) = heard.try_recv() {
        events.push(event);
    }
    Outcome { result, events }
}

/// Compares what arrived with the source; `with_owners` if these could be set.
fn check(source: &Path, target: &Path, with_owners: bool) {
    for name in ["program", "second", "folder", "large", "plain", "link"] {
        let (from, to) = (source.join(name), target.join(name));
        assert_eq!(owner(&from) == owner(&to), with_owners || name == "plain", "{name}");
        if with_owners {
            assert_eq!(mode(&from), mode(&to), "{name}");
        }
        for attribute in ["user.note", "user.empty", "system.posix_acl_access"] {
            if name != "link" {
                assert_eq!(get(&from, attribute), get(&to, attribute), "{name}: {attribute}");
            }
        }
    }
    assert_eq!(fs::read(target.join("program")).expect("a file"), b"small");
    let inode = |name: &str| fs::metadata(target.join(name)).expect("it is there").ino();
    assert_eq!(inode("program"), inode("second"));
    assert!(!target.join(".anabranch-partial").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn owners_modes_and_attributes_arrive() {
    for by_get in [false, true] {
        let scratch = Scratch::new(&format!("archive-{by_get}"));
        let is_possible = may_chown(&scratch);
        let source = tree(&scratch, is_possible);
        let outcome = transfer(&scratch, How { by_get, ..How::default() }).await;
        let summary = outcome.result.as_ref().expect("transferred");
        assert_eq!((summary.lost_owners, summary.lost_attributes), (0, 0));
        check(&source, &scratch.inbox().join("tree"), true);
        assert!(!outcome.notices().contains("owner"), "{}", outcome.notices());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_it_arrives_unless_it_is_asked_for() {
    for by_get in [false, true] {
        let scratch = Scratch::new(&format!("plain-{by_get}"));
        tree(&scratch, may_chown(&scratch));
        let outcome = transfer(&scratch, How { by_get, plainly: true, ..How::default() }).await;
        outcome.result.expect("transferred");
        let target = scratch.inbox().join("tree");
        assert_eq!(owner(&target.join("program")), owner(&scratch.inbox()));
        assert_eq!(mode(&target.join("program")), 0o751);
        assert_eq!(get(&target.join("program"), "user.note"), None);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_keeps_owners_only_if_it_agreed() {
    let scratch = Scratch::new("consent");
    tree(&scratch, false);
    for dry_run in [false, true] {
        let how = How { without_consent: true, dry_run, ..How::default() };
        let error = transfer(&scratch, how).await.result.expect_err("it is refused");
        assert!(error.exit_code() == 4, "{error}");
        assert!(error.to_string().contains("anabranch receive --archive"), "{error}");
        assert!(fs::read_dir(scratch.inbox()).expect("a folder").next().is_none());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_owners_and_attributes_are_set_without_sending_data() {
    for by_get in [false, true] {
        let scratch = Scratch::new(&format!("changed-{by_get}"));
        let is_possible = may_chown(&scratch);
        let (source, target) = (tree(&scratch, false), scratch.inbox().join("tree"));
        let how = How { by_get, ..How::default() };
        transfer(&scratch, how).await.result.expect("transferred");
        let inode = |name: &str| fs::metadata(target.join(name)).expect("it is there").ino();
        let before = inode("large");
        set(&source.join("program"), "user.note", b"changed");
        set(&source.join("plain"), "user.more", &[8; 2_000]);
        rustix::fs::removexattr(source.join("large"), "system.posix_acl_access").expect("removed");
        set_mode(&source.join("large"), 0o640);
        set_mode(&source.join("folder"), 0o1777);
        let mut changed = vec!["tree/folder", "tree/large", "tree/plain", "tree/program"];
        if is_possible {
            chown(source.join("folder"), Some(OTHER.0), Some(OTHER.1)).expect("it may");
            chown(source.join("large"), Some(OTHER.0), Some(OTHER.1)).expect("it may");
            lchown(source.join("link"), Some(OTHER.0), Some(OTHER.1)).expect("it may");
            changed.insert(2, "tree/link");
        }
        let planned = transfer(&scratch, How { dry_run: true, ..how }).await.planned();
        let wanted = changed.iter().map(|name| (Action::Update, (*name).to_string()));
        assert_eq!(planned, wanted.collect::<Vec<_>>());
        assert_eq!(get(&target.join("program"), "user.note").expect("one"), b"\x00any bytes\xff");
        let outcome = transfer(&scratch, how).await;
        assert_eq!(outcome.result.as_ref().expect("transferred").moved.0, 0);
        let said = format!("set owner, mode or attributes of {} files", changed.len());
        assert!(outcome.notices().contains(&said), "{}", outcome.notices());
        check(&source, &target, true);
        assert_eq!((inode("large"), mode(&target.join("large"))), (before, 0o640));
        assert_eq!(get(&target.join("plain"), "user.more").expect("one").len(), 2_000);
        // Now there is nothing left to do.
        assert_eq!(transfer(&scratch, How { dry_run: true, ..how }).await.planned(), []);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_of_another_user_does_not_become_a_privileged_program() {
    let scratch = Scratch::new("forged");
    let is_possible = may_chown(&scratch);
    let (source, target) = (tree(&scratch, false), scratch.inbox().join("tree"));
    transfer(&scratch, How::default()).await.result.expect("transferred");
    // Somebody who may write to the folder there makes a file of the same size and time.
    let real = File::open(source.join("program")).expect("a file");
    let time = real.metadata().expect("it is there").modified().expect("a time");
    for name in ["program", "second"] {
        fs::remove_file(target.join(name)).expect("it was there");
    }
    fs::write(target.join("program"), "shell").expect("a file");
    fs::hard_link(target.join("program"), target.join("second")).expect("a name");
    let forged = File::options().write(true).open(target.join("program")).expect("a file");
    forged.set_modified(time).expect("its time is set");
    if !is_possible {
        // Files of this user cannot be told from those that it received.
        return;
    }
    chown(target.join("program"), Some(OTHER.0), Some(OTHER.1)).expect("it may");
    let error = transfer(&scratch, How::default()).await.result.expect_err("it exists");
    assert_eq!(error.exit_code(), 8, "{error}");
    assert_eq!(mode(&target.join("program")) & 0o6000, 0);
    let how = How { overwrite: true, ..How::default() };
    assert!(transfer(&scratch, how).await.result.expect("transferred").moved.0 > 0);
    check(&source, &target, true);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_with_a_name_elsewhere_is_not_changed_in_place() {
    let scratch = Scratch::new("elsewhere");
    let (source, target) = (tree(&scratch, false), scratch.inbox().join("tree"));
    transfer(&scratch, How::default()).await.result.expect("transferred");
    let elsewhere = scratch.0.join("elsewhere");
    fs::hard_link(target.join("plain"), &elsewhere).expect("a name");
    let before = mode(&elsewhere);
    set_mode(&source.join("plain"), 0o666);
    let error = transfer(&scratch, How::default()).await.result.expect_err("it exists");
    assert_eq!((error.exit_code(), mode(&elsewhere)), (8, before), "{error}");
    let how = How { overwrite: true, ..How::default() };
    transfer(&scratch, how).await.result.expect("transferred");
    assert_eq!((mode(&elsewhere), mode(&target.join("plain"))), (before, 0o666));
    check(&source, &target, true);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_existing_file_is_left_with_its_attributes() {
    let scratch = Scratch::new("left");
    let (source, target) = (tree(&scratch, false), scratch.inbox().join("tree"));
    transfer(&scratch, How::default()).await.result.expect("transferred");
    set(&source.join("plain"), "user.more", b"new");
    let (identity, token) = parties();
    let mut options = receive_options(&scratch, &identity, &token);
    options.archive = true;
    let receiving = Host::receive(options).await;
    let mut options = send_options(&[&source], receiving.port, &token);
    options.selection.archive = true;
    options.transfer.keep_existing = true;
    common::send(options).await.expect("sent");
    assert_eq!(get(&target.join("plain"), "user.more"), None);
}
