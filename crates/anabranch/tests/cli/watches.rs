//! `send --watch`: what changes in a folder arrives, whatever is killed meanwhile.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::home::{Home, Running, announced, text};
use super::ports::free_port;

/// A receiver that goes on and knows its sender, who watches the folder `data`.
struct Copying {
    home: Home,
    address: String,
}

impl Copying {
    fn new() -> Copying {
        let home = Home::new();
        fs::create_dir(home.0.join("data")).unwrap();
        let address = format!("127.0.0.1:{}", free_port());
        let key = home.run(&["keys"]).1.trim().to_string();
        for words in [["sender", &key, "own"], ["receiver", &address, &key]] {
            assert_eq!(home.run(&[&["keys", "trust"], &words[..]].concat()).0, 0, "{words:?}");
        }
        Copying { home, address }
    }

    fn receive(&self, more: &[&str]) -> Running {
        let port = self.address.rsplit_once(':').unwrap().1;
        let words = ["receive", "copies", "--listen", "127.0.0.1", "--port", port, "--keep"];
        let mut command = self.home.command(&[&words, more].concat());
        command.stdout(Stdio::piped()).stderr(Stdio::null());
        announced(command.spawn().unwrap()).0
    }

    fn watch(&self, more: &[&str]) -> Child {
        let words = ["send", "data", "--watch", "--to", &self.address];
        let mut command = self.home.command(&[&words, more].concat());
        command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap()
    }

    fn write(&self, name: &str, contents: &str) {
        fs::write(self.home.0.join("data").join(name), contents).unwrap();
    }

    /// Waits until the copy equals the source.
    fn until_equal(&self, what: &str) {
        let began = Instant::now();
        loop {
            let (own, copied) = (tree(&self.home.0.join("data")), tree(&self.copy()));
            if own == copied {
                return;
            }
            let late = began.elapsed() > Duration::from_secs(60);
            assert!(!late, "{what}: not within a minute: {own:?} {copied:?}");
            sleep(Duration::from_millis(50));
        }
    }

    fn copy(&self) -> std::path::PathBuf {
        self.home.0.join("copies/data")
    }
}

/// The names in a folder with the contents of files.
fn tree(folder: &Path) -> BTreeMap<String, Option<Vec<u8>>> {
    let mut found = BTreeMap::new();
    let mut pending = vec![folder.to_path_buf()];
    while let Some(path) = pending.pop() {
        let Ok(entries) = fs::read_dir(&path) else { continue };
        for entry in entries.map(|entry| entry.unwrap().path()) {
            let name = entry.strip_prefix(folder).unwrap().to_str().unwrap().to_string();
            // What is under way there is no part of the copy.
            if name.starts_with(".anabranch") {
                continue;
            }
            found.insert(name, fs::read(&entry).ok());
            if entry.is_dir() {
                pending.push(entry);
            }
        }
    }
    found
}

#[test]
fn what_changes_in_a_folder_arrives() {
    let copying = Copying::new();
    let _receiver = copying.receive(&[]);
    copying.write("first", "1");
    let watching = Running(copying.watch(&[]));
    copying.until_equal("what was there");
    copying.write("first", "changed");
    copying.write("second", "2");
    copying.until_equal("a file that has changed, and a new one");
    let data = copying.home.0.join("data");
    fs::create_dir_all(data.join("new/deep")).unwrap();
    copying.write("new/deep/file", "3");
    copying.until_equal("a folder with contents");
    copying.write("new/deep/file", "4");
    copying.until_equal("what is in a folder that has come");
    // As editors save.
    copying.write("temporary", "saved");
    fs::rename(data.join("temporary"), data.join("second")).unwrap();
    copying.until_equal("a file that took the place of another one");
    fs::create_dir_all(copying.home.0.join("elsewhere/in")).unwrap();
    fs::write(copying.home.0.join("elsewhere/in/file"), "5").unwrap();
    fs::rename(copying.home.0.join("elsewhere"), data.join("moved")).unwrap();
    copying.until_equal("a folder that was moved here");
    // What is removed here stays there.
    fs::remove_file(data.join("first")).unwrap();
    copying.write("last", "6");
    let began = Instant::now();
    while !copying.copy().join("last").exists() {
        assert!(began.elapsed() < Duration::from_secs(60), "the last one arrives");
        sleep(Duration::from_millis(50));
    }
    assert_eq!(fs::read(copying.copy().join("first")).unwrap(), b"changed");
    drop(watching);
}

#[test]
fn with_delete_what_is_removed_goes_too_and_filters_hold() {
    let copying = Copying::new();
    let _receiver = copying.receive(&["--allow-delete"]);
    for name in ["a", "b", "c"] {
        copying.write(name, name);
    }
    let _watching = Running(copying.watch(&["--delete", "--exclude", "*.tmp"]));
    copying.until_equal("what was there");
    let data = copying.home.0.join("data");
    // Alone it is nothing to be sent.
    copying.write("x.tmp", "x");
    sleep(Duration::from_millis(900));
    fs::remove_file(data.join("a")).unwrap();
    copying.write("d", "d");
    let began = Instant::now();
    while copying.copy().join("a").exists() || !copying.copy().join("d").exists() {
        assert!(began.elapsed() < Duration::from_secs(60), "{:?}", tree(&copying.copy()));
        sleep(Duration::from_millis(50));
    }
    assert!(!copying.copy().join("x.tmp").exists());
}

/// Killed at any time, on either side, with changes going on: in the end the copy equals the
/// source.
#[test]
fn a_copy_equals_its_source_whatever_is_killed() {
    let copying = Copying::new();
    let receiver = copying.receive(&[]);
    let mut watching = Running(copying.watch(&[]));
    let round = |round: usize| {
        for number in 0..200 {
            copying.write(&format!("{}", number % 50), &format!("{round} {number}"));
            fs::create_dir_all(copying.home.0.join(format!("data/round-{round}/{}", number % 7)))
                .unwrap();
            copying.write(&format!("round-{round}/{}/{number}", number % 7), "x");
        }
    };
    round(0);
    sleep(Duration::from_millis(700));
    drop(watching);
    round(1);
    watching = Running(copying.watch(&[]));
    round(2);
    copying.until_equal("after a kill of the sender");
    drop(receiver);
    round(3);
    sleep(Duration::from_millis(1_500));
    let _receiver = copying.receive(&[]);
    copying.until_equal("after a kill of the receiver");
    drop(watching);
}

#[test]
fn watching_ends_in_order_and_mistakes_are_told() {
    let copying = Copying::new();
    let _receiver = copying.receive(&[]);
    copying.write("first", "1");
    let child = copying.watch(&[]);
    copying.until_equal("what was there");
    kill_process(Pid::from_child(&child), Signal::INT).unwrap();
    let (code, _, stderr) = text(&child.wait_with_output().unwrap());
    assert_eq!(code, 130, "{stderr}");
    let to = &copying.address;
    for (words, code, said) in [
        (&["send", "data/first", "--watch", "--to", to][..], 2, "--watch is for a folder"),
        (&["send", "data", "data", "--watch", "--to", to], 2, "one folder"),
        (&["send", "missing", "--watch", "--to", to], 3, "missing"),
        (&["send", "data", "--watch", "--dry-run", "--to", to], 2, "cannot be used with"),
    ] {
        let (found, _, stderr) = copying.home.run(words);
        assert!(found == code && stderr.contains(said), "{words:?}: {found} {stderr}");
    }
}
