//! The whole program over two network namespaces with emulated links between them.

mod noise;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{PoisonError, RwLock};

use noise::noise;

/// Two links of 20 Mbit/s; the second one fails after 1.2 s.
const ONE_DIES: &str = r#"
    name = "one-dies"
    [[link]]
    name = "wifi"
    rate = "20 Mbit/s"
    delay = "10 ms"
    queue = "64 KiB"
    [[link]]
    name = "lte"
    rate = "20 Mbit/s"
    delay = "30 ms"
    queue = "64 KiB"
    blackout = [{ from = "1.2 s" }]
"#;

/// Held shared by every test that emulates, exclusively by those that measure rates.
static TURN: RwLock<()> = RwLock::new(());

/// Two equal links.
const EQUAL: &str = r#"
    name = "equal"
    [[link]]
    name = "wifi"
    rate = "20 Mbit/s"
    delay = "10 ms"
    queue = "64 KiB"
    [[link]]
    name = "lte"
    rate = "20 Mbit/s"
    delay = "10 ms"
    queue = "64 KiB"
"#;

/// Two links whose rates differ tenfold.
const UNEQUAL: &str = r#"
    name = "unequal"
    [[link]]
    name = "wifi"
    rate = "20 Mbit/s"
    delay = "5 ms"
    queue = "64 KiB"
    [[link]]
    name = "lte"
    rate = "2 Mbit/s"
    delay = "40 ms"
    queue = "64 KiB"
"#;

/// The first of two links falls from 25 to 1 Mbit/s, with 400 KiB in its queue.
const ONE_TRICKLES: &str = r#"
    name = "one-trickles"
    [[link]]
    name = "wifi"
    rate = "25 Mbit/s"
    delay = "15 ms"
    queue = "400 KiB"
    schedule = [{ at = "1.5 s", rate = "1 Mbit/s" }]
    [[link]]
    name = "lte"
    rate = "10 Mbit/s"
    delay = "25 ms"
    queue = "400 KiB"
"#;

struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let path =
            std::env::temp_dir().join(format!("anabranch-network-{name}-{}", std::process::id()));
        fs::create_dir_all(path.join("inbox")).expect("a scratch directory");
        Scratch(path)
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Runs the shell command `near` in the near namespace, with a receiver in the far one. `$TO`
    /// is the receiver's address, `$TOKEN` the file with its token, and `$ANABRANCH` the program.
    fn run(&self, network: &str, near: &str) -> Output {
        let _shared = TURN.read().unwrap_or_else(PoisonError::into_inner);
        self.emulate(network, near)
    }

    /// As `run`, but without other tests of this file at the same time, for measurements of rates.
    fn run_alone(&self, network: &str, near: &str) -> Output {
        let _exclusive = TURN.write().unwrap_or_else(PoisonError::into_inner);
        self.emulate(network, near)
    }

    fn emulate(&self, network: &str, near: &str) -> Output {
        let program = env!("CARGO_BIN_EXE_anabranch");
        fs::write(self.at("network.toml"), network).expect("the network's file");
        let far = format!(
            "ANABRANCH_HOME={home} {program} receive {inbox} --port 7707 --token-out {token} \
             --progress none",
            home = self.at("far").display(),
            inbox = self.at("inbox").display(),
            token = self.at("token").display(),
        );
        let near = format!(
            "while ! [ -s \"$TOKEN\" ]; do sleep .05; done; TO=$ANABRANCH_FAR:7707; {near}"
        );
        Command::new("timeout")
            .args(["60", program, "emulate"])
            .arg(self.at("network.toml"))
            .args(["--far", &far, "--far-listens", "7707", "--", "sh", "-c", &near])
            .env("ANABRANCH_HOME", self.at("near"))
            .env("ANABRANCH", program)
            .env("TOKEN", self.at("token"))
            .output()
            .expect("the program runs")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Whether this process may create namespaces and TUN devices. With `CI=true` it must.
fn privileged() -> bool {
    let may = fs::OpenOptions::new().read(true).write(true).open("/dev/net/tun").is_ok()
        && Command::new("unshare")
            .args(["--net", "true"])
            .status()
            .is_ok_and(|status| status.success());
    if !may {
        let why = "no network namespaces and TUN devices without root here";
        assert!(std::env::var("CI").as_deref() != Ok("true"), "{why}");
        println!("SKIPPED: {why}");
    }
    may
}

fn said(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

fn same(a: &Path, b: &Path) -> bool {
    fs::read(a).expect("one file") == fs::read(b).expect("the other")
}

#[test]
fn a_failed_path_leaves_its_task_to_the_other() {
    if !privileged() {
        return;
    }
    let scratch = Scratch::new("dies");
    fs::write(scratch.at("data"), noise(8_000_000)).expect("a file");
    // Without --path both interfaces are found, and the receiver announces its second address.
    let near = format!(
        "exec $ANABRANCH send {} --to $TO --token-file $TOKEN --json",
        scratch.at("data").display()
    );
    let output = scratch.run(ONE_DIES, &near);
    assert!(output.status.success(), "{}", said(&output));
    assert!(same(&scratch.at("data"), &scratch.at("inbox/data")));
    let events = said(&output);
    assert!(events.contains("\"stalled\""), "{events}");
    let carried =
        |name: &str| events.lines().any(|line| line.contains("\"summary\"") && line.contains(name));
    assert!(carried("wifi"), "{events}");
}

#[test]
fn an_interface_that_comes_up_during_the_transfer_is_used() {
    if !privileged() {
        return;
    }
    let scratch = Scratch::new("joins");
    fs::write(scratch.at("data"), noise(16_000_000)).expect("a file");
    // The route in the device's own table is lost when the device goes down.
    let near = format!(
        "ip link set lte down; (sleep 1; ip link set lte up; ip route add default dev lte table 2) \
         & exec $ANABRANCH send {} --to $TO --token-file $TOKEN --json",
        scratch.at("data").display()
    );
    let output = scratch.run(EQUAL, &near);
    let events = said(&output);
    assert!(output.status.success(), "{events}");
    assert!(same(&scratch.at("data"), &scratch.at("inbox/data")));
    let joined = |line: &&str| {
        line.contains("\"path\"") && line.contains("\"lte\"") && line.contains("\"active\"")
    };
    assert!(events.lines().any(|line| joined(&line)), "{events}");
}

/// Over UDP: the second path falls silent, and its data goes over the first.
#[test]
fn a_failed_path_of_a_striped_connection_leaves_its_data_to_the_other() {
    if !privileged() {
        return;
    }
    let scratch = Scratch::new("udp-dies");
    fs::write(scratch.at("data"), noise(8_000_000)).expect("a file");
    let near = format!(
        "exec $ANABRANCH send {} --to $TO --token-file $TOKEN --carrier udp --json",
        scratch.at("data").display()
    );
    let output = scratch.run(ONE_DIES, &near);
    let events = said(&output);
    assert!(output.status.success(), "{events}");
    assert!(same(&scratch.at("data"), &scratch.at("inbox/data")));
    let told = |name: &str, state: &str| {
        events.lines().any(|line| {
            line.contains("\"event\":\"path\"") && line.contains(name) && line.contains(state)
        })
    };
    for (name, state) in [("wifi", "active"), ("lte", "active"), ("lte", "stalled")] {
        assert!(told(name, state), "{name} {state}: {events}");
    }
    assert!(!told("\"wifi\"", "\"stalled\""), "{events}");
}

/// Over UDP: the first path becomes slow with its queue full, and all streams wait for it. The
/// mover took them for dead, and sent what was in flight again over new ones: 63 MB for these 16.
#[test]
fn a_path_of_a_striped_connection_that_becomes_slow_makes_the_mover_repeat_nothing() {
    if !privileged() {
        return;
    }
    let scratch = Scratch::new("udp-trickles");
    fs::write(scratch.at("data"), noise(16_000_000)).expect("a file");
    let near = format!(
        "exec $ANABRANCH send {} --to $TO --token-file $TOKEN --carrier udp --controller \
         cubic --json",
        scratch.at("data").display()
    );
    let output = scratch.run(ONE_TRICKLES, &near);
    let events = said(&output);
    assert!(output.status.success(), "{events}");
    assert!(same(&scratch.at("data"), &scratch.at("inbox/data")));
    let summary = events.lines().find(|line| line.contains("\"summary\"")).expect("a summary");
    assert!(summary.contains("\"repeated\":0,"), "{summary}");
}

#[test]
fn an_interface_that_comes_up_carries_data_of_a_striped_connection() {
    if !privileged() {
        return;
    }
    let scratch = Scratch::new("udp-joins");
    fs::write(scratch.at("data"), noise(16_000_000)).expect("a file");
    let near = format!(
        "ip link set lte down; (sleep 1; ip link set lte up; ip route add default dev lte table 2) \
         & exec $ANABRANCH send {} --to $TO --token-file $TOKEN --carrier udp --json",
        scratch.at("data").display()
    );
    let output = scratch.run(EQUAL, &near);
    let events = said(&output);
    assert!(output.status.success(), "{events}");
    assert!(same(&scratch.at("data"), &scratch.at("inbox/data")));
    let summary = events.lines().find(|line| line.contains("\"summary\"")).expect("a summary");
    let lte = summary.split("\"name\":\"lte\"").nth(1).expect("the second path");
    let share = lte.split("\"share\":").nth(1).and_then(|rest| rest.split([',', '}']).next());
    let share: f64 = share.expect("its share").parse().expect("a number");
    assert!(share > 0.2, "{share}: {events}");
}

#[test]
fn each_path_is_measured_separately() {
    if !privileged() {
        return;
    }
    let scratch = Scratch::new("probe");
    let output = scratch.run(UNEQUAL, "exec $ANABRANCH paths $TO --token-file $TOKEN");
    let table = said(&output);
    assert!(output.status.success(), "{table}");
    let rate = |name: &str| -> f64 {
        let line = table
            .lines()
            .find(|line| line.starts_with(name))
            .unwrap_or_else(|| panic!("no {name} in\n{table}"));
        let words: Vec<&str> = line.split_whitespace().collect();
        let unit = words
            .iter()
            .position(|word| *word == "Mbit/s")
            .unwrap_or_else(|| panic!("no rate in {line}"));
        words[unit - 1].parse().expect("a number")
    };
    assert!((17.0..20.0).contains(&rate("wifi")), "{table}");
    assert!((1.5..2.1).contains(&rate("lte")), "{table}");
}

/// A link that drops large packets, and one that does not.
const BLACK_HOLE: &str = r#"
    name = "black-hole"
    [[link]]
    name = "wifi"
    rate = "20 Mbit/s"
    delay = "5 ms"
    queue = "64 KiB"
    blackhole_above = 1280
    [[link]]
    name = "lte"
    rate = "20 Mbit/s"
    delay = "5 ms"
    queue = "64 KiB"
"#;

/// The line of JSON among the output of the receiver.
fn report(output: &Output) -> serde_json::Value {
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find(|line| line.starts_with('{'));
    let report = line.and_then(|line| serde_json::from_str(line).ok());
    report.unwrap_or_else(|| panic!("no report: {}", said(output)))
}

/// The troubles that `doctor --json` found, each as `check subject mend`, and its exit code.
fn troubles(output: &Output) -> (Vec<String>, Option<i32>) {
    let report = report(output);
    let word =
        |finding: &serde_json::Value, key: &str| finding[key].as_str().unwrap_or("-").to_string();
    let findings = report["findings"].as_array().expect("a list").iter();
    let troubles = findings.filter(|finding| word(finding, "severity") == "trouble");
    let lines =
        troubles.map(|f| ["check", "subject", "mend"].map(|key| word(f, key)).join(" ")).collect();
    (lines, output.status.code())
}

#[test]
fn doctor_finds_no_trouble_on_good_paths() {
    if !privileged() {
        return;
    }
    let scratch = Scratch::new("doctor-well");
    let output = scratch.run_alone(EQUAL, "exec $ANABRANCH doctor $TO --token-file $TOKEN --json");
    assert_eq!(troubles(&output), (Vec::new(), Some(0)), "{}", said(&output));
    let report = report(&output);
    let paths = report["paths"].as_array().expect("a list");
    assert_eq!(paths.len(), 2, "{report}");
    for path in paths {
        let mbit = |key: &str| path[key].as_f64().expect("a rate") / 1e6;
        assert!(
            (17.0..20.0).contains(&mbit("alone")) && (16.0..20.0).contains(&mbit("together")),
            "{report}"
        );
    }
}

#[test]
fn doctor_finds_strict_rp_filter() {
    if !privileged() {
        return;
    }
    let scratch = Scratch::new("doctor-rp-filter");
    // Packets leave by wifi unless bound to lte, and rp_filter drops answers that arrive over lte.
    let near = "ip rule del from 10.77.2.1; ip route del 10.77.2.0/24 dev lte; ip route add \
                default dev wifi; ip route add default dev lte metric 100; echo 1 > \
                /proc/sys/net/ipv4/conf/lte/rp_filter; $ANABRANCH doctor $TO --token-file $TOKEN \
                --path wifi --path lte,to=10.77.2.2:7707 --json > $OUT; echo $? >> $OUT; sysctl \
                -qw net.ipv4.conf.lte.rp_filter=2; exec $ANABRANCH doctor $TO --token-file $TOKEN \
                --path wifi --path lte,to=10.77.2.2:7707 --json";
    let near = format!("OUT={}; {near}", scratch.at("first").display());
    let output = scratch.run(EQUAL, &near);
    let first =
        fs::read_to_string(scratch.at("first")).unwrap_or_else(|_| panic!("{}", said(&output)));
    assert!(
        first.contains(r#""check":"rp-filter","severity":"trouble","subject":"lte""#),
        "{first}"
    );
    assert!(first.contains(r#""mend":"sudo sysctl -w net.ipv4.conf.lte.rp_filter=2""#), "{first}");
    assert!(first.ends_with("\n1\n"), "{first}");
    // The command fixes it.
    assert_eq!(troubles(&output), (Vec::new(), Some(0)), "{}", said(&output));
}

#[test]
fn doctor_finds_a_black_hole_for_large_packets() {
    if !privileged() {
        return;
    }
    let scratch = Scratch::new("doctor-mtu");
    let output = scratch.run(BLACK_HOLE, "exec $ANABRANCH doctor $TO --token-file $TOKEN --json");
    let expected = vec!["mtu wifi sudo sysctl -w net.ipv4.tcp_mtu_probing=1".to_string()];
    assert_eq!(troubles(&output), (expected, Some(1)), "{}", said(&output));
}

#[test]
fn doctor_finds_small_buffers_and_closed_ports() {
    if !privileged() {
        return;
    }
    let scratch = Scratch::new("doctor-buffers");
    // 100 KB in flight is a fifth of the bandwidth-delay product.
    let long = EQUAL.replace("delay = \"10 ms\"", "delay = \"100 ms\"");
    let near = "echo '4096 16384 65536' > /proc/sys/net/ipv4/tcp_wmem; \
                exec $ANABRANCH doctor $TO --token-file $TOKEN --path wifi --json";
    let output = scratch.run(&long, near);
    let (found, code) = troubles(&output);
    assert!(
        found.len() == 1
            && found[0].starts_with("send-buffer wifi sudo sysctl -w net.ipv4.tcp_wmem="),
        "{found:?}"
    );
    assert_eq!(code, Some(1), "{}", said(&output));

    let output =
        scratch.run(EQUAL, "exec $ANABRANCH doctor $ANABRANCH_FAR:7709 --path wifi --json");
    let expected = vec!["connect wifi anabranch receive --port 7709 FOLDER".to_string()];
    assert_eq!(troubles(&output), (expected, Some(1)), "{}", said(&output));
}

#[test]
fn an_interface_that_looks_metered_is_reported_as_a_backup() {
    if !privileged() {
        return;
    }
    let scratch = Scratch::new("metered");
    fs::write(scratch.at("data"), noise(2_000_000)).expect("a file");
    let near = format!(
        "exec $ANABRANCH send {} --to $TO --token-file $TOKEN --json",
        scratch.at("data").display()
    );
    let output = scratch.run(&EQUAL.replace("\"lte\"", "\"wwan0\""), &near);
    let events = said(&output);
    assert!(output.status.success(), "{events}");
    assert!(
        events.contains("wwan0 looks metered")
            && events.contains("--path wwan0 makes it a primary"),
        "{events}"
    );
    assert!(events.contains("a backup, and another path is alive"), "{events}");
}

/// Two servers of one file, each behind its own link, and a client that uses both links.
#[test]
fn one_file_comes_from_two_servers_over_two_paths() {
    if !privileged() {
        return;
    }
    let scratch = Scratch::new("servers");
    let program = env!("CARGO_BIN_EXE_anabranch");
    fs::write(scratch.at("network.toml"), EQUAL).expect("the network's file");
    for server in ["one", "two"] {
        fs::create_dir_all(scratch.at(server)).expect("a folder");
        fs::write(scratch.at(server).join("data"), noise(8_000_000)).expect("a file");
    }
    let at = |name: &str| scratch.at(name).display().to_string();
    let serve = |number: usize, name: &str| {
        format!(
            "ANABRANCH_HOME={home} {program} serve {folder} --listen $(echo $ANABRANCH_FAR_ADDRS | \
             cut -d, -f{number}) --token-out {token} --progress none",
            home = at(&format!("home-{name}")),
            folder = at(name),
            token = at(&format!("token-{name}")),
        )
    };
    let far = format!("{} & {}", serve(1, "one"), serve(2, "two"));
    let near = format!(
        "while ! [ -s {one} -a -s {two} ]; do sleep .05; done; cat {one} {two} >{both}; IFS=,; set \
         -- $ANABRANCH_FAR_ADDRS; exec {program} get data --from $1 --from $2 --into {inbox} \
         --token-file {both} --json",
        one = at("token-one"),
        two = at("token-two"),
        both = at("tokens"),
        inbox = at("inbox"),
    );
    let output = Command::new("timeout")
        .args([
            "60",
            program,
            "emulate",
            &at("network.toml"),
            "--far",
            &far,
            "--far-listens",
            "7707",
        ])
        .args(["--", "sh", "-c", &near])
        .env("ANABRANCH_HOME", at("near"))
        .output()
        .expect("the program runs");
    let events = said(&output);
    assert!(output.status.success(), "{events}");
    assert!(same(&scratch.at("one/data"), &scratch.at("inbox/data")));
    let summary = events.lines().find(|line| line.contains("\"summary\"")).expect("a summary");
    for server in ["10.77.1.2", "10.77.2.2"] {
        assert!(summary.contains(server), "nothing came from {server}: {summary}");
    }
}
