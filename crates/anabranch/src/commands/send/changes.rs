//! What has changed in a folder that is watched.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use notify::event::{AccessKind, AccessMode, EventKind, ModifyKind, RenameMode};

/// The most names that are remembered: the whole folder is looked at in place of more.
const MOST: usize = 10_000;
/// A change is sent once nothing else has changed for so long, ...
const QUIET: Duration = Duration::from_millis(500);
/// ... and after this time whatever happens.
const LONGEST: Duration = Duration::from_secs(5);

/// What has changed in a folder since it was sent.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// Names below the folder.
    changed: BTreeSet<PathBuf>,
    /// The same of folders that have come with contents of their own.
    come: BTreeSet<PathBuf>,
    has_removed: bool,
    /// Something has changed, and nobody knows what.
    is_unknown: bool,
    /// When the first and the last change was seen.
    seen: Option<(Instant, Instant)>,
}

/// What is to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// These names below the folder, without the contents of folders, and something may be gone.
    Names(Vec<PathBuf>, Gone),
    /// Whatever is there.
    All,
}

/// Whether something was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gone {
    Something,
    Nothing,
}

impl Changes {
    /// Takes in what the kernel says of something in `folder`.
    pub(super) fn handle_event(&mut self, now: Instant, folder: &Path, event: &notify::Event) {
        if event.need_rescan() {
            self.note_unknown(now);
            return;
        }
        let (comes, goes) = match event.kind {
            // Reading changes nothing.
            EventKind::Access(AccessKind::Close(AccessMode::Write)) => (false, false),
            EventKind::Access(_) => return,
            EventKind::Create(_) | EventKind::Modify(ModifyKind::Name(RenameMode::To)) => {
                (true, false)
            }
            EventKind::Remove(_) | EventKind::Modify(ModifyKind::Name(RenameMode::From)) => {
                (false, true)
            }
            // Both names, or one of them.
            EventKind::Modify(ModifyKind::Name(_)) => (true, true),
            _ => (false, false),
        };
        for path in &event.paths {
            let Ok(name) = path.strip_prefix(folder) else { continue };
            self.seen = Some(self.seen.map_or((now, now), |(first, _)| (first, now)));
            self.has_removed |= goes;
            // The folder itself is sent with anything in it.
            if name.as_os_str().is_empty() || self.is_unknown {
                continue;
            }
            let names = if comes { &mut self.come } else { &mut self.changed };
            names.insert(name.to_path_buf());
        }
        if self.changed.len() + self.come.len() > MOST {
            self.note_unknown(now);
        }
    }

    /// Something has changed, and nobody knows what.
    pub(super) fn note_unknown(&mut self, now: Instant) {
        (self.changed, self.come) = Default::default();
        (self.has_removed, self.is_unknown) = (true, true);
        self.seen = Some(self.seen.map_or((now, now), |(first, _)| (first, now)));
    }

    /// When there is something to be sent.
    pub(super) fn due_at(&self) -> Option<Instant> {
        self.seen.map(|(first, last)| (last + QUIET).min(first + LONGEST))
    }

    /// What is to be sent, which is forgotten here.
    pub(super) fn take(&mut self, folder: &Path) -> Due {
        let Changes { changed, come, has_removed, is_unknown, .. } = std::mem::take(self);
        if is_unknown {
            return Due::All;
        }
        let mut names = BTreeSet::new();
        let mut gone = if has_removed { Gone::Something } else { Gone::Nothing };
        for name in changed {
            match fs::symlink_metadata(folder.join(&name)) {
                Ok(_) => {
                    names.insert(name);
                }
                Err(_) => gone = Gone::Something,
            }
        }
        for name in come {
            match with_contents(folder, name, &mut names) {
                Ok(()) => {}
                Err(_) => gone = Gone::Something,
            }
            if names.len() > MOST {
                return Due::All;
            }
        }
        Due::Names(names.into_iter().collect(), gone)
    }
}

