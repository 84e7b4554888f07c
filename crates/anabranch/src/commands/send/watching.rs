//! `send --watch`: a folder is sent, and then what changes in it.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use events::{Event, Events, Summary};
use files::{Error, SendOptions};
use notify::{ErrorKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::Notify;
use tokio::time::sleep_until;

use super::changes::{Changes, Due, Gone};

/// The pause before a run that failed is tried again; it doubles, ...
const FIRST_PAUSE: Duration = Duration::from_secs(1);
/// ... up to this one.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
/// All is looked at so often whatever the kernel says: it does not tell of what other hosts change
/// in a network's file system, nor of what is written to mapped memory.
const WALK: Duration = Duration::from_secs(3_600);

/// A folder that is watched.
pub(super) struct Watched {
    folder: PathBuf,
    noted: Arc<Noted>,
    _watcher: RecommendedWatcher,
}

/// What the kernel has told.
#[derive(Default)]
struct Noted {
    changes: Mutex<Changes>,
    /// Rings with each change.
    rings: Notify,
}

impl Noted {
    fn changes(&self) -> MutexGuard<'_, Changes> {
        self.changes.lock().expect("no panic while held")
    }
}

impl Watched {
    /// Watches a folder with all that is in it. What changes from now on is noted.
    ///
    /// # Errors
    /// The system's, such as too many folders.
    pub(super) fn new(folder: &Path) -> Result<Watched, Error> {
        let failed = |source| Error::Source { path: folder.to_path_buf(), source };
        let folder = folder.canonicalize().map_err(failed)?;
        let noted = Arc::new(Noted::default());
        let (own, below) = (Arc::clone(&noted), folder.clone());
        let handle = move |event: notify::Result<notify::Event>| {
            let now = Instant::now();
            match event {
                Ok(event) => own.changes().handle_event(now, &below, &event),
                // A new folder that cannot be watched, for example.
                Err(_) => own.changes().note_unknown(now),
            }
            own.rings.notify_one();
        };
        let config = notify::Config::default().with_follow_symlinks(false);
        let refused = |error: notify::Error| of_system(&folder, error);
        let mut watcher = RecommendedWatcher::new(handle, config).map_err(refused)?;
        watcher.watch(&folder, RecursiveMode::Recursive).map_err(refused)?;
        Ok(Watched { folder, noted, _watcher: watcher })
    }

    /// Waits until something is to be sent.
    async fn due(&self, walk_at: Instant) -> Due {
        loop {
            let at = self.noted.changes().due_at().unwrap_or(walk_at).min(walk_at);
            tokio::select! {
                () = sleep_until(at.into()) => {}
                () = self.noted.rings.notified() => continue,
            }
            if Instant::now() >= walk_at {
                self.noted.changes().note_unknown(Instant::now());
            }
            let (noted, folder) = (Arc::clone(&self.noted), self.folder.clone());
            let taken = tokio::task::spawn_blocking(move || {
                let mut changes = std::mem::take(&mut *noted.changes());
                changes.take(&folder)
            });
            return taken.await.expect("looking at names does not panic");
        }
    }
}

fn of_system(folder: &Path, error: notify::Error) -> Error {
    let action = format!("watch {}", folder.display());
    let source = match error.kind {
        ErrorKind::Io(source) => source,
        ErrorKind::MaxFilesWatch => std::io::Error::other(
            "it has more folders than the kernel watches for a user: as root, raise \
             fs.inotify.max_user_watches ('sysctl -w fs.inotify.max_user_watches=1000000')",
        ),
        _ => std::io::Error::other(error.to_string()),
    };
    Error::system(action, source)
}

