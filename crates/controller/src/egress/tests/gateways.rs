//! Children of an Egress: created, merged, kept, re-created, and never rolled out without need.

use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{Service, ServiceAccount};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt;
use serde_json::{Value, json};
use tenure_api::coil::Egress;

use super::rig::{NAMESPACE, Rig};
use crate::egress::{ChildKind, EgressWrite};

async fn value<K>(rig: &Rig, name: &str) -> Value
where
    K: kube::Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>
        + Clone
        + std::fmt::Debug
        + serde::de::DeserializeOwned
        + serde::Serialize,
{
    serde_json::to_value(rig.get::<K>(name).await.unwrap_or_else(|| panic!("no {name}"))).unwrap()
}

fn gateway(deployment: &Value) -> &Value {
    let containers = deployment["spec"]["template"]["spec"]["containers"].as_array().unwrap();
    containers.iter().find(|container| container["name"] == "egress").unwrap()
}

#[tokio::test]
async fn an_egress_gets_gateways_with_defaults_a_service_and_an_account() {
    let mut rig = Rig::new().await;
    let egress = rig.egress("internet", json!({})).await;
    rig.settle().await;
    let deployment = value::<Deployment>(&rig, "internet").await;
    let owner = &deployment["metadata"]["ownerReferences"][0];
    assert_eq!((&owner["uid"], &owner["controller"]), (&json!(egress.uid()), &json!(true)));
    let labels = json!({
        "app.kubernetes.io/name": "coil", "app.kubernetes.io/instance": "internet", "app.kubernetes.io/component": "egress",
    });
    assert_eq!(deployment["spec"]["replicas"], 1);
    assert_eq!(deployment["spec"]["selector"]["matchLabels"], labels);
    assert_eq!(deployment["spec"]["template"]["metadata"]["labels"], labels);
    assert_eq!(deployment["spec"]["template"]["spec"]["serviceAccountName"], "tenure-egress-internet");
    let gateway = gateway(&deployment);
    assert_eq!((&gateway["image"], &gateway["command"]), (&json!("tenure:test"), &json!(["tenure-egress"])));
    assert_eq!(gateway["args"], Value::Null);
    let security = &gateway["securityContext"];
    assert_eq!(security["capabilities"], json!({"add": ["NET_ADMIN"], "drop": ["ALL"]}));
    assert_eq!(
        (&security["privileged"], &security["allowPrivilegeEscalation"], &security["readOnlyRootFilesystem"]),
        (&Value::Null, &json!(false), &json!(true))
    );
    assert_eq!(gateway["resources"]["requests"], json!({"cpu": "100m", "memory": "200Mi"}));
    let ports: Vec<_> =
        gateway["ports"].as_array().unwrap().iter().map(|port| &port["containerPort"]).collect();
    assert_eq!(ports, [8080, 8081]);
    let names: Vec<_> =
        gateway["env"].as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["COIL_POD_NAMESPACE", "COIL_EGRESS_NAME", "COIL_POD_ADDRESSES"]);
    assert_eq!(gateway["readinessProbe"]["httpGet"], json!({"path": "/readyz", "port": "health"}));

    let service = value::<Service>(&rig, "internet").await;
    assert_eq!(service["spec"]["type"], "ClusterIP");
    assert_eq!(service["spec"]["selector"], labels);
    assert_eq!(
        service["spec"]["ports"],
        json!([{"name": "fou", "port": 5555, "protocol": "UDP", "targetPort": 5555}])
    );
    assert_eq!(service["spec"]["ipFamilyPolicy"], "PreferDualStack");
    assert_eq!(service["spec"]["sessionAffinity"], "ClientIP");
    assert_eq!(service["spec"]["sessionAffinityConfig"], json!({"clientIP": {"timeoutSeconds": 10800}}));
    assert!(rig.get::<ServiceAccount>("tenure-egress-internet").await.is_some());
    assert!(rig.get::<PodDisruptionBudget>("internet").await.is_none(), "nobody asked for one");
}

