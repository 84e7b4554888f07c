//! Files that only their owner may read, or may change: keys, and lists of trusted keys. How files
//! are opened in folders that other users may write to: what they put there is not waited for, not
//! followed and not used.

use std::ffi::OsStr;
use std::fs::{self, File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{Mode, OFlags, fcntl_getfl, fcntl_setfl, openat};
use rustix::process::{DumpableBehavior, geteuid, set_dumpable_behavior};

/// What other users may not do with a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Guard {
    /// Read or change it.
    Secret,
    /// Change it.
    Trusted,
}

const READ: u32 = 0o044;
const WRITE: u32 = 0o022;
const STICKY: u32 = 0o1000;

/// Checks that the open file at `path` belongs to this user or to root, that other users may not
/// read or change it, and that they may not put another one in its place.
///
/// # Errors
/// [`io::ErrorKind::PermissionDenied`], with the reason and the command that mends it.
pub fn check_private(file: &File, path: &Path, guard: Guard) -> io::Result<()> {
    check(&file.metadata()?, path, guard)?;
    let folder = folder_of(path);
    check_folder(&folder.metadata()?, folder)
}

/// Opens a regular file for reading. What is none, a pipe for example, is an error at once: opening
/// it waits for nobody.
///
/// # Errors
/// The system's; [`io::ErrorKind::InvalidInput`] if it is no regular file.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let file = open_input(path)?;
    if file.metadata()?.is_file() { Ok(file) } else { Err(not_regular(path)) }
}

/// Opens a file that somebody named as an input, which may be a pipe (`<(command)`). Opening waits
/// for nobody: a pipe that nobody writes into is at its end.
///
/// # Errors
/// The system's.
pub fn open_input(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new().read(true).custom_flags(bits(AT_ONCE)).open(path)?;
    if !file.metadata()?.is_file() {
        // What a writer has not written yet is waited for.
        fcntl_setfl(&file, fcntl_getfl(&file)? - OFlags::NONBLOCK)?;
    }
    Ok(file)
}

/// Opens a file of this user's for reading and writing that no other user may read or change, in a
/// folder in which they may not put another one in its place. With `create`, makes it if it is
/// missing. Nothing is waited for, and no link is followed.
///
/// # Errors
/// The system's; [`io::ErrorKind::PermissionDenied`] if the file or its folder is another user's,
/// or open to others; [`io::ErrorKind::InvalidInput`] if it is no regular file.
pub fn open_own(path: &Path, create: bool) -> io::Result<File> {
    let above = folder_of(path);
    let folder = OpenOptions::new().read(true).custom_flags(bits(OFlags::DIRECTORY)).open(above)?;
    check_folder(&folder.metadata()?, above)?;
    let name = path.file_name().unwrap_or(OsStr::new("."));
    let create = if create { OFlags::CREATE } else { OFlags::empty() };
    let flags = AT_ONCE | OFlags::RDWR | OFlags::NOFOLLOW | OFlags::CLOEXEC | create;
    let file = File::from(openat(&folder, name, flags, Mode::RUSR | Mode::WUSR)?);
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(not_regular(path));
    }
    check(&found, path, Guard::Secret)?;
    if found.nlink() > 1 {
        // Another name may be in a folder of somebody else's.
        let why = format!("{} has another name elsewhere: remove it", path.display());
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
    }
    Ok(file)
}

/// Makes a new file that nobody else may read, in the place of one that an earlier attempt left.
///
/// # Errors
/// The system's; [`io::ErrorKind::AlreadyExists`] if what is there cannot be removed.
pub fn create_fresh(path: &Path) -> io::Result<File> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        Ok(()) | Err(_) => {}
    }
    // No link is followed, and nothing that appeared meanwhile is used.
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)
}

/// Opening with these flags waits for no other end of a pipe, and takes no terminal over.
const AT_ONCE: OFlags = OFlags::NONBLOCK.union(OFlags::NOCTTY);

fn bits(flags: OFlags) -> i32 {
    i32::try_from(flags.bits()).expect("flags of open")
}

fn not_regular(path: &Path) -> io::Error {
    let why = format!("{} is a pipe, a device or a folder, and no file", path.display());
    io::Error::new(io::ErrorKind::InvalidInput, why)
}

fn folder_of(path: &Path) -> &Path {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    folder.unwrap_or(Path::new("."))
}

/// Checks that other users may not put something in the place of what is in a folder.
fn check_folder(metadata: &Metadata, path: &Path) -> io::Result<()> {
    check_owner(metadata, path)?;
    // In a folder like /tmp only the owner of a name, and that of the folder, may change it.
    if metadata.mode() & STICKY != 0 { Ok(()) } else { check(metadata, path, Guard::Trusted) }
}

fn refused(why: String) -> io::Result<()> {
    Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
}

fn check_owner(metadata: &Metadata, path: &Path) -> io::Result<()> {
    let owner = metadata.uid();
    if owner != 0 && owner != geteuid().as_raw() {
        return refused(format!(
            "{} belongs to user {owner}, who may change it: give it to user {} with chown, or \
             remove it",
            path.display(),
            geteuid().as_raw()
        ));
    }
    Ok(())
}

