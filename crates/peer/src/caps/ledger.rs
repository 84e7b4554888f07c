//! Files with the bytes that each interface or relay carried, or that were moved for a key, by
//! month.
//!
//! Each line is a month and its bytes of IP packets: `2026-11 123456789`. A process that changes a
//! file locks the folder, writes a new file beside the old one, syncs it and renames it over the
//! old one: concurrent processes are all counted, and a crash leaves the old file or the new one.

use std::fmt::Write as _;
use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use units::Bytes;

use crate::private::{create_fresh, open_regular};
use crate::wall::Month;

/// The folder of the files.
#[derive(Clone, Debug)]
pub(crate) struct Ledger {
    folder: PathBuf,
}

/// The result of a booking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Booking {
    /// Bytes granted; no more than wanted.
    pub(crate) granted: Bytes,
    /// The month's total, these bytes included.
    pub(crate) total: Bytes,
}

/// Months that a file keeps.
const REMEMBERED: usize = 13;
/// The rights of other users.
const OTHERS: u32 = 0o077;
/// The first line of a file.
const HEAD: &str = "# Bytes that anabranch moved over this interface or relay, or for this key, a \
                    line a month. Correct it if the provider counts otherwise.\n";

impl Ledger {
    /// The ledger in `folder`, which need not exist.
    #[must_use]
    pub(crate) fn new(folder: &Path) -> Ledger {
        Ledger { folder: folder.to_path_buf() }
    }

    /// The file of `interface`.
    #[must_use]
    pub(crate) fn file(&self, interface: &str) -> PathBuf {
        self.folder.join(interface)
    }

    /// Whether `interface` has a file.
    #[must_use]
    pub(crate) fn knows(&self, interface: &str) -> bool {
        self.file(interface).exists()
    }

    /// Books up to `want` bytes for `interface`, as far as the month's total stays within `cap`.
    ///
    /// # Errors
    /// The system's; [`io::ErrorKind::InvalidData`] with the number and text of a malformed line.
    pub(crate) fn book(
        &self,
        interface: &str,
        month: Month,
        want: Bytes,
        cap: Option<Bytes>,
    ) -> io::Result<Booking> {
        self.change(interface, month, |carried| {
            let granted = cap.map_or(want, |cap| want.min(cap - carried));
            (carried + granted, Booking { granted, total: carried + granted })
        })
    }

    /// Returns booked bytes that were not used.
    ///
    /// # Errors
    /// As [`Ledger::book`].
    pub(crate) fn give_back(&self, interface: &str, month: Month, unused: Bytes) -> io::Result<()> {
        self.change(interface, month, |carried| (carried - unused, ()))
    }

    fn change<T>(
        &self,
        interface: &str,
        month: Month,
        change: impl FnOnce(Bytes) -> (Bytes, T),
    ) -> io::Result<T> {
        // Which networks somebody uses, and how much, is nobody else's business.
        DirBuilder::new().recursive(true).mode(0o700).create(&self.folder)?;
        let folder = File::open(&self.folder)?;
        make_private(&folder, 0o700)?;
        // Held until `folder` is closed.
        flock(&folder, FlockOperation::LockExclusive)?;
        let path = self.file(interface);
        let mut months = read(&path)?;
        let place = match months.binary_search_by_key(&month, |(known, _)| *known) {
            Ok(place) => place,
            Err(place) => {
                months.insert(place, (month, Bytes::ZERO));
                place
            }
        };
        let (carried, result) = change(months[place].1);
        if months[place].1 == carried && path.exists() {
            return Ok(result);
        }
        months[place].1 = carried;
        let oldest = months.len().saturating_sub(REMEMBERED);
        let mut text = String::from(HEAD);
        for (month, carried) in &months[oldest..] {
            let _ = writeln!(text, "{month} {}", carried.0);
        }
        // No interface, relay or key has a slash in its name.
        let fresh = self.folder.join(format!(".{interface}.new"));
        let mut file = create_fresh(&fresh)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        fs::rename(&fresh, &path)?;
        folder.sync_all()?;
        Ok(result)
    }
}

