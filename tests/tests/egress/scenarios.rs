//! All scenarios with programs on both sides, on this machine's kernel.

use tenure_tests::egress::{datapath, scenarios};

fn run(name: &str) {
    let (_, scenario) = scenarios::ALL.into_iter().find(|(text, _)| *text == name).unwrap();
    let (mut client, mut gateway) = (datapath("bpf").unwrap(), datapath("bpf").unwrap());
    scenario(&mut client, &mut gateway).map_err(|error| format!("{error:#}")).unwrap();
}

#[test]
fn streams_and_datagrams_get_through_as_the_gateway() {
    run("streams and datagrams get through as the gateway");
}

#[test]
fn streams_and_datagrams_get_through_with_a_port_for_each_flow() {
    run("and so they do with a port for each flow");
}

#[test]
fn streams_and_datagrams_get_through_where_the_ethernet_addresses_of_routers_are_known_for_good() {
    run("and so they do where the Ethernet addresses of routers are known for good");
}

#[test]
fn packets_up_to_the_tunnels_mtu_get_through_whole_and_larger_ones_in_fragments() {
    run("packets up to the tunnel's MTU get through whole and larger ones in fragments");
}

#[test]
fn datagrams_that_are_segmented_late_all_arrive() {
    run("datagrams that are segmented late all arrive");
}

#[test]
fn a_client_that_is_removed_is_not_served_and_is_again_when_it_is_back() {
    run("a client that is removed is not served and is again when it is back");
}

#[test]
fn whoever_is_no_client_or_speaks_in_anothers_name_is_not_served() {
    run("whoever is no client or speaks in another's name is not served");
}

#[test]
fn a_changed_plan_leads_to_exactly_what_it_says() {
    run("a changed plan leads to exactly what it says and an empty one to nothing");
}

#[test]
fn answers_to_connections_from_elsewhere_leave_by_the_interface_if_egress_is_for_originated_ones() {
    run("answers leave as connections came if the Egress is for originated ones alone");
}

#[test]
fn answers_of_a_pod_with_several_interfaces_leave_by_the_one_that_the_connection_came_in_on() {
    run("and by the interface that they came in on if the pod has several");
}
