//! `tunnel` and `serve-tunnel` with curl as the program that knows nothing of them.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::home::{Home, Running, announced, lines_of};
use super::needs::are_installed;
use super::ports::free_port;
use super::schema::Schema;

/// A web server on loopback, which answers each request with this text; its port.
fn web(text: &'static str) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            std::thread::spawn(move || {
                let mut stream = stream.unwrap();
                let _ = stream.read(&mut [0; 4_096]);
                let length = text.len();
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
                let _ = stream.write_all([head.as_bytes(), text.as_bytes()].concat().as_slice());
            });
        }
    });
    port
}

/// A far side by token; its address and its token.
fn serve(home: &Home, more: &[&str]) -> (Running, String, String) {
    let base = ["serve-tunnel", "--listen", "127.0.0.1", "--port", "0", "--token"];
    let mut command = home.command(&[&base[..], more].concat());
    announced(command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap())
}

/// A near side that has said where it listens, in the order of its options (IPv4 first).
fn tunnel(home: &Home, to: &str, token: &str, more: &[&str]) -> (Running, Vec<String>) {
    let mut command = home.command(&[&["tunnel", to, "--json"], more].concat());
    command.env("ANABRANCH_TOKEN", token).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut lines = lines_of(child.stdout.take().unwrap());
    let child = Running(child);
    let (schema, mut addresses) = (Schema::of_the_stream(), Vec::new());
    for line in lines.by_ref() {
        let event = serde_json::from_str(&line).unwrap();
        schema.check(&event).unwrap_or_else(|error| panic!("{line}: {error}"));
        if event["event"] == "listening" {
            addresses.push(event["addresses"][0].as_str().unwrap().to_string());
        }
        // Ports of the far side are told after that.
        let connected = line.contains("connected to");
        if connected && !more.contains(&"-R") || line.contains("\"localhost:") {
            break;
        }
    }
    std::thread::spawn(move || lines.for_each(drop));
    (child, addresses)
}

/// The output and the exit code of curl.
fn curl(arguments: &[&str]) -> (String, Option<i32>) {
    let mut command = Command::new("curl");
    command.args(["-sS", "-m", "20", "--noproxy", ""]).args(arguments);
    let output = command.output().expect("curl is there");
    let said = [output.stdout, output.stderr].concat();
    (String::from_utf8_lossy(&said).into_owned(), output.status.code())
}

#[test]
fn curl_goes_through_a_tunnel_by_each_way() {
    if !are_installed(&["curl"]) {
        return;
    }
    let (near, far) = (Home::new(), Home::new());
    let port = web("from the far side");
    let page = format!("http://127.0.0.1:{port}/");
    let permits = ["--permit", &format!("127.0.0.1:{port}"), "--permit-listen", "*"];
    let (_serving, to, token) = serve(&far, &permits);
    let login = near.file("login", b"anna:secret\n");
    let mut private = fs::metadata(&login).unwrap().permissions();
    std::os::unix::fs::PermissionsExt::set_mode(&mut private, 0o600);
    fs::set_permissions(&login, private).unwrap();
    let target = format!("127.0.0.1:{port}");
    let (local, remote) = (format!("0:{target}"), format!("0:{target}"));
    let options = ["--socks", "0", "--http", "0", "-L", &local, "-R", &remote];
    let login = ["--proxy-login", login.to_str().unwrap()];
    let (_tunnel, at) = tunnel(&near, &to, &token, &[&options[..], &login].concat());
    let [socks, http, forward] = [&at[0], &at[2], &at[4]];
    let reverse = at.last().unwrap();
    let whole = ("from the far side".to_string(), Some(0));
    let socks = format!("socks5h://anna:secret@{socks}");
    assert_eq!(curl(&["--proxy", &socks, &page]), whole);
    let proxied = |login: &str| {
        let http = format!("http://{login}{http}");
        curl(&["--proxytunnel", "--proxy", &http, &page])
    };
    assert_eq!(proxied("anna:secret@"), whole);
    assert!(proxied("anna:wrong@").0.contains("407") && proxied("").0.contains("407"));
    assert_eq!(curl(&[&format!("http://{forward}/")]), whole);
    assert_eq!(curl(&[&format!("http://{reverse}/")]), whole);
    let (said, code) = curl(&["--proxy", &socks, "http://192.0.2.7/"]);
    assert!(code == Some(97) && said.contains("(2)"), "{said}");
}

