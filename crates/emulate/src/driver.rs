//! The engine on real devices, in real time: one thread.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use sys::clock::Clock;
use sys::poll::{Interest, Poller, Ready, Waker, prefer_this_thread, thread_cpu_time};
use sys::tun::Tun;
use units::{Span, Time};

use crate::report::Histogram;

/// What the driver runs: packets in and out by the index of their device, no clock of its own.
pub(crate) trait Forward {
    /// Takes a packet that came in by a device.
    fn handle_packet(&mut self, now: Time, device: usize, data: &[u8]);

    /// The next moment when [`Forward::poll_transmit`] may have something.
    fn poll_deadline(&self) -> Option<Time>;

    /// The next packet that is to leave by `now`.
    fn poll_transmit(&mut self, now: Time) -> Option<Transmit>;
}

/// A packet that is to leave now.
#[derive(Clone, Debug)]
pub(crate) struct Transmit {
    /// The index of the device by which it leaves.
    pub(crate) device: usize,
    /// When it is due.
    pub(crate) at: Time,
    pub(crate) data: Box<[u8]>,
}

/// Requests to the driver's thread from outside.
#[derive(Debug)]
pub(crate) struct Control {
    pub(crate) waker: Waker,
    pub(crate) stop: AtomicBool,
}

impl Control {
    /// Ends the thread.
    pub(crate) fn end<F>(&self, thread: Option<Running<F>>) -> io::Result<Outcome<F>> {
        self.stop.store(true, Ordering::Release);
        self.waker.wake()?;
        let thread = thread.ok_or_else(|| io::Error::other("it was stopped already"))?;
        thread.join().map_err(|_| io::Error::other("the thread panicked"))?
    }
}

/// The driver's thread.
pub(crate) type Running<F> = JoinHandle<io::Result<Outcome<F>>>;

/// The result of the thread.
#[derive(Debug)]
pub(crate) struct Outcome<F> {
    pub(crate) engine: F,
    /// By device, of packets that left there.
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
/// Packets leave together that are due so soon after others, as behind a network card that spares
/// its host interrupts. Each wake-up of a host costs as much as ten packets: one for each packet
/// takes a processor at 200 Mbit/s, which hosts on the same machine then lack.
const MODERATION: Span = Span::from_micros(200);

/// Runs the engine on the devices until told to stop, by the clock.
pub(crate) fn run<F: Forward>(
    engine: F,
    devices: &[Tun],
    control: &Arc<Control>,
    clock: Clock,
) -> io::Result<Outcome<F>> {
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
        clock,
        lateness: devices.iter().map(|_| Histogram::new()).collect(),
        tun_errors: 0,
        buffer: vec![0; 65_536],
        sent_at: None,
    };
    let cpu = thread_cpu_time();
    let mut busy = Histogram::new();
    let mut ready: Vec<Ready> = Vec::new();
    let mut woken = driver.now();
    while !control.stop.load(Ordering::Acquire) {
        driver.transmit();
        let now = driver.now();
        busy.record(now - woken);
        let timeout = driver.wake_at().map(|at| Duration::from(at - now));
        poller.wait(&mut ready, timeout)?;
        woken = driver.now();
        if ready.iter().any(|ready| ready.key == WAKER_KEY) {
            control.waker.clear();
            // What is asked from outside does not wait for packets, of which there may be none.
            driver.sent_at = None;
        }
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
        wall: (driver.now() - Time::ZERO).into(),
        engine: driver.engine,
        lateness: driver.lateness,
        busy,
        tun_errors: driver.tun_errors,
        realtime,
    })
}

struct Driver<'a, F> {
    engine: F,
    devices: &'a [Tun],
    clock: Clock,
    lateness: Vec<Histogram>,
    tun_errors: u64,
    buffer: Vec<u8>,
    /// When packets left last.
    sent_at: Option<Time>,
}

impl<F: Forward> Driver<'_, F> {
    fn now(&self) -> Time {
        self.clock.now()
    }

    /// Reads some packets from a device; returns whether there may be more.
    fn receive(&mut self, index: usize) -> bool {
        for _ in 0..BATCH {
            match self.devices[index].receive(&mut self.buffer) {
                Ok(len) => {
                    let now = self.now();
                    self.engine.handle_packet(now, index, &self.buffer[..len]);
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

    /// When the next packets leave, or something else is due.
    fn wake_at(&self) -> Option<Time> {
        let at = self.engine.poll_deadline()?;
        Some(self.sent_at.map_or(at, |sent| at.max(sent + MODERATION)))
    }

    /// Sends the packets that are due, if none left just before.
    fn transmit(&mut self) {
        let now = self.now();
        if self.sent_at.is_some_and(|sent| now < sent + MODERATION) {
            return;
        }
        loop {
            let now = self.now();
            let Some(transmit) = self.engine.poll_transmit(now) else { return };
            self.sent_at = Some(now);
            self.lateness[transmit.device].record(now.since(transmit.at));
            if self.devices[transmit.device].send(&transmit.data).is_err() {
                self.tun_errors += 1;
            }
        }
    }
}
