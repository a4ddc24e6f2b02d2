//! The scenarios on a stock kernel, in a virtual machine: the kernel's own Foo-over-UDP on both ends, and against programs
//! in both directions. One machine runs them all; each test looks at what it said.

use std::sync::LazyLock;
use std::time::Duration;

use tenure_testbed::binaries::{Binaries, Program};
use tenure_testbed::vm::VirtualMachine;
use tenure_tests::egress::{coil, scenarios};

/// The kernel is emulated, on a machine that has other things to do.
const LIMIT: Duration = Duration::from_mins(40);

/// What the machine showed.
static CONSOLE: LazyLock<String> = LazyLock::new(|| {
    let binaries = Binaries::locate([Program::Ip, Program::Nft]).unwrap();
    let machine = VirtualMachine::new()
        .unwrap()
        .program(env!("CARGO_BIN_EXE_bed-egress"))
        .program(binaries.path(Program::Ip).unwrap())
        .program(binaries.path(Program::Nft).unwrap());
    let directory = tempfile::tempdir().unwrap();
    // Nobody loads a module here: that is left to those who need it.
    // Programs at both ends are tried on the machine's own kernel.
    let runs = ["detect kernel", "bpf kernel", "kernel bpf", "coil kernel", "coil bpf"];
    let line = runs.map(|run| format!("bed-egress {run}")).join("; ");
    machine.run(directory.path(), &line, LIMIT).unwrap().console
});

/// Every scenario went well with these datapaths of client and gateway.
fn all_went_well(client: &str, gateway: &str) {
    for (scenario, _) in scenarios::ALL {
        let line = format!("{client} to {gateway}: {scenario}: ok");
        assert!(CONSOLE.lines().any(|shown| shown == line), "{line:?} is not on the console: {}", *CONSOLE);
    }
}

#[test]
fn a_client_with_programs_is_served_by_the_kernels_own_tunnels() {
    all_went_well("bpf", "kernel");
}

#[test]
fn a_client_with_the_kernels_own_tunnels_is_served_by_programs() {
    all_went_well("kernel", "bpf");
}

#[test]
fn a_kernel_with_modules_that_nobody_loaded_is_found_to_have_foo_over_udp_which_serves_at_both_ends() {
    all_went_well("detect", "kernel");
    assert!(CONSOLE.contains("detect is kernel"), "{}", *CONSOLE);
}

#[test]
fn clients_and_gateways_as_coil_makes_them_work_with_both_datapaths_of_ours() {
    for datapath in ["kernel", "bpf"] {
        for (scenario, _) in coil::ALL {
            let line = format!("coil to {datapath}: {scenario}: ok");
            assert!(
                CONSOLE.lines().any(|shown| shown == line),
                "{line:?} is not on the console: {}",
                *CONSOLE
            );
        }
    }
}
