//! A runtime's call to a plugin: the environment and standard input, parsed strictly.

use std::collections::BTreeMap;
use std::ffi::OsString;

use crate::failure::{Code, Failure};

/// The verbs of the specification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Attach.
    Add,
    /// Detach.
    Del,
    /// Is it still attached?
    Check,
    /// Could an ADD be served?
    Status,
    /// Forget all attachments except the named ones.
    Gc,
    /// Which versions are supported?
    Version,
}

impl Verb {
    const ALL: [(&'static str, Self); 6] = [
        ("ADD", Self::Add),
        ("DEL", Self::Del),
        ("CHECK", Self::Check),
        ("STATUS", Self::Status),
        ("GC", Self::Gc),
        ("VERSION", Self::Version),
    ];

    /// The text in `CNI_COMMAND`.
    pub fn as_str(self) -> &'static str {
        Self::ALL.iter().find(|(_, verb)| *verb == self).map_or("", |(name, _)| name)
    }
}

/// One call of a plugin, checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// What to do.
    pub verb: Verb,
    /// `CNI_CONTAINERID`.
    pub container_id: String,
    /// `CNI_NETNS`.
    pub netns: String,
    /// `CNI_IFNAME`.
    pub ifname: String,
    /// `CNI_ARGS`, split.
    pub args: BTreeMap<String, String>,
    /// `CNI_PATH`.
    pub path: String,
    /// Standard input, unchanged.
    pub config: Vec<u8>,
    /// `TRACEPARENT`, if the runtime passes one.
    pub traceparent: Option<String>,
}

impl Call {
    /// Reads a call. `variable` looks up an environment variable.
    pub fn read<V: Into<OsString>>(
        variable: impl Fn(&str) -> Option<V>,
        config: Vec<u8>,
    ) -> Result<Self, Failure> {
        let given = |name: &str| text(name, variable(name).map(Into::into));
        let verb = verb(given("CNI_COMMAND")?.as_deref())?;
        let needed = |name: &'static str, verbs: &[Verb]| match given(name)? {
            None if verbs.contains(&verb) => Err(invalid(name, "it is missing", "a value")),
            value => Ok(value.unwrap_or_default()),
        };
        let attached = [Verb::Add, Verb::Del, Verb::Check];
        let container_id = needed("CNI_CONTAINERID", &attached)?;
        let ifname = needed("CNI_IFNAME", &attached)?;
        let netns = needed("CNI_NETNS", &[Verb::Add, Verb::Check])?;
        if !container_id.is_empty() {
            check_container_id(&container_id)?;
        }
        if !ifname.is_empty() {
            check_ifname(&ifname)?;
        }
        let args = split_args(&given("CNI_ARGS")?.unwrap_or_default())?;
        let path = given("CNI_PATH")?.unwrap_or_default();
        // An invalid trace context must not delay a pod.
        let traceparent = given("TRACEPARENT").ok().flatten().filter(|context| is_traceparent(context));
        Ok(Self { verb, container_id, netns, ifname, args, path, config, traceparent })
    }
}

/// A variable's value; an empty one counts as missing.
#[expect(clippy::unnecessary_debug_formatting, reason = "bytes that are not UTF-8 can only be shown escaped")]
fn text(name: &str, value: Option<OsString>) -> Result<Option<String>, Failure> {
    let read = value.filter(|value| !value.is_empty()).map(OsString::into_string).transpose();
    read.map_err(|raw| invalid(name, &format!("it is {raw:?}, which is no UTF-8"), "UTF-8"))
}

/// Whether the text can be sent as a header unchanged, as a valid trace context can.
fn is_traceparent(context: &str) -> bool {
    context.len() < 256 && context.bytes().all(|byte| byte.is_ascii_graphic())
}

fn verb(name: Option<&str>) -> Result<Verb, Failure> {
    let accepted = "ADD, DEL, CHECK, STATUS, GC or VERSION";
    let name = name.unwrap_or_default();
    let found = Verb::ALL.iter().find(|(known, _)| *known == name);
    found.map(|(_, verb)| *verb).ok_or_else(|| invalid("CNI_COMMAND", &format!("it is {name:?}"), accepted))
}

/// The specification's form: a letter or digit, then letters, digits, `_`, `.` and `-`.
fn check_container_id(id: &str) -> Result<(), Failure> {
    let good = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
    if id.starts_with(|c: char| c.is_ascii_alphanumeric()) && id.chars().all(good) && id.len() <= 256 {
        return Ok(());
    }
    let accepted = "a letter or digit followed by up to 255 letters, digits, '_', '.' and '-'";
    Err(invalid("CNI_CONTAINERID", &format!("it is {id:?}"), accepted))
}

