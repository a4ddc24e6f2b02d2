//! `tenure-cni`: the CNI plugin, installed under the names `tenure`, `coil`, `whereabouts` and `gcp-ipam`.

use std::io::{Read, Write};
use std::path::Path;
use std::process::ExitCode;

use tenure_cni::NetworkConfig;
use tenure_cni::plugin::{Places, SOCKET_VARIABLE, places, run};

fn main() -> ExitCode {
    let own_name = std::env::args_os().next().unwrap_or_default();
    let plugin =
        Path::new(&own_name).file_name().and_then(|name| name.to_str()).unwrap_or("tenure").to_owned();
    let mut stdin = Vec::new();
    // Without standard input there is no configuration, and the error will say so. Endless input is refused
    // for its size.
    let _ = std::io::stdin().lock().take(NetworkConfig::LARGEST as u64 + 1).read_to_end(&mut stdin);
    let (socket, tombstones) = places(std::env::var_os(SOCKET_VARIABLE));
    let places = Places { socket: &socket, tombstones: &tombstones };
    let outcome = run(&plugin, |name| std::env::var_os(name), stdin, places);
    let _ = std::io::stderr().write_all(outcome.stderr.as_bytes());
    match std::io::stdout().write_all(&outcome.stdout) {
        Ok(()) => ExitCode::from(outcome.code),
        Err(_) => ExitCode::FAILURE,
    }
}
