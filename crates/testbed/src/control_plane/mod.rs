//! A real control plane: etcd, kube-apiserver and kube-controller-manager on loopback ports.
//!
//! ```no_run
//! # async fn example() -> Result<(), Box<dyn std::error::Error>> {
//! use tenure_testbed::control_plane::{ControlPlane, ControlPlaneOptions, Part};
//! let plane = ControlPlane::start(ControlPlaneOptions::default()).await?;
//! let client = plane.client()?;
//! plane.kubectl(&["get", "namespaces"]).await?;
//! plane.kill(Part::ApiServer).await?;
//! plane.restart(Part::ApiServer).await?;
//! # Ok(()) }
//! ```
//!
//! RBAC is on; certificates, data and ports are its own. It is ready in a few seconds, and everything ends with the
//! value, with a panic, and with the test process, however that ends. See [`crate::process`] for how.

mod backup;
mod certificates;
mod credentials;
mod error;
mod kubectl;
mod options;
mod part;
mod patience;
mod readiness;
mod requests;

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use kube::client::ClientBuilder;
use kube::{Client, Config};
use tower::buffer::BufferLayer;
use tower::retry::RetryLayer;

use crate::binaries::{Binaries, Program};
use crate::faults::Faults;
use crate::process::Process;
use crate::run_directory::RunDirectory;

use certificates::Authority;
use credentials::{Access, Credentials};
use part::Layout;
use patience::Patience;

pub use backup::Backup;
pub use error::ControlPlaneError;
pub use options::ControlPlaneOptions;
pub use part::Part;
pub use requests::{ApiRequest, ApiRequests};

/// How many requests of a patient client wait for their turn.
const BUFFERED: usize = 1024;

/// A running control plane. Dropping it ends it and removes its data.
#[derive(Debug)]
pub struct ControlPlane {
    /// Before the directory, so that nobody writes there when it is removed.
    processes: Processes,
    layout: Layout,
    authority: Authority,
    admin: Access,
    kubeconfig: PathBuf,
    directory: RunDirectory,
}

/// The process of each part; `None` for one that is not running.
type Processes = [Mutex<Option<Arc<Process>>>; Part::ALL.len()];

impl ControlPlane {
    /// Starts one and waits until it is ready.
    ///
    /// The programs are found, built or installed as [`Binaries::locate`] says.
    pub async fn start(options: ControlPlaneOptions) -> Result<Self, ControlPlaneError> {
        let parts = options.parts();
        let needed = parts.iter().map(|part| part.program()).chain([Program::Kubectl]).collect::<Vec<_>>();
        let binaries = tokio::task::spawn_blocking(move || Binaries::locate(needed)).await??;
        let directory = RunDirectory::create("control-plane").map_err(|source| ControlPlaneError::File {
            act: "creating",
            path: "a directory for its data".into(),
            source,
        })?;
        let authority = Authority::create(directory.path())?;
        let layout = Layout::prepare(options, binaries, &directory, &authority)?;
        let admin = Access { server: layout.url(), authority: authority.root(), credentials: layout.admin() };
        let kubeconfig = admin.write(&directory.path().join("admin.kubeconfig"))?;
        let plane = Self { processes: Processes::default(), layout, authority, admin, kubeconfig, directory };
        if let Err(error) = plane.start_all(&parts).await {
            plane.keep_logs();
            return Err(error);
        }
        Ok(plane)
    }

    async fn start_all(&self, parts: &[Part]) -> Result<(), ControlPlaneError> {
        for &part in parts {
            self.launch(part)?;
            // kube-apiserver itself waits for etcd; the others would give up on a server that is not ready.
            if part != Part::Etcd {
                self.ready(part).await?;
            }
        }
        Ok(())
    }

    /// A client that may do everything (group `system:masters`).
    ///
    /// It belongs to the tokio runtime that it is created in.
    pub fn client(&self) -> Result<Client, ControlPlaneError> {
        Ok(Client::try_from(self.config()?)?)
    }

    /// The same for whoever judges a run: reads wait for a server that is away.
    pub fn patient_client(&self) -> Result<Client, ControlPlaneError> {
        let builder = ClientBuilder::try_from(self.config()?)?.with_layer(&BufferLayer::new(BUFFERED));
        Ok(builder.with_layer(&RetryLayer::new(Patience::default())).build())
    }

    /// The same with `faults` between it and the server, and without the usual retries on 429, 503 and 504:
    /// each fault reaches the code under test, and each request is counted once.
    pub fn client_with(&self, faults: &Faults) -> Result<Client, ControlPlaneError> {
        let mut config = self.config()?;
        config.default_retry = false;
        Ok(ClientBuilder::try_from(config)?.with_layer(&faults.layer()).build())
    }

    /// A client of the named user in the named groups, with a client certificate. It has the rights that RBAC
    /// (or the node authorizer, for `system:node:NAME` in `system:nodes`) gives them.
    pub fn client_as(&self, user: &str, groups: &[&str]) -> Result<Client, ControlPlaneError> {
        Ok(Client::try_from(self.access(user, groups)?.config()?)?)
    }

