//! The text of a log: records of a JSON text sequence (RFC 7464), of the events of qlog.

use std::io::{self, Write};
use std::net::SocketAddr;

use ptcp::{LostPacket, PathMetrics};
use serde::Serialize;
use serde_json::{Value, json};
use units::{Rate, Span, SubflowId, Time};
use wire::ptcp::{Ack, Body, Packet, PacketRange, StreamData};

use super::log::{Event, Head, PathChange, Record};
use crate::ConnectionError;

/// What begins a record (RFC 7464, section 2.2).
const SEPARATOR: u8 = 0x1e;

/// The name of a log's file.
pub(super) fn file_name(head: &Head) -> String {
    let time = head.wall.strftime("%Y%m%dT%H%M%S.%3fZ");
    format!("{time}-{}-{:016x}.sqlog", role(head), head.id)
}

fn role(head: &Head) -> &'static str {
    if head.is_client { "client" } else { "server" }
}

pub(super) fn write_head(into: &mut impl Write, head: &Head) -> io::Result<()> {
    write(
        into,
        &json!({
            "qlog_version": "0.3",
            "qlog_format": "JSON-SEQ",
            "title": "anabranch",
            "trace": {
                "vantage_point": { "name": "anabranch", "type": role(head) },
                "common_fields": {
                    "protocol_type": ["ANABRANCH"],
                    "time_format": "relative",
                    "reference_time": head.wall.as_millisecond(),
                },
            },
        }),
    )
}

/// How many events are missing behind the last one.
pub(super) fn write_missing(
    into: &mut impl Write,
    head: &Head,
    at: Time,
    missing: u64,
) -> io::Result<()> {
    let data = json!({ "count": missing });
    write(into, &Line { time: since(head, at), name: "anabranch:events_missing", path: None, data })
}

/// The last line of a log that is as long as it may be.
pub(super) fn write_full(into: &mut impl Write, head: &Head, at: Time) -> io::Result<()> {
    let data = json!({ "reason": "the log is as long as it may be" });
    write(into, &Line { time: since(head, at), name: "anabranch:log_ended", path: None, data })
}

pub(super) fn write_record(into: &mut impl Write, head: &Head, record: &Record) -> io::Result<()> {
    let time = since(head, record.at);
    let line =
        |name, path: Option<SubflowId>, data| Line { time, name, path: path.map(text), data };
    let line = match &record.event {
        Event::Started { local, remote } => {
            line("connectivity:connection_started", None, started(*local, *remote))
        }
        Event::Packet { path, is_sent, packet } => {
            let name = if *is_sent { "transport:packet_sent" } else { "transport:packet_received" };
            let line = Line { time, name, path: Some(text(*path)), data: PacketData::of(packet) };
            return write(into, &line);
        }
        Event::Lost(LostPacket { path, number, bytes }) => {
            let data = json!({ "header": header(*number), "raw": { "length": bytes.0 } });
            line("recovery:packet_lost", Some(*path), data)
        }
        Event::Metrics { path, metrics } => {
            let line = Line {
                time,
                name: "recovery:metrics_updated",
                path: Some(text(*path)),
                data: Metrics::of(metrics),
            };
            return write(into, &line);
        }
        Event::Path { path, change } => {
            let (name, data) = path_changed(change);
            line(name, Some(*path), data)
        }
        Event::Closed { error } => {
            let (owner, code) = match **error {
                ConnectionError::ClosedByPeer { code } => ("remote", Some(code)),
                _ => ("local", None),
            };
            let mut data = json!({ "owner": owner, "reason": error.to_string() });
            if let Some(code) = code {
                data["application_code"] = code.into();
            }
            line("connectivity:connection_closed", None, data)
        }
    };
    write(into, &line)
}

/// One event.
#[derive(Serialize)]
struct Line<D> {
    time: f64,
    name: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    data: D,
}

#[derive(Serialize)]
struct PacketData {
    header: Header,
    raw: Raw,
    frames: [Value; 1],
}

#[derive(Serialize)]
struct Header {
    packet_type: &'static str,
    packet_number: u64,
}

#[derive(Serialize)]
struct Raw {
    length: usize,
}

impl PacketData {
    fn of(packet: &Packet) -> PacketData {
        PacketData {
            header: header(packet.number),
            raw: Raw { length: packet.datagram_len() },
            frames: [frame(&packet.body)],
        }
    }
}

/// All packets after the handshake are of one kind.
fn header(packet_number: u64) -> Header {
    Header { packet_type: "1RTT", packet_number }
}

