use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, Full};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tenure_testbed::wait::eventually;
use tokio::net::TcpStream;

use super::*;

const ZONE: &str = "europe-west4-a";
const SUBNET: &str = "/compute/v1/projects/test-project/regions/europe-west4/subnetworks/default";
const RANGES: &str = "/networkconnectivity/v1/projects/test-project/locations/global/internalRanges";

fn instance(name: &str) -> String {
    format!("/compute/v1/projects/test-project/zones/{ZONE}/instances/{name}")
}

fn update(name: &str, request: u32) -> String {
    format!(
        "{}/updateNetworkInterface?networkInterface=nic0&requestId=00000000-0000-4000-8000-{request:012}",
        instance(name)
    )
}

/// A cloud with a subnet, a secondary range 10.111.0.0/16 and two machines.
async fn cloud(settings: Settings) -> FakeCloud {
    let cloud = FakeCloud::start(settings).await.unwrap();
    cloud.add_subnet("europe-west4", "default", "10.0.0.0/24").unwrap();
    let subnet = ask(&cloud, "GET", SUBNET, &json!({})).await.1;
    let ranges = json!([{"rangeName": "live", "ipCidrRange": "10.111.0.0/16"}]);
    let body = json!({"fingerprint": subnet["fingerprint"], "secondaryIpRanges": ranges});
    let (status, operation) = ask(&cloud, "PATCH", SUBNET, &body).await;
    assert_eq!(status, 200, "{operation}");
    done(&cloud, &operation).await;
    cloud.add_instance(ZONE, "a", "default");
    cloud.add_instance(ZONE, "b", "default");
    cloud
}

async fn send(cloud: &FakeCloud, method: &str, path: &str, body: &Value) -> Option<(u16, Value)> {
    let stream = TcpStream::connect(cloud.address).await.unwrap();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
    let driven = tokio::spawn(connection);
    let request = Request::builder().method(method).uri(path).header("host", cloud.address.to_string());
    let request = request.header("authorization", format!("Bearer {TOKEN}"));
    let answer = sender.send_request(request.body(Full::new(Bytes::from(body.to_string()))).unwrap()).await;
    let answer = match answer {
        Ok(answer) => {
            let status = answer.status().as_u16();
            let body = answer.into_body().collect().await.unwrap().to_bytes();
            Some((status, serde_json::from_slice(&body).unwrap()))
        }
        Err(_) => None,
    };
    driven.abort();
    answer
}

async fn ask(cloud: &FakeCloud, method: &str, path: &str, body: &Value) -> (u16, Value) {
    send(cloud, method, path, body).await.unwrap()
}

/// Waits for the end of an operation, as the cloud's `wait` does.
async fn done(cloud: &FakeCloud, operation: &Value) -> Value {
    let link = operation["selfLink"].as_str().unwrap();
    let path = &link[link.find("/compute/").unwrap()..];
    ask(cloud, "POST", &format!("{path}/wait"), &json!({})).await.1
}

async fn fingerprint_of(cloud: &FakeCloud, name: &str) -> Value {
    ask(cloud, "GET", &instance(name), &json!({})).await.1["networkInterfaces"][0]["fingerprint"].clone()
}

fn aliases(ranges: &[&str]) -> Value {
    ranges.iter().map(|range| json!({"ipCidrRange": range, "subnetworkRangeName": "live"})).collect()
}

/// An update on the present fingerprint; its answer.
async fn set(cloud: &FakeCloud, name: &str, request: u32, ranges: &[&str]) -> (u16, Value) {
    let body = json!({"fingerprint": fingerprint_of(cloud, name).await, "aliasIpRanges": aliases(ranges)});
    ask(cloud, "PATCH", &update(name, request), &body).await
}

fn says(answer: &(u16, Value), status: u16, text: &str) {
    assert_eq!(answer.0, status, "{}", answer.1);
    let message = answer.1["error"]["message"].as_str().unwrap_or_default();
    assert!(message.contains(text), "{message}");
}

#[tokio::test]
async fn an_update_is_an_operation_and_packets_flow_later() {
    let never = Duration::from_hours(1)..Duration::from_hours(2);
    let cloud = cloud(Settings { arrival: never, ..Settings::default() }).await;
    let before = fingerprint_of(&cloud, "a").await;
    let (status, operation) = set(&cloud, "a", 1, &["10.111.0.5", "10.111.0.64/27"]).await;
    assert_eq!((status, operation["status"].as_str()), (200, Some("RUNNING")));
    let ended = done(&cloud, &operation).await;
    assert_eq!((ended["status"].as_str(), ended.get("error")), (Some("DONE"), None));
    assert_eq!(
        cloud.aliases(ZONE, "a"),
        BTreeSet::from(["10.111.0.5/32".to_owned(), "10.111.0.64/27".to_owned()])
    );
    assert_ne!(fingerprint_of(&cloud, "a").await, before);
    assert!(cloud.arriving(ZONE, "a").is_empty(), "done is not there");
}

