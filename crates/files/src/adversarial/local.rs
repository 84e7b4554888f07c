//! Another process changes the receiving folder during a transfer: nothing outside the folder is
//! touched.

use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use std::{fs, io};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use tokio::time::timeout;

use super::{Host, PATIENCE, Scratch};
use crate::Error;
use events::{Events, Summary};

async fn send(host: &Host, source: &Path, overwrite: bool) -> Result<Summary, Error> {
    let mut options = host.honest_options(vec![source.to_path_buf()]);
    options.transfer.overwrite = overwrite;
    let events = Events::new();
    timeout(PATIENCE, crate::send(options, events)).await.expect("it ends")
}

fn fill(folder: &Path, count: usize) {
    fs::create_dir_all(folder).unwrap();
    for number in 0..count {
        fs::write(folder.join(format!("{number:04}")), format!("new {number}")).unwrap();
    }
}

/// Makes a file of this kind at `place`. Only root makes devices.
fn put_in_place(what: &str, victim: &Path, place: &Path) -> io::Result<()> {
    match what {
        "hard link" => fs::hard_link(victim, place),
        "symbolic link" => symlink(victim, place),
        "pipe" => Ok(mknodat(CWD, place, FileType::Fifo, Mode::RWXU, 0)?),
        _ => Ok(mknodat(
            CWD,
            place,
            FileType::CharacterDevice,
            Mode::RWXU,
            rustix::fs::makedev(1, 3),
        )?),
    }
}

/// A folder is swapped for a link to another place, over and over, while files in it get their
/// names.
#[tokio::test(flavor = "multi_thread")]
async fn a_folder_that_is_swapped_for_a_link_leads_nowhere() {
    let scratch = Scratch::new("swap");
    let (source, outside, inside) =
        (scratch.0.join("tree"), scratch.0.join("outside"), scratch.0.join("in/tree/folder"));
    fill(&source.join("folder"), 300);
    fs::create_dir_all(&outside).unwrap();
    fs::write(outside.join("0000"), "precious").unwrap();
    for round in 0..4 {
        fs::create_dir_all(&inside).unwrap();
        let host = Host::start(&scratch).await;
        let stop = Arc::new(AtomicBool::new(false));
        let swapping = {
            let (stop, inside, outside) = (Arc::clone(&stop), inside.clone(), outside.clone());
            std::thread::spawn(move || {
                let aside = inside.with_file_name("aside");
                let mut swaps = 0u32;
                while !stop.load(Ordering::Relaxed) {
                    if fs::rename(&inside, &aside).is_ok() && symlink(&outside, &inside).is_ok() {
                        swaps += 1;
                        std::thread::yield_now();
                        fs::remove_file(&inside).unwrap();
                    }
                    let _ = fs::rename(&aside, &inside);
                }
                swaps
            })
        };
        let sent = send(&host, &source, true).await;
        stop.store(true, Ordering::Relaxed);
        assert!(swapping.join().unwrap() > 0);
        if let Err(error) = sent {
            assert_eq!(error.exit_code(), 8, "round {round}: {error}");
        }
        assert_eq!(fs::read_dir(&outside).unwrap().count(), 1, "round {round}");
        assert_eq!(fs::read(outside.join("0000")).unwrap(), b"precious", "round {round}");
    }
}

/// The staging folder must be a folder, neither a link nor a file.
#[tokio::test(flavor = "multi_thread")]
async fn a_partial_folder_that_leads_elsewhere_is_refused() {
    let scratch = Scratch::new("partial");
    let (source, outside) = (scratch.0.join("data"), scratch.0.join("outside"));
    fs::write(&source, vec![7; 300_000]).unwrap();
    fs::create_dir_all(&outside).unwrap();
    let partial = scratch.0.join("in/.anabranch-partial");
    let host = Host::start(&scratch).await;
    symlink(&outside, &partial).unwrap();
    let error = send(&host, &source, false).await.expect_err("a link");
    assert!(error.exit_code() == 8 && error.to_string().contains(".anabranch-partial"), "{error}");
    fs::remove_file(&partial).unwrap();
    fs::write(&partial, "").unwrap();
    let error = send(&host, &source, false).await.expect_err("a file");
    assert!(error.exit_code() == 8 && error.to_string().contains(".anabranch-partial"), "{error}");
    fs::remove_file(&partial).unwrap();
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 0);
    send(&host, &source, false).await.expect("nothing is in the way");
}

