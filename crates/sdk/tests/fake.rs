//! Google's own SDK calls every endpoint of the fake that Tenure uses, and understands the answers: what Tenure is tested against is what
//! Google's clients expect. Tokens come from the fake's metadata server, by Google's own library.

use google_cloud_auth::credentials::{Credentials, anonymous, mds};
use google_cloud_compute_v1::client::{Instances, RegionOperations, Subnetworks, ZoneOperations};
use google_cloud_compute_v1::model::operation::Status;
use google_cloud_compute_v1::model::{
    AliasIpRange, NetworkInterface, Operation, Subnetwork, SubnetworkSecondaryRange,
};
use google_cloud_gax::error::Error;
use google_cloud_lro::Poller as _;
use google_cloud_networkconnectivity_v1::client::InternalRangeService;
use google_cloud_networkconnectivity_v1::model::InternalRange;
use google_cloud_networkconnectivity_v1::model::internal_range::{Peering, Usage};
use tenure_fake_cloud::{Call, FakeCloud, Fault, Harm, PROJECT, Settings};

const REGION: &str = "europe-west4";
const ZONE: &str = "europe-west4-a";
const SUBNET: &str = "nodes";
const RANGE: &str = "live";
const NETWORK: &str = "projects/test-project/global/networks/default";

/// The fake, with a subnet, a secondary range 10.111.0.0/16 and machines `a` and `b`; and what the SDK needs to call it.
struct Bed {
    fake: FakeCloud,
    endpoint: String,
    credentials: Credentials,
}

impl Bed {
    async fn new() -> Self {
        // A process has one; another test may have been first.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let fake = FakeCloud::start(Settings::default()).await.unwrap();
        fake.add_subnet(REGION, SUBNET, "10.0.0.0/24").unwrap();
        fake.add_secondary_range(REGION, SUBNET, RANGE, "10.111.0.0/16").unwrap();
        for machine in ["a", "b"] {
            fake.add_instance(ZONE, machine, SUBNET);
        }
        let metadata = format!("http://{}", fake.metadata(ZONE, "a").await.unwrap());
        let credentials = mds::Builder::default().with_endpoint(metadata).build().unwrap();
        let endpoint = fake.compute().strip_suffix("/compute/v1").unwrap().to_owned();
        Self { fake, endpoint, credentials }
    }

    async fn instances(&self) -> Instances {
        let builder = Instances::builder().with_endpoint(&self.endpoint);
        builder.with_credentials(self.credentials.clone()).build().await.unwrap()
    }

    async fn zone_operations(&self) -> ZoneOperations {
        let builder = ZoneOperations::builder().with_endpoint(&self.endpoint);
        builder.with_credentials(self.credentials.clone()).build().await.unwrap()
    }

    /// The interface of a machine.
    async fn interface(&self, machine: &str) -> NetworkInterface {
        let get = self.instances().await.get().set_project(PROJECT).set_zone(ZONE).set_instance(machine);
        get.send().await.unwrap().network_interfaces.into_iter().next().unwrap()
    }

    /// Asks for this list of aliases on the interface of a machine, as it is now.
    async fn update(&self, machine: &str, aliases: &[&str], request: u32) -> Operation {
        let fingerprint = self.interface(machine).await.fingerprint.unwrap();
        let body = NetworkInterface::new().set_fingerprint(fingerprint).set_alias_ip_ranges(ranges(aliases));
        self.send_update(machine, body, request).await.unwrap()
    }

    async fn send_update(
        &self,
        machine: &str,
        body: NetworkInterface,
        request: u32,
    ) -> Result<Operation, Error> {
        let update = self.instances().await.update_network_interface();
        let update = update.set_project(PROJECT).set_zone(ZONE).set_instance(machine);
        let update = update.set_network_interface("nic0").set_request_id(uuid(request)).set_body(body);
        update.send().await
    }

    /// Waits for the end of an operation of the zone.
    async fn done(&self, operation: &Operation) -> Operation {
        let wait = self.zone_operations().await.wait().set_project(PROJECT).set_zone(ZONE);
        let ended = wait.set_operation(operation.name.clone().unwrap()).send().await.unwrap();
        assert_eq!(ended.status, Some(Status::Done));
        ended
    }
}

fn ranges(aliases: &[&str]) -> Vec<AliasIpRange> {
    let range = |cidr: &&str| AliasIpRange::new().set_ip_cidr_range(*cidr).set_subnetwork_range_name(RANGE);
    aliases.iter().map(range).collect()
}

fn uuid(number: u32) -> String {
    format!("7d2f4a16-9d3e-4c55-8b52-{number:012}")
}

