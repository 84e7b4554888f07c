//! Records that other programs hand over to a feed.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpStream, UdpSocket};
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::feeds::{Site, kill, numbered};
use super::home::Home;
use super::ports::free_port;

/// A feed that says on standard error that it takes records, which is waited for.
fn feed(site: &Site, more: &[&str], sockets: usize) -> Child {
    let said = site.source.0.join("said");
    let file = fs::File::create(&said).unwrap();
    let child = site.feed(more).stderr(file).spawn().unwrap();
    let count = || fs::read_to_string(&said).unwrap().matches("records are taken at").count();
    site.until("it listens", |_| count() == sockets);
    child
}

fn connect(port: u16) -> TcpStream {
    TcpStream::connect(("127.0.0.1", port)).unwrap()
}

/// A feed has 16 MiB of records that wait, and itself.
fn assert_has_little_memory(child: &Child) {
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).unwrap();
    let rss = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    let kib: u64 = rss.trim().trim_end_matches(" kB").parse().unwrap();
    assert!(kib < 120_000, "{kib} KiB");
}

#[test]
fn programs_hand_records_over_at_each_kind_of_socket() {
    let site = Site::new();
    let _collector = site.collect();
    let (tcp, udp) = (free_port(), free_port());
    let at = |name: &str| site.source.0.join(name);
    let words: Vec<String> = [
        format!("tcp:{tcp}"),
        format!("udp:127.0.0.1:{udp}"),
        format!("unix:{}", at("stream").display()),
        format!("unixgram:{}", at("datagrams").display()),
    ]
    .into_iter()
    .flat_map(|at| ["--listen".to_string(), at])
    .collect();
    let mut words: Vec<&str> = words.iter().map(String::as_str).collect();
    words.extend(["--name", "programs"]);
    let mut child = feed(&site, &words, 4);
    connect(tcp).write_all(b"over tcp\n").unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.send_to(b"over udp", ("127.0.0.1", udp)).unwrap();
    UnixStream::connect(at("stream")).unwrap().write_all(b"through a socket\n").unwrap();
    UnixDatagram::unbound().unwrap().send_to(b"as a datagram\n", at("datagrams")).unwrap();
    let mut expected = ["over tcp", "over udp", "through a socket", "as a datagram"];
    expected.sort_unstable();
    site.until("all are kept", |site| {
        let kept = site.kept("programs");
        let mut lines: Vec<&str> = kept.lines().collect();
        lines.sort_unstable();
        lines == expected
    });
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(143));
    assert!(!at("stream").exists() && !at("datagrams").exists(), "they went with it");
}

#[test]
fn frames_over_tcp_wait_in_the_spool_through_a_kill() {
    let site = Site::new();
    let port = free_port();
    let at = format!("tcp:{port}");
    let words = ["--listen", &at, "--name", "frames", "--records", "counted", "--spool", "spool"];
    let child = feed(&site, &words, 1);
    connect(port).write_all(b"5 first9 second\nof").unwrap();
    let spooled = site.source.0.join("spool/spool/frames");
    let is_there = |text: &str| {
        let entries = fs::read_dir(&spooled).into_iter().flatten();
        entries.flatten().any(|file| fs::read_to_string(file.path()).unwrap().contains(text))
    };
    site.until("both are spooled", |_| is_there("second\nof"));
    kill(child);
    let child = feed(&site, &words, 1);
    connect(port).write_all(b"5 third").unwrap();
    let _collector = site.collect();
    site.until("all are kept", |site| site.kept("frames") == "5 first9 second\nof5 third");
    kill(child);
}

/// Who writes over TCP waits while the collector is away; nothing is lost, and memory is bounded.
#[test]
fn a_program_waits_while_there_is_no_room() {
    let site = Site::new();
    let port = free_port();
    let child = feed(&site, &["--listen", &format!("tcp:{port}"), "--name", "lines"], 1);
    let all = numbered(2_500_000);
    let (mut stream, mut written) = (connect(port), 0);
    stream.set_nonblocking(true).unwrap();
    let mut idle = 0;
    // Until nothing was taken for a second.
    while written < all.len() && idle < 100 {
        if let Ok(more) = stream.write(&all.as_bytes()[written..]) {
            (written, idle) = (written + more, 0);
        } else {
            sleep(Duration::from_millis(10));
            idle += 1;
        }
    }
    assert!(written < all.len(), "what it takes has a bound");
    assert_has_little_memory(&child);
    let _collector = site.collect();
    stream.set_nonblocking(false).unwrap();
    stream.write_all(&all.as_bytes()[written..]).unwrap();
    drop(stream);
    site.until("all are kept", |site| site.kept("lines").len() == all.len());
    assert!(site.kept("lines") == all);
    kill(child);
}

/// Who floods a UDP socket while nothing goes loses records, which are counted, and takes no
/// memory.
#[test]
fn datagrams_that_are_lost_are_counted() {
    let site = Site::new();
    let port = free_port();
    let child = feed(&site, &["--listen", &format!("udp:{port}"), "--name", "flood"], 1);
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let said = || fs::read_to_string(site.source.0.join("said")).unwrap();
    let datagram = [b'x'; 1_000];
    let mut sent = 0;
    // Twice what waits at a source at most, and more until it is noticed.
    site.until("they are lost, and that is said", |_| {
        for _ in 0..10_000 {
            sent += usize::from(socket.send_to(&datagram, ("127.0.0.1", port)).is_ok());
        }
        said().contains("datagrams were lost")
    });
    assert_has_little_memory(&child);
    let _collector = site.collect();
    site.until("what was taken is kept", |site| site.kept("flood").len() > 1_000_000);
    let kept = site.kept("flood");
    // The last one may be half written.
    let mut whole = kept.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
    assert!(kept.len() / 1_001 < sent && whole.all(|line| line.as_bytes() == datagram));
    kill(child);
}

#[test]
fn mistakes_of_sockets_are_answered_at_once() {
    let home = Home::new();
    home.file("data", b"x\n");
    for (at, said) in [
        ("5140", "expected tcp:"),
        ("tcp:example.org:5140", "no port and no address"),
        ("tcp:99999", "no port and no address"),
    ] {
        let (code, _, stderr) = home.run(&["feed", "--listen", at, "--to", "host"]);
        assert!(code == 2 && stderr.contains(said), "{at}: {code} {stderr}");
    }
    let site = Site::new();
    let port = free_port();
    let taken = std::net::TcpListener::bind(("127.0.0.1", port)).unwrap();
    site.source.file("file", b"x\n");
    for (at, said) in [
        (format!("tcp:127.0.0.1:{port}"), "Address already in use"),
        ("unix:file".into(), "there is a file of that name, which is no socket"),
        ("unix:no/such/folder".into(), "No such file"),
        ("tcp:192.0.2.1:5140".into(), "Cannot assign requested address"),
    ] {
        let mut command = site.feed(&["--listen", &at]);
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut stderr = String::new();
        child.stderr.take().unwrap().read_to_string(&mut stderr).unwrap();
        let code = child.wait().unwrap().code();
        // A service manager tries again: the address may come later.
        assert!(
            code == Some(10) && stderr.contains(&at) && stderr.contains(said),
            "{at}: {stderr}"
        );
    }
    drop(taken);
}
