//! An address translator (NAT) as a state machine: packets are rewritten where they are, time is an
//! argument.
//!
//! The kinds of mapping and of filtering are those of RFC 4787, section 4.1 and section 5; what it
//! asks of timers, ports and hairpinning holds for UDP, RFC 5382 for TCP, and RFC 5508 for ICMP.
//! IPv4 is translated. IPv6 keeps its addresses, and has the same filter (RFC 6092).

#[cfg(test)]
mod model;
mod rewrite;
mod table;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, SocketAddr};

use units::{Seed, Span, Time};

use self::rewrite::{Content, Ends};
use self::table::Table;

/// For which packets from inside a port outside stays the same, and which packets from outside
/// pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dependence {
    /// For all, from the same address and port inside; from everybody outside.
    Endpoint,
    /// For all to the same address outside; from addresses that were sent to.
    Address,
    /// For all to the same address and port outside; from addresses and ports that were sent to.
    AddressAndPort,
}

/// The choice of a port outside (RFC 4787, section 4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortChoice {
    /// The port inside if it is free; otherwise the next of the same parity.
    Preserve,
    /// The one after the last.
    Sequential,
    /// A random one.
    Random,
}

/// How a translator behaves.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Behaviour {
    /// For which packets from inside the port outside stays.
    pub mapping: Dependence,
    /// Which packets from outside pass.
    pub filtering: Dependence,
    /// The ports outside.
    pub ports: PortChoice,
    /// Whether hosts inside reach each other by their addresses outside.
    pub hairpinning: bool,
    /// Whether packets from outside keep a flow alive too. Those from inside always do.
    pub inbound_refresh: bool,
    /// After this silence, a flow of UDP is forgotten.
    pub udp_idle: Span,
    /// The same of established TCP connections.
    pub tcp_idle: Span,
    /// The same of TCP connections that are being opened or closed.
    pub tcp_transitory: Span,
    /// The same of ICMP echo.
    pub echo_idle: Span,
    /// The most flows at a time. Packets that would begin further ones are dropped.
    pub capacity: usize,
    /// Whether packets of IPv6 from outside pass unasked.
    pub is_open_to_ipv6: bool,
}

impl Default for Behaviour {
    /// A translator that keeps to the recommendations, with the strictest filter that they allow.
    fn default() -> Behaviour {
        Behaviour {
            mapping: Dependence::Endpoint,
            filtering: Dependence::AddressAndPort,
            ports: PortChoice::Preserve,
            hairpinning: true,
            inbound_refresh: true,
            // RFC 4787, REQ-5; RFC 5382, REQ-5; RFC 5508, REQ-2.
            udp_idle: Span::from_secs(300),
            tcp_idle: Span::from_secs(7_440),
            tcp_transitory: Span::from_secs(240),
            echo_idle: Span::from_secs(60),
            capacity: 32_768,
            is_open_to_ipv6: false,
        }
    }
}

/// Why a translator drops a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Refusal {
    /// It has no address outside.
    NoAddress,
    /// No flow from inside asked for it.
    Unsolicited,
    /// A TCP segment from inside that neither begins a connection nor belongs to one.
    NoConnection,
    /// The table of flows is full, or no port is free.
    Full,
    /// A part of a packet: only the first one has ports.
    Fragment,
    /// Neither TCP, UDP nor ICMP echo, nor an error about one of these; or damaged.
    NotTranslated,
    /// It would turn back, and the translator does not do that.
    NoHairpin,
}

impl Refusal {
    /// Its name in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Refusal::NoAddress => "no_address",
            Refusal::Unsolicited => "unsolicited",
            Refusal::NoConnection => "no_connection",
            Refusal::Full => "full",
            Refusal::Fragment => "fragment",
            Refusal::NotTranslated => "not_translated",
            Refusal::NoHairpin => "no_hairpin",
        }
    }
}

/// A translator between an inside and an outside.
#[derive(Debug)]
pub(crate) struct Translator {
    behaviour: Behaviour,
    external: Option<IpAddr>,
    table: Table,
}

