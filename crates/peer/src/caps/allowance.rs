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
    pub(crate) fn close_for_now(&self, more: Bytes) {
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
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;

    const NOVEMBER: Month = Month { year: 2026, month: 11 };
    const DECEMBER: Month = Month { year: 2026, month: 12 };

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Scratch {
            let path = std::env::temp_dir()
                .join(format!("anabranch-allowance-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            Scratch(path)
        }

        fn open(&self, cap: Option<Cap>) -> Option<Arc<Allowance>> {
            Allowance::open(Ledger::new(&self.0), "usb0", cap, NOVEMBER)
                .expect("a folder")
                .map(Arc::new)
        }

        fn capped(&self, bytes: Bytes) -> Arc<Allowance> {
            self.open(Some(Cap { bytes })).expect("it has a cap")
        }

        fn lines(&self) -> Vec<String> {
            let text = fs::read_to_string(self.0.join("usb0")).expect("a file");
            text.lines().filter(|line| !line.starts_with('#')).map(str::to_string).collect()
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn account(of: &[&Arc<Allowance>], ipv6: bool) -> Account {
        Account::of(of.iter().copied(), ipv6).expect("there is something to count towards")
    }

    fn moved(bytes: u64) -> TcpInfo {
        TcpInfo { bytes_sent: bytes, mss: 1_448, ..TcpInfo::default() }
    }

    #[test]
    fn what_was_not_used_is_given_back() {
        let scratch = Scratch::new("back");
        let allowance = scratch.capped(Bytes::mib(10));
        let mut account = account(&[&allowance], false);
        account.expect(Bytes(50_000));
        account.count(&TcpInfo { segments_out: 40, segments_in: 20, ..moved(52_000) }, Bytes::ZERO);
        assert_eq!(scratch.lines(), [format!("2026-11 {}", AT_LEAST.0)], "booked ahead");
        drop((account, allowance));
        assert_eq!(scratch.lines(), [format!("2026-11 {}", 52_000 + 60 * 52)]);
    }

    #[test]
    fn what_is_asked_for_counts_until_it_is_here() {
        let scratch = Scratch::new("asked");
        let allowance = scratch.capped(Bytes::kib(512));
        let mut account = account(&[&allowance], false);
        account.expect(Bytes::kib(160));
        // The kernel knows of nothing yet.
        account.count(&moved(1_000), Bytes::kib(160));
        assert_eq!(account.room(Bytes::kib(320)), Room::Later, "half of it is spoken for");
        account.count(&TcpInfo { bytes_received: 80 * 1_024, ..moved(1_000) }, Bytes::kib(80));
        assert_eq!(account.room(Bytes::kib(320)), Room::Later);
        account.count(&TcpInfo { bytes_received: 80 * 1_024, ..moved(1_000) }, Bytes::ZERO);
        assert_eq!(account.room(Bytes::kib(320)), Room::Yes, "the other half never came");
        drop((account, allowance));
        assert_eq!(scratch.lines(), [format!("2026-11 {}", 1_000 + 80 * 1_024)]);
    }

    #[test]
    fn closed_books_are_right_while_somebody_still_holds_them() {
        let scratch = Scratch::new("closed");
        let allowance = scratch.capped(Bytes::kib(600));
        let mut account = account(&[&allowance], false);
        account.count(&moved(100_000), Bytes::ZERO);
        allowance.book(Rate::kbit(100), NOVEMBER);
        assert_eq!(scratch.lines(), [format!("2026-11 {}", 600 * 1_024)], "all of it is booked");
        allowance.close();
        assert_eq!(scratch.lines(), ["2026-11 100000"]);
        account.count(&moved(120_000), Bytes::ZERO);
        drop((account, allowance));
        assert_eq!(scratch.lines(), ["2026-11 120000"], "the rest, once");
    }

    #[test]
    fn what_is_given_back_at_the_close_can_be_booked_again() {
        let scratch = Scratch::new("again");
        let allowance = scratch.capped(Bytes::kib(600));
        let mut account = account(&[&allowance], false);
        account.count(&moved(100_000), Bytes::ZERO);
        allowance.book(Rate::kbit(100), NOVEMBER);
        // The last of the cap is booked, not carried: the receiver was restarted.
        allowance.close();
        assert_eq!(allowance.used_up(), None);
        assert!(allowance.wants(Rate::kbit(100)));
        allowance.book(Rate::kbit(100), NOVEMBER);
        assert_eq!(account.room(Bytes::kib(300)), Room::Yes);
        account.count(&moved(590 * 1_024), Bytes::ZERO);
        allowance.close();
        assert!(allowance.used_up().is_some(), "crumbs are not");
    }

    #[test]
    fn the_last_of_a_cap_goes_in_parts() {
        let scratch = Scratch::new("parts");
        let allowance = scratch.capped(Bytes::kib(512));
        let mut account = account(&[&allowance], false);
        allowance.book(Rate::kbit(100), NOVEMBER);
        account.count(&moved(200 * 1_024), Bytes::ZERO);
        assert_eq!(account.room(Bytes::kib(300)), Room::Never, "280 KiB are left");
        assert_eq!(account.part(Bytes::kib(200)), Some(Bytes::kib(200)));
        let part = account.part(Bytes::kib(300)).expect("much is left");
        assert_eq!(part, Bytes(280 * 1_024 / 17 * 16));
        assert_eq!(account.room(part), Room::Yes);
        account.count(&moved((512 - 64) * 1_024), Bytes::ZERO);
        assert_eq!(account.part(Bytes::kib(300)), Some(Bytes(CRUMBS.0 / 17 * 16)));
        assert_eq!(allowance.used_up(), None);
        account.count(&moved((512 - 64) * 1_024 + 1), Bytes::ZERO);
        assert_eq!(account.part(Bytes::kib(300)), None);
        assert!(allowance.used_up().is_some(), "both stop at the same byte");
    }

    #[test]
    fn a_cap_that_is_used_up_closes_itself_alone() {
        let scratch = Scratch::new("alone");
        let (relay, line) = (scratch.capped(Bytes::kib(512)), scratch.0.join("line"));
        let cap = Some(Cap { bytes: Bytes::mib(10) });
        let line = Allowance::open(Ledger::new(&line), "eth0", cap, NOVEMBER).expect("a folder");
        let line = Arc::new(line.expect("it has a cap"));
        let mut account = account(&[&relay, &line], false);
        relay.book(Rate::kbit(100), NOVEMBER);
        account.count(&moved(400 * 1_024), Bytes::ZERO);
        account.close_for_now(Bytes::kib(100));
        assert!(relay.used_up().is_some());
        assert_eq!(line.used_up(), None);
        line.book(Rate::kbit(100), NOVEMBER);
        assert_eq!(line.used_up(), None);
    }

    #[test]
    fn a_cap_ends_it() {
        let scratch = Scratch::new("ends");
        let allowance = scratch.capped(Bytes::kib(600));
        let mut account = account(&[&allowance], false);
        account.count(&moved(400 * 1_024), Bytes::ZERO);
        assert_eq!(account.room(Bytes::kib(90)), Room::Later, "only what is booked");
        assert!(allowance.wants(Rate::kbit(100)) && !allowance.wants(Rate::kbit(100)), "once");
        allowance.book(Rate::kbit(100), NOVEMBER);
        assert_eq!(account.room(Bytes::kib(90)), Room::Yes);
        assert_eq!(allowance.used_up(), None);
        account.count(&moved(540 * 1_024), Bytes::ZERO);
        assert_eq!(account.room(Bytes::kib(90)), Room::Never);
        let why = allowance.used_up().expect("nothing left");
        assert!(why.starts_with("its cap of 614.4 kB a month is used up for 2026-11"), "{why}");
        // The next transfer sees it from the beginning.
        drop((account, allowance));
        assert!(scratch.capped(Bytes::kib(600)).used_up().is_some());
        assert!(scratch.capped(Bytes::mib(600)).used_up().is_none(), "a higher cap leaves room");
    }

    #[test]
    fn what_counts_towards_two_caps_ends_with_the_first() {
        let scratch = Scratch::new("two");
        let interface = scratch.capped(Bytes::mib(600));
        let relay: Remote = "r1.example.org".parse().expect("a name");
        let of_relay = |cap| Allowance::of_relay(&scratch.0, &relay, cap).expect("a folder");
        assert!(of_relay(None).is_none(), "no file of what has no cap");
        let over_relay = of_relay(Some(Cap { bytes: Bytes::kib(600) })).expect("it has a cap");
        let mut both = account(&[&interface, &over_relay], false);
        both.count(&moved(540 * 1_024), Bytes::ZERO);
        let month = over_relay.month();
        over_relay.book(Rate::kbit(100), month);
        assert_eq!(both.room(Bytes::kib(90)), Room::Never, "over the relay");
        assert!(over_relay.used_up().is_some() && interface.used_up().is_none());
        drop((both, interface, over_relay));
        assert_eq!(scratch.lines(), [format!("2026-11 {}", 540 * 1_024)]);
        let text = fs::read_to_string(scratch.0.join("relay:r1.example.org:7707"));
        assert!(text.expect("a file").contains(&format!("{month} {}", 540 * 1_024)));
        let lasting = of_relay(None).expect("counted since");
        assert_eq!(account(&[&lasting], false).room(Bytes::mib(100)), Room::Yes);
    }

    #[test]
    fn a_new_month_begins_at_nothing() {
        let scratch = Scratch::new("month");
        let allowance = scratch.capped(Bytes::kib(512));
        let mut account = account(&[&allowance], true);
        account.count(&moved(300_000), Bytes::ZERO);
        allowance.book(Rate::ZERO, DECEMBER);
        account.count(&moved(400_000), Bytes::ZERO);
        drop((account, allowance));
        assert_eq!(scratch.lines(), ["2026-11 300000", "2026-12 100000"]);
    }

    #[test]
    fn what_is_used_up_reopens_at_the_months_turn() {
        let scratch = Scratch::new("reopens");
        let allowance = scratch.capped(Bytes::kib(512));
        let mut account = account(&[&allowance], false);
        account.count(&moved(500 * 1_024), Bytes::ZERO);
        allowance.book(Rate::ZERO, NOVEMBER);
        assert!(allowance.used_up().is_some());
        assert!(!allowance.reopen(NOVEMBER), "not before");
        assert!(allowance.reopen(DECEMBER) && allowance.reopen(DECEMBER));
        assert_eq!((allowance.month(), allowance.used_up()), (DECEMBER, None));
        assert_eq!(account.room(Bytes::kib(90)), Room::Yes);
        // Another transfer was there before: the new month's is gone too.
        account.count(&moved(1_000 * 1_024), Bytes::ZERO);
        let january = Month { year: 2027, month: 1 };
        Ledger::new(&scratch.0).book("usb0", january, Bytes::kib(512), None).expect("a folder");
        assert!(!allowance.reopen(january));
        assert!(allowance.used_up().expect("nothing left").contains("2027-01"));
        drop((account, allowance));
        let expected = [("2026-11", 500), ("2026-12", 500), ("2027-01", 512)];
        assert_eq!(
            scratch.lines(),
            expected.map(|(month, kib)| format!("{month} {}", kib * 1_024))
        );
    }

    #[test]
    fn what_was_once_capped_is_counted_without_one_too() {
        let scratch = Scratch::new("counted");
        assert!(scratch.open(None).is_none());
        drop(scratch.capped(Bytes::mib(1)));
        let allowance = scratch.open(None).expect("counted since");
        let mut account = account(&[&allowance], false);
        account.count(&moved(5_000_000), Bytes::ZERO);
        assert_eq!(account.room(Bytes::mib(100)), Room::Yes);
        drop((account, allowance));
        assert_eq!(scratch.lines(), ["2026-11 5000000"]);
    }

    #[test]
    fn a_count_that_cannot_be_kept_is_an_error() {
        let scratch = Scratch::new("error");
        fs::create_dir_all(&scratch.0).expect("a folder");
        fs::write(scratch.0.join("usb0"), "much\n").expect("a file");
        let error = Allowance::open(
            Ledger::new(&scratch.0),
            "usb0",
            Some(Cap { bytes: Bytes(1) }),
            NOVEMBER,
        )
        .expect_err("no count");
        assert!(error.to_string().contains("line 1: 'much'"), "{error}");
    }
}
