//! Programs of the system that change its network, and tell of it: nft and ip.

use std::io::Write as _;
use std::process::{Command, Stdio};

/// Runs a program to its end, with this input.
///
/// # Errors
/// The command and what the program said, or why it could not be run.
pub fn execute(program: &str, arguments: &[&str], input: &str) -> Result<(), String> {
    let failed = |why: String| format!("{program} {}: {why}", arguments.join(" "));
    let mut command = Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| failed(error.to_string()))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that does not read it says why.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(());
    }
    Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_string()))
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
        .map_err(|error| failed(error.to_string()))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(failed(String::from_utf8_lossy(&output.stderr).trim().to_string()))
}
