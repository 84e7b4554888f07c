//! Owners, modes and extended attributes of what is sent and received with `--archive`.
//!
//! Everything is read and set through descriptors, so that no name can lead elsewhere meanwhile.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{
    AtFlags, Gid, Mode, Stat, Uid, XattrFlags, chownat, fchmod, fchown, fgetxattr, flistxattr,
    fremovexattr, fsetxattr, fstat,
};
use rustix::io::Errno;
use wire::files::Archived;
use wire::manifest::{
    ACCESS_LIST, Attributes, CAPABILITY, Extended, MAX_ATTRIBUTE_VALUE, MODE_BITS, is_kept,
};

/// The set-user-id bit, and the set-group-id bit.
const SET_ID: u16 = 0o6000;
/// The permissions of the group.
const GROUP: u16 = 0o070;
/// Names and values up to this length need no memory of their own.
const SHORT: usize = 1_024;
/// The longest list of names that the kernel gives.
const LONGEST_LIST: usize = 64 * 1_024;

/// What came of setting attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Applied {
    /// Whether anything is other than before.
    pub(crate) is_changed: bool,
    /// Whether owner and mode are as wanted.
    pub(crate) has_owner: bool,
    /// Whether the extended attributes are as wanted.
    pub(crate) has_attributes: bool,
}

impl Applied {
    /// Nothing had to be done.
    const AS_WANTED: Applied = Applied { is_changed: false, has_owner: true, has_attributes: true };
}

/// Reads those of a file or folder that is open for reading.
///
/// # Errors
/// The system's, and if there are more extended attributes than can be sent.
pub(crate) fn of(file: impl AsFd) -> io::Result<Attributes> {
    let mut attributes = of_link(&fstat(&file)?);
    for name in names(&file)? {
        if let Some(value) = value(&file, &name)? {
            attributes.extended.push(Extended { name, value });
        }
    }
    let failed = |_| io::Error::other("it has too many extended attributes");
    attributes.check().map_err(failed)?;
    Ok(attributes)
}

/// Those that are in its metadata: all that a link has.
pub(crate) fn of_link(stat: &Stat) -> Attributes {
    let (uid, gid) = owner(stat);
    Attributes { mode: mode(stat), uid, gid, extended: Vec::new() }
}

/// Whether these metadata show the wanted owner and mode.
pub(crate) fn has_owner_and_mode(stat: &Stat, wanted: &Attributes) -> bool {
    owner(stat) == (wanted.uid, wanted.gid) && mode(stat) == wanted.mode
}

/// Whether a link with these metadata has the wanted owner.
pub(crate) fn has_owner(stat: &Stat, wanted: &Attributes) -> bool {
    owner(stat) == (wanted.uid, wanted.gid)
}

