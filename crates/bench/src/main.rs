//! The program behind `cargo xtask bench` and `cargo xtask scale`.

use std::process::ExitCode;

fn main() -> ExitCode {
    tenure_bench::main()
}
