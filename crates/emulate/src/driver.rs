//! The engine on real devices, in real time: one thread.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use sys::poll::{Interest, Poller, Ready, Waker, prefer_this_thread, thread_cpu_time};
use sys::tun::Tun;
use units::{Span, Time};

use crate::engine::{Engine, Port};
use crate::report::Histogram;

/// Requests to the driver's thread from outside.
#[derive(Debug)]
pub(crate) struct Control {
    pub(crate) waker: Waker,
    pub(crate) stop: AtomicBool,
}

/// The result of the thread.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) engine: Engine,
    /// By port index, of packets that left there.
    pub(crate) lateness: Vec<Histogram>,
    pub(crate) busy: Histogram,
    pub(crate) tun_errors: u64,
    pub(crate) cpu: Duration,
    pub(crate) wall: Duration,
    pub(crate) ended: Time,
    pub(crate) realtime: bool,
}

/// The most packets read from one device before due packets are sent.
const BATCH: usize = 16;
const WAKER_KEY: u64 = u64::MAX;

/// Runs the engine on the devices, by port index, until told to stop.
pub(crate) fn run(engine: Engine, devices: &[Tun], control: &Arc<Control>) -> io::Result<Outcome> {
    let realtime = prefer_this_thread();
    let poller = Poller::new()?;
    let readable = Interest { readable: true, writable: false };
    for (key, device) in (0..).zip(devices) {
        poller.add(device, key, readable)?;
    }
    poller.add(&control.waker, WAKER_KEY, readable)?;
    let mut driver = Driver {
        engine,
        devices,
        epoch: Instant::now(),
        lateness: devices.iter().map(|_| Histogram::new()).collect(),
        tun_errors: 0,
        buffer: vec![0; 65_536],
    };
    let cpu = thread_cpu_time();
    let mut busy = Histogram::new();
    let mut ready: Vec<Ready> = Vec::new();
    let mut woken = driver.now();
    while !control.stop.load(Ordering::Acquire) {
        driver.transmit();
        let now = driver.now();
        busy.record(now - woken);
        let timeout = driver.engine.poll_deadline().map(|deadline| Duration::from(deadline - now));
        poller.wait(&mut ready, timeout)?;
        woken = driver.now();
        let mut pending: Vec<usize> = ready
            .iter()
            .filter(|ready| ready.key != WAKER_KEY)
            .filter_map(|ready| usize::try_from(ready.key).ok())
            .collect();
        while !pending.is_empty() {
            pending.retain(|index| driver.receive(*index));
            driver.transmit();
        }
    }
    Ok(Outcome {
        ended: driver.now(),
        cpu: thread_cpu_time().saturating_sub(cpu),
        wall: driver.epoch.elapsed(),
        engine: driver.engine,
        lateness: driver.lateness,
        busy,
        tun_errors: driver.tun_errors,
        realtime,
    })
}

struct Driver<'a> {
    engine: Engine,
    devices: &'a [Tun],
    epoch: Instant,
    lateness: Vec<Histogram>,
    tun_errors: u64,
    buffer: Vec<u8>,
}

impl Driver<'_> {
    fn now(&self) -> Time {
        Time::ZERO + Span::from(self.epoch.elapsed())
    }

    /// Reads some packets from a device; returns whether there may be more.
    fn receive(&mut self, index: usize) -> bool {
        for _ in 0..BATCH {
            match self.devices[index].receive(&mut self.buffer) {
                Ok(len) => {
                    let now = self.now();
                    self.engine.handle_packet(now, Port::from_index(index), &self.buffer[..len]);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                Err(_) => {
                    self.tun_errors += 1;
                    return false;
                }
            }
        }
        true
    }

    /// Sends the packets that are due.
    fn transmit(&mut self) {
        loop {
            let now = self.now();
            let Some(transmit) = self.engine.poll_transmit(now) else { return };
            let index = transmit.port.index();
            self.lateness[index].record(now - transmit.at);
            if self.devices[index].send(&transmit.data).is_err() {
                self.tun_errors += 1;
            }
        }
    }
}
