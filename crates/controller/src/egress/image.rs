//! The default image of gateways: that of the controller's own pod, which contains their program.

use std::sync::Arc;
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client};
use tenure_handles::Clock;
use tenure_watch::Connection;

/// How long the API server may take to answer.
const ANSWER: Duration = Duration::from_secs(10);

/// Why there is none.
#[derive(Debug, thiserror::Error)]
#[error("looking for the image of egress gateways: pod \"{namespace}/{name}\" {reason}; give --egress-image")]
pub struct ImageError {
    namespace: String,
    name: String,
    reason: &'static str,
}

/// The image of a pod's first container. Waits while the API server does not answer.
pub async fn image_of_pod(
    client: &Client,
    clock: impl Clock,
    namespace: &str,
    name: &str,
) -> Result<String, ImageError> {
    let failed = |reason| ImageError { namespace: namespace.to_owned(), name: name.to_owned(), reason };
    let pods: Api<Pod> = Api::namespaced(client.clone(), namespace);
    let connection = Connection::named(client.clone(), Arc::new(clock), name);
    let mut backoff = connection.backoff();
    loop {
        let act = || format!("reading Pod {namespace}/{name}");
        match connection.once(ANSWER, act, pods.get_opt(name)).await {
            Ok(pod) => {
                let spec = pod.ok_or_else(|| failed("does not exist"))?.spec.unwrap_or_default();
                let image = spec.containers.into_iter().find_map(|container| container.image);
                return image.ok_or_else(|| failed("has no image"));
            }
            Err(error) => tracing::warn!(%error, name, "asking for the own pod failed; trying again"),
        }
        backoff.wait().await;
    }
}

#[cfg(test)]
mod tests {
    use tenure_handles::SystemClock;

    use super::super::tests::rig::{NAMESPACE, Rig};
    use super::*;

    #[tokio::test]
    async fn the_image_is_that_of_the_own_pod() {
        let rig = Rig::new().await;
        rig.pod("controller", "internet", "Running", &[]).await;
        assert_eq!(image_of_pod(&rig.client, SystemClock, NAMESPACE, "controller").await.unwrap(), "x");
        let said = image_of_pod(&rig.client, SystemClock, NAMESPACE, "nobody").await.unwrap_err().to_string();
        let expected = "looking for the image of egress gateways: pod \"internet/nobody\" does not exist; give --egress-image";
        assert_eq!(said, expected);
    }
}
