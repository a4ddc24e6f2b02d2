//! Egress gateways on the real kube-apiserver and kube-controller-manager, with `deploy/` as it is applied: the controller makes,
//! keeps and removes what runs them with its own rights and no more. Needs etcd and kube-apiserver.

use anyhow::{Context as _, Result, ensure};
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet};
use k8s_openapi::api::authentication::v1::TokenRequest;
use k8s_openapi::api::core::v1::{Pod, Service, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::rbac::v1::{Role, RoleBinding};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tenure_api::coil::{Egress, EgressClients};
use tenure_controller::{Controller, Settings};
use tenure_handles::SystemClock;
use tenure_testbed::control_plane::{ControlPlane, ControlPlaneOptions};
use tenure_testbed::wait::eventually;
use tokio_util::sync::CancellationToken;

const DEPLOY: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../deploy");
const NAMESPACE: &str = "internet-egress";

/// A control plane with everything of `deploy/`, and a controller that has the rights of its account.
struct Bed {
    plane: ControlPlane,
    admin: Client,
    stop: CancellationToken,
    running: tokio::task::JoinHandle<Result<(), tenure_controller::RunError>>,
}

impl Bed {
    async fn start() -> Result<Self> {
        let plane = ControlPlane::start(ControlPlaneOptions::default()).await?;
        let admin = plane.client()?;
        plane.kubectl(&["apply", "-k", DEPLOY]).await?;
        plane.kubectl(&["wait", "crd", "--all", "--for=condition=Established", "--timeout=300s"]).await?;
        plane.kubectl(&["create", "namespace", NAMESPACE]).await?;
        let controller = as_account(&plane, &admin, "kube-system", "tenure-controller").await?;
        let settings = Settings { egress_image: Some("tenure:0.1.0".to_owned()), ..Settings::new("test") };
        let controller = Controller::new(controller, SystemClock, settings);
        let stop = CancellationToken::new();
        let running = tokio::spawn(controller.run(stop.clone()));
        Ok(Self { plane, admin, stop, running })
    }

    fn api<K>(&self) -> Api<K>
    where
        K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.admin.clone(), NAMESPACE)
    }

    async fn egress(&self, name: &str, spec: Value) -> Result<Egress> {
        let object = json!({
            "apiVersion": "coil.cybozu.com/v2", "kind": "Egress", "metadata": {"name": name}, "spec": spec,
        });
        Ok(self.api().create(&PostParams::default(), &serde_json::from_value(object)?).await?)
    }

    async fn change(&self, name: &str, spec: Value) -> Result<()> {
        let patch = Patch::Merge(json!({"spec": spec}));
        self.api::<Egress>().patch(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    /// Waits until the Deployment is what the check says, and returns it.
    async fn deployment(&self, name: &str, what: &str, is: impl Fn(&Value) -> bool) -> Result<Value> {
        eventually(what, async || {
            let Some(deployment) = self.api::<Deployment>().get_opt(name).await? else { return Ok(None) };
            let value = serde_json::to_value(deployment)?;
            Ok(is(&value).then_some(value))
        })
        .await
    }

    async fn replica_sets(&self) -> Result<usize> {
        Ok(self.api::<ReplicaSet>().list(&ListParams::default()).await?.items.len())
    }

    /// Waits until an Egress says this about itself, and returns the message.
    async fn said(&self, name: &str, type_: &str, reason: &str) -> Result<String> {
        eventually(&format!("{name} to say {reason}"), async || {
            let status = self.api::<Egress>().get(name).await?.status.unwrap_or_default();
            Ok(status.condition(type_).filter(|it| it.reason == reason).map(|it| it.message.clone()))
        })
        .await
    }

    async fn end(self) -> Result<()> {
        self.stop.cancel();
        Ok(self.running.await??)
    }
}

async fn as_account(plane: &ControlPlane, admin: &Client, namespace: &str, name: &str) -> Result<Client> {
    let accounts: Api<ServiceAccount> = Api::namespaced(admin.clone(), namespace);
    let granted =
        accounts.create_token_request(name, &PostParams::default(), &TokenRequest::default()).await?;
    Ok(plane.client_with_token(&granted.status.context("a token")?.token)?)
}

fn is_refusal<T>(result: kube::Result<T>) -> bool {
    matches!(result, Err(kube::Error::Api(status)) if status.code == 403)
}

#[tokio::test]
async fn an_egress_gets_its_gateways_by_the_rights_of_the_controller_and_everything_goes_with_it()
-> Result<()> {
    let bed = Box::pin(Bed::start()).await?;
    let spec = json!({"destinations": ["0.0.0.0/0", "::/0"], "replicas": 2, "podDisruptionBudget": {"minAvailable": 1}});
    bed.egress("internet", spec).await?;
    bed.deployment("internet", "a Deployment of two", |it| it["spec"]["replicas"] == 2).await?;
    let service =
        eventually("a Service", async || bed.api::<Service>().get_opt("internet").await.map_err(Into::into))
            .await?;
    let service = service.spec.context("a spec")?;
    ensure!(service.cluster_ip.is_some_and(|ip| !ip.is_empty() && ip != "None"));
    ensure!(service.ip_family_policy.as_deref() == Some("PreferDualStack"));
    eventually("a budget", async || {
        bed.api::<PodDisruptionBudget>().get_opt("internet").await.map_err(Into::into)
    })
    .await?;
    let message = bed.said("internet", "Ready", "GatewaysMissing").await?;
    ensure!(message.starts_with("0 of 2 gateways serve"), "{message}");

    // Its account may read who the clients are, here, and nothing else.
    let gateway = as_account(&bed.plane, &bed.admin, NAMESPACE, "tenure-egress-internet").await?;
    let clients: Api<EgressClients> = Api::namespaced(gateway.clone(), NAMESPACE);
    let of_egress = ListParams::default().labels(&EgressClients::of_egress("internet"));
    eventually("the right to read clients", async || Ok(clients.list(&of_egress).await.ok())).await?;
    ensure!(is_refusal(clients.patch("x", &PatchParams::default(), &Patch::Merge(json!({}))).await));
    ensure!(is_refusal(Api::<EgressClients>::all(gateway.clone()).list(&ListParams::default()).await));
    ensure!(is_refusal(Api::<Pod>::namespaced(gateway, NAMESPACE).list(&ListParams::default()).await));

    // Scaled as anything is.
    bed.plane.kubectl(&["-n", NAMESPACE, "scale", "egress/internet", "--replicas=3"]).await?;
    bed.deployment("internet", "a Deployment of three", |it| it["spec"]["replicas"] == 3).await?;
    let scale = bed.api::<Egress>().get_scale("internet").await?;
    let selector = scale.status.and_then(|status| status.selector).unwrap_or_default();
    ensure!(
        selector
            == "app.kubernetes.io/component=egress,app.kubernetes.io/instance=internet,app.kubernetes.io/name=coil",
        "{selector}"
    );
    let refused = bed.plane.kubectl(&["-n", NAMESPACE, "scale", "egress/internet", "--replicas=0"]).await;
    ensure!(refused.is_err_and(|error| error.to_string().contains("spec.replicas")));

    bed.plane.kubectl(&["-n", NAMESPACE, "delete", "egress", "internet", "--wait"]).await?;
    eventually("everything to be gone", async || {
        let none = ListParams::default();
        let left = [
            bed.api::<Deployment>().list(&none).await?.items.len(),
            bed.api::<Service>().list(&none).await?.items.len(),
            bed.api::<PodDisruptionBudget>().list(&none).await?.items.len(),
            bed.api::<Role>().list(&none).await?.items.len(),
            bed.api::<RoleBinding>().list(&none).await?.items.len(),
            bed.api::<ServiceAccount>()
                .list(&none)
                .await?
                .items
                .iter()
                .filter(|it| it.name_any() != "default")
                .count(),
        ];
        Ok((left == [0; 6]).then_some(()))
    })
    .await?;
    bed.end().await
}

#[tokio::test]
async fn gateways_are_rolled_out_when_their_template_changes_and_never_otherwise() -> Result<()> {
    let bed = Box::pin(Bed::start()).await?;
    // The server writes these amounts in another way, and fills in much else.
    let container = json!({"name": "egress", "resources": {"requests": {"cpu": "1000m", "memory": "0.5Gi"}}});
    let template = json!({"metadata": {"annotations": {"a": "b"}}, "spec": {"containers": [container], "tolerations": [{"operator": "Exists"}]}});
    bed.egress("internet", json!({"destinations": ["0.0.0.0/0"], "template": template})).await?;
    let first = bed
        .deployment("internet", "an observed Deployment", |it| it["status"]["observedGeneration"] == 1)
        .await?;
    ensure!(first["spec"]["template"]["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "1");
    // What is about clients alone, or about nothing, changes no gateway. The last change shows that all were looked at.
    bed.change("internet", json!({"destinations": ["9.9.9.9/32"], "originatingOnly": true})).await?;
    let foreign = Patch::Merge(json!({"metadata": {"annotations": {"theirs": "x"}}}));
    bed.api::<Deployment>().patch("internet", &PatchParams::default(), &foreign).await?;
    bed.change("internet", json!({"podDisruptionBudget": {"maxUnavailable": 1}})).await?;
    eventually("a budget", async || {
        bed.api::<PodDisruptionBudget>().get_opt("internet").await.map_err(Into::into)
    })
    .await?;
    let second = bed
        .deployment("internet", "the annotation", |it| it["metadata"]["annotations"]["theirs"] == "x")
        .await?;
    // Kubernetes counts changed annotations as another generation. That is written down, and rolls nothing out.
    ensure!(second["metadata"]["annotations"]["deployment.kubernetes.io/revision"] == "1", "{second:#}");
    ensure!(second["spec"]["template"] == first["spec"]["template"], "{second:#}");
    ensure!(bed.replica_sets().await? == 1);

    // A restart by hand is one rollout, not two; a hand at the replicas is taken back.
    bed.plane.kubectl(&["-n", NAMESPACE, "rollout", "restart", "deployment/internet"]).await?;
    let at = |it: &Value| {
        it["spec"]["template"]["metadata"]["annotations"]["kubectl.kubernetes.io/restartedAt"].clone()
    };
    bed.deployment("internet", "the restart", |it| at(it).is_string()).await?;
    bed.plane.kubectl(&["-n", NAMESPACE, "scale", "deployment/internet", "--replicas=5"]).await?;
    let settled = |it: &Value| {
        let applied: Value =
            serde_json::from_str(it["metadata"]["annotations"]["tenure/applied"].as_str().unwrap_or(""))
                .unwrap_or_default();
        it["spec"]["replicas"] == 1 && applied["generation"] == it["metadata"]["generation"]
    };
    let third = bed.deployment("internet", "one replica again", settled).await?;
    ensure!(at(&third).is_string() && third["spec"]["template"]["metadata"]["annotations"]["a"] == "b");
    eventually("two ReplicaSets", async || Ok((bed.replica_sets().await? == 2).then_some(()))).await?;

    // A budget changes sides.
    bed.change("internet", json!({"podDisruptionBudget": {"maxUnavailable": null, "minAvailable": "50%"}}))
        .await?;
    eventually("the other side", async || {
        let budget = bed.api::<PodDisruptionBudget>().get("internet").await?;
        let spec = serde_json::to_value(budget.spec)?;
        Ok((spec["minAvailable"] == "50%" && spec.get("maxUnavailable").is_none()).then_some(()))
    })
    .await?;
    bed.change("internet", json!({"podDisruptionBudget": null})).await?;
    eventually("no budget", async || {
        Ok(bed.api::<PodDisruptionBudget>().get_opt("internet").await?.is_none().then_some(()))
    })
    .await?;

    // The template loses what it had.
    bed.change(
        "internet",
        json!({"template": {"metadata": {"annotations": null}, "spec": {"tolerations": null}}}),
    )
    .await?;
    let fourth = bed
        .deployment("internet", "fewer tolerations", |it| {
            it["spec"]["template"]["spec"].get("tolerations").is_none()
        })
        .await?;
    ensure!(
        fourth["spec"]["template"]["metadata"]["annotations"].get("a").is_none() && at(&fourth).is_string()
    );
    bed.end().await
}

#[tokio::test]
async fn deleted_children_come_back_and_a_template_that_is_refused_is_said_in_the_servers_words() -> Result<()>
{
    let bed = Box::pin(Bed::start()).await?;
    bed.egress("internet", json!({"destinations": ["0.0.0.0/0"]})).await?;
    let first = bed.deployment("internet", "a Deployment", |_| true).await?;
    let deleting = DeleteParams::default();
    bed.api::<Service>().delete("internet", &deleting).await?;
    bed.api::<RoleBinding>().delete("tenure-egress-internet", &deleting).await?;
    bed.api::<ServiceAccount>().delete("tenure-egress-internet", &deleting).await?;
    bed.api::<Deployment>().delete("internet", &deleting).await?;
    let uid = first["metadata"]["uid"].clone();
    bed.deployment("internet", "another Deployment", |it| it["metadata"]["uid"] != uid).await?;
    eventually("a Service", async || bed.api::<Service>().get_opt("internet").await.map_err(Into::into))
        .await?;
    eventually("a binding", async || {
        bed.api::<RoleBinding>().get_opt("tenure-egress-internet").await.map_err(Into::into)
    })
    .await?;
    // Somebody widens what gateways may do.
    let wider =
        Patch::Merge(json!({"rules": [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}]}));
    bed.api::<Role>().patch("tenure-egress-internet", &PatchParams::default(), &wider).await?;
    eventually("the rules again", async || {
        let rules = serde_json::to_value(bed.api::<Role>().get("tenure-egress-internet").await?.rules)?;
        Ok((rules[0]["resources"] == json!(["egressclients"])).then_some(()))
    })
    .await?;

    let bad = json!({"containers": [{"name": "egress", "imagePullPolicy": "Sometimes"}]});
    bed.egress("odd", json!({"destinations": ["0.0.0.0/0"], "template": {"spec": bad}})).await?;
    let words = bed.said("odd", "Ready", "TemplateRefused").await?;
    ensure!(words.contains("imagePullPolicy") && words.contains("Sometimes"), "{words}");
    let good = json!({"containers": [{"name": "egress", "imagePullPolicy": "Always"}]});
    bed.change("odd", json!({"template": {"spec": good}})).await?;
    bed.said("odd", "Ready", "GatewaysMissing").await?;
    bed.deployment("odd", "its Deployment", |_| true).await?;
    bed.end().await
}
