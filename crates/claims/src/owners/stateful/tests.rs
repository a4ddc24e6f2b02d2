use serde_json::{Value, json};

use super::*;
use crate::{ClaimFacts, PodFacts, Reference, references};

fn set(changes: impl FnOnce(&mut Value)) -> StatefulFacts {
    let mut set = json!({
        "metadata": {"namespace": "ns", "name": "web", "uid": "set-1"},
        "spec": {
            "replicas": 2, "serviceName": "web", "selector": {},
            "template": {"metadata": {"annotations": {
                "tenure/keep-addresses": "true",
                "k8s.v1.cni.cncf.io/networks": "blue,plain,other/green@green0",
            }}},
        },
    });
    changes(&mut set);
    StatefulFacts::of(&serde_json::from_value(set).unwrap())
}

fn policy(when_scaled: &str, when_deleted: &str) -> impl FnOnce(&mut Value) {
    let policy = json!({"whenScaled": when_scaled, "whenDeleted": when_deleted});
    move |set| set["spec"]["persistentVolumeClaimRetentionPolicy"] = policy
}

#[expect(clippy::unnecessary_wraps, reason = "as it is asked for")]
fn network_of(namespace: &str, name: &str) -> Result<Option<String>, String> {
    Ok(match (namespace, name) {
        ("ns", "blue") => Some("blue-net".to_owned()),
        ("other", "green") => Some("green-net".to_owned()),
        _ => None,
    })
}

fn steps(set: &StatefulFacts, claims: &[Existing]) -> Vec<Step> {
    let labelled: Vec<&Existing> =
        claims.iter().filter(|it| it.stateful_set.as_deref() == Some("web")).collect();
    stateful_set(set, &labelled, &|name| claims.iter().find(|it| it.name == name), &network_of)
}

fn made(steps: &[Step]) -> Vec<IPAMClaim> {
    let created = steps
        .iter()
        .filter_map(|step| if let Step::Create(claim) = step { Some((**claim).clone()) } else { None });
    created.collect()
}

/// Everything that a set wants, as it is there after it was made.
fn existing(set: &StatefulFacts) -> Vec<Existing> {
    let stored = |(number, mut claim): (usize, IPAMClaim)| {
        claim.metadata.uid = Some(format!("claim-{number}"));
        Existing::of(&claim, &ClaimFacts::of(&claim))
    };
    made(&steps(set, &[])).into_iter().enumerate().map(stored).collect()
}

fn shown(steps: &[Step]) -> Vec<String> {
    steps
        .iter()
        .map(|step| match step {
            Step::Create(claim) => format!("create {}", claim.metadata.name.as_deref().unwrap()),
            Step::Delete { claim, .. } => format!("delete {claim}"),
            Step::Own { claim, owners, .. } => format!("own {claim} {}", owners.len()),
            Step::Wait { claim, .. } => format!("wait {claim}"),
            Step::Problem { words } => words.clone(),
            Step::RemoveFinalizer { claim, .. } => format!("remove the finalizer of {claim}"),
        })
        .collect()
}

#[test]
fn each_pod_gets_a_claim_for_each_interface_on_a_network_that_opts_in() {
    let web = set(|_| {});
    let claims = made(&steps(&web, &[]));
    let names: Vec<_> = claims.iter().map(|claim| claim.metadata.name.as_deref().unwrap()).collect();
    assert_eq!(
        names,
        ["web-0.blue-net.net1", "web-0.green-net.green0", "web-1.blue-net.net1", "web-1.green-net.green0"]
    );
    assert_eq!(
        serde_json::to_value(&claims[3]).unwrap(),
        json!({
            "apiVersion": "k8s.cni.cncf.io/v1alpha1", "kind": "IPAMClaim",
            "metadata": {"namespace": "ns", "name": "web-1.green-net.green0", "labels": {"tenure/statefulset": "web"}},
            "spec": {"network": "green-net", "interface": "green0"},
        }),
        "without owner and finalizer: volume claims stay, too"
    );
    assert_eq!(steps(&web, &existing(&web)), [], "and once");
}

#[test]
fn its_pods_find_these_claims() {
    let web = set(|_| {});
    let pod = PodFacts { name: "web-1".into(), ..web.template.clone() };
    let wanted = references(&pod, |namespace, name| network_of(namespace, name).unwrap());
    let names: Vec<_> = wanted.iter().map(|(.., wanted)| wanted.reference.clone()).collect();
    assert_eq!(
        names,
        ["web-1.blue-net.net1", "web-1.green-net.green0"].map(|name| Reference::Named(name.to_owned()))
    );
}

#[test]
fn a_set_that_does_not_opt_in_gets_none() {
    for value in [json!(""), json!("false"), json!("yes")] {
        let web =
            set(|set| set["spec"]["template"]["metadata"]["annotations"]["tenure/keep-addresses"] = value);
        assert_eq!(steps(&web, &[]), []);
    }
}

#[test]
fn numbers_start_where_the_set_says() {
    let web = set(|set| set["spec"]["ordinals"] = json!({"start": 5}));
    assert!(shown(&steps(&web, &[]))[0].contains("web-5."));
    let none = set(|set| set["spec"]["replicas"] = json!(0));
    assert_eq!(steps(&none, &[]), []);
}

#[test]
fn a_claim_that_the_template_names_itself_is_not_made() {
    let web = set(|set| {
        let list =
            r#"[{"name": "blue", "ipam-claim-reference": "mine"}, {"name": "green", "namespace": "other"}]"#;
        set["spec"]["template"]["metadata"]["annotations"]["k8s.v1.cni.cncf.io/networks"] = json!(list);
    });
    assert_eq!(shown(&steps(&web, &[])), ["create web-0.green-net.net2", "create web-1.green-net.net2"]);
}