/// With 40 descriptors and 60 connections some wait, and all are served in the end.
#[test]
fn a_process_without_descriptors_goes_on() {
    let (near, far) = (Home::new(), Home::new());
    let port = web("whole");
    let target = format!("127.0.0.1:{port}");
    let (_serving, to, token) = serve(&far, &["--permit", &target]);
    let mut command = Command::new("sh");
    let program = env!("CARGO_BIN_EXE_anabranch");
    let script = format!("ulimit -n 40; exec {program} tunnel {to} -L 0:{target} --json");
    command.args(["-c", &script]).env("ANABRANCH_HOME", &near.0).env("ANABRANCH_TOKEN", &token);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = lines_of(child.stdout.take().unwrap());
    let _child = Running(child);
    let (mut at, mut is_connected) = (None, false);
    while at.is_none() || !is_connected {
        let line = lines.next().expect("it goes on");
        is_connected |= line.contains("connected to");
        let event: serde_json::Value = serde_json::from_str(&line).unwrap();
        if event["event"] == "listening" && at.is_none() {
            at = event["addresses"][0].as_str().map(String::from);
        }
    }
    let at = at.unwrap();
    let open: Vec<TcpStream> = (0..60).map(|_| TcpStream::connect(&at).unwrap()).collect();
    std::thread::sleep(Duration::from_millis(500));
    for (number, mut stream) in open.into_iter().enumerate() {
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
        let mut text = String::new();
        let read = stream.read_to_string(&mut text);
        assert!(read.is_ok() && text.ends_with("whole"), "{number}: {read:?} {text}");
    }
}

/// Each side has a bound of what it sends.
#[test]
fn a_tunnel_keeps_to_its_rates() {
    let (near, far) = (Home::new(), Home::new());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    // Reads until the end, and sends as much back.
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut all = Vec::new();
        stream.read_to_end(&mut all).unwrap();
        stream.write_all(&all).unwrap();
    });
    let target = format!("127.0.0.1:{port}");
    let (_serving, to, token) = serve(&far, &["--permit", &target, "--max-rate", "16mbit"]);
    let (_tunnel, at) =
        tunnel(&near, &to, &token, &["-L", &format!("0:{target}"), "--max-rate", "8mbit"]);
    let mut stream = TcpStream::connect(&at[0]).unwrap();
    let began = Instant::now();
    let sent = vec![7; 2_000_000];
    stream.write_all(&sent).unwrap();
    stream.shutdown(Shutdown::Write).unwrap();
    let mut back = vec![0; 1];
    stream.read_exact(&mut back).unwrap();
    let (there, turned) = (began.elapsed(), Instant::now());
    stream.read_to_end(&mut back).unwrap();
    assert!(back == sent);
    let back = turned.elapsed();
    // 2 MB take 2 s at 8 Mbit/s, and 1 s at 16; headers take 4 %.
    assert!((1.9..4.0).contains(&there.as_secs_f64()), "{there:?}");
    assert!((0.9..2.5).contains(&back.as_secs_f64()), "{back:?}");
}

#[test]
fn mistakes_are_usage_errors_that_say_what_to_do() {
    let home = Home::new();
    for (arguments, part) in [
        (&["tunnel", "nas"][..], "nothing to carry"),
        (&["tunnel", "nas", "--socks", "a:b"], "'a:b' is not PORT"),
        (&["tunnel", "nas", "-L", "80:a"], "8000:db.internal:5432"),
        (
            &["tunnel", "--socks", "1080"],
            "name the HOST that runs 'anabranch serve-tunnel', or --via",
        ),
        (&["tunnel", "nas", "-L", "0:a:1", "--proxy-login", "x"], "--proxy-login"),
        (&["tunnel", "nas", "--transparent", "./path"], "needs a port"),
        (&["tunnel", "--transparent", "3129", "--transparent-rules", "print"], "--for"),
        (&["tunnel", "nas", "--socks", "0", "--max-rate", "8"], "a number and a unit"),
        (&["serve-tunnel"], "keys trust sender"),
        (&["serve-tunnel", "--token"], "--permit"),
        (&["serve-tunnel", "--permit", "*:443"], "--token"),
        (&["serve-tunnel", "--token", "--permit", "*"], "'*' is not HOST:PORT"),
    ] {
        let (code, _, said) = home.run(arguments);
        assert!(said.contains(part), "{arguments:?}: {said}");
        assert!([2, 10].contains(&code), "{arguments:?}: {code}");
    }
}

