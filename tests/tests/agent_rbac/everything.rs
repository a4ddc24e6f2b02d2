//! All that there is, tried with a node's token.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use http::Request;
use k8s_openapi::api::authorization::v1::{SelfSubjectRulesReview, SelfSubjectRulesReviewSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIGroupList, APIResourceList};
use kube::api::PostParams;
use kube::{Api, Client};
use serde_json::Value;

use crate::bed::{Bed, DEPLOY};

type Rights = BTreeSet<(String, String, String)>;

/// All that an agent may do: a resource, its group, and verbs. Those that write are the policy's business.
const RIGHTS: &[(&str, &str, &str)] = &[
    ("addresspools", "coil.cybozu.com", "get list watch"),
    ("addressblocks", "coil.cybozu.com", "get list watch patch delete"),
    ("blockrequests", "coil.cybozu.com", "get list create delete"),
    ("ippools", "ipam.gcp-cni.cast.ai", "get list watch"),
    ("nodealiases", "ipam.gcp-cni.cast.ai", "get list watch create patch"),
    ("egresses", "coil.cybozu.com", "get list watch"),
    ("egressclients", "coil.cybozu.com", "get list watch create patch delete"),
    ("services", "", "get list watch"),
    ("namespaces", "", "get list watch"),
    ("nodes", "", "get list watch"),
    ("pods", "", "get list watch"),
    ("events", "", "create get patch"),
    ("ipamclaims", "k8s.cni.cncf.io", "list watch"),
    ("network-attachment-definitions", "k8s.cni.cncf.io", "list watch"),
    ("virtualmachineinstances", "kubevirt.io", "get"),
    ("nodenetworkconfigurationpolicies", "nmstate.io", "get"),
    ("nodenetworkconfigurationenactments", "nmstate.io", "get list watch"),
    ("nodenetworkconfigurationenactments/status", "nmstate.io", "patch"),
    ("tokenreviews", "authentication.k8s.io", "create"),
    ("subjectaccessreviews", "authorization.k8s.io", "create"),
    ("agents", "tenure", "act"),
];
/// The same in the namespace of Whereabouts' kinds.
const RIGHTS_THERE: &[(&str, &str, &str)] = &[
    ("nodeslicepools", "whereabouts.cni.cncf.io", "get"),
    ("ippools", "whereabouts.cni.cncf.io", "get list watch create update patch delete"),
    ("overlappingrangeipreservations", "whereabouts.cni.cncf.io", "get list create delete"),
];
/// Reviews change nothing.
const REVIEWS: [&str; 2] = ["tokenreviews", "subjectaccessreviews"];

fn rights(listed: &[&[(&str, &str, &str)]]) -> Rights {
    let all = listed.iter().copied().flatten().flat_map(|(resource, group, verbs)| {
        verbs.split(' ').map(|verb| ((*resource).to_owned(), (*group).to_owned(), verb.to_owned()))
    });
    all.collect()
}

/// What the API server says that a client may do in a namespace.
async fn said(client: Client, namespace: &str) -> Result<Rights> {
    let asked = SelfSubjectRulesReview {
        spec: SelfSubjectRulesReviewSpec { namespace: Some(namespace.to_owned()) },
        ..SelfSubjectRulesReview::default()
    };
    let said = Api::all(client).create(&PostParams::default(), &asked).await?;
    let mut rights = Rights::new();
    for rule in said.status.context("an answer")?.resource_rules {
        for resource in rule.resources.iter().flatten() {
            for group in rule.api_groups.iter().flatten() {
                rights.extend(rule.verbs.iter().map(|verb| (resource.clone(), group.clone(), verb.clone())));
            }
        }
    }
    // What everybody may who has an account.
    rights.retain(|(resource, _, _)| !resource.starts_with("selfsubject"));
    Ok(rights)
}

/// Resources and what the policy minds of them.
fn minded() -> Result<Rights> {
    let text = std::fs::read_to_string(format!("{DEPLOY}/agent/admission.yaml"))?;
    let policy = text.split("\n---\n").next().context("a policy")?;
    let policy: Value = serde_saphyr::from_str(policy)?;
    let list = |value: &Value| -> Vec<String> {
        value.as_array().into_iter().flatten().filter_map(|it| it.as_str().map(str::to_owned)).collect()
    };
    let mut minded = Rights::new();
    for rule in policy["spec"]["matchConstraints"]["resourceRules"].as_array().context("rules")? {
        for group in list(&rule["apiGroups"]) {
            for resource in list(&rule["resources"]) {
                for operation in list(&rule["operations"]) {
                    minded.insert((resource.clone(), group.clone(), operation));
                }
            }
        }
    }
    Ok(minded)
}

