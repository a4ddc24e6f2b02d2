//! `tenure claims`: the addresses of each claim, and the pods that have it now.

use anyhow::Result;
use clap::Args;
use jiff::Timestamp;
use serde::Serialize;
use tenure_api::claims::IPAMClaim;
use tenure_claims::{ClaimFacts, Slot};

use crate::conditions::Condition;
use crate::query::QueryOptions;
use crate::snapshot::{self, every_if_known};
use crate::table::{self, Format, Output};

/// The options of the verb.
#[derive(Args, Debug)]
pub(crate) struct ClaimsOptions {
    #[command(flatten)]
    query: QueryOptions,
    /// Only claims of this namespace
    #[arg(short, long)]
    namespace: Option<String>,
    /// Only claims for this network, by the name in its configuration
    #[arg(long)]
    network: Option<String>,
}

/// A claim, as `tenure claims -o json` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Row {
    pub(crate) namespace: String,
    pub(crate) name: String,
    network: String,
    /// Empty if the claim names none.
    interface: String,
    /// With their prefix lengths, as its status says.
    pub(crate) addresses: Vec<String>,
    /// Whether they are on record for this very claim. Otherwise they are only a request.
    on_record: bool,
    /// The pod that packets arrive at.
    active: Option<User>,
    /// The pod that they will arrive at next, or did until a moment ago.
    incoming: Option<User>,
    created: String,
    deleting: bool,
    conditions: Vec<Condition>,
}

/// A pod that has a claim, in the claim's namespace.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct User {
    pod: String,
    node: String,
}

/// Runs the verb.
pub(crate) async fn run(options: ClaimsOptions) -> Result<Output> {
    let source = options.query.source().await?;
    let mut claims: Vec<IPAMClaim> = every_if_known(source.client()?, "IPAMClaims").await?;
    claims.retain(|claim| {
        let is =
            |wanted: &Option<String>, value: Option<&str>| wanted.is_none() || wanted.as_deref() == value;
        is(&options.namespace, claim.metadata.namespace.as_deref())
            && is(&options.network, Some(&claim.spec.network))
    });
    say(&claims, snapshot::now(), options.query.output)
}

fn say(claims: &[IPAMClaim], now: Timestamp, format: Format) -> Result<Output> {
    let mut rows: Vec<(Row, Timestamp)> = claims.iter().map(row).collect();
    rows.sort_by(|(one, _), (other, _)| (&one.namespace, &one.name).cmp(&(&other.namespace, &other.name)));
    let shown: Vec<&Row> = rows.iter().map(|(row, _)| row).collect();
    Output::either(format, &shown, || text(&rows, now))
}

/// A claim, and when it was created.
pub(crate) fn row(claim: &IPAMClaim) -> (Row, Timestamp) {
    let facts = ClaimFacts::of(claim);
    let conditions = claim.status.iter().flat_map(|status| &status.conditions);
    let user = |slot: Option<Slot>| slot.map(|slot| User { pod: slot.pod, node: slot.node });
    let created = facts.created.to_jiff();
    let row = Row {
        addresses: claim.status.iter().flat_map(|status| status.ips.clone()).collect(),
        on_record: facts.held,
        active: user(facts.slots.active),
        incoming: user(facts.slots.incoming),
        created: created.to_string(),
        deleting: facts.deleting,
        conditions: conditions.map(Condition::from).collect(),
        namespace: facts.namespace,
        name: facts.name,
        network: facts.network,
        interface: facts.interface,
    };
    (row, created)
}

fn text(rows: &[(Row, Timestamp)], now: Timestamp) -> String {
    if rows.is_empty() {
        return "There are no claims.\n".to_owned();
    }
    let header =
        ["NAMESPACE", "CLAIM", "NETWORK", "INTERFACE", "ADDRESSES", "ACTIVE", "INCOMING", "AGE", "STATE"];
    let user = |user: &Option<User>| {
        user.as_ref().map_or("-".to_owned(), |user| format!("{} on {}", user.pod, user.node))
    };
    table::columns(
        header,
        rows.iter().map(|(row, created)| {
            [
                row.namespace.clone(),
                row.name.clone(),
                row.network.clone(),
                if row.interface.is_empty() { "-".to_owned() } else { row.interface.clone() },
                table::list(row.addresses.iter().cloned()),
                user(&row.active),
                user(&row.incoming),
                table::ago(*created, now),
                state(row),
            ]
        }),
    )
}

