//! Whole trees over real sockets on loopback: every entry arrives unchanged, only changed files are
//! sent, and nothing outside the folder is written.

mod common;

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use common::{Host, Scratch, parties, receive_options, send, send_options};
use events::Summary;
use files::{Error, SendOptions, TransferOptions};
use peer::Timetable;
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};
use units::Rate;

/// The entry at a path.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Seen {
    what: What,
    mode: u32,
    mtime: (i64, i64),
    /// Allocated blocks of 512 bytes; only compared for files with holes.
    sparse: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum What {
    File(Vec<u8>),
    Folder,
    Link(PathBuf),
    /// The first name of the same file.
    Again(PathBuf),
}

/// Everything below a folder, by relative path.
fn picture(root: &Path) -> BTreeMap<PathBuf, Seen> {
    let mut seen = BTreeMap::new();
    let mut first = BTreeMap::new();
    let mut folders = vec![root.to_path_buf()];
    let mut paths = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if fs::symlink_metadata(&path).expect("it is there").is_dir() {
                folders.push(path.clone());
            }
            paths.push(path);
        }
    }
    paths.sort();
    for path in paths {
        let name = path.strip_prefix(root).expect("below").to_path_buf();
        let metadata = fs::symlink_metadata(&path).expect("it is there");
        let what = if metadata.is_dir() {
            What::Folder
        } else if metadata.is_symlink() {
            What::Link(fs::read_link(&path).expect("a link"))
        } else {
            let earlier: &PathBuf = first.entry(metadata.ino()).or_insert_with(|| name.clone());
            if *earlier == name {
                What::File(content(&path, metadata.len()))
            } else {
                What::Again(earlier.clone())
            }
        };
        let is_link = metadata.is_symlink();
        let seen_here = Seen {
            what,
            mode: if is_link { 0 } else { metadata.mode() & 0o7777 },
            mtime: (metadata.mtime(), metadata.mtime_nsec()),
            sparse: metadata.is_file() && metadata.blocks() * 512 < metadata.len() / 2,
        };
        seen.insert(name, seen_here);
    }
    seen
}

/// The contents of a file; only the end of a file that is one large hole.
fn content(path: &Path, size: u64) -> Vec<u8> {
    if size < 1 << 28 {
        return fs::read(path).expect("a file");
    }
    let mut end = vec![0; 4_096];
    File::open(path).and_then(|file| file.read_exact_at(&mut end, size - 4_096)).expect("a file");
    end.extend_from_slice(&size.to_be_bytes());
    end
}

fn age(path: &Path, seconds: i64, nanos: i64) {
    let time = Timespec { tv_sec: seconds, tv_nsec: nanos as _ };
    let times = Timestamps { last_access: time, last_modification: time };
    utimensat(CWD, path, &times, AtFlags::SYMLINK_NOFOLLOW).expect("its time is set");
}

/// A tree with entries of every kind.
fn everything(scratch: &Scratch) -> PathBuf {
    let root = scratch.0.join("tree");
    for folder in ["", "empty", "deep/er/est", "closed", "many"] {
        fs::create_dir_all(root.join(folder)).expect("a folder");
    }
    for (name, size) in
        [("zero", 0), ("one", 1), ("page", 4_096), ("block", 262_144), ("more", 262_145)]
    {
        fs::copy(scratch.file("content", size), root.join(name)).expect("a file");
    }
    fs::copy(scratch.file("content", 3_000_000), root.join("deep/large")).expect("a file");
    for i in 0..300 {
        fs::write(root.join(format!("many/{i:03}")), format!("number {i} ").repeat(i))
            .expect("a file");
    }
    fs::write(root.join(OsStr::from_bytes(b"deep/\xff\xfe name\nof bytes")), "bytes")
        .expect("a file");
    fs::hard_link(root.join("page"), root.join("deep/er/page again")).expect("a hard link");
    fs::hard_link(root.join("deep/large"), root.join("large again")).expect("a hard link");
    symlink("../page", root.join("deep/link")).expect("a link");
    symlink("nowhere/at/all", root.join("dangling")).expect("a link");
    symlink("/etc", root.join("etc")).expect("a link");
    // Holes at the start, in the middle and at the end; a file that is one hole; a hole too large
    // to be sent.
    let sparse = File::create(root.join("sparse")).expect("a file");
    sparse.write_all_at(&[1; 10_000], 1 << 20).expect("data");
    sparse.write_all_at(&vec![2; 300_000], 3 << 20).expect("data");
    sparse.set_len(9 << 20).expect("a hole");
    File::create(root.join("deep/hole")).and_then(|file| file.set_len(1 << 28)).expect("a hole");
    let small = File::create(root.join("small hole")).expect("a file");
    small.write_all_at(b"tail", 1 << 28).expect("data");
    fs::write(root.join("closed/secret"), "0400").expect("a file");
    for (name, mode) in [
        ("closed/secret", 0o400),
        ("one", 0o4751),
        ("closed", 0o500),
        ("deep/er", 0o2750),
        ("empty", 0o1777),
    ] {
        fs::set_permissions(root.join(name), fs::Permissions::from_mode(mode)).expect("a mode");
    }
    age(&root.join("page"), 1, 1);
    age(&root.join("zero"), -86_400, 123_456_789);
    age(&root.join("dangling"), 1_000_000_000, 5);
    age(&root.join("empty"), 1_000_000_000, 7);
    age(&root.join("deep"), 999_999_999, 999_999_999);
    root
}