#[tokio::test]
async fn gateways_may_read_who_their_clients_are_and_nothing_else() {
    let mut rig = Rig::new().await;
    rig.egress("internet", json!({"template": {"spec": {"serviceAccountName": "own"}}})).await;
    rig.observe().await;
    for kind in ["Role", "RoleBinding"] {
        rig.world.note_lack(kind, false);
    }
    assert!(rig.plan().is_empty(), "nobody knows yet what there is");
    rig.world.egress_mut().roles.finish();
    rig.world.egress_mut().bindings.finish();
    let writes = rig.plan();
    let object = |wanted: ChildKind| {
        let found = writes.iter().find_map(|write| match write.of::<EgressWrite>()? {
            EgressWrite::Create { kind, object, .. } if *kind == wanted => Some((**object).clone()),
            _ => None,
        });
        found.unwrap_or_else(|| panic!("no {wanted:?} in {writes:#?}"))
    };
    let rule =
        json!({"apiGroups": ["coil.cybozu.com"], "resources": ["egressclients"], "verbs": ["list", "watch"]});
    assert_eq!(object(ChildKind::Role)["rules"], json!([rule]));
    let binding = object(ChildKind::Binding);
    assert_eq!(binding["roleRef"]["name"], "tenure-egress-internet");
    let subject = json!({"kind": "ServiceAccount", "name": "own", "namespace": NAMESPACE});
    assert_eq!(binding["subjects"], json!([subject]));
    let kinds: Vec<_> =
        writes.iter().map(|write| write.subject().split(' ').next().unwrap().to_owned()).collect();
    assert!(!kinds.contains(&"Deployment".to_owned()), "a gateway comes after its rights: {kinds:?}");
}

#[tokio::test]
async fn a_template_is_kept_and_what_the_gateway_lacks_is_filled_in() {
    let mut rig = Rig::new().await;
    let template = json!({
        "metadata": {"annotations": {"foo": "bar"}, "labels": {"name": "coil-egress", "app.kubernetes.io/name": "mine"}},
        "spec": {
            "tolerations": [{"operator": "Exists"}],
            "terminationGracePeriodSeconds": 90,
            "containers": [
                {"name": "sidecar", "image": "sidecar:1"},
                {
                    "name": "egress", "image": "mirror/tenure:2", "args": ["--more"],
                    "env": [{"name": "RUST_LOG", "value": "debug"}, {"name": "COIL_EGRESS_NAME", "value": "forged"}],
                    "resources": {"requests": {"cpu": "1"}, "limits": {"memory": "64Mi"}},
                    "securityContext": {"privileged": true},
                },
            ],
        },
    });
    let spec = json!({
        "replicas": 3, "strategy": {"type": "Recreate"}, "template": template, "fouSourcePortAuto": true,
        "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 43200}},
    });
    rig.egress("internet", spec).await;
    rig.settle().await;
    let deployment = value::<Deployment>(&rig, "internet").await;
    assert_eq!(
        (&deployment["spec"]["replicas"], &deployment["spec"]["strategy"]),
        (&json!(3), &json!({"type": "Recreate"}))
    );
    let template = &deployment["spec"]["template"];
    assert_eq!(template["metadata"]["annotations"], json!({"foo": "bar"}));
    assert_eq!(template["metadata"]["labels"]["name"], "coil-egress");
    assert_eq!(
        template["metadata"]["labels"]["app.kubernetes.io/name"], "coil",
        "by this the Service finds it"
    );
    assert_eq!(template["spec"]["tolerations"], json!([{"operator": "Exists"}]));
    assert_eq!(template["spec"]["terminationGracePeriodSeconds"], 90);
    assert_eq!(template["spec"]["containers"][0], json!({"name": "sidecar", "image": "sidecar:1"}));
    let gateway = gateway(&deployment);
    assert_eq!((&gateway["image"], &gateway["args"]), (&json!("mirror/tenure:2"), &json!(["--more"])));
    let env = gateway["env"].as_array().unwrap();
    assert_eq!((env.len(), &env[0]["name"]), (4, &json!("RUST_LOG")));
    let name = env.iter().find(|it| it["name"] == "COIL_EGRESS_NAME").unwrap();
    assert_eq!(name["value"], "internet");
    assert_eq!(
        gateway["resources"]["requests"],
        json!({"cpu": "1"}),
        "a request above the limit would be refused"
    );
    assert_eq!(gateway["securityContext"]["allowPrivilegeEscalation"], Value::Null);
    let service = value::<Service>(&rig, "internet").await;
    assert_eq!(service["spec"]["sessionAffinityConfig"]["clientIP"]["timeoutSeconds"], 43200);
}

