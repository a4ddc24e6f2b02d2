//! `tenure`: the library's main function.

use std::process::ExitCode;

fn main() -> ExitCode {
    tenure::main()
}
