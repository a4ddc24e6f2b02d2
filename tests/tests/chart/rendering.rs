//! What the chart makes of values, without a cluster: compared with the plain manifests, object by object.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tenure_tests::chart::Helm;
use tenure_tests::installed::DEPLOY;

const NAMESPACE: &str = "--namespace=kube-system";
const GCP: [&str; 4] = [
    "--set=cloud.provider=gcp",
    "--set=cloud.serviceAccount=tenure-controller@PROJECT.iam.gserviceaccount.com",
    "--set=logFormat=json",
    NAMESPACE,
];

/// By kind, namespace and name. Definitions without the annotation by which only Helm keeps them.
fn by_name(objects: Vec<Value>) -> Result<BTreeMap<String, Value>> {
    let mut named = BTreeMap::new();
    for mut object in objects {
        let metadata = object["metadata"].as_object_mut().context("metadata")?;
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove("helm.sh/resource-policy");
            if annotations.is_empty() {
                metadata.remove("annotations");
            }
        }
        if let Some(volumes) = object.pointer_mut("/spec/template/spec/volumes").and_then(Value::as_array_mut)
        {
            // A patch moves a volume to the front.
            volumes.sort_by_key(|volume| volume["name"].to_string());
        }
        let object = in_one_line(object);
        let name =
            format!("{} {} {}", object["kind"], object["metadata"]["namespace"], object["metadata"]["name"]);
        ensure!(named.insert(name.clone(), object).is_none(), "{name} is there twice");
    }
    Ok(named)
}

/// Kustomize writes some folded texts with empty lines more. Space within them has no meaning.
fn in_one_line(value: Value) -> Value {
    match value {
        Value::String(text) if text.contains('\n') => {
            text.split_whitespace().collect::<Vec<_>>().join(" ").into()
        }
        Value::Array(all) => all.into_iter().map(in_one_line).collect(),
        Value::Object(all) => all.into_iter().map(|(key, value)| (key, in_one_line(value))).collect(),
        other => other,
    }
}

fn same(chart: Vec<Value>, plain: Vec<Value>) -> Result<()> {
    let (chart, plain) = (by_name(chart)?, by_name(plain)?);
    let names = |all: &BTreeMap<String, Value>| all.keys().cloned().collect::<Vec<_>>();
    ensure!(
        names(&chart) == names(&plain),
        "the chart has {:#?}, the manifests {:#?}",
        names(&chart),
        names(&plain)
    );
    for (name, object) in &chart {
        ensure!(object == &plain[name], "{name}: the chart has {object:#}, the manifests {:#}", plain[name]);
    }
    Ok(())
}

/// The object of this kind and name.
fn find<'o>(objects: &'o [Value], kind: &str, name: &str) -> Result<&'o Value> {
    let found = objects.iter().find(|it| it["kind"] == kind && it["metadata"]["name"] == name);
    found.with_context(|| format!("{kind} {name}"))
}

fn flags(object: &Value) -> Vec<&str> {
    let args = object["spec"]["template"]["spec"]["containers"][0]["args"].as_array();
    args.into_iter().flatten().filter_map(Value::as_str).collect()
}

