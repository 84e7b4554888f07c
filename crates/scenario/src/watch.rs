//! Traces of a running scenario: packet captures, a table of events, curves over time.

use std::io::{self, Write};
use std::net::Ipv4Addr;
use std::sync::Arc;

use link::Outcome;
use netsim::{Event, HostId, Loss, LossPlace, Trace};
use report::plot::{Axis, Figure, Panel, Series as Curve};
use units::Time;
use wire::harp;

use crate::build::Built;
use crate::file::Scenario;
use crate::packet::{Ecn, Packet};
use crate::pcap::{Pcap, Ports};
use crate::samples::{SenderSample, Watch};
use crate::series::Series;

/// Writes the packets that the sending hosts of flows send and receive, as captured at their
/// interfaces. Of flows through gateways there is also what the gateway near the sender exchanges
/// with the other one.
#[derive(Debug)]
pub struct Capture<W> {
    pcap: Pcap<W>,
    /// Each connection's sender and receiver.
    ends: Vec<(HostId, HostId)>,
    /// Each connection's gateways, that nearer to its sender first; empty if there are none.
    gateways: Vec<Option<[HostId; 2]>>,
    error: Option<io::Error>,
}

impl<W: Write> Capture<W> {
    /// Begins a capture of a simulation made from the scenario.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn new(writer: W, built: &Built) -> io::Result<Capture<W>> {
        let ends =
            |(flow, _): &(usize, usize)| (built.flows[*flow].from.0, built.flows[*flow].to.0);
        let gateways = |(flow, _): &(usize, usize)| {
            let through = built.flows[*flow].through?;
            let gateways = built.gateways[through.gateway]?;
            Some(through.sides().map(|side| gateways[side].0))
        };
        let has_gateways = !built.gateways.is_empty();
        let connections = &built.connections;
        Ok(Capture {
            pcap: Pcap::new(writer)?,
            ends: connections.iter().map(ends).collect(),
            gateways: connections.iter().filter(|_| has_gateways).map(gateways).collect(),
            error: None,
        })
    }

    /// Ends the capture.
    ///
    /// # Errors
    /// The first error in writing.
    pub fn finish(self) -> io::Result<()> {
        self.error.map_or(Ok(()), Err)
    }

    fn write(&mut self, at: Time, packet: &Packet, is_outward: bool) -> io::Result<()> {
        let (near, far) = self.ends[packet.connection() as usize];
        let (source, target) = if is_outward { (near, far) } else { (far, near) };
        // The receiver has a well-known port, so that tools can tell client and server.
        let port = u16::try_from(10_000 + packet.connection() % 50_000).expect("below 60000");
        let ports =
            if is_outward { Ports { from: port, to: 80 } } else { Ports { from: 80, to: port } };
        let hosts = (address(source), address(target));
        let gateways = self.gateways.get(packet.connection() as usize).copied().flatten();
        let gateways = gateways.map_or(hosts, |[near, far]| {
            let (source, target) = if is_outward { (near, far) } else { (far, near) };
            (address(source), address(target))
        });
        self.pcap.mark(packet.ecn());
        match packet {
            Packet::Tcp { segment, .. } | Packet::Forwarded { segment, .. } => {
                self.pcap.write_tcp(at, hosts.0, hosts.1, ports, segment)
            }
            Packet::Tunnelled { stamp, header, .. } => {
                let message = harp::Header::Data(*stamp);
                let segment = header.segment();
                self.pcap.write_tunnelled(at, gateways, &message, hosts, ports, &segment)
            }
            Packet::Returned { segment, .. } => {
                let message = harp::Header::Return;
                self.pcap.write_tunnelled(at, gateways, &message, hosts, ports, segment)
            }
            Packet::Probe { connection, stamp } => {
                let message = harp::Header::Probe(*connection, *stamp);
                self.pcap.write_message(at, gateways, &message)
            }
            Packet::Report { connection, report } => {
                let message = harp::Header::Report(*connection, *report);
                self.pcap.write_message(at, gateways, &message)
            }
            Packet::Record { header, .. } => {
                self.pcap.write_tcp(at, hosts.0, hosts.1, ports, &header.segment())
            }
            Packet::Ptcp { packet, .. } => {
                let payload = u16::try_from(packet.datagram_len()).expect("a datagram");
                self.pcap.write_udp(at, hosts.0, hosts.1, ports, payload)
            }
            Packet::Udp { bytes, .. } => {
                self.pcap.write_udp(at, hosts.0, hosts.1, ports, bytes.saturating_sub(28))
            }
        }
    }
}

