//! The embedded server answers as the real one does: every scenario of the test bed's suite, compared with the
//! recordings of kube-apiserver. `tests/tests/api_parity.rs` makes the recordings and keeps them true.
#![allow(clippy::unwrap_used, reason = "tests and their helpers may")]

use tenure_handles::{SeededEntropy, SystemClock};
use tenure_localapi::{LocalApi, Options, Server};
use tenure_testbed::clock::RuntimeClock;
use tenure_testbed::suite::{self, Scenario};

async fn agrees(client: &kube::Client, scenarios: &[Scenario]) {
    let recorded = suite::recordings::load(scenarios).unwrap();
    let got = suite::run(client, scenarios).await;
    let report = suite::report(&recorded, &got);
    assert!(report.is_empty(), "- kube-apiserver, + localapi\n{report}");
}

#[tokio::test(start_paused = true)]
async fn every_scenario_is_answered_as_kube_apiserver_answers_it() {
    let api = LocalApi::temporary(RuntimeClock, SeededEntropy::new(1));
    agrees(&api.client(), &suite::scenarios()).await;
}

#[tokio::test(start_paused = true)]
async fn what_is_too_old_is_expired_as_kube_apiserver_expires_it() {
    let api = Options::default().history(suite::SHORT_MEMORY).temporary(RuntimeClock, SeededEntropy::new(1));
    agrees(&api.client(), &suite::forgetful_scenarios()).await;
}

/// The socket adds nothing and takes nothing away: requests of every kind through a port, from a file.
#[tokio::test]
async fn a_port_and_a_file_answer_as_the_process_does() {
    let directory = tempfile::tempdir().unwrap();
    let api = LocalApi::open(directory.path().join("api.redb"), SystemClock, SeededEntropy::new(2)).unwrap();
    let server = Server::loopback(api, "127.0.0.1:0".parse().unwrap()).await.unwrap();
    let url = format!("http://{}", server.address().unwrap());
    let mut config = kube::Config::new(url.parse().unwrap());
    config.default_retry = false;
    let client = kube::Client::try_from(config).unwrap();
    // The areas that need no pauses: the others are the same code below the socket.
    let areas = ["objects", "conflicts", "patches", "lists", "bad_requests", "discovery", "tables", "rules"];
    let scenarios: Vec<Scenario> =
        suite::scenarios().into_iter().filter(|scenario| areas.contains(&scenario.area)).collect();
    agrees(&client, &scenarios).await;
}
