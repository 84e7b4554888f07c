//! The command-line program.

use std::process::ExitCode;

/// In place of musl's own, which has one lock for all threads (decision 101).
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    anabranch::Program::default().main()
}
