//! From an attachment definition's text to its networks of this dialect.

use std::borrow::Cow;

use serde_json::{Value, json};

use super::{ConfigError, Refusal};

/// The networks of this dialect in a NetworkAttachmentDefinition's `spec.config`, a single configuration or a
/// list: each as if it came on standard input. `fallback` is the definition's own name, for a configuration
/// without one.
pub fn networks_of(config: &str, fallback: &str) -> Result<Vec<Value>, Refusal> {
    let refuse = |problem: String| {
        Refusal::new("spec.config", config, &problem, "a CNI configuration, or a list of them in \"plugins\"")
    };
    let root: Value =
        serde_json::from_str(config).map_err(|error| refuse(format!("it is no JSON: {error}")))?;
    if !root.is_object() {
        return Err(refuse("it is no JSON object".to_owned()));
    }
    let plugins = match root.get("plugins") {
        None => vec![root.clone()],
        Some(Value::Array(plugins)) => plugins.iter().map(|plugin| of_list(&root, plugin)).collect(),
        Some(_) => return Err(refuse("\"plugins\" is no list".to_owned())),
    };
    let named = |mut network: Value| {
        if network.get("name").and_then(Value::as_str).is_none_or(str::is_empty) {
            network["name"] = json!(fallback);
        }
        network
    };
    Ok(plugins.into_iter().filter(asks_us).map(named).collect())
}

/// A network from standard input, or the first of this dialect in a list.
pub(super) fn network_of(root: &Value) -> Result<Cow<'_, Value>, ConfigError> {
    if !root.is_object() {
        return Err(
            Refusal::new("configuration", &root.to_string(), "it is no object", "a JSON object").into()
        );
    }
    if let Some(Value::Array(plugins)) = root.get("plugins").filter(|_| root.get("ipam").is_none())
        && let Some(plugin) = plugins.iter().find(|plugin| asks_us(plugin))
    {
        return Ok(Cow::Owned(of_list(root, plugin)));
    }
    if asks_us(root) {
        return Ok(Cow::Borrowed(root));
    }
    let found = root.get("ipam").and_then(|ipam| ipam.get("type")).and_then(Value::as_str);
    Err(ConfigError::Other { found: found.unwrap_or_default().to_owned() })
}

fn asks_us(plugin: &Value) -> bool {
    plugin.get("ipam").and_then(|ipam| ipam.get("type")).and_then(Value::as_str) == Some("whereabouts")
}

/// A list's name and version also apply to its plugins.
fn of_list(list: &Value, plugin: &Value) -> Value {
    let mut plugin = plugin.clone();
    if plugin.is_object() {
        for key in ["name", "cniVersion"] {
            if let Some(value) = list.get(key) {
                plugin[key] = value.clone();
            }
        }
    }
    plugin
}
