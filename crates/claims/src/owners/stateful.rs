//! The claims of a StatefulSet that opts in: each of its pods keeps its addresses, on whichever node it runs
//! next.
//!
//! They behave like its volume claims. They stay when a pod is deleted.
//! `persistentVolumeClaimRetentionPolicy` says what happens to them when the set shrinks (`whenScaled`) and
//! when it is deleted (`whenDeleted`); without it they stay, and a set of the same name uses them again.
//! There is no finalizer.

use std::collections::BTreeSet;

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use tenure_api::claims::{DEFAULT_INTERFACE, IPAMClaim, IPAMClaimSpec, annotation, label};
use tenure_ipam::Address;

use super::machine::LONGEST_LABEL;
use super::{Existing, NetworkOf, Owner, Step};
use crate::names;
use crate::pod::PodFacts;
use crate::reference::{CLUSTER_NETWORK, reference};

/// What happens to claims that are not needed now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Retention {
    /// They stay.
    #[default]
    Retain,
    /// They are deleted.
    Delete,
}

impl Retention {
    fn of(text: Option<&str>) -> Self {
        if text == Some("Delete") { Self::Delete } else { Self::Retain }
    }
}

/// The facts about a StatefulSet.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StatefulFacts {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Its UID.
    pub uid: String,
    /// Whether it is being deleted.
    pub deleting: bool,
    /// Whether it opts in.
    pub keeps_addresses: bool,
    /// The number of its first pod.
    pub start: i64,
    /// The desired number of pods.
    pub replicas: i64,
    /// What happens to claims when it shrinks.
    pub when_scaled: Retention,
    /// What happens to claims when it is deleted.
    pub when_deleted: Retention,
    /// The facts about its pods, without name and UID.
    pub template: PodFacts,
}

impl StatefulFacts {
    /// The facts about a StatefulSet.
    pub fn of(set: &StatefulSet) -> Self {
        let spec = set.spec.clone().unwrap_or_default();
        let policy = spec.persistent_volume_claim_retention_policy.unwrap_or_default();
        let template = spec.template.metadata.unwrap_or_default();
        let opted = template.annotations.as_ref().and_then(|all| all.get(annotation::KEEP_ADDRESSES));
        let name = set.metadata.name.clone().unwrap_or_default();
        let namespace = set.metadata.namespace.clone().unwrap_or_default();
        let template = PodFacts {
            namespace: namespace.clone(),
            stateful_set: Some(name.clone()),
            ..PodFacts::of(&template)
        };
        Self {
            namespace,
            name,
            uid: set.metadata.uid.clone().unwrap_or_default(),
            deleting: set.metadata.deletion_timestamp.is_some(),
            keeps_addresses: opted.is_some_and(|value| value == "true"),
            start: spec.ordinals.and_then(|ordinals| ordinals.start).unwrap_or(0).max(0).into(),
            replicas: spec.replicas.unwrap_or(1).max(0).into(),
            when_scaled: Retention::of(policy.when_scaled.as_deref()),
            when_deleted: Retention::of(policy.when_deleted.as_deref()),
            template,
        }
    }

    /// The numbers of its pods.
    fn ordinals(&self) -> std::ops::Range<i64> {
        let replicas = if self.keeps_addresses { self.replicas } else { 0 };
        self.start..self.start.saturating_add(replicas)
    }

    fn owners(&self) -> Vec<OwnerReference> {
        match self.when_deleted {
            Retention::Retain => Vec::new(),
            Retention::Delete => vec![OwnerReference {
                api_version: "apps/v1".to_owned(),
                kind: "StatefulSet".to_owned(),
                name: self.name.clone(),
                uid: self.uid.clone(),
                controller: Some(true),
                block_owner_deletion: Some(true),
            }],
        }
    }

    /// The number of the pod that a claim of the set is for.
    fn ordinal_of(&self, claim: &str) -> Option<i64> {
        let rest = claim.strip_prefix(&self.name)?.strip_prefix('-')?;
        let (digits, _) = rest.split_once('.')?;
        let ordinal = digits.parse().ok()?;
        (format!("{ordinal}") == digits).then_some(ordinal)
    }

    fn problem(&self, words: &str) -> Step {
        Step::Problem { words: format!("StatefulSet {}/{}: {words}", self.namespace, self.name) }
    }
}