#[tokio::test]
async fn automatic_source_ports_are_told_to_the_gateway_unless_its_arguments_are_given() {
    let mut rig = Rig::new().await;
    rig.egress("internet", json!({"fouSourcePortAuto": true, "sessionAffinity": "None"})).await;
    rig.settle().await;
    let deployment = value::<Deployment>(&rig, "internet").await;
    assert_eq!(gateway(&deployment)["args"], json!(["--enable-sport-auto=true"]));
    let service = value::<Service>(&rig, "internet").await;
    assert_eq!(service["spec"]["sessionAffinity"], "None");
    assert_eq!(service["spec"]["sessionAffinityConfig"], Value::Null);
    rig.patch::<Egress>("internet", json!({"spec": {"sessionAffinity": "ClientIP"}})).await;
    rig.settle().await;
    let service = value::<Service>(&rig, "internet").await;
    assert_eq!(service["spec"]["sessionAffinityConfig"]["clientIP"]["timeoutSeconds"], 10800);
}

#[tokio::test]
async fn deleted_children_are_made_again() {
    let mut rig = Rig::new().await;
    rig.egress("internet", json!({"podDisruptionBudget": {"maxUnavailable": 1}})).await;
    rig.settle().await;
    rig.delete::<Deployment>("internet").await;
    rig.delete::<Service>("internet").await;
    rig.delete::<PodDisruptionBudget>("internet").await;
    rig.delete::<ServiceAccount>("tenure-egress-internet").await;
    rig.settle().await;
    assert!(rig.get::<Deployment>("internet").await.is_some());
    assert!(rig.get::<Service>("internet").await.is_some());
    assert!(rig.get::<PodDisruptionBudget>("internet").await.is_some());
    assert!(rig.get::<ServiceAccount>("tenure-egress-internet").await.is_some());
}

#[tokio::test]
async fn what_others_add_to_children_stays_and_what_they_change_is_put_right() {
    let mut rig = Rig::new().await;
    rig.egress("internet", json!({})).await;
    rig.settle().await;
    let foreign = json!({"metadata": {"annotations": {"team": "a"}, "labels": {"cost": "b"}}});
    rig.patch::<Deployment>("internet", foreign.clone()).await;
    rig.patch::<Service>("internet", foreign).await;
    let restart =
        json!({"spec": {"replicas": 7, "template": {"metadata": {"annotations": {"restartedAt": "now"}}}}});
    rig.patch::<Deployment>("internet", restart).await;
    rig.patch::<Service>("internet", json!({"spec": {"selector": {"x": "y"}, "sessionAffinity": "None"}}))
        .await;
    rig.settle().await;
    let deployment = value::<Deployment>(&rig, "internet").await;
    assert_eq!(deployment["spec"]["replicas"], 1, "the Egress says how many");
    assert_eq!(deployment["spec"]["template"]["metadata"]["annotations"]["restartedAt"], "now");
    assert_eq!(
        (&deployment["metadata"]["annotations"]["team"], &deployment["metadata"]["labels"]["cost"]),
        (&json!("a"), &json!("b"))
    );
    let service = value::<Service>(&rig, "internet").await;
    assert_eq!(
        (&service["metadata"]["annotations"]["team"], &service["metadata"]["labels"]["cost"]),
        (&json!("a"), &json!("b"))
    );
    assert_eq!(service["spec"]["selector"].get("x"), None);
    assert_eq!(service["spec"]["sessionAffinity"], "ClientIP");
}

#[tokio::test]
async fn nothing_is_rolled_out_when_nothing_about_pods_has_changed() {
    let mut rig = Rig::new().await;
    rig.egress("internet", json!({"template": {"metadata": {"labels": {"a": "b"}}}})).await;
    rig.settle().await;
    let before = rig.get::<Deployment>("internet").await.unwrap();
    rig.patch::<Egress>(
        "internet",
        json!({"spec": {"destinations": ["9.9.9.9/32"], "originatingOnly": true}}),
    )
    .await;
    rig.patch::<Egress>("internet", json!({"metadata": {"labels": {"x": "y"}}})).await;
    rig.settle().await;
    let after = rig.get::<Deployment>("internet").await.unwrap();
    assert_eq!(after.metadata.resource_version, before.metadata.resource_version, "not even written");
    rig.patch::<Egress>("internet", json!({"spec": {"replicas": 2}})).await;
    rig.settle().await;
    let scaled = rig.get::<Deployment>("internet").await.unwrap().spec.unwrap();
    assert_eq!((scaled.replicas, &scaled.template), (Some(2), &before.spec.unwrap().template));
}

