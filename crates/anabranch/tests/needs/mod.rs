//! Skips a test that needs a program which this machine lacks. Tests include this file by its path.

use std::env;

/// The programs, with the packages that have them, as the gate and CI have them too.
const NEEDS: &str = include_str!("../../../../bench/needs");

/// Whether this machine has these programs. If it lacks one, the test is skipped, which is a
/// failure with `CI=true`.
pub(crate) fn are_installed(programs: &[&str]) -> bool {
    let Some(missing) = programs.iter().find(|program| !is_installed(program)) else { return true };
    let mut rows = NEEDS.lines().map(|row| row.split_whitespace());
    let package = rows.find_map(|mut row| (row.next() == Some(missing)).then(|| row.next())?);
    let package = package.unwrap_or_else(|| panic!("{missing} is missing, and not in bench/needs"));
    let why = format!("there is no {missing} here (package {package})");
    assert!(env::var("CI").as_deref() != Ok("true"), "skipped where CI=true: {why}");
    println!("SKIPPED: {why}");
    false
}

/// Whether a program is in the path, or where those of administrators are.
fn is_installed(program: &str) -> bool {
    let path = env::var_os("PATH").unwrap_or_default();
    let admin = ["/usr/sbin", "/sbin"].map(Into::into);
    env::split_paths(&path).chain(admin).any(|folder| folder.join(program).is_file())
}
