//! Anonymous network namespaces, which live as long as their descriptors.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::thread;

use rustix::thread::{LinkNameSpaceType, UnshareFlags, move_into_link_name_space, unshare_unsafe};

/// A network namespace. It has no name in the file system, and lives as long as this descriptor, a
/// process in it, or a device's file.
#[derive(Debug)]
pub struct NetNs {
    fd: OwnedFd,
}

impl NetNs {
    /// Makes a new, empty namespace, in which `lo` is down.
    ///
    /// # Errors
    /// `PermissionDenied` without the right to (`CAP_SYS_ADMIN`; see
    /// [`become_root_of_user_namespace`]).
    pub fn new() -> io::Result<NetNs> {
        on_thread(|| {
            // SAFETY: only the descriptor table's unsharing can break promises made to other code;
            // this asks for a network namespace alone, on a thread that ends here.
            unsafe { unshare_unsafe(UnshareFlags::NEWNET) }?;
            NetNs::current()
        })?
    }

    /// The namespace of the calling thread.
    ///
    /// # Errors
    /// If `/proc` is not there.
    pub fn current() -> io::Result<NetNs> {
        Ok(NetNs { fd: File::open("/proc/thread-self/ns/net")?.into() })
    }

    /// Runs `f` on a thread of its own in the namespace, and returns what it returns. What `f`
    /// opens there stays usable anywhere: sockets and devices belong to the namespace in which they
    /// were made.
    ///
    /// # Errors
    /// If the thread cannot be made or cannot enter the namespace.
    pub fn run<T: Send>(&self, f: impl FnOnce() -> T + Send) -> io::Result<T> {
        on_thread(|| {
            self.enter()?;
            Ok(f())
        })?
    }

    /// Lets the child run in the namespace.
    ///
    /// # Errors
    /// If there are no descriptors left.
    pub fn enter_on_spawn(&self, command: &mut Command) -> io::Result<()> {
        let fd = self.fd.try_clone()?;
        let enter = move || enter(fd.as_fd());
        // SAFETY: between fork and exec only system calls are allowed that are safe in a signal
        // handler: this is one setns, and it neither allocates nor takes a lock.
        unsafe { command.pre_exec(enter) };
        Ok(())
    }

    /// Writes a sysctl of this namespace, `net/ipv4/conf/all/rp_filter` for example.
    ///
    /// # Errors
    /// The error of writing the file.
    pub fn set_sysctl(&self, name: &str, value: &str) -> io::Result<()> {
        let path = format!("/proc/sys/{name}");
        self.run(|| fs::write(path, value))?
    }

    /// Reads a file under `/proc/net` of this namespace, `tcp` for example.
    ///
    /// # Errors
    /// The error of reading the file.
    pub fn read_proc_net(&self, name: &str) -> io::Result<String> {
        let path = format!("/proc/thread-self/net/{name}");
        self.run(|| fs::read_to_string(path))?
    }

    fn enter(&self) -> io::Result<()> {
        enter(self.fd.as_fd())
    }
}

impl AsFd for NetNs {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn enter(fd: BorrowedFd<'_>) -> io::Result<()> {
    Ok(move_into_link_name_space(fd, Some(LinkNameSpaceType::Network))?)
}

fn on_thread<T: Send>(f: impl FnOnce() -> T + Send) -> io::Result<T> {
    thread::scope(|scope| {
        let handle = thread::Builder::new().name("netns".into()).spawn_scoped(scope, f)?;
        handle.join().map_err(|_| io::Error::other("the thread in the namespace panicked"))
    })
}

/// Whether this process may make network namespaces and devices in them: as root, or as root of a
/// user namespace.
#[must_use]
pub fn is_privileged() -> bool {
    const CAP_SYS_ADMIN: u32 = 21;
    let Ok(status) = fs::read_to_string("/proc/self/status") else { return false };
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    effective
        .and_then(|bits| u64::from_str_radix(bits.trim(), 16).ok())
        .is_some_and(|bits| bits >> CAP_SYS_ADMIN & 1 == 1)
}

/// Moves the whole process into a user namespace of its own, in which it is root. It must have a
/// single thread.
///
/// # Errors
/// `PermissionDenied` where the administrator forbids it; `InvalidInput` with more than one thread.
pub fn become_root_of_user_namespace() -> io::Result<()> {
    let (uid, gid) = (rustix::process::getuid().as_raw(), rustix::process::getgid().as_raw());
    // SAFETY: the descriptor table stays as it is.
    unsafe { unshare_unsafe(UnshareFlags::NEWUSER) }?;
    // Without this the kernel does not let an unprivileged process map its group
    // (user_namespaces(7)).
    fs::write("/proc/self/setgroups", "deny")?;
    fs::write("/proc/self/uid_map", format!("0 {uid} 1"))?;
    fs::write("/proc/self/gid_map", format!("0 {gid} 1"))
}

/// Sends the child a signal when the thread that spawns it ends, however it ends.
pub fn die_with_parent(command: &mut Command, signal: rustix::process::Signal) {
    // SAFETY: one prctl between fork and exec; it neither allocates nor takes a lock.
    unsafe {
        command
            .pre_exec(move || Ok(rustix::process::set_parent_process_death_signal(Some(signal))?));
    }
}
