//! A bond and a VLAN get addresses by a real agent, which asks an embedded API server: what a virtual machine with a stock
//! kernel runs, because the test machine's kernel has neither. Says each step that went well, and panics at the first that
//! did not.

use std::io::{self, Write as _};

use serde_json::{Value, json};
use tenure_tests::agent::Cluster;
use tenure_tests::node_addresses::{Bed, interface, texts};

/// With an active and a spare link, as people have it.
const BOND: &str = "link add bond0 type bond mode active-backup miimon 100\n\
                    link set eth1 down\nlink set eth1 master bond0\n\
                    link set eth2 down\nlink set eth2 master bond0";
const VLAN: &str = "link add link bond0 name bond0.100 type vlan id 100";
const NEIGHBOUR: &str = "link add link eth1 name eth1.100 type vlan id 100\n\
                         address add 10.10.11.200/24 dev eth1.100\nlink set eth1.100 up";

const ONE: (&str, &str, &str) = ("one", "ippool.traffic-1.allocate", "10.10.10.8/24");
const SIX: (&str, &str, &str) = ("six", "ippool.traffic-6.allocate", "fd10::8/64");
const TWO: (&str, &str, &str) = ("two", "ippool.traffic-2.allocate", "10.10.11.9/24");

fn main() -> io::Result<()> {
    let mut output = io::stdout().lock();
    let cluster = Cluster::embedded();
    let bed = Bed::running(&cluster);
    bed.machine.host.ip(BOND).unwrap();
    bed.machine.host.ip(VLAN).unwrap();
    bed.neighbour.ip(NEIGHBOUR).unwrap();
    assert_eq!((link(&bed, "bond0").0, link(&bed, "bond0.100").0), (false, false), "they begin down");

    let mut bond = typed("bond0", "one", "bond");
    bond["mtu"] = json!(1400);
    bond["ipv6"] = json!({"enabled": true, "address": [
        {"ip": "{{ capture.six.ip }}", "prefix-length": "{{ capture.six.prefix-length }}"}
    ]});
    let on_bond = bed.policy("bond", &[ONE, SIX], &json!({"interfaces": [bond]}));
    let applied = bed.until_available(&on_bond).status.unwrap().applied.unwrap();
    assert_eq!((applied.mode.as_deref(), applied.addresses.len()), (Some("kernel"), 2));
    assert_eq!(bed.addresses("bond0"), texts(&["10.10.10.8/24", "fd10::8/64"]));
    assert_eq!(link(&bed, "bond0"), (true, 1400));
    bed.ping("10.10.10.200");
    bed.ping("fd10::200");
    writeln!(output, "a bond: ok")?;

    // What it is taken for has to be what it is.
    let wrong = bed.policy("wrong", &[TWO], &json!({"interfaces": [typed("bond0.100", "two", "bond")]}));
    bed.until_failing(&wrong, "\"bond0.100\" is vlan, and the policy says bond");
    let mut vlan = typed("bond0.100", "two", "vlan");
    vlan["mtu"] = json!(1300);
    bed.change(&wrong, &json!({"interfaces": [vlan]}));
    bed.until_available(&wrong);
    assert_eq!(bed.addresses("bond0.100"), texts(&["10.10.11.9/24"]));
    assert_eq!(link(&bed, "bond0.100"), (true, 1300));
    bed.ping("10.10.11.200");
    writeln!(output, "a VLAN: ok")?;

    for policy in [&wrong, &on_bond] {
        bed.delete(policy);
        bed.until_released(policy);
    }
    assert_eq!((bed.addresses("bond0.100"), bed.addresses("bond0")), (texts(&[]), texts(&[])));
    writeln!(output, "removal: ok")
}

fn typed(name: &str, capture: &str, kind: &str) -> Value {
    let mut made = interface(name, capture);
    made["type"] = json!(kind);
    made
}

/// Whether an interface is up, and its MTU.
fn link(bed: &Bed<'_>, name: &str) -> (bool, u64) {
    let shown = bed.machine.host.namespace().ip_json(&["link", "show", "dev", name]).unwrap();
    let flags = shown[0]["flags"].as_array().unwrap();
    (flags.iter().any(|it| it == "UP"), shown[0]["mtu"].as_u64().unwrap())
}
