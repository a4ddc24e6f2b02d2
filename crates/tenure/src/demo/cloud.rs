//! The cloud that the demo's hosts are machines of: a fake of Google's APIs and of the hosts' metadata server, on the hosts' own Ethernet.
//! Its network is routes: packets for an alias address are sent to the machine that has it.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use ipnet::IpNet;
use tenure_fake_cloud::{Call, Change, FakeCloud, PROJECT, Settings};
use tenure_linux::netns::NetNs;
use tenure_linux::route::Route;
use tenure_linux::segment::Segment;

use super::host::{Host, UPLINK};

/// Where the cloud's APIs and metadata server are.
const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 254));
const REGION: &str = "europe-west4";
const ZONE: &str = "europe-west4-a";
const SUBNET: &str = "machines";
/// The range of the subnet that alias addresses are of.
pub(crate) const RANGE: &str = "live";
/// Its addresses.
pub(crate) const CIDR: &str = "10.111.0.0/24";
/// How long an update takes; Google's take about ten times as long.
const UPDATE: Duration = Duration::from_millis(300);
/// A pod that is still on a machine is nearer than what the cloud says.
const METRIC: u32 = 500;
/// The routes of the cloud: in the main table, as people make them.
pub(crate) const MAIN_TABLE: u32 = 254;
pub(crate) const STATIC: u8 = 4;

/// The cloud. It runs until the demo ends.
pub(crate) struct Cloud {
    fake: FakeCloud,
    /// Host and port of the metadata server.
    pub(crate) metadata: String,
    /// Where its servers are, and the controller.
    pub(crate) namespace: Arc<NetNs>,
}

impl Cloud {
    /// A cloud with these machines, which it knows by their addresses.
    pub(crate) fn start(segment: &mut Segment, machines: &[(&str, IpAddr)]) -> Result<Self> {
        let namespace = Arc::new(NetNs::make()?);
        segment.connect(&namespace, UPLINK, &[IpNet::new(ADDRESS, 24)?])?;
        // The controller asks the metadata server, too.
        let all = machines.iter().copied().chain([("controller", ADDRESS)]);
        let all: BTreeMap<IpAddr, (String, String)> =
            all.map(|(name, address)| (address, (ZONE.to_owned(), name.to_owned()))).collect();
        let (tell, told) = channel();
        let (failed, inside) = (tell.clone(), Arc::clone(&namespace));
        // A thread of its own, because it lives in another namespace.
        let stay = move || {
            let ended = inside.run(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
                runtime.block_on(async {
                    // It does not matter whether anybody still listens: then the demo is over.
                    let _ = tell.send(serve(all).await);
                    std::future::pending::<()>().await;
                });
                anyhow::Ok(())
            });
            // It ends only if it could not start.
            if let Err(error) = ended.map_err(anyhow::Error::from).flatten() {
                let _ = failed.send(Err(error));
            }
        };
        std::thread::Builder::new().name("cloud".to_owned()).spawn(stay).context("cannot start a thread")?;
        let (fake, metadata) = told.recv().context("the cloud did not start")??;
        Ok(Self { fake, metadata, namespace })
    }

    /// The address of its Compute API.
    pub(crate) fn compute(&self) -> String {
        self.fake.compute()
    }

    /// What a pool says of the subnet.
    pub(crate) fn subnet() -> String {
        format!("projects/{PROJECT}/regions/{REGION}/subnetworks/{SUBNET}")
    }

    /// What the Node of a machine says.
    pub(crate) fn provider_id(machine: &str) -> String {
        format!("gce://{PROJECT}/{ZONE}/{machine}")
    }

    /// Carries packets for alias addresses between these machines from now on.
    pub(crate) fn carry_packets(&self, hosts: &[Host]) -> Result<()> {
        let sockets = hosts.iter().map(|host| Ok((host.name.clone(), host.namespace().socket()?)));
        let sockets = Mutex::new(sockets.collect::<Result<Vec<_>>>()?);
        let address = |host: &Host| (host.name.clone(), host.addresses[0].addr());
        let addresses: BTreeMap<String, IpAddr> = hosts.iter().map(address).collect();
        let routed = move |change: &Change| {
            let Change { instance, range, there, .. } = change;
            let (Some(machine), Ok(range)) = (addresses.get(instance), range.parse()) else { return };
            let route = Route { metric: METRIC, ..Route::through(range, *machine, MAIN_TABLE, STATIC) };
            let change = if *there { route.put() } else { route.remove() };
            let mut sockets = sockets.lock().unwrap_or_else(PoisonError::into_inner);
            for (_, socket) in sockets.iter_mut().filter(|(name, _)| name != instance) {
                // If it is not carried, nobody answers, and the scene says so.
                let _ = socket.apply(std::slice::from_ref(&change));
            }
        };
        self.fake.on_arrival(move |changes| changes.iter().for_each(&routed));
        Ok(())
    }

    /// How many updates of interfaces it has accepted.
    pub(crate) fn updates(&self) -> usize {
        self.fake.accepted(Call::UpdateInterface)
    }

    /// Which of these machines has an alias.
    pub(crate) fn machine_of<'a>(&self, alias: &str, hosts: &'a [Host]) -> Option<&'a str> {
        let names = hosts.iter().map(|host| host.name.as_str());
        names.into_iter().find(|name| self.fake.aliases(ZONE, name).contains(alias))
    }
}

/// Starts the servers: the cloud, and where its metadata server is.
async fn serve(machines: BTreeMap<IpAddr, (String, String)>) -> Result<(FakeCloud, String)> {
    let settings = Settings { update: UPDATE..UPDATE * 4 / 3, ..Settings::default() };
    let fake = FakeCloud::start_at(ADDRESS, settings).await.context("cannot start the cloud")?;
    fake.add_subnet(REGION, SUBNET, "192.0.2.0/24")?;
    fake.add_secondary_range(REGION, SUBNET, RANGE, CIDR)?;
    for (zone, name) in machines.values() {
        fake.add_instance(zone, name, SUBNET);
    }
    let metadata = fake.metadata_by_address(machines).await.context("cannot start a metadata server")?;
    Ok((fake, metadata))
}
