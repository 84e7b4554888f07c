//! `host`: several services at one port, and what each line of `authorized_peers` permits.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::home::{Home, Running, lines_of, text};

/// A host with all services but those whose tables are left out.
fn host(home: &Home, tables: &str) -> (Running, String) {
    for folder in ["incoming", "served"] {
        fs::create_dir_all(home.0.join(folder)).unwrap();
    }
    fs::write(home.0.join("served/offered"), b"offered").unwrap();
    home.file("config.toml", tables.as_bytes());
    let mut command = home.command(&["host", "--listen", "127.0.0.1", "--port", "0"]);
    listening(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap())
}

fn listening(mut child: Child) -> (Running, String) {
    let mut lines = lines_of(child.stdout.take().unwrap());
    let child = Running(child);
    let address = lines.find_map(|line| line.strip_prefix("listening ").map(String::from));
    std::thread::spawn(move || lines.for_each(drop));
    (child, address.expect("it says where it listens"))
}

pub(super) fn all_services(home: &Home) -> String {
    format!(
        "[receive]\ndirectory = '{0}/incoming'\n[serve]\ndirectory = '{0}/served'\n[tunnel]\n\
         [relay]\n[measure]\n",
        home.0.display()
    )
}

/// A client that trusts the host, and whom the host knows by a line with these words.
pub(super) fn client(host: &Home, address: &str, words: &str) -> Home {
    let client = Home::new();
    let key = client.run(&["keys"]).1;
    let list = host.0.join("authorized_peers");
    let before = fs::read_to_string(&list).unwrap_or_default();
    fs::write(&list, format!("{before}{} {words}\n", key.trim())).unwrap();
    let trusted = client.run(&["keys", "trust", "receiver", address, host.run(&["keys"]).1.trim()]);
    assert_eq!(trusted.0, 0, "{}", trusted.2);
    client
}

/// A server that answers each connection with a word; its port.
pub(super) fn server() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let _ = stream.unwrap().write_all(b"word");
        }
    });
    port
}

/// Whether a tunnel to the host reaches a port of it; otherwise its exit code and message.
pub(super) fn tunnels(client: &Home, address: &str, port: u16) -> Result<(), (i32, String)> {
    let forward = format!("0:127.0.0.1:{port}");
    let mut command = client.command(&["tunnel", address, "-L", &forward, "--json"]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = lines_of(child.stdout.take().unwrap());
    let mut child = Running(child);
    let (mut local, mut is_connected) = (None, false);
    for line in lines.by_ref() {
        let event: serde_json::Value = serde_json::from_str(&line).unwrap();
        if event["event"] == "listening" {
            local = local.or(event["addresses"][0].as_str().map(String::from));
        }
        is_connected |= line.contains("connected to");
        if is_connected {
            break;
        }
    }
    if !is_connected {
        let code = child.0.wait().unwrap().code().unwrap();
        let mut said = String::new();
        child.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        return Err((code, said));
    }
    let mut stream = TcpStream::connect(local.unwrap().replace("localhost", "127.0.0.1")).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    let mut word = [0; 4];
    match stream.read_exact(&mut word) {
        Ok(()) => {
            assert_eq!(&word, b"word");
            Ok(())
        }
        Err(error) => Err((0, error.to_string())),
    }
}

/// The rights of lines against services: each cell over both carriers, a tunnel over its one. A
/// line permits what it says, and no more.
#[test]
fn each_line_permits_what_it_says_over_both_carriers() {
    let home = Home::new();
    let word = server();
    let lines = [
        // The words, and whether they let a host send, get, measure, and open a tunnel.
        ("", [true, false, true, false]),
        ("may=send", [true, false, true, false]),
        ("may=get", [false, true, false, false]),
        ("may=both", [true, true, true, false]),
        ("may=none", [false, false, false, false]),
        (&format!("may=none tunnel=127.0.0.1:{word}"), [false, false, false, true]),
        (&format!("may=get tunnel=127.0.0.1:{word}"), [false, true, false, true]),
    ];
    // Somebody is known before it starts.
    let tables = all_services(&home);
    home.run(&["keys", "trust", "sender", home.run(&["keys"]).1.trim()]);
    let (_host, address) = host(&home, &tables);
    let clients: Vec<Home> =
        lines.iter().map(|(words, _)| client(&home, &address, words)).collect();
    // The list is looked at every second.
    std::thread::sleep(Duration::from_millis(1_500));
    for (number, ((words, may), client)) in lines.iter().zip(&clients).enumerate() {
        let [sends, gets, measures, opens] = *may;
        let check = |what: &str, arguments: &[&str], is_permitted: bool| {
            let (code, _, stderr) = client.run(arguments);
            assert_eq!(code, if is_permitted { 0 } else { 4 }, "'{words}' {what}: {stderr}");
        };
        for carrier in ["tcp", "udp"] {
            let name = format!("from-{number}-{carrier}");
            client.file(&name, b"sent");
            let send = ["send", &name, "--to", &address, "--carrier", carrier];
            check(&format!("sends over {carrier}"), &send, sends);
            assert_eq!(home.0.join("incoming").join(&name).exists(), sends, "'{words}' {carrier}");
            let into = format!("got-{carrier}");
            let get = ["get", "offered", "--from", &address, "--carrier", carrier, "--as", &into];
            check(&format!("gets over {carrier}"), &get, gets);
            let perf = ["perf", &address, "-t", "200 ms", "--carrier", carrier, "--together"];
            check(&format!("measures over {carrier}"), &perf, measures);
        }
        // Whoever may anything may know how fast the way is.
        let probe = ["paths", "--probe", &address];
        let (code, stdout, stderr) = client.run(&probe);
        let is_known = may.contains(&true);
        assert_eq!(code == 0, is_known, "'{words}' probes: {stdout}{stderr}");
        match tunnels(client, &address, word) {
            Ok(()) => assert!(opens, "'{words}' opens a tunnel"),
            Err((code, said)) => assert!(!opens && code == 4, "'{words}': {code} {said}"),
        }
    }
    assert_eq!(
        fs::read_dir(home.0.join("incoming"))
            .unwrap()
            .flatten()
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("from-"))
            .count(),
        6
    );
}

