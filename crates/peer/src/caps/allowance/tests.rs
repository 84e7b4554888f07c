//! Bookings for an interface, and their use.

use std::fs;
use std::path::PathBuf;

use super::*;

const NOVEMBER: Month = Month { year: 2026, month: 11 };
const DECEMBER: Month = Month { year: 2026, month: 12 };

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path =
            std::env::temp_dir().join(format!("anabranch-allowance-{name}-{}", std::process::id()));
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
    assert_eq!(scratch.lines(), expected.map(|(month, kib)| format!("{month} {}", kib * 1_024)));
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
    let error =
        Allowance::open(Ledger::new(&scratch.0), "usb0", Some(Cap { bytes: Bytes(1) }), NOVEMBER)
            .expect_err("no count");
    assert!(error.to_string().contains("line 1: 'much'"), "{error}");
}
