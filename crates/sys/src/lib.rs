//! The kernel's side: TUN devices, namespaces, socket options, datagrams; routes, connection
//! tracking; memory, priorities.
//!
//! This is the only crate with unsafe code. Each use states why it is sound.
#![allow(unsafe_code)]

pub mod clock;
pub mod conntrack;
pub mod datagram;
pub mod memory;
pub mod netlink;
pub mod netns;
pub mod poll;
pub mod priority;
pub mod sockopt;
pub mod tun;