/// Adds a name and, if it is a folder, all that is in it: its contents may have come with it, or
/// before anybody watched it.
fn with_contents(folder: &Path, name: PathBuf, names: &mut BTreeSet<PathBuf>) -> io::Result<()> {
    let mut pending = vec![name];
    while let Some(name) = pending.pop() {
        let path = folder.join(&name);
        if fs::symlink_metadata(&path)?.is_dir() {
            for entry in fs::read_dir(&path)? {
                pending.push(name.join(entry?.file_name()));
            }
        }
        names.insert(name);
        if names.len() > MOST {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use notify::event::{CreateKind, Flag, RemoveKind};
    use tempfile::TempDir;

    use super::*;

    fn event(kind: EventKind, folder: &Path, name: &str) -> notify::Event {
        notify::Event::new(kind).add_path(folder.join(name))
    }

    const CREATE: EventKind = EventKind::Create(CreateKind::Any);
    const REMOVE: EventKind = EventKind::Remove(RemoveKind::Any);
    const MODIFY: EventKind = EventKind::Modify(ModifyKind::Any);

    fn names(names: &[&str], gone: Gone) -> Due {
        Due::Names(names.iter().map(PathBuf::from).collect(), gone)
    }

    #[test]
    fn changes_wait_for_a_quiet_moment_but_not_for_ever() {
        let (mut changes, start, folder) = (Changes::default(), Instant::now(), Path::new("/a"));
        assert_eq!(changes.due_at(), None);
        changes.handle_event(start, folder, &event(MODIFY, folder, "b"));
        assert_eq!(changes.due_at(), Some(start + QUIET));
        let last = start + 20 * QUIET;
        changes.handle_event(last, folder, &event(MODIFY, folder, "b"));
        assert_eq!(changes.due_at(), Some(start + LONGEST));
        changes.take(folder);
        assert_eq!(changes.due_at(), None);
        let read = EventKind::Access(AccessKind::Open(AccessMode::Read));
        changes.handle_event(last, folder, &event(read, folder, "b"));
        assert_eq!(changes.due_at(), None, "reading changes nothing");
    }

    #[test]
    fn what_has_come_is_sent_with_its_contents_and_what_is_gone_is_known() {
        let folder = TempDir::new().unwrap();
        let path = folder.path();
        fs::create_dir_all(path.join("new/deep")).unwrap();
        fs::create_dir(path.join("old")).unwrap();
        for file in ["new/deep/file", "old/file", "changed"] {
            fs::write(path.join(file), "x").unwrap();
        }
        let (mut changes, now) = (Changes::default(), Instant::now());
        let mut note = |kind, name| changes.handle_event(now, path, &event(kind, path, name));
        note(CREATE, "new");
        note(MODIFY, "changed");
        note(MODIFY, "old");
        assert_eq!(
            changes.take(path),
            names(&["changed", "new", "new/deep", "new/deep/file", "old"], Gone::Nothing)
        );
        // One that an editor has put in the place of another one.
        let mut note = |kind, name| changes.handle_event(now, path, &event(kind, path, name));
        note(CREATE, "temporary");
        note(EventKind::Modify(ModifyKind::Name(RenameMode::To)), "changed");
        assert_eq!(changes.take(path), names(&["changed"], Gone::Something));
        changes.handle_event(now, path, &event(REMOVE, path, "vanished"));
        assert_eq!(changes.take(path), names(&[], Gone::Something));
        assert_eq!(changes.take(path), names(&[], Gone::Nothing));
    }

    #[test]
    fn too_much_and_what_the_kernel_has_forgotten_is_looked_for() {
        let (mut changes, now, folder) = (Changes::default(), Instant::now(), Path::new("/a"));
        for number in 0..=MOST {
            let name = number.to_string();
            changes.handle_event(now, folder, &event(MODIFY, folder, &name));
        }
        assert!(changes.changed.is_empty());
        changes.handle_event(now, folder, &event(MODIFY, folder, "one more"));
        assert_eq!(changes.take(folder), Due::All);
        let forgotten = notify::Event::new(EventKind::Other).set_flag(Flag::Rescan);
        changes.handle_event(now, folder, &forgotten);
        assert!(changes.due_at().is_some());
        assert_eq!(changes.take(folder), Due::All);
    }
}
