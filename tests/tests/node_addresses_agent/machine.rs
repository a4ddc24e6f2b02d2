//! Bonds and VLANs, on a stock kernel in a virtual machine: the test machine's kernel has neither.

use std::time::Duration;

use tenure_testbed::binaries::{Binaries, Program};
use tenure_testbed::vm::VirtualMachine;
use tenure_tests::programs;

/// The kernel is emulated, on a machine that has other things to do.
const LIMIT: Duration = Duration::from_mins(20);

#[test]
fn a_bond_and_a_vlan_get_addresses_mtu_and_are_set_up_and_give_the_addresses_back() {
    let binaries = Binaries::locate([Program::Ip]).unwrap();
    let machine = VirtualMachine::new()
        .unwrap()
        .program(env!("CARGO_BIN_EXE_bed-interfaces"))
        .program(programs::tenured())
        .program(binaries.path(Program::Ip).unwrap())
        // A client of the API insists on some, also without TLS.
        .file("/etc/ssl/certs/ca-certificates.crt");
    let directory = tempfile::tempdir().unwrap();
    let ended = machine.run(directory.path(), "ip link set lo up && bed-interfaces", LIMIT).unwrap();
    assert_eq!(ended.code, 0, "{}", ended.console);
    for step in ["a bond", "a VLAN", "removal"] {
        let line = format!("{step}: ok");
        assert!(
            ended.console.lines().any(|shown| shown == line),
            "{line:?} is not on the console: {}",
            ended.console
        );
    }
}
