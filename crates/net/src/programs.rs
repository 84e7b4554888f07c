//! Programs of the system that change its network, and tell of it: nft and ip.

use std::io::{self, Write as _};
use std::process::{Command, Stdio};

/// Runs a program to its end, with this input.
///
/// # Errors
/// The command and what the program said, or why it could not be run.
pub fn execute(program: &str, arguments: &[&str], input: &str) -> Result<(), String> {
    let failed = |why: String| format!("{program} {}: {why}", arguments.join(" "));
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| failed(not_run(program, &error)))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that does not read it says why.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    Err(failed(said(&output.stderr)))
}

/// Runs a program to its end; what it printed.
///
/// # Errors
/// As [`execute`].
pub fn read(program: &str, arguments: &[&str]) -> Result<String, String> {
    let failed = |why: String| format!("{program} {}: {why}", arguments.join(" "));
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .map_err(|error| failed(not_run(program, &error)))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(failed(said(&output.stderr)))
}

/// What a program said, as one line: without those that only point at a place in the one before.
fn said(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    let points = |line: &str| line.bytes().all(|octet| b" ^~-".contains(&octet));
    let lines: Vec<&str> = text.lines().filter(|line| !points(line)).map(str::trim).collect();
    lines.join(": ")
}

/// Why a program could not be run.
fn not_run(program: &str, error: &io::Error) -> String {
    let package = match program {
        "nft" => "nftables",
        "ip" => "iproute2",
        other => other,
    };
    if error.kind() == io::ErrorKind::NotFound {
        return format!("there is no such program; the package {package} has it");
    }
    error.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_says_is_one_line() {
        let text = "Error: cgroupv2 path fails\n  meta nfproto ipv4 socket\n      ^^^^~~~  \n\n";
        assert_eq!(said(text.as_bytes()), "Error: cgroupv2 path fails: meta nfproto ipv4 socket");
        let failed = execute("sh", &["-c", "printf 'no\\n\\nway\\n' >&2; exit 3"], "").unwrap_err();
        assert!(failed.ends_with(": no: way"), "{failed}");
    }

    #[test]
    fn a_program_that_is_missing_is_named_with_its_package() {
        let missing = "anabranch-no-such-program: there is no such program; the package \
                       anabranch-no-such-program has it";
        let name = "anabranch-no-such-program";
        for said in [execute(name, &[], ""), read(name, &[]).map(drop)] {
            assert_eq!(said.unwrap_err().replace("program :", "program:"), missing);
        }
        let error = io::Error::from(io::ErrorKind::NotFound);
        assert!(not_run("nft", &error).ends_with("the package nftables has it"));
    }
}
