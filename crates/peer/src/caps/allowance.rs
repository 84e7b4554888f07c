//! Bytes that a process has booked for an interface, and the use of them.

use std::cmp::Ordering;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use net::counters::TcpInfo;
use units::{Bytes, Rate, Span};

use super::{Booking, Ledger};
use crate::wall::{Month, month};
use crate::{Cap, Error, Fingerprint, Remote};

/// Bytes that may cross an interface before more have to be booked. Unused bytes are given back
/// when this is dropped; after a crash all booked bytes count as carried.
#[derive(Debug)]
pub struct Allowance {
    ledger: Ledger,
    interface: String,
    cap: Option<Cap>,
    state: Mutex<AllowanceState>,
    /// Serializes writes of the ledger.
    booking: Mutex<()>,
}

#[derive(Debug)]
struct AllowanceState {
    month: Month,
    booked: Bytes,
    used: Bytes,
    /// The month's total of all processes at the last booking, booked bytes included.
    total: Bytes,
    /// The reason why no more can be booked.
    refused: Option<String>,
    /// Whether a booking is due that [`Allowance::book`] has not made yet.
    under_way: bool,
    /// Whether its user has ended for fear of the cap: what is left is not worth another start.
    is_closed: bool,
}

impl AllowanceState {
    /// Whether the rest of the booking is too small for a new connection.
    fn is_gone(&self) -> bool {
        self.is_closed || self.used + RESERVE + CRUMBS > self.booked
    }
}

/// Whether more bytes may be sent, the most first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Room {
    /// They may be sent at once.
    Yes,
    /// They may be sent after the next booking.
    Later,
    /// The cap of this month is reached.
    Never,
}

/// Size of a booking: at least this, and the bytes that the connection carries in this time. A
/// crash wastes as much.
const AT_LEAST: Bytes = Bytes::kib(512);
const AHEAD: Span = Span::from_secs(1);
/// Kept from new data: for acknowledgements, retransmissions and the close of open connections.
const RESERVE: Bytes = Bytes::kib(32);
/// Too small to open a connection for.
const CRUMBS: Bytes = Bytes::kib(32);

impl Allowance {
    /// Makes the first booking for `interface`. `None` if the interface has no cap, and never had
    /// one that began a file.
    ///
    /// # Errors
    /// [`Error::System`] if the ledger can't be read or written.
    pub(crate) fn open(
        ledger: Ledger,
        interface: &str,
        cap: Option<Cap>,
        month: Month,
    ) -> Result<Option<Allowance>, Error> {
        if cap.is_none() && !ledger.knows(interface) {
            return Ok(None);
        }
        let state = AllowanceState {
            month,
            booked: Bytes::ZERO,
            used: Bytes::ZERO,
            total: Bytes::ZERO,
            refused: None,
            under_way: false,
            is_closed: false,
        };
        let allowance = Allowance {
            ledger,
            interface: interface.to_string(),
            cap,
            state: Mutex::new(state),
            booking: Mutex::default(),
        };
        allowance.try_book(AT_LEAST, month).map_err(|source| {
            let file = allowance.ledger.file(interface);
            Error::System {
                action: format!("keep count of what {interface} carries in {}", file.display()),
                source,
            }
        })?;
        Ok(Some(allowance))
    }

    /// The booking for what is moved on behalf of the holder of a key, in the ledger of that
    /// folder. Blocks for the sync of a disk.
    ///
    /// # Errors
    /// [`Error::System`] if the ledger can't be read or written.
    pub fn of_key(folder: &Path, key: Fingerprint, cap: Cap) -> Result<Allowance, Error> {
        let name = key.to_string();
        let opened = Allowance::open(Ledger::new(folder), &name, Some(cap), month())?;
        Ok(opened.expect("it has a cap"))
    }

    /// The booking for what is moved over the relay at that address, in the ledger of that folder.
    /// `None` if it has no cap, and never had one. Blocks for the sync of a disk.
    ///
    /// # Errors
    /// [`Error::System`] if the ledger can't be read or written.
    pub fn of_relay(
        folder: &Path,
        relay: &Remote,
        cap: Option<Cap>,
    ) -> Result<Option<Arc<Allowance>>, Error> {
        // No interface has a colon in its name.
        let name = format!("relay:{relay}");
        let opened = Allowance::open(Ledger::new(folder), &name, cap, month())?;
        Ok(opened.map(Arc::new))
    }

