//! A cluster that was installed with kubectl becomes a release of the chart. Needs etcd and kube-apiserver.

use anyhow::{Context as _, Result, ensure};
use tenure_testbed::control_plane::{ControlPlane, ControlPlaneOptions};
use tenure_tests::chart::Helm;
use tenure_tests::installed::DEPLOY;

const POOL: &str = "
apiVersion: coil.cybozu.com/v2
kind: AddressPool
metadata: {name: mine}
spec: {blockSizeBits: 5, subnets: [{ipv4: 10.2.0.0/16}]}
";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_takes_over_what_kubectl_has_applied_and_nothing_else() -> Result<()> {
    let plane = ControlPlane::start(ControlPlaneOptions::default()).await?;
    plane.kubectl(&["apply", "-k", DEPLOY]).await?;
    let kind = "crd/addresspools.coil.cybozu.com";
    plane.kubectl(&["wait", kind, "--for=condition=Established", "--timeout=300s"]).await?;
    plane.kubectl_with_input(&["apply", "-f", "-"], POOL).await?;
    let uid = ["get", kind, "-o", "jsonpath={.metadata.uid}"];
    let before = plane.kubectl(&uid).await?;

    let (helm, chart) = (Helm::new(Some(plane.kubeconfig())).await?, Helm::chart());
    let install = ["install", "tenure", &chart, "-n=kube-system", "--set=agent.maxUnavailable=2"];
    let refused = helm.run(&install).await.err().context("it was taken over without a word")?.to_string();
    ensure!(refused.contains("invalid ownership metadata"), "{refused}");
    helm.run(&[&install[..], &["--take-ownership", "--force-conflicts"]].concat()).await?;
    let most = "jsonpath={.spec.updateStrategy.rollingUpdate.maxUnavailable}";
    let most = plane.kubectl(&["get", "daemonset/tenured", "-n", "kube-system", "-o", most]).await?;
    ensure!(most == "2", "{most:?}");
    ensure!(plane.kubectl(&uid).await? == before, "the kind was made anew");
    helm.run(&["uninstall", "tenure", "-n=kube-system"]).await?;
    plane.kubectl(&["get", "addresspool/mine"]).await?;
    Ok(())
}
