//! The owner of a pod's interface, and the alias of the host end that names it.
//!
//! The kernel keeps 254 bytes of a link's alias. The key of a hold (container, interface, network) is always complete;
//! namespace and pod, which are for people, may be truncated.
//!
//! This is not an alternative name of the link: those must be unique, and a recreated pod of the same name would collide with
//! its predecessor, which still waits to be deleted.

use std::fmt::{self, Write as _};

/// Longest alias that the kernel keeps: 256 bytes, less one for its own terminating zero and one for ours.
const ALIAS_MAX: usize = 254;
/// Longest name of an interface.
pub(crate) const LINK_NAME_MAX: usize = 15;
/// The prefix of our aliases.
const MARK: &str = "tenure/";
/// The suffix of a truncated alias. No Kubernetes name contains it.
const CUT: char = '~';

/// The owner of a pod's interface.
///
/// Two identities are the same holder if container, interface and network are equal; namespace and pod are for people.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity {
    /// The container (sandbox) ID from the runtime.
    pub container: String,
    /// The interface's name inside the pod.
    pub interface: String,
    /// The name of the network, from the CNI configuration.
    pub network: String,
    /// The pod's Kubernetes namespace; empty outside Kubernetes.
    pub namespace: String,
    /// The pod's name; empty outside Kubernetes.
    pub pod: String,
}

/// Whether the alias truncated the namespace or the pod's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Truncated(pub bool);

/// An identity that cannot be stored.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {value:?} cannot be used; accepted: {accepted}")]
pub struct InvalidIdentity {
    /// The field.
    pub field: &'static str,
    /// Its value.
    pub value: String,
    /// What would be accepted.
    pub accepted: &'static str,
}

impl Identity {
    /// Checks that every field can be used.
    pub fn validate(&self) -> Result<(), InvalidIdentity> {
        let check = |ok: bool, field, value: &str, accepted| {
            if ok { Ok(()) } else { Err(InvalidIdentity { field, value: value.to_owned(), accepted }) }
        };
        let word = |text: &str| {
            text.starts_with(|first: char| first.is_ascii_alphanumeric())
                && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
        };
        let words = "letters, digits, '_', '.' and '-', beginning with a letter or digit";
        check(word(&self.container), "container", &self.container, words)?;
        check(
            is_link_name(&self.interface),
            "interface",
            &self.interface,
            "1 to 15 visible characters other than '/' and ':', not '.' or '..'",
        )?;
        check(word(&self.network), "network", &self.network, words)?;
        for (field, text) in [("namespace", &self.namespace), ("pod", &self.pod)] {
            let ok = text.is_empty() || word(text);
            check(ok, field, text, "a Kubernetes name, or nothing")?;
        }
        let key = MARK.len() + self.container.len() + self.interface.len() + self.network.len() + 2;
        // Leaves room for the suffix that marks truncation.
        let fits = key + 2 <= ALIAS_MAX;
        check(
            fits,
            "container",
            &self.container,
            "at most about 200 characters together with the network's name",
        )
    }

    /// Whether both are the same holder.
    pub fn is_same_holder(&self, other: &Self) -> bool {
        (&self.container, &self.interface, &self.network)
            == (&other.container, &other.interface, &other.network)
    }

    /// The alias of the host end.
    pub fn alias(&self) -> String {
        let Self { container, interface, network, namespace, pod } = self;
        let mut text = String::with_capacity(ALIAS_MAX);
        // Writing to a string cannot fail.
        let _ = write!(text, "{MARK}{container}/{interface}/{network}/{namespace}/{pod}");
        if text.len() > ALIAS_MAX {
            // All parts are ASCII, so any byte is a character boundary.
            text.truncate(ALIAS_MAX - 1);
            text.push(CUT);
        }
        text
    }