    /// Counts bytes that were moved, at a rate, and books more if there is need. Returns the reason
    /// why no more may be moved in this month. May block for the sync of a disk.
    pub fn carry(&self, bytes: Bytes, rate: Rate) -> Option<String> {
        let month = month();
        if self.month() != month {
            self.book(rate, month);
        }
        self.state().used += bytes;
        if self.wants(rate) {
            self.book(rate, month);
        }
        self.used_up()
    }

    fn state(&self) -> MutexGuard<'_, AllowanceState> {
        self.state.lock().expect("no panic while held")
    }

    /// The reason why the interface may carry no more in this month; `None` if it may.
    pub(crate) fn used_up(&self) -> Option<String> {
        let state = self.state();
        state.refused.clone().filter(|_| state.is_gone())
    }

    /// The month of the booking.
    pub(crate) fn month(&self) -> Month {
        self.state().month
    }

    /// Whether the interface may carry anything in `month`; books for it if it is a new one. Blocks
    /// for the sync of a disk, once a month.
    pub(crate) fn reopen(&self, month: Month) -> bool {
        if self.month() != month {
            self.book(Rate::ZERO, month);
        }
        self.used_up().is_none()
    }

    /// Whether `more` bytes of IP packets may be sent.
    fn room(&self, more: Bytes) -> Room {
        let state = self.state();
        if self.cap.is_none() || state.used + more + RESERVE <= state.booked {
            Room::Yes
        } else if state.refused.is_some() {
            Room::Never
        } else {
            Room::Later
        }
    }

    /// The bytes of the booking that new data may have.
    fn left(&self) -> Bytes {
        let state = self.state();
        state.booked - (state.used + RESERVE)
    }

    /// Whether [`Allowance::book`] is due for a connection of that rate; true once until it is
    /// called.
    fn wants(&self, rate: Rate) -> bool {
        let mut state = self.state();
        let due =
            !state.under_way && state.refused.is_none() && state.booked - state.used < ahead(rate);
        state.under_way |= due;
        due
    }

    /// Books enough for a connection of that rate. Blocks for the sync of a disk.
    fn book(&self, rate: Rate, month: Month) {
        let want = AT_LEAST.max(ahead(rate));
        let booked = self.try_book(want, month);
        let mut state = self.state();
        state.under_way = false;
        if let Err(error) = booked
            && self.cap.is_some()
        {
            let file = self.ledger.file(&self.interface);
            state.refused = Some(format!(
                "it has a cap, and the count in {} can't be kept: {error}",
                file.display()
            ));
        }
    }

    fn try_book(&self, want: Bytes, month: Month) -> io::Result<()> {
        let _one = self.booking.lock().expect("no panic while held");
        self.turn_over(month)?;
        let Booking { granted, total } =
            self.ledger.book(&self.interface, month, want, self.cap.map(|cap| cap.bytes))?;
        let mut state = self.state();
        state.booked += granted;
        state.total = total;
        if let Some(cap) = self.cap
            && granted < want
        {
            let file = self.ledger.file(&self.interface);
            state.refused =
                Some(format!("its cap of {cap} is used up for {month}, see {}", file.display()));
        }
        Ok(())
    }

    /// Settles the booking of a past month.
    fn turn_over(&self, month: Month) -> io::Result<()> {
        let (old, booked, used) = {
            let mut state = self.state();
            if state.month == month {
                return Ok(());
            }
            let former = (state.month, state.booked, state.used);
            (state.month, state.booked, state.used) = (month, Bytes::ZERO, Bytes::ZERO);
            (state.refused, state.is_closed) = (None, false);
            former
        };
        self.settle(old, booked, used)
    }

    /// Gives unused bytes back to the ledger, after any booking in progress. More can be booked
    /// afterwards. Blocks for the sync of a disk.
    pub(crate) fn close(&self) {
        let _one = self.booking.lock().expect("no panic while held");
        let (month, booked, used) = {
            let mut state = self.state();
            let former = (state.month, state.booked, state.used);
            if !state.is_gone() {
                // The rest can be booked again.
                state.refused = None;
            }
            state.booked = state.used;
            former
        };
        // No caller is left to get the error. The booked bytes then count as carried.
        let _ = self.settle(month, booked, used);
    }

    /// Replaces the booked bytes in the ledger by the used ones.
    fn settle(&self, month: Month, booked: Bytes, used: Bytes) -> io::Result<()> {
        match booked.cmp(&used) {
            Ordering::Greater => self.ledger.give_back(&self.interface, month, booked - used),
            Ordering::Less => {
                self.ledger.book(&self.interface, month, used - booked, None).map(drop)
            }
            Ordering::Equal => Ok(()),
        }
    }
}