/// Whether a file or folder that is open for reading has the wanted extended attributes, and no
/// others of the kinds that are kept.
pub(crate) fn has_extended(file: impl AsFd, wanted: &Attributes) -> io::Result<bool> {
    let found = names(&file)?;
    if !found.iter().eq(wanted.extended.iter().map(|one| &one.name)) {
        return Ok(false);
    }
    for one in &wanted.extended {
        if value(&file, &one.name)?.as_ref() != Some(&one.value) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether a file that is open for reading would be given rights that it does not have: a bit of
/// [`SET_ID`], or capabilities.
pub(crate) fn grants(file: impl AsFd, stat: &Stat, wanted: &Attributes) -> io::Result<bool> {
    if wanted.mode & SET_ID & !mode(stat) != 0 {
        return Ok(true);
    }
    match wanted.get(CAPABILITY) {
        Some(wanted) => Ok(value(&file, CAPABILITY)?.is_none_or(|found| found != wanted)),
        None => Ok(false),
    }
}

/// Sets owner, extended attributes and mode of a file or folder that is open for reading. What the
/// system does not allow is left as it is, and then nobody has more rights than at the source.
///
/// # Errors
/// Those of the system that are no matter of rights.
pub(crate) fn apply(file: impl AsFd, wanted: &Attributes) -> io::Result<Applied> {
    let file = file.as_fd();
    let before = fstat(file)?;
    let mut applied = Applied::AS_WANTED;
    let had_extended = has_extended(file, wanted)?;
    if owner(&before) == (wanted.uid, wanted.gid) && had_extended {
        if mode(&before) != wanted.mode {
            // Some file systems take any mode, and keep none.
            let is_set = set_mode(file, wanted.mode)?;
            applied.has_owner = is_set && mode(&fstat(file)?) == wanted.mode;
            applied.is_changed = applied.has_owner;
        }
        return Ok(applied);
    }
    // The new group may not read it before its mode is right; some attributes need the right to
    // write.
    let private = mode(&before) & 0o700 | 0o600;
    set_mode(file, private)?;
    // A user's attributes need rights of the owner, which are gone afterwards. A change of the
    // owner clears capabilities, and the bits that the mode has then.
    set_extended(file, wanted, &mut applied, is_of_user)?;
    applied.has_owner = set_owner(file, &before, wanted)?;
    let access = set_extended(file, wanted, &mut applied, |name| !is_of_user(name))?;
    let mut final_mode = wanted.mode;
    if !applied.has_owner {
        // They would give somebody else's rights. Of folders they only say whose new files are.
        let is_folder = rustix::fs::FileType::from_raw_mode(before.st_mode).is_dir();
        final_mode &= if is_folder { !0o4000 } else { !SET_ID };
    }
    if !access {
        // With an access list these bits are not those of the group, but of everybody named in it.
        final_mode &= !GROUP;
    }
    applied.has_owner &= set_mode(file, final_mode)?;
    let after = fstat(file)?;
    applied.has_owner &= mode(&after) == final_mode;
    applied.is_changed = of_link(&before) != of_link(&after) || !had_extended;
    Ok(applied)
}

/// Sets the owner of a link, by a descriptor of the link itself.
///
/// # Errors
/// As [`apply`].
pub(crate) fn apply_to_link(link: impl AsFd, wanted: &Attributes) -> io::Result<Applied> {
    let before = fstat(&link)?;
    let mut applied = Applied::AS_WANTED;
    if has_owner(&before, wanted) {
        return Ok(applied);
    }
    let (uid, gid) = (Uid::from_raw(wanted.uid), Gid::from_raw(wanted.gid));
    applied.has_owner = is_allowed(chownat(&link, c"", Some(uid), Some(gid), AtFlags::EMPTY_PATH))?;
    applied.is_changed = applied.has_owner;
    Ok(applied)
}

/// Sets the owner; without the right to, at least the group. Returns whether both are as wanted.
fn set_owner(file: BorrowedFd<'_>, found: &Stat, wanted: &Attributes) -> io::Result<bool> {
    if owner(found) == (wanted.uid, wanted.gid) {
        return Ok(true);
    }
    let (uid, gid) = (Uid::from_raw(wanted.uid), Gid::from_raw(wanted.gid));
    let is_set = is_allowed(fchown(file, Some(uid), Some(gid)))?;
    if !is_set {
        is_allowed(fchown(file, None, Some(gid)))?;
    }
    Ok(is_set)
}

/// Whether an extended attribute is read and written with the rights for the contents.
fn is_of_user(name: &[u8]) -> bool {
    name.starts_with(b"user.")
}

/// Makes the extended attributes of these names those that are wanted. Returns whether the access
/// list is, if it is one of them.
fn set_extended(
    file: BorrowedFd<'_>,
    wanted: &Attributes,
    applied: &mut Applied,
    is_meant: impl Fn(&[u8]) -> bool,
) -> io::Result<bool> {
    let mut has_access_list = true;
    for name in names(file)?.into_iter().filter(|name| is_meant(name)) {
        if wanted.get(&name).is_none() {
            applied.has_attributes &= is_allowed(fremovexattr(file, &name[..]))?;
        }
    }
    for Extended { name, value: new } in wanted.extended.iter().filter(|one| is_meant(&one.name)) {
        if value(file, name)?.as_ref() == Some(new) {
            continue;
        }
        let is_set = is_allowed(fsetxattr(file, &name[..], new, XattrFlags::empty()))?;
        applied.has_attributes &= is_set;
        has_access_list &= is_set || name != ACCESS_LIST;
    }
    Ok(has_access_list)
}

/// Sets the mode. Returns whether that is allowed.
fn set_mode(file: BorrowedFd<'_>, mode: u16) -> io::Result<bool> {
    is_allowed(fchmod(file, Mode::from_raw_mode(mode.into())))
}

/// Whether the system did it; `false` if it does not allow it: for want of rights, for a user that
/// a container does not have, or for an attribute that the file system does not take.
fn is_allowed(done: Result<(), Errno>) -> io::Result<bool> {
    match done {
        // What is to be removed may have gone meanwhile.
        Ok(()) | Err(Errno::NODATA) => Ok(true),
        Err(
            Errno::PERM
            | Errno::ACCESS
            | Errno::INVAL
            | Errno::NOSYS
            | Errno::OVERFLOW
            | Errno::OPNOTSUPP
            | Errno::NOSPC
            | Errno::DQUOT
            | Errno::TOOBIG
            | Errno::RANGE,
        ) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// The names of the extended attributes that are kept, in order.
fn names(file: impl AsFd) -> io::Result<Vec<Vec<u8>>> {
    let list = grown(LONGEST_LIST, |list| flistxattr(&file, list));
    let list = match list {
        Ok(list) => list,
        // A file system without them.
        Err(Errno::OPNOTSUPP | Errno::NOSYS) => Vec::new(),
        Err(errno) => return Err(errno.into()),
    };
    let all = list.split(|&byte| byte == 0).filter(|name| is_kept(name));
    let mut names: Vec<Vec<u8>> = all.map(<[u8]>::to_vec).collect();
    names.sort_unstable();
    Ok(names)
}

/// The value of an extended attribute; `None` if there is none.
fn value(file: impl AsFd, name: &[u8]) -> io::Result<Option<Vec<u8>>> {
    match grown(MAX_ATTRIBUTE_VALUE, |value| fgetxattr(&file, name, value)) {
        Ok(value) => Ok(Some(value)),
        Err(Errno::NODATA | Errno::OPNOTSUPP | Errno::NOSYS) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

/// What `read` puts into a buffer, which is a large one only if a short one does not do.
fn grown(most: usize, read: impl Fn(&mut [u8]) -> Result<usize, Errno>) -> Result<Vec<u8>, Errno> {
    let mut short = [0; SHORT];
    match read(&mut short) {
        Ok(length) => return Ok(short[..length].to_vec()),
        Err(Errno::RANGE) => {}
        Err(errno) => return Err(errno),
    }
    let mut long = vec![0; most];
    let length = read(&mut long)?;
    long.truncate(length);
    Ok(long)
}

/// User and group.
fn owner(stat: &Stat) -> (u32, u32) {
    (stat.st_uid, stat.st_gid)
}

/// All twelve permission bits.
fn mode(stat: &Stat) -> u16 {
    u16::try_from(stat.st_mode & u32::from(MODE_BITS)).expect("twelve bits")
}

/// What a person is told of owners and attributes; `side` says where, if it is not here.
pub(crate) fn in_words(archived: Archived, side: &str) -> impl Iterator<Item = String> {
    let Archived { updated, lost_owners, lost_attributes, lost_modes, lost_entries } = archived;
    let of = |count: u32| match count {
        1 => "a file, folder or link".to_string(),
        count => format!("{count} files, folders and links"),
    };
    let told = [
        (
            updated,
            format!(
                "set owner, mode or attributes of {}, whose contents were there{side}",
                of(updated)
            ),
        ),
        (
            lost_owners,
            format!(
                "could not set the owner of {}{side}, and left out its set-user-id bits: only \
                 root may give files away, and only to users that a container has",
                of(lost_owners)
            ),
        ),
        (
            lost_attributes,
            format!(
                "could not set all extended attributes of {}{side}: the file system does not take \
                 them, or only root may set them",
                of(lost_attributes)
            ),
        ),
        (
            lost_modes,
            format!(
                "could not set mode or time of {}{side}, or made a copy of it in place of a hard \
                 link: the file system has none of that",
                of(lost_modes)
            ),
        ),
        (
            lost_entries,
            format!(
                "left out {}{side}: the file system has no symbolic links, or takes no such names",
                of(lost_entries)
            ),
        ),
    ];
    told.into_iter().filter(|(count, _)| *count > 0).map(|(_, text)| text)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::fs::PermissionsExt;
    use std::path::PathBuf;

    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};

    use super::*;

    /// A file of this process's, with these attributes.
    struct Made(PathBuf);

    impl Made {
        fn new(name: &str, mode: u32, extended: &[(&str, &[u8])]) -> Made {
            let process = std::process::id();
            let path = std::env::temp_dir().join(format!("anabranch-attributes-{name}-{process}"));
            fs::write(&path, "x").unwrap();
            let file = Made(path);
            for (name, value) in extended {
                fsetxattr(file.open(), *name, value, XattrFlags::empty()).unwrap();
            }
            fs::set_permissions(&file.0, fs::Permissions::from_mode(mode)).unwrap();
            file
        }

        fn open(&self) -> File {
            File::open(&self.0).unwrap()
        }

        fn stat(&self) -> Stat {
            fstat(self.open()).unwrap()
        }
    }

    impl Drop for Made {
        fn drop(&mut self) {
            let _ = fs::remove_file(&self.0);
        }
    }

    /// Runs `f` on a thread without a right that only root has, whoever runs the tests.
    fn without(right: CapabilitySet, f: impl FnOnce() + Send) {
        std::thread::scope(|scope| {
            let running = scope.spawn(|| {
                let mut sets = capabilities(None).unwrap();
                sets.effective -= right;
                set_capabilities(None, sets).unwrap();
                f();
            });
            running.join().unwrap();
        });
    }

    fn access_list(mask: u16) -> Vec<u8> {
        let none = u32::MAX;
        let entries =
            [(1u16, 6u16, none), (2, 7, 4_711), (4, 0, none), (0x10, mask, none), (0x20, 0, none)];
        let mut bytes = 2u32.to_le_bytes().to_vec();
        for (tag, rights, id) in entries {
            let entry = [&tag.to_le_bytes()[..], &rights.to_le_bytes(), &id.to_le_bytes()];
            bytes.extend(entry.concat());
        }
        bytes
    }

    #[test]
    fn without_the_right_the_owner_and_set_user_id_bits_are_left_out() {
        let made = Made::new("owner", 0o644, &[]);
        without(CapabilitySet::CHOWN, || {
            let me = made.stat();
            let wanted = Attributes {
                uid: me.st_uid + 1,
                mode: 0o6751,
                extended: vec![Extended { name: b"user.a".to_vec(), value: b"b".to_vec() }],
                ..of_link(&me)
            };
            let applied = apply(made.open(), &wanted).unwrap();
            let expected = Applied { is_changed: true, has_owner: false, has_attributes: true };
            assert_eq!(applied, expected);
            let found = of(made.open()).unwrap();
            assert_eq!(found, Attributes { uid: me.st_uid, mode: 0o751, ..wanted });
        });
    }

    /// Of a service that may give files away and may not read others' files.
    #[test]
    fn a_file_is_given_away_with_its_attributes_by_who_may_not_read_it_then() {
        let made = Made::new("given", 0o644, &[("user.old", b"x")]);
        without(CapabilitySet::DAC_OVERRIDE | CapabilitySet::DAC_READ_SEARCH, || {
            let me = made.stat();
            let wanted = Attributes {
                uid: me.st_uid + 1,
                mode: 0o600,
                extended: vec![Extended { name: b"user.a".to_vec(), value: b"b".to_vec() }],
                ..of_link(&me)
            };
            let may_give = capabilities(None).unwrap().effective.contains(CapabilitySet::CHOWN);
            let open = made.open();
            let applied = apply(&open, &wanted).unwrap();
            let expected = Applied { is_changed: true, has_owner: may_give, has_attributes: true };
            assert_eq!(applied, expected);
        });
        assert_eq!(names(made.open()).unwrap(), [b"user.a"]);
    }

    #[test]
    fn without_the_right_capabilities_are_left_out() {
        let made = Made::new("capability", 0o755, &[]);
        without(CapabilitySet::SETFCAP, || {
            let raw = [&0x0200_0001u32.to_le_bytes()[..], &[4, 0, 0, 0], &[0; 12]].concat();
            let capability = Extended { name: CAPABILITY.to_vec(), value: raw };
            let wanted = Attributes { extended: vec![capability], ..of_link(&made.stat()) };
            let applied = apply(made.open(), &wanted).unwrap();
            assert!(applied.has_owner && !applied.has_attributes);
            assert!(grants(made.open(), &made.stat(), &wanted).unwrap());
            assert_eq!(of(made.open()).unwrap().extended, []);
        });
    }

    #[test]
    fn owners_come_first_because_they_clear_what_comes_later() {
        let made = Made::new("order", 0o644, &[]);
        let me = made.stat();
        let raw = [&0x0200_0001u32.to_le_bytes()[..], &[4, 0, 0, 0], &[0; 12]].concat();
        let capability = Extended { name: CAPABILITY.to_vec(), value: raw };
        let (uid, gid) = (me.st_uid + 1, me.st_gid + 1);
        let wanted = Attributes { mode: 0o6755, uid, gid, extended: vec![capability] };
        let applied = apply(made.open(), &wanted).unwrap();
        let found = of(made.open()).unwrap();
        if applied.has_owner {
            assert_eq!((found, applied.has_attributes), (wanted, true));
        } else {
            // Only root gives files away.
            assert_eq!((found.mode, found.uid), (0o755, me.st_uid));
        }
    }

    #[test]
    fn what_the_source_does_not_have_is_removed() {
        let list = access_list(4);
        let made = Made::new(
            "removed",
            0o640,
            &[("user.a", b"1"), ("user.b", b"2"), ("system.posix_acl_access", &list)],
        );
        let mut wanted = of(made.open()).unwrap();
        assert_eq!(wanted.extended.len(), 3);
        assert!(has_extended(made.open(), &wanted).unwrap());
        wanted.extended.retain(|one| one.name == b"user.b");
        assert!(!has_extended(made.open(), &wanted).unwrap());
        let applied = apply(made.open(), &wanted).unwrap();
        assert!(applied.is_changed && applied.has_owner && applied.has_attributes);
        assert_eq!(of(made.open()).unwrap(), wanted);
        let again = apply(made.open(), &wanted).unwrap();
        assert_eq!(again, Applied::AS_WANTED);
    }

    #[test]
    fn an_access_list_that_cannot_be_set_gives_the_group_nothing() {
        let made = Made::new("access", 0o600, &[]);
        // The kernel refuses a list of another version.
        let mut list = access_list(7);
        list[0] = 9;
        let access = Extended { name: ACCESS_LIST.to_vec(), value: list };
        let wanted = Attributes { mode: 0o670, extended: vec![access], ..of_link(&made.stat()) };
        let applied = apply(made.open(), &wanted).unwrap();
        assert!(!applied.has_attributes);
        assert_eq!(mode(&made.stat()), 0o600);
    }

    #[test]
    fn a_long_value_is_read_whole() {
        let long = vec![3; 3_000];
        let made = Made::new("long", 0o600, &[("user.long", &long)]);
        assert_eq!(of(made.open()).unwrap().get(b"user.long"), Some(&long[..]));
    }
}