#[tokio::test]
async fn the_cloud_refuses_what_the_catalogue_says() {
    let cloud = cloud(Settings { ranges_per_interface: 3, ..Settings::default() }).await;
    let fingerprint = fingerprint_of(&cloud, "a").await;
    let body = |ranges: &[&str]| json!({"fingerprint": fingerprint, "aliasIpRanges": aliases(ranges)});
    let patch = async |body: Value| ask(&cloud, "PATCH", &update("a", 9), &body).await;
    says(&patch(json!({"aliasIpRanges": []})).await, 400, "'resource.fingerprint' not specified");
    says(&patch(json!({"fingerprint": "c3RhbGU=", "aliasIpRanges": []})).await, 412, "Invalid fingerprint.");
    let more = json!({"fingerprint": fingerprint, "accessConfigs": []});
    says(
        &patch(more).await,
        400,
        "Invalid value for field 'resource.accessConfigs': ''. Updating this field is not supported.",
    );
    says(
        &patch(body(&["10.112.0.1"])).await,
        400,
        "aliasIpRanges[0].ipCidrRange': '10.112.0.1'. IP range is not within",
    );
    says(&patch(body(&["10.111.0.1/24"])).await, 400, "Must be an IPv4 CIDR range or address.");
    says(&patch(body(&["10.111.0.0/24", "10.111.0.7"])).await, 400, "must not overlap '10.111.0.0/24'");
    says(
        &patch(body(&["10.111.0.1", "10.111.0.2", "10.111.0.3", "10.111.0.4"])).await,
        400,
        "must not exceed 3",
    );
    let zero = format!(
        "{}/updateNetworkInterface?networkInterface=nic0&requestId={}",
        instance("a"),
        uuid_of_zeros()
    );
    says(&ask(&cloud, "PATCH", &zero, &body(&[])).await, 400, "Must be a valid, non-zero UUID.");
    let nic = format!("{}/updateNetworkInterface?networkInterface=nic1", instance("a"));
    says(&ask(&cloud, "PATCH", &nic, &body(&[])).await, 400, "no such network interface");
    says(&ask(&cloud, "PATCH", &update("c", 1), &body(&[])).await, 404, "was not found");
    assert!(cloud.aliases(ZONE, "a").is_empty(), "nothing of this changed anything");
}

fn uuid_of_zeros() -> String {
    "00000000-0000-0000-0000-000000000000".to_owned()
}

#[tokio::test]
async fn an_update_that_adds_and_removes_is_refused_if_the_cloud_is_strict() {
    for (strict_mixed, status) in [(true, 400), (false, 200)] {
        let cloud = cloud(Settings { strict_mixed, ..Settings::default() }).await;
        cloud.set_aliases(ZONE, "a", &[("10.111.0.1/32", "live")]).unwrap();
        assert_eq!(set(&cloud, "a", 1, &["10.111.0.2"]).await.0, status, "strict: {strict_mixed}");
    }
}

#[tokio::test]
async fn a_list_that_is_left_out_stays_and_an_empty_one_empties() {
    let cloud = cloud(Settings::default()).await;
    cloud.set_aliases(ZONE, "a", &[("10.111.0.1/32", "live")]).unwrap();
    let body = json!({"fingerprint": fingerprint_of(&cloud, "a").await});
    let (status, operation) = ask(&cloud, "PATCH", &update("a", 1), &body).await;
    assert_eq!((status, done(&cloud, &operation).await["status"].as_str()), (200, Some("DONE")));
    assert_eq!(cloud.aliases(ZONE, "a").len(), 1, "done, and nothing changed");
    let (_, operation) = set(&cloud, "a", 2, &[]).await;
    done(&cloud, &operation).await;
    assert!(cloud.aliases(ZONE, "a").is_empty());
}

#[tokio::test]
async fn a_request_id_stands_for_one_operation() {
    let cloud = cloud(Settings::default()).await;
    let body =
        json!({"fingerprint": fingerprint_of(&cloud, "a").await, "aliasIpRanges": aliases(&["10.111.0.1"])});
    let (_, first) = ask(&cloud, "PATCH", &update("a", 1), &body).await;
    done(&cloud, &first).await;
    let (status, again) = ask(&cloud, "PATCH", &update("a", 1), &body).await;
    assert_eq!((status, &again["name"]), (200, &first["name"]), "though the fingerprint is old");
    says(&ask(&cloud, "PATCH", &update("a", 2), &body).await, 412, "Invalid fingerprint.");
}