impl<W: Write> Trace<Packet> for Capture<W> {
    fn record(&mut self, at: Time, event: Event<'_, Packet>) {
        let (host, packet, is_sent) = match event {
            Event::Sent { host, packet } => (host, packet, true),
            Event::Delivered { host, packet, .. } => (host, packet, false),
            _ => return,
        };
        let connection = packet.connection() as usize;
        // What travels between gateways is captured at the one nearer to the sender.
        let is_here = if packet.is_between_gateways() {
            self.gateways[connection].is_some_and(|[near, _]| near == host)
        } else {
            self.ends[connection].0 == host
        };
        if self.error.is_none() && is_here {
            self.error = self.write(at, packet, is_sent).err();
        }
    }
}

/// Hosts are 10.0.0.1 and so on, in the order in which the links of the file name them.
fn address(host: HostId) -> Ipv4Addr {
    let number = u32::try_from(host.index() + 1).unwrap_or(u32::MAX) & 0x00ff_ffff;
    Ipv4Addr::from(0x0a00_0000 | number)
}

/// Writes every event as a line of CSV: time in seconds, event, host or link, and the packet; and
/// the samples of senders: time, `sampled`, flow, window, RTT in seconds, and counters.
#[derive(Debug)]
pub struct EventLog<W> {
    writer: W,
    links: Vec<Arc<str>>,
    hosts: Vec<Arc<str>>,
    flows: Vec<Arc<str>>,
    error: Option<io::Error>,
}

impl<W: Write> EventLog<W> {
    /// Begins a log of a simulation made from the scenario.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn new(mut writer: W, scenario: &Scenario, built: &Built) -> io::Result<EventLog<W>> {
        writeln!(
            writer,
            "time_s,event,at,flow_connection,bytes,seq,ack,flags,ecn,window,rtt_s,retransmitted,\
             timeouts"
        )?;
        let links = scenario.links.iter().flat_map(|link| &link.directions).cloned().collect();
        let flows = scenario.flows.iter().map(|flow| Arc::clone(&flow.name)).collect();
        Ok(EventLog { writer, links, hosts: built.hosts.clone(), flows, error: None })
    }

    /// Ends the log.
    ///
    /// # Errors
    /// The first error in writing.
    pub fn finish(mut self) -> io::Result<()> {
        self.error.map_or_else(|| self.writer.flush(), Err)
    }

    fn write(&mut self, at: Time, event: Event<'_, Packet>) -> io::Result<()> {
        let link = |id: netsim::LinkId| self.links[id.index()].to_string();
        let host = |id: HostId| self.hosts[id.index()].to_string();
        let (what, place, packet) = match event {
            Event::Sent { host: id, packet } => ("sent", host(id), packet),
            Event::Delivered { host: id, packet, .. } => ("delivered", host(id), packet),
            Event::Offered { link: id, packet, outcome } => {
                let what = match outcome {
                    Outcome::Queued => "queued",
                    Outcome::DroppedQueue | Outcome::DroppedAqm => "dropped",
                    _ => "lost",
                };
                (what, link(id), packet)
            }
            Event::Passed { link: id, packet, is_corrupted } => {
                (if is_corrupted { "corrupted" } else { "passed" }, link(id), packet)
            }
            Event::Deadline { .. } => return Ok(()),
        };
        self.write_packet(at, what, &place, packet)
    }

    fn write_packet(
        &mut self,
        at: Time,
        what: &str,
        place: &str,
        packet: &Packet,
    ) -> io::Result<()> {
        let size = netsim::Packet::size(packet).0;
        let connection = packet.connection();
        let time = seconds(at.as_nanos());
        write!(self.writer, "{time},{what},{place},{connection},{size},")?;
        match packet {
            Packet::Tcp { segment, .. }
            | Packet::Returned { segment, .. }
            | Packet::Forwarded { segment, .. } => {
                write!(self.writer, "{},{},{:#04x}", segment.seq, segment.ack, segment.flags.0)?;
            }
            Packet::Probe { .. } | Packet::Report { .. } => write!(self.writer, ",,")?,
            Packet::Ptcp { packet, .. } => write!(self.writer, "{},,", packet.number)?,
            Packet::Record { header, .. } | Packet::Tunnelled { header, .. } => {
                let segment = header.segment();
                write!(self.writer, "{},{},{:#04x}", segment.seq, segment.ack, segment.flags.0)?;
            }
            Packet::Udp { number, .. } => write!(self.writer, "{number},,")?,
        }
        let ecn = match packet.ecn() {
            Ecn::Incapable => "",
            Ecn::Capable => "ect",
            Ecn::Scalable => "ect1",
            Ecn::Marked => "ce",
        };
        writeln!(self.writer, ",{ecn},,,,")
    }
}

