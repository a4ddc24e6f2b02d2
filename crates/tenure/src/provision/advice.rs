//! What to do about an error.

use anyhow::anyhow;
use tenure_cloud::{CloudError, ErrorKind};

/// An error of the cloud with what would help. `permission` is what the call needs.
pub(super) fn about(error: &CloudError, project: &str, permission: &str) -> anyhow::Error {
    match remedy(error, project, permission) {
        Some(remedy) => anyhow!("{error}; {remedy}"),
        None => anyhow!("{error}"),
    }
}

fn remedy(error: &CloudError, project: &str, permission: &str) -> Option<String> {
    let api = if permission.starts_with("networkconnectivity") { "networkconnectivity" } else { "compute" };
    let says = |text: &str| error.message.contains(text);
    if says("has not been used in project") || says("it is disabled") || says("SERVICE_DISABLED") {
        return Some(format!(
            "enable the API and try again: gcloud services enable {api}.googleapis.com --project={project}"
        ));
    }
    match error.kind {
        ErrorKind::Denied => Some(format!(
            "the account needs the permission {permission} in project {project} (docs/gcp.md has a role with exactly what is needed)"
        )),
        ErrorKind::Capacity => Some(format!(
            "a quota or limit is reached: ask for more on the page \"Quotas\" of project {project}, or remove what is not needed"
        )),
        ErrorKind::NotFound => {
            Some("check --project, --region and --subnet, or leave them out to use this machine's".to_owned())
        }
        ErrorKind::Invalid(_) if permission.ends_with("internalRanges.create") => {
            Some("choose a smaller range by --prefix, another place by --within, or the range itself by --cidr".to_owned())
        }
        ErrorKind::Invalid(_) if says("already being used") => Some(
            "machines still have aliases of this range: delete the pods that have them, and try again when the controller has \
             removed the aliases"
                .to_owned(),
        ),
        _ => None,
    }
}

/// The same for an error of the cluster. `verb` is what the role lacks, if it does.
pub(super) fn about_cluster(error: kube::Error, act: &str, verb: &str) -> anyhow::Error {
    let remedy = match &error {
        kube::Error::Api(status) if status.code == 403 => {
            format!("; the role needs the verb {verb} for ippools.ipam.gcp-cni.cast.ai (deploy/optional/gcp-provision.yaml)")
        }
        kube::Error::Api(status) if status.code == 404 => {
            "; the cluster does not have the kind: kubectl apply -f deploy/crds/ipam.gcp-cni.cast.ai_ippools.yaml".to_owned()
        }
        _ => String::new(),
    };
    anyhow::Error::new(error).context(format!("{act}{remedy}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_says_what_to_do() {
        let said = |kind, message: &str, permission| {
            about(&CloudError::new(kind, message), "p", permission).to_string()
        };
        assert_eq!(
            said(ErrorKind::Denied, "reading subnet n: 403 no", "compute.subnetworks.get"),
            "reading subnet n: 403 no; the account needs the permission compute.subnetworks.get in project p (docs/gcp.md has a \
             role with exactly what is needed)"
        );
        let disabled = "reserving internal range r: 403 Network Connectivity API has not been used in project 1 before or it is disabled.";
        assert!(
            said(ErrorKind::Denied, disabled, "networkconnectivity.internalRanges.create")
                .ends_with("gcloud services enable networkconnectivity.googleapis.com --project=p")
        );
        for (kind, permission, part) in [
            (ErrorKind::Capacity, "compute.subnetworks.update", "page \"Quotas\" of project p"),
            (ErrorKind::NotFound, "compute.subnetworks.get", "--subnet"),
            (ErrorKind::Invalid(None), "networkconnectivity.internalRanges.create", "--within"),
        ] {
            let said = said(kind, "acting: 4xx", permission);
            assert!(said.starts_with("acting: 4xx; ") && said.contains(part), "{said}");
        }
        assert_eq!(
            said(ErrorKind::Invalid(None), "acting: 400 x", "compute.subnetworks.get"),
            "acting: 400 x"
        );
    }
}
