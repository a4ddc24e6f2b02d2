//! The agent and the plugin for ARM64, as a release has them, on a host made of namespaces of this machine: each runs under emulation. Needs
//! root, iproute2, a C compiler for ARM64, and Debian's packages.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::json;
use tenure_testbed::binaries::Emulator;
use tenure_testbed::wait::{PATIENCE, until};
use tenure_tests::alone::{Alone, first_address, pool};

/// Builds the programs, and says where they are.
fn programs() -> [PathBuf; 2] {
    let made = Command::new(env!("CARGO"))
        .args(["xtask", "static", "--arch", "arm64", "--profile", "quick", "tenured", "tenure-cni"])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .output()
        .unwrap();
    assert!(made.status.success(), "cargo xtask static: {}", String::from_utf8_lossy(&made.stderr));
    let said = String::from_utf8(made.stdout).unwrap();
    let paths: Vec<PathBuf> = said.lines().map(PathBuf::from).collect();
    paths.try_into().unwrap()
}

/// A script that runs a program under emulation, in the place of the program.
fn emulated(directory: &Path, emulator: &Path, program: &Path) -> PathBuf {
    let bytes = std::fs::read(program).unwrap();
    assert_eq!(bytes[18..20], [183, 0], "{} is not for ARM64", program.display());
    let script = directory.join(program.file_name().unwrap());
    let text = format!("#!/bin/sh\nexec {} {} \"$@\"\n", emulator.display(), program.display());
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    script
}

#[test]
fn a_pod_gets_an_address_from_the_agent_and_the_plugin_for_arm64() {
    let (emulator, scripts) = (Emulator::locate().unwrap().program, tempfile::tempdir().unwrap());
    let [agent, plugin] = programs().map(|program| emulated(scripts.path(), &emulator, &program));
    let mut alone = Alone::new();
    alone.agent = vec![agent];
    alone.install("tenure", &plugin);
    let spec = json!({"blockSizeBits": 2, "subnets": [{"ipv4": "10.70.0.0/24", "ipv6": "fd70::/120"}]});
    alone.write("/etc/tenure/pools/default.yaml", &pool("default", &spec));
    alone.start();
    let config = json!({"cniVersion": "1.1.0", "name": "pods", "type": "tenure"});
    until("a pool", || (alone.call("STATUS", "", None, &config).code == 0).then_some(()));
    let version = alone.call("VERSION", "", None, &config).result();
    assert!(version["supportedVersions"].as_array().unwrap().contains(&json!("1.1.0")), "{version}");

    let pod = alone.pod("first");
    let address = first_address(&alone.attach("ADD", &pod, &config).result());
    assert_eq!(alone.holds(), ["first"]);
    alone.host.ping(address, PATIENCE).unwrap();
    alone.attach("CHECK", &pod, &config).result();

    alone.stop();
    alone.start();
    until("the agent serves again", || (alone.call("STATUS", "", None, &config).code == 0).then_some(()));
    assert_eq!(alone.holds(), ["first"], "the journal is read after a restart");
    alone.attach("DEL", &pod, &config).result();
    assert!(alone.holds().is_empty());
}