/// The steps for the claims of a StatefulSet. `labelled` are those whose label names it, `named` finds one by
/// its name; both in its namespace. `network_of` answers for an attachment definition, or for
/// [`CLUSTER_NETWORK`].
pub fn stateful_set<'c>(
    set: &StatefulFacts,
    labelled: &[&Existing],
    named: &dyn Fn(&str) -> Option<&'c Existing>,
    network_of: NetworkOf<'_>,
) -> Vec<Step> {
    if set.deleting {
        // What it owns is deleted with it, the rest stays.
        return Vec::new();
    }
    let mut steps = Vec::new();
    let mut wanted = BTreeSet::new();
    if !set.ordinals().is_empty() {
        let interfaces = interfaces(set, network_of, &mut steps);
        for ordinal in set.ordinals() {
            for (network, interface, ips) in &interfaces {
                let name = names::pod_claim(&format!("{}-{ordinal}", set.name), network, interface);
                steps.extend(want(set, &name, network, interface, ips, named(&name)));
                wanted.insert(name);
            }
        }
    }
    for claim in labelled {
        let beyond = set.ordinal_of(&claim.name).is_some_and(|ordinal| !set.ordinals().contains(&ordinal));
        let of_another = !claim.owners.is_empty() && !claim.is_of(&set.uid);
        // A terminating pod uses its claim until it is gone.
        if beyond && !of_another && !claim.in_use && !claim.deleting && set.when_scaled == Retention::Delete {
            steps.push(claim.delete());
        } else if !wanted.contains(&claim.name) && !of_another {
            steps.extend(own(set, claim));
        }
    }
    steps
}

/// The interfaces of each pod that should keep their addresses, with their networks: those that refer to no
/// claim themselves.
fn interfaces(
    set: &StatefulFacts,
    network_of: NetworkOf<'_>,
    steps: &mut Vec<Step>,
) -> Vec<(String, String, Vec<Address>)> {
    if set.name.len() > LONGEST_LABEL {
        let words = format!(
            "its name has {} characters, and a claim's label {} takes {LONGEST_LABEL}",
            set.name.len(),
            label::STATEFUL_SET
        );
        steps.push(set.problem(&words));
        return Vec::new();
    }
    let pod = &set.template;
    for problem in
        [annotation::NETWORKS, annotation::DEFAULT_NETWORK, annotation::CLAIM].map(|it| pod.problems.get(it))
    {
        steps.extend(problem.map(|problem| set.problem(problem)));
    }
    let by_default =
        pod.default_network.as_ref().map(|it| (it.namespace.as_str(), it.selection.name.as_str()));
    let additional = pod.selections.iter().map(|it| {
        let namespace = it.namespace.as_deref().unwrap_or(&pod.namespace);
        ((namespace, it.name.as_str()), it.interface.as_str())
    });
    let all = std::iter::once((by_default.unwrap_or(CLUSTER_NETWORK), DEFAULT_INTERFACE)).chain(additional);
    let mut found = Vec::new();
    for ((namespace, definition), interface) in all {
        match network_of(namespace, definition) {
            Ok(None) => {}
            Ok(Some(network)) => match reference(pod, &network, interface) {
                // A claim that the template itself names belongs to whoever wrote both.
                Ok(Some(wanted)) if is_made(pod, &network, interface, &wanted.reference) => {
                    found.push((network, interface.to_owned(), wanted.ips));
                }
                Ok(_) => {}
                Err(refusal) => steps.push(set.problem(&refusal.to_string())),
            },
            Err(words) => steps.push(set.problem(&format!("interface \"{interface}\": {words}"))),
        }
    }
    found
}

fn is_made(pod: &PodFacts, network: &str, interface: &str, reference: &crate::Reference) -> bool {
    *reference == crate::Reference::Named(names::pod_claim(&pod.name, network, interface))
}

fn want(
    set: &StatefulFacts,
    name: &str,
    network: &str,
    interface: &str,
    ips: &[Address],
    existing: Option<&Existing>,
) -> Option<Step> {
    if let Some(existing) = existing {
        if !existing.owners.is_empty() && !existing.is_of(&set.uid) {
            return Some(existing.wait(&format!("StatefulSet \"{}\" (UID {})", set.name, set.uid)));
        }
        // A claim without our label was created by people for this pod: it stays theirs.
        return (existing.stateful_set.as_ref() == Some(&set.name)).then(|| own(set, existing)).flatten();
    }
    let spec = IPAMClaimSpec { network: network.to_owned(), interface: interface.to_owned() };
    let mut claim = IPAMClaim::new(name, spec);
    let meta = &mut claim.metadata;
    meta.namespace = Some(set.namespace.clone());
    meta.labels = Some([(label::STATEFUL_SET.to_owned(), set.name.clone())].into());
    meta.owner_references = Some(set.owners()).filter(|owners| !owners.is_empty());
    if !ips.is_empty() {
        let wish: Vec<_> = ips.iter().map(ToString::to_string).collect();
        meta.annotations = Some([(annotation::IPS.to_owned(), wish.join(","))].into());
    }
    Some(Step::Create(Box::new(claim)))
}

/// Updates the owner: the policy may have changed since the claim was created.
fn own(set: &StatefulFacts, claim: &Existing) -> Option<Step> {
    let owners = set.owners();
    let wanted: Vec<Owner> = owners.iter().map(Owner::from).collect();
    (claim.owners != wanted && !claim.deleting).then(|| Step::Own {
        claim: claim.name.clone(),
        uid: claim.uid.clone(),
        owners,
    })
}

#[cfg(test)]
mod tests;