/// The rights of one service are none at another one.
#[test]
fn a_service_is_not_entered_by_another_ones_rights() {
    let home = Home::new();
    let port = server();
    home.run(&["keys", "trust", "sender", home.run(&["keys"]).1.trim()]);
    let (_host, address) = host(&home, &all_services(&home));
    let client = client(&home, &address, "may=none tunnel=127.0.0.1:1");
    std::thread::sleep(Duration::from_millis(1_500));
    // It is let in, and reaches nothing but its target.
    let (_, said) = tunnels(&client, &address, port).unwrap_err();
    assert!(!said.is_empty());
    let file = client.file("data", b"x");
    let (code, _, stderr) = client.run(&["send", file.to_str().unwrap(), "--to", &address]);
    assert!(code == 4 && stderr.contains("may neither send"), "{stderr}");
}

/// Who may use a service is told what a host does in place of another one; who may not, is not.
#[test]
fn a_stranger_is_not_told_what_a_host_does() {
    let home = Home::new();
    home.run(&["keys", "trust", "sender", home.run(&["keys"]).1.trim()]);
    let tables = format!("[receive]\ndirectory = '{}/incoming'\n[measure]\n", home.0.display());
    let (_host, address) = host(&home, &tables);
    let known = client(&home, &address, "may=both");
    let stranger = Home::new();
    stranger.run(&["keys", "trust", "receiver", &address, home.run(&["keys"]).1.trim()]);
    stranger.run(&["keys"]);
    std::thread::sleep(Duration::from_millis(1_500));
    for carrier in ["tcp", "udp"] {
        let get = ["get", "offered", "--from", &address, "--carrier", carrier];
        let (code, _, stderr) = known.run(&get);
        assert_eq!(code, 4, "{stderr}");
        let does = "this host takes files and measures; 'anabranch serve' there would offer files";
        assert!(stderr.contains(does), "{stderr}");
        let (code, _, stderr) = stranger.run(&get);
        assert_eq!(code, 4, "{stderr}");
        assert!(!stderr.contains("takes files"), "{stderr}");
    }
    let (code, said) = tunnels(&known, &address, 1).unwrap_err();
    assert!(code == 4 && said.contains("'anabranch serve-tunnel' there"), "{said}");
}