/// What the kernel takes as the name of an interface.
fn check_ifname(name: &str) -> Result<(), Failure> {
    let bad = |c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control();
    if name.len() <= 15 && name != "." && name != ".." && !name.contains(bad) {
        return Ok(());
    }
    let accepted = "at most 15 bytes without '/', ':' and white space, other than '.' and '..'";
    Err(invalid("CNI_IFNAME", &format!("it is {name:?}"), accepted))
}

/// `K=V;K=V`. Unknown keys are for others.
fn split_args(args: &str) -> Result<BTreeMap<String, String>, Failure> {
    let pairs = args.split(';').filter(|pair| !pair.is_empty());
    pairs
        .map(|pair| match pair.split_once('=') {
            Some((key, value)) if !key.is_empty() => Ok((key.to_owned(), value.to_owned())),
            _ => {
                Err(invalid("CNI_ARGS", &format!("{pair:?} is no pair"), "KEY=VALUE pairs separated by ';'"))
            }
        })
        .collect()
}

fn invalid(variable: &str, problem: &str, accepted: &str) -> Failure {
    Failure::new(
        Code::InvalidEnvironment,
        format!("environment variable {variable} cannot be used: {problem}"),
    )
    .detail(format!("accepted is {accepted}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(variables: &[(&str, &str)]) -> Result<Call, Failure> {
        let find =
            |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        Call::read(find, Vec::new())
    }

    const ADD: [(&str, &str); 4] = [
        ("CNI_COMMAND", "ADD"),
        ("CNI_CONTAINERID", "c1"),
        ("CNI_NETNS", "/run/netns/x"),
        ("CNI_IFNAME", "eth0"),
    ];

    #[test]
    fn an_add_needs_container_namespace_and_interface() {
        assert!(read(&ADD).is_ok());
        for missing in 1..ADD.len() {
            let mut variables = ADD.to_vec();
            let (name, _) = variables.remove(missing);
            let failure = read(&variables).unwrap_err();
            assert_eq!(failure.code, 4);
            assert!(failure.message.contains(name), "{failure}");
        }
    }

    #[test]
    fn a_del_needs_no_namespace_and_gc_and_status_need_nothing() {
        assert!(read(&[("CNI_COMMAND", "DEL"), ("CNI_CONTAINERID", "c1"), ("CNI_IFNAME", "eth0")]).is_ok());
        assert!(read(&[("CNI_COMMAND", "GC")]).is_ok());
        assert!(read(&[("CNI_COMMAND", "STATUS")]).is_ok());
    }

    #[test]
    fn args_are_split_and_a_broken_pair_is_named() {
        let with = |args| read(&[&ADD[..], &[("CNI_ARGS", args)]].concat());
        let call = with("IgnoreUnknown=1;K8S_POD_NAME=a=b;").unwrap();
        assert_eq!(call.args.get("K8S_POD_NAME").map(String::as_str), Some("a=b"));
        assert!(with("nonsense").unwrap_err().message.contains("nonsense"));
    }

    #[test]
    fn names_that_the_kernel_or_the_specification_refuse_are_refused() {
        let with = |key, value| read(&[&[(key, value)][..], &ADD].concat());
        for name in ["", "..", "a/b", "a:b", "a b", "sixteen-bytes-xx"] {
            assert!(with("CNI_IFNAME", name).is_err(), "{name:?}");
        }
        for id in ["-x", "a/b", "a b", ""] {
            assert!(with("CNI_CONTAINERID", id).is_err(), "{id:?}");
        }
    }

    #[test]
    fn a_value_that_is_no_utf_8_is_refused_by_name_and_not_taken_for_a_missing_one() {
        use std::os::unix::ffi::OsStringExt as _;
        let find = |name: &str| match name {
            "CNI_CONTAINERID" => Some(OsString::from_vec(b"c\xff".to_vec())),
            name => ADD.iter().find(|(key, _)| *key == name).map(|(_, value)| OsString::from(value)),
        };
        let failure = Call::read(find, Vec::new()).unwrap_err();
        assert_eq!(failure.code, 4);
        assert!(
            failure.message.contains("CNI_CONTAINERID") && failure.message.contains("\\xFF"),
            "{failure}"
        );
    }

    proptest! {
        #[test]
        fn no_environment_makes_it_panic(command in ".*", id in ".*", ifname in ".*", args in ".*") {
            let variables = [("CNI_COMMAND", command), ("CNI_CONTAINERID", id), ("CNI_IFNAME", ifname), ("CNI_ARGS", args)];
            let find = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| value.clone());
            let _ = Call::read(find, Vec::new());
        }
    }
}
