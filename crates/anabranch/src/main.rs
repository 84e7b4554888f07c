//! The command-line program.

use std::process::ExitCode;

/// One for every C library: what is measured is what packages have (decision 101).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    anabranch::Program::default().main()
}
