//! The kernel's side: TUN devices, namespaces, socket options; routes, connection tracking; memory.
//!
//! This is the only crate with unsafe code. Each use states why it is sound.
#![allow(unsafe_code)]

pub mod clock;
pub mod conntrack;
pub mod memory;
pub mod netlink;
pub mod netns;
pub mod poll;
pub mod sockopt;
pub mod tun;
