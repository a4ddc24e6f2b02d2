//! Metrics in the text format that Prometheus reads: ours, and those of Coil by the names that its dashboards know.

use std::fmt;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use tenure_linux::conntrack::Connections;
use tenure_linux::egress::Counted;
use tenure_linux::egress::gateway::Gateway;

use crate::clients::Clients;
use crate::flags::Settings;

type Labels = Vec<(&'static str, String)>;
type Numbers = Family<Labels, Gauge<u64, AtomicU64>>;
type Counts = Family<Labels, Counter>;

/// What there is to tell.
#[derive(Debug)]
pub struct Snapshot<'a> {
    /// What the gateway was told.
    pub settings: &'a Settings,
    /// Who the clients are.
    pub clients: &'a Clients,
    /// What serves them, if it does.
    pub gateway: Option<&'a Gateway>,
    /// Whether it is ready.
    pub ready: bool,
    /// How often the kernel did not do what it should.
    pub failures: u64,
    /// Whether the API server does not tell of clients.
    pub watch_fails: bool,
    /// How many connections of all kinds there are, and may be.
    pub limits: Option<(u64, u64)>,
    /// What the rules have counted.
    pub counted: Option<Counted>,
    /// Connections of clients.
    pub connections: Option<Connections>,
}

/// All of it, as text.
pub fn text(snapshot: &Snapshot<'_>) -> Result<String, fmt::Error> {
    let mut page = Page::default();
    page.state(snapshot);
    page.clients(snapshot);
    page.connections(snapshot);
    if let Some(counted) = &snapshot.counted {
        page.counted(snapshot.settings, counted);
    }
    let mut text = String::new();
    encode(&mut text, &page.registry)?;
    Ok(text)
}

#[derive(Default)]
struct Page {
    registry: Registry,
}

impl Page {
    fn number(&mut self, name: &str, help: &str, value: u64) {
        let gauge: Gauge<u64, AtomicU64> = Gauge::default();
        gauge.set(value);
        self.registry.register(name, help, gauge);
    }

    fn numbers(&mut self, name: &str, help: &str, values: impl IntoIterator<Item = (Labels, u64)>) {
        let family = Numbers::default();
        for (labels, value) in values {
            family.get_or_create(&labels).set(value);
        }
        self.registry.register(name, help, family);
    }

    fn counts(&mut self, name: &str, help: &str, values: impl IntoIterator<Item = (Labels, u64)>) {
        let family = Counts::default();
        for (labels, value) in values {
            family.get_or_create(&labels).inc_by(value);
        }
        self.registry.register(name, help, family);
    }

    fn state(&mut self, snapshot: &Snapshot<'_>) {
        self.number("tenure_gateway_ready", "Whether clients may be sent here", snapshot.ready.into());
        let datapath = snapshot.gateway.map(|gateway| (vec![("datapath", gateway.datapath().to_owned())], 1));
        self.numbers("tenure_gateway_datapath", "What takes packets out of tunnels: kernel or bpf", datapath);
        let failures: Counter = Counter::default();
        failures.inc_by(snapshot.failures);
        self.registry.register(
            "tenure_gateway_failures",
            "How often the kernel did not serve clients as it should, and was asked again",
            failures,
        );
        let help = "Whether the API server does not tell of clients";
        self.number("tenure_gateway_watch_failing", help, snapshot.watch_fails.into());
    }

