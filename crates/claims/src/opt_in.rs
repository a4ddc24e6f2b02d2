//! Whether a network lets addresses outlive pods: `"allowPersistentIPs": true` at the top level of its CNI
//! configuration or inside `ipam`; for a list, in the list itself or in any of its plugins.

use serde_json::Value;

const KEY: &str = "allowPersistentIPs";

/// A configuration that does not say clearly whether its network opts in.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum OptInError {
    /// It cannot be read at all.
    #[error(
        "the network configuration of \"{network}\" cannot be read: {problem}; accepted is a CNI configuration or a list as a JSON object"
    )]
    Unreadable {
        /// The name of its attachment definition.
        network: String,
        /// What is wrong.
        problem: String,
    },
    /// The key has a value that is neither true nor false.
    #[error("{place} is {value}; accepted are true and false")]
    NoBoolean {
        /// The path of the key.
        place: String,
        /// Its value.
        value: String,
    },
}

/// Whether the network of a configuration opts in; an unclear value counts as no.
pub fn opts_in(config: &Value) -> bool {
    opt_in(config).unwrap_or(false)
}

/// Whether the network of a configuration opts in; an error for a value that is neither true nor false.
pub fn opt_in(config: &Value) -> Result<bool, OptInError> {
    let mut found = of_plugin(config, "")?;
    let plugins = config.get("plugins").and_then(Value::as_array);
    for (number, plugin) in plugins.into_iter().flatten().enumerate() {
        found |= of_plugin(plugin, &format!("plugins[{number}]."))?;
    }
    Ok(found)
}

fn of_plugin(plugin: &Value, path: &str) -> Result<bool, OptInError> {
    let top = boolean(plugin.get(KEY), || format!("{path}{KEY}"))?;
    let inner = boolean(plugin.get("ipam").and_then(|ipam| ipam.get(KEY)), || format!("{path}ipam.{KEY}"))?;
    Ok(top || inner)
}

fn boolean(value: Option<&Value>, place: impl Fn() -> String) -> Result<bool, OptInError> {
    match value {
        None | Some(Value::Null) => Ok(false),
        Some(Value::Bool(value)) => Ok(*value),
        Some(other) => Err(OptInError::NoBoolean { place: place(), value: shortened(&other.to_string()) }),
    }
}

/// The name of the network of an attachment definition's `spec.config`, if it opts in; `nad_name` if it names
/// none.
pub fn network_of_definition(nad_config: &str, nad_name: &str) -> Result<Option<String>, OptInError> {
    let (config, name) = read(nad_config, nad_name)?;
    Ok(opt_in(&config)?.then_some(name))
}

/// The name of the network of an attachment definition's `spec.config`, whether it opts in or not.
pub fn name_of_definition(nad_config: &str, nad_name: &str) -> Result<String, OptInError> {
    Ok(read(nad_config, nad_name)?.1)
}

/// A definition's configuration, and the name of its network.
fn read(nad_config: &str, nad_name: &str) -> Result<(Value, String), OptInError> {
    let unreadable = |problem: String| OptInError::Unreadable { network: nad_name.to_owned(), problem };
    let config: Value = serde_json::from_str(nad_config).map_err(|error| unreadable(error.to_string()))?;
    if !config.is_object() {
        return Err(unreadable("it is no JSON object".to_owned()));
    }
    let name = match config.get("name") {
        None | Some(Value::Null) => nad_name,
        Some(Value::String(name)) if name.is_empty() => nad_name,
        Some(Value::String(name)) => name,
        Some(other) => {
            return Err(unreadable(format!("its name is {}, no text", shortened(&other.to_string()))));
        }
    };
    let name = name.to_owned();
    Ok((config, name))
}

fn shortened(text: &str) -> String {
    text.chars().take(64).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_network_opts_in_at_the_top_level_inside_ipam_or_at_either_level_of_a_list() {
        for (config, expected) in [
            (json!({"name": "n", "allowPersistentIPs": true}), true),
            (json!({"name": "n", "ipam": {"allowPersistentIPs": true}}), true),
            (json!({"name": "n", "allowPersistentIPs": true, "plugins": [{"type": "macvlan"}]}), true),
            (json!({"name": "n", "plugins": [{"type": "tuning"}, {"allowPersistentIPs": true}]}), true),
            (json!({"name": "n", "plugins": [{"ipam": {"allowPersistentIPs": true}}]}), true),
            (json!({"name": "n", "allowPersistentIPs": false, "ipam": {"allowPersistentIPs": true}}), true),
            (json!({"name": "n", "allowPersistentIPs": false}), false),
            (json!({"name": "n", "allowPersistentIPs": null}), false),
            (json!({"name": "n", "allowpersistentips": true}), false),
            (json!({"name": "n", "plugins": [{"args": {"allowPersistentIPs": true}}]}), false),
            (json!({}), false),
            (json!([true]), false),
            (json!({"plugins": {"allowPersistentIPs": true}}), false),
        ] {
            assert_eq!(opt_in(&config), Ok(expected), "{config}");
            assert_eq!(opts_in(&config), expected, "{config}");
        }
    }

    #[test]
    fn a_value_that_is_neither_true_nor_false_is_refused_in_words() {
        for (config, words) in [
            (
                json!({"allowPersistentIPs": "true"}),
                "allowPersistentIPs is \"true\"; accepted are true and false",
            ),
            (
                json!({"ipam": {"allowPersistentIPs": 1}}),
                "ipam.allowPersistentIPs is 1; accepted are true and false",
            ),
            (
                json!({"plugins": [{}, {"ipam": {"allowPersistentIPs": {}}}]}),
                "plugins[1].ipam.allowPersistentIPs is {}; accepted are true and false",
            ),
        ] {
            assert_eq!(opt_in(&config).unwrap_err().to_string(), words);
            assert!(!opts_in(&config));
        }
    }

    #[test]
    fn a_definition_gives_the_name_in_its_configuration_else_its_own() {
        let yes = |config: &str| network_of_definition(config, "nad").unwrap();
        assert_eq!(yes(r#"{"name": "blue", "allowPersistentIPs": true}"#).as_deref(), Some("blue"));
        assert_eq!(yes(r#"{"allowPersistentIPs": true}"#).as_deref(), Some("nad"));
        assert_eq!(yes(r#"{"name": "blue"}"#), None);
        for bad in ["", "{", "[]", "7", r#"{"name": 7, "allowPersistentIPs": true}"#] {
            let error = network_of_definition(bad, "nad").unwrap_err().to_string();
            assert!(error.contains("\"nad\"") && error.contains("accepted is"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn no_text_makes_it_panic(text in r#"(\{|\[|"allowPersistentIPs"|"ipam"|"plugins"|:|,|true|1|\}|\]){0,20}"#) {
            let _ = network_of_definition(&text, "nad");
        }
    }
}
