//! Memory of this process.

/// Gives back to the system what the allocator keeps for later. The C library of GNU returns freed
/// memory by itself only from the end of its areas; others need no such call.
pub fn give_back() {
    #[cfg(target_env = "gnu")]
    // SAFETY: it takes the allocator's own locks, and touches only what is free.
    unsafe {
        libc::malloc_trim(0);
    }
}