#[tokio::test]
async fn an_address_is_on_one_machine_and_the_operation_says_so() {
    let cloud = cloud(Settings::default()).await;
    cloud.set_aliases(ZONE, "b", &[("10.111.0.0/27", "live")]).unwrap();
    let (status, operation) = set(&cloud, "a", 1, &["10.111.0.9"]).await;
    assert_eq!(status, 200, "the cloud accepts it first");
    let error = done(&cloud, &operation).await["error"]["errors"][0].clone();
    assert_eq!(error["code"], "IP_IN_USE_BY_ANOTHER_RESOURCE");
    assert_eq!(error["message"], "IP '10.111.0.9/32' is already being used by another resource.");
    assert!(cloud.aliases(ZONE, "a").is_empty());
}

#[tokio::test]
async fn a_machine_takes_one_update_at_a_time() {
    let cloud = cloud(Settings::default()).await;
    cloud.harm(Fault::once(Call::UpdateInterface, Harm::Endless));
    set(&cloud, "a", 1, &["10.111.0.1"]).await;
    says(&set(&cloud, "a", 2, &["10.111.0.1"]).await, 400, "is not ready");
    let list = format!(
        "/compute/v1/projects/test-project/zones/{ZONE}/operations?filter=status%20%21%3D%20%22DONE%22"
    );
    let (_, operations) = ask(&cloud, "GET", &list, &json!({})).await;
    assert_eq!(operations["items"].as_array().unwrap().len(), 1);
    cloud.calm();
    eventually("it ends", async || Ok((cloud.arriving(ZONE, "a").len() == 1).then_some(()))).await.unwrap();
    let late = Harm::Late(Duration::from_millis(50));
    cloud.harm(Fault::once(Call::UpdateInterface, late));
    let (_, operation) = set(&cloud, "a", 3, &[]).await;
    assert_eq!(cloud.aliases(ZONE, "a").len(), 1);
    assert_eq!(done(&cloud, &operation).await["status"], "DONE");
    assert!(cloud.aliases(ZONE, "a").is_empty());
}

#[tokio::test]
async fn quotas_are_kept() {
    // One window for all time.
    let window = Duration::from_secs(u64::from(u32::MAX) * 1_000);
    let tight = Settings { requests_per_window: 3, window, ..Settings::default() };
    let narrow = cloud(Settings { operations_at_once: 1, ..Settings::default() }).await;
    narrow.harm(Fault::once(Call::UpdateInterface, Harm::Endless));
    assert_eq!(set(&narrow, "a", 1, &["10.111.0.1"]).await.0, 200);
    let refused = set(&narrow, "b", 2, &["10.111.0.2"]).await;
    says(&refused, 403, "concurrent operations");
    assert_eq!(refused.1["error"]["details"][0]["reason"], "CONCURRENT_OPERATIONS_QUOTA_EXCEEDED");
    let quiet = cloud(Settings { ranges_per_network: 1, ..Settings::default() }).await;
    let (_, operation) = set(&quiet, "a", 1, &["10.111.0.1", "10.111.0.2"]).await;
    assert_eq!(done(&quiet, &operation).await["error"]["errors"][0]["code"], "QUOTA_EXCEEDED");
    let busy = FakeCloud::start(tight).await.unwrap();
    busy.add_subnet("europe-west4", "default", "10.0.0.0/24").unwrap();
    busy.add_instance(ZONE, "a", "default");
    for _ in 0..3 {
        assert_eq!(ask(&busy, "GET", &instance("a"), &json!({})).await.0, 200);
    }
    let refused = ask(&busy, "GET", SUBNET, &json!({})).await;
    says(&refused, 403, "Queries per minute per region");
    assert_eq!(
        refused.1["error"]["errors"][0],
        json!({"message": refused.1["error"]["message"], "domain": "usageLimits", "reason": "rateLimitExceeded"})
    );
}

