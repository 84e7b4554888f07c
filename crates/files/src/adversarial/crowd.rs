//! Many strangers that send nothing or garbage: they are forgotten, and an honest sender is
//! admitted meanwhile.

use std::process::Command;
use std::time::Duration;
use std::{env, fs};

use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::{Host, Scratch};

/// Memory of this process, in KiB.
pub(super) fn memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

/// The test that a process has alone.
const ALONE: &str = "ANABRANCH_TEST_ALONE";

/// Whether this process has the test alone, so that the memory that grows is the test's. If not,
/// the test has run in a process of its own.
pub(super) fn is_alone(test: &str) -> bool {
    if env::var_os(ALONE).is_some_and(|alone| alone == test) {
        return true;
    }
    let mut command = Command::new(env::current_exe().unwrap());
    let output = command.args(["--exact", test]).env(ALONE, test).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("1 passed"), "{said}");
    false
}

/// Many at once; bench/bars/transfer-bad-peers runs ten thousand.
#[tokio::test(flavor = "multi_thread")]
async fn two_thousand_silent_strangers_keep_nobody_out() {
    let scratch = Scratch::new("silent");
    let host = Host::start(&scratch).await;
    let mut strangers = Vec::new();
    for number in 0..2_000 {
        strangers.push(TcpStream::connect(host.address).await.unwrap());
        if number % 500 == 250 {
            host.accepts_honest_sender(&scratch, &format!("honest-{number}")).await;
        }
    }
    let took = host.accepts_honest_sender(&scratch, "honest").await;
    assert!(took < Duration::from_secs(10), "{took:?}");
    drop(strangers);
}

/// One after another; the bar runs a million.
#[tokio::test(flavor = "multi_thread")]
async fn five_thousand_strangers_in_succession_leave_nothing() {
    let test = "adversarial::crowd::five_thousand_strangers_in_succession_leave_nothing";
    if !is_alone(test) {
        return;
    }
    let scratch = Scratch::new("succession");
    let host = Host::start(&scratch).await;
    let come_and_go = async |count: usize| {
        for number in 0..count {
            let mut stranger = TcpStream::connect(host.address).await.unwrap();
            // Some send garbage, some the beginning of a TLS record, the others nothing.
            match number % 4 {
                0 => drop(stranger.write_all(&[0xff; 600]).await),
                1 => drop(stranger.write_all(&[22, 3, 1, 2, 0, 1, 0, 1, 0xfc]).await),
                _ => {}
            }
        }
    };
    come_and_go(1_000).await;
    let before = memory();
    come_and_go(5_000).await;
    host.accepts_honest_sender(&scratch, "honest").await;
    let grown = memory().saturating_sub(before);
    assert!(grown < 64 * 1024, "{grown} KiB more");
}
