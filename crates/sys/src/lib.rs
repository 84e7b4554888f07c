//! The kernel's side: TUN devices, namespaces, socket options.
