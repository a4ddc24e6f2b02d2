//! Expressions as kube-apiserver evaluates them. What the two servers must agree on is compared in the suite
//! that runs against both; here is what each construct means.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::super::node::Node;
use super::super::path::Path;
use super::*;

fn schema() -> Node {
    let schema = json!({"type": "object", "properties": {
        "int": {"type": "integer"}, "number": {"type": "number"}, "text": {"type": "string"}, "flag": {"type": "boolean"},
        "either": {"x-kubernetes-int-or-string": true},
        "list": {"type": "array", "items": {"type": "integer"}},
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "keyed": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
            "items": {"type": "object", "properties": {"name": {"type": "string"}, "v": {"type": "integer"}}}},
        "map": {"type": "object", "additionalProperties": {"type": "string"}},
        "dash-ed": {"type": "string"}, "namespace": {"type": "string"},
        "time": {"type": "string", "format": "date-time"}, "span": {"type": "string", "format": "duration"},
        "maybe": {"type": "string", "nullable": true},
        "inner": {"type": "object", "properties": {"x": {"type": "integer"}}},
    }});
    Node::compile(&schema, &Path::root()).unwrap()
}

fn object() -> Value {
    json!({"metadata": {"name": "the-name", "labels": {"a": "b"}}, "int": 7, "number": 2, "text": "héllo", "flag": true, "either": "50%",
        "list": [3, 1, 2], "set": ["a", "b"], "keyed": [{"name": "x", "v": 1}, {"name": "y", "v": 2}],
        "map": {"k.1": "v", "k2": "w"}, "dash-ed": "d", "namespace": "n", "time": "2026-01-02T03:04:05Z", "span": "1h30m",
        "maybe": null, "inner": {"x": 1}})
}

/// The value of an expression as text, or its error.
fn run(source: &str) -> Result<String, String> {
    let program = Program::compile(source)?;
    let (node, object) = (schema(), object());
    let _ = program.check(&node, true, false, "bool");
    let this = Val::of(&object, &node, true).map_err(|e| e.0)?;
    let old = Val::of(&object, &node, true).map_err(|e| e.0)?;
    let scope = Scope { this, old: Some(old) };
    match program.eval(&scope) {
        Ok(Val::Text(text)) => Ok(text.into_owned()),
        Ok(Val::List(list)) => {
            let items: Result<Vec<String>, _> = list.iter().map(|v| v.map(|v| v.shown())).collect();
            Ok(format!("[{}]", items.map_err(|e| e.0)?.join(" ")))
        }
        Ok(Val::Optional(None)) => Ok("none".to_owned()),
        Ok(Val::Optional(Some(value))) => Ok(format!("some {}", value.shown())),
        Ok(Val::Type(name)) => Ok(name.to_owned()),
        Ok(value) => Ok(value.shown()),
        Err(error) => Err(error.0),
    }
}

#[track_caller]
fn gives(cases: &[(&str, &str)]) {
    for (source, expected) in cases {
        assert_eq!(run(source).as_deref(), Ok(*expected), "{source}");
    }
}

#[track_caller]
fn fails(cases: &[(&str, &str)]) {
    for (source, expected) in cases {
        assert_eq!(run(source).as_ref().map_err(String::as_str), Err(*expected), "{source}");
    }
}

#[test]
fn fields_have_the_types_of_the_schema() {
    gives(&[
        ("self.int + 1", "8"),
        ("self.number", "2"),
        ("type(self.number) == double", "true"),
        ("self.text.size()", "5"),
        ("size(self.map)", "2"),
        ("self.map['k.1']", "v"),
        ("self.dash__dash__ed + self.__namespace__", "dn"),
        ("type(self.either) == string ? self.either : 'int'", "50%"),
        ("self.time < timestamp('2027-01-01T00:00:00Z')", "true"),
        ("self.time.getFullYear()", "2026"),
        ("self.span == duration('90m')", "true"),
        ("self.metadata.name", "the-name"),
        ("has(self.maybe)", "false"),
        ("has(self.nothing)", "false"),
        ("has(self.inner.x)", "true"),
        ("oldSelf.int == self.int", "true"),
    ]);
    fails(&[
        ("self.nothing", "no such key: nothing"),
        ("self.metadata.labels", "no such key: labels"),
        ("self.list[5]", "index out of bounds: 5"),
        ("self.map['x']", "no such key: x"),
        ("self.either + 1", "no such overload"),
    ]);
}

