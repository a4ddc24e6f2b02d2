//! All numbers and names that Tenure uses in the kernel, with Coil's well-known defaults.

use std::net::{Ipv4Addr, Ipv6Addr};

use serde::{Deserialize, Serialize};

use crate::Mac;

/// The numbers and names that Tenure uses in the kernel of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "camelCase")]
pub struct Settings {
    /// Table of the routes to this node's pods. Default 116.
    pub pod_table: u32,
    /// Priority of the rule to the pod table. Default 2000.
    pub pod_rule_priority: u32,
    /// Table of the routes that this node exports to a routing daemon; nothing else may write to it. Default 119.
    pub export_table: u32,
    /// Protocol number of routes in the pod table and the export table. Default 30.
    pub protocol: u8,
    /// Table of the routes to other nodes' blocks. Default 254, the main table.
    pub remote_table: u32,
    /// Protocol number of the routes to other nodes' blocks. Default 31.
    pub remote_protocol: u8,
    /// Metric of the routes to other nodes' blocks. No other route may use it, so that a change can never replace somebody
    /// else's route to the same destination. Default 131.
    pub remote_metric: u32,
    /// Interface group of the host ends of pods' links. Default 11600.
    pub pod_group: u32,
    /// Interface group of host ends that wait for deletion; everything in it gets deleted. Default 11601.
    pub trash_group: u32,
    /// The address that pods use as IPv4 gateway, on the host end of every pod's link. Default 169.254.1.1.
    pub gateway_v4: Ipv4Addr,
    /// The address that pods use as IPv6 gateway, on the host end of every pod's link. Default `fe80::1`.
    pub gateway_v6: Ipv6Addr,
    /// The Ethernet address of every host end. It is the same on all nodes, so that the neighbour cache of a migrated virtual
    /// machine stays valid, and is set at creation, so that no other program assigns one later. Default `0a:54:65:6e:75:72`.
    pub host_mac: Mac,
    /// Prefix of the names of host ends; the rest is a hash. Default `tnr`.
    pub port_prefix: String,
    /// Transmit and receive queues of each end. More than one only helps with XDP or GRO on the link. The kernel's default of
    /// one per processor makes a pair several times as expensive to create. Default 1.
    pub queues: u32,
    /// Length of each end's transmit queue. The links themselves have no queue, but traffic shapers that somebody attaches
    /// start from this value, and 0 would make them drop everything. Default 1000.
    pub queue_length: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            pod_table: 116,
            pod_rule_priority: 2000,
            export_table: 119,
            protocol: 30,
            remote_table: 254,
            remote_protocol: 31,
            remote_metric: 131,
            pod_group: 11_600,
            trash_group: 11_601,
            gateway_v4: Ipv4Addr::new(169, 254, 1, 1),
            gateway_v6: Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1),
            host_mac: Mac([0x0a, 0x54, 0x65, 0x6e, 0x75, 0x72]),
            port_prefix: "tnr".to_owned(),
            queues: 1,
            queue_length: 1000,
        }
    }
}

/// A setting that is invalid.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {value} cannot be used; accepted: {accepted}")]
pub struct Invalid {
    /// The field's name as it is configured.
    pub field: &'static str,
    /// The value that was given.
    pub value: String,
    /// What would be accepted.
    pub accepted: String,
}

/// Tables from here to 255 are reserved by the kernel: `default`, `main` and `local`.
const SHARED_TABLES: std::ops::RangeInclusive<u32> = 253..=255;

