//! Addresses to listen on, as the command line and the configuration file have them.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use peer::FURTHER_PORTS;

/// An address to listen on; without a port, the port of `--port`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ListenAddress {
    pub(crate) address: IpAddr,
    pub(crate) port: Option<u16>,
}

impl FromStr for ListenAddress {
    type Err = String;

    /// `192.0.2.1`, `192.0.2.1:7707`, `2001:db8::1`, `[2001:db8::1]:7707`.
    fn from_str(text: &str) -> Result<ListenAddress, String> {
        if let Ok(address) = text.parse::<SocketAddr>() {
            return Ok(ListenAddress { address: address.ip(), port: Some(address.port()) });
        }
        let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(text);
        let address =
            bare.parse().map_err(|_| format!("'{text}' is not ADDRESS or ADDRESS:PORT"))?;
        Ok(ListenAddress { address, port: None })
    }
}

/// How many ports behind the default one may take its place: none where somebody named the port or
/// an address.
pub(crate) fn further_ports(port: Option<u16>, addresses: &[ListenAddress]) -> u16 {
    if port.is_none() && addresses.is_empty() { FURTHER_PORTS } else { 0 }
}

/// Socket addresses to listen on; `port` is for those without one.
pub(crate) fn socket_addresses(addresses: &[ListenAddress], port: u16) -> Vec<SocketAddr> {
    addresses
        .iter()
        .map(|listen| SocketAddr::new(listen.address, listen.port.unwrap_or(port)))
        .collect()
}