impl Drop for Allowance {
    fn drop(&mut self) {
        self.close();
    }
}

fn ahead(rate: Rate) -> Bytes {
    (rate * AHEAD).max(Bytes(AT_LEAST.0 / 2))
}

/// Payload with its headers and acknowledgements, about; the kernel's counters correct it later.
fn on_the_wire(payload: Bytes) -> Bytes {
    Bytes(payload.0 + payload.0 / 16)
}

/// The payload of so many bytes on the wire, by the estimate of [`on_the_wire`].
fn payload_of(wire: Bytes) -> Bytes {
    Bytes(wire.0 / 17 * 16)
}

/// Bytes of one connection, as IP packets of both directions.
#[derive(Debug)]
pub struct Account {
    /// What they count towards, at least one: the interface's, the relay's.
    allowances: Vec<Arc<Allowance>>,
    /// Bytes of the IP and TCP headers of a packet, timestamps included.
    headers: u64,
    counted: Bytes,
}

impl Account {
    /// An account of one connection, of IPv6 or IPv4 packets, that counts towards these; `None` if
    /// there are none.
    pub(crate) fn of<'a>(
        allowances: impl Iterator<Item = &'a Arc<Allowance>>,
        ipv6: bool,
    ) -> Option<Account> {
        let allowances: Vec<_> = allowances.cloned().collect();
        let headers = if ipv6 { 40 + 32 } else { 20 + 32 };
        let is_any = !allowances.is_empty();
        is_any.then_some(Account { allowances, headers, counted: Bytes::ZERO })
    }

    /// Counts the connection's bytes so far: those in the kernel's counters, those that it holds
    /// unsent, and `coming`, payload that was requested and has not arrived.
    pub fn count(&mut self, info: &TcpInfo, coming: Bytes) {
        let queued = info.unsent.div_ceil(u64::from(info.mss.max(1)));
        let packets = info.segments_out + info.segments_in + queued;
        let total =
            Bytes(info.bytes_sent + info.unsent + info.bytes_received + self.headers * packets)
                + on_the_wire(coming);
        self.count_wire(total);
    }

    /// Has nothing more carried in this month by whatever counts towards a cap that has no room for
    /// `more` bytes of payload, although some of it is left.
    pub fn close_for_now(&self, more: Bytes) {
        let more = on_the_wire(more);
        let full = self.allowances.iter().filter(|allowance| allowance.room(more) == Room::Never);
        full.for_each(|allowance| allowance.state().is_closed = true);
    }

    /// Updates the count to these bytes on the wire.
    pub(crate) fn count_wire(&mut self, total: Bytes) {
        for allowance in &self.allowances {
            let mut state = allowance.state();
            state.used = state.used + total - self.counted;
        }
        self.counted = total;
    }

    /// Counts payload that was handed to the kernel or requested, as an estimate until the next
    /// [`Account::count`].
    pub fn expect(&mut self, payload: Bytes) {
        let wire = on_the_wire(payload);
        self.allowances.iter().for_each(|allowance| allowance.state().used += wire);
        self.counted += wire;
    }

    /// Whether `more` bytes of payload may be sent.
    #[must_use]
    pub fn room(&self, more: Bytes) -> Room {
        let more = on_the_wire(more);
        let rooms = self.allowances.iter().map(|allowance| allowance.room(more));
        rooms.max().expect("there is at least one")
    }

    /// The part of `most` bytes of payload that what is left of the caps has room for; `None` if it
    /// is too little to be worth a packet.
    #[must_use]
    pub fn part(&self, most: Bytes) -> Option<Bytes> {
        let left = self.allowances.iter().map(|allowance| allowance.left()).min();
        let left = left.filter(|left| *left >= CRUMBS)?;
        Some(most.min(payload_of(left)))
    }

    /// Books more if it is due, in the background.
    pub fn keep_ahead(&self, rate: Rate) {
        for allowance in self.allowances.iter().filter(|allowance| allowance.wants(rate)) {
            let allowance = Arc::clone(allowance);
            tokio::task::spawn_blocking(move || allowance.book(rate, crate::wall::month()));
        }
    }
}

#[cfg(test)]
mod tests;
