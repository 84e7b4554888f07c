use super::*;
use std::fs;

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("anabranch-target-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn entry(size: u64) -> FileEntry {
    FileEntry { name: b"disk.img".to_vec(), size: Bytes(size), mtime_nanos: 1_500_000_000, mode: 0o640 }
}

fn open(directory: &Directory, entry: &FileEntry) -> (Target, Vec<Held>) {
    directory.target(entry, Fingerprint::from([1; 32]), [2; 16], false, &mut || {}).unwrap()
}

#[test]
fn only_blocks_that_hash_right_are_taken_up_again() {
    let scratch = Scratch::new("resume");
    let directory = Directory::open(&scratch.0).unwrap();
    let size = 2 * BLOCK + 10;
    let content: Vec<u8> = (0..size).map(|i| u8::try_from(i % 251).unwrap()).collect();
    let cv = |block: u64| {
        let start = usize::try_from(block * BLOCK).unwrap();
        block_cv(size, block * BLOCK, &content[start..start + block_len(size, block * BLOCK)])
    };
    {
        let (target, held) = open(&directory, &entry(size));
        assert!(held.is_empty());
        target.write(0, &content).unwrap();
        (0..3).for_each(|block| target.note(block, cv(block)).unwrap());
        // Block 1 rots on disk behind its journal entry.
        target.write(BLOCK, b"rot").unwrap();
        // The last record is torn.
        let journal = scratch.0.join(".disk.img.anabranch-journal");
        let length = fs::metadata(&journal).unwrap().len();
        fs::OpenOptions::new().write(true).open(journal).unwrap().set_len(length - 1).unwrap();
    }
    let (target, held) = open(&directory, &entry(size));
    assert_eq!(held, [(0, cv(0))]);
    target.write(BLOCK, &content[usize::try_from(BLOCK).unwrap()..]).unwrap();
    target.note(1, cv(1)).unwrap();
    target.note(2, cv(2)).unwrap();
    let root = Cv(*blake3::hash(&content).as_bytes());
    target.finish(&directory, root, true, false).unwrap();
    assert_eq!(fs::read(scratch.0.join("disk.img")).unwrap(), content);
    let metadata = fs::metadata(scratch.0.join("disk.img")).unwrap();
    assert_eq!(std::os::unix::fs::MetadataExt::mtime(&metadata), 1);
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&metadata.permissions()) & 0o7777, 0o640);
    assert_eq!(fs::read_dir(&scratch.0).unwrap().count(), 1, "no partial file and no journal is left");
}

#[test]
fn a_changed_source_begins_anew() {
    let scratch = Scratch::new("changed");
    let directory = Directory::open(&scratch.0).unwrap();
    let content = vec![7; usize::try_from(BLOCK).unwrap()];
    {
        let (target, _) = open(&directory, &entry(BLOCK));
        target.write(0, &content).unwrap();
        target.note(0, block_cv(BLOCK, 0, &content)).unwrap();
    }
    let newer = FileEntry { mtime_nanos: 2_500_000_000, ..entry(BLOCK) };
    assert!(open(&directory, &newer).1.is_empty());
}

#[test]
fn links_lead_nowhere() {
    let scratch = Scratch::new("links");
    let outside = Scratch::new("links-outside");
    let victim = outside.0.join("victim");
    fs::write(&victim, "precious").unwrap();
    std::os::unix::fs::symlink(&victim, scratch.0.join(".disk.img.anabranch-part")).unwrap();
    let directory = Directory::open(&scratch.0).unwrap();
    let refused = directory.target(&entry(5), Fingerprint::from([1; 32]), [2; 16], false, &mut || {});
    assert!(matches!(refused, Err(Error::Disk { .. })));
    fs::remove_file(scratch.0.join(".disk.img.anabranch-part")).unwrap();
    // The target itself may be a link: it is replaced, not followed.
    std::os::unix::fs::symlink(&victim, scratch.0.join("disk.img")).unwrap();
    assert!(directory.exists(b"disk.img").unwrap());
    let (target, _) = open(&directory, &entry(5));
    target.write(0, b"hello").unwrap();
    let root = Cv(*blake3::hash(b"hello").as_bytes());
    assert!(matches!(target.finish(&directory, root, false, false), Err(Error::Exists { .. })));
    target.finish(&directory, root, false, true).unwrap();
    assert_eq!(fs::read(scratch.0.join("disk.img")).unwrap(), b"hello");
    assert_eq!(fs::read(&victim).unwrap(), b"precious");
}

#[test]
fn two_transfers_of_one_name_do_not_mix() {
    let scratch = Scratch::new("lock");
    let directory = Directory::open(&scratch.0).unwrap();
    let (_held, _) = open(&directory, &entry(5));
    let error = directory.target(&entry(5), Fingerprint::from([1; 32]), [2; 16], false, &mut || {}).err().unwrap();
    assert!(error.to_string().contains("another transfer"), "{error}");
}

#[test]
fn what_the_disk_gives_back_is_checked() {
    let scratch = Scratch::new("verify");
    let directory = Directory::open(&scratch.0).unwrap();
    let (target, _) = open(&directory, &entry(5));
    target.write(0, b"hellO").unwrap();
    let root = Cv(*blake3::hash(b"hello").as_bytes());
    assert!(matches!(target.finish(&directory, root, true, false), Err(Error::Integrity { .. })));
    assert!(!directory.exists(b"disk.img").unwrap());
}

#[test]
fn long_names_have_room_beside_them() {
    let name = vec![b'n'; 250];
    assert!(partial_name(&name).len() <= 255);
    assert_ne!(partial_name(&name), partial_name(&[b'm'; 250]));
}