fn check(metadata: &Metadata, path: &Path, guard: Guard) -> io::Result<()> {
    check_owner(metadata, path)?;
    let mode = metadata.mode();
    let is_secret = guard == Guard::Secret;
    let what = if mode & WRITE != 0 {
        "change"
    } else if is_secret && mode & READ != 0 {
        "read"
    } else {
        return Ok(());
    };
    let mend = if is_secret { "go-rwx" } else { "go-w" };
    let path = path.display();
    refused(format!(
        "others may {what} {path} (mode {:o}): check that nobody did, and forbid it with 'chmod \
         {mend} {path}'",
        mode & 0o777
    ))
}

/// Forbids other processes of this user to read this one's memory, and the kernel to write it to a
/// core file. Root still may.
///
/// # Errors
/// The kernel's, if it refuses.
pub fn forbid_dumps() -> io::Result<()> {
    Ok(set_dumpable_behavior(DumpableBehavior::NotDumpable)?)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, chown, symlink};
    use std::path::PathBuf;

    use rustix::fs::{CWD, FileType, mknodat};

    use super::*;

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Scratch {
            let name = format!("anabranch-private-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            fs::create_dir_all(&path).unwrap();
            set_mode(&path, 0o700);
            Scratch(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn set_mode(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    fn pipe(path: &Path) {
        mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    }

    #[test]
    fn a_pipe_in_the_place_of_a_file_is_not_waited_for() {
        use std::io::Read;
        let scratch = Scratch::new("pipe");
        let path = scratch.0.join("pipe");
        pipe(&path);
        for opened in [open_regular(&path), open_own(&path, true), open_own(&path, false)] {
            assert_eq!(opened.unwrap_err().kind(), io::ErrorKind::InvalidInput);
        }
        let mut read = Vec::new();
        open_input(&path).unwrap().read_to_end(&mut read).unwrap();
        assert!(read.is_empty(), "nobody writes");
        assert_eq!(open_regular(&scratch.0).unwrap_err().kind(), io::ErrorKind::InvalidInput);
    }

    #[test]
    fn a_named_input_may_be_a_pipe() {
        use std::io::{Read, Write};
        use std::os::fd::AsRawFd;
        let (input, mut writer) = io::pipe().unwrap();
        let path = PathBuf::from(format!("/proc/self/fd/{}", input.as_raw_fd()));
        let mut opened = open_input(&path).unwrap();
        let reading = std::thread::spawn(move || {
            let mut text = String::new();
            opened.read_to_string(&mut text).unwrap();
            text
        });
        writer.write_all(b"later").unwrap();
        drop((writer, input));
        assert_eq!(reading.join().unwrap(), "later");
    }

    #[test]
    fn a_file_that_others_prepared_is_not_ones_own() {
        let scratch = Scratch::new("own");
        let path = scratch.0.join("file");
        assert_eq!(open_own(&path, false).unwrap_err().kind(), io::ErrorKind::NotFound);
        open_own(&path, true).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        let refused = |what: &str| {
            for create in [true, false] {
                let error = open_own(&path, create).expect_err(what);
                assert_eq!(error.kind(), io::ErrorKind::PermissionDenied, "{what}: {error}");
            }
        };
        for mode in [0o640, 0o606, 0o660] {
            set_mode(&path, mode);
            refused("others may read or change it");
        }
        set_mode(&path, 0o600);
        for mode in [0o777, 0o770, 0o702] {
            set_mode(&scratch.0, mode);
            refused("others may put another one in its place");
        }
        set_mode(&scratch.0, 0o1777);
        open_own(&path, true).expect("names in a sticky folder are their owners'");
        set_mode(&scratch.0, 0o700);
        fs::hard_link(&path, scratch.0.join("other")).unwrap();
        refused("it has another name");
        fs::remove_file(scratch.0.join("other")).unwrap();
        fs::rename(&path, scratch.0.join("other")).unwrap();
        symlink("other", &path).unwrap();
        assert!(open_own(&path, true).is_err(), "a link is not followed");
        fs::remove_file(&path).unwrap();
        fs::rename(scratch.0.join("other"), &path).unwrap();
        if !geteuid().is_root() {
            println!("skipped: only root gives files to other users");
            return;
        }
        chown(&path, Some(12_345), None).unwrap();
        refused("it is another user's");
        chown(&path, Some(0), None).unwrap();
        set_mode(&scratch.0, 0o1777);
        chown(&scratch.0, Some(12_345), None).unwrap();
        refused("the owner of a sticky folder changes what is in it");
        let file = File::open(&path).unwrap();
        assert!(check_private(&file, &path, Guard::Secret).is_err());
        chown(&scratch.0, Some(0), None).unwrap();
    }

    #[test]
    fn a_fresh_file_takes_the_place_of_a_link() {
        let scratch = Scratch::new("fresh");
        let (path, other) = (scratch.0.join("file"), scratch.0.join("other"));
        fs::write(&other, "mine").unwrap();
        symlink(&other, &path).unwrap();
        create_fresh(&path).unwrap();
        assert!(fs::symlink_metadata(&path).unwrap().is_file());
        assert_eq!(fs::read(&other).unwrap(), b"mine");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    }
}
