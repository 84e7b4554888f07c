//! Places of proxies' clients that have not named a target yet, in which the oldest gives way.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

/// The clients that are in the middle of their greeting.
#[derive(Clone, Debug)]
pub(crate) struct Greetings {
    free: Arc<Semaphore>,
    clients: Arc<Mutex<Clients>>,
}

#[derive(Debug, Default)]
struct Clients {
    next: u64,
    /// By their numbers, oldest first; one whose sender is dropped has to leave.
    present: BTreeMap<u64, oneshot::Sender<()>>,
}

/// The place of a client, until dropped.
#[derive(Debug)]
pub(crate) struct GreetingPlace {
    all: Greetings,
    number: u64,
    displaced: oneshot::Receiver<()>,
    _free: OwnedSemaphorePermit,
}

impl Greetings {
    pub(crate) fn new(most: usize) -> Greetings {
        Greetings { free: Arc::new(Semaphore::new(most)), clients: Arc::default() }
    }

    /// A place for a further client; if need be that of the oldest, once it has left.
    pub(crate) async fn enter(&self) -> GreetingPlace {
        if self.free.available_permits() == 0 {
            self.clients().present.pop_first();
        }
        let free = Arc::clone(&self.free).acquire_owned().await.expect("never closed");
        let (holder, displaced) = oneshot::channel();
        let mut clients = self.clients();
        let number = clients.next;
        clients.next += 1;
        clients.present.insert(number, holder);
        drop(clients);
        GreetingPlace { all: self.clone(), number, displaced, _free: free }
    }

    fn clients(&self) -> MutexGuard<'_, Clients> {
        self.clients.lock().expect("no panic while held")
    }
}

impl GreetingPlace {
    /// Runs a greeting; `None` if the client has to give way before its end.
    pub(crate) async fn hold<T>(mut self, greeting: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            greeted = greeting => Some(greeted),
            _ = &mut self.displaced => None,
        }
    }
}

impl Drop for GreetingPlace {
    fn drop(&mut self) {
        self.all.clients().present.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    #[tokio::test]
    async fn the_oldest_gives_way_and_places_come_back() {
        let greetings = Greetings::new(2);
        let first = tokio::spawn(greetings.enter().await.hold(pending::<()>()));
        let second = greetings.enter().await;
        let third = greetings.enter().await;
        assert_eq!(first.await.unwrap(), None, "it was the oldest, and has left");
        assert_eq!(second.hold(ready(7)).await, Some(7));
        let fourth = greetings.enter().await;
        assert_eq!(third.hold(ready(8)).await, Some(8), "the second one's place was free");
        assert_eq!(fourth.hold(ready(9)).await, Some(9));
        assert!(greetings.clients().present.is_empty());
    }
}
