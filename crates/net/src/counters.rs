//! What the kernel counts on a TCP connection, and whether it keeps the clock right.

pub use sys::clock::is_synchronised;
pub use sys::sockopt::{TcpInfo, tcp_info, unsent};
