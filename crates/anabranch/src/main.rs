//! The command-line program.

use std::process::ExitCode;

fn main() -> ExitCode {
    anabranch::Program::default().main()
}