#[test]
fn arithmetic_is_checked() {
    gives(&[
        ("7 / 2", "3"),
        ("-7 % 3", "-1"),
        ("1.0 / 4.0", "0.25"),
        ("1u + 2u", "3"),
        ("1 < 2.5 && 3u > 2", "true"),
        ("1 == 1.0", "true"),
    ]);
    fails(&[
        ("1 / 0", "division by zero"),
        ("1 % 0", "modulus by zero"),
        ("9223372036854775807 + 1", "integer overflow"),
        ("0u - 1u", "unsigned integer overflow"),
        ("1 + 'a'", "no such overload"),
        ("-(-9223372036854775808)", "integer overflow"),
    ]);
}

#[test]
fn logic_decides_without_what_fails() {
    gives(&[
        ("false && 1 / 0 == 1", "false"),
        ("1 / 0 == 1 && false", "false"),
        ("true || self.nothing", "true"),
        ("self.nothing == 1 || true", "true"),
        ("self.list.exists(i, i == 2 || 1 / 0 == 1)", "true"),
        ("self.list.all(i, i != 3 && 1 / 0 == 1)", "false"),
        ("false ? self.nothing : 5", "5"),
    ]);
    fails(&[
        ("true && 1 / 0 == 1", "division by zero"),
        ("self.list.all(i, i / 0 == 1)", "division by zero"),
    ]);
}

#[test]
fn comprehensions_work_on_lists_and_maps() {
    gives(&[
        ("self.list.map(i, i * 2)", "[6 2 4]"),
        ("self.list.filter(i, i > 1)", "[3 2]"),
        ("self.list.map(i, i > 1, i * 10)", "[30 20]"),
        ("self.list.exists_one(i, i == 1)", "true"),
        ("self.map.all(k, self.map[k].size() == 1)", "true"),
        ("self.keyed.exists(e, e.name == 'y' && e.v == 2)", "true"),
        ("self.list.all(i, self.list.exists(j, i == j))", "true"),
        ("self.list.all(i, v, v == self.list[i])", "true"),
        ("self.list.exists(i, v, i == 2 && v == 2)", "true"),
        ("self.list.existsOne(i, v, v > 2)", "true"),
        ("self.list.transformList(i, v, i * v)", "[0 1 4]"),
        ("self.list.transformList(i, v, i > 0, v)", "[1 2]"),
        ("self.map.transformMap(k, v, v + '!')['k2']", "w!"),
        ("self.map.transformMapEntry(k, v, {v: k})['v']", "k.1"),
        ("self.keyed.map(e, e.name).join(',')", "x,y"),
    ]);
}

#[test]
fn lists_and_sets_compare_as_their_type_says() {
    gives(&[
        ("self.set == ['b', 'a']", "true"),
        ("self.list == [1, 2, 3]", "false"),
        ("self.set + ['b', 'c'] == ['a', 'b', 'c']", "true"),
        ("self.keyed == oldSelf.keyed", "true"),
        ("(self.keyed + self.keyed).size()", "2"),
        ("'a' in self.set && !('z' in self.set) && 'k2' in self.map", "true"),
        (
            "sets.contains(self.list, [1]) && sets.equivalent([1, 1], [1]) && !sets.intersects([1], [2])",
            "true",
        ),
    ]);
}

#[test]
fn list_functions() {
    gives(&[
        ("self.list.isSorted()", "false"),
        ("self.list.sum()", "6"),
        ("self.list.min() + self.list.max()", "4"),
        ("self.list.indexOf(2) + [1, 1].lastIndexOf(1)", "3"),
        ("self.list.sort()", "[1 2 3]"),
        ("self.keyed.sortBy(e, -e.v).map(e, e.name)", "[y x]"),
        ("self.list.reverse()", "[2 1 3]"),
        ("[1, 1, 2].distinct()", "[1 2]"),
        ("[[1], [2, 3]].flatten()", "[1 2 3]"),
        ("self.list.slice(1, 3)", "[1 2]"),
        ("lists.range(3)", "[0 1 2]"),
        ("self.list.first().value() + self.list.last().value()", "5"),
    ]);
    fails(&[
        ("[].max()", "max called on empty list"),
        ("[1].slice(0, 5)", "cannot slice(0, 5), list is length 1"),
    ]);
}

