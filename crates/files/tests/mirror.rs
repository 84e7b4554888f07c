//! What exists at the target, and what only the target has: left, replaced or deleted as asked.

mod common;

use std::fs;
use std::os::unix::fs::symlink;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use common::{
    Host, Scratch, fetch, fetch_options, parties, receive_options, send, send_options,
    serve_options,
};
use events::Summary;
use files::{Error, Selection, TransferOptions};
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};

fn write(path: &Path, content: &str, seconds: i64) {
    fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    fs::write(path, content).expect("a file");
    let time = Timespec { tv_sec: seconds, tv_nsec: 0 };
    let times = Timestamps { last_access: time, last_modification: time };
    utimensat(CWD, path, &times, AtFlags::empty()).expect("its time is set");
}

/// Everything below a folder, with the contents of files.
fn contents(root: &Path) -> Vec<String> {
    let mut all = Vec::new();
    let mut folders = vec![root.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            let name = path.strip_prefix(root).expect("below").display().to_string();
            let metadata = fs::symlink_metadata(&path).expect("it is there");
            if metadata.is_dir() {
                all.push(format!("{name}/"));
                folders.push(path);
            } else if metadata.is_symlink() {
                all.push(format!("{name} ->"));
            } else {
                all.push(format!("{name}={}", fs::read_to_string(&path).expect("a file")));
            }
        }
    }
    all.sort();
    all
}

/// Transfers the sources to the inbox, by `send` or by `get`; the receiver allows deletions.
async fn transfer(
    scratch: &Scratch,
    by_get: bool,
    source: &str,
    selection: Selection,
    change: impl FnOnce(&mut TransferOptions),
) -> Result<Summary, Error> {
    let (identity, token) = parties();
    if by_get {
        let serving = Host::serve(serve_options(&scratch.0.join("out"), &identity, &token)).await;
        let mut options = fetch_options(scratch, &[source], serving.port, &token);
        options.selection = selection;
        change(&mut options.transfer);
        let got = fetch(options).await;
        serving.task.abort();
        return got;
    }
    let mut options = receive_options(scratch, &identity, &token);
    options.allow_delete = true;
    let receiving = Host::receive(options).await;
    let path = PathBuf::from(format!("{}/out/{source}", scratch.0.display()));
    let mut options = send_options(&[&path], receiving.port, &token);
    options.selection = selection;
    change(&mut options.transfer);
    let sent = send(options).await;
    match &sent {
        Ok(_) => drop(receiving.outcome().await.expect("received")),
        Err(_) => receiving.task.abort(),
    }
    sent
}

