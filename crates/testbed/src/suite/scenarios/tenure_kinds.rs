//! Tenure's own kinds, from the published manifests: what is accepted, and what is refused with which message.

mod ranges;

use std::path::PathBuf;

use serde_json::{Value, json};

use super::super::objects::DEFINITIONS;
use super::super::recorder::Call;
use super::super::{Outcome, Recorder, SuiteError};
use super::scenarios;
use ranges::{
    claims_are_accepted_and_refused, ledgers_are_accepted_and_refused, reservations_are_accepted_and_refused,
    slice_pools_are_accepted_and_refused, the_status_of_a_claim_is_its_own,
};

scenarios![tenure_kinds:
    every_definition_is_accepted_and_established,
    pools_are_accepted,
    pools_that_make_no_sense_are_refused,
    a_pool_only_grows,
    the_status_of_a_pool_is_its_own,
    pools_are_shown_in_columns,
    blocks_are_accepted_and_refused,
    a_block_does_not_change,
    requests_are_accepted_and_refused,
    requests_are_selected_by_node,
    ledgers_are_accepted_and_refused,
    slice_pools_are_accepted_and_refused,
    reservations_are_accepted_and_refused,
    claims_are_accepted_and_refused,
    the_status_of_a_claim_is_its_own,
];

/// The definitions in `deploy/crds`, in the order of their file names.
fn definitions() -> Result<Vec<Value>, SuiteError> {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crds");
    let fails = |path: &PathBuf, source: Box<dyn std::error::Error + Send + Sync>| SuiteError::File {
        act: "reading the definitions in",
        path: path.clone(),
        source,
    };
    let entries = std::fs::read_dir(&directory).map_err(|error| fails(&directory, error.into()))?;
    let mut files: Vec<PathBuf> = entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
    files.retain(|file| file.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    if files.is_empty() {
        return Err(fails(&directory, "there are none: run `cargo xtask crds`".into()));
    }
    files
        .iter()
        .map(|file| {
            let text = std::fs::read_to_string(file).map_err(|error| fails(file, error.into()))?;
            serde_saphyr::from_str(&text).map_err(|error| fails(file, error.into()))
        })
        .collect()
}

/// Installs Tenure's definitions; not recorded.
pub(crate) async fn install(r: &mut Recorder) -> Outcome {
    let definitions = definitions()?;
    for definition in &definitions {
        r.define(definition).await?;
    }
    for definition in &definitions {
        r.served(definition).await?;
    }
    Ok(())
}

const POOLS: &str = "/apis/coil.cybozu.com/v2/addresspools";
const BLOCKS: &str = "/apis/coil.cybozu.com/v2/addressblocks";
const REQUESTS: &str = "/apis/coil.cybozu.com/v2/blockrequests";

fn pool(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "coil.cybozu.com/v2", "kind": "AddressPool", "metadata": {"name": name}, "spec": spec})
}

fn block(name: &str, fields: &Value) -> Value {
    let mut block =
        json!({"apiVersion": "coil.cybozu.com/v2", "kind": "AddressBlock", "metadata": {"name": name}});
    for (key, value) in fields.as_object().into_iter().flatten() {
        block[key] = value.clone();
    }
    block
}

fn request(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": "coil.cybozu.com/v2", "kind": "BlockRequest", "metadata": {"name": name}, "spec": spec})
}

/// Creates `object` as a dry run: records the whole answer of a refusal, and the result of a success.
async fn attempt(r: &mut Recorder, path: &str, object: &Value) -> Outcome {
    let answer = r.peek(Call::new("POST", &format!("{path}?dryRun=All")).json(object)).await?;
    let mut seen = answer.body.clone();
    if answer.status() == 201
        && let Some(fields) = seen.as_object_mut()
    {
        fields.retain(|key, _| !matches!(key.as_str(), "apiVersion" | "kind" | "metadata"));
    }
    let mut what = object.clone();
    if let Some(fields) = what.as_object_mut() {
        fields.retain(|key, _| !matches!(key.as_str(), "apiVersion" | "kind" | "metadata"));
    }
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    r.note(
        &format!("{name} {what}"),
        json!({"status": answer.status(), "warnings": answer.warnings, "answer": seen}),
    );
    Ok(())
}

