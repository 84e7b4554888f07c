//! Whether the system's clock can be believed.

use std::io;

/// Whether something keeps the clock synchronised with the world's (adjtimex(2)): an NTP client, or
/// the hypervisor.
///
/// # Errors
/// What adjtimex says: a sandbox forbids it.
pub fn is_synchronised() -> io::Result<bool> {
    // SAFETY: zeroes are a valid `timex`, and with no mode set the kernel changes nothing but what
    // it writes into it.
    let state = unsafe {
        let mut timex: libc::timex = std::mem::zeroed();
        libc::adjtimex(&raw mut timex)
    };
    if state < 0 { Err(io::Error::last_os_error()) } else { Ok(state != libc::TIME_ERROR) }
}