#[tokio::test(flavor = "multi_thread")]
async fn an_instance_is_read_and_listed_with_its_aliases() {
    let bed = Bed::new().await;
    bed.fake.set_aliases(ZONE, "a", &[("10.111.0.5/32", RANGE)]).unwrap();
    let interface = bed.interface("a").await;
    assert_eq!(interface.name.as_deref(), Some("nic0"));
    assert_eq!(interface.alias_ip_ranges, ranges(&["10.111.0.5/32"]));
    assert!(interface.subnetwork.unwrap().ends_with("/regions/europe-west4/subnetworks/nodes"));
    let listed = bed.instances().await.aggregated_list().set_project(PROJECT).send().await.unwrap();
    let zone = &listed.items[&format!("zones/{ZONE}")];
    let names: Vec<&str> = zone.instances.iter().filter_map(|it| it.name.as_deref()).collect();
    assert_eq!(names, ["a", "b"]);
    assert_eq!(zone.instances[0].network_interfaces[0].alias_ip_ranges, ranges(&["10.111.0.5/32"]));
    let missing =
        bed.instances().await.get().set_project(PROJECT).set_zone(ZONE).set_instance("c").send().await;
    assert_eq!(missing.unwrap_err().http_status_code(), Some(404));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_update_is_followed_to_its_end_in_every_way() {
    let bed = Bed::new().await;
    let operation = bed.update("a", &["10.111.0.5/32", "10.111.1.0/28"], 1).await;
    assert_eq!(operation.client_operation_id, Some(uuid(1)));
    assert_eq!(operation.operation_type.as_deref(), Some("updateNetworkInterface"));
    let name = operation.name.clone().unwrap();
    let operations = bed.zone_operations().await;
    let unfinished =
        || operations.list().set_project(PROJECT).set_zone(ZONE).set_filter("status != \"DONE\"");
    let names = |items: Vec<Operation>| items.into_iter().filter_map(|it| it.name).collect::<Vec<_>>();
    let ended = bed.done(&operation).await;
    assert_eq!((ended.progress, ended.error), (Some(100), None));
    let got = operations.get().set_project(PROJECT).set_zone(ZONE).set_operation(&name).send().await.unwrap();
    assert_eq!(got.status, Some(Status::Done));
    assert!(unfinished().send().await.unwrap().items.is_empty());
    assert_eq!(bed.interface("a").await.alias_ip_ranges, ranges(&["10.111.0.5/32", "10.111.1.0/28"]));

    // The SDK's own way to follow an operation.
    let body = bed.interface("a").await;
    let body = NetworkInterface::new()
        .set_fingerprint(body.fingerprint.unwrap())
        .set_alias_ip_ranges(ranges(&["10.111.0.5/32"]));
    let update = bed
        .instances()
        .await
        .update_network_interface()
        .set_project(PROJECT)
        .set_zone(ZONE)
        .set_instance("a");
    let update = update.set_network_interface("nic0").set_request_id(uuid(2)).set_body(body);
    let ended = update.poller().until_done().await.unwrap();
    assert_eq!(ended.status, Some(Status::Done));
    assert_eq!(bed.fake.aliases(ZONE, "a").into_iter().collect::<Vec<_>>(), ["10.111.0.5/32"]);

    bed.fake.harm(Fault::once(Call::UpdateInterface, Harm::Endless));
    let endless = bed.update("b", &["10.111.0.6/32"], 3).await;
    assert_eq!(endless.status, Some(Status::Running));
    assert_eq!(names(unfinished().send().await.unwrap().items), [endless.name.unwrap()]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_repeated_request_is_the_same_operation() {
    let bed = Bed::new().await;
    let body = NetworkInterface::new().set_fingerprint(bed.interface("a").await.fingerprint.unwrap());
    let body = body.set_alias_ip_ranges(ranges(&["10.111.0.5/32"]));
    let first = bed.send_update("a", body.clone(), 1).await.unwrap();
    let again = bed.send_update("a", body, 1).await.unwrap();
    assert_eq!(again.name, first.name);
}

#[tokio::test(flavor = "multi_thread")]
async fn refusals_are_errors_of_the_sdk() {
    let bed = Bed::new().await;
    let old = bed.interface("a").await.fingerprint.unwrap();
    bed.done(&bed.update("a", &["10.111.0.5/32"], 1).await).await;
    let body = NetworkInterface::new().set_fingerprint(old).set_alias_ip_ranges(ranges(&["10.111.0.6/32"]));
    let stale = bed.send_update("a", body, 2).await.unwrap_err();
    assert_eq!(stale.http_status_code(), Some(412), "{stale}");
    assert!(stale.to_string().contains("Invalid fingerprint."), "{stale}");

    let ended = bed.done(&bed.update("b", &["10.111.0.5/32"], 3).await).await;
    let errors = ended.error.unwrap().errors;
    assert_eq!(errors[0].code.as_deref(), Some("IP_IN_USE_BY_ANOTHER_RESOURCE"));
    assert_eq!(ended.http_error_status_code, Some(400));
    bed.fake.harm(Fault::refused(Call::GetInstance, 403, "rateLimitExceeded", "Quota exceeded"));
    let throttled =
        bed.instances().await.get().set_project(PROJECT).set_zone(ZONE).set_instance("a").send().await;
    assert_eq!(throttled.unwrap_err().http_status_code(), Some(403));
    let nobody =
        Instances::builder().with_endpoint(&bed.endpoint).with_credentials(anonymous::Builder::new().build());
    let nobody = nobody
        .build()
        .await
        .unwrap()
        .get()
        .set_project(PROJECT)
        .set_zone(ZONE)
        .set_instance("a")
        .send()
        .await;
    assert_eq!(nobody.unwrap_err().http_status_code(), Some(401));
}

/// Why Tenure has a client of its own.
#[tokio::test(flavor = "multi_thread")]
async fn the_sdk_leaves_an_empty_list_out_so_the_last_alias_stays() {
    let bed = Bed::new().await;
    bed.done(&bed.update("a", &["10.111.0.5/32"], 1).await).await;
    let ended = bed.done(&bed.update("a", &[], 2).await).await;
    assert_eq!(ended.error, None);
    assert_eq!(bed.interface("a").await.alias_ip_ranges, ranges(&["10.111.0.5/32"]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_secondary_range_is_linked_to_a_reservation() {
    let bed = Bed::new().await;
    let endpoint = bed.fake.connectivity().strip_suffix("/v1").unwrap().to_owned();
    let reservations = InternalRangeService::builder().with_endpoint(endpoint);
    let reservations = reservations.with_credentials(bed.credentials.clone()).build().await.unwrap();
    let parent = format!("projects/{PROJECT}/locations/global");
    let name = format!("{parent}/internalRanges/tenure");
    let missing = reservations.get_internal_range().set_name(&name).send().await.unwrap_err();
    assert_eq!(missing.http_status_code(), Some(404));
    let wanted =
        InternalRange::new().set_network(NETWORK).set_usage(Usage::ForVpc).set_peering(Peering::ForSelf);
    let wanted = wanted.set_prefix_length(20).set_target_cidr_range(["10.128.0.0/9"]);
    let create = reservations.create_internal_range().set_parent(&parent).set_internal_range_id("tenure");
    let created = create.set_internal_range(wanted).poller().until_done().await.unwrap();
    assert_eq!((created.name.as_str(), created.ip_cidr_range.as_str()), (name.as_str(), "10.128.0.0/20"));
    let got = reservations.get_internal_range().set_name(&name).send().await.unwrap();
    assert_eq!((got.usage, got.peering, got.users.len()), (Usage::ForVpc, Peering::ForSelf, 0));

    let subnets =
        Subnetworks::builder().with_endpoint(&bed.endpoint).with_credentials(bed.credentials.clone());
    let subnets = subnets.build().await.unwrap();
    let get = || subnets.get().set_project(PROJECT).set_region(REGION).set_subnetwork(SUBNET);
    let before = get().send().await.unwrap();
    let linked = SubnetworkSecondaryRange::new().set_range_name("more");
    let linked = linked.set_reserved_internal_range(format!("//networkconnectivity.googleapis.com/{name}"));
    let all: Vec<_> = before.secondary_ip_ranges.into_iter().chain([linked]).collect();
    let body = Subnetwork::new().set_fingerprint(before.fingerprint.unwrap()).set_secondary_ip_ranges(all);
    let patch = subnets.patch().set_project(PROJECT).set_region(REGION).set_subnetwork(SUBNET);
    let operation = patch.set_request_id(uuid(1)).set_body(body).send().await.unwrap();

    let operations =
        RegionOperations::builder().with_endpoint(&bed.endpoint).with_credentials(bed.credentials.clone());
    let operations = operations.build().await.unwrap();
    let operation = operation.name.unwrap();
    let got = operations
        .get()
        .set_project(PROJECT)
        .set_region(REGION)
        .set_operation(&operation)
        .send()
        .await
        .unwrap();
    assert_eq!(got.operation_type.as_deref(), Some("compute.subnetworks.patch"));
    let ended = operations
        .wait()
        .set_project(PROJECT)
        .set_region(REGION)
        .set_operation(&operation)
        .send()
        .await
        .unwrap();
    assert_eq!((ended.status, ended.error), (Some(Status::Done), None));
    let after = get().send().await.unwrap().secondary_ip_ranges;
    let cidrs: Vec<_> =
        after.iter().map(|range| range.ip_cidr_range.as_deref().unwrap_or_default()).collect();
    assert_eq!(cidrs, ["10.111.0.0/16", "10.128.0.0/20"]);
    let used = reservations.get_internal_range().set_name(&name).send().await.unwrap();
    assert_eq!(used.users.len(), 1);
    // While a subnet uses it, it stays.
    let delete = reservations.delete_internal_range().set_name(&name).send().await.unwrap_err();
    assert_eq!(delete.http_status_code(), Some(400));
}
