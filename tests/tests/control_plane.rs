//! A real control plane: it starts, it refuses, it survives, and nothing is left of it.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, bail};
use futures::{StreamExt as _, TryStreamExt as _};
use http::StatusCode;
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::{ConfigMap, Namespace, Node, Secret, ServiceAccount};
use kube::api::{DeleteParams, ListParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, Client};
use serde_json::json;
use tenure_testbed::control_plane::{ControlPlane, ControlPlaneOptions, Part};
use tenure_testbed::faults::{Answer, Calls, Faults, Lost, Rule, Tally, Verb};

/// Most tests need no controllers, and are ready sooner without them.
async fn bare() -> anyhow::Result<ControlPlane> {
    Ok(ControlPlane::start(ControlPlaneOptions::default().without_controller_manager()).await?)
}

fn config_map(name: &str) -> ConfigMap {
    serde_json::from_value(json!({"metadata": {"name": name}, "data": {"key": "value"}})).unwrap()
}

/// The status code and reason of a refusal.
fn refusal<T: std::fmt::Debug>(result: Result<T, kube::Error>) -> (u16, String) {
    match result {
        Err(kube::Error::Api(status)) => (status.code, status.reason),
        other => panic!("not a refusal: {other:?}"),
    }
}

/// Asks until the answer is yes.
async fn eventually(what: &str, mut is_so: impl AsyncFnMut() -> bool) -> anyhow::Result<()> {
    for _ in 0..300 {
        if is_so().await {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    bail!("{what}: not within 15 s")
}

#[tokio::test]
async fn a_control_plane_serves_runs_controllers_and_takes_kubectl() -> anyhow::Result<()> {
    let plane = ControlPlane::start(ControlPlaneOptions::default()).await?;
    let client = plane.client()?;
    let version = client.apiserver_version().await?;
    assert_eq!((version.major.as_str(), version.minor.as_str()), ("1", "35"));

    let accounts: Api<ServiceAccount> = Api::namespaced(client.clone(), "default");
    eventually("kube-controller-manager makes the default service account", async || {
        accounts.get_opt("default").await.is_ok_and(|account| account.is_some())
    })
    .await?;

    let manifest = "{apiVersion: v1, kind: ConfigMap, metadata: {name: applied}, data: {key: value}}";
    let said = plane.kubectl_with_input(&["apply", "-f", "-"], manifest).await?;
    assert_eq!(said, "configmap/applied created\n");
    let value = plane.kubectl(&["get", "configmap", "applied", "-o", "jsonpath={.data.key}"]).await?;
    assert_eq!(value, "value");
    let error = plane.kubectl(&["get", "configmap", "nobody"]).await.unwrap_err();
    assert!(error.to_string().contains("configmaps \"nobody\" not found"), "{error}");
    Ok(())
}

#[tokio::test]
async fn rbac_refuses_who_has_no_rights_and_admits_who_has() -> anyhow::Result<()> {
    let plane = bare().await?;
    let admin = plane.client()?;
    let refused = (403, "Forbidden".to_owned());

    let accounts: Api<ServiceAccount> = Api::namespaced(admin.clone(), "default");
    let account = serde_json::from_value(json!({"metadata": {"name": "poor"}}))?;
    accounts.create(&PostParams::default(), &account).await?;
    let request = TokenRequest { spec: TokenRequestSpec::default(), ..TokenRequest::default() };
    let answer = accounts.create_token_request("poor", &PostParams::default(), &request).await?;
    let token = answer.status.context("a token")?.token;
    let poor = plane.client_with_token(&token)?;
    let secrets = |client: &Client| Api::<Secret>::namespaced(client.clone(), "default");
    assert_eq!(refusal(secrets(&poor).list(&ListParams::default()).await), refused);

    let unknown = plane.client_with_token("no such token")?;
    assert_eq!(refusal(secrets(&unknown).list(&ListParams::default()).await).0, 401);

    let somebody = plane.client_as("somebody", &["strangers", "readers"])?;
    assert_eq!(refusal(secrets(&somebody).list(&ListParams::default()).await), refused);
    plane
        .kubectl(&[
            "create",
            "clusterrolebinding",
            "readers",
            "--clusterrole=cluster-admin",
            "--group=readers",
        ])
        .await?;
    eventually("RBAC learns of the new binding", async || {
        secrets(&somebody).list(&ListParams::default()).await.is_ok()
    })
    .await?;

    let node: Api<Node> = Api::all(plane.client_as("system:node:one", &["system:nodes"])?);
    let named = |name: &str| serde_json::from_value::<Node>(json!({"metadata": {"name": name}}));
    node.create(&PostParams::default(), &named("one")?).await.context("a node may make its own object")?;
    assert_eq!(refusal(node.create(&PostParams::default(), &named("two")?).await), refused);
    Ok(())
}

#[tokio::test]
async fn data_survives_the_death_of_the_api_server_and_of_etcd() -> anyhow::Result<()> {
    let plane = bare().await?;
    let client = plane.client()?;
    let maps: Api<ConfigMap> = Api::namespaced(client, "default");
    let mut versions = Vec::new();
    for (index, part) in [Part::ApiServer, Part::Etcd, Part::ApiServer].into_iter().enumerate() {
        let made = maps.create(&PostParams::default(), &config_map(&format!("map-{index}"))).await?;
        versions.push(made.metadata.resource_version.context("a version")?.parse::<u64>()?);
        let before = plane.process_id(part).context("it runs")?;
        plane.kill(part).await?;
        assert_eq!(plane.process_id(part), None);
        assert!(!Path::new(&format!("/proc/{before}")).exists());
        if part == Part::ApiServer {
            assert!(maps.get("map-0").await.is_err(), "nobody is there to answer");
        }
        plane.restart(part).await?;
        assert_ne!(plane.process_id(part), Some(before));
        eventually("everything that was acknowledged is there", async || {
            maps.list(&ListParams::default()).await.is_ok_and(|list| {
                let names = list.items.iter().filter_map(|map| map.metadata.name.as_deref());
                names.filter(|name| name.starts_with("map-")).count() == index + 1
            })
        })
        .await?;
    }
    assert!(versions.is_sorted_by(|a, b| a < b), "{versions:?}");
    plane.stop(Part::ApiServer).await?;
    plane.stop(Part::Etcd).await?;
    plane.restart(Part::Etcd).await?;
    plane.restart(Part::ApiServer).await?;
    maps.get("map-2").await.context("after an orderly stop, too")?;
    Ok(())
}

#[tokio::test]
async fn a_paused_part_answers_nothing_until_it_goes_on() -> anyhow::Result<()> {
    let plane = bare().await?;
    let namespaces: Api<Namespace> = Api::all(plane.client()?);
    for part in [Part::ApiServer, Part::Etcd] {
        plane.pause(part)?;
        let asked = Api::<ConfigMap>::namespaced(plane.client()?, "default");
        let unanswered = async { asked.create(&PostParams::default(), &config_map("late")).await };
        assert!(
            tokio::time::timeout(Duration::from_millis(300), unanswered).await.is_err(),
            "{part} is paused"
        );
        plane.resume(part)?;
        eventually("it answers again", async || namespaces.get("default").await.is_ok()).await?;
        drop(asked.delete("late", &DeleteParams::default()).await);
    }
    let error = plane.pause(Part::Scheduler).unwrap_err();
    assert_eq!(error.to_string(), "kube-scheduler is not running");
    Ok(())
}

#[tokio::test]
async fn the_api_server_says_how_many_requests_it_had() -> anyhow::Result<()> {
    let plane = bare().await?;
    let maps: Api<ConfigMap> = Api::namespaced(plane.client()?, "default");
    let before = plane.api_requests().await?;
    for index in 0..7 {
        maps.create(&PostParams::default(), &config_map(&format!("map-{index}"))).await?;
    }
    refusal(maps.create(&PostParams::default(), &config_map("map-0")).await);
    let added = plane.api_requests().await?.since(&before);
    assert_eq!(
        added.count(|request| request.resource == "configmaps" && request.code == 201),
        7,
        "{added:?}"
    );
    assert_eq!(added.writes("configmaps"), 8, "{added:?}");
    Ok(())
}

#[tokio::test]
async fn faults_do_to_real_traffic_what_they_say() -> anyhow::Result<()> {
    let plane = bare().await?;
    let faults = Faults::seeded(1);
    let maps: Api<ConfigMap> = Api::namespaced(plane.client_with(&faults)?, "default");
    let there: Api<ConfigMap> = Api::namespaced(plane.client()?, "default");
    let creates = Calls::of(Verb::Create).to("configmaps");
    let once = |rule: Rule| faults.add(rule.on(creates.clone()).times(1));
    let create = async |name: &str| maps.create(&PostParams::default(), &config_map(name)).await;
    let lost = |result: Result<ConfigMap, kube::Error>| match result {
        Err(kube::Error::Service(error)) => error.downcast_ref::<Lost>().copied(),
        _ => None,
    };

    once(Rule::lose_request());
    assert_eq!(lost(create("unsent").await), Some(Lost::Request));
    assert!(there.get_opt("unsent").await?.is_none());

    once(Rule::lose_answer());
    assert_eq!(lost(create("unheard").await), Some(Lost::Answer));
    assert!(there.get_opt("unheard").await?.is_some(), "the server did it");
    assert_eq!(refusal(create("unheard").await), (409, "AlreadyExists".to_owned()));

    once(Rule::duplicate(Answer::First));
    create("twice").await?;
    once(Rule::duplicate(Answer::Second));
    assert_eq!(refusal(create("twice-again").await), (409, "AlreadyExists".to_owned()));

    once(Rule::fail(StatusCode::TOO_MANY_REQUESTS));
    assert_eq!(refusal(create("refused").await), (429, "TooManyRequests".to_owned()));
    assert!(there.get_opt("refused").await?.is_none());

    let delayed = once(Rule::delay(Duration::from_secs(30)..=Duration::from_secs(30)));
    let never = tokio::time::timeout(Duration::from_millis(300), create("delayed")).await;
    assert!(never.is_err());
    assert_eq!(faults.struck(delayed), 1);
    assert!(there.get_opt("delayed").await?.is_none());

    assert_eq!(faults.tally(&creates), Tally { asked: 7, sent: 6 });
    Ok(())
}

#[tokio::test]
async fn watches_on_a_real_server_are_held_let_go_and_cut() -> anyhow::Result<()> {
    let plane = bare().await?;
    let faults = Faults::seeded(1);
    let watched: Api<ConfigMap> = Api::namespaced(plane.client_with(&faults)?, "default");
    let maps: Api<ConfigMap> = Api::namespaced(plane.client()?, "default");
    let version = maps.list(&ListParams::default()).await?.metadata.resource_version.context("a version")?;
    let parameters = WatchParams::default();
    let mut events = watched.watch(&parameters, &version).await?.boxed();

    let held = faults.hold_watches(Calls::all().to("configmaps"));
    for name in ["one", "two"] {
        maps.create(&PostParams::default(), &config_map(name)).await?;
    }
    assert!(tokio::time::timeout(Duration::from_millis(500), events.next()).await.is_err(), "nothing comes");
    assert_eq!(watched.list(&ListParams::default()).await?.items.len(), 2, "lists are not held");
    drop(held);
    for name in ["one", "two"] {
        match events.try_next().await? {
            Some(WatchEvent::Added(map)) => assert_eq!(map.metadata.name.as_deref(), Some(name)),
            other => panic!("expected {name}: {other:?}"),
        }
    }
    faults.cut_watches(&Calls::all());
    assert!(matches!(events.next().await, Some(Err(_)) | None), "a watch that was cut has ended");
    Ok(())
}

/// The processes of a control plane, with their names, so that a number that was given again is not mistaken.
fn processes(plane: &ControlPlane) -> Vec<(u32, String)> {
    Part::ALL
        .into_iter()
        .filter_map(|part| plane.process_id(part))
        .map(|id| (id, name_of(id).expect("it runs")))
        .collect()
}

fn name_of(id: u32) -> Option<String> {
    std::fs::read_to_string(format!("/proc/{id}/comm")).ok()
}

fn alive(processes: &[(u32, String)]) -> Vec<&(u32, String)> {
    processes.iter().filter(|(id, name)| name_of(*id).as_ref() == Some(name)).collect()
}

#[tokio::test]
async fn nothing_is_left_of_a_control_plane_that_is_dropped() -> anyhow::Result<()> {
    let plane = bare().await?;
    let (processes, directory) = (processes(&plane), plane.directory().to_owned());
    plane.pause(Part::Etcd)?;
    assert_eq!(alive(&processes).len(), 2);
    drop(plane);
    assert_eq!(alive(&processes), [] as [&(u32, String); 0]);
    assert!(!directory.exists());
    Ok(())
}

#[test]
fn after_a_panic_no_process_is_left_and_the_logs_are() {
    let (told, tell) = std::sync::mpsc::channel();
    let panicked = std::thread::spawn(move || {
        let runtime = tokio::runtime::Runtime::new().unwrap();
        runtime.block_on(async {
            let plane = bare().await.unwrap();
            told.send((processes(&plane), plane.directory().to_owned())).unwrap();
            panic!("on purpose, to see what is left");
        });
    });
    assert!(panicked.join().is_err());
    let (processes, directory) = tell.recv().unwrap();
    assert_eq!(processes.len(), 2);
    assert_eq!(alive(&processes), [] as [&(u32, String); 0]);
    let log = std::fs::read_to_string(directory.join("logs/kube-apiserver.log")).unwrap();
    assert!(log.contains("v1.35"), "the log has what the server said");
    assert!(!directory.join("etcd").exists(), "data is not kept");
    std::fs::remove_dir_all(directory).unwrap();
}

/// Another process that runs a control plane.
struct Elsewhere {
    child: Child,
    processes: Vec<(u32, String)>,
    logs: PathBuf,
}

impl Elsewhere {
    fn start() -> anyhow::Result<Self> {
        let mut child = Command::new(env!("CARGO_BIN_EXE_control-plane")).stdout(Stdio::piped()).spawn()?;
        let out = BufReader::new(child.stdout.take().context("its output")?);
        let (mut processes, mut logs) = (Vec::new(), PathBuf::new());
        for line in out.lines() {
            match line?.split(' ').collect::<Vec<_>>().as_slice() {
                ["process", id, _] => {
                    let id = id.parse()?;
                    processes.push((id, name_of(id).context("it runs")?));
                }
                ["logs", path] => logs = path.into(),
                ["ready;", ..] => return Ok(Self { child, processes, logs }),
                _ => {}
            }
        }
        bail!("it ended with {} before it was ready", child.wait()?)
    }
}

impl Drop for Elsewhere {
    fn drop(&mut self) {
        drop(self.child.kill().and_then(|()| self.child.wait()));
    }
}

#[tokio::test]
async fn no_process_outlives_a_test_process_that_is_killed() -> anyhow::Result<()> {
    let mut elsewhere = Elsewhere::start()?;
    assert_eq!(alive(&elsewhere.processes).len(), 3);
    elsewhere.child.kill()?;
    elsewhere.child.wait()?;
    eventually("all are gone", async || alive(&elsewhere.processes).is_empty()).await?;
    let directory = elsewhere.logs.parent().context("a directory")?;
    drop(bare().await?);
    assert!(!directory.join("etcd").exists(), "the next control plane removes what nobody could");
    assert!(elsewhere.logs.join("etcd.log").exists(), "and left the logs");
    std::fs::remove_dir_all(directory)?;
    Ok(())
}

#[tokio::test]
async fn nothing_is_left_after_an_interrupt() -> anyhow::Result<()> {
    let mut elsewhere = Elsewhere::start()?;
    let killed = Command::new("kill").args(["-INT", &elsewhere.child.id().to_string()]).status()?;
    assert!(killed.success() && elsewhere.child.wait()?.success());
    assert_eq!(alive(&elsewhere.processes), [] as [&(u32, String); 0]);
    assert!(!elsewhere.logs.exists());
    Ok(())
}