impl Translator {
    /// A translator with this IPv4 address outside.
    pub(crate) fn new(behaviour: Behaviour, external: Option<IpAddr>, seed: Seed) -> Translator {
        Translator { table: Table::new(behaviour.clone(), seed), behaviour, external }
    }

    /// The IPv4 address outside.
    pub(crate) fn external(&self) -> Option<IpAddr> {
        self.external
    }

    /// Gives it another address outside, which ends all flows.
    pub(crate) fn set_external(&mut self, external: Option<IpAddr>) {
        self.external = external;
        self.table.clear();
    }

    /// Forgets all flows, as after a loss of power.
    pub(crate) fn forget(&mut self) {
        self.table.clear();
    }

    /// The flows at `now`.
    pub(crate) fn flows(&self, now: Time) -> usize {
        self.table.flows(now)
    }

    /// Translates a packet that goes out.
    ///
    /// # Errors
    /// If it is to be dropped; then it is as it was.
    pub(crate) fn handle_outbound(&mut self, now: Time, data: &mut [u8]) -> Result<(), Refusal> {
        if self.passes_unseen(data) {
            return Ok(());
        }
        match rewrite::read(data)? {
            Content::Flow(ends) => {
                let outside = self.outside_of(ends.source.ip())?;
                let source = self.table.outbound(now, &ends, outside)?;
                rewrite::set_source(data, &ends, source);
            }
            Content::Error(error) => {
                // A host inside complains about a packet that came in: the quoted packet went to
                // it, and gets back the address and port to which it was sent (RFC 5508, REQ-5).
                let inner = error.quoted;
                let known = self.table.flow(now, inner.kind, inner.destination, inner.source);
                let external = known.ok_or(Refusal::NotTranslated)?;
                rewrite::set_outbound_error(data, &error, external);
            }
        }
        Ok(())
    }

    /// Translates a packet from outside.
    ///
    /// # Errors
    /// If it is to be dropped; then it is as it was.
    pub(crate) fn handle_inbound(&mut self, now: Time, data: &mut [u8]) -> Result<(), Refusal> {
        if self.passes_unseen(data) {
            return Ok(());
        }
        match rewrite::read(data)? {
            Content::Flow(ends) => {
                let destination = self.table.inbound(now, &ends)?;
                rewrite::set_destination(data, &ends, destination);
            }
            Content::Error(error) => {
                // Somebody complains about a packet that went out (RFC 5508, REQ-4): nothing of its
                // flow changes.
                let inner = error.quoted;
                let known = self.table.inside(now, inner.kind, inner.source, inner.destination);
                let internal = known.ok_or(Refusal::Unsolicited)?;
                rewrite::set_inbound_error(data, &error, internal);
            }
        }
        Ok(())
    }

    /// Translates a packet from inside to the address outside: both of its ends change (RFC 4787,
    /// REQ-9).
    ///
    /// # Errors
    /// If it is to be dropped.
    pub(crate) fn handle_hairpin(&mut self, now: Time, data: &mut [u8]) -> Result<(), Refusal> {
        if !self.behaviour.hairpinning {
            return Err(Refusal::NoHairpin);
        }
        self.handle_outbound(now, data)?;
        self.handle_inbound(now, data)
    }

    /// Whether nobody looks at packets of this kind.
    fn passes_unseen(&self, data: &[u8]) -> bool {
        self.behaviour.is_open_to_ipv6 && matches!(data, [0x60..=0x6f, ..])
    }

    /// The address outside of a host inside: of IPv6, its own.
    fn outside_of(&self, inside: IpAddr) -> Result<IpAddr, Refusal> {
        if inside.is_ipv6() { Ok(inside) } else { self.external.ok_or(Refusal::NoAddress) }
    }
}

/// What a flow is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum FlowKind {
    Udp,
    Tcp,
    /// ICMP echo: its identifier is the port inside, and there is none outside.
    Echo,
}

impl Ends {
    /// Whether it is of IPv6, which has no other address outside.
    fn is_identity(&self) -> bool {
        matches!(self.source, SocketAddr::V6(_))
    }
}