/// Seconds with nine decimals.
fn seconds(nanos: u64) -> String {
    format!("{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000)
}

impl<W: Write> Watch for EventLog<W> {
    fn sample(&mut self, at: Time, flow: usize, sample: &SenderSample) {
        let SenderSample { window, rtt, retransmitted, timeouts } = *sample;
        let time = seconds(at.as_nanos());
        let window = window.map_or_else(String::new, |bytes| bytes.0.to_string());
        let rtt = rtt.map_or_else(String::new, |rtt| seconds(rtt.as_nanos()));
        let line = format_args!(
            "{time},sampled,{},,,,,,,{window},{rtt},{retransmitted},{timeouts}",
            self.flows[flow]
        );
        if self.error.is_none() {
            self.error = writeln!(self.writer, "{line}").err();
        }
    }
}

impl<W: Write> Trace<Packet> for EventLog<W> {
    const SEES_LOSSES: bool = true;

    fn record(&mut self, at: Time, event: Event<'_, Packet>) {
        if self.error.is_none() {
            self.error = self.write(at, event).err();
        }
    }

    fn record_loss(&mut self, at: Time, loss: Loss<'_, Packet>) {
        if self.error.is_none() && loss.place == LossPlace::Inside {
            let link = self.links[loss.link.index()].to_string();
            self.error = self.write_packet(at, "discarded", &link, loss.packet).err();
        }
    }
}

/// The maximum number of flows with curves of their own.
const MOST_CURVES: usize = 8;

/// Throughput, window, round-trip time and queues over time.
#[must_use]
pub fn figure(scenario: &Scenario, series: &Series, title: &str) -> Figure {
    let curve = |name: &str, values: &[f64]| {
        Curve::line(name, series.at.iter().copied().zip(values.iter().copied()))
    };
    let flows = || scenario.flows.iter().zip(&series.flows).take(MOST_CURVES);
    let time = || Axis::new("time", "s");
    let mut goodput = Panel::new(time(), Axis::new("goodput", "Mbit/s"));
    let mut window = Panel::new(time(), Axis::new("window", "packets"));
    let mut rtt = Panel::new(time(), Axis::new("round-trip time", "ms"));
    for (flow, data) in flows() {
        goodput = goodput.series(curve(&flow.name, &data.goodput));
        if !data.window.is_empty() {
            window = window.series(curve(&flow.name, &data.window));
            rtt = rtt.series(curve(&flow.name, &data.rtt));
        }
    }
    let mut queue = Panel::new(time(), Axis::new("queue", "packets"));
    for (link, data) in scenario.links.iter().zip(&series.links) {
        for (name, direction) in link.directions.iter().zip(data) {
            // Links with hardly any backlog have no curve.
            if direction.queue.iter().any(|packets| *packets > 2.0) {
                queue = queue.series(curve(name, &direction.queue));
            }
        }
    }
    Figure::new(title).panel(goodput).panel(window).panel(rtt).panel(queue)
}
