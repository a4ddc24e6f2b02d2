//! What every object name must be, whatever its kind: a DNS subdomain.

/// The longest name that Kubernetes accepts.
pub const MAX_NAME: usize = 253;

/// A name that cannot be given to an object.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "naming {object}: {field} \"{value}\" would make the object name \"{name}\"; accepted are names of lower-case letters, \
     digits, '-' and '.', at most 253 characters, whose parts between dots start and end with a letter or digit"
)]
pub struct NameError {
    /// What was to be named.
    pub object: &'static str,
    /// The input that spoils the name.
    pub field: &'static str,
    /// Its value.
    pub value: String,
    /// The name that would have come out.
    pub name: String,
}

/// Whether Kubernetes accepts the name: an RFC 1123 subdomain.
pub fn is_object_name(name: &str) -> bool {
    name.len() <= MAX_NAME && name.split('.').all(is_label)
}

/// Whether it is a part of a name between dots.
pub(crate) fn is_label(part: &str) -> bool {
    let plain = |c: u8| c.is_ascii_lowercase() || c.is_ascii_digit();
    let bytes = part.as_bytes();
    match (bytes.first(), bytes.last()) {
        (Some(&first), Some(&last)) => {
            plain(first) && plain(last) && bytes.iter().all(|&c| plain(c) || c == b'-')
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::is_object_name;

    #[test]
    fn names_are_dns_subdomains() {
        for good in
            ["a", "10.0.0.0-8", "testnode-10.0.0.0-8", "2001-db8---64", "0---126", "ip-10-0-0-1.ec2.internal"]
        {
            assert!(is_object_name(good), "{good}");
        }
        let long = "a".repeat(254);
        for bad in [
            "",
            "-",
            "---126",
            "--1",
            "UPPER-10.0.0.0-8",
            "a_b",
            "a..b",
            ".a",
            "a.",
            "a-.b",
            "fd00::1",
            long.as_str(),
        ] {
            assert!(!is_object_name(bad), "{bad}");
        }
    }
}