async fn every_definition_is_accepted_and_established(r: &mut Recorder) -> Outcome {
    for definition in definitions()? {
        let name = definition["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let answer = r
            .peek(
                Call::new("POST", &format!("{DEFINITIONS}?dryRun=All&fieldValidation=Strict"))
                    .json(&definition),
            )
            .await?;
        let seen = if matches!(answer.status(), 201 | 409) { json!("accepted") } else { answer.body.clone() };
        r.note(&name, seen);
        r.install(&definition).await?;
    }
    for group in ["coil.cybozu.com/v2", "whereabouts.cni.cncf.io/v1alpha1", "k8s.cni.cncf.io/v1alpha1"] {
        let answer = r.peek(Call::new("GET", &format!("/apis/{group}"))).await?;
        let mut resources: Vec<Value> = answer.body["resources"].as_array().cloned().unwrap_or_default();
        for resource in resources.iter_mut().filter_map(Value::as_object_mut) {
            resource.remove("storageVersionHash");
        }
        resources.sort_by_key(|resource| resource["name"].as_str().unwrap_or_default().to_owned());
        r.note(group, json!(resources));
    }
    Ok(())
}

async fn pools_are_accepted(r: &mut Recorder) -> Outcome {
    install(r).await?;
    for spec in [
        json!({"subnets": [{"ipv4": "10.2.0.0/16"}]}),
        json!({"blockSizeBits": 0, "subnets": [{"ipv4": "10.2.0.1/32"}]}),
        json!({"blockSizeBits": 7, "subnets": [{"ipv6": "fd01:203:405:607::/112"}]}),
        json!({"subnets": [{"ipv4": "10.2.0.0/16", "ipv6": "fd01:203:405:607::/112"}, {"ipv4": "10.3.0.0/24", "ipv6": "fd01::/120"}]}),
        json!({"blockSizeBits": 64, "subnets": [{"ipv6": "fd00::/8"}]}),
        json!({"subnets": [{"ipv4": "10.2.0.7/16"}]}),
        json!({"subnets": [{"ipv4": "10.2.0.0/16"}], "exclude": ["10.2.0.1", "10.2.0.0/29", "10.2.0.10-10.2.0.19", "fd00::1"], "cooling": "1m30s"}),
        json!({"subnets": [{"ipv4": "10.2.0.0/16"}], "cooling": "0s"}),
        json!({"subnets": [{"ipv4": "10.2.0.0/16"}], "cooling": "24h"}),
        json!({"subnets": [{"ipv4": "10.2.0.0/16", "unknown": 1}], "unknown": 2}),
    ] {
        attempt(r, POOLS, &pool("p", &spec)).await?;
    }
    Ok(())
}

async fn pools_that_make_no_sense_are_refused(r: &mut Recorder) -> Outcome {
    install(r).await?;
    let many: Vec<Value> = (0..129).map(|n| json!({"ipv4": format!("10.{n}.0.0/16")})).collect();
    for spec in [
        json!({}),
        json!({"subnets": []}),
        json!({"subnets": [{}]}),
        json!({"subnets": many}),
        json!({"subnets": [{"ipv4": "10.2.0.0"}]}),
        json!({"subnets": [{"ipv4": "10.2.0.0/33"}]}),
        json!({"subnets": [{"ipv4": "fd00::/64"}]}),
        json!({"subnets": [{"ipv6": "10.2.0.0/16"}]}),
        json!({"subnets": [{"ipv6": "::ffff:10.0.0.0/104"}]}),
        json!({"subnets": [{"ipv4": "nonsense"}]}),
        json!({"subnets": [{"ipv4": ""}]}),
        json!({"subnets": [{"ipv4": null}]}),
        json!({"subnets": [{"ipv4": "10.2.0.0/28"}]}),
        json!({"blockSizeBits": 8, "subnets": [{"ipv4": "10.2.0.0/16"}, {"ipv4": "10.3.0.0/25"}]}),
        json!({"blockSizeBits": 40, "subnets": [{"ipv4": "10.2.0.0/16"}]}),
        json!({"blockSizeBits": -1, "subnets": [{"ipv4": "10.2.0.0/16"}]}),
        json!({"blockSizeBits": 65, "subnets": [{"ipv6": "fd00::/8"}]}),
        json!({"blockSizeBits": "5", "subnets": [{"ipv4": "10.2.0.0/16"}]}),
        json!({"subnets": [{"ipv4": "10.2.0.0/16", "ipv6": "fd00::/64"}]}),
        json!({"subnets": [{"ipv4": "10.2.0.0/16"}, {"ipv4": "10.2.128.0/24"}]}),
        json!({"subnets": [{"ipv4": "10.2.128.0/24"}, {"ipv4": "10.2.0.0/16"}]}),
        json!({"subnets": [{"ipv4": "10.2.0.0/16"}, {"ipv4": "10.2.0.0/16"}]}),
        json!({"subnets": [{"ipv6": "fd00::/64"}, {"ipv6": "fd00::/112"}]}),
        json!({"subnets": [{"ipv4": "10.2.0.0/16"}], "exclude": ["10.2.0"]}),
        json!({"subnets": [{"ipv4": "10.2.0.0/16"}], "exclude": ["10.2.0.1-fd00::1"]}),
        json!({"subnets": [{"ipv4": "10.2.0.0/16"}], "exclude": ["10.2.0.1", "10.2.0.1-10.2.0.2-10.2.0.3"]}),
        json!({"subnets": [{"ipv4": "10.2.0.0/16"}], "cooling": "25h"}),
        json!({"subnets": [{"ipv4": "10.2.0.0/16"}], "cooling": "30"}),
        json!({"subnets": [{"ipv4": "10.2.0.0/16"}], "cooling": "-5s"}),
        json!({"blockSizeBits": 99, "subnets": [{"ipv4": "x"}, {"ipv6": "y"}], "cooling": "z", "exclude": ["w"]}),
        json!({"subnets": "10.2.0.0/16"}),
        json!({"subnets": ["10.2.0.0/16"]}),
    ] {
        attempt(r, POOLS, &pool("p", &spec)).await?;
    }
    attempt(r, POOLS, &pool(&"x".repeat(64), &json!({"subnets": [{"ipv4": "10.2.0.0/16"}]}))).await?;
    attempt(r, POOLS, &pool("Upper", &json!({"subnets": [{"ipv4": "10.2.0.0/16"}]}))).await?;
    Ok(())
}

async fn a_pool_only_grows(r: &mut Recorder) -> Outcome {
    install(r).await?;
    let name = r.own_name();
    let one = format!("{POOLS}/{name}");
    let (first, second, third) =
        (json!({"ipv4": "10.2.0.0/16"}), json!({"ipv4": "10.3.0.0/16"}), json!({"ipv4": "10.4.0.0/16"}));
    r.post(POOLS, &pool(&name, &json!({"subnets": [first, second]}))).await?;
    for spec in [
        json!({"subnets": [first, second, third]}),
        json!({"subnets": [first, second]}),
        json!({"subnets": [second, first, third]}),
        json!({"subnets": [first, {"ipv4": "10.3.0.0/17"}, third]}),
        json!({"subnets": [first, second, third, {"ipv4": "10.2.3.0/24"}]}),
        json!({"subnets": [first, second, third, {"ipv4": "10.5.0.0/30"}]}),
        json!({"subnets": []}),
        json!({"blockSizeBits": 6}),
        json!({"blockSizeBits": null}),
        json!({"exclude": ["10.2.0.1"], "cooling": "10s"}),
        json!({"exclude": null, "cooling": null}),
    ] {
        r.merge(&one, &json!({"spec": spec})).await?;
    }
    Ok(())
}

async fn the_status_of_a_pool_is_its_own(r: &mut Recorder) -> Outcome {
    install(r).await?;
    let name = r.own_name();
    let one = format!("{POOLS}/{name}");
    let mut object = pool(&name, &json!({"subnets": [{"ipv4": "10.2.0.0/16"}]}));
    object["status"] = json!({"observedGeneration": 9});
    r.post(POOLS, &object).await?;
    let condition = json!({"type": "Ready", "status": "True", "reason": "BlocksFree", "message": "m", "lastTransitionTime": "2021-01-01T00:00:00Z"});
    let usage = json!({"capacity": "2048", "allocated": "0", "free": "2048"});
    r.merge(
        &format!("{one}/status"),
        &json!({"status": {"observedGeneration": 1, "blocks": usage, "conditions": [condition]}}),
    )
    .await?;
    r.merge(&format!("{one}/status"), &json!({"status": {"conditions": [condition, condition]}})).await?;
    r.merge(&format!("{one}/status"), &json!({"status": {"conditions": [{"type": "Ready"}]}})).await?;
    r.merge(&format!("{one}/status"), &json!({"status": {"blocks": {"capacity": 5}}})).await?;
    r.merge(&one, &json!({"status": {"observedGeneration": 4}})).await?;
    Ok(())
}

async fn pools_are_shown_in_columns(r: &mut Recorder) -> Outcome {
    install(r).await?;
    let name = r.own_name();
    let one = format!("{POOLS}/{name}");
    r.prepare(POOLS, &pool(&name, &json!({"subnets": [{"ipv4": "10.2.0.0/16"}]}))).await?;
    let table =
        |path: &str| Call::new("GET", path).header("accept", "application/json;as=Table;v=v1;g=meta.k8s.io");
    r.send(table(&one)).await?;
    let condition = json!({"type": "Ready", "status": "True", "reason": "BlocksFree", "message": "m", "lastTransitionTime": "2021-01-01T00:00:00Z"});
    let usage = json!({"capacity": "2048", "allocated": "1", "free": "2047"});
    r.merge(&format!("{one}/status"), &json!({"status": {"blocks": usage, "conditions": [condition]}}))
        .await?;
    r.send(table(&one)).await?;
    let mut object = block(&format!("{name}-0"), &json!({"index": 0, "ipv4": "10.2.0.0/27"}));
    object["metadata"]["labels"] = json!({"coil.cybozu.com/node": "n1", "coil.cybozu.com/pool": "p"});
    r.prepare(BLOCKS, &object).await?;
    r.send(table(&format!("{BLOCKS}/{name}-0"))).await?;
    Ok(())
}

async fn blocks_are_accepted_and_refused(r: &mut Recorder) -> Outcome {
    install(r).await?;
    for (name, fields) in [
        ("default-0", json!({"index": 0, "ipv4": "10.2.0.0/27"})),
        ("default-7", json!({"index": 7, "ipv4": "10.2.0.224/27", "ipv6": "fd01::e0/123"})),
        ("blue-green-1", json!({"index": 1, "ipv6": "fd01::e0/123"})),
        ("default-1", json!({"index": 2, "ipv4": "10.2.0.0/27"})),
        ("default", json!({"index": 0, "ipv4": "10.2.0.0/27"})),
        ("default-0", json!({"index": 0})),
        ("default-0", json!({"ipv4": "10.2.0.0/27"})),
        ("default-0", json!({"index": -1, "ipv4": "10.2.0.0/27"})),
        ("default-0", json!({"index": "0", "ipv4": "10.2.0.0/27"})),
        ("default-0", json!({"index": 0, "ipv4": "10.2.0.0"})),
        ("default-0", json!({"index": 0, "ipv4": "fd00::/123"})),
        ("default-0", json!({"index": 0, "ipv6": "10.2.0.0/27"})),
        ("default-0", json!({"index": 0, "ipv4": "10.2.0.0/27", "ipv6": "fd01::/122"})),
        ("default-0", json!({"index": 0, "ipv4": "10.2.0.0/27", "spec": {"a": 1}})),
        (
            "default-0",
            json!({"index": 0, "ipv4": "10.2.0.0/27", "claims": {"7": {"namespace": "ns", "name": "a", "uid": "u", "freed": "2021-01-01T00:00:00.000000Z"}}}),
        ),
        (
            "default-0",
            json!({"index": 0, "ipv4": "10.2.0.0/27", "claims": {"07": {"namespace": "ns", "name": "a", "uid": "u"}}}),
        ),
        (
            "default-0",
            json!({"index": 0, "ipv4": "10.2.0.0/27", "claims": {"7": {"namespace": "ns", "name": "a"}}}),
        ),
        (
            "default-0",
            json!({"index": 0, "ipv4": "10.2.0.0/27", "claims": {"7": {"namespace": "ns", "name": "a", "uid": "u", "freed": "soon"}}}),
        ),
    ] {
        attempt(r, BLOCKS, &block(name, &fields)).await?;
    }
    Ok(())
}

async fn a_block_does_not_change(r: &mut Recorder) -> Outcome {
    install(r).await?;
    let name = format!("{}-3", r.own_name());
    let one = format!("{BLOCKS}/{name}");
    r.post(BLOCKS, &block(&name, &json!({"index": 3, "ipv4": "10.2.0.0/27"}))).await?;
    r.post(BLOCKS, &block(&name, &json!({"index": 3, "ipv4": "10.9.0.0/27"}))).await?;
    for patch in [
        json!({"index": 4}),
        json!({"ipv4": "10.3.0.0/27"}),
        json!({"ipv4": null, "ipv6": "fd01::/123"}),
        json!({"ipv6": "fd01::/123"}),
        json!({"ipv4": null}),
        json!({"metadata": {"labels": {"coil.cybozu.com/reserved": "true"}, "finalizers": ["coil.cybozu.com"]}}),
    ] {
        r.merge(&one, &patch).await?;
    }
    Ok(())
}

async fn requests_are_accepted_and_refused(r: &mut Recorder) -> Outcome {
    install(r).await?;
    for spec in [
        json!({"nodeName": "n1", "poolName": "default"}),
        json!({"nodeName": "", "poolName": "default"}),
        json!({"nodeName": "n1"}),
        json!({"poolName": "default"}),
        json!({"nodeName": "x".repeat(64), "poolName": "default"}),
        json!({"nodeName": 5, "poolName": "default"}),
        json!({}),
    ] {
        attempt(r, REQUESTS, &request("req-default-n1", &spec)).await?;
    }
    let name = r.own_name();
    let one = format!("{REQUESTS}/{name}");
    r.post(REQUESTS, &request(&name, &json!({"nodeName": "n1", "poolName": "default"}))).await?;
    r.merge(&one, &json!({"spec": {"nodeName": "n2"}})).await?;
    let answered = json!({"addressBlockName": "default-0", "conditions": [{"type": "Complete", "status": "True", "lastTransitionTime": "2021-01-01T00:00:00Z"}]});
    r.merge(&format!("{one}/status"), &json!({"status": answered})).await?;
    r.merge(&format!("{one}/status"), &json!({"status": {"conditions": [{"type": "Failed"}]}})).await?;
    r.merge(&format!("{one}/status"), &json!({"status": {"conditions": [{"type": "Failed", "status": "True", "lastProbeTime": "yesterday"}]}})).await?;
    r.delete(&one).await?;
    Ok(())
}

async fn requests_are_selected_by_node(r: &mut Recorder) -> Outcome {
    install(r).await?;
    let name = r.own_name();
    for node in ["n1", "n2"] {
        let object = request(
            &format!("{name}-{node}"),
            &json!({"nodeName": format!("{name}-{node}").chars().take(63).collect::<String>(), "poolName": name}),
        );
        r.prepare(REQUESTS, &object).await?;
    }
    r.get(&format!("{REQUESTS}?fieldSelector=spec.nodeName%3D{name}-n1")).await?;
    let list = r.peek(Call::new("GET", &format!("{REQUESTS}?fieldSelector=spec.poolName%3D{name}"))).await?;
    r.note("of the pool", json!(list.body["items"].as_array().map(Vec::len)));
    r.get(&format!("{REQUESTS}?fieldSelector=status.addressBlockName%3Dx")).await?;
    Ok(())
}
