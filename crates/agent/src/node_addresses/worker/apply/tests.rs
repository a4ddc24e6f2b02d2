//! What the record says of changes that NetworkManager was asked for, with a stand-in for the helper program.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tenure_handles::{SeededEntropy, SystemClock};
use tenure_localapi::LocalApi;
use tenure_watch::Connection;

use super::*;
use crate::node_addresses::kernel::Kernel;
use crate::node_addresses::manager::Manager;
use crate::node_addresses::record::Store;

const APPLIES: &str = "read order; echo '{\"applied\": true}'; read verb";
const COMMITS: &str = "echo '{\"committed\": true}'";

/// A worker whose helper does this.
fn worker(directory: &Path, script: &str) -> Worker {
    let client = LocalApi::temporary(SystemClock, SeededEntropy::new(7)).client();
    let clock: Arc<dyn tenure_handles::Clock> = Arc::new(SystemClock);
    Worker {
        connection: Connection::named(client, Arc::clone(&clock), "a test"),
        clock,
        kernel: Kernel::new(None),
        manager: Some(manager(directory, script)),
        store: Store::new(None),
        records: BTreeMap::new(),
        probe: Duration::from_secs(5),
        policies: BTreeMap::new(),
        logged: BTreeMap::new(),
        epoch: Box::new(|| unreachable!("nothing is reported")),
        written: Box::new(|_, _| {}),
    }
}

fn manager(directory: &Path, script: &str) -> Manager {
    let (program, bus) = (directory.join("helper"), directory.join("bus"));
    std::fs::write(&program, format!("#!/bin/sh\ncd {}\n{script}\n", directory.display())).unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::write(&bus, "").unwrap();
    Manager { program, bus }
}

fn configured(ip: &str) -> Configured {
    let state = json!({"interfaces": [
        {"name": "no-such-link", "ipv4": {"enabled": true, "address": [{"ip": ip, "prefix-length": 24}]}}
    ]});
    Configured { generation: 1, mode: Mode::NetworkManager, desired: addresses_of(&state), state }
}

fn record(trying: Option<Configured>) -> Record {
    Record {
        uid: "u".to_owned(),
        name: "n.p".to_owned(),
        policy: "p".to_owned(),
        confirmed: None,
        trying: trying.map(|to| Trying { to, before: Vec::new() }),
    }
}

#[tokio::test]
async fn a_change_whose_confirmation_was_not_answered_stays_on_record() {
    let directory = tempfile::tempdir().unwrap();
    let mut worker = worker(directory.path(), APPLIES);
    let failed = worker.by_manager(record(None), configured("192.0.2.77")).await.unwrap_err();
    assert!(failed.message.contains("without an answer"), "{failed:?}");
    let kept = worker.records["u"].clone();
    assert_eq!(kept.addresses().map(|it| it.1.to_string()).collect::<Vec<_>>(), ["192.0.2.77/24"]);
    // So deleting the enactment takes it out of the profiles.
    worker.manager =
        Some(manager(directory.path(), &format!("{APPLIES}\necho \"$1 $order\" > said\n{COMMITS}")));
    worker.take_off(None, Some(&kept)).await.unwrap();
    let said = std::fs::read_to_string(directory.path().join("said")).unwrap();
    assert!(said.starts_with("remove ") && said.contains("192.0.2.77"), "{said}");
    assert!(worker.records.is_empty());
}

#[tokio::test]
async fn what_was_tried_stays_on_record_until_it_is_out_of_the_profiles() {
    let directory = tempfile::tempdir().unwrap();
    let inactive =
        "read order; echo '{\"error\": {\"reason\": \"profileInactive\", \"message\": \"not active\"}}'";
    let mut worker = worker(directory.path(), inactive);
    let tried = record(Some(configured("192.0.2.77")));
    worker.records.insert("u".to_owned(), tried.clone());
    // No interface has it now: one without carrier could have it later.
    let Done::Held { record, .. } = worker.hold(tried.clone()).await else { panic!() };
    assert_eq!((record.clone(), worker.records.get("u")), (tried.clone(), Some(&tried)));
    worker.manager = Some(manager(directory.path(), &format!("{APPLIES}\n{COMMITS}")));
    let Done::Held { record, .. } = worker.hold(record).await else { panic!() };
    assert_eq!((record.trying, worker.records.get("u")), (None, None));
}

#[tokio::test]
async fn an_address_that_another_interface_of_the_node_has_is_refused_before_the_helper_is_asked() {
    let directory = tempfile::tempdir().unwrap();
    let mut worker = worker(directory.path(), &format!("touch asked\n{APPLIES}\n{COMMITS}"));
    let all = worker.kernel.look([]).await.unwrap();
    let Some(address) = all.iter().flat_map(|it| &it.addresses).find(|it| it.address.addr().is_ipv4()) else {
        panic!("this host has no IPv4 address, not even on lo")
    };
    let ip = address.address.addr().to_string();
    let failed = worker.by_manager(record(None), configured(&ip)).await.unwrap_err();
    assert!(failed.message.contains("of this node already"), "{failed:?}");
    assert!(!directory.path().join("asked").exists() && worker.records.is_empty());
}
