//! A real API server with the controller, and a fake of Google's cloud in which ours and the prototype's machines are in regions of their own:
//! so each has its own quota, and the fake's log says whose each call was.

use std::time::{Duration, Instant};

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};
use serde_json::{Value, json};
use tenure_api::cloud::AliasPool;
use tenure_api::coil::AddressPool;
use tenure_controller::{CloudSettings, Controller, Settings};
use tenure_handles::SystemClock;
use tenure_testbed::compute::{Call, FakeCloud, PROJECT, Settings as FakeSettings};
use tenure_testbed::control_plane::{ControlPlane, ControlPlaneOptions};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::{COLD, WARM, WARM_SET};
use crate::host::objects::{self, create};
use crate::host::sampled::{count, nanoseconds};
use crate::host::say;

/// The subnet of each region.
pub(super) const SUBNET: &str = "nodes";
/// The secondary range of each subnet that addresses of pods are of.
pub(super) const RANGE: &str = "live";
/// The namespace of pods.
pub(super) const NAMESPACE: &str = "default";

/// Whose machines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Tenure,
    Prototype,
}

impl Side {
    fn region(self) -> &'static str {
        match self {
            Self::Tenure => "europe-west4",
            Self::Prototype => "europe-west1",
        }
    }

    pub(super) fn zone(self) -> String {
        format!("{}-b", self.region())
    }
}

/// What something cost: nanoseconds, updates of interfaces, and all calls to the Compute API.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cost {
    pub(super) took: f64,
    pub(super) updates: f64,
    pub(super) calls: f64,
}

/// The API server, the controller and the cloud. They end with this.
pub(super) struct Bed {
    pub(super) client: Client,
    pub(super) fake: FakeCloud,
    _stopping: DropGuard,
    plane: ControlPlane,
}

impl Bed {
    /// A cloud whose updates take so long.
    pub(super) async fn start(update: Duration) -> Result<Self> {
        say("start an API server, the controller and a cloud");
        let settings = FakeSettings {
            update: update..update + update / 15,
            arrival: update / 60..update / 15,
            ..FakeSettings::default()
        };
        let fake = FakeCloud::start(settings).await?;
        for (side, primary, live) in [
            (Side::Tenure, "10.0.0.0/24", "10.111.0.0/16"),
            (Side::Prototype, "10.1.0.0/24", "10.113.0.0/16"),
        ] {
            fake.add_subnet(side.region(), SUBNET, primary)?;
            fake.add_secondary_range(side.region(), SUBNET, RANGE, live)?;
        }
        fake.add_secondary_range(Side::Tenure.region(), SUBNET, WARM, "10.112.0.0/16")?;
        let plane =
            ControlPlane::start(ControlPlaneOptions::default().without_controller_manager().durable())
                .await?;
        let client = plane.client()?;
        objects::install(&client, []).await?;
        let stop = CancellationToken::new();
        let zone = Side::Tenure.zone();
        fake.add_instance(&zone, "controller", SUBNET);
        let cloud =
            CloudSettings::google(Some(&fake.compute()), None, &fake.metadata(&zone, "controller").await?);
        let settings = Settings { cloud: Some(cloud), ..Settings::new("bench") };
        tokio::spawn(Controller::new(plane.client()?, SystemClock, settings).run(stop.clone()));
        let bed = Self { client, fake, _stopping: stop.drop_guard(), plane };
        bed.pools().await?;
        Ok(bed)
    }

    async fn pools(&self) -> Result<()> {
        let pools: Api<AliasPool> = Api::all(self.client.clone());
        let subnet = format!("projects/{PROJECT}/regions/{}/subnetworks/{SUBNET}", Side::Tenure.region());
        for (name, cidr, range, warm) in
            [(COLD, "10.111.0.0/16", RANGE, 0), (WARM, "10.112.0.0/16", WARM, WARM_SET)]
        {
            let spec = json!({
                "cidr": cidr, "subnet": subnet, "secondaryRangeName": range, "warm": warm, "cooling": "0s",
            });
            create(&pools, json!({"metadata": {"name": name}, "spec": spec})).await?;
        }
        let pools: Api<AddressPool> = Api::all(self.client.clone());
        // Other plugins use the first address as the gateway.
        let exclude = ["10.64.0.0", "10.64.0.1", "10.67.255.255"];
        let spec = json!({"blockSizeBits": 10, "subnets": [{"ipv4": "10.64.0.0/14"}], "exclude": exclude});
        create(&pools, json!({"metadata": {"name": "default"}, "spec": spec})).await
    }

    /// Another client of the API server, with connections of its own.
    pub(super) fn another_client(&self) -> Result<Client> {
        Ok(self.plane.client()?)
    }

    pub(super) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), NAMESPACE)
    }

    /// Makes the object of a pod on a node.
    pub(super) async fn pod(&self, name: &str, node: &str, annotations: &Value) -> Result<()> {
        let containers = json!([{"name": "main", "image": "none"}]);
        let metadata = json!({"name": name, "annotations": annotations});
        create(
            &self.pods(),
            json!({"metadata": metadata, "spec": {"nodeName": node, "containers": containers}}),
        )
        .await
    }

    /// What an act of a side costs, until it is done.
    pub(super) async fn cost<T>(
        &self,
        side: Side,
        act: impl Future<Output = Result<T>>,
    ) -> Result<(Cost, T)> {
        let before = self.counted(side);
        let began = Instant::now();
        let done = act.await?;
        let took = nanoseconds(&began.elapsed());
        let after = self.counted(side);
        Ok((Cost { took, updates: count(after.0 - before.0), calls: count(after.1 - before.1) }, done))
    }

    /// The updates and calls of a side so far. What names no zone is ours: the loop asks for nothing else.
    fn counted(&self, side: Side) -> (usize, usize) {
        let theirs = format!("/{}/", Side::Prototype.zone());
        let of_side = |path: &str| path.contains(&theirs) == (side == Side::Prototype);
        let log = self.fake.log();
        let calls = log.iter().filter(|logged| logged.call != Call::Metadata && of_side(&logged.path));
        let is_update =
            |call: Call, status: u16| call == Call::UpdateInterface && (200..300).contains(&status);
        let updates = calls.clone().filter(|logged| is_update(logged.call, logged.status));
        (updates.count(), calls.count())
    }
}