/// A packet's body as a frame: by QUIC's names where QUIC has the same, and without the tokens of
/// challenges.
fn frame(body: &Body) -> Value {
    match body {
        Body::Data(StreamData { offset, stream, len, is_last, .. }) => json!({
            "frame_type": "stream",
            "stream_id": stream,
            "offset": offset,
            "length": len,
            "fin": is_last,
        }),
        Body::Datagram { len, .. } => json!({ "frame_type": "datagram", "length": len }),
        Body::Raw { len } => json!({ "frame_type": "raw_datagram", "length": len }),
        Body::Ack(ack) => json!({
            "frame_type": "ack",
            "path_id": ack.path.0,
            "ack_delay": millis(Span::from_micros(u64::from(ack.delay) * Ack::DELAY_UNIT)),
            "acked_ranges": ranges(ack),
        }),
        Body::StreamWindow { stream, limit } => {
            json!({ "frame_type": "max_stream_data", "stream_id": stream, "maximum": limit })
        }
        Body::Need { buffer } => json!({ "frame_type": "data_blocked", "wanted_buffer": buffer }),
        Body::Reset { stream, code, end } => json!({
            "frame_type": "reset_stream",
            "stream_id": stream,
            "error_code": code,
            "final_size": end,
        }),
        Body::Stop { stream, code } => {
            json!({ "frame_type": "stop_sending", "stream_id": stream, "error_code": code })
        }
        Body::Retire { path } => json!({ "frame_type": "path_abandon", "path_id": path.0 }),
        Body::Close { code } => json!({
            "frame_type": "connection_close",
            "error_space": "application",
            "error_code": code,
        }),
        Body::Ping { .. } => json!({ "frame_type": "ping" }),
        Body::Challenge { .. } | Body::ShortChallenge { .. } => {
            json!({ "frame_type": "path_challenge" })
        }
        Body::Response { .. } => json!({ "frame_type": "path_response" }),
        Body::Flight(_) => json!({ "frame_type": "crypto" }),
    }
}

/// The packet numbers that an acknowledgement names, from the highest down: first and last.
fn ranges(ack: &Ack) -> Vec<[u64; 2]> {
    let latest = PacketRange { back: 0, len: ack.first };
    let all = std::iter::once(&latest).chain(&*ack.older);
    let range = |range: &PacketRange| {
        let last = ack.largest.saturating_sub(u64::from(range.back));
        [last.saturating_sub(u64::from(range.len).saturating_sub(1)), last]
    };
    all.map(range).collect()
}

#[derive(Serialize)]
struct Metrics {
    congestion_window: u64,
    bytes_in_flight: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    smoothed_rtt: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    min_rtt: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    latest_rtt: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pacing_rate: Option<u64>,
}

impl Metrics {
    fn of(metrics: &PathMetrics) -> Metrics {
        let PathMetrics { window, in_flight, smoothed_rtt, min_rtt, latest_rtt, pacing } = metrics;
        Metrics {
            congestion_window: window.0,
            bytes_in_flight: in_flight.0,
            smoothed_rtt: smoothed_rtt.map(millis),
            min_rtt: min_rtt.map(millis),
            latest_rtt: latest_rtt.map(millis),
            pacing_rate: pacing.map(Rate::as_bits),
        }
    }
}

fn path_changed(change: &PathChange) -> (&'static str, Value) {
    match change {
        PathChange::Opened(ends) => {
            let data = json!({
                "route": ends.route.0,
                "route_name": ends.name,
                "local": ends.local,
                "remote": ends.remote,
            });
            ("anabranch:path_opened", data)
        }
        PathChange::Silent => ("anabranch:path_silent", json!({})),
        PathChange::Back => ("anabranch:path_back", json!({})),
        PathChange::Moved { local, remote } => {
            ("anabranch:path_moved", json!({ "local": local, "remote": remote }))
        }
        PathChange::Failing { reason } => ("anabranch:path_failing", json!({ "reason": reason })),
        PathChange::Closed => ("anabranch:path_closed", json!({})),
    }
}

fn started(local: Option<SocketAddr>, remote: SocketAddr) -> Value {
    let mut data = json!({
        "protocol": "ANABRANCH",
        "ip_version": if remote.is_ipv4() { "v4" } else { "v6" },
        "dst_ip": remote.ip(),
        "dst_port": remote.port(),
    });
    if let Some(local) = local {
        data["src_ip"] = local.ip().to_string().into();
        data["src_port"] = local.port().into();
    }
    data
}

/// A path's number: qlog's identifiers are texts.
fn text(path: SubflowId) -> String {
    path.0.to_string()
}

/// Milliseconds since the connection began.
fn since(head: &Head, at: Time) -> f64 {
    millis(at.since(head.began))
}

#[expect(clippy::cast_precision_loss, reason = "exact for a hundred days")]
fn millis(span: Span) -> f64 {
    span.as_nanos() as f64 / 1e6
}

fn write(into: &mut impl Write, record: &impl Serialize) -> io::Result<()> {
    into.write_all(&[SEPARATOR])?;
    serde_json::to_writer(&mut *into, record)?;
    into.write_all(b"\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn acknowledged_ranges_are_first_and_last_numbers() {
        let older = [PacketRange { back: 7, len: 1 }, PacketRange { back: 10, len: 2 }];
        let ack =
            Ack { largest: 100, first: 5, older: older.into_iter().collect(), ..Ack::default() };
        assert_eq!(ranges(&ack), [[96, 100], [93, 93], [89, 90]]);
    }

    #[test]
    fn names_of_files_begin_with_the_time() {
        let wall = "2026-03-04T05:06:07.089Z".parse().unwrap();
        let head = Head { is_client: false, id: 0xab, wall, began: Time::ZERO };
        assert_eq!(file_name(&head), "20260304T050607.089Z-server-00000000000000ab.sqlog");
    }

    #[test]
    fn tokens_stay_secret() {
        for body in [
            Body::Challenge { token: 0x1234_5678, padding: 0 },
            Body::ShortChallenge { token: 0x1234_5678 },
            Body::Response { token: 0x1234_5678 },
        ] {
            let text = frame(&body).to_string();
            assert!(!text.contains(&0x1234_5678.to_string()), "{text}");
        }
    }
}
