//! Which program has a port, as far as this user may see.

use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};

/// A transport whose ports programs take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// TCP: the sockets that listen.
    Tcp,
    /// UDP: all sockets.
    Udp,
}

/// Who has a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holder {
    /// A program.
    Program {
        /// The name of its first thread.
        name: String,
        /// The number of its process.
        process: u32,
    },
    /// A program of this user, which this one may not look at.
    OfUser(u32),
    /// Nobody whom the kernel lists in this network namespace.
    Unknown,
}

/// A row of the kernel's table of sockets.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    local: SocketAddr,
    user: u32,
    inode: u64,
}

/// The state of a TCP socket that listens.
const LISTENING: &str = "0A";

impl Holder {
    /// Who has a port at this address, or at one that excludes it.
    #[must_use]
    pub fn of(transport: Transport, address: SocketAddr) -> Holder {
        let mut rows = rows(transport);
        rows.retain(|row| excludes(row.local, address));
        // Several may have the port, at addresses that exclude each other not.
        rows.sort_by_key(|row| {
            let is_other = row.local.ip() != address.ip();
            (row.local.is_ipv4() != address.is_ipv4(), is_other)
        });
        let Some(first) = rows.first() else { return Holder::Unknown };
        program(first.inode).unwrap_or(Holder::OfUser(first.user))
    }

    /// The kernel's refusal to bind to an address, with whoever has it if it is taken.
    #[must_use]
    pub fn explain(transport: Transport, address: SocketAddr, refusal: io::Error) -> io::Error {
        if refusal.kind() != io::ErrorKind::AddrInUse {
            return refusal;
        }
        let holder = Holder::of(transport, address);
        io::Error::new(io::ErrorKind::AddrInUse, format!("it is taken by {holder}"))
    }
}

impl std::fmt::Display for Holder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Holder::Program { name, process } => write!(f, "{name} (process {process})"),
            Holder::OfUser(user) => write!(f, "a program of user {user}"),
            Holder::Unknown => f.write_str("another program"),
        }
    }
}

/// Whether a socket at one address keeps another one from the same port.
fn excludes(one: SocketAddr, other: SocketAddr) -> bool {
    let (a, b) = (one.ip().to_canonical(), other.ip().to_canonical());
    one.port() == other.port() && (a == b || a.is_unspecified() || b.is_unspecified())
}

/// The sockets with ports of their own in this network namespace, of both families.
fn rows(transport: Transport) -> Vec<Row> {
    let (tables, state) = match transport {
        Transport::Tcp => (["tcp", "tcp6"], Some(LISTENING)),
        Transport::Udp => (["udp", "udp6"], None),
    };
    let mut rows = Vec::new();
    for table in tables {
        // The table of a family that the system lacks is absent.
        let text = fs::read_to_string(format!("/proc/thread-self/net/{table}")).unwrap_or_default();
        rows.extend(text.lines().skip(1).filter_map(|line| row(line, state)));
    }
    rows
}

/// Reads a row, if its socket is in this state.
fn row(line: &str, state: Option<&str>) -> Option<Row> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let [_, local, _, found, _, _, _, user, _, inode, ..] = fields[..] else { return None };
    if state.is_some_and(|state| state != found) {
        return None;
    }
    let (address, port) = local.split_once(':')?;
    let local = SocketAddr::new(address_of(address)?, u16::from_str_radix(port, 16).ok()?);
    Some(Row { local, user: user.parse().ok()?, inode: inode.parse().ok()? })
}

/// An address as the kernel writes it: words of 32 bits, each in the order of this machine.
fn address_of(digits: &str) -> Option<IpAddr> {
    let mut octets = Vec::new();
    for at in (0..digits.len()).step_by(8) {
        let word = u32::from_str_radix(digits.get(at..at + 8)?, 16).ok()?;
        octets.extend(word.to_ne_bytes());
    }
    match octets.len() {
        4 => Some(<[u8; 4]>::try_from(octets).ok()?.into()),
        16 => Some(<[u8; 16]>::try_from(octets).ok()?.into()),
        _ => None,
    }
}

/// The first process that has a socket open.
fn program(inode: u64) -> Option<Holder> {
    let socket = format!("socket:[{inode}]");
    let processes = fs::read_dir("/proc").ok()?.filter_map(Result::ok);
    for process in processes {
        let Some(number) = process.file_name().to_str().and_then(|name| name.parse().ok()) else {
            continue;
        };
        // Those of other users are closed to this one, unless it is root.
        let Ok(open) = fs::read_dir(process.path().join("fd")) else { continue };
        let mut targets = open.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
        if targets.any(|target| target.as_os_str() == socket.as_str()) {
            // A program names itself as it likes.
            let name = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            let name = name.trim_end_matches('\n').replace(char::is_control, "?");
            return Some(Holder::Program { name, process: number });
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, UdpSocket};

    use super::*;

    #[test]
    fn rows_of_the_kernel_are_read() {
        let v4 = "   0: 0100007F:1E1B 00000000:0000 0A 00000000:00000000 00:00000000 00000000  \
                  1000        0 52341 1 0000000000000000 100 0 0 10 0";
        let v6 = "   1: 00000000000000000000000000000000:1E1B \
                  00000000000000000000000000000000:0000 07 00000000:00000000 00:00000000 00000000 \
                  0        0 7 2 0000000000000000 0";
        if cfg!(target_endian = "little") {
            let local = "127.0.0.1:7707".parse().unwrap();
            assert_eq!(row(v4, Some(LISTENING)), Some(Row { local, user: 1_000, inode: 52_341 }));
            assert_eq!(address_of("B80D01200000000000000000FE000000").unwrap().to_string(), {
                "2001:db8::fe"
            });
        }
        assert_eq!(row(v4, Some("01")), None);
        let local = "[::]:7707".parse().unwrap();
        assert_eq!(row(v6, None), Some(Row { local, user: 0, inode: 7 }));
        for line in ["", "  sl  local_address rem_address   st", "0: x:y z 0A 0 0 0 0 0 0"] {
            assert_eq!(row(line, None), None, "{line}");
        }
    }

    #[test]
    fn this_program_has_the_ports_that_it_took() {
        let own = fs::read_to_string("/proc/self/comm").unwrap();
        let own = Holder::Program { name: own.trim_end().into(), process: std::process::id() };
        let tcp = TcpListener::bind("127.0.0.1:0").unwrap();
        let udp = UdpSocket::bind("[::1]:0").or_else(|_| UdpSocket::bind("127.0.0.1:0")).unwrap();
        let at = tcp.local_addr().unwrap();
        assert_eq!(Holder::of(Transport::Tcp, at), own);
        let everywhere = SocketAddr::new("::".parse().unwrap(), at.port());
        assert_eq!(Holder::of(Transport::Tcp, everywhere), own);
        let elsewhere = SocketAddr::new("127.0.0.2".parse().unwrap(), at.port());
        assert_eq!(Holder::of(Transport::Tcp, elsewhere), Holder::Unknown);
        assert_eq!(Holder::of(Transport::Udp, udp.local_addr().unwrap()), own);
        let refusal = TcpListener::bind(at).unwrap_err();
        let told = Holder::explain(Transport::Tcp, at, refusal);
        assert_eq!(told.kind(), io::ErrorKind::AddrInUse);
        assert_eq!(told.to_string(), format!("it is taken by {own}"));
        let other = Holder::explain(Transport::Tcp, at, io::ErrorKind::PermissionDenied.into());
        assert_eq!(other.kind(), io::ErrorKind::PermissionDenied);
    }
}
