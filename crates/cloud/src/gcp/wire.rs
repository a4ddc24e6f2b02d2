//! What goes over the wire: of each object only what is read or written here.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use tenure_ipam::Notation;

use super::errors;
use crate::cloud::Progress;
use crate::error::{CloudError, ErrorKind};
use crate::interface::{AliasRange, InterfaceId};

/// The last part of a path or URL: its name.
pub(super) fn last_part(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Instance {
    #[serde(default)]
    name: String,
    #[serde(default)]
    pub(super) network_interfaces: Vec<NetworkInterface>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct NetworkInterface {
    #[serde(default)]
    pub(super) name: String,
    #[serde(default)]
    pub(super) subnetwork: String,
    #[serde(default)]
    pub(super) fingerprint: String,
    #[serde(default)]
    pub(super) alias_ip_ranges: Vec<WireAlias>,
}

/// An alias range.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct WireAlias {
    ip_cidr_range: String,
    /// Absent for the primary range.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    subnetwork_range_name: String,
}

impl WireAlias {
    pub(super) fn read(&self, act: &str) -> Result<AliasRange, CloudError> {
        let cidr = Notation::Strict.cidr_or_address(&self.ip_cidr_range);
        let cidr = cidr.map_err(|error| {
            CloudError::new(ErrorKind::Invalid(None), format!("{act}: aliasIpRanges: {error}"))
        })?;
        Ok(AliasRange { cidr, range: self.subnetwork_range_name.clone() })
    }
}

impl From<&AliasRange> for WireAlias {
    fn from(range: &AliasRange) -> Self {
        Self { ip_cidr_range: range.cidr.to_string(), subnetwork_range_name: range.range.clone() }
    }
}

/// The body of an update. A field that is left out stays as it is, so the list is there even if it is empty.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct InterfaceUpdate {
    fingerprint: String,
    alias_ip_ranges: Vec<WireAlias>,
}

impl InterfaceUpdate {
    pub(super) fn new(version: &str, aliases: &BTreeSet<AliasRange>) -> Self {
        Self { fingerprint: version.to_owned(), alias_ip_ranges: aliases.iter().map(Into::into).collect() }
    }
}

/// An operation of the Compute API.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Operation {
    pub(super) name: String,
    #[serde(default)]
    status: String,
    #[serde(default)]
    pub(super) target_link: String,
    #[serde(default)]
    error: Option<OperationError>,
    #[serde(default)]
    http_error_status_code: Option<u16>,
}

#[derive(Debug, Deserialize)]
struct OperationError {
    #[serde(default)]
    errors: Vec<OperationErrorEntry>,
}

#[derive(Debug, Deserialize)]
pub(super) struct OperationErrorEntry {
    #[serde(default)]
    pub(super) code: String,
    #[serde(default)]
    pub(super) message: String,
}

impl Operation {
    pub(super) fn is_done(&self) -> bool {
        self.status == "DONE"
    }

    pub(super) fn progress(&self, act: &str) -> Progress {
        let error = self.error.as_ref().filter(|error| !error.errors.is_empty());
        match (self.is_done(), error) {
            (false, _) => Progress::Running,
            (true, None) => Progress::Done,
            (true, Some(error)) => {
                Progress::Failed(errors::of_operation(act, &error.errors, self.http_error_status_code))
            }
        }
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Operations {
    #[serde(default)]
    pub(super) items: Vec<Operation>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct AggregatedInstances {
    /// By `zones/ZONE`.
    #[serde(default)]
    items: BTreeMap<String, InstancesOfZone>,
    #[serde(default)]
    pub(super) next_page_token: Option<String>,
}

#[derive(Debug, Deserialize)]
struct InstancesOfZone {
    #[serde(default)]
    instances: Vec<Instance>,
}

impl AggregatedInstances {
    /// The interface of the region that has the range, or a larger one around it.
    pub(super) fn owner(&self, region: &str, range: &AliasRange) -> Option<InterfaceId> {
        for (place, zone) in &self.items {
            for instance in &zone.instances {
                for interface in &instance.network_interfaces {
                    let id = InterfaceId {
                        zone: last_part(place).to_owned(),
                        instance: instance.name.clone(),
                        name: interface.name.clone(),
                    };
                    let covers =
                        |alias: &WireAlias| alias.read("").is_ok_and(|alias| alias.cidr.covers(&range.cidr));
                    if id.region() == region && interface.alias_ip_ranges.iter().any(covers) {
                        return Some(id);
                    }
                }
            }
        }
        None
    }
}
