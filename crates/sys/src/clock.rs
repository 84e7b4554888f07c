//! Whether the system's clock is synchronised.

use std::io;

/// Whether an NTP client or the hypervisor keeps the clock synchronised (adjtimex(2)).
///
/// # Errors
/// The error of adjtimex, which a sandbox may forbid.
pub fn is_synchronised() -> io::Result<bool> {
    // SAFETY: zeroes are a valid `timex`, and with no mode set the kernel changes nothing but what
    // it writes into it.
    let state = unsafe {
        let mut timex: libc::timex = std::mem::zeroed();
        libc::adjtimex(&raw mut timex)
    };
    if state < 0 { Err(io::Error::last_os_error()) } else { Ok(state != libc::TIME_ERROR) }
}
