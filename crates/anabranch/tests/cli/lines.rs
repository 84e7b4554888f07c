//! What is printed where: with `--quiet`, with `--verbose`, and when the sender leaves.

use std::fs;
use std::process::Stdio;

use super::home::{Home, Running, lines_of, text};

/// Sends a folder with a file of a strange name to a receiver; gives what both printed on standard
/// output and standard error.
fn transfer(home: &Home, more: &[&str]) -> [String; 4] {
    let (source, target) = (home.0.join("src"), home.0.join("in"));
    for folder in [&source, &target] {
        fs::create_dir_all(folder).unwrap();
    }
    fs::write(source.join("a\\b\n\u{1b}[2J"), b"strange").unwrap();
    let token = home.0.join("token");
    let listen = ["receive", "in", "--listen", "127.0.0.1", "--port", "0", "--token-out", "token"];
    let mut receive = home.command(&[&listen, more].concat());
    receive.stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut receive = Running(receive.spawn().unwrap());
    let mut lines = lines_of(receive.0.stdout.take().unwrap());
    let mut received = String::new();
    let address = lines.by_ref().find_map(|line| {
        received.extend([line.as_str(), "\n"]);
        line.strip_prefix("listening ").map(String::from)
    });
    let argv = ["send", "src", "--to", &address.unwrap(), "--token-file", token.to_str().unwrap()];
    let (code, sent, said) = text(&home.command(&[&argv, more].concat()).output().unwrap());
    assert_eq!(code, 0, "{said}");
    lines.for_each(|line| received.extend([line.as_str(), "\n"]));
    let mut heard = receive.0.stderr.take().unwrap();
    let heard = std::io::read_to_string(&mut heard).unwrap();
    assert!(receive.0.wait().unwrap().success(), "{heard}");
    [sent, said, received, heard]
}

#[test]
fn quiet_hosts_print_addresses_and_the_token() {
    let home = Home::new();
    let [sent, said, received, heard] = transfer(&home, &["--quiet"]);
    assert_eq!((sent.as_str(), said.as_str(), heard.as_str()), ("", "", ""));
    let lines: Vec<&str> = received.lines().collect();
    let [listening, command, token] = lines[..] else { panic!("{received}") };
    assert!(listening.starts_with("listening 127.0.0.1:"), "{received}");
    assert!(command.starts_with("command anabranch send "), "{received}");
    assert!(token.starts_with("ab1-"), "{received}");
    let (code, stdout, stderr) = home.run(&["send", "missing", "-q", "--to", "127.0.0.1"]);
    assert_eq!((code, stdout.as_str()), (3, ""));
    assert!(stderr.contains("missing"), "{stderr}");
    assert_eq!(home.run(&["send", "src", "-q", "-v", "--to", "127.0.0.1"]).0, 2);
}

#[test]
fn verbose_hosts_print_paths_and_hashes_that_b3sum_checks() {
    let home = Home::new();
    let [sent, said, received, heard] = transfer(&home, &["-v"]);
    // As b3sum prints it: a backslash at the start of the line says that the name is escaped.
    let line = format!("\\{}  src/a\\\\b\\n\u{1b}[2J", blake3::hash(b"strange"));
    for printed in [&sent, &received] {
        assert_eq!(printed.lines().filter(|printed| **printed == line).count(), 1, "{printed}");
    }
    assert!(said.contains("path lo: connecting") && said.contains("path lo: active"), "{said}");
    assert!(heard.contains("path 127.0.0.1: active"), "{heard}");
    assert!(!said.contains("lost") && !heard.contains("lost"), "{said}{heard}");
}

#[test]
fn a_receiver_says_that_its_sender_has_left() {
    let home = Home::new();
    let target = home.0.join("in");
    fs::create_dir(&target).unwrap();
    let source = home.file("large", &vec![7; 8_000_000]);
    let listen = ["receive", "in", "--listen", "127.0.0.1", "--port", "0", "--progress", "plain"];
    let mut command = home.command(&[&listen[..], &["--token-out", "token"]].concat());
    let receive = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut receive = Running(receive.unwrap());
    let mut lines = lines_of(receive.0.stdout.take().unwrap());
    let address = lines.find_map(|line| line.strip_prefix("listening ").map(String::from));
    let mut send = home.command(&["send", source.to_str().unwrap(), "--to", &address.unwrap()]);
    send.args(["--token-file", "token", "--max-rate", "8mbit"]);
    let mut send = Running(send.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let mut heard = lines_of(receive.0.stderr.take().unwrap());
    assert!(heard.any(|line| line.contains(" of 8.0 MB ")), "progress");
    send.0.kill().unwrap();
    // It goes on with a line of progress each second.
    let left =
        heard.take(60).find(|line| line.contains("the sender has left in mid-transfer, with "));
    assert!(left.unwrap().contains(" of 8.0 MB here: waiting for it to come back, "));
}

/// Before, it said nothing, and stayed.
#[test]
fn a_server_says_that_its_client_has_left() {
    let home = Home::new();
    home.file("large", &vec![7; 8_000_000]);
    let listen = ["serve", ".", "--once", "--listen", "127.0.0.1", "--port", "0"];
    let mut command = home.command(&[&listen[..], &["--token-out", "token"]].concat());
    let serve = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
    let mut serve = Running(serve.unwrap());
    let mut lines = lines_of(serve.0.stdout.take().unwrap());
    let address = lines.find_map(|line| line.strip_prefix("listening ").map(String::from));
    let mut heard = lines_of(serve.0.stderr.take().unwrap());
    let mut get = home.command(&["get", "large", "--into", "got", "--from", &address.unwrap()]);
    get.args(["--token-file", "token", "--max-rate", "8mbit", "--carrier", "tcp"]);
    let mut get = Running(get.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    assert!(heard.any(|line| line.contains(" gets a file, 8.0 MB")), "the begin");
    get.0.kill().unwrap();
    let left = heard.take(5).find(|line| line.contains(" has left in mid-transfer; "));
    let left = left.expect("it says so");
    assert!(left.ends_with("what arrived there is kept: waiting for it to come back"), "{left}");
}
