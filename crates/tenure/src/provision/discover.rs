//! Where the pool is to be: from flags, the metadata server, and the machine itself.

use anyhow::{Context, Result, bail};
use tenure_cloud::gcp::{Gcp, Metadata};
use tenure_cloud::{CloudError, InterfaceId};

use super::{GcpOptions, advice};

/// A subnet, and the cluster in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ClusterSubnet {
    /// The project of the subnet, which may not be that of the machines.
    pub(super) project: String,
    pub(super) region: String,
    /// The name of the subnet.
    pub(super) subnet: String,
    pub(super) cluster: Option<String>,
}

impl ClusterSubnet {
    /// The subnet as an IPPool names it.
    pub(super) fn path(&self) -> String {
        format!("projects/{}/regions/{}/subnetworks/{}", self.project, self.region, self.subnet)
    }

    /// The subnet of a path or URL.
    fn of(path: &str, cluster: Option<String>) -> Option<Self> {
        let mut parts = path.rsplit('/');
        let [subnet, "subnetworks", region, "regions", project, "projects"] =
            std::array::from_fn(|_| parts.next().unwrap_or_default())
        else {
            return None;
        };
        let all_named = [subnet, region, project].iter().all(|part| !part.is_empty());
        all_named.then(|| Self {
            project: project.to_owned(),
            region: region.to_owned(),
            subnet: subnet.to_owned(),
            cluster,
        })
    }
}

/// Finds the place. The metadata server is asked for what no flag says, and for nothing else.
pub(super) async fn place(options: &GcpOptions, metadata: &Metadata, gcp: &Gcp) -> Result<ClusterSubnet> {
    let cluster = match &options.cluster {
        Some(cluster) => Some(cluster.clone()),
        // It only makes a name, which a flag can give as well.
        None if options.internal_range.is_some() || options.is_static => None,
        None => metadata.cluster().await.map_err(|error| no_metadata(&error, "--cluster NAME"))?,
    };
    if let Some(path) = options.subnet.as_ref().filter(|subnet| subnet.contains('/')) {
        return ClusterSubnet::of(path, cluster).with_context(|| {
            format!("--subnet {path} is no subnet; accepted is a name, or projects/PROJECT/regions/REGION/subnetworks/NAME")
        });
    }
    let project = match &options.project {
        Some(project) => project.clone(),
        None => metadata.project().await.map_err(|error| no_metadata(&error, "--project PROJECT"))?,
    };
    let zone = match (&options.zone, &options.region, &options.subnet) {
        (Some(zone), ..) => zone.clone(),
        (None, Some(_), Some(_)) => String::new(),
        _ => metadata.zone().await.map_err(|error| no_metadata(&error, "--zone ZONE"))?,
    };
    if let Some(subnet) = &options.subnet {
        let of_zone = InterfaceId::first(&zone, "").region().to_owned();
        let region = options.region.clone().unwrap_or(of_zone);
        return Ok(ClusterSubnet { project, region, subnet: subnet.clone(), cluster });
    }
    let instance = match &options.instance {
        Some(instance) => instance.clone(),
        None => metadata
            .instance()
            .await
            .map_err(|error| no_metadata(&error, "--instance NAME or --subnet NAME"))?,
    };
    let interface = InterfaceId::first(&zone, &instance);
    let found = gcp.in_project(&project).subnet_of(&interface).await;
    let found = found.map_err(|error| advice::about(&error, &project, "compute.instances.get"))?;
    let place = ClusterSubnet::of(&found, cluster);
    let place =
        place.with_context(|| format!("{interface} is in \"{found}\", which is no subnet; give --subnet"))?;
    if let Some(region) = options.region.as_ref().filter(|region| **region != place.region) {
        bail!("--region {region} is not that of {interface}, which is in {}", place.region);
    }
    Ok(place)
}

fn no_metadata(error: &CloudError, flag: &str) -> anyhow::Error {
    anyhow::anyhow!("{error}; on a machine that is not Google's, or to choose another place, give {flag}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_subnet_is_known_by_its_path_or_its_url() {
        let place = ClusterSubnet {
            project: "shared".to_owned(),
            region: "europe-west4".to_owned(),
            subnet: "nodes".to_owned(),
            cluster: Some("c".to_owned()),
        };
        let path = "projects/shared/regions/europe-west4/subnetworks/nodes";
        for text in [path.to_owned(), format!("https://compute.googleapis.com/compute/v1/{path}")] {
            assert_eq!(ClusterSubnet::of(&text, Some("c".to_owned())), Some(place.clone()));
        }
        assert_eq!(place.path(), path);
        for bad in
            ["nodes", "projects/p/subnetworks/nodes", "projects//regions/r/subnetworks/n", "a/b/c/d/e/f"]
        {
            assert_eq!(ClusterSubnet::of(bad, None), None, "{bad}");
        }
    }
}
