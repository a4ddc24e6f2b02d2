//! What is understood, and what is refused by name.

use proptest::prelude::*;

use super::*;

fn parse(text: &str) -> Result<Expression, String> {
    Expression::parse("capture.x", text).map_err(|refusal| refusal.to_string())
}

fn path(text: &str) -> Vec<String> {
    text.split('.').map(ToOwned::to_owned).collect()
}

#[test]
fn what_nmstate_reads_is_read_alike() {
    let text = |text: &str| Operand::Text(text.to_owned());
    let table = [
        ("interfaces.name == \"eth1\"", None, "interfaces.name", Action::Equals(text("eth1"))),
        ("interfaces.name=='eth1'", None, "interfaces.name", Action::Equals(text("eth1"))),
        ("interfaces.name\u{a0}==\u{a0}eth1", None, "interfaces.name", Action::Equals(text("eth1"))),
        ("interfaces.ipv4.enabled == true", None, "interfaces.ipv4.enabled", Action::Equals(text("true"))),
        (
            "routes.running.destination==\"0.0.0.0/0\"",
            None,
            "routes.running.destination",
            Action::Equals(text("0.0.0.0/0")),
        ),
        ("routes.running", None, "routes.running", Action::Keep),
        ("interfaces", None, "interfaces", Action::Keep),
        (
            "capture.a | routes.running.next-hop-interface := \"br1\"",
            Some("a"),
            "routes.running.next-hop-interface",
            Action::Replace(text("br1")),
        ),
        ("capture.a|interfaces.mtu:=null", Some("a"), "interfaces.mtu", Action::Replace(Operand::Null)),
        ("capture.a.interfaces.name == eth1", Some("a"), "interfaces.name", Action::Equals(text("eth1"))),
        (
            "interfaces.name ==\n capture.gw.routes.running.0.next-hop-interface",
            None,
            "interfaces.name",
            Action::Equals(Operand::Path {
                capture: Some("gw".to_owned()),
                path: path("routes.running.0.next-hop-interface"),
            }),
        ),
    ];
    for (said, input, wanted, action) in table {
        let expected = Expression { input: input.map(ToOwned::to_owned), path: path(wanted), action };
        assert_eq!(parse(said), Ok(expected), "{said}");
    }
    assert_eq!(parse("capture.a").unwrap().path, Vec::<String>::new());
}

#[test]
fn what_is_not_understood_is_refused_with_its_text() {
    for (said, why) in [
        ("", "a path is missing"),
        ("this capture will just clone", "more than one path"),
        ("interfaces.name != \"eth1\"", "\"!=\" is no operator"),
        ("interfaces.name = \"eth1\"", "\"= \" is no operator"),
        ("interfaces.name == \"eth1", "has no end"),
        ("interfaces.name == \"\"", "nothing between the quotes"),
        ("interfaces.name ==", "a value is missing"),
        ("interfaces.name == a b", "more than one value"),
        ("interfaces.name == null", "equal to null"),
        ("interfaces.name == capture.a", "a path in it is missing"),
        ("interfaces.name == a == b", "more than one operator"),
        ("capture.a | capture.b | interfaces.name", "more than one pipe"),
        ("interfaces.name | routes.running", "before the pipe"),
        ("capture.a | capture.b.interfaces.name == x", "two captures"),
        ("capture.a |", "a path is missing"),
        ("dns-resolver.running", "\"dns-resolver\" is no part"),
        ("interfaces == x", "followed by no property"),
        ("routes.destination == x", "routes.running.PROPERTY"),
        ("routes.running.destination == 10.0.0.0/8", "needs quotes"),
        ("interfaces..name == x", "needs quotes"),
        ("capture", "followed by no name"),
        ("interfaces.name == hostname.running", "\"hostname\" is no part"),
    ] {
        let refusal = parse(said).unwrap_err();
        assert!(refusal.contains(why), "{said:?}: {refusal}");
        assert!(refusal.contains("accepted is PATH") && refusal.contains("capture.x"), "{refusal}");
    }
}

proptest! {
    /// No text makes it panic, and what is refused says what is accepted.
    #[test]
    fn invariant_10_no_text_makes_expressions_panic(text in "[ -~\u{a0}é|=:\"']{0,40}") {
        if let Err(refusal) = parse(&text) {
            prop_assert!(refusal.contains("accepted is"));
        }
    }

    /// Space around words changes nothing.
    #[test]
    fn space_changes_nothing(
        property in "[a-z][a-z0-9-]{0,6}",
        value in "[a-z0-9 ./:]{1,12}",
        spaces in prop::collection::vec("[ \u{a0}\n]{0,2}", 3),
    ) {
        let tight = parse(&format!("interfaces.{property}==\"{value}\""));
        let wide = parse(&format!(
            "{}interfaces.{property}{}=={}\"{value}\"", spaces[0], spaces[1], spaces[2]
        ));
        prop_assert!(tight.is_ok());
        prop_assert_eq!(tight, wide);
    }
}
