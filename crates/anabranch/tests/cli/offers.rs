//! What a server offers, and what a transfer would do, before anything is moved.

use std::fs;

use crate::home::{Home, Running, lines_of};

/// A server of `folder`: its address and its token.
fn server(home: &Home, folder: &std::path::Path) -> (Running, String, String) {
    let listen = ["--listen", "127.0.0.1", "--port", "0", "--token"];
    let mut command = home.command(&[&["serve", folder.to_str().unwrap()], &listen[..]].concat());
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::null());
    let mut serving = Running(command.spawn().unwrap());
    let (mut address, mut token) = (String::new(), String::new());
    for line in lines_of(serving.0.stdout.take().unwrap()) {
        if let Some(at) = line.strip_prefix("listening ") {
            address = at.to_string();
        }
        if line.starts_with("ab1-") {
            token = line;
            break;
        }
    }
    (serving, address, token)
}

fn offered(home: &Home) -> std::path::PathBuf {
    let folder = home.0.join("offered");
    fs::create_dir_all(folder.join("logs/old")).unwrap();
    for name in ["logs/a.gz", "logs/b.gz", "logs/c.txt", "logs/.hidden.gz", "logs/old/d.gz"] {
        fs::write(folder.join(name), name).unwrap();
    }
    folder
}

#[test]
fn get_lists_what_a_server_offers() {
    let home = Home::new();
    let folder = offered(&home);
    let (_serving, address, token) = server(&home, &folder);
    let list = |more: &[&str]| {
        let mut command = home.command(&[&["get", "--list", "--from", &address], more].concat());
        let output = command.env("ANABRANCH_TOKEN", &token).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{stderr}");
        String::from_utf8(output.stdout).unwrap()
    };
    let all = list(&[]);
    assert!(all.lines().any(|line| line.ends_with("  logs/old/")), "{all}");
    let line = all.lines().find(|line| line.ends_with("  logs/c.txt")).unwrap();
    assert!(line.trim_start().starts_with("10 B  20"), "{line}");
    assert!(all.ends_with("5 files, 56 B\n"), "{all}");
    let one = list(&["logs/old"]);
    assert_eq!(one.lines().count(), 3, "{one}");
    let json = list(&["logs/old", "--json"]);
    let kinds: Vec<String> = json
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .filter(|event| event["event"] == "listed")
        .map(|event| event["name"].as_str().unwrap().to_string())
        .collect();
    assert_eq!(kinds, ["old", "old/d.gz"]);
    assert_eq!(home.run(&["get", "--list", "--into", "x", "--from", &address]).0, 2);
    assert!(!home.0.join("logs").exists(), "nothing was fetched");
}

#[test]
fn names_with_wildcards_mean_what_they_mean_in_a_shell() {
    let home = Home::new();
    let folder = offered(&home);
    fs::write(folder.join("logs/[x].gz"), "literal").unwrap();
    let (_serving, address, token) = server(&home, &folder);
    let get = |names: &[&str], into: &str| {
        let arguments = [&["get", "--from", &address, "--into", into], names].concat();
        let mut command = home.command(&arguments);
        let output = command.env("ANABRANCH_TOKEN", &token).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        let names = fs::read_dir(home.0.join(into)).into_iter().flatten().flatten();
        let mut names: Vec<String> =
            names.map(|entry| entry.file_name().into_string().unwrap()).collect();
        names.sort();
        (output.status.code(), names, stderr)
    };
    let (code, names, stderr) = get(&["logs/*.gz"], "one");
    assert_eq!((code, names), (Some(0), vec!["[x].gz".into(), "a.gz".into(), "b.gz".into()]));
    assert!(!stderr.contains("hidden"), "{stderr}");
    assert_eq!(get(&["l*/[ab].gz", "*/old"], "two").1, ["a.gz", "b.gz", "old"]);
    // A file that has the very name.
    assert_eq!(get(&["logs/[x].gz"], "three").1, ["[x].gz"]);
    assert_eq!(get(&["logs/.h*"], "four").1, [".hidden.gz"]);
    assert_eq!(get(&["*/old/"], "five").1, ["d.gz"]);
    let (code, names, stderr) = get(&["logs/*.zip"], "six");
    assert_eq!((code, names.len()), (Some(3), 0), "{stderr}");
    assert!(stderr.contains("logs/*.zip") && stderr.contains("nothing there matches"), "{stderr}");
    let (code, _, stderr) = get(&["../*"], "seven");
    assert_eq!(code, Some(2), "{stderr}");
}
