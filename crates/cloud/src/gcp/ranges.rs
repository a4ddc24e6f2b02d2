//! The subnet's ranges: what a pool's addresses are made of. Each call is idempotent if its caller reads first.

use std::collections::BTreeMap;

use http::Method;
use serde::{Deserialize, Serialize};

use super::Gcp;
use super::addresses::segment;
use super::wire::{Instance, Operation};
use crate::cloud::{Progress, Ticket};
use crate::error::{CloudError, ErrorKind};
use crate::interface::InterfaceId;

/// A subnet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Subnetwork {
    /// The network that it is in, as a URL.
    #[serde(default)]
    pub network: String,
    /// Its primary range.
    #[serde(default)]
    pub ip_cidr_range: String,
    /// Its secondary ranges.
    #[serde(default)]
    pub secondary_ip_ranges: Vec<SecondaryRange>,
    /// The version that a change must name.
    #[serde(default)]
    pub fingerprint: String,
}

/// A secondary range of a subnet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SecondaryRange {
    /// Its name.
    pub range_name: String,
    /// Its addresses; absent in a request that takes those of a reserved range.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub ip_cidr_range: String,
    /// The internal range that it belongs to, as `//networkconnectivity.googleapis.com/projects/…`.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub reserved_internal_range: String,
    /// Whatever else Google says of it: an update must repeat it.
    #[serde(flatten)]
    pub more: BTreeMap<String, serde_json::Value>,
}

/// A reservation of addresses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InternalRange {
    /// Its whole name.
    #[serde(default)]
    pub name: String,
    /// Its addresses.
    #[serde(default)]
    pub ip_cidr_range: String,
    /// The network that it is for.
    #[serde(default)]
    pub network: String,
    /// Who uses it, as URLs: subnets.
    #[serde(default)]
    pub users: Vec<String>,
}