#[test]
fn wished_addresses_become_the_claims_wish() {
    let web = set(|set| {
        set["spec"]["replicas"] = json!(1);
        let list = r#"[{"name": "blue", "ips": ["10.0.0.9/24", "fd00::9"]}]"#;
        set["spec"]["template"]["metadata"]["annotations"]["k8s.v1.cni.cncf.io/networks"] = json!(list);
    });
    assert_eq!(
        made(&steps(&web, &[]))[0].metadata.annotations.as_ref().unwrap()["tenure/ips"],
        "10.0.0.9,fd00::9"
    );
}

#[test]
fn scaling_down_frees_or_keeps_as_volume_claims() {
    let claims = existing(&set(policy("Delete", "Retain")));
    let one = |scaled: &str| {
        let policy = policy(scaled, "Retain");
        set(|set| {
            policy(set);
            set["spec"]["replicas"] = json!(1);
        })
    };
    assert_eq!(
        shown(&steps(&one("Delete"), &claims)),
        ["delete web-1.blue-net.net1", "delete web-1.green-net.green0"]
    );
    assert_eq!(steps(&one("Retain"), &claims), []);
    let used: Vec<_> = claims.iter().map(|claim| Existing { in_use: true, ..claim.clone() }).collect();
    assert_eq!(steps(&one("Delete"), &used), [], "a pod that goes down has it until it is gone");
    let going: Vec<_> = claims.iter().map(|claim| Existing { deleting: true, ..claim.clone() }).collect();
    assert_eq!(steps(&one("Delete"), &going), []);
}

#[test]
fn claims_of_pods_that_stay_are_kept_when_a_network_cannot_be_read_or_goes() {
    let web = set(policy("Delete", "Retain"));
    let claims = existing(&web);
    let labelled: Vec<&Existing> = claims.iter().collect();
    let named = |name: &str| claims.iter().find(|it| it.name == name);
    let steps = stateful_set(&web, &labelled, &named, &|_, _| Err("it cannot be read".into()));
    assert!(steps.iter().all(|step| matches!(step, Step::Problem { .. })) && !steps.is_empty(), "{steps:?}");
    assert_eq!(stateful_set(&web, &labelled, &named, &|_, _| Ok(None)), []);
}

#[test]
fn the_set_owns_its_claims_exactly_if_volume_claims_would_go_with_it() {
    let (keeps, goes) = (set(policy("Retain", "Retain")), set(policy("Retain", "Delete")));
    let owner = made(&steps(&goes, &[]))[0].metadata.owner_references.clone().unwrap();
    assert_eq!(
        (owner[0].kind.as_str(), owner[0].uid.as_str(), owner[0].api_version.as_str()),
        ("StatefulSet", "set-1", "apps/v1")
    );
    assert!(
        steps(&goes, &existing(&keeps))
            .iter()
            .all(|step| matches!(step, Step::Own { owners, .. } if owners.len() == 1))
    );
    assert!(
        steps(&keeps, &existing(&goes))
            .iter()
            .all(|step| matches!(step, Step::Own { owners, .. } if owners.is_empty()))
    );
    assert_eq!(steps(&goes, &existing(&keeps)).len(), 4, "also when the policy changes later");
    assert_eq!(steps(&goes, &existing(&goes)), []);
}

#[test]
fn a_set_that_is_made_again_uses_what_was_retained_and_waits_for_what_goes() {
    let again = |policy: &'static str| {
        let change = self::policy("Retain", policy);
        set(|set| {
            change(set);
            set["metadata"]["uid"] = json!("set-2");
        })
    };
    let retained = existing(&set(policy("Retain", "Retain")));
    assert_eq!(steps(&again("Retain"), &retained), []);
    let going = existing(&set(policy("Retain", "Delete")));
    let waits = steps(&again("Delete"), &going);
    assert!(
        matches!(&waits[0], Step::Wait { words, .. } if words.contains("UID set-1") && words.contains("UID set-2")),
        "{waits:?}"
    );
    assert!(waits.iter().all(|step| matches!(step, Step::Wait { .. })), "{waits:?}");
}

#[test]
fn a_claim_that_people_made_for_a_pod_is_used_and_stays_theirs() {
    let web = set(policy("Delete", "Delete"));
    let mut claims = existing(&web);
    claims[0] = Existing { stateful_set: None, owners: Vec::new(), ..claims[0].clone() };
    assert_eq!(steps(&web, &claims), []);
}

#[test]
fn a_set_that_is_being_deleted_makes_nothing() {
    let web = set(|set| set["metadata"]["deletionTimestamp"] = json!("2026-11-16T05:31:00Z"));
    assert_eq!(steps(&web, &[]), []);
}

#[test]
fn annotations_that_cannot_be_read_are_said() {
    let web = set(|set| {
        set["spec"]["template"]["metadata"]["annotations"]["k8s.v1.cni.cncf.io/networks"] = json!("[{");
    });
    let said = shown(&steps(&web, &[]));
    assert!(said[0].starts_with("StatefulSet ns/web: annotation k8s.v1.cni.cncf.io/networks: "), "{said:?}");
}

#[test]
fn another_set_whose_name_begins_alike_is_another() {
    let web = set(policy("Delete", "Retain"));
    for (name, ordinal) in [
        ("web-7.blue.net1", Some(7)),
        ("web-a-7.blue.net1", None),
        ("web-07.blue.net1", None),
        ("web-7", None),
    ] {
        assert_eq!(web.ordinal_of(name), ordinal, "{name}");
    }
}
