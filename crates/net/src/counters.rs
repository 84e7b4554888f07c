//! The kernel's counters of a TCP connection, and whether its clock is synchronised.

pub use sys::clock::is_synchronised;
pub use sys::sockopt::{TcpInfo, tcp_info, unsent};