/// What to show beside its addresses.
fn state(row: &Row) -> String {
    let deleting = row.deleting.then(|| "deleting".to_owned());
    let failed = row.conditions.iter().find(|it| it.type_ == "IPsAllocated" && it.status == "False");
    let failed = failed.map(|it| format!("{}: {}", it.reason, it.message));
    let waits = || match row.addresses.as_slice() {
        _ if row.on_record => None,
        [] => Some("waits for addresses".to_owned()),
        _ => Some("addresses are not on record".to_owned()),
    };
    let said: Vec<String> = deleting.into_iter().chain(failed.or_else(waits)).collect();
    if said.is_empty() { "ok".to_owned() } else { said.join(", ") }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tenure_claims::held_message;

    use super::*;
    use crate::snapshot::example::{NOW, moment};

    fn claim(name: &str, status: &Value, holders: Option<&Value>) -> IPAMClaim {
        let annotations = holders.map(|holders| json!({"tenure/holders": holders.to_string()}));
        let claim = json!({
            "apiVersion": "k8s.cni.cncf.io/v1alpha1", "kind": "IPAMClaim",
            "metadata": {
                "name": name, "namespace": "shop", "uid": name, "creationTimestamp": "2026-11-15T09:00:00Z", "annotations": annotations,
            },
            "spec": {"network": "blue", "interface": if name == "vm.data" { "" } else { "net1" }},
            "status": status,
        });
        serde_json::from_value(claim).unwrap()
    }

    fn condition(type_: &str, status: &str, reason: &str, message: &str) -> Value {
        json!({"type": type_, "status": status, "reason": reason, "message": message, "lastTransitionTime": NOW})
    }

    fn all() -> Vec<IPAMClaim> {
        let slot = |pod: &str, node: &str| json!({"pod": pod, "uid": pod, "node": node});
        let moves = json!({"active": slot("vm-a", "node1"), "incoming": slot("vm-b", "node2"), "number": 1});
        let held = |uid: &str| condition("Held", "True", "Recorded", &held_message(uid, &[]));
        let given =
            condition("IPsAllocated", "True", "SuccessfulAllocation", "IP addresses successfully allocated");
        let failed = condition("IPsAllocated", "False", "SubnetExhausted", "no address is free");
        vec![
            claim(
                "vm.data",
                &json!({"ips": ["10.0.0.5/24", "fd00::5/64"], "conditions": [given, held("vm.data")]}),
                Some(&moves),
            ),
            claim("full", &json!({"ips": [], "conditions": [failed]}), None),
            claim("imported", &json!({"ips": ["10.0.0.9/24"], "conditions": [held("other")]}), None),
            claim("new", &Value::Null, None),
        ]
    }

    #[test]
    fn claims_are_shown_with_their_addresses_their_pods_and_what_is_wrong() {
        let expected = "\
NAMESPACE   CLAIM      NETWORK   INTERFACE   ADDRESSES                 ACTIVE          INCOMING        AGE   STATE
shop        full       blue      net1        -                         -               -               3h    SubnetExhausted: no address is free
shop        imported   blue      net1        10.0.0.9/24               -               -               3h    addresses are not on record
shop        new        blue      net1        -                         -               -               3h    waits for addresses
shop        vm.data    blue      -           10.0.0.5/24, fd00::5/64   vm-a on node1   vm-b on node2   3h    ok
";
        let said = say(&all(), moment(NOW), Format::Table).unwrap();
        assert_eq!((said.text.as_str(), said.notes.as_str(), said.code), (expected, "", 0));
        assert_eq!(say(&[], moment(NOW), Format::Table).unwrap().text, "There are no claims.\n");
    }

    #[test]
    fn the_json_has_the_documented_shape() {
        let said = say(&all()[..1], moment(NOW), Format::Json).unwrap();
        let shown: Value = serde_json::from_str(&said.text).unwrap();
        let condition = |type_: &str, reason: &str, message: &str| json!({"type": type_, "status": "True", "reason": reason, "message": message});
        let expected = json!([{
            "namespace": "shop", "name": "vm.data", "network": "blue", "interface": "", "addresses": ["10.0.0.5/24", "fd00::5/64"],
            "onRecord": true, "active": {"pod": "vm-a", "node": "node1"}, "incoming": {"pod": "vm-b", "node": "node2"},
            "created": "2026-11-15T09:00:00Z", "deleting": false,
            "conditions": [
                condition("IPsAllocated", "SuccessfulAllocation", "IP addresses successfully allocated"),
                condition("Held", "Recorded", &held_message("vm.data", &[])),
            ],
        }]);
        assert_eq!(shown, expected);
    }
}
