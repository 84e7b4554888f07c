//! The cores driven with real sockets, TLS and files.