    fn clients(&mut self, snapshot: &Snapshot<'_>) {
        let Settings { namespace, egress, .. } = snapshot.settings;
        let served = snapshot.gateway.map(Gateway::clients);
        let of =
            |v4: bool| served.into_iter().flatten().filter(|client| client.is_ipv4() == v4).count() as u64;
        self.numbers(
            "tenure_gateway_clients",
            "Addresses of clients that are served",
            [("ipv4", of(true)), ("ipv6", of(false))]
                .map(|(family, count)| (vec![("family", family.to_owned())], count)),
        );
        let help = "Addresses that nodes list as clients' and that cannot be, or are too many";
        self.number("tenure_gateway_unusable_addresses", help, snapshot.clients.unusable() as u64);
        let place = vec![("namespace", namespace.clone()), ("egress", egress.clone())];
        let pods = snapshot.clients.pods().count() as u64;
        self.numbers("coil_egress_client_pod_count", "Pods that are clients", [(place, pods)]);
        let infos = snapshot.clients.pods().flat_map(|pod| {
            pod.addresses.iter().map(move |address| {
                let device = snapshot.gateway.map(|gateway| gateway.device(*address)).unwrap_or_default();
                let labels = vec![
                    ("namespace", pod.namespace.to_string()),
                    ("pod", pod.name.to_string()),
                    ("pod_ip", address.to_string()),
                    ("interface", device),
                    ("egress", egress.clone()),
                    ("egress_namespace", namespace.clone()),
                ];
                (labels, 1)
            })
        });
        self.numbers("coil_egress_client_pod_info", "A client's address, and where it comes out", infos);
    }

    fn connections(&mut self, snapshot: &Snapshot<'_>) {
        if let Some((count, limit)) = snapshot.limits {
            let place = || place(snapshot.settings);
            let (entries, most) =
                ("Connections of all kinds in this pod", "The most connections of all kinds in this pod");
            self.number("tenure_gateway_connections", entries, count);
            self.number("tenure_gateway_connections_limit", most, limit);
            self.numbers("coil_egress_nf_conntrack_entries_count", entries, [(place(), count)]);
            self.numbers("coil_egress_nf_conntrack_entries_limit", most, [(place(), limit)]);
        }
        if let Some(connections) = &snapshot.connections {
            let states = [("all", connections.all), ("open", connections.open)];
            self.numbers(
                "tenure_gateway_client_connections",
                "Connections of clients: all that are remembered, and those that are open",
                states.map(|(state, count)| (vec![("state", state.to_owned())], count)),
            );
            let ports = connections.ports.iter().map(|((address, protocol), ports)| {
                let labels = vec![("address", address.to_string()), ("protocol", (*protocol).to_owned())];
                (labels, u64::from(*ports))
            });
            let help = "Ports that connections of clients take, of 64,512 of each address and protocol";
            self.numbers("tenure_gateway_ports_in_use", help, ports);
        }
    }

    fn counted(&mut self, settings: &Settings, counted: &Counted) {
        let directions = [("received", counted.received), ("sent", counted.sent)];
        let reasons = [
            ("not_a_client", counted.not_a_client),
            ("forged_source", counted.forged),
            ("malformed", counted.malformed),
            ("no_such_client", counted.no_such_client),
            ("refused", counted.refused),
            ("invalid", sum(counted.invalid)),
        ];
        for (what, packets, bytes, label, values) in [
            (
                "from clients and to them, without what tunnels add",
                "tenure_gateway_packets",
                "tenure_gateway_bytes",
                "direction",
                &directions[..],
            ),
            (
                "that were not forwarded, by reason",
                "tenure_gateway_dropped_packets",
                "tenure_gateway_dropped_bytes",
                "reason",
                &reasons[..],
            ),
        ] {
            let of = |value: &str| vec![(label, value.to_owned())];
            let counts = values.iter().map(|(value, traffic)| (of(value), traffic.packets));
            self.counts(packets, &format!("Packets {what}"), counts);
            let counts = values.iter().map(|(value, traffic)| (of(value), traffic.bytes));
            self.counts(bytes, &format!("Bytes of packets {what}"), counts);
        }
        for (what, packets, bytes, traffic) in [
            (
                "first of their connection that got the gateway's address",
                "coil_egress_nftables_masqueraded_packets",
                "coil_egress_nftables_masqueraded_bytes",
                counted.masqueraded,
            ),
            (
                "of no known connection, which were dropped",
                "coil_egress_nftables_invalid_packets",
                "coil_egress_nftables_invalid_bytes",
                counted.invalid,
            ),
        ] {
            let of = |protocol: &str| [place(settings), vec![("protocol", protocol.to_owned())]].concat();
            let families = || ["ipv4", "ipv6"].into_iter().zip(traffic);
            let counts = families().map(|(protocol, traffic)| (of(protocol), traffic.packets));
            self.counts(packets, &format!("Packets {what}"), counts);
            let counts = families().map(|(protocol, traffic)| (of(protocol), traffic.bytes));
            self.counts(bytes, &format!("Bytes of packets {what}"), counts);
        }
    }
}

