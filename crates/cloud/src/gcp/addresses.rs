//! The addresses of Google's APIs, and the paths of the calls.

use super::http::encoded;
use crate::error::{CloudError, ErrorKind};
use crate::interface::InterfaceId;

/// Where the APIs are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoints {
    /// The Compute API, with its version.
    pub compute: String,
    /// The Network Connectivity API, with its version.
    pub connectivity: String,
}

impl Default for Endpoints {
    fn default() -> Self {
        Self {
            compute: "https://compute.googleapis.com/compute/v1".to_owned(),
            connectivity: "https://networkconnectivity.googleapis.com/v1".to_owned(),
        }
    }
}

impl Endpoints {
    pub(super) fn instance(&self, project: &str, interface: &InterfaceId) -> Result<String, CloudError> {
        Ok(format!(
            "{}/projects/{}/zones/{}/instances/{}",
            self.compute,
            segment("project", project)?,
            segment("zone", &interface.zone)?,
            segment("instance", &interface.instance)?
        ))
    }

    pub(super) fn update(
        &self,
        project: &str,
        interface: &InterfaceId,
        request: &str,
    ) -> Result<String, CloudError> {
        Ok(format!(
            "{}/updateNetworkInterface?networkInterface={}&requestId={}",
            self.instance(project, interface)?,
            segment("interface", &interface.name)?,
            segment("request", request)?
        ))
    }

    pub(super) fn zone_operation(&self, project: &str, zone: &str, name: &str) -> Result<String, CloudError> {
        self.operation(project, "zones", zone, name)
    }

    pub(super) fn region_operation(
        &self,
        project: &str,
        region: &str,
        name: &str,
    ) -> Result<String, CloudError> {
        self.operation(project, "regions", region, name)
    }

    fn operation(&self, project: &str, kind: &str, place: &str, name: &str) -> Result<String, CloudError> {
        Ok(format!(
            "{}/projects/{}/{kind}/{}/operations/{}",
            self.compute,
            segment("project", project)?,
            segment("zone or region", place)?,
            segment("operation", name)?
        ))
    }

    pub(super) fn unfinished_operations(&self, project: &str, zone: &str) -> Result<String, CloudError> {
        Ok(format!(
            "{}/projects/{}/zones/{}/operations?maxResults=500&filter={}",
            self.compute,
            segment("project", project)?,
            segment("zone", zone)?,
            encoded("status != \"DONE\"")
        ))
    }

    pub(super) fn all_instances(&self, project: &str, page: Option<&str>) -> Result<String, CloudError> {
        let fields = "items/*/instances(name,zone,networkInterfaces(name,aliasIpRanges)),nextPageToken";
        let page = page.map(|page| format!("&pageToken={}", encoded(page))).unwrap_or_default();
        Ok(format!(
            "{}/projects/{}/aggregated/instances?maxResults=500&fields={}{page}",
            self.compute,
            segment("project", project)?,
            encoded(fields)
        ))
    }

    pub(super) fn subnetwork(&self, project: &str, region: &str, name: &str) -> Result<String, CloudError> {
        Ok(format!(
            "{}/projects/{}/regions/{}/subnetworks/{}",
            self.compute,
            segment("project", project)?,
            segment("region", region)?,
            segment("subnet", name)?
        ))
    }

    pub(super) fn internal_ranges(&self, project: &str) -> Result<String, CloudError> {
        let project = segment("project", project)?;
        Ok(format!("{}/projects/{project}/locations/global/internalRanges", self.connectivity))
    }

    /// The operations of this API have whole paths as names.
    pub(super) fn connectivity_operation(&self, name: &str) -> Result<String, CloudError> {
        for part in name.split('/') {
            segment("operation", part)?;
        }
        Ok(format!("{}/{name}", self.connectivity))
    }
}

/// A part of a path: a name that cannot mean anything else.
pub(super) fn segment<'a>(field: &str, text: &'a str) -> Result<&'a str, CloudError> {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.:".contains(c);
    if !text.is_empty() && text.chars().all(plain) && !text.chars().all(|c| c == '.') {
        return Ok(text);
    }
    Err(CloudError::new(
        ErrorKind::Invalid(None),
        format!("{field} \"{text}\" is no name; accepted are letters, digits, '-', '_', '.' and ':'"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_cannot_lead_elsewhere() {
        let endpoints = Endpoints::default();
        let interface = InterfaceId::first("europe-west4-a", "gke-a");
        assert_eq!(
            endpoints.update("p", &interface, "b9").unwrap(),
            "https://compute.googleapis.com/compute/v1/projects/p/zones/europe-west4-a/instances/gke-a/updateNetworkInterface\
             ?networkInterface=nic0&requestId=b9"
        );
        for bad in ["", "a/b", "..", "a?b", "a b", "a%2f"] {
            let error = endpoints.instance("p", &InterfaceId::first("z", bad)).unwrap_err();
            assert!(error.to_string().starts_with(&format!("instance \"{bad}\" is no name")), "{error}");
        }
        assert!(endpoints.connectivity_operation("projects/p/../x").is_err());
    }
}