    /// Parses the alias of a host end; `None` if it is not ours.
    pub fn of_alias(alias: &str) -> Option<(Self, Truncated)> {
        let text = alias.strip_prefix(MARK)?;
        let cut = text.strip_suffix(CUT);
        let mut parts = cut.unwrap_or(text).splitn(5, '/');
        let mut next = || parts.next().map(str::to_owned);
        let identity = Self {
            container: next()?,
            interface: next()?,
            network: next()?,
            namespace: next().unwrap_or_default(),
            pod: next().unwrap_or_default(),
        };
        identity.validate().ok()?;
        Some((identity, Truncated(cut.is_some())))
    }
}

/// Whether the kernel accepts this as a link's name.
pub(crate) fn is_link_name(name: &str) -> bool {
    (1..=LINK_NAME_MAX).contains(&name.len())
        && name != "."
        && name != ".."
        && name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/' && byte != b':')
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { container, interface, network, namespace, pod } = self;
        write!(f, "{interface} of container {container} in network {network}")?;
        if !pod.is_empty() {
            write!(f, " (pod {namespace}/{pod})")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    prop_compose! {
        fn any_identity()(
            container in "[a-zA-Z0-9][a-zA-Z0-9_.-]{0,80}",
            interface in "[a-z][a-z0-9.]{0,14}",
            network in "[a-zA-Z0-9][a-zA-Z0-9_.-]{0,30}",
            namespace in "([a-z0-9][a-z0-9-]{0,62})?",
            pod in "([a-z0-9][a-z0-9.-]{0,252})?",
        ) -> Identity {
            Identity { container, interface, network, namespace, pod }
        }
    }

    proptest! {
        #[test]
        fn an_alias_fits_the_kernel_and_leads_back_to_its_holder(identity in any_identity()) {
            identity.validate().unwrap();
            let alias = identity.alias();
            prop_assert!(alias.len() <= ALIAS_MAX);
            let (read, Truncated(cut)) = Identity::of_alias(&alias).unwrap();
            prop_assert!(read.is_same_holder(&identity));
            if cut {
                prop_assert!(identity.namespace.starts_with(&read.namespace));
                prop_assert!(identity.pod.starts_with(&read.pod));
            } else {
                prop_assert_eq!(read, identity);
            }
        }

        #[test]
        fn reading_any_text_does_not_panic(text in ".{0,300}") {
            let _ = Identity::of_alias(&text);
            let _ = Identity::of_alias(&format!("tenure/{text}"));
        }
    }

    fn identity() -> Identity {
        Identity {
            container: "c0ffee".into(),
            interface: "eth0".into(),
            network: "k8s".into(),
            namespace: "shop".into(),
            pod: "web-0".into(),
        }
    }

    #[test]
    fn an_alias_reads_well() {
        assert_eq!(identity().alias(), "tenure/c0ffee/eth0/k8s/shop/web-0");
    }

    #[test]
    fn what_is_not_ours_is_not_read() {
        for alias in
            ["", "tenure", "tenure/", "tenure/a", "tenure/a/b", "COIL:default:c0ffee:eth0", "tenure/a/b:/k"]
        {
            assert_eq!(Identity::of_alias(alias), None, "{alias}");
        }
    }

    #[test]
    fn a_part_that_cannot_be_written_down_is_named() {
        let bad = |change: fn(&mut Identity)| {
            let mut identity = identity();
            change(&mut identity);
            identity.validate().unwrap_err().field
        };
        assert_eq!(bad(|i| i.container = String::new()), "container");
        assert_eq!(bad(|i| i.container = "a/b".into()), "container");
        assert_eq!(bad(|i| i.container = "a".repeat(250)), "container");
        assert_eq!(bad(|i| i.interface = "a-name-too-long-".into()), "interface");
        assert_eq!(bad(|i| i.interface = "..".into()), "interface");
        assert_eq!(bad(|i| i.network = "a b".into()), "network");
        assert_eq!(bad(|i| i.namespace = "a/b".into()), "namespace");
        assert_eq!(bad(|i| i.pod = "a~".into()), "pod");
    }
}
