//! The source of information: a cluster by its kubeconfig, or one host by the sockets of its agent.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Result, bail};
use clap::Args;
use kube::Client;
use tenure_daemon::connect_unix;

use crate::agents::Agents;
use crate::table::Format;

/// The directory of an agent's sockets.
const RUN_DIRECTORY: &str = "/run/tenure";
/// The socket of the embedded API.
const API_SOCKET: &str = "api.sock";

/// Where to ask, and how the answer looks.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct QueryOptions {
    /// Kubeconfig file of the cluster; without it the usual places
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig
    #[arg(long)]
    context: Option<String>,
    /// Namespace of the agents' pods
    #[arg(long, value_name = "NAMESPACE", default_value = "kube-system", conflicts_with = "run_dir")]
    agents_namespace: String,
    /// Ask the one host whose agent has its sockets here; /run/tenure if there is no kubeconfig
    #[arg(long, value_name = "DIRECTORY", conflicts_with_all = ["kubeconfig", "context"])]
    run_dir: Option<PathBuf>,
    /// How the answer looks
    #[arg(short, long, value_enum, default_value = "table")]
    pub(crate) output: Format,
}

/// The source to read from.
pub(crate) struct Source {
    /// The API, or why there is none.
    client: Result<Client, String>,
    /// The agents.
    pub(crate) agents: Agents,
    /// Whether there is a Kubernetes with pods.
    pub(crate) cluster: bool,
}

impl Source {
    /// Several hosts on one machine, and the API that they share.
    pub(crate) fn of_hosts(client: Client, sockets: BTreeMap<String, PathBuf>) -> Self {
        Self { client: Ok(client), agents: Agents::Hosts(sockets), cluster: true }
    }

    /// The API.
    pub(crate) fn client(&self) -> Result<&Client> {
        self.client.as_ref().map_err(|problem| anyhow::anyhow!("{problem}"))
    }
}

/// What there is to choose from.
#[derive(Clone, Debug, Default)]
struct There {
    kubeconfig: bool,
    sockets: bool,
    service_account: bool,
}

#[derive(Debug, PartialEq, Eq)]
enum Choice {
    Cluster,
    Host(PathBuf),
    Nothing,
}

impl QueryOptions {
    /// Finds the source. Makes no call.
    pub(crate) async fn source(&self) -> Result<Source> {
        match self.choose(&There::look()) {
            Choice::Cluster => {
                let client =
                    tenure_daemon::connect(self.kubeconfig.as_deref(), self.context.as_deref()).await?;
                let agents = Agents::Cluster(client.clone(), self.agents_namespace.clone());
                Ok(Source { agents, client: Ok(client), cluster: true })
            }
            Choice::Host(directory) => Ok(host(&directory)),
            Choice::Nothing => bail!(
                "there is no kubeconfig, and no agent has its sockets in {RUN_DIRECTORY}; \
                 accepted is --kubeconfig FILE for a cluster, or --run-dir DIRECTORY for one host"
            ),
        }
    }

    fn choose(&self, there: &There) -> Choice {
        if let Some(directory) = &self.run_dir {
            return Choice::Host(directory.clone());
        }
        if self.kubeconfig.is_some() || self.context.is_some() || there.kubeconfig {
            return Choice::Cluster;
        }
        match there {
            There { sockets: true, .. } => Choice::Host(RUN_DIRECTORY.into()),
            There { service_account: true, .. } => Choice::Cluster,
            _ => Choice::Nothing,
        }
    }
}

impl There {
    fn look() -> Self {
        let named = std::env::var_os("KUBECONFIG").is_some_and(|value| !value.is_empty());
        let home = std::env::var_os("HOME").map(PathBuf::from);
        let socket = |name| Path::new(RUN_DIRECTORY).join(name).exists();
        Self {
            kubeconfig: named || home.is_some_and(|home| home.join(".kube/config").exists()),
            sockets: socket(API_SOCKET) || socket(tenure_view::SOCKET),
            service_account: std::env::var_os("KUBERNETES_SERVICE_HOST").is_some(),
        }
    }
}

/// One host: its agent by one socket, and the embedded API, if it has one, by another.
fn host(directory: &Path) -> Source {
    let api = directory.join(API_SOCKET);
    let client = if api.exists() {
        Ok(connect_unix(&api))
    } else {
        Err(format!(
            "pools and blocks are objects of an API, and there is none at {}; this host is part of a cluster, or its \
             agent does not run; accepted is --kubeconfig FILE for the cluster",
            api.display()
        ))
    };
    Source { client, agents: Agents::Host(directory.join(tenure_view::SOCKET)), cluster: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_is_asked_if_there_is_a_kubeconfig_else_this_host() {
        let there = |kubeconfig, sockets, service_account| There { kubeconfig, sockets, service_account };
        let plain = QueryOptions::default();
        assert_eq!(plain.choose(&there(true, true, true)), Choice::Cluster);
        assert_eq!(plain.choose(&there(false, true, true)), Choice::Host(RUN_DIRECTORY.into()));
        assert_eq!(plain.choose(&there(false, false, true)), Choice::Cluster);
        assert_eq!(plain.choose(&there(false, false, false)), Choice::Nothing);
        let host = QueryOptions { run_dir: Some("/x".into()), ..QueryOptions::default() };
        assert_eq!(host.choose(&there(true, false, false)), Choice::Host("/x".into()));
        let cluster = QueryOptions { context: Some("c".into()), ..QueryOptions::default() };
        assert_eq!(cluster.choose(&there(false, true, false)), Choice::Cluster);
    }

    #[tokio::test]
    async fn a_host_without_sockets_is_said_with_what_would_help() {
        let directory = tempfile::tempdir().unwrap();
        let source = host(directory.path());
        let error = source.client().err().unwrap().to_string();
        assert!(error.contains("api.sock") && error.contains("--kubeconfig"), "{error}");
        let error = source.agents.one("").await.unwrap_err();
        assert!(error.contains("state.sock: it is not there; is tenured running?"), "{error}");
    }
}
