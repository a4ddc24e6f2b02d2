//! A whole host without an agent: pools come and go with their files, and everything survives a restart.

use std::fs;
use std::path::Path;
use std::time::Duration;

use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Node;
use kube::api::{DeleteParams, PostParams};
use kube::{Api, ResourceExt};
use tempfile::TempDir;
use tenure_api::coil::{
    AddressBlock, AddressPool, AddressPoolSpec, BlockRequest, BlockRequestSpec, SubnetSet,
};
use tenure_handles::{SeededEntropy, SystemClock};

use super::*;

/// Much longer than two looks.
const PATIENCE: Duration = Duration::from_mins(5);

struct HostDirectories {
    root: TempDir,
}

impl HostDirectories {
    fn new() -> Self {
        let place = Self { root: tempfile::tempdir().unwrap() };
        fs::create_dir(place.pools()).unwrap();
        place
    }

    fn pools(&self) -> PathBuf {
        self.root.path().join("pools")
    }

    fn options(&self) -> StandaloneOptions {
        StandaloneOptions {
            state_dir: self.root.path().join("state"),
            pools_dir: self.pools(),
            run_dir: self.root.path().join("run"),
            node: None,
            hostname: "Box".to_owned(),
            whereabouts_namespace: "kube-system".to_owned(),
        }
    }

    fn pool(&self, file: &str, name: &str, subnet: &str) {
        fs::write(self.pools().join(file), manifest(name, subnet)).unwrap();
    }

    async fn start(&self) -> (Standalone, CancellationToken) {
        let stop = CancellationToken::new();
        let started =
            Standalone::start(self.options(), SystemClock, SeededEntropy::new(1), stop.clone()).await;
        (started.unwrap(), stop)
    }
}

fn manifest(name: &str, subnet: &str) -> String {
    format!(
        "apiVersion: coil.cybozu.com/v2\nkind: AddressPool\nmetadata:\n  name: {name}\nspec:\n  blockSizeBits: 2\n  subnets:\n    - ipv4: {subnet}\n"
    )
}