    /// A client with `token`, for example one that was requested for a service account.
    pub fn client_with_token(&self, token: &str) -> Result<Client, ControlPlaneError> {
        let access = Access { credentials: Credentials::Token(token.to_owned()), ..self.admin.clone() };
        Ok(Client::try_from(access.config()?)?)
    }

    /// The configuration of [`Self::client`], for other kinds of clients.
    pub fn config(&self) -> Result<Config, ControlPlaneError> {
        self.admin.config()
    }

    /// The address of the API server, as `https://127.0.0.1:PORT`, or with the configured listen address.
    pub fn url(&self) -> String {
        self.layout.url()
    }

    /// The bearer token of the administrator.
    pub fn token(&self) -> &str {
        self.layout.token()
    }

    /// The certificate of the authority that signed all others, as a PEM file.
    pub fn authority(&self) -> PathBuf {
        self.authority.certificate()
    }

    /// Writes a certificate for a server with these names and addresses, and its key, as two PEM files.
    pub fn server_certificate(
        &self,
        name: &str,
        names: &[String],
    ) -> Result<(PathBuf, PathBuf), ControlPlaneError> {
        self.authority.write_server(name, names)
    }

    /// A kubeconfig file of the administrator.
    pub fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Writes a kubeconfig file for the named user in the named groups, for programs that reach the API server
    /// under the URL `server`.
    pub fn kubeconfig_for(
        &self,
        server: &str,
        user: &str,
        groups: &[&str],
    ) -> Result<PathBuf, ControlPlaneError> {
        let access = Access { server: server.to_owned(), ..self.access(user, groups)? };
        access.write(&self.directory.path().join(format!("{}.kubeconfig", user.replace(['/', ':'], "-"))))
    }

    fn access(&self, user: &str, groups: &[&str]) -> Result<Access, ControlPlaneError> {
        let credentials = Credentials::Certificate(self.authority.client(user, groups)?);
        Ok(Access { credentials, ..self.admin.clone() })
    }

    /// The programs it was started with.
    pub fn binaries(&self) -> &Binaries {
        self.layout.binaries()
    }

    /// The directory of its data, its certificates and its [logs](Self::logs).
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The directory of its logs.
    pub fn logs(&self) -> PathBuf {
        self.directory.logs()
    }

    /// Keeps the logs even without a panic.
    pub fn keep_logs(&self) {
        self.directory.keep_logs();
    }

    /// The process id of a part, if it runs.
    pub fn process_id(&self, part: Part) -> Option<u32> {
        self.process(part).filter(|process| process.is_running()).map(|process| process.id())
    }

    /// Asks a part to end (SIGTERM) and waits until it has.
    pub async fn stop(&self, part: Part) -> Result<(), ControlPlaneError> {
        self.end(part, Process::stop).await
    }

    /// Ends a part at once (SIGKILL) and waits until it is gone.
    pub async fn kill(&self, part: Part) -> Result<(), ControlPlaneError> {
        self.end(part, Process::kill).await
    }

    /// Stops a part if it runs, starts it with its former data and port, and waits until it is ready.
    pub async fn restart(&self, part: Part) -> Result<(), ControlPlaneError> {
        self.stop(part).await?;
        self.launch(part)?;
        self.ready(part).await
    }

    /// Suspends a part (SIGSTOP): its connections stay open, and nothing is answered.
    pub fn pause(&self, part: Part) -> Result<(), ControlPlaneError> {
        Ok(self.running(part)?.pause()?)
    }

    /// Resumes a suspended part (SIGCONT).
    pub fn resume(&self, part: Part) -> Result<(), ControlPlaneError> {
        Ok(self.running(part)?.resume()?)
    }

    async fn end(
        &self,
        part: Part,
        how: impl FnOnce(&Process) -> Result<(), crate::process::ProcessError> + Send + 'static,
    ) -> Result<(), ControlPlaneError> {
        let Some(process) = self.process(part) else { return Ok(()) };
        Ok(tokio::task::spawn_blocking(move || how(&process)).await??)
    }

    fn launch(&self, part: Part) -> Result<(), ControlPlaneError> {
        let process = self.layout.launch(part)?.start()?;
        *self.slot(part).lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(process));
        Ok(())
    }

    fn running(&self, part: Part) -> Result<Arc<Process>, ControlPlaneError> {
        self.process(part)
            .filter(|process| process.is_running())
            .ok_or(ControlPlaneError::NotRunning { part })
    }

    fn process(&self, part: Part) -> Option<Arc<Process>> {
        self.slot(part).lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn slot(&self, part: Part) -> &Mutex<Option<Arc<Process>>> {
        &self.processes[part.index()]
    }
}

impl Drop for ControlPlane {
    fn drop(&mut self) {
        // All at once and not one after the other; each is waited for when its process is dropped.
        for part in Part::ALL {
            if let Some(process) = self.process(part) {
                drop(process.signal(nix::sys::signal::Signal::SIGKILL));
            }
        }
    }
}