#[tokio::test]
async fn with_its_own_values_it_is_the_plain_manifests() -> Result<()> {
    let helm = Helm::new(None).await?;
    let chart = helm.template(&[NAMESPACE]).await?;
    let kept = |object: &Value| object["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep";
    ensure!(
        chart.iter().all(|it| kept(it) == (it["kind"] == "CustomResourceDefinition")),
        "which objects are kept"
    );
    same(chart, helm.kustomize(Path::new(DEPLOY)).await?)
}

#[tokio::test]
async fn with_a_cloud_it_is_the_plain_manifests_with_the_component() -> Result<()> {
    let helm = Helm::new(None).await?;
    let directory = tempfile::tempdir()?;
    // A base must be a relative path.
    let up = fs::canonicalize(directory.path())?.components().count() - 1;
    let base = format!("{}{}", "../".repeat(up), fs::canonicalize(DEPLOY)?.strip_prefix("/")?.display());
    let text = json!({
        "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
        "resources": [base], "components": [format!("{base}/optional/gcp")],
    });
    fs::write(directory.path().join("kustomization.yaml"), text.to_string())?;
    same(helm.template(&GCP).await?, helm.kustomize(directory.path()).await?)
}

#[tokio::test]
async fn another_namespace_is_everywhere_but_where_whereabouts_objects_are() -> Result<()> {
    let helm = Helm::new(None).await?;
    let chart = helm.template(&["--namespace=addresses"]).await?;
    let elsewhere: Vec<String> = chart
        .iter()
        .filter(|it| it["metadata"]["namespace"] == "kube-system")
        .filter_map(|it| Some(format!("{} {}", it["kind"].as_str()?, it["metadata"]["name"].as_str()?)))
        .collect();
    ensure!(
        elsewhere
            == [
                "Role tenured",
                "Role tenure-controller",
                "RoleBinding tenured",
                "RoleBinding tenure-controller"
            ],
        "{elsewhere:?}"
    );
    for object in &chart {
        let rules = object["rules"].as_array().into_iter().flatten();
        if object["kind"] == "Role" && object["metadata"]["namespace"] == "kube-system" {
            ensure!(
                rules.clone().all(|rule| rule["apiGroups"] == json!(["whereabouts.cni.cncf.io"])),
                "more than Whereabouts' objects: {object:#}"
            );
        }
        for subject in object["subjects"].as_array().into_iter().flatten() {
            ensure!(subject["namespace"] == "addresses", "{object:#}");
        }
    }
    let schema = find(&chart, "FlowSchema", "tenure-agents")?;
    ensure!(schema["spec"]["rules"][0]["subjects"][0]["serviceAccount"]["namespace"] == "addresses");
    Ok(())
}

#[tokio::test]
async fn values_become_flags() -> Result<()> {
    let helm = Helm::new(None).await?;
    let values = json!({
        "image": {"repository": "registry.example/tenure", "tag": "9", "pullPolicy": "Always"},
        "logFormat": "text", "logLevel": "debug", "cooling": "1m", "rest": "2m", "persistentIPs": true,
        "whereabouts": {"namespace": "ranges", "replace": true, "reserveAlways": true},
        "egress": {"datapath": "kernel", "image": "gateway:1"},
        "nodeAddresses": {"enabled": false, "probe": "5s"},
        "pool": {"name": "first", "subnets": [{"ipv4": "10.1.0.0/16"}], "spec": {"exclude": ["10.1.0.1"]}},
        "agent": {
            "routeBlocks": false, "mtu": 1400, "pluginDirectory": "/usr/lib/cni", "maxUnavailable": 1,
            "kernel": {"podTable": 1_000_000, "gatewayV4": "169.254.1.2"}, "extraArgs": ["--metrics-address=[::]:9384"],
            "nodeSelector": {"pool": "a"}, "tolerations": [{"key": "a", "operator": "Exists"}],
            "resources": {"limits": {"memory": "1Gi"}},
        },
        "controller": {"replicas": 3, "workers": 64, "missingNodeRest": "3m", "extraArgs": ["--check-interval=5s"]},
        "flowControl": {"enabled": false}, "viewer": {"enabled": false}, "definitions": {"enabled": false},
    });
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("values.yaml");
    fs::write(&file, values.to_string())?;
    let chart = helm.template(&[NAMESPACE, "--values", file.to_str().context("a path")?]).await?;
    for kind in ["CustomResourceDefinition", "FlowSchema"] {
        ensure!(!chart.iter().any(|it| it["kind"] == kind), "{kind}");
    }
    let agents = find(&chart, "DaemonSet", "tenured")?;
    let both = ["--egress-datapath=kernel", "--pod-table=1000000", "--gateway-v4=169.254.1.2"];
    let wanted = [
        &["--log-format=text", "--install-config-to=/etc/cni/net.d", "--cooling=1m", "--rest=2m"][..],
        &["--whereabouts-namespace=ranges", "--persistent-ips", "--whereabouts-reserve-always"],
        &["--enable-node-addresses=false", "--node-probe=5s", "--mtu=1400"],
        &both,
        &["--metrics-address=[::]:9384"],
    ];
    ensure!(flags(agents) == wanted.concat(), "{:?}", flags(agents));
    let pod = &agents["spec"]["template"]["spec"];
    let prepare = &pod["initContainers"][0];
    let wanted =
        [&["--prepare", "--install-plugin-to=/opt/cni/bin", "--replace-whereabouts"][..], &both].concat();
    ensure!(prepare["args"] == json!(wanted), "{prepare:#}");
    for container in [prepare, &pod["containers"][0]] {
        ensure!(
            container["image"] == "registry.example/tenure:9" && container["imagePullPolicy"] == "Always"
        );
        let level = json!({"name": "RUST_LOG", "value": "debug"});
        ensure!(container["env"].as_array().is_some_and(|all| all.contains(&level)), "{container:#}");
    }
    ensure!(pod["containers"][0]["resources"] == json!({"limits": {"memory": "1Gi"}}));
    ensure!(pod["nodeSelector"] == json!({"pool": "a"}) && pod["tolerations"][0]["key"] == "a");
    let plugins = pod["volumes"].as_array().into_iter().flatten().find(|it| it["name"] == "plugins");
    ensure!(plugins.context("a volume")?["hostPath"]["path"] == "/usr/lib/cni");
    ensure!(agents["spec"]["updateStrategy"]["rollingUpdate"]["maxUnavailable"] == 1);
    let controller = find(&chart, "Deployment", "tenure-controller")?;
    let wanted = [
        &["--log-format=text", "--cooling=1m", "--rest=2m", "--whereabouts-namespace=ranges"][..],
        &["--cluster-network=tenure", "--egress-image=gateway:1", "--missing-node-rest=3m", "--workers=64"],
        &["--check-interval=5s"],
    ];
    ensure!(flags(controller) == wanted.concat(), "{:?}", flags(controller));
    ensure!(controller["spec"]["replicas"] == 3);
    let pool = find(&chart, "AddressPool", "first")?;
    let spec = json!({"blockSizeBits": 5, "exclude": ["10.1.0.1"], "subnets": [{"ipv4": "10.1.0.0/16"}]});
    ensure!(pool["spec"] == spec, "{pool:#}");
    Ok(())
}

#[tokio::test]
async fn a_removal_takes_the_agents_place_and_makes_no_pool() -> Result<()> {
    use clap::Parser as _;
    let helm = Helm::new(None).await?;
    let values = "--set=remove.enabled=true,remove.force=true,agent.kernel.podTable=500,pool.subnets[0].ipv4=10.1.0.0/16";
    let chart = helm.template(&[NAMESPACE, values]).await?;
    ensure!(find(&chart, "DaemonSet", "tenured").is_err(), "agents and their removal");
    ensure!(!chart.iter().any(|it| it["kind"] == "AddressPool"), "a pool that was deleted would come back");
    let removal = find(&chart, "DaemonSet", "tenure-remove")?;
    let wanted = ["--log-format=json", "--remove-from-node=stay", "--force", "--pod-table=500"];
    ensure!(flags(removal) == wanted, "{:?}", flags(removal));
    tenured::Flags::try_parse_from([&["tenured"], flags(removal).as_slice()].concat())?;
    Ok(())
}

/// Every flag that the chart can give is one that the programs have, with these values.
#[tokio::test]
async fn the_programs_accept_the_flags() -> Result<()> {
    use clap::Parser as _;
    let helm = Helm::new(None).await?;
    for values in [&[NAMESPACE][..], &GCP, &["--set=ipam.enabled=false,agent.kernel.protocol=40", NAMESPACE]]
    {
        let chart = helm.template(values).await?;
        let agents = find(&chart, "DaemonSet", "tenured")?;
        let parsed = tenured::Flags::try_parse_from([&["tenured"], flags(agents).as_slice()].concat())?;
        parsed.options_as("node".to_owned()).with_context(|| format!("{values:?}"))?;
    }
    Ok(())
}

#[tokio::test]
async fn wrong_values_are_refused_by_name() -> Result<()> {
    let helm = Helm::new(None).await?;
    for (value, why) in [
        ("agent.routeBlocks=maybe", "at '/agent/routeBlocks': got string, want boolean"),
        ("agent.routeBlock=true", "at '/agent': additional properties 'routeBlock' not allowed"),
        ("agent.mtu=900", "at '/agent/mtu': minimum: got 900, want 1,280"),
        ("agent.extraArgs={verbose}", "at '/agent/extraArgs/0': 'verbose' does not match pattern '^--'"),
        ("cooling=5", "at '/cooling': got number, want string"),
        ("cooling=5sec", "at '/cooling': '5sec' does not match pattern"),
        ("cloud.provider=aws", "at '/cloud/provider': value must be one of '', 'gcp'"),
        ("cloud.provider=gcp", "at '/cloud/serviceAccount': minLength: got 0, want 1"),
        ("pool.subnets[0].ipv4=10.0.0.0", "at '/pool/subnets/0/ipv4': '10.0.0.0' does not match pattern"),
        ("controller.replicas=0", "at '/controller/replicas': minimum: got 0, want 1"),
        ("egress.enabled=false,ipam.enabled=false", "at '/ipam/enabled': value must be true"),
        ("logformat=text", "additional properties 'logformat' not allowed"),
    ] {
        let said = helm.template(&[NAMESPACE, "--set", value]).await.err();
        let said = said.with_context(|| format!("{value} was accepted"))?.to_string();
        ensure!(said.contains(why), "{value}: {said}");
    }
    Ok(())
}

#[tokio::test]
async fn helm_finds_no_fault_with_it() -> Result<()> {
    let helm = Helm::new(None).await?;
    let chart = Helm::chart();
    helm.run(&["lint", "--strict", &chart]).await?;
    helm.run(&[&["lint", "--strict", &chart], &GCP[..]].concat()).await?;
    let package = helm.package().await?;
    helm.run(&["lint", "--strict", package.to_str().context("a path")?]).await?;
    Ok(())
}
