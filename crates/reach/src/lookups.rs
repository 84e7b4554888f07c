//! Names, looked up as the system does it: by getaddrinfo, with everything that nsswitch.conf
//! names, in threads that peers share. A lookup cannot be stopped; the resolver gives up by itself,
//! after half a minute or more for a name whose servers say nothing. The threads are therefore
//! bounded, apart from those of the runtime, and a peer's bound outlives its connections. A lookup
//! whose asker has left is not started. Decision 48 has the reasons.

mod turns;

use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread;

use tokio::sync::oneshot;

use self::turns::Turns;

/// Names of a peer that are looked up at a time: each takes a thread until the resolver gives up,
/// whether or not anybody waits for it.
pub const LOOKUPS: usize = 16;
/// Names of all peers that are looked up at a time.
pub const ALL_LOOKUPS: usize = 128;

/// Who asks: a peer, by the hash of its key, or this host's own user.
pub type Asker = Option<[u8; 32]>;
/// The addresses of a name.
type Found = io::Result<Vec<SocketAddr>>;
type Resolver = dyn Fn(&str, u16) -> Found + Send + Sync;

/// Looks up names for everybody.
#[derive(Clone)]
pub struct Lookups(Arc<LookupThreads>);

/// Looks up names for one asker.
#[derive(Clone)]
pub struct AskerLookups {
    all: Lookups,
    asker: Asker,
}

struct LookupThreads {
    turns: Mutex<Turns<Asker, Question>>,
    resolver: Box<Resolver>,
}

struct Question {
    name: String,
    port: u16,
    answer: oneshot::Sender<Found>,
}

/// Withdraws a question, unless it has been answered, when nobody waits for its answer.
struct Waiting<'a> {
    lookups: &'a AskerLookups,
    number: u64,
}

impl Default for Lookups {
    fn default() -> Lookups {
        Lookups::new()
    }
}

impl Lookups {
    /// By the resolver of the system.
    #[must_use]
    pub fn new() -> Lookups {
        Lookups::with(|name, port| (name, port).to_socket_addrs().map(Iterator::collect))
    }

    fn with(resolver: impl Fn(&str, u16) -> Found + Send + Sync + 'static) -> Lookups {
        let turns = Mutex::new(Turns::new(LOOKUPS, ALL_LOOKUPS));
        Lookups(Arc::new(LookupThreads { turns, resolver: Box::new(resolver) }))
    }

    /// For one asker; clones, and others of the same asker, share its bound.
    pub fn of(&self, asker: impl Into<Asker>) -> AskerLookups {
        AskerLookups { all: self.clone(), asker: asker.into() }
    }

    fn turns(&self) -> MutexGuard<'_, Turns<Asker, Question>> {
        self.0.turns.lock().expect("no panic while held")
    }

    /// Starts a thread for each question whose turn it is.
    fn start(&self) {
        loop {
            let Some((asker, question)) = self.turns().start() else { return };
            self.spawn(asker, question);
        }
    }

    fn spawn(&self, asker: Asker, question: Question) {
        let lookups = self.clone();
        let work = move || lookups.work(asker, question);
        // Where there is no thread the question is dropped, and its asker hears of it.
        if let Err(error) = thread::Builder::new().name("lookup".into()).spawn(work) {
            tracing::debug!(%error, "no thread for a lookup");
            self.turns().finish(&asker);
        }
    }

    /// Answers a question, and then others as long as there are any.
    fn work(&self, mut asker: Asker, mut question: Question) {
        loop {
            let Question { name, port, answer } = question;
            // Whoever has left needs no answer.
            let _ = answer.send((self.0.resolver)(&name, port));
            let next = {
                let mut turns = self.turns();
                turns.finish(&asker);
                turns.start()
            };
            // That one ended may let two others begin, of peers that had their share.
            let Some(next) = next else { return };
            self.start();
            (asker, question) = next;
        }
    }
}