/// Takes the rights of other users from what a run has left that did not create it like this.
fn make_private(file: &File, mode: u32) -> io::Result<()> {
    if file.metadata()?.mode() & OTHERS == 0 {
        return Ok(());
    }
    file.set_permissions(Permissions::from_mode(mode))
}

/// The months in a file, in order; none if there is no file.
fn read(path: &Path) -> io::Result<Vec<(Month, Bytes)>> {
    let mut text = String::new();
    match open_regular(path).and_then(|mut file| file.read_to_string(&mut text)) {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    }
    let mut months = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if line.trim().is_empty() || line.starts_with('#') {
            continue;
        }
        let entry = line.split_once(' ').and_then(|(month, carried)| {
            Some((Month::parse(month)?, Bytes(carried.trim().parse().ok()?)))
        });
        months.push(entry.ok_or_else(|| {
            let why = format!(
                "line {}: '{line}' is not a month and bytes, such as '2026-11 123456789'",
                number + 1
            );
            io::Error::new(io::ErrorKind::InvalidData, why)
        })?);
    }
    months.sort();
    Ok(months)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOVEMBER: Month = Month { year: 2026, month: 11 };
    const DECEMBER: Month = Month { year: 2026, month: 12 };

    struct Scratch(PathBuf);

    impl Scratch {
        fn new(name: &str) -> Scratch {
            let path = std::env::temp_dir()
                .join(format!("anabranch-ledger-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&path);
            Scratch(path)
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn booking(granted: u64, total: u64) -> Booking {
        Booking { granted: Bytes(granted), total: Bytes(total) }
    }

    #[test]
    fn a_cap_is_for_a_month_and_an_interface() {
        let scratch = Scratch::new("month");
        let ledger = Ledger::new(&scratch.0);
        let cap = Some(Bytes(1_000));
        let book = |interface, month, want| {
            ledger.book(interface, month, Bytes(want), cap).expect("a folder")
        };
        assert!(!ledger.knows("usb0"));
        assert_eq!(book("usb0", NOVEMBER, 700), booking(700, 700));
        assert_eq!(book("usb0", NOVEMBER, 700), booking(300, 1_000));
        assert_eq!(book("usb0", NOVEMBER, 1), booking(0, 1_000));
        assert_eq!(book("usb1", NOVEMBER, 5), booking(5, 5));
        assert_eq!(book("usb0", DECEMBER, 5), booking(5, 5));
        ledger.give_back("usb0", NOVEMBER, Bytes(100)).expect("a folder");
        assert_eq!(book("usb0", NOVEMBER, 700), booking(100, 1_000));
        assert_eq!(
            ledger.book("usb0", NOVEMBER, Bytes(50), None).expect("a folder"),
            booking(50, 1_050)
        );
        assert_eq!(book("usb0", NOVEMBER, 700), booking(0, 1_050));
        assert!(ledger.knows("usb0"));
    }

    #[test]
    fn what_people_write_into_it_counts_or_is_refused() {
        let scratch = Scratch::new("people");
        let ledger = Ledger::new(&scratch.0);
        fs::create_dir_all(&scratch.0).expect("a folder");
        fs::write(ledger.file("usb0"), "# mine\n\n2026-12 7\n2026-11  900\n").expect("a file");
        assert_eq!(
            ledger.book("usb0", NOVEMBER, Bytes(200), Some(Bytes(1_000))).expect("a folder"),
            booking(100, 1_000)
        );
        fs::write(ledger.file("usb0"), "2026-11 900\n2026-13 5\n").expect("a file");
        let error = ledger.book("usb0", NOVEMBER, Bytes(200), None).expect_err("thirteen months");
        assert!(
            error.to_string().starts_with("line 2: '2026-13 5' is not a month and bytes"),
            "{error}"
        );
    }

    #[test]
    fn what_was_carried_is_nobody_elses_business() {
        let mode = |path: &Path| fs::metadata(path).expect("it is there").mode() & 0o777;
        let scratch = Scratch::new("private");
        let ledger = Ledger::new(&scratch.0.join("state/usage"));
        let book = || ledger.book("usb0", NOVEMBER, Bytes(7), None).expect("a folder");
        book();
        assert_eq!(mode(&scratch.0.join("state")), 0o700);
        assert_eq!((mode(&ledger.folder), mode(&ledger.file("usb0"))), (0o700, 0o600));
        // What an earlier run, or another program, has made for all.
        fs::write(ledger.folder.join(".usb0.new"), "").expect("a file");
        for (path, mode) in [("", 0o755), ("usb0", 0o644), (".usb0.new", 0o666)] {
            let wide = Permissions::from_mode(mode);
            fs::set_permissions(ledger.folder.join(path), wide).expect("it is there");
        }
        assert_eq!(book().total, Bytes(14));
        assert_eq!((mode(&ledger.folder), mode(&ledger.file("usb0"))), (0o700, 0o600));
    }

    #[test]
    fn many_at_once_are_all_counted() {
        let scratch = Scratch::new("many");
        let (threads, times) = (8, 25);
        let granted: Vec<u64> = std::thread::scope(|scope| {
            let worker = || {
                let ledger = Ledger::new(&scratch.0);
                (0..times)
                    .map(|_| {
                        ledger
                            .book("usb0", NOVEMBER, Bytes(10), Some(Bytes(1_505)))
                            .expect("a folder")
                            .granted
                            .0
                    })
                    .sum()
            };
            let workers: Vec<_> = (0..threads).map(|_| scope.spawn(worker)).collect();
            workers.into_iter().map(|worker| worker.join().expect("no panic")).collect()
        });
        assert_eq!(granted.iter().sum::<u64>(), 1_505, "{granted:?}");
        assert_eq!(read(&scratch.0.join("usb0")).expect("a file"), [(NOVEMBER, Bytes(1_505))]);
    }

    proptest! {
        /// Any text of a file is read as counts, or refused with the number of a line.
        #[test]
        fn any_text_is_months_or_a_message(lines in prop::collection::vec("(2026-[0-9]{1,3} \
            [0-9]{0,21})|\\PC{0,12}", 0..6)) {
            let scratch = Scratch::new("any");
            fs::create_dir_all(&scratch.0).expect("a folder");
            let path = scratch.0.join("usb0");
            fs::write(&path, lines.join("\n")).expect("a file");
            match read(&path) {
                Ok(months) => prop_assert!(months.len() <= lines.len() && months.is_sorted()),
                Err(error) => prop_assert!(error.to_string().starts_with("line "), "{}", error),
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(32))]

        /// A crash before the new file is renamed leaves the old state, and does not disturb later
        /// bookings.
        #[test]
        fn the_sum_of_all_bookings_is_what_is_there(
            wants in prop::collection::vec((0u64..2_000, 1u8..4, any::<bool>()), 1..20),
        ) {
            let scratch = Scratch::new("sum");
            let ledger = Ledger::new(&scratch.0);
            let mut expected = std::collections::BTreeMap::<u8, u64>::new();
            for (want, month, crashed) in wants {
                let at = Month { year: 2026, month };
                let booking = ledger.book("usb0", at, Bytes(want), Some(Bytes(5_000)));
                let granted = booking.expect("a folder").granted.0;
                let carried = expected.entry(month).or_default();
                prop_assert_eq!(granted, want.min(5_000 - *carried));
                *carried += granted;
                if crashed {
                    fs::write(scratch.0.join(".usb0.new"), "# half a li").expect("a file");
                }
            }
            let found = read(&ledger.file("usb0")).expect("a file");
            let found: Vec<_> = found.iter().map(|(month, bytes)| (month.month, bytes.0)).collect();
            prop_assert_eq!(found, expected.into_iter().collect::<Vec<_>>());
        }
    }
}