#[test]
fn text_functions_count_characters() {
    gives(&[
        ("self.text.charAt(1)", "é"),
        ("self.text.indexOf('l')", "2"),
        ("self.text.lastIndexOf('l')", "3"),
        ("self.text.substring(1, 3)", "él"),
        ("self.text.upperAscii()", "HéLLO"),
        ("'a,b,c'.split(',')", "[a b c]"),
        ("'a,b,c'.split(',', 2)", "[a b,c]"),
        ("'aXbX'.replace('X', '-', 1)", "a-bX"),
        ("' x '.trim()", "x"),
        ("'abc123'.matches('^[a-z]+[0-9]+$')", "true"),
        ("'abc123'.find('[0-9]+')", "123"),
        ("'a1b22'.findAll('[0-9]+')", "[1 22]"),
        ("'abc'.startsWith('a') && 'abc'.endsWith('c') && 'abc'.contains('b')", "true"),
        ("strings.quote('a\"b')", "\"a\\\"b\""),
        ("string(1) + string(1.5) + string(true) + string(duration('90s'))", "11.5true90s"),
        ("int('42') + int(2.9)", "44"),
    ]);
    fails(&[
        ("'abc'.charAt(9)", "index out of range: 9"),
        ("'abc'.substring(2, 1)", "invalid substring range. start: 2, end: 1"),
        ("int('x')", "type conversion error from 'string' to 'int'"),
    ]);
}

#[test]
fn format_makes_messages() {
    gives(&[
        ("'%s has %d of %s'.format([self.text, self.int, self.list])", "héllo has 7 of [3, 1, 2]"),
        ("'%s'.format([self.map])", "{\"k.1\":\"v\", \"k2\":\"w\"}"),
        ("'%s'.format([['a', 1.5, null, true]])", "[\"a\", 1.500000, null, true]"),
        ("'%.2f %x %X %o %b %%'.format([1234.5, 255, 255, 8, 5])", "1,234.50 ff FF 10 101 %"),
    ]);
    fails(&[
        (
            "'%d'.format(['x'])",
            "error during formatting: decimal clause can only be used on integers, was given string",
        ),
        ("'%s %s'.format(['x'])", "index 1 out of range"),
        (
            "'%s'.format([ip('10.0.0.1')])",
            "error during formatting: string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps, was given net.IP",
        ),
    ]);
}

#[test]
fn addresses_and_networks() {
    gives(&[
        ("isIP('10.0.0.1') && isIP('fd00::1') && !isIP('10.0.0.01') && !isIP('::ffff:1.2.3.4')", "true"),
        ("ip('10.0.0.1').family() + ip('fd00::1').family()", "10"),
        ("ip.isCanonical('fd00::1') && !ip.isCanonical('FD00::1')", "true"),
        (
            "isCIDR('10.0.0.0/8') && isCIDR('10.1.2.3/8') && !isCIDR('10.0.0.0') && !isCIDR('10.0.0.0/33')",
            "true",
        ),
        ("cidr('10.0.0.0/8').prefixLength()", "8"),
        (
            "cidr('10.0.0.0/8').containsIP('10.1.2.3') && !cidr('10.0.0.0/8').containsIP(ip('11.0.0.0'))",
            "true",
        ),
        (
            "cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16') && !cidr('10.1.0.0/16').containsCIDR(cidr('10.0.0.0/8'))",
            "true",
        ),
        ("cidr('0.0.0.0/0').containsCIDR('::/0')", "false"),
        ("string(cidr('10.1.2.3/8').masked())", "10.0.0.0/8"),
        ("cidr('10.1.2.3/8') == cidr('10.1.2.3/8').masked()", "false"),
        ("string(cidr('10.1.2.3/8').ip())", "10.1.2.3"),
        ("cidr('fd00::/64').ip().family() == 6", "true"),
        (
            "ip('127.0.0.1').isLoopback() && ip('0.0.0.0').isUnspecified() && ip('fe80::1').isLinkLocalUnicast()",
            "true",
        ),
        (
            "ip('224.0.0.1').isLinkLocalMulticast() && ip('8.8.8.8').isGlobalUnicast() && !ip('255.255.255.255').isGlobalUnicast()",
            "true",
        ),
    ]);
    fails(&[
        (
            "cidr('10.0.0.0/33').prefixLength()",
            "network address parse error during conversion from string: network address parse error during conversion from string: netip.ParsePrefix(\"10.0.0.0/33\"): prefix length out of range",
        ),
        (
            "ip('x')",
            "IP Address \"x\" parse error during conversion from string: ParseAddr(\"x\"): unable to parse IP",
        ),
    ]);
}

#[test]
fn optional_values() {
    gives(&[
        ("self.?nothing", "none"),
        ("self.?int", "some 7"),
        ("self.?inner.?x.orValue(9)", "1"),
        ("self.?inner.nothing", "none"),
        ("self.?nothing.orValue(9)", "9"),
        ("self.?int.or(optional.of(self.nothing))", "some 7"),
        ("self.list[?7].hasValue()", "false"),
        ("self.?int.optMap(i, i + 1).value()", "8"),
        ("self.?int.optFlatMap(i, optional.none())", "none"),
        ("optional.ofNonZeroValue('')", "none"),
        ("[?self.?nothing, ?self.?int]", "[7]"),
    ]);
    fails(&[("optional.none().value()", "optional.none() dereference")]);
}

