//! `tenure`: the command line.

use std::process::ExitCode;

#[tokio::main]
async fn main() -> ExitCode {
    tenure::run().await
}