/// Sends the folder of `options`, and then what changes in it, until it is stopped.
///
/// # Errors
/// What the first run ends with, and what no further attempt would change.
pub(super) async fn send(
    watched: Watched,
    options: SendOptions,
    events: Events,
) -> Result<Summary, Error> {
    let stop = options.transfer.stop.clone();
    // What the kernel tells during the first run is sent after it.
    let first = files::send(options.clone(), events.clone()).await?;
    tell(&events, &Ok(first));
    let folder = options.sources[0].display();
    events.notice(format!("{folder} is watched: what changes in it is sent"));
    let mut pause = FIRST_PAUSE;
    let mut walk_at = Instant::now() + WALK;
    let mut told = String::new();
    loop {
        let due = tokio::select! {
            due = watched.due(walk_at) => due,
            () = stop.called() => return Err(Error::Stopped { reason: "it was told to".into() }),
        };
        let Some(run) = run_of(&options, due) else { continue };
        let is_whole = run.selection.files_from.is_none();
        match files::send(run, events.clone()).await {
            Ok(summary) => {
                tell(&events, &Ok(summary));
                (pause, told) = (FIRST_PAUSE, String::new());
                if is_whole {
                    walk_at = Instant::now() + WALK;
                }
            }
            // All that has changed is left out by the filters.
            Err(Error::NothingSelected) => {}
            // All that has changed has vanished since.
            Err(Error::Source { .. }) if !is_whole => {
                watched.noted.changes().note_unknown(Instant::now());
            }
            Err(error) if is_for_later(&error) => {
                let text = error.to_string();
                if text != told {
                    events.notice(format!("{text}; what has changed is sent later"));
                    told = text;
                }
                tokio::select! {
                    () = tokio::time::sleep(pause) => {}
                    () = stop.called() => return Err(error),
                }
                pause = (pause * 2).min(LONGEST_PAUSE);
                watched.noted.changes().note_unknown(Instant::now());
            }
            Err(error) => return Err(error),
        }
    }
}

/// The options of a run; `None`, if there is nothing to do.
fn run_of(options: &SendOptions, due: Due) -> Option<SendOptions> {
    let mut run = options.clone();
    // What is deleted is known only where all is.
    let names = match due {
        Due::Names(_, Gone::Something) if options.transfer.delete => None,
        Due::Names(names, _) if names.is_empty() => return None,
        Due::Names(names, _) => Some(names),
        Due::All => None,
    };
    run.transfer.delete &= names.is_none();
    let name = files::folder_name(&options.sources[0]);
    if names.is_some() && !name.is_empty() {
        // Listed names arrive without that of their folder, unless it is said.
        run.rename = Some(OsString::from_vec(name));
    }
    run.selection.files_from = names;
    // Data of an earlier attempt are discarded once.
    run.transfer.restart = false;
    Some(run)
}

/// Whether the same may succeed later: paths come back, disks get room, files stop to change.
fn is_for_later(error: &Error) -> bool {
    matches!(error.exit_code(), 5 | 6 | 7 | 8 | 11)
}

fn tell(events: &Events, result: &Result<Summary, Error>) {
    if let Ok(summary) = result {
        events.send(Event::Ended { transfer: 0, result: Ok(summary.clone()) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(delete: bool) -> SendOptions {
        let identity = peer::Identity::generate().unwrap();
        let mut transfer = files::TransferOptions::new(identity.clone());
        (transfer.delete, transfer.restart) = (delete, true);
        SendOptions {
            sources: vec!["folder".into()],
            stream: None,
            spool: None,
            rename: None,
            selection: files::Selection::default(),
            to: "host".parse().unwrap(),
            credential: peer::Credential::Pinned(identity.fingerprint()),
            transfer,
        }
    }

    #[test]
    fn all_is_looked_at_where_something_is_to_be_deleted() {
        let names = || vec![PathBuf::from("a")];
        for (delete, due, is_whole) in [
            (false, Due::Names(names(), Gone::Nothing), Some(false)),
            (false, Due::Names(names(), Gone::Something), Some(false)),
            (false, Due::Names(vec![], Gone::Something), None),
            (false, Due::All, Some(true)),
            (true, Due::Names(names(), Gone::Nothing), Some(false)),
            (true, Due::Names(vec![], Gone::Something), Some(true)),
            (true, Due::Names(vec![], Gone::Nothing), None),
            (true, Due::All, Some(true)),
        ] {
            let run = run_of(&options(delete), due.clone());
            let found = run.as_ref().map(|run| run.selection.files_from.is_none());
            assert_eq!(found, is_whole, "{delete} {due:?}");
            if let Some(run) = run {
                assert_eq!(run.transfer.delete, delete && is_whole == Some(true), "{due:?}");
                assert!(!run.transfer.restart);
                let name = run.rename.as_deref().map(|name| name.to_str().unwrap());
                assert_eq!(name, (is_whole == Some(false)).then_some("folder"), "{due:?}");
            }
        }
    }
}
