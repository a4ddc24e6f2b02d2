//! A pod's additional networks: the annotation `k8s.v1.cni.cncf.io/networks`, and one network in the same
//! notation in `v1.multus-cni.io/default-network`.
//!
//! JSON (a list, or one element) if the text has any of `[ { "`, otherwise the short form:
//! `[namespace/]name[@interface]`, separated by commas. The same network may appear twice. Only what claims
//! need is read; other keys are not checked.

use serde::Deserialize;
use serde_json::Value;
use tenure_ipam::{Address, Notation};

/// One network that a pod asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Selection {
    /// The namespace of the attachment definition; `None` is the pod's own.
    pub namespace: Option<String>,
    /// The name of the attachment definition.
    pub name: String,
    /// The interface in the pod: the element's own name, or `net` and its position in the list, counted from
    /// 1.
    pub interface: String,
    /// Whether the element names it. If not, Multus may use another name.
    pub is_named: bool,
    /// The requested addresses, without their prefix lengths.
    pub ips: Vec<Address>,
    /// The claim that the element refers to, in the **pod's** namespace.
    pub claim: Option<String>,
}

/// An annotation that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("annotation {annotation}: {problem}; accepted is {accepted}")]
pub struct SelectionError {
    /// The annotation.
    pub annotation: &'static str,
    /// What is wrong, with the value.
    pub problem: String,
    /// What would be accepted.
    pub accepted: &'static str,
}

const LIST: &str =
    "a JSON list of objects with \"name\", or [namespace/]name[@interface] separated by commas";
const IPS: &str = "a list of addresses, with or without a prefix length, such as [\"10.0.0.7/24\"]";
const NAME: &str =
    "the name of an IPAMClaim in the pod's own namespace: lower-case letters, digits, '-' and '.'";
const TEXT: &str = "a text";

/// More than any pod has; a longer list is a mistake or an attack.
const MOST: usize = 256;

#[derive(Deserialize)]
struct Element {
    name: Option<Value>,
    namespace: Option<Value>,
    interface: Option<Value>,
    ips: Option<Value>,
    #[serde(rename = "ipam-claim-reference")]
    claim: Option<Value>,
}

/// Reads a list of networks. An empty text is an empty list.
pub fn parse(annotation: &'static str, text: &str) -> Result<Vec<Selection>, SelectionError> {
    let fail = |problem: String| SelectionError { annotation, problem, accepted: LIST };
    let text = text.trim();
    if text.is_empty() {
        return Ok(Vec::new());
    }
    let mut list = if text.contains(['[', '{', '"']) {
        let value: Value = serde_json::from_str(text)
            .map_err(|error| fail(format!("{} is no JSON: {error}", quoted(text))))?;
        let elements = match value {
            Value::Array(elements) => elements,
            one => vec![one],
        };
        elements.into_iter().map(|element| of_json(annotation, element)).collect::<Result<Vec<_>, _>>()?
    } else {
        text.split(',')
            .map(|element| {
                of_short(element).ok_or_else(|| fail(format!("{} is no network", quoted(element))))
            })
            .collect::<Result<Vec<_>, _>>()?
    };
    if list.len() > MOST {
        return Err(fail(format!("it has {} networks, more than {MOST}", list.len())));
    }
    for (place, selection) in list.iter_mut().enumerate() {
        selection.is_named = !selection.interface.is_empty();
        if !selection.is_named {
            selection.interface = format!("net{}", place + 1);
        }
    }
    let mut seen = std::collections::BTreeSet::new();
    if let Some(twice) = list.iter().find(|selection| !seen.insert(selection.interface.as_str())) {
        return Err(fail(format!("interface {} is there twice", quoted(&twice.interface))));
    }
    Ok(list)
}

fn of_json(annotation: &'static str, element: Value) -> Result<Selection, SelectionError> {
    let shown = quoted(&element.to_string());
    let fail = |problem: String, accepted| SelectionError { annotation, problem, accepted };
    let element = Element::deserialize(element).map_err(|_| fail(format!("{shown} is no object"), LIST))?;
    let text = |key: &str, value: Option<Value>| match value {
        None | Some(Value::Null) => Ok(String::new()),
        Some(Value::String(text)) => Ok(text),
        Some(other) => Err(fail(format!("{key} is {}", quoted(&other.to_string())), TEXT)),
    };
    let name = text("name", element.name)?;
    if name.is_empty() {
        return Err(fail(format!("{shown} has no name"), LIST));
    }
    let claim = Some(text("ipam-claim-reference", element.claim)?).filter(|claim| !claim.is_empty());
    if let Some(claim) = claim.as_deref().filter(|claim| !tenure_api::names::is_object_name(claim)) {
        return Err(fail(format!("ipam-claim-reference is {}", quoted(claim)), NAME));
    }
    let wished = |value: &Value| {
        let text = value.as_str()?;
        let address =
            text.split_once('/').map_or(Ok(None), |_| Notation::Strict.address_and_cidr(text).map(Some));
        match address {
            Ok(Some((address, _))) => Some(address),
            Ok(None) => Notation::Strict.address(text).ok(),
            Err(_) => None,
        }
    };
    let ips = match element.ips {
        None | Some(Value::Null) => Vec::new(),
        Some(Value::Array(ips)) => ips
            .iter()
            .map(|ip| wished(ip).ok_or_else(|| fail(format!("ips has {}", quoted(&ip.to_string())), IPS)))
            .collect::<Result<_, _>>()?,
        Some(other) => return Err(fail(format!("ips is {}", quoted(&other.to_string())), IPS)),
    };
    Ok(Selection {
        namespace: Some(text("namespace", element.namespace)?).filter(|namespace| !namespace.is_empty()),
        name,
        interface: text("interface", element.interface)?,
        is_named: false,
        ips,
        claim,
    })
}

/// `[namespace/]name[@interface]`.
fn of_short(text: &str) -> Option<Selection> {
    let text = text.trim();
    let (network, interface) = match text.split_once('@') {
        Some((_, "")) => return None,
        Some((network, interface)) => (network, interface),
        None => (text, ""),
    };
    let (namespace, name) = match network.split_once('/') {
        Some(("", _)) => return None,
        Some((namespace, name)) => (Some(namespace.to_owned()), name),
        None => (None, network),
    };
    let plain = |text: &str| !text.contains(['/', '@']) && !text.contains(char::is_whitespace);
    let good = !name.is_empty() && plain(name) && plain(interface);
    good.then(|| Selection {
        namespace,
        name: name.to_owned(),
        interface: interface.to_owned(),
        ..Selection::default()
    })
}

fn quoted(text: &str) -> String {
    let short: String = text.trim().chars().take(96).collect();
    format!("\"{short}\"")
}

#[cfg(test)]
mod tests;
