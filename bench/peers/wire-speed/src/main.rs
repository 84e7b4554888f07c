//! Encrypted bytes over loopback, from one process to another.
//!
//!     wire-speed ours|noq receive
//!     wire-speed ours|noq send ADDRESS KEY MEGABYTES PATHS STREAMS
//!
//! The receiver prints its address and its key, and at the end the bytes that arrived and its
//! processor time in seconds, in user and system mode, from the first byte on. The sender prints
//! its own, and how long it took. Datagrams of both have at most 1,452 bytes.

mod noq;
mod ours;

use std::error::Error;

use rustix::time::{ClockId, clock_gettime};

type Result<T> = std::result::Result<T, Box<dyn Error>>;

/// The largest datagrams of both.
const DATAGRAM: u16 = 1_452;
/// The bytes of one write.
const CHUNK: usize = ZEROS.len();
/// What all streams write.
static ZEROS: [u8; 256 << 10] = [0; 256 << 10];
/// The bytes of one read.
const READ: usize = 64 << 10;

/// What a sender does.
struct Sending {
    address: std::net::SocketAddr,
    key: String,
    bytes: u64,
    paths: usize,
    streams: u32,
}

impl Sending {
    /// The bytes of one stream.
    fn of_each(&self) -> u64 {
        self.bytes / u64::from(self.streams)
    }
}

fn cpu() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        match words[..] {
            ["ours", "receive"] => ours::receive().await,
            ["noq", "receive"] => noq::receive().await,
            [which, "send", address, key, megabytes, paths, streams] => {
                let sending = Sending {
                    address: address.parse()?,
                    key: key.into(),
                    bytes: megabytes.parse::<u64>()? << 20,
                    paths: paths.parse()?,
                    streams: streams.parse()?,
                };
                let (begin, before) = (std::time::Instant::now(), cpu());
                match which {
                    "ours" => ours::send(&sending).await?,
                    _ => noq::send(&sending).await?,
                }
                println!("sent {} {}", cpu() - before, begin.elapsed().as_secs_f64());
                Ok(())
            }
            _ => Err("usage: see the head of main.rs".into()),
        }
    })
}
