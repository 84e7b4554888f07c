//! Folders in folders: as many as there may be arrive, more are an error that says so, and depth
//! costs no stack.

use events::Events;
use std::ffi::OsStr;
use std::fs;
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, mkdirat, openat};
use tokio::time::timeout;
use wire::manifest::{Entry, Kind, MAX_DEPTH, MAX_PATH};
use wire::session::AbortCode;

use super::fetch::{at, fetch, fetch_options, serve};
use super::sender::refused;
use super::{Host, NEVER, Scratch, chunk, entry};
use crate::sink::Directory;
use crate::source::{Source, SourceRoot};
use crate::{Error, Selection};
use peer::{Credential, Identity, Token};

/// Folders in each other below a place. The standard library would hold a descriptor for each of
/// them to remove them.
struct Deep(PathBuf);

impl Deep {
    /// Makes `levels` folders called `name` in each other, with a file in the last.
    fn make(top: &Path, name: &str, levels: usize) -> Deep {
        let mut folder = openat(CWD, top, OFlags::PATH, Mode::empty()).unwrap();
        for _ in 0..levels {
            mkdirat(&folder, name, Mode::RWXU).unwrap();
            folder = openat(&folder, name, OFlags::PATH, Mode::empty()).unwrap();
        }
        let flags = OFlags::CREATE | OFlags::WRONLY;
        let file = openat(&folder, "f", flags, Mode::RUSR | Mode::WUSR).unwrap();
        rustix::io::write(file, b"deep").unwrap();
        Deep(top.join(name))
    }
}

impl Drop for Deep {
    fn drop(&mut self) {
        let next = self.0.with_file_name("next");
        let name = self.0.file_name().unwrap();
        while self.0.is_dir() {
            let _ = fs::remove_file(self.0.join("f"));
            let _ = fs::rename(self.0.join(name), &next);
            let removed = fs::remove_dir(&self.0);
            let _ = fs::rename(&next, &self.0);
            if removed.is_err() {
                return;
            }
        }
    }
}

/// Runs on a stack that a frame for each level would overflow.
fn on_a_small_stack<T: Send>(work: impl FnOnce() -> T + Send) -> T {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().stack_size(256 << 10);
        thread.spawn_scoped(scope, work).unwrap().join().unwrap()
    })
}

fn walk(top: &Path, selection: &Selection) -> Result<Source, Error> {
    on_a_small_stack(|| {
        let paths = [top.to_path_buf()];
        let open =
            Source::open(SourceRoot::Anywhere, &paths, selection, true, None, &mut |_| Ok(()));
        open.map(|(source, _)| source)
    })
}

#[test]
fn a_tree_that_is_too_deep_is_an_error_and_no_abort() {
    let scratch = Scratch::new("too-deep");
    for (name, levels) in [("a", 2_500), (&"long".repeat(50)[..], 40)] {
        let deep = Deep::make(&scratch.0, name, levels);
        let error = walk(&deep.0, &Selection::default()).map(drop).unwrap_err();
        let text = error.to_string();
        for part in [deep.0.to_str().unwrap(), "1,000 folders", "4,095 bytes", "--exclude"] {
            assert!(text.contains(part), "{text}");
        }
        assert!(text.len() < 1_000 && error.exit_code() == 3, "it fits into a message: {text}");
        // The rest of the tree can be sent.
        fs::write(deep.0.join("file"), "x").unwrap();
        let exclude = vec![format!("/{name}/{name}/")];
        let rest = walk(&deep.0, &Selection { exclude, ..Selection::default() }).unwrap();
        assert_eq!(rest.tree().entries().len(), 3);
        fs::remove_file(deep.0.join("file")).unwrap();
    }
}

/// Names and numbers of folders that make the deepest path, and the longest.
fn limits() -> [(String, usize); 2] {
    let long = "n".repeat(255);
    // The file is one more component.
    let folders = (MAX_PATH - "f".len()) / (long.len() + 1);
    [("a".into(), MAX_DEPTH - 1), (long, folders)]
}

fn bottom(name: &str, levels: usize) -> Vec<u8> {
    format!("{}f", format!("{name}/").repeat(levels)).into_bytes()
}

/// Reads the file at the bottom of what arrived, and removes everything.
fn arrived(scratch: &Scratch, name: &str, levels: usize) -> String {
    let inbox = scratch.0.join("in");
    let _removed = Deep(inbox.join(name));
    let mut content = String::new();
    let file = Directory::open(&inbox).unwrap().file(&bottom(name, levels)).unwrap();
    file.unwrap().read_to_string(&mut content).unwrap();
    content
}

#[tokio::test(flavor = "multi_thread")]
async fn the_deepest_tree_arrives_whole_by_send_and_by_get() {
    let scratch = Scratch::new("deepest");
    let out = scratch.0.join("out");
    fs::create_dir_all(&out).unwrap();
    let (identity, me) = (Identity::generate().unwrap(), Identity::generate().unwrap());
    let token = Token::generate(&identity).unwrap();
    let port = serve(&scratch, &identity, &token).await;
    for (name, levels) in limits() {
        let deep = Deep::make(&out, &name, levels);
        assert_eq!(
            walk(&deep.0, &Selection::default()).unwrap().tree().entries().len(),
            levels + 1
        );
        let host = Host::start(&scratch).await;
        let events = Events::new();
        let sent = timeout(NEVER, crate::send(host.honest_options(vec![deep.0.clone()]), events));
        assert_eq!(sent.await.expect("it ends").expect("it arrives").files, 1);
        assert_eq!(arrived(&scratch, &name, levels), "deep");
        let server = at(port, Credential::Token(token.clone()));
        let mut options = fetch_options(&scratch, vec![server]);
        options.transfer.dial.identity = me.clone();
        options.names = vec![PathBuf::from(&name)];
        assert_eq!(fetch(options).await.0.expect("it arrives").files, 1);
        assert_eq!(arrived(&scratch, &name, levels), "deep");
    }
}

#[test]
fn folders_are_made_on_a_small_stack() {
    let scratch = Scratch::new("make-deep");
    let directory = Directory::open(&scratch.0.join("in")).unwrap();
    let path = b"a/".repeat(MAX_DEPTH);
    let path = &path[..path.len() - 1];
    let _removed = Deep(scratch.0.join("in/a"));
    on_a_small_stack(|| directory.make_folder(path).map(drop)).unwrap();
    assert!(scratch.0.join("in").join(OsStr::from_bytes(path)).is_dir());
}

/// The manifest of a folder at the limit, with its path made a level deeper on the wire.
#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_that_goes_deeper_is_refused() {
    let deepest = [b"dd".to_vec(), b"/d".repeat(MAX_DEPTH - 1)].concat();
    let folder = |path: Vec<u8>| Entry { path, kind: Kind::Directory { mtime: 0, mode: 0o755 } };
    assert_eq!(folder(deepest.clone()).check(), Ok(()));
    let deeper = [b"d/", &deepest[1..]].concat();
    assert_eq!(folder(deeper).check(), Err("path length"));
    let mut lie = chunk(&[entry(&deepest[..], folder(Vec::new()).kind)]);
    let at = lie.windows(3).position(|part| part == b"dd/").unwrap();
    // Of "dd/d", "d//d" would be no path at all.
    lie.splice(at..at + 2, *b"d/d");
    lie[4] += 1;
    refused("deeper", &[lie], 1, AbortCode::Protocol, "path length").await;
}