/// A near side that was killed left its port refused for 80 s.
#[test]
fn a_port_of_a_near_side_that_was_killed_is_taken_over_by_the_next_one() {
    let (near, far) = (Home::new(), Home::new());
    let port = free_port();
    let target = format!("127.0.0.1:{}", web("whole"));
    let (_serving, to, token) = serve(&far, &["--permit", "127.0.0.1:*", "--permit-listen", "*"]);
    let remote = format!("{port}:{target}");
    let (mut killed, at) = tunnel(&near, &to, &token, &["-R", &remote]);
    assert_eq!(at.last().unwrap(), &format!("localhost:{port}"));
    killed.0.kill().unwrap();
    killed.0.wait().unwrap();
    let began = Instant::now();
    let (_next, at) = tunnel(&near, &to, &token, &["-R", &remote]);
    assert_eq!(at.last().unwrap(), &format!("localhost:{port}"));
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    assert_eq!(curl(&[&format!("http://127.0.0.1:{port}/")]), ("whole".to_string(), Some(0)));
}

/// A near side that lives keeps its port, and the other one is told that it is taken.
#[test]
fn a_port_of_a_near_side_that_lives_is_not_taken_over() {
    let (near, far) = (Home::new(), Home::new());
    let port = free_port();
    let target = format!("127.0.0.1:{}", web("whole"));
    let (_serving, to, token) = serve(&far, &["--permit", "127.0.0.1:*", "--permit-listen", "*"]);
    let remote = format!("{port}:{target}");
    let (_first, _) = tunnel(&near, &to, &token, &["-R", &remote]);
    let mut second = near.command(&["tunnel", &to, "--json", "-R", &remote]);
    second.env("ANABRANCH_TOKEN", &token).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut second = second.spawn().unwrap();
    let mut lines = lines_of(second.stdout.take().unwrap());
    let _second = Running(second);
    let said = lines.find(|line| line.contains("does not listen")).expect("it says so");
    assert!(said.contains("in use"), "{said}");
    assert_eq!(curl(&[&format!("http://127.0.0.1:{port}/")]), ("whole".to_string(), Some(0)));
}

/// A far side that was killed was noticed after 44 s, though its host says so at once.
#[test]
fn a_far_side_that_was_killed_is_noticed_in_seconds() {
    let (near, far) = (Home::new(), Home::new());
    let (mut serving, to, token) = serve(&far, &["--permit", "127.0.0.1:*"]);
    let mut command = near.command(&["tunnel", &to, "--socks", "0", "--json"]);
    command.env("ANABRANCH_TOKEN", &token).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().unwrap();
    let mut lines = lines_of(child.stdout.take().unwrap());
    let _tunnel = Running(child);
    let first = lines.find(|line| line.contains("listening")).unwrap();
    let event: serde_json::Value = serde_json::from_str(&first).unwrap();
    let socks = format!("socks5h://{}", event["addresses"][0].as_str().unwrap());
    lines.find(|line| line.contains("connected to")).expect("it connects");
    serving.0.kill().unwrap();
    serving.0.wait().unwrap();
    let began = Instant::now();
    // A program wants something.
    drop(curl(&["-m", "15", "--proxy", &socks, "http://127.0.0.1:9/"]));
    let said = lines.find(|line| line.contains("no tunnel")).expect("it says so");
    assert!(said.contains("refuses packets"), "{said}");
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
}

#[test]
fn a_tunnel_has_so_many_subflows_over_each_path() {
    let (near, far) = (Home::new(), Home::new());
    let (_serving, to, token) = serve(&far, &["--permit", "127.0.0.1:*"]);
    let logs = near.0.join("logs");
    fs::create_dir(&logs).unwrap();
    let more = ["--socks", "0", "--path", "lo", "--weight", "3", "--qlog", logs.to_str().unwrap()];
    let (mut tunnel, _) = tunnel(&near, &to, &token, &more);
    let pid = tunnel.0.id().to_string();
    assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
    tunnel.0.wait().unwrap();
    let log = fs::read_dir(&logs).unwrap().next().unwrap().unwrap().path();
    let log = fs::read_to_string(log).unwrap();
    assert_eq!(log.matches("anabranch:path_opened").count(), 3, "{log}");
}
