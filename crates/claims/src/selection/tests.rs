use proptest::prelude::*;
use tenure_api::claims::annotation::NETWORKS;

use super::*;

fn read(text: &str) -> Vec<Selection> {
    parse(NETWORKS, text).unwrap()
}

fn element(namespace: Option<&str>, name: &str, interface: &str) -> Selection {
    Selection {
        namespace: namespace.map(str::to_owned),
        name: name.to_owned(),
        interface: interface.to_owned(),
        is_named: !interface.starts_with("net"),
        ..Selection::default()
    }
}

#[test]
fn the_short_form_has_namespaces_and_interfaces_and_the_rest_is_named_by_place() {
    assert_eq!(
        read("net-a, ns/net-b@blue ,net-c"),
        [
            element(None, "net-a", "net1"),
            element(Some("ns"), "net-b", "blue"),
            element(None, "net-c", "net3")
        ]
    );
    assert_eq!(read("  "), []);
}

#[test]
fn one_network_twice_is_two_interfaces() {
    assert_eq!(read("net-a,net-a"), [element(None, "net-a", "net1"), element(None, "net-a", "net2")]);
}

#[test]
fn json_is_a_list_or_one_element() {
    let one = r#"{"name": "net-a", "namespace": "ns", "interface": "pod1", "ipam-claim-reference": "vm.blue",
                  "ips": ["10.0.0.7/24", "fd00::7"], "mac": "02:00:00:00:00:01", "example.com/x": 1}"#;
    let expected = Selection {
        ips: vec!["10.0.0.7".parse().unwrap(), "fd00::7".parse().unwrap()],
        claim: Some("vm.blue".to_owned()),
        ..element(Some("ns"), "net-a", "pod1")
    };
    assert_eq!(read(one), std::slice::from_ref(&expected));
    assert_eq!(
        read(&format!("[{one}, {{\"name\": \"net-b\"}}]")),
        [expected, element(None, "net-b", "net2")]
    );
    assert_eq!(
        read(r#"[{"name": "a", "interface": "", "ips": null, "ipam-claim-reference": ""}]"#),
        [element(None, "a", "net1")]
    );
    assert_eq!(read("[]"), []);
}

#[test]
fn what_cannot_be_read_is_refused_in_words_with_the_value() {
    for (text, value) in [
        ("[", "\"[\" is no JSON"),
        ("[7]", "\"7\" is no object"),
        ("\"net-a\"", "is no object"),
        ("[{}]", "\"{}\" has no name"),
        (r#"[{"name": 7}]"#, "name is \"7\""),
        (r#"[{"name": "a", "ips": "10.0.0.1"}]"#, "ips is \"\"10.0.0.1\"\""),
        (r#"[{"name": "a", "ips": ["10.0.0.300"]}]"#, "10.0.0.300"),
        (r#"[{"name": "a", "ips": ["10.0.0.1/33"]}]"#, "10.0.0.1/33"),
        (r#"[{"name": "a", "ips": [7]}]"#, "ips has \"7\""),
        (r#"[{"name": "a", "ipam-claim-reference": "other/claim"}]"#, "\"other/claim\""),
        (r#"[{"name": "a", "ipam-claim-reference": "../claim"}]"#, "\"../claim\""),
        (
            r#"[{"name": "a", "interface": "x"}, {"name": "b", "interface": "x"}]"#,
            "interface \"x\" is there twice",
        ),
        (r#"[{"name": "a"}, {"name": "b", "interface": "net1"}]"#, "interface \"net1\" is there twice"),
        ("a,,b", "\"\" is no network"),
        ("/a", "\"/a\" is no network"),
        ("a@", "\"a@\" is no network"),
        ("n/a/b", "\"n/a/b\" is no network"),
        ("a b", "\"a b\" is no network"),
    ] {
        let words = parse(NETWORKS, text).unwrap_err().to_string();
        assert!(words.starts_with("annotation k8s.v1.cni.cncf.io/networks: "), "{words}");
        assert!(words.contains(value) && words.contains("; accepted is "), "{text}: {words}");
    }
}

#[test]
fn a_list_longer_than_any_pod_has_is_refused() {
    let long = vec!["a"; 257].join(",");
    assert!(parse(NETWORKS, &long).unwrap_err().to_string().contains("257 networks"));
}

proptest! {
    #[test]
    fn no_text_makes_it_panic(text in "\\PC{0,60}") {
        let _ = parse(NETWORKS, &text);
    }

    #[test]
    fn no_json_makes_it_panic(
        text in r#"\[?(\{("(name|namespace|interface|ips|ipam-claim-reference)":("a"|"10.0.0.1/8"|1|null|\["fd00::1"\]|\{\}),?){0,5}\},?){0,3}\]?"#
    ) {
        let _ = parse(NETWORKS, &text);
    }

    #[test]
    fn interfaces_of_a_list_that_is_read_are_distinct(text in "[a-c/@,]{0,16}") {
        if let Ok(list) = parse(NETWORKS, &text) {
            let mut names: Vec<_> = list.iter().map(|it| it.interface.clone()).collect();
            names.sort();
            names.dedup();
            prop_assert_eq!(names.len(), list.len());
        }
    }
}
