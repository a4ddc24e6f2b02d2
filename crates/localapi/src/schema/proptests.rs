//! Properties of schemas over random objects, and the generators that the crate's other tests share.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;

/// Any JSON value, not too deep. The few keys make collisions between two values likely.
pub(crate) fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-3_i64..300).prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_filter("finite", |f| f.is_finite()).prop_map(Value::from),
        "[a-c]{0,3}".prop_map(Value::from),
        "\\PC{0,6}".prop_map(Value::from),
        Just(json!("10.0.0.0/8")),
    ];
    let key = prop_oneof![
        Just("spec".to_owned()),
        Just("status".to_owned()),
        Just("metadata".to_owned()),
        Just("name".to_owned()),
        Just("labels".to_owned()),
        Just("list".to_owned()),
        Just("map".to_owned()),
        Just("type".to_owned()),
        Just("properties".to_owned()),
        Just("items".to_owned()),
        Just("$patch".to_owned()),
        Just("finalizers".to_owned()),
        Just("ownerReferences".to_owned()),
        Just("conditions".to_owned()),
        "[a-c]{1,2}",
    ];
    leaf.prop_recursive(4, 24, 4, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::vec((key.clone(), inner), 0..4)
                .prop_map(|pairs| Value::Object(pairs.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

impl Schema {
    /// Why an object is refused.
    pub(crate) fn causes(&self, object: &Value, old: Option<&Value>) -> Vec<Cause> {
        let mut causes = Vec::new();
        self.validate(object, old, &mut causes);
        causes
    }
}

/// A schema that uses every keyword.
pub(super) fn rich() -> Value {
    json!({
        "type": "object",
        "required": ["spec"],
        "properties": {
            "spec": {
                "type": "object",
                "required": ["a"],
                "properties": {
                    "a": {"type": "integer", "minimum": 1, "maximum": 10, "default": 3},
                    "b": {"type": "string", "pattern": "^[a-z]*$", "maxLength": 3, "minLength": 1, "nullable": true},
                    "c": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]},
                    "list": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
                        "items": {"type": "object", "required": ["name"], "properties": {
                            "name": {"type": "string"}, "a": {"type": "number", "default": 1.5}},
                            "x-kubernetes-validations": [{"rule": "!has(oldSelf.a) || self.a == oldSelf.a"}]}},
                    "labels": {"type": "array", "x-kubernetes-list-type": "set", "maxItems": 2, "items": {"type": "string", "enum": ["a", "b"]}},
                    "map": {"type": "object", "maxProperties": 2, "additionalProperties": {"type": "string", "format": "cidr"}},
                    "type": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
                },
                "oneOf": [{"required": ["b"]}, {"required": ["c"]}],
                "allOf": [{"not": {"required": ["status"]}}],
                "x-kubernetes-validations": [
                    {"rule": "self.a < 9 || has(self.b)", "messageExpression": "'a is %d'.format([self.a])", "fieldPath": ".a"},
                    {"rule": "self.map.all(k, isCIDR(self.map[k]) && cidr(self.map[k]).prefixLength() > 4)"},
                ],
            },
            "status": {"type": "object", "properties": {"conditions": {"type": "array", "items": {"type": "object", "properties": {"type": {"type": "string"}}}}}},
        },
    })
}

fn object() -> impl Strategy<Value = Value> {
    prop_oneof![
        any_json(),
        any_json().prop_map(|spec| json!({"spec": spec, "metadata": {"name": "x"}})),
        fitting()
    ]
}

/// Objects that often satisfy [`rich`].
fn fitting() -> impl Strategy<Value = Value> {
    let list = prop::collection::vec(("[ab]", any::<bool>()), 0..3).prop_map(|items| {
        Value::Array(
            items
                .into_iter()
                .map(|(n, a)| if a { json!({"name": n, "a": 2}) } else { json!({"name": n}) })
                .collect(),
        )
    });
    (1_i64..12, "[a-z]{1,3}", list, any::<bool>()).prop_map(|(a, b, list, with)| {
        let mut spec = json!({"a": a, "list": list, "map": {"x": "10.0.0.0/8"}});
        spec[if with { "b" } else { "c" }] = json!(b);
        json!({"apiVersion": "g/v1", "kind": "K", "metadata": {"name": "x"}, "spec": spec})
    })
}

proptest! {
    #[test]
    fn pruning_twice_is_pruning_once(object in object()) {
        let schema = Schema::compile(&rich()).unwrap();
        let mut once = object;
        schema.prune(&mut once);
        let mut twice = once.clone();
        prop_assert_eq!(schema.prune(&mut twice), Vec::<String>::new());
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn defaulting_twice_is_defaulting_once(object in object()) {
        let schema = Schema::compile(&rich()).unwrap();
        let mut once = object;
        schema.default(&mut once);
        let mut twice = once.clone();
        schema.default(&mut twice);
        prop_assert_eq!(once, twice);
    }

    #[test]
    fn no_object_makes_validation_panic(new in object(), old in object()) {
        let schema = Schema::compile(&rich()).unwrap();
        let mut causes = schema.causes(&new, None);
        causes.extend(schema.causes(&new, Some(&old)));
        schema.validate_status(&new, &old, &mut causes);
    }

    #[test]
    fn an_unchanged_object_is_never_refused_for_its_values(object in fitting()) {
        let schema = Schema::compile(&rich()).unwrap();
        let causes = schema.causes(&object, Some(&object));
        prop_assert!(causes.is_empty() || !schema.causes(&object, None).is_empty(), "{:?}", causes);
    }

    #[test]
    fn no_schema_makes_compilation_panic(schema in any_json(), object in object()) {
        if let Ok(schema) = Schema::compile(&schema) {
            let mut object = object;
            schema.prune(&mut object);
            schema.default(&mut object);
            let _ = schema.causes(&object, Some(&object));
        }
    }
}
