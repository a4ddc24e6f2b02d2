//! References that are whole texts, parts of texts, and wrong.

use proptest::prelude::*;
use serde_json::json;

use super::*;

fn held() -> BTreeMap<String, Value> {
    BTreeMap::from([
        ("a".to_owned(), json!({"ip": "10.10.10.8", "prefix-length": 24})),
        ("nic".to_owned(), json!({"interfaces": [{"name": "eth1", "ipv4": {"enabled": true}}]})),
    ])
}

fn filled(value: &Value) -> Result<Value, String> {
    fill(value, &held()).map_err(|refusal| refusal.to_string())
}

#[test]
fn a_whole_text_becomes_the_value_with_its_type() {
    let desired = json!({"interfaces": [{
        "name": "{{ capture.nic.interfaces.0.name }}",
        "ipv4": {"address": [{
            "ip": "{{capture.a.ip}}", "prefix-length": " {{ capture.a.prefix-length }} ",
        }]},
        "ipv6": "{{ capture.nic.interfaces.0.ipv4 }}",
    }]});
    assert_eq!(
        filled(&desired),
        Ok(json!({"interfaces": [{
            "name": "eth1",
            "ipv4": {"address": [{"ip": "10.10.10.8", "prefix-length": 24}]},
            "ipv6": {"enabled": true},
        }]}))
    );
}

#[test]
fn a_part_of_a_text_becomes_text() {
    let table = [
        ("{{ capture.a.ip }}/{{ capture.a.prefix-length }}", "10.10.10.8/24"),
        ("address {{ capture.a.ip }} of this node", "address 10.10.10.8 of this node"),
        ("no { reference } here", "no { reference } here"),
        ("", ""),
    ];
    for (text, expected) in table {
        assert_eq!(filled(&json!(text)), Ok(json!(expected)));
    }
}

#[test]
fn what_cannot_be_filled_is_refused_with_path_and_text() {
    for (text, why) in [
        ("{{ capture.b.ip }}", "no capture \"b\""),
        ("{{ capture.a.gateway }}", "no \"gateway\"; there are ip, prefix-length"),
        ("{{ capture.a }}", "no path of a capture"),
        ("{{ a }}", "names no capture"),
        ("{{ node.a.ip }}", "no path of a capture"),
        ("{{ }}", "names no capture"),
        ("{{ capture.a.ip", "has no end"),
        ("capture.a.ip }}", "has no beginning"),
        ("x {{ capture.nic.interfaces }}", "cannot be a part of a text"),
    ] {
        let refusal = filled(&json!({"routes": {"config": [text]}})).unwrap_err();
        assert!(refusal.contains(why), "{text}: {refusal}");
        assert!(refusal.starts_with("desiredState.routes.config[0]: "), "{refusal}");
        assert!(refusal.contains("accepted is"), "{refusal}");
    }
    assert!(filled(&json!({"{{ capture.a.ip }}": 1})).unwrap_err().contains("a name has a reference"));
}

proptest! {
    /// No text makes it panic, and text without references stays as it is.
    #[test]
    fn invariant_10_no_text_makes_templates_panic(text in "[ -~{}.é]{0,40}") {
        match filled(&json!(text)) {
            Ok(_) => {}
            Err(refusal) => prop_assert!(refusal.contains("accepted ")),
        }
    }

    #[test]
    fn text_without_references_stays(text in "[ -z|~é]{0,40}") {
        prop_assert_eq!(filled(&json!({"a": [&text]})), Ok(json!({"a": [&text]})));
    }
}