#[test]
fn a_configuration_without_services_and_one_without_folders_are_errors() {
    let home = Home::new();
    home.run(&["keys", "trust", "sender", home.run(&["keys"]).1.trim()]);
    for (tables, why) in [
        ("[send]\nverify = true\n", "names no service"),
        ("[receive]\n", "[receive] names no folder"),
        ("[serve]\n", "[serve] names no folder"),
        ("[serve]\ndirectroy = '.'\n", "did you mean 'directory'?"),
        ("[recieve]\n", "did you mean 'receive'?"),
        ("[measure]\n[host]\nmetrics = 'localhost'\n", "metrics"),
    ] {
        home.file("config.toml", tables.as_bytes());
        let (code, _, stderr) = home.run(&["host", "--port", "0"]);
        assert!(code == 2 && stderr.contains(why), "{tables}: {code} {stderr}");
    }
    let nobody = Home::new();
    nobody.file("config.toml", b"[measure]\n");
    let (code, _, stderr) = nobody.run(&["host", "--port", "0"]);
    assert!(code == 2 && stderr.contains("no host is trusted"), "{stderr}");
}

/// The port is its peers': another one in its place is no use.
#[test]
fn a_host_whose_port_is_taken_says_by_whom() {
    let home = Home::new();
    home.run(&["keys", "trust", "sender", home.run(&["keys"]).1.trim()]);
    home.file("config.toml", b"[measure]\n");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let mut command = home.command(&["host", "--listen", "127.0.0.1", "--port", &port]);
    let (code, _, stderr) = text(&command.output().unwrap());
    assert!(code == 10 && stderr.contains(&port), "{code} {stderr}");
}

/// It has no transfer of its own to which somebody would come back.
#[test]
fn a_host_that_is_stopped_says_no_more_than_that() {
    let home = Home::new();
    home.run(&["keys", "trust", "sender", home.run(&["keys"]).1.trim()]);
    home.file("config.toml", b"[measure]\n");
    let mut command = home.command(&["host", "--listen", "127.0.0.1", "--port", "0"]);
    let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (mut host, _) = listening(child);
    let pid = host.0.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    assert_eq!(host.0.wait().unwrap().code(), Some(128 + 15));
    let mut said = String::new();
    host.0.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    assert!(said.ends_with(": stopped\n"), "{said}");
}

/// A relay's two ways to start, who may use it, and what it says of itself.
#[test]
fn a_relay_says_who_may_use_it_and_what_it_does() {
    let home = Home::new();
    let (code, _, said) = home.run(&["relay", "--port", "0"]);
    assert_eq!(code, 2, "{said}");
    assert!(said.contains("--may relay"), "{said}");
    let (code, _, said) = home.run(&["relay", "--permit", "*:22"]);
    assert_eq!((code, said.contains("add --token")), (2, true), "{said}");
    let (code, _, said) = home.run(&["relay", "status"]);
    assert_eq!((code, said.contains("relay-status")), (10, true), "{said}");
    let other = Home::new();
    let key = other.run(&["keys"]).1;
    let more = ["--relay", "127.0.0.1:*", "--relay-cap", "1GB/month"];
    let trusted = [&["keys", "trust", "sender", key.trim(), "laptop", "--may", "relay"], &more[..]];
    assert_eq!(home.run(&trusted.concat()).0, 0);
    let line = home.run(&["keys", "list"]).1;
    assert!(line.contains("may=relay relay=127.0.0.1:* relay-cap=1000000000B/month"), "{line}");
    for by_host in [false, true] {
        home.file("config.toml", b"[relay]\nmax-rate = \"08:00,50mbit 18:00,off\"\n");
        let command = if by_host { "host" } else { "relay" };
        let mut command = home.command(&[command, "--listen", "127.0.0.1", "--port", "0"]);
        let (mut running, at) =
            listening(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
        // Once it says so, it has the port over UDP too.
        let taken = UdpSocket::bind(&at);
        let taken = taken.expect_err("nobody listens there over UDP");
        assert_eq!(taken.kind(), std::io::ErrorKind::AddrInUse);
        let (code, rows) = loop {
            let (code, rows, _) = home.run(&["relay", "status", "--json"]);
            if code == 0 {
                break (code, rows);
            }
        };
        assert_eq!((code, rows.as_str()), (0, ""), "nobody was there yet");
        let (code, table, _) = home.run(&["relay", "status"]);
        assert_eq!((code, table.lines().count()), (0, 1), "{table}");
        // No path is open: it ends at once.
        let signal = rustix::process::Signal::TERM;
        let id = i32::try_from(running.0.id()).unwrap();
        let id = rustix::process::Pid::from_raw(id).unwrap();
        rustix::process::kill_process(id, signal).unwrap();
        assert_eq!(running.0.wait().unwrap().code(), Some(143));
        assert_eq!(home.run(&["relay", "status"]).0, 10, "its socket is gone");
    }
}
