//! Flags, and the variables that a gateway's container gets.

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Parser};
use tenure_daemon::{LogFormat, duration, hostname};
use tenure_linux::egress::SourcePort;
use tenure_linux::egress::gateway::GatewayPlan;

/// Serves the clients of one Egress: takes their packets out of tunnels, and gives them the addresses of this pod.
#[derive(Clone, Debug, Parser)]
#[command(version)]
pub struct Flags {
    /// Namespace of the Egress and of this pod.
    #[arg(long, env = "COIL_POD_NAMESPACE", value_name = "NAMESPACE")]
    pub pod_namespace: Option<String>,
    /// Name of the Egress.
    #[arg(long, env = "COIL_EGRESS_NAME", value_name = "NAME")]
    pub egress_name: Option<String>,
    /// Addresses of this pod, at most one of each family, separated by commas.
    #[arg(long, env = "COIL_POD_ADDRESSES", value_name = "ADDRESSES")]
    pub pod_addresses: Option<String>,
    /// Name of this pod, for metrics; the host's name if not given.
    #[arg(long, env = "POD_NAME", value_name = "NAME")]
    pub pod_name: Option<String>,
    /// The interface that clients' tunnels come in by, and that their packets leave by.
    #[arg(long, default_value = "eth0", value_name = "NAME")]
    pub interface: String,
    /// Send tunnels' packets from a port that depends on the flow (`fouSourcePortAuto`), and not from 5555.
    #[arg(long, action = ArgAction::Set, num_args = 0..=1, require_equals = true, default_value_t = false,
          default_missing_value = "true")]
    pub enable_sport_auto: bool,
    /// How long connections may take to end after SIGTERM; shorter than the pod's grace period.
    #[arg(long, env = "TENURE_GRACE_PERIOD", default_value = "25s", value_parser = duration)]
    pub grace_period: Duration,
    /// Kubeconfig file; without it the usual places, then the pod's service account.
    #[arg(long, env = "KUBECONFIG")]
    pub kubeconfig: Option<PathBuf>,
    /// Unix socket of the Kubernetes API, in place of a kubeconfig.
    #[arg(long, value_name = "PATH")]
    pub api_socket: Option<PathBuf>,
    /// Where /metrics is served; on port 8080 of all addresses if not given.
    #[arg(long)]
    pub metrics_address: Option<SocketAddr>,
    /// Where /healthz and /readyz are served; on port 8081 of all addresses if not given.
    #[arg(long)]
    pub health_address: Option<SocketAddr>,
    /// How log lines look; `RUST_LOG` says which there are.
    #[arg(long, value_enum, default_value = "text")]
    pub log_format: LogFormat,
}

/// What a gateway is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The namespace of the Egress, and of the gateway's pod.
    pub namespace: String,
    /// The Egress.
    pub egress: String,
    /// The gateway's pod.
    pub pod: String,
    /// What the kernel is to do.
    pub plan: GatewayPlan,
    /// How long connections may take to end.
    pub grace_period: Duration,
}

/// A variable that is missing or cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{variable} (--{flag}): {value}; accepted: {accepted}")]
pub struct FlagError {
    /// The variable.
    pub variable: &'static str,
    /// The flag of the same meaning.
    pub flag: &'static str,
    /// What is wrong with its value.
    pub value: String,
    /// What would be accepted.
    pub accepted: &'static str,
}

impl Flags {
    /// What they say.
    pub fn settings(&self) -> Result<Settings, FlagError> {
        let given = |value: &Option<String>, variable, flag, accepted| {
            let value = value.as_deref().map(str::trim).filter(|value| !value.is_empty());
            let missing = || FlagError { variable, flag, value: "is not set".to_owned(), accepted };
            value.map(str::to_owned).ok_or_else(missing)
        };
        let namespace =
            given(&self.pod_namespace, "COIL_POD_NAMESPACE", "pod-namespace", "the namespace of the Egress")?;
        let egress = given(&self.egress_name, "COIL_EGRESS_NAME", "egress-name", "the name of the Egress")?;
        let addresses = addresses(self.pod_addresses.as_deref().unwrap_or_default())?;
        let pod = self.pod_name.clone().or_else(hostname).unwrap_or_default();
        let source_port = if self.enable_sport_auto { SourcePort::PerFlow } else { SourcePort::Fixed };
        let plan = GatewayPlan { interface: self.interface.clone(), addresses, source_port };
        Ok(Settings { namespace, egress, pod, plan, grace_period: self.grace_period })
    }
}

