//! This host as a Node of the embedded API.
//!
//! Blocks belong to the Node, so it stays the same across restarts, reboots and changes of the hostname. A
//! label marks it, in case somebody creates other Nodes.

use k8s_openapi::api::core::v1::Node;
use kube::api::{ListParams, ObjectMeta, PostParams};
use kube::{Api, Client, ResourceExt};

use super::{Error, StandaloneOptions};

/// Marks the Node of this host.
const THIS_HOST: &str = "tenure/this-host";

/// Creates the Node if there is none yet; returns its name.
pub(super) async fn register(client: &Client, options: &StandaloneOptions) -> Result<String, Error> {
    let nodes: Api<Node> = Api::all(client.clone());
    let failed = |act: &str| {
        let act = act.to_owned();
        move |source: kube::Error| Error::Api { act, source: Box::new(source) }
    };
    let mine = ListParams::default().labels(THIS_HOST);
    let known = nodes.list(&mine).await.map_err(failed("list the nodes"))?;
    if let Some(known) = known.items.first() {
        let kept = known.name_any();
        return match &options.node {
            Some(given) if *given != kept => {
                Err(Error::OtherNode { given: given.clone(), kept, state_dir: options.state_dir.clone() })
            }
            _ => Ok(kept),
        };
    }
    let name = match &options.node {
        Some(given) => given.clone(),
        None => from_hostname(&options.hostname)?,
    };
    let labels = [(THIS_HOST, "true"), ("kubernetes.io/hostname", &name)];
    let labels = labels.map(|(key, value)| (key.to_owned(), value.to_owned()));
    let metadata =
        ObjectMeta { name: Some(name.clone()), labels: Some(labels.into()), ..ObjectMeta::default() };
    let node = Node { metadata, ..Node::default() };
    let created = nodes.create(&PostParams::default(), &node).await;
    created.map_err(failed(&format!("register this host as the node {name:?}")))?;
    Ok(name)
}

/// A node's name from a hostname: the same in lower case.
fn from_hostname(hostname: &str) -> Result<String, Error> {
    let name = hostname.trim().trim_end_matches('.').to_lowercase();
    let edges = [name.chars().next(), name.chars().last()];
    let good = name.len() <= 63
        && name.chars().all(|it| it.is_ascii_alphanumeric() || it == '-' || it == '.')
        && edges.iter().all(|edge| edge.is_some_and(|it| it.is_ascii_alphanumeric()));
    if good { Ok(name) } else { Err(Error::Hostname(hostname.trim().to_owned())) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostname_becomes_a_nodes_name_or_is_refused_with_its_value() {
        assert_eq!(from_hostname("Box-7.Example.org.\n").unwrap(), "box-7.example.org");
        for bad in ["", "under_score", "-edge", "höst", &"x".repeat(64)] {
            let error = from_hostname(bad).unwrap_err().to_string();
            assert!(error.contains(&format!("{bad:?}")) && error.contains("--node-name"), "{error}");
        }
    }
}
