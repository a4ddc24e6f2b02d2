//! Plans and what follows from them.

use ipnet::IpNet;

use super::super::plan::REPLY_MARK;
use super::super::{ClientPlan, Egress, Family, SourcePort};
use crate::policy::Action;

fn egress(services: &[&str], destinations: &[&str]) -> Egress {
    Egress {
        services: services.iter().map(|it| it.parse().unwrap()).collect(),
        destinations: destinations.iter().map(|it| it.parse().unwrap()).collect(),
        source_port: SourcePort::Fixed,
        originating_only: false,
    }
}

fn plan(egresses: Vec<Egress>) -> ClientPlan {
    let addresses = vec!["10.2.0.7".parse().unwrap(), "fd01::7".parse().unwrap()];
    ClientPlan { egresses, ..ClientPlan::new("eth0", addresses) }
}

/// "2000 to 192.168.0.0/16 table 254".
fn rules(plan: &ClientPlan, family: Family) -> Vec<String> {
    let text = |rule: &crate::policy::Rule| {
        let to = rule.to.map_or_else(String::new, |to| format!(" to {to}"));
        let mark = rule.mark.map_or("", |mark| if mark == REPLY_MARK { " replies" } else { " marked" });
        match rule.action {
            Action::Table(table) => format!("{}{to}{mark} table {table}", rule.priority),
            Action::Goto(priority) => format!("{}{to}{mark} goto {priority}", rule.priority),
        }
    };
    plan.rules(family, &[]).iter().map(text).collect()
}

fn routes(plan: &ClientPlan, family: Family) -> Vec<String> {
    let text =
        |it: &super::super::plan::TunnelRoute| format!("{} {} via {}", it.table, it.destination, it.gateway);
    plan.routes(family).iter().map(text).collect()
}

#[test]
fn rules_are_those_of_the_design() {
    let plan = plan(vec![egress(&["10.96.0.1", "fd02::1"], &["0.0.0.0/0", "::/0"])]);
    assert_eq!(
        rules(&plan, Family::V4),
        [
            "1800 to 169.254.0.0/16 table 254",
            "1900 table 117",
            "2000 to 192.168.0.0/16 table 254",
            "2001 to 172.16.0.0/12 table 254",
            "2002 to 10.0.0.0/8 table 254",
            "2100 table 118",
        ]
    );
    assert_eq!(
        rules(&plan, Family::V6),
        ["1800 to fe80::/10 table 254", "1900 table 117", "2000 to fc00::/7 table 254", "2100 table 118"]
    );
    assert_eq!(routes(&plan, Family::V4), ["118 0.0.0.0/0 via 10.96.0.1"]);
    assert_eq!(routes(&plan, Family::V6), ["118 ::/0 via fd02::1"]);
}

#[test]
fn destinations_inside_of_private_networks_are_narrow_and_others_wide() {
    let one = egress(&["10.96.0.1"], &["10.1.0.0/16", "198.51.100.0/24", "172.0.0.0/8"]);
    let two = egress(&["10.96.0.2"], &["0.0.0.0/0", "10.1.2.0/24", "10.1.0.0/16"]);
    assert_eq!(
        routes(&plan(vec![one, two]), Family::V4),
        [
            "117 10.1.0.0/16 via 10.96.0.1",
            "117 10.1.2.0/24 via 10.96.0.2",
            "118 0.0.0.0/0 via 10.96.0.2",
            "118 172.0.0.0/8 via 10.96.0.1",
            "118 198.51.100.0/24 via 10.96.0.1",
        ],
        "of two with one destination the first counts"
    );
    let mut other = plan(vec![egress(&["10.96.0.1"], &["10.1.0.0/16"])]);
    other.direct = vec!["100.64.0.0/10".parse().unwrap()];
    assert_eq!(routes(&other, Family::V4), ["118 10.1.0.0/16 via 10.96.0.1"]);
    assert_eq!(
        rules(&other, Family::V4)[2..],
        ["2000 to 100.64.0.0/10 table 254", "2100 table 118"],
        "with networks of one's own instead"
    );
}

#[test]
fn a_family_that_pod_service_or_destinations_lack_is_left_out() {
    let both = egress(&["10.96.0.1", "fd02::1"], &["0.0.0.0/0", "::/0"]);
    let mut four = plan(vec![both.clone()]);
    four.addresses.pop();
    assert!(four.uses(Family::V4) && !four.uses(Family::V6) && rules(&four, Family::V6).is_empty());
    let service = plan(vec![Egress { services: vec!["fd02::1".parse().unwrap()], ..both.clone() }]);
    assert!(!service.uses(Family::V4) && service.uses(Family::V6));
    let destinations = plan(vec![egress(&["10.96.0.1", "fd02::1"], &["0.0.0.0/0"])]);
    assert!(destinations.uses(Family::V4) && !destinations.uses(Family::V6));
    assert_eq!(destinations.gateways(Family::V6), Vec::<std::net::IpAddr>::new());
}

#[test]
fn answers_stay_out_of_the_tunnels_of_an_egress_for_originated_connections_and_of_no_others() {
    let only = Egress { originating_only: true, ..egress(&["10.96.0.1"], &["0.0.0.0/0", "198.51.0.0/16"]) };
    let other = egress(&["10.96.0.2"], &["198.51.100.0/24"]);
    let both = plan(vec![only.clone(), other.clone()]);
    assert!(both.has_originating_only());
    assert_eq!(
        rules(&both, Family::V4)[..4],
        [
            "1000 to 198.51.100.0/24 replies goto 1800",
            "1001 to 198.51.0.0/16 replies table 254",
            "1002 replies table 254",
            "1800 to 169.254.0.0/16 table 254",
        ]
    );
    assert!(!plan(vec![other]).has_originating_only());
    assert!(rules(&both, Family::V6).is_empty());
}

#[test]
fn a_plan_that_cannot_be_carried_out_says_which_field_and_value() {
    let bad = |change: &dyn Fn(&mut ClientPlan)| {
        let mut plan = plan(vec![egress(&["10.96.0.1"], &["0.0.0.0/0"])]);
        plan.validate().unwrap();
        change(&mut plan);
        plan.validate().unwrap_err().to_string()
    };
    assert!(bad(&|p| p.addresses.clear()).starts_with("addresses: none"));
    assert!(bad(&|p| p.addresses.push("10.2.0.8".parse().unwrap())).starts_with("addresses: 10.2.0.8"));
    assert!(bad(&|p| p.addresses = vec!["::".parse().unwrap()]).starts_with("addresses: ::"));
    let service = |text: &str| vec![text.parse().unwrap()];
    assert!(bad(&|p| p.egresses[0].services = service("224.0.0.1")).starts_with("services: 224.0.0.1"));
    assert!(bad(&|p| p.egresses[0].services = service("10.2.0.7")).contains("the pod's own"));
    assert!(
        bad(&|p| p.direct = (0..101_u8).map(|i| net(&format!("10.{i}.0.0/16"))).collect())
            .starts_with("direct: 101")
    );
    let many = |p: &mut ClientPlan| {
        p.egresses =
            (0..65).map(|i| egress(&[&format!("10.96.1.{i}")], &[&format!("198.51.100.{i}/32")])).collect();
    };
    assert!(bad(&many).starts_with("egresses: 65"));
}

fn net(text: &str) -> IpNet {
    text.parse().unwrap()
}