/// The labels of Coil's metrics.
fn place(settings: &Settings) -> Labels {
    let Settings { namespace, egress, pod, .. } = settings;
    vec![("namespace", namespace.clone()), ("pod", pod.clone()), ("egress", egress.clone())]
}

fn sum(families: [tenure_linux::link::Traffic; 2]) -> tenure_linux::link::Traffic {
    let [mut total, other] = families;
    total.packets += other.packets;
    total.bytes += other.bytes;
    total
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tenure_linux::egress::SourcePort;
    use tenure_linux::egress::gateway::GatewayPlan;
    use tenure_linux::link::Traffic;

    use super::*;

    #[test]
    fn the_names_of_coil_are_there_next_to_ours() {
        let addresses = vec!["10.3.0.9".parse().unwrap()];
        let plan = GatewayPlan {
            interface: "eth0".into(),
            addresses: addresses.clone(),
            source_port: SourcePort::Fixed,
        };
        let settings = Settings {
            namespace: "internet".into(),
            egress: "nat".into(),
            pod: "nat-0".into(),
            plan,
            grace_period: Duration::from_secs(25),
        };
        let once = Traffic { packets: 1, bytes: 60 };
        let text = text(&Snapshot {
            settings: &settings,
            clients: &Clients::new(addresses.clone()),
            gateway: None,
            ready: true,
            failures: 0,
            watch_fails: false,
            limits: Some((7, 262_144)),
            counted: Some(Counted {
                masqueraded: [once; 2],
                invalid: [once; 2],
                forged: once,
                ..Counted::default()
            }),
            connections: Some(Connections { all: 5, open: 2, ports: [((addresses[0], "tcp"), 3)].into() }),
        })
        .unwrap();
        let coil = "namespace=\"internet\",pod=\"nat-0\",egress=\"nat\"";
        for line in [
            "coil_egress_client_pod_count{namespace=\"internet\",egress=\"nat\"} 0".to_owned(),
            format!("coil_egress_nf_conntrack_entries_count{{{coil}}} 7"),
            format!("coil_egress_nf_conntrack_entries_limit{{{coil}}} 262144"),
            format!("coil_egress_nftables_masqueraded_packets_total{{{coil},protocol=\"ipv4\"}} 1"),
            format!("coil_egress_nftables_masqueraded_bytes_total{{{coil},protocol=\"ipv6\"}} 60"),
            format!("coil_egress_nftables_invalid_packets_total{{{coil},protocol=\"ipv6\"}} 1"),
            "tenure_gateway_dropped_packets_total{reason=\"forged_source\"} 1".to_owned(),
            "tenure_gateway_dropped_packets_total{reason=\"invalid\"} 2".to_owned(),
            "tenure_gateway_packets_total{direction=\"received\"} 0".to_owned(),
            "tenure_gateway_ports_in_use{address=\"10.3.0.9\",protocol=\"tcp\"} 3".to_owned(),
            "tenure_gateway_client_connections{state=\"open\"} 2".to_owned(),
            "tenure_gateway_ready 1".to_owned(),
        ] {
            assert!(text.lines().any(|it| it == line), "{line} is not in {text}");
        }
    }
}