#[test]
fn library_types() {
    gives(&[
        ("quantity('1Gi').isGreaterThan(quantity('500Mi'))", "true"),
        ("isQuantity('x')", "false"),
        ("url('https://example.com:80/p?q=1').getHost()", "example.com:80"),
        ("isURL('https://example.com')", "true"),
        ("semver('1.2.3').isLessThan(semver('1.3.0'))", "true"),
        ("format.dns1123Label().validate('a-b').hasValue()", "false"),
        ("format.named('dns1123Label').hasValue()", "true"),
    ]);
}

#[test]
fn what_a_real_server_does_not_have_does_not_compile() {
    for source in [
        "math.abs(-1) == 1",
        "cel.bind(x, 1, x == 1)",
        "isIPv4('10.0.0.1')",
        "base64.encode(b'x') == ''",
        "nonsense",
        "request.kind == ''",
    ] {
        assert!(run(source).unwrap_err().contains("undeclared reference"), "{source}");
    }
    for source in ["self.", "1 +", "'", "self.int ==", "self.list.all(1, true)", "'a'.matches('(')"] {
        assert!(Program::compile(source).is_err(), "{source}");
    }
}

#[test]
fn types_are_checked_when_a_rule_is_compiled() {
    let node = schema();
    let check = |source: &str| Program::compile(source).unwrap().check(&node, true, false, "bool");
    for source in [
        "self.int > 1 && self.text.startsWith('a') && self.list.all(i, i > 0)",
        "self.either == 1 || self.either == 'a'",
        "self.int < self.number",
        "self.keyed.exists(e, e.name == 'x')",
        "self.map.all(k, self.map[k] != '')",
        "self == oldSelf && self.inner == oldSelf.inner",
        "self.time + duration('1h') > self.time",
        "self.?inner.?x.orValue(1) == 1",
        "self.list.map(i, string(i)).join(',') == '1'",
        "self.set.filter(x, cidr(x).prefixLength() > 8).size() == 0",
        "'%s %d %s'.format([self.text, self.int, self.list]) != ''",
        "lists.range(3).sum() == 3",
        "type(self.either) == string",
        "self.dash__dash__ed == 'x'",
        "self.metadata.name == 'x'",
        "quantity(self.text).isGreaterThan(quantity('1'))",
    ] {
        assert_eq!(check(source), Ok(()), "{source}");
    }
    for (source, problem) in [
        ("self.nothing", "ERROR: undefined field 'nothing'"),
        (
            "self.int == self.number",
            "ERROR: found no matching overload for '_==_' applied to '(int, double)'",
        ),
        ("self.int.x", "ERROR: type 'int' does not support field selection"),
        (
            "self.inner.all(x, true)",
            "ERROR: expression of type 'object' cannot be range of a comprehension (must be list, map, or dynamic)",
        ),
        ("self.text.size(1) > 1", "ERROR: found no matching overload for 'size' applied to 'string.(int)'"),
        ("{'a': 1, 'b': 'c'} == {}", "ERROR: expected type 'int' but found 'string'"),
        (
            "'%d'.format([self.text]) == ''",
            "ERROR: error during formatting: decimal clause can only be used on integers, was given string",
        ),
        (
            "'%s'.format([self.inner]) == ''",
            "ERROR: error during formatting: string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps, was given object",
        ),
        (
            "'%s'.format([1, 2]) == ''",
            "ERROR: too many arguments supplied to string.format (expected 1, got 2)",
        ),
    ] {
        assert_eq!(check(source), Err(Mistyped::Inside(problem.to_owned())), "{source}");
    }
    assert_eq!(check("self.int"), Err(Mistyped::Result));
    let optional = Program::compile("oldSelf.hasValue() && oldSelf.value().int < self.int").unwrap();
    assert_eq!(optional.check(&node, true, true, "bool"), Ok(()));
    assert!(optional.check(&node, true, false, "bool").is_err());
}

proptest! {
    #[test]
    fn no_text_makes_the_compiler_panic(text in "\\PC{0,40}", pieces in prop::collection::vec(
        prop_oneof![Just("self"), Just(".int"), Just(".list"), Just("("), Just(")"), Just("["), Just("]"), Just("+"), Just("&&"),
            Just("?"), Just(":"), Just("!"), Just("1"), Just("'a'"), Just(".all(x,"), Just(".map(x,"), Just("x"), Just(","),
            Just("has("), Just("cidr("), Just(".?"), Just("{"), Just("}"), Just("=="), Just(" in "), Just("-")], 0..14)) {
        let _ = run(&text);
        let _ = run(&pieces.concat());
    }
}
