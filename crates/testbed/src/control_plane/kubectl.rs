//! Runs kubectl as the administrator of a control plane.

use std::process::Stdio;

use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;

use super::{ControlPlane, ControlPlaneError};
use crate::binaries::Program;

impl ControlPlane {
    /// Runs kubectl with these arguments; returns its output, or an error with its message.
    pub async fn kubectl(&self, arguments: &[&str]) -> Result<String, ControlPlaneError> {
        self.kubectl_with_input(arguments, "").await
    }

    /// Runs kubectl with these arguments and this text as its input, as in `apply -f -`.
    pub async fn kubectl_with_input(
        &self,
        arguments: &[&str],
        input: &str,
    ) -> Result<String, ControlPlaneError> {
        let path = self.binaries().path(Program::Kubectl)?;
        let failed = |source| ControlPlaneError::File { act: "running", path: path.to_owned(), source };
        let mut child = Command::new(path)
            .args(arguments)
            .env("KUBECONFIG", self.kubeconfig())
            // kubectl caches discovery in the home directory by the server's address, which another control
            // plane may have had.
            .env("KUBECACHEDIR", self.directory().join("kubectl-cache"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(failed)?;
        let stdin = child.stdin.take();
        let feed = async {
            if let Some(mut stdin) = stdin {
                // A kubectl that does not read its input is no error.
                drop(stdin.write_all(input.as_bytes()).await);
            }
        };
        let ((), output) = tokio::join!(feed, child.wait_with_output());
        let output = output.map_err(failed)?;
        if output.status.success() {
            return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
        }
        Err(ControlPlaneError::Kubectl {
            arguments: arguments.join(" "),
            status: output.status.to_string(),
            said: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        })
    }
}