/// Links, pipes and hard links to other files in the place of a part: none is written to, and a
/// pipe does not block the receiver.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_put_in_a_parts_place_is_not_written_to() {
    let scratch = Scratch::new("part");
    let (source, victim) = (scratch.0.join("data"), scratch.0.join("victim"));
    fs::write(&source, vec![7; 300_000]).unwrap();
    let partial = scratch.0.join("in/.anabranch-partial");
    let host = Host::start(&scratch).await;
    let key = &blake3::hash(b"data").to_hex()[..32];
    for name in [format!("{key}.part"), format!("{key}.journal")] {
        let place = partial.join(&name);
        for what in ["hard link", "symbolic link", "pipe", "device"] {
            fs::write(&victim, "precious").unwrap();
            // The previous session may still be removing the empty folder.
            let mut put = put_in_place(what, &victim, &place);
            for _ in 0..100 {
                if !matches!(&put, Err(error) if error.kind() == io::ErrorKind::NotFound) {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(20)).await;
                let _ = fs::create_dir_all(&partial);
                put = put_in_place(what, &victim, &place);
            }
            if what == "device" && put.is_err() {
                continue;
            }
            put.unwrap();
            let error = send(&host, &source, false).await.expect_err(what);
            assert_eq!(error.exit_code(), 8, "{what}: {error}");
            assert_eq!(fs::read(&victim).unwrap(), b"precious", "{name}: {what}");
            let _ = fs::remove_dir_all(&partial);
        }
    }
    send(&host, &source, false).await.expect("nothing is in the way");
}

/// Devices, pipes and links under the files' own names are neither opened nor written through.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_under_a_files_name_is_not_written_through() {
    let scratch = Scratch::new("names");
    let (source, victim) = (scratch.0.join("data"), scratch.0.join("victim"));
    fs::write(&source, vec![7; 300_000]).unwrap();
    fs::write(&victim, "precious").unwrap();
    let place = scratch.0.join("in/data");
    let host = Host::start(&scratch).await;
    for what in ["pipe", "device", "hard link", "symbolic link"] {
        let put = put_in_place(what, &victim, &place);
        if what == "device" && put.is_err() {
            continue;
        }
        put.unwrap();
        let error = send(&host, &source, false).await.expect_err(what);
        assert_eq!(error.exit_code(), 8, "{what}: {error}");
        assert!(
            !fs::symlink_metadata(&place).unwrap().file_type().is_file() || what == "hard link",
            "{what}"
        );
        if ["pipe", "device"].contains(&what) {
            let error = send(&host, &source, true).await.expect_err(what);
            assert_eq!(error.exit_code(), 8, "{what}: {error}");
            fs::remove_file(&place).unwrap();
            continue;
        }
        // With --overwrite the file gets the name, and the other file behind that name stays as it
        // is.
        send(&host, &source, true).await.unwrap_or_else(|error| panic!("{what}: {error}"));
        assert_eq!(fs::read(&place).unwrap(), fs::read(&source).unwrap(), "{what}");
        assert_eq!(fs::read(&victim).unwrap(), b"precious", "{what}");
        let found = fs::symlink_metadata(&place).unwrap();
        assert!(
            found.nlink() == 1
                && !found.file_type().is_fifo()
                && found.permissions().mode() & 0o7000 == 0
        );
        fs::remove_file(&place).unwrap();
    }
}
