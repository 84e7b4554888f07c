//! `host --metrics`: what is counted, against what was moved; and who can read it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use super::home::{Home, Running, lines_of};
use super::noise::noise;
use super::services::{all_services, client, server, tunnels};

/// A host with all services and metrics at a free port.
struct Watched {
    _running: Running,
    address: String,
    metrics: String,
}

fn watched(home: &Home, arguments: &[&str]) -> Watched {
    for folder in ["incoming", "served"] {
        fs::create_dir_all(home.0.join(folder)).unwrap();
    }
    home.run(&["keys", "trust", "sender", home.run(&["keys"]).1.trim()]);
    home.file("config.toml", all_services(home).as_bytes());
    let fixed = ["host", "--listen", "127.0.0.1", "--port", "0", "--json"];
    let mut command = home.command(&[&fixed, arguments].concat());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = lines_of(child.stdout.take().unwrap());
    let running = Running(child);
    let (mut address, mut metrics) = (None, None);
    while address.is_none() || metrics.is_none() {
        let line = lines.next().expect("it says where it listens");
        let event: serde_json::Value = serde_json::from_str(&line).unwrap();
        if event["event"] == "listening" {
            address = event["addresses"][0].as_str().map(String::from);
        }
        let text = event["text"].as_str().unwrap_or_default();
        if let Some(url) = text.strip_prefix("metrics are at http://") {
            metrics = url.strip_suffix("/metrics").map(String::from);
        }
    }
    std::thread::spawn(move || lines.for_each(drop));
    Watched { _running: running, address: address.unwrap(), metrics: metrics.unwrap() }
}

/// The figures of a host: each row of labels with its value.
type Figures = BTreeMap<String, u64>;

impl Watched {
    fn read(&self, path: &str) -> String {
        let mut stream = TcpStream::connect(&self.metrics).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nHost: {}\r\n\r\n", self.metrics).unwrap();
        let mut said = String::new();
        stream.read_to_string(&mut said).unwrap();
        said
    }

    fn figures(&self) -> Figures {
        let said = self.read("/metrics");
        let (head, body) = said.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
        let media = "content-type: application/openmetrics-text; version=1.0.0; charset=utf-8";
        assert!(head.lines().any(|line| line == media), "{head}");
        let body = body.strip_suffix("# EOF\n").expect("it is complete");
        let mut figures = Figures::new();
        for line in body.lines().filter(|line| !line.starts_with('#')) {
            let (row, value) = line.rsplit_once(' ').unwrap();
            let before = figures.insert(row.into(), value.parse().unwrap());
            assert_eq!(before, None, "{row} is there twice");
        }
        figures
    }

