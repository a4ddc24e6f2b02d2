//! The program itself: its flags, and a life from start to SIGTERM.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test says what is wrong by failing")]
#![allow(clippy::wildcard_imports, reason = "the bed is made for these tests")]

use std::process::{Command, Output, Stdio};

use bed::*;
use k8s_openapi::api::coordination::v1::Lease;
use kube::Api;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use tenure_controller_testbed as bed;
use tenure_localapi::Server;

const PROGRAM: &str = env!("CARGO_BIN_EXE_tenure-controller");

fn run(arguments: &[&str]) -> Output {
    Command::new(PROGRAM).args(arguments).env_remove("KUBECONFIG").output().unwrap()
}

#[test]
fn a_bad_flag_is_refused_with_what_would_be_accepted() {
    for (arguments, expected) in [
        (&["--lease-duration", "soon"][..], "accepted are such as 500ms, 10s and 1m30s"),
        (&["--retry-period=-1s"][..], "\"-1s\" is no duration"),
        (
            &["--lease-duration", "5s", "--renew-deadline", "10s"][..],
            "accepted is a deadline shorter than the lease",
        ),
        (&["--workers", "0"][..], "0 is not in 1..=1024"),
        (&["--kubeconfig", "/nowhere/at/all"][..], "reading /nowhere/at/all"),
    ] {
        let output = run(arguments);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && said.contains(expected), "{arguments:?}: {said}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_program_serves_requests_and_releases_its_lease_at_sigterm() {
    let api = server(21).await;
    let client = api.client();
    let serving = Server::loopback(api, "127.0.0.1:0".parse().unwrap()).await.unwrap();
    let directory = tempfile::tempdir().unwrap();
    let kubeconfig = directory.path().join("kubeconfig");
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "local",
        "clusters": [{"name": "local", "cluster": {"server": format!("http://{}", serving.address().unwrap())}}],
        "users": [{"name": "local", "user": {}}],
        "contexts": [{"name": "local", "context": {"cluster": "local", "user": "local"}}],
    });
    std::fs::write(&kubeconfig, config.to_string()).unwrap();
    pool(&client, "default", 5, "10.20.0.0/16").await;
    node(&client, "node1").await;
    ask(&client, "r", "node1", "default").await;
    let mut program = Command::new(PROGRAM)
        .arg("--kubeconfig")
        .arg(&kubeconfig)
        .args(["--metrics-address", "127.0.0.1:0", "--log-format", "json"])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let answered = answer(&client, "r").await;
    kill(Pid::from_raw(program.id().try_into().unwrap()), Signal::SIGTERM).unwrap();
    let ended = tokio::task::spawn_blocking(move || program.wait().unwrap()).await.unwrap();
    assert_eq!(answered, Ok("default-0".to_owned()));
    assert!(ended.success(), "{ended}");
    let leases: Api<Lease> = Api::namespaced(client, "kube-system");
    let lease = leases.get("coil-ipam-leader").await.unwrap().spec.unwrap();
    assert_eq!(lease.holder_identity, None);
    serving.stop().await;
}
