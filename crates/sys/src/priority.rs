//! The place of threads behind others: at disks, and at processors.

use std::{fs, io};

use rustix::process::{Pid, getpriority_process, setpriority_process};

/// `IOPRIO_WHO_PROCESS` and the classes of linux/ioprio.h.
const THREAD: libc::c_int = 1;
/// The thread that asks.
const THIS: libc::c_int = 0;
const CLASS_SHIFT: u32 = 13;
const CLASS_IDLE: libc::c_int = 3;

/// Lets others go first, at disks and at processors: all threads of this process, and those that
/// they start, get idle disk priority (`ioprio_set(2)`), which only some schedulers of the kernel
/// heed, and at least this niceness.
///
/// # Errors
/// The kernel's. Threads that were reached before have stepped back.
pub fn step_back(niceness: i32) -> io::Result<()> {
    for thread in fs::read_dir("/proc/self/task")? {
        let name = thread?.file_name();
        let number = name.to_str().and_then(|name| name.parse().ok());
        let Some(pid) = number.and_then(Pid::from_raw) else { continue };
        set_io_class(pid.as_raw_nonzero().get(), CLASS_IDLE << CLASS_SHIFT)?;
        if getpriority_process(Some(pid))? < niceness {
            setpriority_process(Some(pid), niceness)?;
        }
    }
    Ok(())
}

/// Whether reads and writes of this thread wait for others'; not, if the kernel does not say.
#[must_use]
pub fn is_idle() -> bool {
    io_class().is_ok_and(|class| class >> CLASS_SHIFT == CLASS_IDLE)
}

/// A thread whose reads and writes wait for others', until this is dropped.
#[derive(Debug)]
#[must_use]
pub struct IdleIo {
    before: libc::c_int,
}

impl IdleIo {
    /// Of this thread; `None` if the kernel does not let it.
    #[must_use]
    pub fn begin() -> Option<IdleIo> {
        let before = io_class().ok()?;
        set_io_class(THIS, CLASS_IDLE << CLASS_SHIFT).ok()?;
        Some(IdleIo { before })
    }
}

impl Drop for IdleIo {
    fn drop(&mut self) {
        // A thread may have any class but the real-time one back.
        let _ = set_io_class(THIS, self.before);
    }
}

fn set_io_class(thread: libc::c_int, class: libc::c_int) -> io::Result<()> {
    // SAFETY: the call takes three numbers, and no memory.
    let result = unsafe { libc::syscall(libc::SYS_ioprio_set, THREAD, thread, class) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn io_class() -> io::Result<libc::c_int> {
    // SAFETY: as above.
    let result = unsafe { libc::syscall(libc::SYS_ioprio_get, THREAD, THIS) };
    libc::c_int::try_from(result)
        .ok()
        .filter(|class| *class >= 0)
        .ok_or_else(io::Error::last_os_error)
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn idle_disk_access_ends() {
        thread::spawn(|| {
            let before = io_class().unwrap();
            let idle = IdleIo::begin().expect("everybody may");
            assert!(is_idle());
            drop(idle);
            assert_eq!(io_class().unwrap(), before);
        })
        .join()
        .unwrap();
    }
}
