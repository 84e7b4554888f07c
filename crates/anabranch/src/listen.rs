//! Addresses to listen on, as the command line and the configuration file have them, and the token
//! of one more host.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

use files::Error;
use peer::{DEFAULT_PORT, FURTHER_PORTS, Identity, ListenOptions, Token};

use crate::host_key::HostKey;
use crate::token::write_secret;

/// Where a host listens that knows its peers.
#[derive(Debug, Default, clap::Args)]
#[group(skip)]
pub(crate) struct ListenFlags {
    /// An address to listen on; may be repeated [default: every address]
    #[arg(long, value_name = "ADDR[:PORT]")]
    listen: Vec<ListenAddress>,
    /// The port; 0 takes a free one [default: 7707]
    #[arg(long)]
    port: Option<u16>,
}

impl ListenFlags {
    /// The options of the host with this key; `listen` and `port` are those of the configuration.
    /// With a token, another port may take the place of the default one: otherwise peers know it.
    pub(crate) fn options(
        &self,
        (listen, port): (&[ListenAddress], Option<u16>),
        (identity, token): (Identity, Option<Token>),
    ) -> ListenOptions {
        let listen = if self.listen.is_empty() { listen } else { &self.listen };
        let named = self.port.or(port);
        let port = named.unwrap_or(DEFAULT_PORT);
        ListenOptions {
            addresses: socket_addresses(listen, port),
            port,
            further_ports: if token.is_some() { further_ports(named, listen) } else { 0 },
            token,
            ..ListenOptions::new(identity)
        }
    }
}

/// The token of a host that dials for others.
#[derive(Debug, Default, clap::Args)]
#[group(skip)]
pub(crate) struct TokenFlags {
    /// Print a token that lets one more host reach what --permit names; if port 7707 is taken, the
    /// next free one up to 7716 takes its place
    #[arg(long)]
    token: bool,
    /// Print a token as --token does, and write it to FILE, readable by the owner only
    #[arg(long, value_name = "FILE")]
    token_out: Option<PathBuf>,
}

impl TokenFlags {
    /// Whether a token is wanted.
    pub(crate) fn is_given(&self) -> bool {
        self.token || self.token_out.is_some()
    }

    /// The key that this host shows, and the token, which is written to its file.
    ///
    /// # Errors
    /// Those of the key, and of writing the file.
    pub(crate) fn make(&self, key: HostKey) -> Result<(Identity, Option<Token>), Error> {
        if !self.is_given() {
            return Ok((key.lasting()?, None));
        }
        let identity = key.or_temporary_with_notice()?;
        let token = Token::generate(&identity)?;
        if let Some(path) = &self.token_out {
            write_secret(path, &token.reveal())?;
        }
        Ok((identity, Some(token)))
    }
}

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