impl AskerLookups {
    /// The addresses of a name.
    ///
    /// # Errors
    /// The resolver's; [`io::ErrorKind::OutOfMemory`] if there is no thread for it.
    pub(crate) async fn find(&self, name: &str, port: u16) -> Found {
        let (answer, answered) = oneshot::channel();
        let question = Question { name: name.to_string(), port, answer };
        let number = self.all.turns().ask(self.asker, question);
        let waiting = Waiting { lookups: self, number };
        self.all.start();
        let found = answered.await.unwrap_or_else(|_| {
            let why = "this host has no thread for a lookup";
            Err(io::Error::new(io::ErrorKind::OutOfMemory, why))
        });
        drop(waiting);
        found
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let AskerLookups { all, asker } = self.lookups;
        all.turns().withdraw(asker, self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;
    use std::sync::Condvar;
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    const SHORT: Duration = Duration::from_millis(100);
    const LONG: Duration = Duration::from_secs(20);

    /// A resolver that says nothing of some names until it is released.
    #[derive(Default)]
    struct Silent {
        asked: Mutex<Vec<String>>,
        is_released: Mutex<bool>,
        changed: Condvar,
    }

    impl Silent {
        fn lookups(self: &Arc<Self>) -> Lookups {
            let silent = Arc::clone(self);
            Lookups::with(move |name, port| {
                silent.asked.lock().unwrap().push(name.into());
                if name.starts_with("never") {
                    let held = silent.is_released.lock().unwrap();
                    drop(silent.changed.wait_while(held, |is_released| !*is_released).unwrap());
                }
                Ok(vec![SocketAddr::from((Ipv4Addr::LOCALHOST, port))])
            })
        }

        fn asked(&self) -> usize {
            self.asked.lock().unwrap().len()
        }

        fn release(&self) {
            *self.is_released.lock().unwrap() = true;
            self.changed.notify_all();
        }
    }

    fn key(number: usize) -> [u8; 32] {
        [u8::try_from(number).unwrap(); 32]
    }

    /// Asks for many names that never resolve, and leaves.
    async fn ask_and_leave(lookups: &AskerLookups, names: usize) {
        let asking = (0..names).map(|number| {
            let lookups = lookups.clone();
            tokio::spawn(
                async move { timeout(SHORT, lookups.find(&format!("never{number}"), 1)).await },
            )
        });
        for asked in asking.collect::<Vec<_>>() {
            assert!(asked.await.unwrap().is_err(), "nobody answers");
        }
    }

    #[tokio::test]
    async fn names_that_never_resolve_leave_other_peers_their_lookups() {
        let silent = Arc::new(Silent::default());
        let lookups = silent.lookups();
        // It leaves, and comes back by another connection.
        for _ in 0..3 {
            ask_and_leave(&lookups.of(key(1)), 200).await;
        }
        assert_eq!(silent.asked(), LOOKUPS, "the bound outlives the askers");
        assert!(lookups.turns().is_idle(&Some(key(2))));
        // Four more of them do not use all up either.
        for peer in 3..7 {
            ask_and_leave(&lookups.of(key(peer)), 50).await;
        }
        let found = timeout(LONG, lookups.of(key(2)).find("honest", 7)).await.expect("at once");
        assert_eq!(found.unwrap(), [SocketAddr::from((Ipv4Addr::LOCALHOST, 7))]);
        let asked = silent.asked();
        silent.release();
        // Its places are given back, and what nobody waited for was not looked up.
        timeout(LONG, lookups.of(key(1)).find("honest", 7)).await.expect("it has places").unwrap();
        assert_eq!(silent.asked(), asked + 1);
    }

    /// A stuck lookup takes no thread of the runtime, which has one here for blocking work.
    #[test]
    fn lookups_take_no_thread_of_the_runtime() {
        let silent = Arc::new(Silent::default());
        let lookups = silent.lookups().of(key(1));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .max_blocking_threads(1)
            .enable_time()
            .build()
            .unwrap();
        runtime.block_on(async {
            ask_and_leave(&lookups, 5).await;
            timeout(LONG, tokio::task::spawn_blocking(|| ())).await.expect("it is free").unwrap();
        });
        // The runtime ends without waiting for them.
        drop(runtime);
        assert_eq!(silent.asked(), 5);
        silent.release();
    }
}