    /// The figures once they fulfil a condition, and how they have changed since `before`.
    fn once(&self, before: &Figures, what: &str, is_so: impl Fn(&Figures) -> bool) -> Figures {
        let began = Instant::now();
        loop {
            let figures = self.figures();
            for (row, value) in before.iter().filter(|(row, _)| row.contains("_total")) {
                assert!(figures.get(row).is_some_and(|now| now >= value), "{row} went back");
            }
            if is_so(&figures) {
                return figures;
            }
            assert!(began.elapsed() < Duration::from_secs(20), "not so: {what}: {figures:#?}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }
}

fn moved(carrier: &str, direction: &str) -> String {
    format!(
        "anabranch_path_bytes_total{{peer=\"laptop\",path=\"127.0.0.1\",carrier=\"{carrier}\",\
         direction=\"{direction}\"}}"
    )
}

fn rows_of_paths(figures: &Figures) -> usize {
    figures.keys().filter(|row| row.starts_with("anabranch_path_bytes")).count()
}

#[test]
fn metrics_count_what_was_moved_and_no_stranger() {
    const SENT: u64 = 3_000_000;
    let home = Home::new();
    let host = watched(&home, &["--metrics", "0"]);
    fs::write(home.0.join("served/large"), noise(2_000_000)).unwrap();
    let word = server();
    let rights = format!("laptop may=both tunnel=127.0.0.1:{word}");
    let peer = client(&home, &host.address, &rights);
    std::thread::sleep(Duration::from_millis(1_500));
    let fresh = host.figures();
    assert_eq!(rows_of_paths(&fresh), 0);
    let total = |figures: &Figures, row: &str| figures.get(row).copied().unwrap_or(0);
    let is_about = |value: u64, of: u64| value >= of && value < of + of / 8 + 100_000;

    // A transfer in over TCP.
    peer.file("data", &noise(3_000_000));
    let sends = ["send", "data", "--to", &host.address, "--carrier", "tcp"];
    assert_eq!(peer.run(&sends).0, 0);
    let open = "anabranch_sessions{service=\"receive\"}";
    let sent = host.once(&fresh, "the session ends", |now| {
        total(now, open) == 0 && total(now, "anabranch_connections{service=\"receive\"}") == 0
    });
    assert!(is_about(total(&sent, &moved("tcp", "received")), SENT), "{sent:#?}");
    assert!(total(&sent, &moved("tcp", "sent")) < SENT / 10, "{sent:#?}");
    assert_eq!(total(&sent, "anabranch_sessions_opened_total{service=\"receive\"}"), 1);
    assert!(total(&sent, "anabranch_connections_opened_total{service=\"receive\"}") >= 1);
    assert_eq!(total(&sent, "anabranch_receive_memory_bytes"), 0);

    // One out over UDP.
    let get = ["get", "large", "--from", &host.address, "--carrier", "udp"];
    assert_eq!(peer.run(&get).0, 0);
    let got = host.once(&sent, "the datagrams are counted", |now| {
        total(now, &moved("udp", "sent")) >= 2_000_000
    });
    assert!(is_about(total(&got, &moved("udp", "sent")), 2_000_000), "{got:#?}");
    let over_tcp = moved("tcp", "received");
    assert_eq!(total(&got, &over_tcp), total(&sent, &over_tcp), "each carrier for itself");
    assert_eq!(total(&got, "anabranch_sessions_opened_total{service=\"serve\"}"), 1);

    // A tunnel: a target that the peer may reach, and one that it may not.
    tunnels(&peer, &host.address, word).unwrap();
    tunnels(&peer, &host.address, 1).unwrap_err();
    let through = host.once(&got, "a target is refused", |now| {
        total(now, "anabranch_tunnel_refused_total{reason=\"forbidden\"}") == 1
    });
    assert_eq!(total(&through, "anabranch_tunnel_dialed_total"), 1);
    assert_eq!(total(&through, "anabranch_sessions_opened_total{service=\"tunnel\"}"), 2);

    // A stranger is counted, and has no row.
    let stranger = Home::new();
    let key = home.run(&["keys"]).1;
    stranger.run(&["keys", "trust", "receiver", &host.address, key.trim()]);
    let file = stranger.file("data", b"x");
    for carrier in ["tcp", "udp"] {
        let sends = ["send", file.to_str().unwrap(), "--to", &host.address, "--carrier", carrier];
        assert_eq!(stranger.run(&sends).0, 4);
    }
    drop(TcpStream::connect(&host.address).unwrap());
    let refused = "anabranch_refusals_total{service=\"receive\",kind=\"stranger\"}";
    let visited = host.once(&through, "strangers are refused", |now| {
        total(now, refused) >= 2 && total(now, "anabranch_incomplete_handshakes_total") >= 1
    });
    assert_eq!(rows_of_paths(&visited), rows_of_paths(&through));
    assert_eq!(visited.len(), through.len(), "no stranger makes a row");
    let said = host.read("/metrics");
    assert!(!said.contains(stranger.run(&["keys"]).1.trim()), "{said}");

    // A peer that is removed keeps its rows, loses its tunnels, and is a stranger.
    fs::write(home.0.join("authorized_peers"), format!("{}\n", key.trim())).unwrap();
    std::thread::sleep(Duration::from_millis(1_500));
    assert_eq!(peer.run(&["send", "data", "--to", &host.address]).0, 4);
    let removed = host.once(&visited, "it is refused", |now| {
        total(now, refused) > total(&visited, refused)
            && total(now, "anabranch_tunnel_streams") == 0
            && total(now, "anabranch_connections{service=\"tunnel\"}") == 0
    });
    assert_eq!(total(&removed, &over_tcp), total(&visited, &over_tcp));
    assert_eq!(removed.len(), visited.len());
}

/// Nothing else is there, and nowhere else.
#[test]
fn metrics_are_at_one_page_of_one_address() {
    let home = Home::new();
    let host = watched(&home, &["--metrics", "127.0.0.1:0"]);
    for path in ["/", "/metrics/", "/../metrics", "/favicon.ico"] {
        assert!(host.read(path).starts_with("HTTP/1.1 404 "), "{path}");
    }
    let port = host.metrics.rsplit_once(':').unwrap().1;
    TcpStream::connect(format!("127.0.0.2:{port}")).unwrap_err();
    // The port of peers has no page.
    let mut stream = TcpStream::connect(&host.address).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut said = Vec::new();
    let _ = stream.read_to_end(&mut said);
    assert!(!String::from_utf8_lossy(&said).contains("anabranch"));
}

#[test]
fn a_port_of_metrics_that_is_taken_is_an_error_that_names_who_has_it() {
    let home = Home::new();
    home.run(&["keys", "trust", "sender", home.run(&["keys"]).1.trim()]);
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    for (tables, arguments) in [
        ("[measure]\n".to_string(), vec!["--metrics".to_string(), port.to_string()]),
        (format!("[measure]\n[host]\nmetrics = {port}\n"), vec![]),
        (format!("[measure]\n[host]\nmetrics = '127.0.0.1:{port}'\n"), vec![]),
    ] {
        home.file("config.toml", tables.as_bytes());
        let mut command = home.command(&["host", "--listen", "127.0.0.1", "--port", "0"]);
        let output = command.args(&arguments).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(10), "{tables}: {said}");
        let at = format!("serve metrics at 127.0.0.1:{port}");
        assert!(said.contains(&at) && said.contains("it is taken by"), "{said}");
        let process = format!("(process {})", std::process::id());
        assert!(said.contains(&process), "{said}");
    }
}

/// docs/host.md lists what a host with all services has.
#[test]
fn the_page_lists_all_metrics() {
    let home = Home::new();
    let host = watched(&home, &["--metrics", "0"]);
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/host.md");
    let page = fs::read_to_string(page).unwrap();
    let listed: BTreeSet<(String, String)> = page
        .lines()
        .filter_map(|line| {
            let mut cells = line.strip_prefix("| `anabranch_")?.split('|');
            let name = cells.next()?.split(['`', '{']).next()?;
            Some((format!("anabranch_{name}"), cells.next()?.trim().to_string()))
        })
        .collect();
    let said = host.read("/metrics");
    let there: BTreeSet<(String, String)> = said
        .lines()
        .filter_map(|line| {
            let (name, kind) = line.strip_prefix("# TYPE ")?.split_once(' ')?;
            let suffix = if kind == "counter" { "_total" } else { "" };
            Some((format!("{name}{suffix}"), kind.to_string()))
        })
        .collect();
    assert!(there.len() > 20, "{said}");
    assert_eq!(listed, there);
}
