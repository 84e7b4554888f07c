//! Cgroups of programs of this host whose connections are background.
//!
//! A rule of nftables knows a cgroup by the number of its folder. There is none while a service
//! does not run, and each start gives it another one. So these rules have a chain of their own,
//! which a running gateway fills again whenever one of the folders comes or goes.

use std::convert::Infallible;
use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::Duration;

use events::Events;
use net::programs::execute;
use tokio::sync::watch;
use tokio::task::spawn_blocking;
use tokio::time::{Instant, sleep};
use units::{Span, Time, TokenBucket};

use crate::config::Background;

/// Where nft looks for cgroups: version 2 of them.
pub(crate) const ROOT: &str = "/sys/fs/cgroup";
/// What the folder has with version 2 alone.
const OF_VERSION_2: &str = "cgroup.controllers";
/// The time from one look at the folders to the next.
const LOOK: Duration = Duration::from_millis(50);
/// What could not be set is tried again after this.
const AGAIN: Duration = Duration::from_secs(10);
/// The rules are set eight times at once, and then once in a while: the user of a cgroup may make
/// others below it, and remove them, without end.
const THEN_EACH: Span = Span::from_secs(1);
const AHEAD: Span = Span::from_secs(7);

/// Whether nft finds cgroups on this host.
pub(crate) fn are_known() -> bool {
    Path::new(ROOT).join(OF_VERSION_2).exists()
}

/// Whether there is a cgroup of this name at present.
pub(crate) fn is_there(cgroup: &str) -> bool {
    number(Path::new(ROOT), cgroup).is_some()
}

/// The number of a cgroup, if there is one.
fn number(root: &Path, cgroup: &str) -> Option<u64> {
    let found = fs::metadata(root.join(cgroup)).ok()?;
    found.is_dir().then(|| found.ino())
}

/// The cgroups that are named.
pub(crate) fn named(background: &[Background]) -> impl Iterator<Item = &str> {
    background.iter().filter_map(|one| one.cgroup.as_deref())
}

/// Keeps the rules of programs as their cgroups are, for ever. `background` has what was read last,
/// and `refilled` makes of it what `nft -f` is to read.
pub(crate) async fn follow(
    background: watch::Receiver<Vec<Background>>,
    refilled: impl Fn(&[Background]) -> String,
    events: &Events,
) -> Infallible {
    if has_any(&background.borrow()) && !are_known() {
        events.notice(format!(
            "{ROOT} has no cgroups of version 2, and nftables knows no others: programs by cgroup \
             are not in the background"
        ));
    }
    let fill = |background: Vec<Background>| {
        let text = refilled(&background);
        async move {
            let filled = spawn_blocking(move || execute("nft", &["-f", "-"], &text)).await;
            filled.unwrap_or_else(|error| Err(error.to_string()))
        }
    };
    let tell = |why: &str| {
        events.notice(format!(
            "the rules for programs by cgroup are not set: {why}; 'anabranch gateway rules \
             --install' sets all of them"
        ));
    };
    follow_below(Path::new(ROOT), background, fill, tell).await
}

