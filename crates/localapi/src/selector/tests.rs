use proptest::prelude::*;
use serde_json::json;

use super::*;

#[test]
fn labels_are_selected_as_kubernetes_selects_them() {
    let object = json!({"metadata": {"labels": {"app": "web", "tier": "", "a.b/c": "1"}}});
    for (selector, selected) in [
        ("", true),
        ("app", true),
        ("!app", false),
        ("none", false),
        ("!none", true),
        ("app=web", true),
        ("app==web", true),
        ("app = db", false),
        ("app!=web", false),
        ("none!=web", true),
        ("app in (db, web)", true),
        ("app notin (db,web)", false),
        ("none notin (x)", true),
        ("none in (x)", false),
        ("tier=", true),
        ("tier in ()", true),
        ("a.b/c in (1),app=web, !x", true),
        ("a.b/c in (1),app=db", false),
    ] {
        let parsed = LabelSelector::parse(selector).unwrap();
        assert_eq!(parsed.matches(&object), selected, "{selector}");
    }
}

#[test]
fn fields_are_selected_by_the_labels_that_a_kind_has() {
    let pods = FieldLabels::of("", "Pod");
    let object =
        json!({"metadata": {"name": "a"}, "spec": {"nodeName": "n"}, "status": {"phase": "Running"}});
    for (selector, selected) in [
        ("", true),
        ("metadata.name=a", true),
        ("spec.nodeName==n,status.phase!=Failed", true),
        ("spec.nodeName=n,status.phase!=Running", false),
        ("status.podIP=", true),
    ] {
        assert_eq!(FieldSelector::parse(selector, &pods).unwrap().matches(&object), selected, "{selector}");
    }
    let custom = FieldLabels::custom(true, &["spec.size".to_owned()]);
    let sized = FieldSelector::parse("spec.size=3", &custom).unwrap();
    assert!(sized.matches(&json!({"spec": {"size": 3}})));
}

#[test]
fn what_cannot_be_understood_is_refused() {
    for selector in ["a b", "a in x", "a in (x", "=x", "a=b=c", "a,,b", "a>1", "bad key=x", "!", "a=b c"] {
        assert!(LabelSelector::parse(selector).is_err(), "{selector}");
    }
    for selector in ["metadata.name", "spec.other=x", "metadata.labels=a"] {
        assert!(FieldSelector::parse(selector, &FieldLabels::of("", "Pod")).is_err(), "{selector}");
    }
}

proptest! {
    #[test]
    fn no_selector_panics(selector in "[a-c=!(),<> in]{0,20}", any in "\\PC{0,10}") {
        for selector in [selector, any] {
            if let Ok(parsed) = LabelSelector::parse(&selector) {
                let _ = parsed.matches(&json!({"metadata": {"labels": {"a": "b"}}}));
            }
            let _ = FieldSelector::parse(&selector, &FieldLabels::of("", "Pod"));
        }
    }
}
