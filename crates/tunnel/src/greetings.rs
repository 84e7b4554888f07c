//! Places of proxies' clients that have not named a target yet, in which the oldest gives way.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};

use tokio::sync::oneshot;

/// The clients that are in the middle of their greeting.
#[derive(Clone, Debug)]
pub(crate) struct Greetings {
    most: usize,
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
}

impl Greetings {
    pub(crate) fn new(most: usize) -> Greetings {
        Greetings { most, clients: Arc::default() }
    }

    /// A place for a further client, if need be that of the oldest.
    pub(crate) fn enter(&self) -> GreetingPlace {
        let (holder, displaced) = oneshot::channel();
        let mut clients = self.clients();
        if clients.present.len() >= self.most {
            clients.present.pop_first();
        }
        let number = clients.next;
        clients.next += 1;
        clients.present.insert(number, holder);
        drop(clients);
        GreetingPlace { all: self.clone(), number, displaced }
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
        let [first, second, third] = [(); 3].map(|()| greetings.enter());
        assert_eq!(first.hold(pending::<()>()).await, None, "it was the oldest");
        assert_eq!(second.hold(ready(7)).await, Some(7));
        let fourth = greetings.enter();
        assert_eq!(third.hold(ready(8)).await, Some(8), "the second one's place was free");
        assert_eq!(fourth.hold(ready(9)).await, Some(9));
        assert!(greetings.clients().present.is_empty());
    }
}
