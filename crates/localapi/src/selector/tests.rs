use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn labelled(labels: &Value) -> Value {
    json!({"metadata": {"name": "x", "labels": labels}})
}

#[test]
fn every_operator_selects_by_label() {
    let object = labelled(&json!({"a": "1", "tier": "web", "empty": ""}));
    for (selector, expected) in [
        ("", true),
        ("a=1", true),
        ("a==1", true),
        ("a!=1", false),
        ("missing!=1", true),
        ("missing=1", false),
        ("tier in (web,db)", true),
        ("tier in (db)", false),
        ("tier notin (db)", true),
        ("missing notin (db)", true),
        ("tier", true),
        ("!tier", false),
        ("!missing", true),
        ("a>0", true),
        ("a<1", false),
        ("tier>0", false),
        ("empty=", true),
        ("empty in ()", true),
        ("empty in (,x)", true),
        ("a=1,tier=web,!missing", true),
        ("a=1,tier=db", false),
        ("in=x", false),
        ("tier in (in,web)", true),
    ] {
        assert_eq!(LabelSelector::parse(selector).unwrap().matches(&object), expected, "{selector}");
    }
}

#[test]
fn bad_label_selectors_are_refused_in_the_servers_words() {
    for (selector, message) in [
        ("a,", "found '', expected: identifier after ','"),
        (",a", "found ',', expected: !, identifier, or 'end of string'"),
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("a=b=c", "found '=', expected: ',' or 'end of string'"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        ("!a=b", "found '=', expected: ',' or 'end of string'"),
        (
            "a>x",
            "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an integer",
        ),
    ] {
        assert_eq!(LabelSelector::parse(selector).unwrap_err().to_string(), message, "{selector}");
    }
    let long = format!("a={}", "x".repeat(64));
    assert!(
        LabelSelector::parse(&long)
            .unwrap_err()
            .to_string()
            .starts_with("unable to parse requirement: values[0][a]: Invalid value: \"xxx")
    );
    assert!(
        LabelSelector::parse("-a=b").unwrap_err().to_string().starts_with(
            "unable to parse requirement: <nil>: Invalid value: \"-a\": name part must consist of"
        )
    );
}

#[test]
fn fields_select_objects() {
    let pod = json!({"metadata": {"name": "p", "namespace": "n"}, "spec": {"nodeName": "w1"},
        "status": {"phase": "Running", "podIPs": [{"ip": "10.0.0.1"}]}});
    let labels = FieldLabels::of("", "Pod");
    for (selector, expected) in [
        ("", true),
        ("metadata.name=p", true),
        ("metadata.name==p,metadata.namespace=n", true),
        ("metadata.name!=p", false),
        ("spec.nodeName=w1,status.phase!=Failed", true),
        ("spec.nodeName=", false),
        ("spec.hostNetwork=false", true),
        ("status.podIP=10.0.0.1", true),
    ] {
        assert_eq!(FieldSelector::parse(selector, &labels).unwrap().matches(&pod), expected, "{selector}");
    }
}

#[test]
fn events_are_found_by_what_they_involve() {
    let event = json!({"involvedObject": {"kind": "Pod", "name": "p"}, "type": "Warning", "reportingComponent": "kubelet"});
    let labels = FieldLabels::of("", "Event");
    let matches = |s: &str| FieldSelector::parse(s, &labels).unwrap().matches(&event);
    assert!(matches("involvedObject.name=p,involvedObject.kind=Pod,type!=Normal,source=kubelet"));
    assert!(!matches("involvedObject.uid=1"));
}

#[test]
fn unsupported_field_labels_are_refused_in_the_servers_words() {
    let parse = |s: &str, labels: &FieldLabels| FieldSelector::parse(s, labels).unwrap_err().to_string();
    assert_eq!(parse("spec.x=1", &FieldLabels::of("", "Pod")), "field label not supported: spec.x");
    assert_eq!(
        parse("spec.x=1", &FieldLabels::of("coordination.k8s.io", "Lease")),
        "\"spec.x\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""
    );
    let cluster = FieldLabels::custom(false, &["spec.color".to_owned()]);
    assert_eq!(parse("metadata.namespace=n", &cluster), "field label not supported: metadata.namespace");
    assert!(FieldSelector::parse("spec.color=blue", &cluster).is_ok());
    assert_eq!(parse("x", &cluster), "invalid selector: 'x'; can't understand 'x'");
    assert_eq!(
        parse("metadata.name=a=b", &cluster),
        "invalid field selector: unescaped character in value: 61"
    );
    assert_eq!(parse("metadata.name=a\\b", &cluster), "invalid field selector: invalid escape sequence: \\b");
}

#[test]
fn escaped_values_and_scalars_compare_as_text() {
    let labels = FieldLabels::custom(true, &["spec.count".to_owned(), "spec.on".to_owned()]);
    let object = json!({"metadata": {"name": "a,b"}, "spec": {"count": 3, "on": true}});
    let selector = FieldSelector::parse("metadata.name=a\\,b,spec.count=3,spec.on=true", &labels).unwrap();
    assert!(selector.matches(&object));
}

proptest! {
    #[test]
    fn no_text_makes_a_selector_panic(text in "\\PC{0,40}", loose in "[a!=,()<> in\\\\]{0,20}") {
        for text in [&text, &loose] {
            let object = json!({"metadata": {"labels": {"a": "1"}}});
            if let Ok(selector) = LabelSelector::parse(text) {
                let _ = selector.matches(&object);
            }
            if let Ok(selector) = FieldSelector::parse(text, &FieldLabels::of("", "Pod")) {
                let _ = selector.matches(&object);
            }
        }
    }

    #[test]
    fn equality_and_inequality_are_opposites(key in "[a-z]{1,5}", value in "[a-z0-9]{0,5}", other in "[a-z0-9]{0,5}") {
        let object = json!({"metadata": {"labels": {key.clone(): other}}});
        let equal = LabelSelector::parse(&format!("{key}={value}")).unwrap().matches(&object);
        let unequal = LabelSelector::parse(&format!("{key}!={value}")).unwrap().matches(&object);
        prop_assert_ne!(equal, unequal);
    }
}
