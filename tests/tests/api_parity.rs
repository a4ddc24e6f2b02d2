//! One suite, two servers: the scenarios of `tenure_testbed::suite` against kube-apiserver and against the embedded
//! server, live. Holds the recordings true that `tenure-localapi` compares itself with when there is no real server.
//!
//! `TENURE_RECORD=1 cargo test -p tenure-tests --test api_parity` writes the recordings anew.

use tenure_handles::{SeededEntropy, SystemClock};
use tenure_localapi::LocalApi;
use tenure_testbed::control_plane::{ControlPlane, ControlPlaneOptions, Part};
use tenure_testbed::suite::{self, Scenario, Transcript};

/// Garbage collection and the deletion of namespaces are what the embedded server does, too; other controllers would
/// only get in the way of objects that are to stay as they are.
async fn control_plane() -> ControlPlane {
    let manager = [
        "--controllers=garbage-collector-controller,namespace-controller",
        "--kube-api-qps=300",
        "--kube-api-burst=600",
    ];
    let options = manager.iter().fold(ControlPlaneOptions::default(), |options, argument| {
        options.argument(Part::ControllerManager, *argument)
    });
    ControlPlane::start(options).await.unwrap()
}

/// A client that shows every answer: the usual one would repeat a request that was answered with 429, 503 or 504.
fn client(plane: &ControlPlane) -> kube::Client {
    let mut config = plane.config().unwrap();
    config.default_retry = false;
    kube::Client::try_from(config).unwrap()
}

/// The transcripts of the real server, which must be those that were recorded.
async fn real(plane: &ControlPlane, scenarios: &[Scenario]) -> Vec<Transcript> {
    let transcripts = suite::run(&client(plane), scenarios).await;
    let stopped: Vec<_> =
        transcripts.iter().filter_map(|one| one.stopped.as_ref().map(|why| (&one.scenario, why))).collect();
    assert!(stopped.is_empty(), "scenarios that the real server did not let go to their end: {stopped:#?}");
    if std::env::var_os(suite::recordings::RECORD).is_some() {
        suite::recordings::save(&transcripts).unwrap();
    }
    let recorded = suite::recordings::load(scenarios).unwrap();
    let report = suite::report(&recorded, &transcripts);
    assert!(
        report.is_empty(),
        "the recordings are stale; set {}=1 to write new ones\n- recorded, + kube-apiserver now\n{report}",
        suite::recordings::RECORD
    );
    transcripts
}

async fn compare(plane: &ControlPlane, api: &LocalApi, scenarios: &[Scenario]) {
    let real = real(plane, scenarios).await;
    let embedded = suite::run(&api.client(), scenarios).await;
    let expected: Vec<_> = real.into_iter().map(Some).collect();
    let report = suite::report(&expected, &embedded);
    assert!(report.is_empty(), "- kube-apiserver, + localapi\n{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn both_servers_answer_every_scenario_alike() {
    let plane = control_plane().await;
    let api = LocalApi::temporary(SystemClock, SeededEntropy::new(1));
    compare(&plane, &api, &suite::scenarios()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn both_servers_expire_what_they_have_forgotten() {
    let plane = control_plane().await;
    // What was written before its start, kube-apiserver does not remember.
    plane.restart(Part::ApiServer).await.unwrap();
    let api = tenure_localapi::Options::default()
        .history(suite::SHORT_MEMORY)
        .temporary(SystemClock, SeededEntropy::new(1));
    compare(&plane, &api, &suite::forgetful_scenarios()).await;
}

/// Walks on each server, as many as take a few seconds; a walk replays from its seed alone.
const WALKS: std::ops::Range<u64> = 0..40;
const STEPS: usize = 60;
/// The real server answers some requests from a cache that may lag behind its last write, about once in ten thousand:
/// what differs counts when it differs again.
const ATTEMPTS: usize = 2;

/// What `walk` leaves differently on the two servers, from every seed.
async fn compare_walks(walk: impl AsyncFn(kube::Client, u64, usize) -> Transcript) -> String {
    let plane = control_plane().await;
    let api = LocalApi::temporary(SystemClock, SeededEntropy::new(1));
    let (real, embedded) = (client(&plane), api.client());
    let mut report = Vec::new();
    for seed in WALKS {
        let mut mismatch = None;
        for attempt in 0..ATTEMPTS {
            let (expected, got) =
                tokio::join!(walk(real.clone(), seed, attempt), walk(embedded.clone(), seed, attempt));
            assert_eq!(
                expected.stopped, None,
                "the walk from seed {seed} did not come to its end on kube-apiserver"
            );
            mismatch = suite::compare(&expected, &got);
            if mismatch.is_none() {
                break;
            }
        }
        report.extend(mismatch.map(|mismatch| mismatch.to_string()));
    }
    report.concat()
}

#[tokio::test(flavor = "multi_thread")]
async fn random_walks_leave_the_same_traces_on_both_servers() {
    let walk = async |client: kube::Client, seed, attempt| suite::walk(&client, seed, STEPS, attempt).await;
    let report = compare_walks(walk).await;
    assert!(report.is_empty(), "- kube-apiserver, + localapi\n{report}");
}

#[tokio::test(flavor = "multi_thread")]
async fn random_pools_are_judged_alike_by_both_servers() {
    let walk =
        async |client: kube::Client, seed, attempt| suite::pool_walk(&client, seed, STEPS, attempt).await;
    let report = compare_walks(walk).await;
    assert!(report.is_empty(), "- kube-apiserver, + localapi\n{report}");
}