impl Settings {
    /// Checks that every setting is valid.
    pub fn validate(&self) -> Result<(), Invalid> {
        let check = |ok: bool, field: &'static str, value: &dyn ToString, accepted: &str| {
            if ok {
                Ok(())
            } else {
                Err(Invalid { field, value: value.to_string(), accepted: accepted.to_owned() })
            }
        };
        let own = |table: u32| table != 0 && !SHARED_TABLES.contains(&table);
        let tables = "a table of its own: 1 to 252, or above 255";
        check(own(self.pod_table), "podTable", &self.pod_table, tables)?;
        check(own(self.export_table), "exportTable", &self.export_table, tables)?;
        let separate = self.export_table != self.pod_table;
        check(separate, "exportTable", &self.export_table, "another table than podTable")?;
        let priority = (1..32_766).contains(&self.pod_rule_priority);
        check(
            priority,
            "podRulePriority",
            &self.pod_rule_priority,
            "1 to 32765, before the main table's rule",
        )?;
        check(self.protocol > 4, "protocol", &self.protocol, "5 to 255; smaller ones are the kernel's")?;
        let remote = self.remote_protocol > 4 && self.remote_protocol != self.protocol;
        check(remote, "remoteProtocol", &self.remote_protocol, "5 to 255, and another one than protocol")?;
        let remote = self.remote_table != 0 && self.remote_table != 255;
        let remote = remote && self.remote_table != self.pod_table && self.remote_table != self.export_table;
        check(
            remote,
            "remoteTable",
            &self.remote_table,
            "254 (main), or a table that nothing else here uses",
        )?;
        check(self.remote_metric != 0, "remoteMetric", &self.remote_metric, "1 or more")?;
        check(self.pod_group != 0, "podGroup", &self.pod_group, "1 or more; 0 is every link's group")?;
        let trash = self.trash_group != 0 && self.trash_group != self.pod_group;
        check(trash, "trashGroup", &self.trash_group, "1 or more, and another one than podGroup")?;
        let v4 = self.gateway_v4;
        let usable = !(v4.is_unspecified() || v4.is_loopback() || v4.is_multicast() || v4.is_broadcast());
        check(usable, "gatewayV4", &v4, "a unicast address such as 169.254.1.1")?;
        let v6 = self.gateway_v6;
        check(v6.is_unicast_link_local(), "gatewayV6", &v6, "a link-local address such as fe80::1")?;
        check(self.host_mac.is_unicast(), "hostMac", &self.host_mac, "a unicast address")?;
        let prefix = &self.port_prefix;
        let plain = prefix.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
        let prefix_ok = plain && (1..=7).contains(&prefix.len());
        check(prefix_ok, "portPrefix", prefix, "1 to 7 letters, digits, - or _")?;
        check((1..=4096).contains(&self.queues), "queues", &self.queues, "1 to 4096")?;
        check(self.queue_length > 0, "queueLength", &self.queue_length, "1 or more")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_those_that_coil_made_known() {
        let settings = Settings::default();
        settings.validate().unwrap();
        assert_eq!((settings.pod_table, settings.export_table, settings.pod_rule_priority), (116, 119, 2000));
        assert_eq!((settings.protocol, settings.remote_protocol), (30, 31));
        assert_eq!(settings.gateway_v4.to_string(), "169.254.1.1");
    }

    #[test]
    fn a_setting_that_cannot_be_used_is_named_with_its_value() {
        let bad = |change: fn(&mut Settings)| {
            let mut settings = Settings::default();
            change(&mut settings);
            let invalid = settings.validate().unwrap_err();
            (invalid.field, invalid.value)
        };
        assert_eq!(bad(|s| s.pod_table = 254), ("podTable", "254".to_owned()));
        assert_eq!(bad(|s| s.export_table = 116), ("exportTable", "116".to_owned()));
        assert_eq!(bad(|s| s.pod_rule_priority = 40_000), ("podRulePriority", "40000".to_owned()));
        assert_eq!(bad(|s| s.protocol = 2), ("protocol", "2".to_owned()));
        assert_eq!(bad(|s| s.remote_protocol = 30), ("remoteProtocol", "30".to_owned()));
        assert_eq!(bad(|s| s.remote_table = 116), ("remoteTable", "116".to_owned()));
        assert_eq!(bad(|s| s.remote_metric = 0), ("remoteMetric", "0".to_owned()));
        assert_eq!(bad(|s| s.pod_group = 0), ("podGroup", "0".to_owned()));
        assert_eq!(bad(|s| s.trash_group = s.pod_group), ("trashGroup", "11600".to_owned()));
        assert_eq!(bad(|s| s.gateway_v4 = Ipv4Addr::LOCALHOST), ("gatewayV4", "127.0.0.1".to_owned()));
        assert_eq!(bad(|s| s.gateway_v6 = Ipv6Addr::LOCALHOST), ("gatewayV6", "::1".to_owned()));
        assert_eq!(bad(|s| s.port_prefix = "tenure-port".into()), ("portPrefix", "tenure-port".to_owned()));
        assert_eq!(bad(|s| s.queues = 0), ("queues", "0".to_owned()));
        assert_eq!(bad(|s| s.queue_length = 0), ("queueLength", "0".to_owned()));
    }
}
