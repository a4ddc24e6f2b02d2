//! Connecting to the API server.

use std::path::{Path, PathBuf};

use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};

use crate::channel;

/// Why there is no connection to the API server.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The file cannot be read.
    #[error("reading {path}")]
    Read {
        /// Its path.
        path: PathBuf,
        /// Why.
        source: kube::config::KubeconfigError,
    },
    /// The file does not say how to reach a server.
    #[error("understanding {from}{}", of(context.as_deref()))]
    Understand {
        /// Which file.
        from: String,
        /// The requested context.
        context: Option<String>,
        /// Why.
        source: kube::config::KubeconfigError,
    },
    /// There is neither a kubeconfig nor a service account.
    #[error("finding the API server: there is no kubeconfig, and this is no pod")]
    Find(#[source] kube::config::InferConfigError),
    /// The client cannot be created.
    #[error("connecting to the API server")]
    Client(#[source] kube::Error),
}

fn of(context: Option<&str>) -> String {
    context.map(|context| format!(", context \"{context}\"")).unwrap_or_default()
}

/// A client from the kubeconfig; without one from `KUBECONFIG`, `~/.kube/config`, or the pod's service
/// account, in this order. Makes no call.
pub async fn connect(kubeconfig: Option<&Path>, context: Option<&str>) -> Result<Client, ConnectError> {
    let options = KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
    let understand = |from: String| {
        let context = context.map(str::to_owned);
        move |source| ConnectError::Understand { from, context, source }
    };
    let config = match (kubeconfig, context) {
        (Some(path), _) => {
            let file = Kubeconfig::read_from(path)
                .map_err(|source| ConnectError::Read { path: path.to_owned(), source })?;
            Config::from_custom_kubeconfig(file, &options)
                .await
                .map_err(understand(path.display().to_string()))?
        }
        (None, Some(_)) => {
            Config::from_kubeconfig(&options).await.map_err(understand("the kubeconfig".to_owned()))?
        }
        (None, None) => Config::infer().await.map_err(ConnectError::Find)?,
    };
    channel::client(config).map_err(ConnectError::Client)
}
