//! Calls to the API server: how many, for what, and with which results. An ADD should make none.

use http::{Method, Request};
use kube::Client;
use kube::client::Body;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

type Labels = Vec<(&'static str, String)>;

/// Counts calls to the API server. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct ApiCalls {
    asked: Family<Labels, Counter>,
}

impl ApiCalls {
    /// The same client, but every call is counted.
    pub fn counting(&self, client: Client) -> Client {
        let (asked, namespace) = (self.asked.clone(), client.default_namespace().to_owned());
        let service = tower::service_fn(move |request: Request<Body>| {
            let (client, asked) = (client.clone(), asked.clone());
            let query = request.uri().query().unwrap_or_default();
            let (verb, resource) = what(request.method(), request.uri().path(), query);
            async move {
                let answer = client.send(request).await;
                let code = match &answer {
                    Ok(response) => response.status().as_str().to_owned(),
                    Err(_) => "none".to_owned(),
                };
                let labels = vec![("verb", verb.to_owned()), ("resource", resource), ("code", code)];
                asked.get_or_create(&labels).inc();
                answer
            }
        });
        Client::new(service, namespace)
    }

    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "tenure_agent_api_calls",
            "Calls to the API server by verb, resource and HTTP status, which is none where there was no answer",
            self.asked.clone(),
        );
    }
}

/// The verb as Kubernetes names it, and the resource.
fn what(method: &Method, path: &str, query: &str) -> (&'static str, String) {
    let mut parts = path.split('/').filter(|part| !part.is_empty());
    // `/api/v1/…` or `/apis/GROUP/VERSION/…`.
    let skipped = if parts.next() == Some("apis") { 2 } else { 1 };
    let rest: Vec<&str> = parts.skip(skipped).collect();
    let (resource, name) = match rest[..] {
        ["namespaces", _, resource, ..] => (resource, rest.get(3)),
        [resource, ..] => (resource, rest.get(1)),
        [] => ("", None),
    };
    let watches = query.split('&').any(|pair| pair == "watch=true" || pair == "watch=1");
    let verb = match (method, name) {
        (&Method::GET, None) if watches => "watch",
        (&Method::GET, None) if !resource.is_empty() => "list",
        (&Method::GET, _) => "get",
        (&Method::POST, _) => "create",
        (&Method::PUT, _) => "update",
        (&Method::PATCH, _) => "patch",
        (&Method::DELETE, _) => "delete",
        _ => "other",
    };
    (verb, resource.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_named_as_kubernetes_names_it() {
        for (method, path, query, expected) in [
            (Method::GET, "/api/v1/nodes/node1", "", ("get", "nodes")),
            (Method::GET, "/api/v1/namespaces", "watch=true&resourceVersion=5", ("watch", "namespaces")),
            (Method::GET, "/api/v1/namespaces/default", "", ("get", "namespaces")),
            (Method::GET, "/apis/coil.cybozu.com/v2/addressblocks", "limit=500", ("list", "addressblocks")),
            (Method::POST, "/apis/coil.cybozu.com/v2/blockrequests", "", ("create", "blockrequests")),
            (Method::DELETE, "/apis/coil.cybozu.com/v2/addressblocks/p-0", "", ("delete", "addressblocks")),
            (Method::PATCH, "/api/v1/namespaces/ns/events/e", "", ("patch", "events")),
            (Method::POST, "/apis/events.k8s.io/v1/namespaces/default/events", "", ("create", "events")),
            (Method::GET, "/version", "", ("get", "")),
        ] {
            let (verb, resource) = what(&method, path, query);
            assert_eq!((verb, resource.as_str()), expected, "{method} {path}");
        }
    }
}