fn addresses(text: &str) -> Result<Vec<IpAddr>, FlagError> {
    let wrong = |value: String| FlagError {
        variable: "COIL_POD_ADDRESSES",
        flag: "pod-addresses",
        value,
        accepted: "an IPv4 address, an IPv6 address, or both, separated by a comma",
    };
    let mut found: Vec<IpAddr> = Vec::new();
    for part in text.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let address: IpAddr = part.parse().map_err(|_| wrong(format!("{part:?} is no address")))?;
        if found.iter().any(|other| other.is_ipv4() == address.is_ipv4()) {
            return Err(wrong(format!("{part:?} is the second address of its family")));
        }
        found.push(address);
    }
    if found.is_empty() { Err(wrong("is not set".to_owned())) } else { Ok(found) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Variables of the test's own environment must not be seen.
    fn settings(arguments: &[&str]) -> Result<Settings, String> {
        let always =
            ["tenure-egress", "--pod-namespace=", "--egress-name=", "--pod-addresses=", "--pod-name=gw-0"];
        let mut flags = Flags::try_parse_from(always).map_err(|error| error.to_string())?;
        let given: Vec<&str> = std::iter::once("tenure-egress").chain(arguments.iter().copied()).collect();
        flags.try_update_from(given).map_err(|error| error.to_string())?;
        flags.settings().map_err(|error| error.to_string())
    }

    #[test]
    fn what_a_container_gets_is_understood() {
        let given = ["--pod-namespace=internet", "--egress-name=nat", "--pod-addresses=10.3.0.9,fd03::9"];
        let plain = settings(&given).unwrap();
        assert_eq!((&*plain.namespace, &*plain.egress, &*plain.pod), ("internet", "nat", "gw-0"));
        assert_eq!(plain.plan.addresses, ["10.3.0.9", "fd03::9"].map(|it| it.parse::<IpAddr>().unwrap()));
        assert_eq!(
            (plain.plan.source_port, plain.grace_period),
            (SourcePort::Fixed, Duration::from_secs(25))
        );
        for auto in ["--enable-sport-auto=true", "--enable-sport-auto"] {
            let arguments = [&given[..], &[auto]].concat();
            assert_eq!(settings(&arguments).unwrap().plan.source_port, SourcePort::PerFlow, "{auto}");
        }
    }

    #[test]
    fn what_is_missing_or_wrong_is_named_with_what_is_accepted() {
        let (namespace, name) = ("--pod-namespace=internet", "--egress-name=nat");
        for (arguments, expected) in [
            (
                &[][..],
                "COIL_POD_NAMESPACE (--pod-namespace): is not set; accepted: the namespace of the Egress",
            ),
            (
                &[namespace][..],
                "COIL_EGRESS_NAME (--egress-name): is not set; accepted: the name of the Egress",
            ),
            (
                &[namespace, name][..],
                "COIL_POD_ADDRESSES (--pod-addresses): is not set; accepted: an IPv4 address",
            ),
            (
                &[namespace, name, "--pod-addresses=ten"][..],
                "\"ten\" is no address; accepted: an IPv4 address",
            ),
            (
                &[namespace, name, "--pod-addresses=::1,::2"][..],
                "\"::2\" is the second address of its family",
            ),
            (&["--grace-period=soon"][..], "accepted are such as 500ms, 10s and 1m30s"),
        ] {
            let said = settings(arguments).unwrap_err();
            assert!(said.contains(expected), "{arguments:?}: {said}");
        }
    }
}