#[tokio::test]
async fn a_nodes_token_may_do_what_is_listed_and_nothing_else_of_all_that_there_is() -> Result<()> {
    let bed = Box::pin(Bed::start()).await?;
    let agent = bed.agent_of("node-1").await?;
    let (everywhere, there) = (rights(&[RIGHTS]), rights(&[RIGHTS, RIGHTS_THERE]));
    for (namespace, expected) in [("default", &everywhere), ("kube-system", &there)] {
        let said = said(agent.clone(), namespace).await?;
        let (more, less) = (said.difference(expected), expected.difference(&said));
        let (more, less): (Vec<_>, Vec<_>) = (more.collect(), less.collect());
        ensure!(more.is_empty() && less.is_empty(), "in {namespace} more: {more:?}; less: {less:?}");
    }
    // The policy minds whatever of it changes something.
    let minded = minded()?;
    for (resource, group, verb) in &there {
        let operation = match verb.as_str() {
            "create" => "CREATE",
            "update" | "patch" => "UPDATE",
            "delete" | "deletecollection" => "DELETE",
            _ => continue,
        };
        let is_minded = minded.contains(&(resource.clone(), group.clone(), operation.to_owned()));
        ensure!(
            is_minded || REVIEWS.contains(&resource.as_str()),
            "nobody minds {verb} of {resource}.{group}"
        );
    }
    let (tried, mistakes) = try_everything(&bed.admin, &agent, &there).await?;
    ensure!(mistakes.is_empty(), "{mistakes:#?}");
    ensure!(tried > 400, "only {tried} were tried");
    Ok(())
}

/// Tries every verb on every resource that there is, also on subresources, without meaning it; says how many were tried, and
/// which of them were neither refused nor expected.
async fn try_everything(admin: &Client, agent: &Client, allowed: &Rights) -> Result<(usize, Vec<String>)> {
    let groups: APIGroupList = admin.request(Request::get("/apis").body(Vec::new())?).await?;
    let mut paths = vec![(String::new(), "/api/v1".to_owned())];
    for group in groups.groups {
        let version = group.preferred_version.context("a version")?.group_version;
        paths.push((group.name, format!("/apis/{version}")));
    }
    let (mut tried, mut mistakes) = (0, Vec::new());
    for (group, path) in paths {
        let listed: APIResourceList = admin.request(Request::get(&path).body(Vec::new())?).await?;
        for resource in listed.resources {
            let (kind, below) = resource.name.split_once('/').unwrap_or((&resource.name, ""));
            if kind.starts_with("selfsubject") {
                continue;
            }
            let place = if resource.namespaced {
                format!("{path}/namespaces/kube-system/{kind}")
            } else {
                format!("{path}/{kind}")
            };
            let one =
                if below.is_empty() { format!("{place}/none") } else { format!("{place}/none/{below}") };
            let many = if below.is_empty() { place } else { one.clone() };
            for (verb, method, uri) in [
                ("list", "GET", &many),
                ("create", "POST", &many),
                ("deletecollection", "DELETE", &many),
                ("get", "GET", &one),
                ("update", "PUT", &one),
                ("patch", "PATCH", &one),
                ("delete", "DELETE", &one),
            ] {
                if !resource.verbs.iter().any(|it| it == verb) {
                    continue;
                }
                let right = (resource.name.clone(), group.clone(), verb.to_owned());
                if allowed.contains(&right) {
                    continue;
                }
                let request = Request::builder().method(method).uri(format!("{uri}?dryRun=All"));
                let kind =
                    if method == "PATCH" { "application/merge-patch+json" } else { "application/json" };
                let request = request.header("content-type", kind).body(b"{}".to_vec())?;
                tried += 1;
                match agent.request_text(request).await {
                    Err(kube::Error::Api(status)) if status.code == 403 => {}
                    other => mistakes.push(format!("{method} {uri}: {other:?}")),
                }
            }
        }
    }
    Ok((tried, mistakes))
}
