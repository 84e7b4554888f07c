//! Somebody between a dialing host and a listening one.

use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

/// What somebody does to a datagram between the ends.
pub(crate) type Mischief = fn(&mut Dice, &mut Vec<u8>) -> Fate;

/// What becomes of a datagram.
pub(crate) enum Fate {
    Passes,
    /// It passes, and so do these many copies.
    Again(usize),
    Lost,
}

/// Reproducible choices.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    /// A number below `most`.
    pub(crate) fn below(&mut self, most: u64) -> u64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % most
    }
}

/// Forwards datagrams between one dialing host and a listening one, as long as it lives.
pub(crate) struct Between {
    /// The address for the dialing host.
    pub(crate) address: SocketAddr,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// How many datagrams passed.
    pub(crate) forwarded: Arc<AtomicU64>,
}

impl Between {
    /// Forwards to a listening host; `seed` is that of the choices.
    pub(crate) fn new(to: SocketAddr, seed: u64, mischief: Mischief) -> Between {
        let near = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
        let far = UdpSocket::bind("127.0.0.1:0").expect("a port is free");
        for socket in [&near, &far] {
            socket.set_read_timeout(Some(Duration::from_millis(1))).expect("it is a socket");
        }
        let address = near.local_addr().expect("it is bound");
        let (stop, forwarded) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let (ends, count) = (Arc::clone(&stop), Arc::clone(&forwarded));
        let thread = std::thread::spawn(move || {
            let mut dice = Dice(seed);
            let mut dialing = None;
            let mut buffer = vec![0; 65_536];
            while !ends.load(Ordering::Relaxed) {
                for (from, other, is_near) in [(&near, &far, true), (&far, &near, false)] {
                    // Some of one direction, then of the other.
                    for _ in 0..64 {
                        let Ok((length, sender)) = from.recv_from(&mut buffer) else { break };
                        if is_near {
                            dialing = Some(sender);
                        }
                        let Some(target) = (if is_near { Some(to) } else { dialing }) else {
                            break;
                        };
                        let mut datagram = buffer[..length].to_vec();
                        let copies = match mischief(&mut dice, &mut datagram) {
                            Fate::Passes => 1,
                            Fate::Again(copies) => 1 + copies,
                            Fate::Lost => 0,
                        };
                        for _ in 0..copies {
                            let _ = other.send_to(&datagram, target);
                            count.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                }
            }
        });
        Between { address, stop, thread: Some(thread), forwarded }
    }
}

impl Drop for Between {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