async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let found = async {
        loop {
            if let Some(found) = look().await {
                return found;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(PATIENCE, found).await.unwrap_or_else(|_| panic!("not seen: {what}"))
}

async fn pool_of(pools: &Api<AddressPool>, name: &str) -> AddressPool {
    eventually(name, async || pools.get_opt(name).await.unwrap()).await
}

async fn gone(pools: &Api<AddressPool>, name: &str) {
    eventually("it is gone", async || pools.get_opt(name).await.unwrap().is_none().then_some(())).await;
}

/// Asks for a block as the agent does.
async fn block_for(client: &Client, node: &str, pool: &str, request: &str) -> String {
    let requests: Api<BlockRequest> = Api::all(client.clone());
    let spec = BlockRequestSpec { node_name: node.to_owned(), pool_name: pool.to_owned() };
    requests.create(&PostParams::default(), &BlockRequest::new(request, spec)).await.unwrap();
    let blocks: Api<AddressBlock> = Api::all(client.clone());
    eventually("the block", async || {
        let status = requests.get(request).await.unwrap().status?;
        let name = status.address_block_name.filter(|name| !name.is_empty())?;
        blocks.get_opt(&name).await.unwrap().map(|_| name)
    })
    .await
}

async fn finish(standalone: Standalone, stop: CancellationToken) {
    stop.cancel();
    standalone.wait().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn pools_come_change_and_go_with_their_files() {
    let place = HostDirectories::new();
    let (standalone, stop) = place.start().await;
    let pools: Api<AddressPool> = Api::all(standalone.client());

    place.pool("default.yaml", "default", "10.1.0.0/24");
    let pool = pool_of(&pools, "default").await;
    assert_eq!(pool.annotations()[POOL_FILE], "default.yaml");
    let more = manifest("default", "10.1.0.0/24") + "    - ipv4: 10.2.0.0/24\n";
    fs::write(place.pools().join("default.yaml"), more).unwrap();
    eventually("the second subnet", async || {
        (pools.get("default").await.unwrap().spec.subnets.len() == 2).then_some(())
    })
    .await;

    fs::rename(place.pools().join("default.yaml"), place.pools().join("renamed.yaml")).unwrap();
    eventually("the new file's name", async || {
        let now = pools.get("default").await.unwrap();
        assert_eq!(now.uid(), pool.uid(), "a renamed file does not make another pool");
        (now.annotations()[POOL_FILE] == "renamed.yaml").then_some(())
    })
    .await;

    fs::remove_file(place.pools().join("renamed.yaml")).unwrap();
    gone(&pools, "default").await;
    finish(standalone, stop).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_file_is_told_of_and_changes_nothing() {
    let place = HostDirectories::new();
    place.pool("a.yaml", "default", "10.1.0.0/24");
    let (standalone, stop) = place.start().await;
    let pools: Api<AddressPool> = Api::all(standalone.client());
    let before = pool_of(&pools, "default").await;

    // The second document cannot be; so the first, which could, is not either.
    let both = format!("{}---\n{}", manifest("new", "10.3.0.0/24"), manifest("default", "10.9.0.0/24"));
    let mut mistakes = standalone.mistakes();
    fs::write(place.pools().join("a.yaml"), both).unwrap();
    let told =
        tokio::time::timeout(PATIENCE, mistakes.wait_for(|all| !all.is_empty())).await.unwrap().unwrap()[0]
            .to_string();
    assert!(told.starts_with("pool file a.yaml, document 2: ") && told.contains("spec.subnets"), "{told}");
    assert!(pools.get_opt("new").await.unwrap().is_none());
    assert_eq!(pools.get("default").await.unwrap().spec, before.spec);

    fs::write(place.pools().join("a.yaml"), "").unwrap();
    mistakes.changed().await.unwrap();
    assert!(mistakes.borrow()[0].problem.starts_with("is empty"), "{:?}", mistakes.borrow());

    place.pool("a.yaml", "default", "10.1.0.0/24");
    tokio::time::timeout(PATIENCE, mistakes.wait_for(Vec::is_empty)).await.unwrap().unwrap();
    assert_eq!(pools.get("default").await.unwrap().uid(), before.uid());
    finish(standalone, stop).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pool_in_use_waits_for_its_blocks_and_pools_made_otherwise_are_left_alone() {
    let place = HostDirectories::new();
    place.pool("a.yaml", "default", "10.1.0.0/24");
    let (standalone, stop) = place.start().await;
    let pools: Api<AddressPool> = Api::all(standalone.client());
    let blocks: Api<AddressBlock> = Api::all(standalone.client());
    pool_of(&pools, "default").await;
    let subnets = vec![SubnetSet { ipv4: Some("10.8.0.0/24".to_owned()), ipv6: None }];
    let by_hand = AddressPool::new("by-hand", AddressPoolSpec { subnets, ..AddressPoolSpec::default() });
    pools.create(&PostParams::default(), &by_hand).await.unwrap();
    let block = block_for(&standalone.client(), standalone.node(), "default", "one").await;

    fs::remove_file(place.pools().join("a.yaml")).unwrap();
    eventually("it is being deleted", async || {
        pools.get("default").await.unwrap().metadata.deletion_timestamp.map(|_| ())
    })
    .await;
    assert!(blocks.get_opt(&block).await.unwrap().is_some());
    let mut object = blocks.get(&block).await.unwrap();
    object.metadata.finalizers = None;
    blocks.replace(&block, &PostParams::default(), &object).await.unwrap();
    blocks.delete(&block, &DeleteParams::default()).await.unwrap();
    gone(&pools, "default").await;
    assert!(pools.get_opt("by-hand").await.unwrap().is_some());
    finish(standalone, stop).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_finds_everything_and_leads_at_once_even_after_a_crash() {
    let place = HostDirectories::new();
    place.pool("a.yaml", "default", "10.1.0.0/24");
    let (first, _) = place.start().await;
    let pools: Api<AddressPool> = Api::all(first.client());
    pool_of(&pools, "default").await;
    let node: Node = Api::all(first.client()).get("box").await.unwrap();
    let block = block_for(&first.client(), "box", "default", "one").await;
    // As a crash: the lease is not released.
    let api = first.api.clone();
    drop(first);
    api.close();

    let mut options = place.options();
    options.hostname = "renamed".to_owned();
    let stop = CancellationToken::new();
    let second = Standalone::start(options, SystemClock, SeededEntropy::new(2), stop.clone()).await.unwrap();
    assert_eq!(second.node(), "box", "a new hostname does not make another host");
    let again: Node = Api::all(second.client()).get("box").await.unwrap();
    assert_eq!(again.uid(), node.uid());
    let blocks: Api<AddressBlock> = Api::all(second.client());
    assert!(blocks.get_opt(&block).await.unwrap().is_some(), "the block is still this host's");
    block_for(&second.client(), "box", "default", "two").await;
    let leases: Api<Lease> = Api::namespaced(second.client(), "kube-system");
    let lease = leases.get("coil-ipam-leader").await.unwrap().spec.unwrap();
    assert_eq!(lease.holder_identity.as_deref(), Some("box_standalone"));
    assert_eq!(lease.lease_transitions, Some(0), "it takes the lease for its own and waits for nobody");
    finish(second, stop).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_directory_is_one_processs_and_one_hosts() {
    let place = HostDirectories::new();
    let (first, stop) = place.start().await;
    let start =
        |options| Standalone::start(options, SystemClock, SeededEntropy::new(2), CancellationToken::new());
    let mut elsewhere = place.options();
    elsewhere.run_dir = place.root.path().join("other-run");
    let refused = start(elsewhere).await.unwrap_err();
    assert!(matches!(refused, Error::InUse(_)), "{refused}");
    assert!(refused.to_string().contains("--state-dir"), "{refused}");

    let mut same_run = place.options();
    same_run.state_dir = place.root.path().join("other-state");
    let refused = start(same_run).await.unwrap_err();
    assert!(matches!(refused, Error::Serve(ServeError::InUse(_))), "{refused}");

    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let options = place.options();
    assert_eq!(mode(&options.run_dir.join("api.sock")), 0o600);
    assert_eq!((mode(&options.run_dir), mode(&options.state_dir)), (0o700, 0o700));
    finish(first, stop).await;
    assert!(!options.run_dir.join("api.sock").exists());

    let mut named = place.options();
    named.node = Some("another".to_owned());
    let refused = start(named).await.unwrap_err().to_string();
    assert!(refused.contains("\"another\"") && refused.contains("\"box\""), "{refused}");
}

#[tokio::test(flavor = "multi_thread")]
async fn pools_stay_when_their_directory_goes_and_follow_it_when_it_comes_back() {
    let place = HostDirectories::new();
    place.pool("a.yaml", "default", "10.1.0.0/24");
    let (standalone, stop) = place.start().await;
    let pools: Api<AddressPool> = Api::all(standalone.client());
    let pool = pool_of(&pools, "default").await;
    let away = place.root.path().join("away");
    fs::rename(place.pools(), &away).unwrap();
    // Two looks and what makes them certain.
    tokio::time::sleep(Duration::from_millis(1_500)).await;
    fs::create_dir(place.pools()).unwrap();
    fs::rename(away.join("a.yaml"), place.pools().join("a.yaml")).unwrap();
    place.pool("b.yaml", "second", "10.2.0.0/24");
    pool_of(&pools, "second").await;
    assert_eq!(pools.get("default").await.unwrap().uid(), pool.uid());
    finish(standalone, stop).await;
}
