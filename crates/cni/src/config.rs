//! The parts of the network configuration that every dialect needs. The rest stays JSON for the dialect to
//! read.

use serde::Deserialize;
use serde_json::Value;

use crate::failure::{Code, Failure};
use crate::result::CniResult;
use crate::version::Version;

/// The configuration from standard input.
#[derive(Clone, Debug, PartialEq)]
pub struct NetworkConfig {
    /// The version of the results.
    pub version: Version,
    /// The network's name.
    pub name: String,
    /// The plugin that the runtime calls.
    pub plugin: String,
    /// The plugin that assigns addresses, if it is not the one that is called.
    pub ipam: Option<String>,
    /// The result of the previous plugin in the chain.
    pub previous: Option<CniResult>,
    /// Live attachments, for GC.
    pub attachments: Option<Vec<Attachment>>,
    /// The path of the agent's socket. Only the node's administrator decides it.
    pub socket: Option<String>,
    /// The whole configuration.
    pub json: Value,
}

/// A live attachment.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub struct Attachment {
    /// The container.
    #[serde(rename = "containerID")]
    pub container_id: String,
    /// The interface.
    pub ifname: String,
}

impl NetworkConfig {
    /// The largest configuration that is read, in bytes. Usual ones have a few kilobytes; more is a mistake.
    pub const LARGEST: usize = 1 << 20;

    /// Reads a configuration.
    pub fn parse(bytes: &[u8]) -> Result<Self, Failure> {
        if bytes.len() > Self::LARGEST {
            return Err(Failure::new(
                Code::Decoding,
                format!("the network configuration has {} bytes or more", bytes.len()),
            )
            .detail(format!("accepted are {}", Self::LARGEST)));
        }
        let json: Value = serde_json::from_slice(bytes).map_err(|error| {
            Failure::new(Code::Decoding, format!("the network configuration is no JSON: {error}"))
                .detail("accepted is one JSON object on standard input")
        })?;
        if !json.is_object() {
            return Err(Failure::new(Code::Decoding, "the network configuration is no JSON object")
                .detail("accepted is one JSON object on standard input"));
        }
        let version = Version::parse(&text(&json, "cniVersion")?.unwrap_or_default())?;
        let attachments = json.get("cni.dev/valid-attachments").filter(|list| !list.is_null());
        let attachments = attachments.map(Vec::<Attachment>::deserialize).transpose().map_err(|error| {
            Failure::new(Code::InvalidConfig, format!("cni.dev/valid-attachments cannot be read: {error}"))
                .detail("accepted is a list of {\"containerID\": ..., \"ifname\": ...}")
        })?;
        let previous = json.get("prevResult").filter(|result| !result.is_null()).map(CniResult::from_json);
        let ipam = json.get("ipam").filter(|ipam| !ipam.is_null());
        Ok(Self {
            version,
            name: text(&json, "name")?.unwrap_or_default(),
            plugin: text(&json, "type")?.unwrap_or_default(),
            ipam: ipam.map(|ipam| text(ipam, "type")).transpose()?.flatten(),
            previous: previous.transpose()?,
            attachments,
            socket: text(&json, "socket")?.filter(|path| !path.is_empty()),
            json,
        })
    }

    /// The text of the version in arbitrary bytes, to echo it in an error.
    pub fn version_text(bytes: &[u8]) -> String {
        let json = serde_json::from_slice::<Value>(bytes).unwrap_or_default();
        match json.get("cniVersion").and_then(Value::as_str) {
            Some(version) if !version.is_empty() => version.to_owned(),
            _ => Version::V0_1_0.as_str().to_owned(),
        }
    }
}

/// A field that is text or absent.
fn text(json: &Value, key: &str) -> Result<Option<String>, Failure> {
    match json.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::String(text)) => Ok(Some(text.clone())),
        Some(other) => {
            let message = format!("field {key} of the network configuration is {other}");
            Err(Failure::new(Code::InvalidConfig, message).detail("accepted is a string"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_main_plugin_and_an_ipam_plugin_are_told_apart() {
        let main = NetworkConfig::parse(br#"{"cniVersion":"1.0.0","name":"n","type":"tenure"}"#).unwrap();
        assert_eq!((main.plugin.as_str(), main.ipam), ("tenure", None));
        let below = br#"{"cniVersion":"1.0.0","name":"n","type":"ptp","ipam":{"type":"whereabouts"}}"#;
        assert_eq!(NetworkConfig::parse(below).unwrap().ipam.as_deref(), Some("whereabouts"));
    }

    #[test]
    fn a_field_of_another_type_is_named_with_its_value() {
        let failure = NetworkConfig::parse(br#"{"cniVersion":"1.0.0","name":7}"#).unwrap_err();
        assert_eq!(failure.code, 7);
        assert!(failure.message.contains("name") && failure.message.contains('7'), "{failure}");
    }

    #[test]
    fn attachments_for_gc_are_read() {
        let json = br#"{"cniVersion":"1.1.0","name":"n","cni.dev/valid-attachments":[{"containerID":"c","ifname":"eth0"}]}"#;
        let attachments = NetworkConfig::parse(json).unwrap().attachments.unwrap();
        assert_eq!(attachments, [Attachment { container_id: "c".into(), ifname: "eth0".into() }]);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = NetworkConfig::parse(&bytes);
            let _ = NetworkConfig::version_text(&bytes);
        }

        #[test]
        fn no_json_makes_it_panic(text in r#"\{("(cniVersion|name|type|ipam|prevResult|socket)":("a"|1|null|\{\}|\[\]),?){0,6}\}"#) {
            let _ = NetworkConfig::parse(text.as_bytes());
        }
    }
}
