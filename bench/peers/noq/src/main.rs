//! What an encrypted packet costs: a bulk transfer between two ends in one thread, in virtual time,
//! over a link of 1 Gbit/s and 10 ms.
//!
//!     cost-by-noq ours|noq MEGABYTES
//!
//! Prints the datagrams that arrived, at both ends together, those with payload among them, the
//! bytes that arrived in order, the CPU time in seconds after the handshake, and the simulated
//! time.

mod link;
mod noq;
mod ours;

use rustix::time::{ClockId, clock_gettime};

/// One end of a connection in virtual time: nanoseconds since the run began.
trait End {
    /// A datagram arrived.
    fn handle(&mut self, now: u64, datagram: Vec<u8>);
    /// The next datagram to send.
    fn poll_transmit(&mut self, now: u64) -> Option<Vec<u8>>;
    /// When [`End::handle_deadline`] is due.
    fn poll_deadline(&self) -> Option<u64>;
    fn handle_deadline(&mut self, now: u64);
    /// The bytes that arrived in order.
    fn received(&self) -> u64;
    /// Whether data can be sent.
    fn is_open(&self) -> bool;
}

/// The largest datagrams of both.
const DATAGRAM: u16 = 1_452;
/// Receive buffers of both.
const WINDOW: u32 = 8 << 20;

fn cpu() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn main() {
    let mut words = std::env::args().skip(1);
    let which = words.next().expect("ours or noq");
    let bytes = words.next().and_then(|word| word.parse::<u64>().ok()).expect("megabytes") << 20;
    match which.as_str() {
        "ours" => {
            let (client, server) = ours::pair(bytes);
            run(client, server, bytes);
        }
        "noq" => {
            let (client, server) = noq::pair(bytes);
            run(client, server, bytes);
        }
        _ => panic!("ours or noq"),
    }
}

fn run<E: End>(client: E, server: E, bytes: u64) {
    let mut ends = [client, server];
    let mut links = [link::Link::new(), link::Link::new()];
    let (mut now, mut began) = (0, None);
    let (mut datagrams, mut large) = (0u64, 0u64);
    loop {
        for at in 0..2 {
            while let Some(datagram) = ends[at].poll_transmit(now) {
                links[at].send(now, datagram);
            }
        }
        if began.is_none() && ends.iter().all(End::is_open) {
            began = Some((cpu(), datagrams, large));
        }
        if ends[1].received() >= bytes {
            break;
        }
        let next = links.iter().filter_map(link::Link::next).min();
        let deadline = ends.iter().filter_map(End::poll_deadline).min();
        now = next.into_iter().chain(deadline).min().expect("there is something to do").max(now);
        for at in 0..2 {
            while let Some(datagram) = links[at].deliver(now) {
                datagrams += 1;
                large += u64::from(datagram.len() > 1_000);
                ends[1 - at].handle(now, datagram);
            }
            if ends[at].poll_deadline().is_some_and(|at| at <= now) {
                ends[at].handle_deadline(now);
            }
        }
        assert!(now < 1_000_000_000_000, "it takes for ever");
    }
    let (before, few, some) = began.expect("data arrived");
    println!(
        "{} {} {} {:.4} {:.3}",
        datagrams - few,
        large - some,
        ends[1].received(),
        cpu() - before,
        now as f64 / 1e9
    );
}
