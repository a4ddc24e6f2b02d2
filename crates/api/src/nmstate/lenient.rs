//! Fields that agents and other programs write. One that cannot be read counts as absent: it costs its author, and the object around it
//! can still be read, so that nobody else waits for it.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// The value, or that of an absent field.
pub(super) fn or_default<'de, D, T>(deserializer: D) -> Result<T, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned + Default,
{
    let value = Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(value).unwrap_or_default())
}

/// Those of a list that can be read.
pub(super) fn each<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: DeserializeOwned,
{
    let items: Vec<Value> = or_default(deserializer)?;
    Ok(items.into_iter().filter_map(|item| serde_json::from_value(item).ok()).collect())
}

/// A number or a text; a number that is too large or too small is the nearest that is not.
pub(super) fn number_or_text<'de, D>(deserializer: D) -> Result<Option<IntOrString>, D::Error>
where
    D: Deserializer<'de>,
{
    let value = Value::deserialize(deserializer)?;
    let number = value.as_i64().or_else(|| value.as_u64().map(|_| i64::MAX));
    let number = number.map(|it| it.clamp(i32::MIN.into(), i32::MAX.into()));
    Ok(match number.and_then(|it| i32::try_from(it).ok()) {
        Some(number) => Some(IntOrString::Int(number)),
        None => serde_json::from_value(value).unwrap_or_default(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::nmstate::{NodeNetworkConfigurationEnactment, NodeNetworkConfigurationPolicy};

    const NO_TIME: &str = "2026-01-01T00:00:00+99:99";

    #[test]
    fn a_policy_can_be_read_whatever_its_author_and_its_handlers_write() {
        let policy = |max: Value| -> NodeNetworkConfigurationPolicy {
            serde_json::from_value(json!({
                "apiVersion": "nmstate.io/v1", "kind": "NodeNetworkConfigurationPolicy", "metadata": {"name": "p"},
                "spec": {"nodeSelector": {"a": "b"}, "maxUnavailable": max},
                "status": {
                    "conditions": [{"type": "Available", "status": "True", "lastHeartbeatTime": NO_TIME}, {"type": 5}],
                    "unavailableNodeCount": 3_000_000_000_u64, "unavailableNodeCountMap": {"1": 3_000_000_000_u64},
                    "lastUnavailableNodeCountUpdate": NO_TIME,
                },
            }))
            .unwrap()
        };
        for (max, read) in [
            (json!(3_000_000_000_u64), Some(IntOrString::Int(i32::MAX))),
            (json!(u64::MAX), Some(IntOrString::Int(i32::MAX))),
            (json!(-3_000_000_000_i64), Some(IntOrString::Int(i32::MIN))),
            (json!(2), Some(IntOrString::Int(2))),
            (json!("10%"), Some(IntOrString::String("10%".to_owned()))),
            (json!(1.5), None),
        ] {
            assert_eq!(policy(max).spec.max_unavailable, read);
        }
        let policy = policy(Value::Null);
        assert_eq!(policy.spec.node_selector["a"], "b");
        let status = policy.status.unwrap();
        assert_eq!((status.conditions.len(), status.unavailable_node_count), (1, None));
        assert!(status.conditions[0].is_true() && status.conditions[0].last_heartbeat_time.is_none());
    }

    #[test]
    fn an_enactment_can_be_read_whatever_its_node_writes_and_its_record_counts() {
        let enactment: NodeNetworkConfigurationEnactment = serde_json::from_value(json!({
            "apiVersion": "nmstate.io/v1beta1", "kind": "NodeNetworkConfigurationEnactment", "metadata": {"name": "a.p"},
            "status": {
                "ippool": {"p": {"allocated": ["10.0.0.1"]}},
                "conditions": [{"type": "Available", "status": "True", "lastTransitionTime": NO_TIME}],
                "desiredStateMetaInfo": {"version": "1", "time": NO_TIME},
                "capturedStates": {"x": {"ip": "10.0.0.1", "prefix-length": 24, "metaInfo": {"time": NO_TIME}}},
                "applied": {"policyGeneration": 1, "addresses": [{"interface": "eth1"}, {"interface": "eth1", "address": "10.0.0.1/24"}]},
                "retryCount": {"1": 1e300}, "features": [5],
            },
        }))
        .unwrap();
        let status = enactment.status.unwrap();
        assert_eq!(status.ippool["p"].allocated, ["10.0.0.1"]);
        assert!(status.conditions[0].is_true() && status.conditions[0].last_transition_time.is_none());
        assert_eq!(status.captured_states["x"].ip.as_deref(), Some("10.0.0.1"));
        assert_eq!(status.applied.unwrap().addresses.len(), 1);
        assert_eq!(status.desired_state_meta_info.unwrap().version.as_deref(), Some("1"));
    }
}