/// Which addresses to reserve.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Addresses {
    /// Any of that size in a range. Google chooses.
    Any {
        /// The length of the prefix.
        prefix: u8,
        /// The range.
        within: String,
    },
    /// These.
    These(String),
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct SubnetworkUpdate<'a> {
    fingerprint: &'a str,
    secondary_ip_ranges: &'a [SecondaryRange],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Reservation<'a> {
    network: &'a str,
    usage: &'static str,
    peering: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    prefix_length: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    target_cidr_range: Option<[&'a str; 1]>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ip_cidr_range: Option<&'a str>,
}

/// An operation of the Network Connectivity API, which is another kind than that of the Compute API.
#[derive(Deserialize)]
struct LongRunning {
    name: String,
    #[serde(default)]
    done: bool,
    #[serde(default)]
    error: Option<LongRunningError>,
}

#[derive(Deserialize)]
struct LongRunningError {
    /// A code of gRPC.
    #[serde(default)]
    code: i32,
    #[serde(default)]
    message: String,
}

impl LongRunningError {
    fn kind(&self) -> ErrorKind {
        match self.code {
            5 => ErrorKind::NotFound,
            6 | 10 => ErrorKind::Conflict,
            7 | 16 => ErrorKind::Denied,
            8 => ErrorKind::Capacity,
            4 | 13 | 14 => ErrorKind::Transient,
            _ => ErrorKind::Invalid(None),
        }
    }
}

impl Gcp {
    /// The same with the rights and addresses of this, for another project: a subnet may be of a project that shares its network.
    #[must_use]
    pub fn in_project(&self, project: &str) -> Self {
        Self { project: project.to_owned(), ..self.clone() }
    }

    /// The subnet of a machine's interface, as a URL.
    pub async fn subnet_of(&self, interface: &InterfaceId) -> Result<String, CloudError> {
        let act = format!("reading the subnet of {interface}");
        let url = self.endpoints.instance(&self.project, interface)?;
        let instance: Instance = self.get(&act, &url).await?;
        let found = instance.network_interfaces.into_iter().find(|found| found.name == interface.name);
        found.map(|found| found.subnetwork).filter(|subnet| !subnet.is_empty()).ok_or_else(|| {
            CloudError::new(ErrorKind::NotFound, format!("{act}: the instance has no such interface"))
        })
    }

    /// Reads a subnet.
    pub async fn subnetwork(&self, region: &str, name: &str) -> Result<Subnetwork, CloudError> {
        let url = self.endpoints.subnetwork(&self.project, region, name)?;
        self.get(&format!("reading subnet {name} of {region}"), &url).await
    }

    /// Adds a secondary range to a subnet as it was read.
    pub async fn add_secondary_range(
        &self,
        region: &str,
        name: &str,
        read: &Subnetwork,
        range: SecondaryRange,
        request: &str,
    ) -> Result<Ticket, CloudError> {
        let act = format!("adding secondary range {} to subnet {name} of {region}", range.range_name);
        let ranges: Vec<SecondaryRange> = read.secondary_ip_ranges.iter().cloned().chain([range]).collect();
        self.set_secondary_ranges(&act, (region, name), &read.fingerprint, &ranges, request).await
    }

    /// Takes a secondary range from a subnet as it was read.
    pub async fn remove_secondary_range(
        &self,
        region: &str,
        name: &str,
        read: &Subnetwork,
        range: &str,
        request: &str,
    ) -> Result<Ticket, CloudError> {
        let act = format!("removing secondary range {range} from subnet {name} of {region}");
        let others = read.secondary_ip_ranges.iter().filter(|other| other.range_name != range);
        let ranges: Vec<SecondaryRange> = others.cloned().collect();
        self.set_secondary_ranges(&act, (region, name), &read.fingerprint, &ranges, request).await
    }

    async fn set_secondary_ranges(
        &self,
        act: &str,
        (region, name): (&str, &str),
        fingerprint: &str,
        ranges: &[SecondaryRange],
        request: &str,
    ) -> Result<Ticket, CloudError> {
        let url = self.endpoints.subnetwork(&self.project, region, name)?;
        let url = format!("{url}?requestId={}", segment("request", request)?);
        let body = SubnetworkUpdate { fingerprint, secondary_ip_ranges: ranges };
        let operation: Operation = self.call(act, Method::PATCH, &url, Some(&body)).await?;
        Ok(Ticket(operation.name))
    }

    /// Follows a change of a subnet.
    pub async fn subnetwork_change(&self, region: &str, ticket: &Ticket) -> Result<Progress, CloudError> {
        let act = format!("asking about operation {} of {region}", ticket.0);
        let url = self.endpoints.region_operation(&self.project, region, &ticket.0)?;
        let operation: Operation = self.get(&act, &url).await?;
        Ok(operation.progress(&format!("changing a subnet of {region}")))
    }

    /// Reads a reservation, if there is one of that name.
    pub async fn internal_range(&self, name: &str) -> Result<Option<InternalRange>, CloudError> {
        let url = self.internal_range_url(name)?;
        match self.get(&format!("reading internal range {name}"), &url).await {
            Err(CloudError { kind: ErrorKind::NotFound, .. }) => Ok(None),
            found => found.map(Some),
        }
    }

    /// Reserves a range in a network.
    pub async fn reserve_internal_range(
        &self,
        name: &str,
        network: &str,
        addresses: &Addresses,
    ) -> Result<Ticket, CloudError> {
        let ranges = self.endpoints.internal_ranges(&self.project)?;
        let url = format!("{ranges}?internalRangeId={}", segment("internal range", name)?);
        let mut body = Reservation {
            network,
            usage: "FOR_VPC",
            peering: "FOR_SELF",
            prefix_length: None,
            target_cidr_range: None,
            ip_cidr_range: None,
        };
        match addresses {
            Addresses::Any { prefix, within } => {
                (body.prefix_length, body.target_cidr_range) = (Some(*prefix), Some([within.as_str()]));
            }
            Addresses::These(range) => body.ip_cidr_range = Some(range),
        }
        let operation: LongRunning =
            self.call(&format!("reserving internal range {name}"), Method::POST, &url, Some(&body)).await?;
        Ok(Ticket(operation.name))
    }

    /// Gives a reservation up. Google refuses that while a subnet uses it.
    pub async fn release_internal_range(&self, name: &str) -> Result<Ticket, CloudError> {
        let url = self.internal_range_url(name)?;
        let act = format!("deleting internal range {name}");
        let operation: LongRunning = self.call::<(), _>(&act, Method::DELETE, &url, None).await?;
        Ok(Ticket(operation.name))
    }

    fn internal_range_url(&self, name: &str) -> Result<String, CloudError> {
        let ranges = self.endpoints.internal_ranges(&self.project)?;
        Ok(format!("{ranges}/{}", segment("internal range", name)?))
    }

    /// Follows a reservation, or the end of one.
    pub async fn reservation(&self, ticket: &Ticket) -> Result<Progress, CloudError> {
        let url = self.endpoints.connectivity_operation(&ticket.0)?;
        let operation: LongRunning = self.get(&format!("asking about operation {}", ticket.0), &url).await?;
        Ok(match (operation.done, operation.error) {
            (false, _) => Progress::Running,
            (true, None) => Progress::Done,
            (true, Some(error)) => Progress::Failed(CloudError::new(
                error.kind(),
                format!("changing an internal range: {}", error.message),
            )),
        })
    }
}
