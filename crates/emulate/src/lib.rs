//! Links in real time, between namespaces or loopback sockets.