#[tokio::test(flavor = "multi_thread")]
async fn what_exists_is_left_or_replaced_as_asked() {
    for by_get in [false, true] {
        let scratch = Scratch::new(&format!("existing-{by_get}"));
        let (out, inbox) = (scratch.0.join("out/tree"), scratch.inbox().join("tree"));
        for (name, here, there) in [("older", 100, 50), ("newer", 100, 150), ("equal", 100, 100)] {
            write(&out.join(name), "source", here);
            write(&inbox.join(name), "target's", there);
        }
        write(&out.join("new"), "source", 100);
        symlink("source", out.join("link")).expect("a link");
        symlink("target", inbox.join("link")).expect("a link");
        let keep = |how: &mut TransferOptions| how.keep_existing = true;
        let result = transfer(&scratch, by_get, "tree", Selection::default(), keep).await;
        result.expect("transferred");
        let untouched =
            ["equal=target's", "link ->", "new=source", "newer=target's", "older=target's"];
        assert_eq!(contents(&inbox), untouched);
        assert_eq!(fs::read_link(inbox.join("link")).expect("a link"), Path::new("target"));
        let update = |how: &mut TransferOptions| how.update = true;
        let result = transfer(&scratch, by_get, "tree", Selection::default(), update).await;
        result.expect("transferred");
        let updated = ["equal=target's", "link ->", "new=source", "newer=target's", "older=source"];
        assert_eq!(contents(&inbox), updated);
        let neither = transfer(&scratch, by_get, "tree", Selection::default(), |_| ()).await;
        assert_eq!(neither.expect_err("it exists").exit_code(), 8);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_the_source_does_not_have_is_deleted_in_its_folders_only() {
    for (by_get, source) in [(false, "tree"), (false, "tree/"), (true, "tree"), (true, "tree/")] {
        let scratch = Scratch::new(&format!("delete-{by_get}-{}", source.len()));
        let (out, inbox, outside) =
            (scratch.0.join("out/tree"), scratch.inbox(), scratch.0.join("outside"));
        write(&out.join("a/file"), "1", 1);
        write(&outside.join("file"), "precious", 1);
        let top = if source.ends_with('/') { inbox.clone() } else { inbox.join("tree") };
        write(&top.join("a/old"), "2", 1);
        write(&top.join("gone/deep/old"), "3", 1);
        write(&top.join("gone/too/log.keep"), "4", 1);
        write(&top.join("part/.anabranch-partial/x"), "5", 1);
        symlink(&outside, top.join("a/link")).expect("a link");
        if top != inbox {
            write(&inbox.join("beside"), "6", 1);
        }
        let selection = Selection { exclude: vec!["*.keep".into()], ..Selection::default() };
        let delete = |how: &mut TransferOptions| how.delete = true;
        transfer(&scratch, by_get, source, selection, delete).await.expect("transferred");
        let mut left = vec!["a/", "a/file=1", "gone/", "gone/too/", "gone/too/log.keep=4"];
        left.extend(["part/", "part/.anabranch-partial/", "part/.anabranch-partial/x=5"]);
        assert_eq!(contents(&top), left, "{source} by get: {by_get}");
        assert_eq!(contents(&outside), ["file=precious"]);
        if top != inbox {
            assert_eq!(fs::read_to_string(inbox.join("beside")).expect("a file"), "6");
        }
    }
}

/// The folder that a server has under another name is this one's only folder.
#[tokio::test(flavor = "multi_thread")]
async fn under_a_new_name_only_that_folder_is_emptied() {
    for name in ["tree", "tree/inner", "tree/"] {
        let scratch = Scratch::new(&format!("delete-rename-{}", name.len()));
        write(&scratch.0.join("out/tree/inner/file"), "1", 1);
        write(&scratch.inbox().join("other/old"), "2", 1);
        write(&scratch.inbox().join("new/old"), "3", 1);
        let (identity, token) = parties();
        let serving = Host::serve(serve_options(&scratch.0.join("out"), &identity, &token)).await;
        let mut options = fetch_options(&scratch, &[name], serving.port, &token);
        options.rename = Some("new".into());
        options.transfer.delete = true;
        fetch(options).await.expect("got");
        serving.task.abort();
        let inner: &[&str] = match name {
            "tree" => &["new/", "new/inner/", "new/inner/file=1"],
            _ => &["new/", "new/file=1"],
        };
        let expected = [inner, &["other/", "other/old=2"]].concat();
        assert_eq!(contents(&scratch.inbox()), expected, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_include_does_not_select_is_not_deleted() {
    let scratch = Scratch::new("delete-include");
    write(&scratch.0.join("out/tree/a.c"), "1", 1);
    for name in ["old.c", "old.h", "sub/old.c", "sub/old.h"] {
        write(&scratch.inbox().join("tree").join(name), name, 1);
    }
    let selection = Selection { include: vec!["*.c".into()], ..Selection::default() };
    let delete = |how: &mut TransferOptions| how.delete = true;
    transfer(&scratch, false, "tree", selection, delete).await.expect("transferred");
    let left = ["a.c=1", "old.h=old.h", "sub/", "sub/old.h=sub/old.h"];
    assert_eq!(contents(&scratch.inbox().join("tree")), left);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_deleted_if_something_was_left_out() {
    for by_get in [false, true] {
        let scratch = Scratch::new(&format!("delete-left-out-{by_get}"));
        write(&scratch.0.join("out/tree/file"), "1", 1);
        drop(UnixListener::bind(scratch.0.join("out/tree/socket")).expect("a socket"));
        write(&scratch.inbox().join("tree/old"), "2", 1);
        let delete = |how: &mut TransferOptions| how.delete = true;
        let result = transfer(&scratch, by_get, "tree", Selection::default(), delete).await;
        assert_eq!(result.expect("transferred").left_out, 1);
        assert_eq!(contents(&scratch.inbox().join("tree")), ["file=1", "old=2"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_deletes_only_if_it_allows_it() {
    let scratch = Scratch::new("delete-refused");
    let source = scratch.0.join("tree");
    write(&source.join("file"), "1", 1);
    write(&scratch.inbox().join("tree/old"), "2", 1);
    let (identity, token) = parties();
    let receiving = Host::receive(receive_options(&scratch, &identity, &token)).await;
    let mut options = send_options(&[&source], receiving.port, &token);
    options.transfer.delete = true;
    let error = send(options.clone()).await.expect_err("it is refused");
    assert!(error.to_string().contains("--allow-delete") && error.exit_code() == 4, "{error}");
    options.selection.files_from = Some(vec!["file".into()]);
    let error = send(options).await.expect_err("the contents of the folder are not known");
    assert!(error.to_string().contains("--files-from") && error.exit_code() == 2, "{error}");
    receiving.task.abort();
    assert_eq!(contents(&scratch.inbox()), ["tree/", "tree/old=2"]);
}

/// A disk that is not mounted looks like an empty folder.
#[tokio::test(flavor = "multi_thread")]
async fn most_of_a_folder_is_deleted_only_if_forced() {
    for by_get in [false, true] {
        let scratch = Scratch::new(&format!("delete-most-{by_get}"));
        write(&scratch.0.join("out/tree/new"), "1", 1);
        for number in 0..101 {
            write(&scratch.inbox().join(format!("tree/{number}")), "2", 1);
        }
        let delete = |how: &mut TransferOptions| how.delete = true;
        let result = transfer(&scratch, by_get, "tree", Selection::default(), delete).await;
        let error = result.expect_err("that would be everything");
        assert!(error.to_string().contains("--force-delete"), "{error}");
        assert!(error.to_string().contains("101 of the 101") && error.exit_code() == 8, "{error}");
        assert_eq!(contents(&scratch.inbox().join("tree")).len(), 101);
        let force = |how: &mut TransferOptions| (how.delete, how.force_delete) = (true, true);
        let result = transfer(&scratch, by_get, "tree", Selection::default(), force).await;
        result.expect("transferred");
        assert_eq!(contents(&scratch.inbox()), ["tree/", "tree/new=1"]);
    }
}

/// A disk that is not mounted is an empty folder, named with a slash or without.
#[tokio::test(flavor = "multi_thread")]
async fn nothing_left_at_the_source_deletes_nothing_unless_forced() {
    for by_get in [false, true] {
        for source in ["photos", "photos/"] {
            let scratch = Scratch::new(&format!("emptied-{by_get}"));
            let inbox = scratch.inbox();
            let there = if source == "photos" { inbox.join("photos") } else { inbox };
            write(&there.join("one"), "1", 1);
            fs::create_dir_all(scratch.0.join("out/photos/void")).expect("a folder");
            let run = |is_forced| {
                transfer(&scratch, by_get, source, Selection::default(), move |how| {
                    (how.delete, how.force_delete) = (true, is_forced);
                })
            };
            let error = run(false).await.expect_err("everything would be deleted");
            let is_said = error.to_string().contains("because its source is empty");
            assert!(is_said && error.exit_code() == 8, "{error}");
            assert!(there.join("one").exists());
            run(true).await.expect("forced");
            assert_eq!(contents(&there), ["void/"]);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_contents_of_an_empty_folder_are_nothing() {
    for by_get in [false, true] {
        let scratch = Scratch::new(&format!("empty-{by_get}"));
        fs::create_dir_all(scratch.0.join("out/void")).expect("a folder");
        let moved = transfer(&scratch, by_get, "void/", Selection::default(), |_| {}).await;
        assert_eq!(moved.expect("moved").files, 0);
        assert_eq!(contents(&scratch.inbox()), [""; 0]);
    }
}
