//! The thread that writes, and syncs many streams at a time.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::{self, JoinHandle};

use super::KeptStream;

/// Files that are synced at a time: a file system makes one commit of what comes together.
const AT_ONCE: usize = 8;

/// Writes what streams have, and tells when it is safe. What arrives while the disk is busy is
/// synced together.
pub(super) struct Committer {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    queue: Mutex<Queue>,
    asked: Condvar,
}

#[derive(Default)]
struct Queue {
    /// Streams with something to write, each once.
    streams: VecDeque<Arc<KeptStream>>,
    is_over: bool,
}

impl Committer {
    pub(super) fn start() -> io::Result<Committer> {
        let shared = Arc::new(Shared::default());
        let own = Arc::clone(&shared);
        let thread = thread::Builder::new().name("collect".into()).spawn(move || own.run())?;
        Ok(Committer { shared, thread: Some(thread) })
    }

    /// The stream has something to write.
    pub(super) fn commit(&self, stream: &Arc<KeptStream>) {
        let mut queue = self.shared.queue.lock().expect("no panic while held");
        if !queue.streams.iter().any(|waiting| Arc::ptr_eq(waiting, stream)) {
            queue.streams.push_back(Arc::clone(stream));
        }
        drop(queue);
        self.shared.asked.notify_one();
    }
}

impl Drop for Committer {
    /// Waits until what was handed over is on the disk.
    fn drop(&mut self) {
        self.shared.queue.lock().expect("no panic while held").is_over = true;
        self.shared.asked.notify_one();
        if let Some(thread) = self.thread.take() {
            // A panic there has been told already.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn run(&self) {
        loop {
            let mut streams = {
                let mut queue = self.queue.lock().expect("no panic while held");
                while queue.streams.is_empty() {
                    if queue.is_over {
                        return;
                    }
                    queue = self.asked.wait(queue).expect("no panic while held");
                }
                std::mem::take(&mut queue.streams)
            };
            let streams = streams.make_contiguous();
            for stream in streams.iter() {
                stream.write(usize::MAX);
            }
            sync_all(streams);
        }
    }
}

/// Syncs each stream, several at a time.
fn sync_all(streams: &[Arc<KeptStream>]) {
    if let [only] = streams {
        return only.sync();
    }
    let each = streams.len().div_ceil(AT_ONCE);
    thread::scope(|scope| {
        for some in streams.chunks(each) {
            let sync = move || some.iter().for_each(|stream| stream.sync());
            if thread::Builder::new().spawn_scoped(scope, sync).is_err() {
                // Without a thread for it, it takes longer.
                sync();
            }
        }
    });
}