#[tokio::test]
async fn secondary_ranges_are_added_or_removed_and_come_from_reservations() {
    let cloud = cloud(Settings::default()).await;
    let body = json!({"network": "n", "usage": "FOR_VPC", "peering": "FOR_SELF", "prefixLength": 16, "targetCidrRange": ["10.0.0.0/8"]});
    let (status, operation) = ask(&cloud, "POST", &format!("{RANGES}?internalRangeId=pods"), &body).await;
    assert_eq!((status, &operation["done"]), (200, &json!(false)));
    let path = format!("/networkconnectivity/v1/{}", operation["name"].as_str().unwrap());
    let reserved = async || Ok((ask(&cloud, "GET", &path, &json!({})).await.1["done"] == true).then_some(()));
    eventually("the range is reserved", reserved).await.unwrap();
    let range = ask(&cloud, "GET", &format!("{RANGES}/pods"), &json!({})).await.1;
    assert_eq!(range["ipCidrRange"], "10.1.0.0/16", "the first that no subnet has");
    says(&ask(&cloud, "POST", &format!("{RANGES}?internalRangeId=pods"), &body).await, 409, "already exists");

    let subnet = ask(&cloud, "GET", SUBNET, &json!({})).await.1;
    let reserved = format!("//networkconnectivity.googleapis.com/{}", range["name"].as_str().unwrap());
    let patch = async |ranges: Value| {
        ask(
            &cloud,
            "PATCH",
            SUBNET,
            &json!({"fingerprint": subnet["fingerprint"], "secondaryIpRanges": ranges}),
        )
        .await
    };
    let live = json!({"rangeName": "live", "ipCidrRange": "10.111.0.0/16"});
    says(
        &patch(json!([{"rangeName": "more", "ipCidrRange": "10.5.0.0/16"}])).await,
        400,
        "Cannot add and remove secondary IP ranges in the same request. Added ranges: [more]. Removed ranges: [live].",
    );
    says(
        &patch(json!([live, {"ipCidrRange": "10.5.0.0/16"}])).await,
        400,
        "secondaryIpRanges[1].rangeName' not specified",
    );
    says(
        &patch(json!([live, {"rangeName": "more", "ipCidrRange": "10.111.4.0/24"}])).await,
        400,
        "Conflicts with '10.111.0.0/16'",
    );
    let (_, operation) = patch(json!([live, {"rangeName": "more", "reservedInternalRange": reserved}])).await;
    done(&cloud, &operation).await;
    let after = ask(&cloud, "GET", SUBNET, &json!({})).await.1;
    assert_eq!(
        after["secondaryIpRanges"][1],
        json!({"rangeName": "more", "ipCidrRange": "10.1.0.0/16", "reservedInternalRange": reserved})
    );
    assert_eq!(
        ask(&cloud, "GET", &format!("{RANGES}/pods"), &json!({})).await.1["users"].as_array().unwrap().len(),
        1
    );
    says(&patch(json!([live])).await, 412, "Invalid fingerprint.");
}

#[tokio::test]
async fn a_lost_answer_is_performed_and_a_lost_request_is_not() {
    let cloud = cloud(Settings::default()).await;
    let body =
        json!({"fingerprint": fingerprint_of(&cloud, "a").await, "aliasIpRanges": aliases(&["10.111.0.1"])});
    cloud.harm(Fault::once(Call::UpdateInterface, Harm::LostRequest));
    assert!(send(&cloud, "PATCH", &update("a", 1), &body).await.is_none());
    assert!(cloud.shared.state().operations.values().all(super::operations::Operation::is_done));
    cloud.harm(Fault::once(Call::UpdateInterface, Harm::LostAnswer));
    assert!(send(&cloud, "PATCH", &update("a", 1), &body).await.is_none());
    eventually("it is performed", async || Ok((cloud.aliases(ZONE, "a").len() == 1).then_some(())))
        .await
        .unwrap();
    assert_eq!(cloud.accepted(Call::UpdateInterface), 0, "no answer was sent");
}

#[tokio::test]
async fn every_change_of_the_data_plane_is_told() {
    let cloud = cloud(Settings::default()).await;
    let (sender, mut told) = tokio::sync::mpsc::unbounded_channel();
    cloud.on_arrival(move |arrivals| {
        for it in arrivals {
            _ = sender.send((it.instance.clone(), it.range.clone(), it.there));
        }
    });
    set(&cloud, "a", 1, &["10.111.0.1"]).await;
    assert_eq!(told.recv().await.unwrap(), ("a".to_owned(), "10.111.0.1/32".to_owned(), true));
    cloud.delete_instance(ZONE, "a");
    assert_eq!(told.recv().await.unwrap(), ("a".to_owned(), "10.111.0.1/32".to_owned(), false));
    let planes: Vec<_> = cloud.changes().iter().map(|it| (it.plane, it.there)).collect();
    let expected = [
        (Plane::Configuration, true),
        (Plane::Data, true),
        (Plane::Configuration, false),
        (Plane::Data, false),
    ];
    assert_eq!(planes, expected);
}