fn having(mut options: SendOptions, change: impl FnOnce(&mut TransferOptions)) -> SendOptions {
    change(&mut options.transfer);
    options
}

async fn transfer(
    scratch: &Scratch,
    options: impl FnOnce(u16, &peer::Token) -> SendOptions,
) -> Result<Summary, Error> {
    let (identity, token) = parties();
    let receiving = Host::receive(receive_options(scratch, &identity, &token)).await;
    let sent = send(options(receiving.port, &token)).await;
    if sent.is_err() {
        receiving.task.abort();
        let _ = receiving.task.await;
        return sent;
    }
    let received = receiving.outcome().await.expect("received");
    let sent = sent.expect("sent");
    assert_eq!(
        (sent.files, sent.total, sent.moved),
        (received.files, received.total, received.moved)
    );
    Ok(sent)
}

/// The picture with only the mode bits that are carried.
fn carried(mut picture: BTreeMap<PathBuf, Seen>) -> BTreeMap<PathBuf, Seen> {
    for seen in picture.values_mut() {
        // Of folders, the set-group-id and the sticky bit too.
        seen.mode &= if seen.what == What::Folder { 0o3777 } else { 0o777 };
    }
    picture
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tree_arrives_as_it_was_and_is_not_sent_twice() {
    let scratch = Scratch::new("tree");
    let root = everything(&scratch);
    let first =
        transfer(&scratch, |port, token| send_options(&[&root], port, token)).await.expect("sent");
    assert!(
        first.moved.0 > 3_000_000 && first.moved.0 < 6_000_000,
        "holes were sent: {}",
        first.moved
    );
    let expected = carried(picture(&root));
    assert!(expected[Path::new("sparse")].sparse, "the file system knows holes");
    let arrived = picture(&scratch.inbox().join("tree"));
    assert_eq!(arrived.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
    for (name, seen) in &expected {
        assert!(
            &arrived[name] == seen,
            "{}: {:?} is not {:?}",
            name.display(),
            brief(&arrived[name]),
            brief(seen)
        );
    }
    assert_eq!(names(&scratch.inbox()), ["tree"], "nothing else is left there");

    // A second run sends and changes nothing, nor does one that compares by contents.
    let inodes = inodes(&scratch.inbox());
    for checksum in [false, true] {
        let again = transfer(&scratch, |port, token| {
            let mut options = send_options(&[&root], port, token);
            options.selection.checksum = checksum;
            options
        });
        let again = again.await.expect("sent");
        assert_eq!((again.moved.0, again.total, again.files), (0, first.total, first.files));
        assert_eq!(picture(&scratch.inbox().join("tree")), expected);
    }
    assert_eq!(self::inodes(&scratch.inbox()), inodes);

    // A changed file is refused without --overwrite; with it, only that file is sent.
    fs::write(root.join("many/017"), "new").expect("changed");
    fs::remove_file(root.join("etc")).expect("changed");
    symlink("/usr", root.join("etc")).expect("changed");
    fs::set_permissions(root.join("many/018"), fs::Permissions::from_mode(0o600)).expect("changed");
    fs::write(root.join("closed/new"), "new").expect("changed");
    let error = transfer(&scratch, |port, token| send_options(&[&root], port, token))
        .await
        .expect_err("it exists");
    assert_eq!(error.exit_code(), 8, "{error}");
    assert!(error.to_string().contains("--overwrite"), "{error}");
    assert_eq!(picture(&scratch.inbox().join("tree")), expected);
    let third = transfer(&scratch, |port, token| {
        having(send_options(&[&root], port, token), |how| how.overwrite = true)
    });
    assert_eq!(third.await.expect("sent").moved.0, 6);
    assert_eq!(picture(&scratch.inbox().join("tree")), carried(picture(&root)));
    assert_eq!(names(&scratch.inbox()), ["tree"]);
}

/// The attributes of an entry, for messages.
fn brief(seen: &Seen) -> String {
    match &seen.what {
        What::File(bytes) => {
            format!(
                "{} bytes, mode {:o}, {:?}, sparse {}",
                bytes.len(),
                seen.mode,
                seen.mtime,
                seen.sparse
            )
        }
        other => format!("{other:?}, mode {:o}, {:?}", seen.mode, seen.mtime),
    }
}

fn names(folder: &Path) -> Vec<String> {
    let names =
        fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry").file_name());
    let mut names: Vec<String> = names.map(|name| name.to_string_lossy().into_owned()).collect();
    names.sort();
    names
}

fn inodes(root: &Path) -> Vec<(PathBuf, u64)> {
    let inode = |name: &PathBuf| fs::symlink_metadata(root.join(name)).expect("it is there").ino();
    picture(root).into_keys().map(|name| (name.clone(), inode(&name))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slash_at_the_end_means_what_is_in_the_folder() {
    let scratch = Scratch::new("slash");
    let root = scratch.0.join("tree");
    fs::create_dir_all(root.join("sub")).expect("a folder");
    fs::write(root.join("sub/file"), "x").expect("a file");
    let slash = scratch.0.join("tree/");
    let dot = scratch.0.join("tree/sub/.");
    transfer(&scratch, |port, token| send_options(&[&slash, &dot], port, token))
        .await
        .expect("sent");
    assert_eq!(names(&scratch.inbox()), ["file", "sub"]);
    assert_eq!(names(&scratch.inbox().join("sub")), ["file"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_one_source_may_arrive_under_another_name() {
    let scratch = Scratch::new("rename");
    let root = scratch.0.join("tree");
    fs::create_dir_all(root.join("sub")).expect("a folder");
    fs::write(root.join("sub/file"), "x").expect("a file");
    fs::set_permissions(&root, fs::Permissions::from_mode(0o750)).expect("a mode");
    let (file, slash) = (root.join("sub/file"), root.join(""));
    for (source, name) in [(&file, "one"), (&root, "two"), (&slash, "three"), (&file, "\u{fc} -")] {
        let sent = transfer(&scratch, |port, token| SendOptions {
            rename: Some(name.into()),
            ..send_options(&[source], port, token)
        });
        sent.await.expect("sent");
    }
    assert_eq!(names(&scratch.inbox()), ["one", "three", "two", "\u{fc} -"]);
    for folder in ["two", "three"] {
        assert_eq!(carried(picture(&root)), picture(&scratch.inbox().join(folder)));
        assert_eq!(
            fs::metadata(scratch.inbox().join(folder)).expect("a folder").mode() & 0o777,
            0o750
        );
    }

    // Listed names arrive in a folder of that name; one of which nothing is there is not made.
    let listed = |name: &str| files::Selection {
        files_from: Some(vec![name.into()]),
        ..files::Selection::default()
    };
    let some = fs::read_dir(&root).expect("a folder").map(|entry| entry.expect("one").file_name());
    let some = some.into_iter().min().expect("there is something").into_string().expect("plain");
    for (name, selection, code) in
        [("listed", listed(&some), None), ("missing", listed("gone"), Some(3))]
    {
        let sent = transfer(&scratch, |port, token| SendOptions {
            rename: Some(name.into()),
            selection,
            ..send_options(&[root.as_path()], port, token)
        });
        assert_eq!(sent.await.err().map(|error| error.exit_code()), code, "{name}");
    }
    assert_eq!(names(&scratch.inbox().join("listed")), [some]);
    fs::remove_dir_all(scratch.inbox().join("listed")).expect("it is there");

    // Several sources cannot share a name, and not every name is valid.
    for (sources, selection, name) in [
        (&[file.as_path(), root.as_path()][..], files::Selection::default(), "name"),
        (&[file.as_path()], files::Selection::default(), "../name"),
        (&[file.as_path()], files::Selection::default(), "a/b"),
        (&[file.as_path()], files::Selection::default(), ".anabranch-partial"),
        (&[file.as_path()], files::Selection::default(), ""),
    ] {
        let sent = transfer(&scratch, |port, token| SendOptions {
            rename: Some(name.into()),
            selection,
            ..send_options(sources, port, token)
        });
        assert_eq!(sent.await.expect_err("no such name").exit_code(), 2, "{name}");
    }
    assert_eq!(names(&scratch.inbox()).len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn filters_say_what_is_sent() {
    let scratch = Scratch::new("filters");
    let root = scratch.0.join("tree");
    for name in [
        "a.o",
        "a.c",
        "build/a.c",
        "build/b.h",
        "src/build/x.c",
        "src/b.c",
        "src/b.o",
        "doc/c.txt",
        "void/x.o",
    ] {
        fs::create_dir_all(root.join(name).parent().expect("a folder")).expect("a folder");
        fs::write(root.join(name), name).expect("a file");
    }
    let sent = |number: usize, include: &[&str], exclude: &[&str], from: Option<&[&str]>| {
        let (scratch, root) = (Scratch::new(&format!("filters-{number}")), root.clone());
        let selection = files::Selection {
            include: include.iter().map(ToString::to_string).collect(),
            exclude: exclude.iter().map(ToString::to_string).collect(),
            files_from: from.map(|names| names.iter().map(PathBuf::from).collect()),
            ..files::Selection::default()
        };
        async move {
            let from = root.join("");
            let sent = transfer(&scratch, |port, token| SendOptions {
                selection,
                ..send_options(&[&from], port, token)
            });
            let result = sent.await.map(|_| {
                picture(&scratch.inbox()).into_keys().map(|p| p.display().to_string()).collect()
            });
            result.unwrap_or_else(|error| vec![error.to_string()])
        }
    };
    let found = sent(1, &[], &["*.o", "/build/"], None).await;
    assert_eq!(
        found,
        ["a.c", "doc", "doc/c.txt", "src", "src/b.c", "src/build", "src/build/x.c", "void"]
    );
    let found = sent(2, &["*.c"], &["build"], None).await;
    assert_eq!(found, ["a.c", "src", "src/b.c"], "folders that lead to nothing are left out");
    let found = sent(3, &["build/"], &[], None).await;
    assert_eq!(found, ["build", "build/a.c", "build/b.h", "src", "src/build", "src/build/x.c"]);
    let found = sent(4, &[], &["*.c"], Some(&["src/b.c", "./src/b.o", "doc", "a.o"])).await;
    assert_eq!(found, ["a.o", "doc", "src", "src/b.o"]);
    assert!(sent(5, &["nothing"], &[], None).await[0].contains("nothing there"));
    assert!(sent(6, &[], &[], Some(&["../tree/a.c"])).await[0].contains("no plain name"));
    assert!(sent(7, &["a[", "x"], &[], None).await[0].contains("no pattern"));
}

#[tokio::test(flavor = "multi_thread")]
async fn links_at_the_receiver_lead_nowhere() {
    let scratch = Scratch::new("outside");
    let (root, outside) = (scratch.0.join("tree"), scratch.0.join("outside"));
    for folder in [&root.join("data"), &outside, &scratch.inbox().join("tree")] {
        fs::create_dir_all(folder).expect("a folder");
    }
    fs::write(root.join("data/file"), "new").expect("a file");
    symlink(&outside, scratch.inbox().join("tree/data")).expect("a link");
    for overwrite in [false, true] {
        let sent = transfer(&scratch, |port, token| {
            having(send_options(&[&root], port, token), |how| how.overwrite = overwrite)
        });
        let error = sent.await.expect_err("a link is in the way");
        assert_eq!(error.exit_code(), 8, "{error}");
        assert!(error.to_string().contains("symbolic link"), "{error}");
    }
    assert_eq!(fs::read_dir(&outside).expect("a folder").count(), 0);
    // A link at a file's name is replaced, not followed.
    fs::remove_file(scratch.inbox().join("tree/data")).expect("removed");
    fs::create_dir(scratch.inbox().join("tree/data")).expect("a folder");
    fs::write(outside.join("victim"), "precious").expect("a file");
    symlink(outside.join("victim"), scratch.inbox().join("tree/data/file")).expect("a link");
    let sent = transfer(&scratch, |port, token| {
        having(send_options(&[&root], port, token), |how| how.overwrite = true)
    });
    sent.await.expect("replaced");
    assert_eq!(fs::read(scratch.inbox().join("tree/data/file")).expect("a file"), b"new");
    assert_eq!(fs::read(outside.join("victim")).expect("a file"), b"precious");
}

/// More holes than fit into a chunk of the manifest.
#[tokio::test(flavor = "multi_thread")]
async fn thousands_of_holes_are_kept() {
    const HOLES: u64 = 5_000;
    let scratch = Scratch::new("holes");
    let source = scratch.0.join("disk.img");
    let file = File::create(&source).expect("a file");
    for number in 0..HOLES {
        file.write_all_at(&number.to_be_bytes().repeat(512), number * 8_192).expect("data");
    }
    file.set_len(HOLES * 8_192).expect("a hole at the end");
    file.sync_all().expect("its blocks are allocated");
    let sent = transfer(&scratch, |port, token| send_options(&[&source], port, token));
    assert_eq!(sent.await.expect("sent").moved.0, HOLES * 4_096);
    let arrived = scratch.inbox().join("disk.img");
    assert!(fs::read(&arrived).expect("a file") == fs::read(&source).expect("a file"));
    let blocks = |path: &Path| fs::metadata(path).expect("a file").blocks() / 8;
    // The file system needs a few for its own list.
    for path in [&source, &arrived] {
        assert!(blocks(path) < HOLES + HOLES / 50, "{}: {}", path.display(), blocks(path));
    }
}

/// Many small files and a large one, for a transfer to be interrupted.
fn much(scratch: &Scratch) -> (PathBuf, u64) {
    let root = scratch.0.join("tree");
    fs::create_dir_all(root.join("small")).expect("a folder");
    let content = fs::read(scratch.file("content", 5_000)).expect("content");
    for i in 0..2_000 {
        fs::write(
            root.join(format!("small/{i:04}")),
            [&content[..], format!("{i}").as_bytes()].concat(),
        )
        .expect("a file");
    }
    fs::rename(scratch.file("large", 10_000_000), root.join("large")).expect("a file");
    (
        root.clone(),
        picture(&root)
            .values()
            .map(|seen| if let What::File(bytes) = &seen.what { bytes.len() as u64 } else { 0 })
            .sum(),
    )
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stopped_sender_of_a_tree_goes_on_where_it_was() {
    let scratch = Scratch::new("tree-resume");
    let (root, size) = much(&scratch);
    let (identity, token) = parties();
    let mut receiving = Host::receive(receive_options(&scratch, &identity, &token)).await;
    let mut options = send_options(&[&root], receiving.port, &token);
    options.transfer.dial.max_rate = Some(Timetable::always(Rate::mbit(80)));
    tokio::select! {
        ended = send(options.clone()) => panic!("it was to be interrupted: {ended:?}"),
        () = receiving.has(12_000_000) => {}
    }
    // One file changed meanwhile; the others are not affected.
    fs::write(root.join("small/1999"), "changed").expect("changed");
    options.transfer.dial.max_rate = None;
    options.transfer.overwrite = true;
    let sent = send(options).await.expect("sent");
    receiving.outcome().await.expect("received");
    assert_eq!(carried(picture(&root)), picture(&scratch.inbox().join("tree")));
    assert!(
        sent.moved.0 < size - 8_000_000,
        "{} of {size} were sent again or still missing",
        sent.moved
    );
    assert_eq!(names(&scratch.inbox()), ["tree"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_starts_again_goes_on_with_a_tree() {
    let scratch = Scratch::new("tree-receiver");
    let (root, size) = much(&scratch);
    let (identity, token) = parties();
    let (mut receiving, apart) =
        Host::receive_apart(receive_options(&scratch, &identity, &token)).await;
    let port = receiving.port;
    let mut options = send_options(&[&root], port, &token);
    options.transfer.dial.max_rate = Some(Timetable::always(Rate::mbit(80)));
    let sending = tokio::spawn(send(options));
    receiving.has(12_000_000).await;
    apart.kill().await;
    let mut again = receive_options(&scratch, &identity, &token);
    again.listen.addresses = vec![format!("127.0.0.1:{port}").parse().expect("an address")];
    tokio::time::sleep(Duration::from_millis(300)).await;
    let receiving = Host::receive(again).await;
    let sent = sending.await.expect("no panic").expect("sent");
    receiving.outcome().await.expect("received");
    assert!(sent.moved.0 < size - 8_000_000, "{} of {size} were sent again", sent.moved);
    assert_eq!(carried(picture(&root)), picture(&scratch.inbox().join("tree")));
    assert_eq!(names(&scratch.inbox()), ["tree"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn with_strict_a_file_of_the_tree_that_changes_is_noticed_and_the_rest_is_kept() {
    let scratch = Scratch::new("tree-changes");
    let (root, size) = much(&scratch);
    let (identity, token) = parties();
    let (receiving, apart) =
        Host::receive_apart(receive_options(&scratch, &identity, &token)).await;
    let mut options = send_options(&[&root], receiving.port, &token);
    options.selection.strict = true;
    options.transfer.dial.max_rate = Some(Timetable::always(Rate::mbit(80)));
    let sending = tokio::spawn(send(options.clone()));
    tokio::time::sleep(Duration::from_millis(500)).await;
    fs::write(root.join("small/1999"), "it changed").expect("changed");
    let error = sending.await.expect("no panic").expect_err("it changed");
    assert!(
        matches!(&error, Error::SourceChanged { path } if path.ends_with("small/1999")),
        "{error}"
    );
    apart.kill().await;
    options.transfer.dial.max_rate = None;
    let receiving = Host::receive(receive_options(&scratch, &identity, &token)).await;
    options.to.port = receiving.port;
    let sent = send(options).await.expect("sent");
    receiving.outcome().await.expect("received");
    assert!(sent.moved.0 < size - 8_000_000, "{} of {size} were sent again", sent.moved);
    assert_eq!(carried(picture(&root)), picture(&scratch.inbox().join("tree")));
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_disk_gives_back_is_checked() {
    let scratch = Scratch::new("tree-verify");
    let root = everything(&scratch);
    let sent = transfer(&scratch, |port, token| {
        having(send_options(&[&root], port, token), |how| how.verify = true)
    });
    sent.await.expect("sent");
    assert_eq!(carried(picture(&root)), picture(&scratch.inbox().join("tree")));
}

/// Found with backups of `/proc` and `/sys`: empty files, or "changed" for ever.
#[tokio::test(flavor = "multi_thread")]
async fn files_whose_size_says_nothing_arrive_whole() {
    let scratch = Scratch::new("unsized");
    let candidates = ["/proc/version", "/proc/filesystems", "/sys/kernel/uevent_seqnum"];
    let sources: Vec<&Path> =
        candidates.iter().map(Path::new).filter(|path| path.exists()).collect();
    assert!(sources.len() > 1, "this is Linux");
    let sent = transfer(&scratch, |port, token| send_options(&sources, port, token)).await;
    assert_eq!(sent.expect("sent").left_out, 0);
    for source in sources {
        let there = scratch.inbox().join(source.file_name().expect("a name"));
        let content = fs::read(there).expect("it has its name");
        // The last one counts on.
        let is_whole = content == fs::read(source).expect("the source")
            || source.starts_with("/sys") && content.ends_with(b"\n");
        assert!(is_whole && !content.is_empty(), "{}", source.display());
    }
}
