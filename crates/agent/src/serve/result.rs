//! A CNI result as written to standard output.

use serde::Serialize;
use tenure_cni::{CniResult, Code, Failure, Version};

/// A result as written to standard output, in the format of `version`.
///
/// Current versions are written directly: every pod waits for this, and a detour through a tree of values
/// takes ten times as long.
pub(super) fn to_bytes(mut result: CniResult, version: Version) -> Result<Vec<u8>, Failure> {
    /// Enough for both families.
    const USUAL: usize = 768;
    #[derive(Serialize)]
    struct Versioned<'a> {
        #[serde(rename = "cniVersion")]
        version: &'a str,
        #[serde(flatten)]
        result: &'a CniResult,
    }
    if version < Version::V1_0_0 {
        return Ok(result.to_json(version)?.to_string().into_bytes());
    }
    if version < Version::V1_1_0 {
        result.interfaces.iter_mut().for_each(|interface| interface.mtu = None);
        result.routes.iter_mut().for_each(|route| route.more.clear());
    }
    let mut bytes = Vec::with_capacity(USUAL);
    let versioned = Versioned { version: version.as_str(), result: &result };
    serde_json::to_writer(&mut bytes, &versioned)
        .map_err(|error| Failure::new(Code::Internal, format!("cannot write the result: {error}")))?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_result_has_the_shape_of_every_version() {
        let text = json!({
            "interfaces": [
                { "name": "eth0", "mac": "0a:00:00:00:00:01", "mtu": 1450, "sandbox": "/run/netns/\"p\"" },
                { "name": "tnr1", "mac": "0a:00:00:00:00:02", "mtu": 1450 },
            ],
            "ips": [
                { "address": "10.2.0.1/32", "gateway": "169.254.1.1", "interface": 0 },
                { "address": "fd01::1/128", "gateway": "fe80::1", "interface": 0 },
            ],
            "routes": [{ "dst": "0.0.0.0/0", "gw": "169.254.1.1", "mtu": 1400 }, { "dst": "::/0" }],
        });
        let whole: CniResult = serde_json::from_value(text).unwrap();
        let mut served = whole.clone();
        served.dns.search.push("shop.svc".to_owned());
        for result in [CniResult::default(), whole, served] {
            for version in Version::ALL {
                let bytes = to_bytes(result.clone(), version).unwrap();
                let read: Value = serde_json::from_slice(&bytes).unwrap();
                assert_eq!(read, result.to_json(version).unwrap(), "{}", version.as_str());
            }
        }
    }
}
