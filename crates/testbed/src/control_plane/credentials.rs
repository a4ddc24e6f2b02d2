//! Credentials for an API server, as a client configuration and as a kubeconfig file.

use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use kube::Config;
use serde_json::{Value, json};

use super::ControlPlaneError;
use super::certificates::{Certificate, RootCertificate};

/// How a client proves its identity.
#[derive(Clone, Debug)]
pub(super) enum Credentials {
    /// By a bearer token.
    Token(String),
    /// By a client certificate.
    Certificate(Certificate),
}

/// The server, its trusted authority, and the client's credentials.
#[derive(Clone, Debug)]
pub(super) struct Access {
    pub(super) server: String,
    pub(super) authority: RootCertificate,
    pub(super) credentials: Credentials,
}

impl Access {
    /// A client's configuration.
    pub(super) fn config(&self) -> Result<Config, ControlPlaneError> {
        let wrong = |source| ControlPlaneError::Url { url: self.server.clone(), source };
        let mut config = Config::new(self.server.parse().map_err(wrong)?);
        config.root_cert = Some(vec![self.authority.der.clone()]);
        config.auth_info = serde_json::from_value(self.user())?;
        Ok(config)
    }

    /// Writes it as a kubeconfig file.
    pub(super) fn write(&self, path: &Path) -> Result<PathBuf, ControlPlaneError> {
        let kubeconfig = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{
                "name": "testbed",
                "cluster": {"server": self.server, "certificate-authority-data": STANDARD.encode(&self.authority.pem)},
            }],
            "users": [{"name": "testbed", "user": self.user()}],
            "contexts": [{"name": "testbed", "context": {"cluster": "testbed", "user": "testbed"}}],
            "current-context": "testbed",
        });
        std::fs::write(path, format!("{kubeconfig:#}\n")).map_err(|source| ControlPlaneError::File {
            act: "writing",
            path: path.to_owned(),
            source,
        })?;
        Ok(path.to_owned())
    }

    fn user(&self) -> Value {
        match &self.credentials {
            Credentials::Token(token) => json!({"token": token}),
            Credentials::Certificate(Certificate { certificate, key }) => json!({
                "client-certificate-data": STANDARD.encode(certificate),
                "client-key-data": STANDARD.encode(key),
            }),
        }
    }
}
