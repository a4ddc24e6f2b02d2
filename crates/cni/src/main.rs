//! `tenure-cni`: the CNI plugin, installed under the names `tenure`, `coil`, `whereabouts` and `gcp-ipam`.

use std::process::ExitCode;

fn main() -> ExitCode {
    tenure_cni::plugin::main()
}
