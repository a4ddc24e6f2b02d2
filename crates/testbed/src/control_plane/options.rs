//! The options of a control plane.

use std::net::IpAddr;

use super::Part;

/// The options of a control plane. The defaults suit most tests.
#[derive(Clone, Debug)]
pub struct ControlPlaneOptions {
    pub(super) controller_manager: bool,
    pub(super) scheduler: bool,
    pub(super) durable: bool,
    pub(super) service_range: String,
    pub(super) advertised: Option<IpAddr>,
    pub(super) names: Vec<String>,
    pub(super) arguments: Vec<(Part, String)>,
}

impl Default for ControlPlaneOptions {
    fn default() -> Self {
        Self {
            controller_manager: true,
            scheduler: false,
            durable: false,
            service_range: "10.96.0.0/16".to_owned(),
            advertised: None,
            names: Vec::new(),
            arguments: Vec::new(),
        }
    }
}

impl ControlPlaneOptions {
    /// Without kube-controller-manager: nobody creates service accounts, deletes namespaces or collects
    /// garbage. The API server then does not require a service account for pods.
    #[must_use]
    pub fn without_controller_manager(mut self) -> Self {
        self.controller_manager = false;
        self
    }

    /// With kube-scheduler.
    #[must_use]
    pub fn with_scheduler(mut self) -> Self {
        self.scheduler = true;
        self
    }

    /// With an etcd that syncs each write to the disk: for benchmarks. Tests do not need it: after a kill of
    /// the process, acknowledged writes are still in the kernel.
    #[must_use]
    pub fn durable(mut self) -> Self {
        self.durable = true;
        self
    }

    /// The range of Services' addresses; the default is `10.96.0.0/16`.
    #[must_use]
    pub fn service_range(mut self, range: impl Into<String>) -> Self {
        self.service_range = range.into();
        self
    }

    /// The listen address of the API server, on an interface of this machine that pods can reach, instead of
    /// loopback. It becomes the endpoint of the Service `kubernetes`, which otherwise has none.
    #[must_use]
    pub fn advertised_at(mut self, address: IpAddr) -> Self {
        self.advertised = Some(address);
        self.names.push(address.to_string());
        self
    }

    /// A further name or address in the API server's certificate.
    #[must_use]
    pub fn known_as(mut self, name: impl Into<String>) -> Self {
        self.names.push(name.into());
        self
    }

    /// A further argument for a part. If an argument is given twice, the last one counts.
    #[must_use]
    pub fn argument(mut self, part: Part, argument: impl Into<String>) -> Self {
        self.arguments.push((part, argument.into()));
        self
    }

    /// The parts, in the order in which they are started.
    pub(super) fn parts(&self) -> Vec<Part> {
        let wanted = |part: &Part| match part {
            Part::Etcd | Part::ApiServer => true,
            Part::ControllerManager => self.controller_manager,
            Part::Scheduler => self.scheduler,
        };
        Part::ALL.into_iter().filter(wanted).collect()
    }
}