#[tokio::test]
async fn labels_and_annotations_go_with_the_template_that_had_them_and_others_stay() {
    let mut rig = Rig::new().await;
    let metadata = json!({"labels": {"a": "1", "b": "2"}, "annotations": {"c": "3"}});
    rig.egress(
        "internet",
        json!({"template": {"metadata": metadata, "spec": {"priorityClassName": "high"}}}),
    )
    .await;
    rig.settle().await;
    let foreign = json!({"spec": {"template": {"metadata": {"labels": {"theirs": "x"}}}}});
    rig.patch::<Deployment>("internet", foreign).await;
    let fewer = json!({"spec": {"template": {"metadata": {"labels": {"a": null}, "annotations": null}, "spec": {"priorityClassName": null}}}});
    rig.patch::<Egress>("internet", fewer).await;
    rig.settle().await;
    let deployment = value::<Deployment>(&rig, "internet").await;
    let template = &deployment["spec"]["template"];
    let labels = &template["metadata"]["labels"];
    assert_eq!((labels.get("a"), &labels["b"], &labels["theirs"]), (None, &json!("2"), &json!("x")));
    assert_eq!(template["metadata"]["annotations"].get("c"), None);
    assert_eq!(template["spec"].get("priorityClassName"), None);
}

#[tokio::test]
async fn a_budget_comes_changes_sides_and_goes_as_the_egress_says() {
    let mut rig = Rig::new().await;
    rig.egress("internet", json!({"replicas": 2, "podDisruptionBudget": {"minAvailable": 1}})).await;
    rig.settle().await;
    let budget = value::<PodDisruptionBudget>(&rig, "internet").await;
    assert_eq!((&budget["spec"]["minAvailable"], budget["spec"].get("maxUnavailable")), (&json!(1), None));
    let other = json!({"spec": {"podDisruptionBudget": {"minAvailable": null, "maxUnavailable": "50%"}}});
    rig.patch::<Egress>("internet", other).await;
    rig.settle().await;
    let budget = value::<PodDisruptionBudget>(&rig, "internet").await;
    assert_eq!(
        (budget["spec"].get("minAvailable"), &budget["spec"]["maxUnavailable"]),
        (None, &json!("50%"))
    );
    rig.patch::<Egress>("internet", json!({"spec": {"podDisruptionBudget": null}})).await;
    rig.settle().await;
    assert!(rig.get::<PodDisruptionBudget>("internet").await.is_none());
}

#[tokio::test]
async fn children_go_with_their_egress_and_the_next_one_of_the_name_gets_its_own() {
    let mut rig = Rig::new().await;
    rig.egress("internet", json!({"podDisruptionBudget": {"minAvailable": 1}})).await;
    rig.settle().await;
    rig.delete::<Egress>("internet").await;
    let next = rig.egress("internet", json!({})).await;
    rig.settle().await;
    let deployment = rig.get::<Deployment>("internet").await.unwrap();
    assert_eq!(Some(&deployment.owner_references()[0].uid), next.uid().as_ref());
    rig.delete::<Egress>("internet").await;
    rig.settle().await;
    assert!(
        rig.get::<Deployment>("internet").await.is_none() && rig.get::<Service>("internet").await.is_none()
    );
    assert!(rig.get::<ServiceAccount>("tenure-egress-internet").await.is_none());
}

#[tokio::test]
async fn a_deployment_that_coil_has_made_is_taken_over() {
    let mut rig = Rig::new().await;
    let egress = rig.egress("internet", json!({"replicas": 2})).await;
    let labels = tenure_api::coil::egress::gateway_labels("internet");
    let owner = kube::Resource::controller_owner_ref(&egress, &()).unwrap();
    let container = json!({"name": "egress", "image": "coil:2", "securityContext": {"privileged": true}});
    let theirs = json!({
        "metadata": {"name": "internet", "labels": labels, "ownerReferences": [owner]},
        "spec": {
            "replicas": 2, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [container], "serviceAccountName": "coil-egress"}},
        },
    });
    let theirs = rig.make::<Deployment>(theirs).await;
    rig.settle().await;
    let deployment = value::<Deployment>(&rig, "internet").await;
    assert_eq!(deployment["metadata"]["uid"], json!(theirs.uid()), "it is the same");
    assert_eq!(gateway(&deployment)["image"], "tenure:test");
    assert_eq!(gateway(&deployment)["securityContext"].get("privileged"), None);
}