/// The same below another folder. `fill` sets the rules, and `tell` is told why it could not.
async fn follow_below<F: Future<Output = Result<(), String>>>(
    root: &Path,
    mut background: watch::Receiver<Vec<Background>>,
    mut fill: impl FnMut(Vec<Background>) -> F,
    tell: impl Fn(&str),
) -> Infallible {
    let mut turns = Turns::new();
    let mut wanted = (Vec::new(), Vec::new());
    let (mut set, mut set_at) = (Ok(()), Instant::now());
    loop {
        let now = background.borrow_and_update().clone();
        let numbers: Vec<_> = named(&now).map(|cgroup| number(root, cgroup)).collect();
        let looks = has_any(&now);
        let before = std::mem::replace(&mut wanted, (now, numbers));
        let is_due = wanted != before || set.is_err() && set_at.elapsed() >= AGAIN;
        if is_due && (looks || has_any(&before.0)) {
            turns.take().await;
            let again = fill(wanted.0.clone()).await;
            if let Err(why) = &again
                && set != again
            {
                tell(why);
            }
            (set, set_at) = (again, Instant::now());
        }
        tokio::select! {
            () = sleep(LOOK), if looks => {}
            changed = background.changed() => {
                if changed.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        }
    }
}

/// How often the rules may be set.
struct Turns {
    began: Instant,
    bucket: TokenBucket,
}

impl Turns {
    fn new() -> Turns {
        Turns { began: Instant::now(), bucket: TokenBucket::default() }
    }

    /// Waits for the next one.
    async fn take(&mut self) {
        let now = Time::ZERO + Span::from(self.began.elapsed());
        let ready = self.bucket.ready_at(now, AHEAD);
        sleep(Duration::from(ready - now)).await;
        self.bucket.take(ready, Span::ZERO, THEN_EACH);
    }
}

fn has_any(background: &[Background]) -> bool {
    named(background).next().is_some()
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::future::ready;
    use std::path::PathBuf;

    use tokio::sync::mpsc;
    use tokio::time::timeout;

    use super::*;

    /// In virtual time, as all of it.
    const PATIENCE: Duration = Duration::from_secs(60);

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Folder {
            let name = format!("anabranch-cgroups-{name}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            fs::create_dir_all(&path).expect("a scratch folder");
            Folder(path)
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn by_cgroup(name: &str) -> Vec<Background> {
        vec![Background { cgroup: Some(name.into()), ..Background::default() }]
    }

    /// A service starts, ends and starts again: its folder is another one each time.
    #[tokio::test(start_paused = true)]
    async fn the_rules_are_set_again_whenever_a_cgroup_comes_or_goes() {
        let folder = Folder::new("comes");
        let root = &folder.0;
        let service = root.join("system.slice/backup.service");
        let (filled, mut fills) = mpsc::unbounded_channel();
        let (send, background) = watch::channel(by_cgroup("system.slice/backup.service"));
        let fill = |background: Vec<Background>| {
            let numbers: Vec<_> = named(&background).map(|name| number(root, name)).collect();
            ready(filled.send(numbers).map_err(|error| error.to_string()))
        };
        let mut next = async || {
            let filled = timeout(PATIENCE, fills.recv()).await.expect("in time");
            filled.expect("it goes on")
        };
        let checks = async {
            assert_eq!(next().await, [None], "it does not run");
            fs::create_dir_all(&service).unwrap();
            assert!(next().await[0].is_some());
            fs::remove_dir(&service).unwrap();
            assert_eq!(next().await, [None]);
            fs::create_dir(&service).unwrap();
            assert!(next().await[0].is_some());
            send.send_replace(Vec::new());
            assert!(next().await.is_empty(), "nothing is named any more");
        };
        tokio::select! {
            never = follow_below(root, background, fill, |_| {}) => match never {},
            () = checks => {}
        }
    }

    /// Eight at once, and one a second then.
    #[tokio::test(start_paused = true)]
    async fn a_cgroup_that_comes_and_goes_without_end_has_few_turns() {
        let began = Instant::now();
        let mut turns = Turns::new();
        let mut taken = Vec::new();
        for _ in 0..11 {
            turns.take().await;
            taken.push(began.elapsed().as_secs());
        }
        assert_eq!(taken, [0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3]);
        sleep(Duration::from_secs(100)).await;
        for _ in 0..9 {
            turns.take().await;
        }
        assert_eq!(began.elapsed().as_secs(), 104);
    }

    /// Without a cgroup in the file nothing is touched; what could not be set is tried again.
    #[tokio::test(start_paused = true)]
    async fn only_what_is_named_is_set_and_until_it_is() {
        let folder = Folder::new("named");
        let (filled, mut fills) = mpsc::unbounded_channel();
        let (send, background) = watch::channel(Vec::new());
        let told = Cell::new(0);
        let mut failures = 2;
        let fill = |background: Vec<Background>| {
            filled.send(background.len()).expect("the test listens");
            failures -= 1;
            ready(if failures >= 0 { Err("no such table".into()) } else { Ok(()) })
        };
        let mut next = async |patience| timeout(patience, fills.recv()).await.ok().flatten();
        let checks = async {
            assert_eq!(next(PATIENCE).await, None, "nothing is named");
            send.send_replace(by_cgroup("a"));
            let began = Instant::now();
            for seconds in [0, 10, 20] {
                assert_eq!(next(PATIENCE).await, Some(1));
                assert_eq!(began.elapsed().as_secs(), seconds);
            }
            assert_eq!(next(PATIENCE).await, None, "it is set");
        };
        tokio::select! {
            never = follow_below(&folder.0, background, fill, |_| told.update(|n| n + 1)) => {
                match never {}
            }
            () = checks => {}
        }
        assert_eq!(told.get(), 1, "the same is told once");
    }
}
