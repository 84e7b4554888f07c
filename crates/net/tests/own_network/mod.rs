//! Runs a test again inside a network of its own, without privilege. Tests of other crates include
//! this file by its path.

use std::env;
use std::process::Command;

/// Set in the copy of the test program that runs inside the namespaces.
const INSIDE: &str = "ANABRANCH_TEST_INSIDE";

/// Runs `test` again inside fresh network and mount namespaces, in which `setup` (a shell script)
/// ran first; there, returns true. Outside it returns false when that copy has passed, or when no
/// namespace can be made here.
pub(crate) fn in_own_network(test: &str, setup: &str) -> bool {
    if env::var_os(INSIDE).is_some() {
        return true;
    }
    let unshare = |program: &str, arguments: &[&str]| {
        let mut command = Command::new("unshare");
        command
            .args(["--user", "--map-root-user", "--net", "--mount", program])
            .args(arguments)
            .env(INSIDE, "1");
        command.output()
    };
    let possible = unshare("ip", &["link", "show"]).is_ok_and(|output| output.status.success());
    if !possible {
        assert!(
            env::var("CI").as_deref() != Ok("true"),
            "skipped where CI=true: no network namespace can be made"
        );
        println!("SKIPPED: {test}: no network namespace can be made");
        return false;
    }
    let program = env::current_exe().unwrap();
    let script =
        format!("set -e\nip link set lo up\n{setup}\nexec \"$0\" --exact {test} --nocapture");
    let output = unshare("sh", &["-c", &script, program.to_str().unwrap()]).unwrap();
    let said = format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
    assert!(output.status.success(), "inside the namespace:\n{said}");
    assert!(said.contains("1 passed"), "the test did not run inside:\n{said}");
    false
}
