//! Mesh files: a network for other programs, by lines of JSON.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

const MESH: &str = "
    [host.near]
    [host.far]
    [translator.home]
    outside = 'dsl'
    [[link]]
    name = 'lan'
    between = ['near', 'home']
    rate = '100 Mbit/s'
    delay = '1 ms'
    queue = '64 KiB'
    [[link]]
    name = 'dsl'
    between = ['home', 'far']
    rate = '20 Mbit/s'
    delay = '5 ms'
    queue = '64 KiB'
";

/// A mesh file and a report beside it, for the time of a test.
struct MeshFile(PathBuf);

impl MeshFile {
    fn new(name: &str, text: &str) -> MeshFile {
        let file =
            std::env::temp_dir().join(format!("anabranch-mesh-{name}-{}", std::process::id()));
        fs::write(&file, text).expect("a scratch file");
        MeshFile(file)
    }

    fn report(&self) -> PathBuf {
        self.0.with_extension("report")
    }

    fn emulate(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new("timeout");
        command.args(["60", env!("CARGO_BIN_EXE_anabranch"), "emulate"]).arg(&self.0);
        command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    /// What the program says to a file that is wrong, or options that are.
    fn complaint(&self, arguments: &[&str]) -> String {
        let output = self.emulate(arguments).output().expect("the program runs");
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    }
}

impl Drop for MeshFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
        let _ = fs::remove_file(self.report());
    }
}

#[test]
fn a_mesh_is_there_until_its_input_ends() {
    let file = MeshFile::new("session", MESH);
    let report = file.report();
    let mut command = file.emulate(&["--report", report.to_str().expect("a plain path")]);
    let mut child = command.spawn().expect("the program runs");
    let mut input = child.stdin.take().expect("it is piped");
    let mut lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
    let mut next = || lines.next().map(|line| line.expect("text"));
    let Some(first) = next() else {
        child.wait().expect("it ended");
        let mut said = String::new();
        child.stderr.take().expect("it is piped").read_to_string(&mut said).expect("text");
        assert!(said.contains("making network namespaces and devices needs root"), "{said}");
        assert!(std::env::var("CI").as_deref() != Ok("true"), "{said}");
        println!("SKIPPED: {said}");
        return;
    };
    let ready: Value = serde_json::from_str(&first).expect("JSON");
    assert_eq!(ready["event"], "ready");
    let hosts = ready["hosts"].as_object().expect("a table");
    assert!(hosts.keys().eq(["far", "near"]), "routers and translators are no hosts: {ready}");
    assert_eq!(hosts["near"]["addresses"]["lan"], json!(["10.64.1.1", "fd64::1:1"]));

    // A command on the host, by the words that were given.
    let words: Vec<&str> = hosts["near"]["enter"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|word| word.as_str().expect("a word"))
        .collect();
    let devices = Command::new(words[0]).args(&words[1..]).args(["cat", "/proc/net/dev"]).output();
    let devices = String::from_utf8(devices.expect("it runs").stdout).expect("text");
    assert!(devices.contains("lan:") && !devices.contains("dsl:"), "{devices}");

    let mut ask = |request: &Value| -> Value {
        writeln!(input, "{request}").expect("it listens");
        serde_json::from_str(&next().expect("an answer")).expect("JSON")
    };
    let done = json!({ "event": "done" });
    let change =
        json!({ "do": "link", "link": "dsl", "way": "up", "rate": "2 Mbit/s", "loss": 0.1 });
    assert_eq!(ask(&change), done);
    assert_eq!(ask(&json!({ "do": "link", "link": "dsl", "state": "down" })), done);
    assert_eq!(ask(&json!({ "do": "forget", "translator": "home" })), done);
    let addresses = json!(["10.64.9.9/24"]);
    let moved = json!({ "do": "addresses", "link": "lan", "node": "near", "addresses": addresses });
    assert_eq!(ask(&moved), done);
    for (request, wanted) in [
        (json!({ "do": "link", "link": "dls" }), "no link called 'dls'; there are: lan, dsl"),
        (json!({ "do": "link", "link": "dsl" }), "changes nothing"),
        (json!({ "do": "link", "link": "dsl", "loss": 2.0 }), "wants a number from 0 to 1"),
        (json!({ "do": "link", "link": "dsl", "rat": 2.0 }), "rat"),
        (json!({ "do": "forget", "translator": "near" }), "no translator called 'near'"),
        (json!("dance"), "not a request"),
    ] {
        let refused = ask(&request);
        let error = refused["error"].as_str().unwrap_or_default();
        assert!(refused["event"] == "refused" && error.contains(wanted), "{request}: {refused}");
    }
    let counts = ask(&json!({ "do": "count" }));
    assert!(counts["links"]["dsl"]["up"]["packets"].is_u64(), "{counts}");
    assert_eq!(counts["nodes"]["home"]["flows"], 0, "{counts}");
    drop(input);
    assert!(child.wait().expect("it ends").success());
    let report: Value =
        serde_json::from_slice(&fs::read(&report).expect("a report")).expect("JSON");
    assert!(report["valid"].is_boolean() && report["links"]["lan"].is_object(), "{report}");
}

#[test]
fn what_is_wrong_is_named() {
    let wrong = MESH.replace("outside", "outsid");
    let said = MeshFile::new("key", &wrong).complaint(&[]);
    assert!(
        said.contains("translator.home.outsid: no such key; did you mean `outside`?"),
        "{said}"
    );
    let said = MeshFile::new("command", MESH).complaint(&["--", "true"]);
    assert!(said.contains("COMMAND is for network files, and this is a mesh"), "{said}");
    let said = MeshFile::new("seed", MESH).complaint(&["--seed", "2"]);
    assert!(said.contains("--seed is for scenario files"), "{said}");
}
