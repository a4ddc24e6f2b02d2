//! `crds --write DIR | --check DIR`: writes the definitions of all kinds as files, or says which are stale.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use tenure_api::definitions::{self, FilesError};

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let done = match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["--write", directory] => definitions::write(Path::new(directory)),
        ["--check", directory] => definitions::check(Path::new(directory)),
        _ => return finish("usage: crds --write DIR | --check DIR", ExitCode::from(2)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error @ FilesError::Stale { .. }) => finish(&error.to_string(), ExitCode::FAILURE),
        Err(error) => finish(&error.to_string(), ExitCode::from(2)),
    }
}

/// Prints one sentence; a closed stderr does not change the exit code.
fn finish(sentence: &str, code: ExitCode) -> ExitCode {
    let _ = writeln!(std::io::stderr(), "{sentence}");
    code
}
