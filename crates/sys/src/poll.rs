//! Waiting for descriptors with a time limit in nanoseconds, on a thread that wakes up in time.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};

/// Waits for many descriptors at once. Readiness is level-triggered.
#[derive(Debug)]
pub struct Poller {
    epoll: OwnedFd,
}

/// What to wait for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Interest {
    /// Bytes to read, or a connection to accept.
    pub readable: bool,
    /// Room to write, or a connection made.
    pub writable: bool,
}

/// A descriptor that is ready, by the key that it was added with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ready {
    /// The key.
    pub key: u64,
    /// Reading will not block; it may report an error or the end.
    pub readable: bool,
    /// Writing will not block; it may report an error.
    pub writable: bool,
    /// It failed or was closed on both sides; this is reported whatever was asked for, until it is
    /// removed.
    pub hung_up: bool,
}

impl Poller {
    /// An empty set.
    ///
    /// # Errors
    /// If there are no descriptors left.
    pub fn new() -> io::Result<Poller> {
        Ok(Poller { epoll: epoll::create(epoll::CreateFlags::CLOEXEC)? })
    }

    /// Adds a descriptor. It must be removed, or closed in all its copies, before it is added
    /// again.
    ///
    /// # Errors
    /// The error of `epoll_ctl`.
    pub fn add(&self, source: impl AsFd, key: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::add(&self.epoll, source, epoll::EventData::new_u64(key), flags(interest))?)
    }

    /// Changes what to wait for.
    ///
    /// # Errors
    /// The error of `epoll_ctl`.
    pub fn modify(&self, source: impl AsFd, key: u64, interest: Interest) -> io::Result<()> {
        Ok(epoll::modify(&self.epoll, source, epoll::EventData::new_u64(key), flags(interest))?)
    }

    /// Removes a descriptor.
    ///
    /// # Errors
    /// The error of `epoll_ctl`.
    pub fn remove(&self, source: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.epoll, source)?)
    }

    /// Waits until something is ready, or for `timeout` (`None`: for ever), and puts what is ready
    /// in `ready`. A signal ends it early, with nothing.
    ///
    /// # Errors
    /// The error of `epoll_pwait2`, which Linux has since 5.11.
    pub fn wait(&self, ready: &mut Vec<Ready>, timeout: Option<Duration>) -> io::Result<()> {
        ready.clear();
        let timeout = timeout.map(|timeout| Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(timeout.subsec_nanos()),
        });
        let mut space = [const { MaybeUninit::<epoll::Event>::uninit() }; 64];
        let events = match epoll::wait(&self.epoll, &mut space[..], timeout.as_ref()) {
            Ok((events, _)) => events,
            Err(rustix::io::Errno::INTR) => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        ready.extend(events.iter().map(|event| {
            let flags = event.flags;
            let failed = flags.intersects(epoll::EventFlags::ERR | epoll::EventFlags::HUP);
            Ready {
                key: event.data.u64(),
                readable: failed
                    || flags.intersects(epoll::EventFlags::IN | epoll::EventFlags::RDHUP),
                writable: failed || flags.contains(epoll::EventFlags::OUT),
                hung_up: failed,
            }
        }));
        Ok(())
    }
}

fn flags(interest: Interest) -> epoll::EventFlags {
    let mut flags = epoll::EventFlags::empty();
    flags.set(epoll::EventFlags::IN, interest.readable);
    flags.set(epoll::EventFlags::OUT, interest.writable);
    flags
}

/// Wakes a [`Poller`] from another thread: add it, readable.
#[derive(Debug)]
pub struct Waker {
    fd: OwnedFd,
}

impl Waker {
    /// A waker that was not used yet.
    ///
    /// # Errors
    /// If there are no descriptors left.
    pub fn new() -> io::Result<Waker> {
        Ok(Waker { fd: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)? })
    }

    /// Makes it readable, until [`Waker::clear`].
    ///
    /// # Errors
    /// The error of `write`.
    pub fn wake(&self) -> io::Result<()> {
        rustix::io::write(&self.fd, &1u64.to_ne_bytes())?;
        Ok(())
    }

    /// Makes it unreadable.
    pub fn clear(&self) {
        // An error only means that it was not woken.
        let _ = rustix::io::read(&self.fd, &mut [0u8; 8]);
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Asks the kernel to wake the calling thread to the nanosecond.
pub fn set_precise_timers() {
    // A failure leaves the usual 50 µs of slack.
    let _ = rustix::thread::set_current_timer_slack(std::num::NonZeroU64::new(1));
}

/// Asks the kernel to wake the calling thread to the nanosecond, and before ordinary threads where
/// the process may ask for that (`CAP_SYS_NICE`). Returns whether it may.
#[must_use]
pub fn prefer_this_thread() -> bool {
    set_precise_timers();
    // Above the least priority, because measured programs may run with `chrt --rr 1`.
    // musl's structure has more fields, for another policy.
    // SAFETY: the structure consists of integers, for which zero is a value.
    let mut parameter: libc::sched_param = unsafe { std::mem::zeroed() };
    parameter.sched_priority = 2;
    // SAFETY: it reads one sched_param, which lives through the call; pid 0 is the calling thread.
    let result = unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &raw const parameter) };
    result == 0
}

/// The processor time that the calling thread has used.
#[must_use]
pub fn thread_cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::new(u64::try_from(time.tv_sec).unwrap_or(0), u32::try_from(time.tv_nsec).unwrap_or(0))
}
