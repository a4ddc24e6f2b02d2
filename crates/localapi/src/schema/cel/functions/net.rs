//! IP addresses and CIDRs. Ours and not kube-cel's, because every rule of Tenure's own kinds rests on them:
//! the parser is as strict as the real server's, and its refusals use the same words.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::super::super::wording::quote;
use super::super::EvalError;
use super::super::value::Val;

type Result<'a> = std::result::Result<Val<'a>, EvalError>;

fn text<'v>(value: &'v Val<'_>) -> std::result::Result<&'v str, EvalError> {
    match value {
        Val::Text(text) => Ok(text.as_ref()),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn address(value: &Val<'_>) -> std::result::Result<IpAddr, EvalError> {
    match value {
        Val::Ip(address) => Ok(*address),
        _ => Err(EvalError::no_such_overload()),
    }
}

fn network(value: &Val<'_>) -> std::result::Result<(IpAddr, u8), EvalError> {
    match value {
        Val::Cidr(address, length) => Ok((*address, *length)),
        _ => Err(EvalError::no_such_overload()),
    }
}

pub(super) fn ip<'a>(args: &[Val<'a>]) -> Result<'a> {
    parse_ip(text(&args[0])?).map(Val::Ip).map_err(EvalError::new)
}

pub(super) fn is_ip<'a>(args: &[Val<'a>]) -> Result<'a> {
    Ok(Val::Bool(parse_ip(text(&args[0])?).is_ok()))
}

pub(super) fn is_canonical<'a>(args: &[Val<'a>]) -> Result<'a> {
    let text = text(&args[0])?;
    let address = parse_ip(text).map_err(EvalError::new)?;
    Ok(Val::Bool(address.to_string() == text))
}

pub(super) fn cidr<'a>(args: &[Val<'a>]) -> Result<'a> {
    parse_cidr(text(&args[0])?).map(|(address, length)| Val::Cidr(address, length)).map_err(|e| {
        EvalError::new(format!("network address parse error during conversion from string: {e}"))
    })
}

pub(super) fn is_cidr<'a>(args: &[Val<'a>]) -> Result<'a> {
    Ok(Val::Bool(parse_cidr(text(&args[0])?).is_ok()))
}

pub(super) fn family<'a>(args: &[Val<'a>]) -> Result<'a> {
    Ok(Val::Int(if address(&args[0])?.is_ipv4() { 4 } else { 6 }))
}

pub(super) fn is_unspecified<'a>(args: &[Val<'a>]) -> Result<'a> {
    Ok(Val::Bool(address(&args[0])?.is_unspecified()))
}

pub(super) fn is_loopback<'a>(args: &[Val<'a>]) -> Result<'a> {
    Ok(Val::Bool(address(&args[0])?.is_loopback()))
}

pub(super) fn is_link_local_multicast<'a>(args: &[Val<'a>]) -> Result<'a> {
    Ok(Val::Bool(match address(&args[0])? {
        IpAddr::V4(v4) => matches!(v4.octets(), [224, 0, 0, _]),
        IpAddr::V6(v6) => v6.segments()[0] & 0xff0f == 0xff02,
    }))
}

fn link_local_unicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.is_link_local(),
        IpAddr::V6(v6) => v6.is_unicast_link_local(),
    }
}

pub(super) fn is_link_local_unicast<'a>(args: &[Val<'a>]) -> Result<'a> {
    Ok(Val::Bool(link_local_unicast(address(&args[0])?)))
}

pub(super) fn is_global_unicast<'a>(args: &[Val<'a>]) -> Result<'a> {
    let address = address(&args[0])?;
    let broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
    Ok(Val::Bool(
        !broadcast
            && !address.is_unspecified()
            && !address.is_loopback()
            && !address.is_multicast()
            && !link_local_unicast(address),
    ))
}

pub(super) fn contains_ip<'a>(args: &[Val<'a>]) -> Result<'a> {
    let (base, length) = network(&args[0])?;
    let address = match &args[1] {
        Val::Text(text) => parse_ip(text).map_err(EvalError::new)?,
        other => address(other)?,
    };
    Ok(Val::Bool(mask(base, length) == mask(address, length) && base.is_ipv4() == address.is_ipv4()))
}

pub(super) fn contains_cidr<'a>(args: &[Val<'a>]) -> Result<'a> {
    let (base, length) = network(&args[0])?;
    let (other, other_length) = match &args[1] {
        value @ Val::Text(_) => network(&cidr(std::slice::from_ref(value))?)?,
        value => network(value)?,
    };
    Ok(Val::Bool(
        length <= other_length
            && base.is_ipv4() == other.is_ipv4()
            && mask(base, length) == mask(other, length),
    ))
}

pub(super) fn prefix_length<'a>(args: &[Val<'a>]) -> Result<'a> {
    Ok(Val::Int(i64::from(network(&args[0])?.1)))
}

pub(super) fn masked<'a>(args: &[Val<'a>]) -> Result<'a> {
    let (base, length) = network(&args[0])?;
    Ok(Val::Cidr(mask(base, length), length))
}

pub(super) fn cidr_ip<'a>(args: &[Val<'a>]) -> Result<'a> {
    Ok(Val::Ip(network(&args[0])?.0))
}

fn mask(address: IpAddr, length: u8) -> IpAddr {
    match address {
        IpAddr::V4(v4) => {
            let kept = u32::MAX.checked_shl(32 - u32::from(length.min(32))).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from(u32::from(v4) & kept))
        }
        IpAddr::V6(v6) => {
            let kept = u128::MAX.checked_shl(128 - u32::from(length.min(128))).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from(u128::from(v6) & kept))
        }
    }
}

/// An address without zone that is not IPv4 in IPv6 clothes.
pub(in super::super) fn parse_ip(raw: &str) -> std::result::Result<IpAddr, String> {
    let (address, zone) = parse_address(raw)
        .map_err(|e| format!("IP Address {} parse error during conversion from string: {e}", quote(raw)))?;
    if zone {
        return Err(format!("IP address {} with zone value is not allowed", quote(raw)));
    }
    if is_mapped(address) {
        return Err(format!("IPv4-mapped IPv6 address {} is not allowed", quote(raw)));
    }
    Ok(address)
}

fn parse_cidr(raw: &str) -> std::result::Result<(IpAddr, u8), String> {
    let refuse = |problem: String| {
        Err(format!(
            "network address parse error during conversion from string: netip.ParsePrefix({}): {problem}",
            quote(raw)
        ))
    };
    let Some((address, bits)) = raw.rsplit_once('/') else { return refuse("no '/'".to_owned()) };
    let (address, zone) = match parse_address(address) {
        Ok(parsed) => parsed,
        Err(problem) => return refuse(problem),
    };
    if zone {
        return refuse("IPv6 zones cannot be present in a prefix".to_owned());
    }
    let plain = bits.bytes().all(|b| b.is_ascii_digit()) && (bits.len() == 1 || !bits.starts_with('0'));
    let length: u32 = match bits.parse() {
        Ok(length) if plain => length,
        _ => return refuse(format!("bad bits after slash: {}", quote(bits))),
    };
    let max = if address.is_ipv4() { 32 } else { 128 };
    let Some(length) = u8::try_from(length).ok().filter(|length| *length <= max) else {
        return refuse("prefix length out of range".to_owned());
    };
    if is_mapped(address) {
        return Err(format!("IPv4-mapped IPv6 address {} is not allowed", quote(raw)));
    }
    Ok((address, length))
}

fn is_mapped(address: IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some())
}

/// Parses an address; says whether it has a zone, or why it is none.
fn parse_address(raw: &str) -> std::result::Result<(IpAddr, bool), String> {
    let fail = |problem: &str, at: &str| {
        let at = if at.is_empty() { String::new() } else { format!(" (at {})", quote(at)) };
        format!("ParseAddr({}): {problem}{at}", quote(raw))
    };
    for c in raw.chars() {
        match c {
            '.' => {
                return parse_v4(raw)
                    .map(|v4| (IpAddr::V4(v4), false))
                    .map_err(|(problem, at)| fail(problem, at));
            }
            ':' => break,
            '%' => return Err(fail("missing IPv6 address", "")),
            _ => {}
        }
    }
    if !raw.contains(':') {
        return Err(fail("unable to parse IP", ""));
    }
    let (body, zone) = match raw.split_once('%') {
        Some((_, "")) => return Err(fail("zone must be a non-empty string", "")),
        Some((body, _)) => (body, true),
        None => (raw, false),
    };
    parse_v6(body).map(|v6| (IpAddr::V6(v6), zone)).map_err(|(problem, at)| fail(problem, at))
}

type Fault<'t> = (&'static str, &'t str);

fn parse_v4(text: &str) -> std::result::Result<Ipv4Addr, Fault<'_>> {
    let mut octets = [0_u8; 4];
    let mut field = 0;
    let mut value = 0_u32;
    let mut digits = 0;
    let bytes = text.as_bytes();
    for (index, c) in text.char_indices() {
        match c {
            '0'..='9' => {
                if digits == 1 && value == 0 {
                    return Err(("IPv4 field has octet with leading zero", ""));
                }
                value = value * 10 + u32::from(c) - u32::from('0');
                digits += 1;
                if value > 255 {
                    return Err(("IPv4 field has value >255", ""));
                }
            }
            '.' => {
                if index == 0 || index == text.len() - 1 || bytes[index - 1] == b'.' {
                    return Err(("IPv4 field must have at least one digit", &text[index..]));
                }
                if field == 3 {
                    return Err(("IPv4 address too long", ""));
                }
                octets[field] = u8::try_from(value).unwrap_or(u8::MAX);
                field += 1;
                value = 0;
                digits = 0;
            }
            _ => return Err(("unexpected character", &text[index..])),
        }
    }
    if field < 3 {
        return Err(("IPv4 address too short", ""));
    }
    octets[3] = u8::try_from(value).unwrap_or(u8::MAX);
    Ok(octets.into())
}

fn parse_v6(text: &str) -> std::result::Result<Ipv6Addr, Fault<'_>> {
    let mut rest = text;
    let mut groups = [0_u16; 8];
    let mut ellipsis: Option<usize> = None;
    let mut count = 0;
    if let Some(after) = rest.strip_prefix("::") {
        ellipsis = Some(0);
        rest = after;
        if rest.is_empty() {
            return Ok(Ipv6Addr::UNSPECIFIED);
        }
    }
    while count < 8 {
        let end = rest.find(|c: char| !c.is_ascii_hexdigit()).unwrap_or(rest.len());
        if end > 4 {
            return Err(("each group must have 4 or less digits", rest));
        }
        if end == 0 {
            return Err(("each colon-separated field must have at least one digit", rest));
        }
        if rest[end..].starts_with('.') {
            if ellipsis.is_none() && count != 6 {
                return Err(("embedded IPv4 address must replace the final 2 fields of the address", rest));
            }
            if count > 6 {
                return Err(("too many hex fields to fit an embedded IPv4 at the end of the address", rest));
            }
            let [a, b, c, d] = parse_v4(rest)?.octets();
            groups[count] = u16::from_be_bytes([a, b]);
            groups[count + 1] = u16::from_be_bytes([c, d]);
            count += 2;
            rest = "";
            break;
        }
        groups[count] = u16::from_str_radix(&rest[..end], 16).unwrap_or(0);
        count += 1;
        rest = &rest[end..];
        if rest.is_empty() {
            break;
        }
        let Some(after) = rest.strip_prefix(':') else {
            return Err(("unexpected character, want colon", rest));
        };
        if after.is_empty() {
            return Err(("colon must be followed by more characters", rest));
        }
        rest = after;
        if let Some(after) = rest.strip_prefix(':') {
            if ellipsis.is_some() {
                return Err(("multiple :: in address", rest));
            }
            ellipsis = Some(count);
            rest = after;
            if rest.is_empty() {
                break;
            }
        }
    }
    if !rest.is_empty() {
        return Err(("trailing garbage after address", rest));
    }
    match ellipsis {
        None if count < 8 => Err(("address string too short", "")),
        Some(_) if count == 8 => Err(("the :: must expand to at least one field of zeros", "")),
        None => Ok(groups.into()),
        Some(start) => {
            let moved = count - start;
            groups.copy_within(start..count, 8 - moved);
            groups[start..8 - moved].fill(0);
            Ok(groups.into())
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn refusals_read_as_the_real_parsers_do() {
        for (raw, problem) in [
            ("10.0.0", "ParseAddr(\"10.0.0\"): IPv4 address too short"),
            ("10.0.0.256", "ParseAddr(\"10.0.0.256\"): IPv4 field has value >255"),
            ("10.0.0.01", "ParseAddr(\"10.0.0.01\"): IPv4 field has octet with leading zero"),
            ("10..0.1", "ParseAddr(\"10..0.1\"): IPv4 field must have at least one digit (at \".0.1\")"),
            ("10.a", "ParseAddr(\"10.a\"): unexpected character (at \"a\")"),
            ("x", "ParseAddr(\"x\"): unable to parse IP"),
            (
                "fd00:::1",
                "ParseAddr(\"fd00:::1\"): each colon-separated field must have at least one digit (at \":1\")",
            ),
            ("1:2", "ParseAddr(\"1:2\"): address string too short"),
        ] {
            assert_eq!(parse_address(raw).unwrap_err(), problem);
        }
        assert_eq!(
            parse_ip("fe80::1%eth0").unwrap_err(),
            "IP address \"fe80::1%eth0\" with zone value is not allowed"
        );
        assert_eq!(
            parse_ip("::ffff:1.2.3.4").unwrap_err(),
            "IPv4-mapped IPv6 address \"::ffff:1.2.3.4\" is not allowed"
        );
        for raw in ["10.0.0.0/33", "10.0.0.0/08", "10.0.0.0/", "10.0.0.0", "fd00::/129", "10.0.0.0/+8"] {
            assert!(parse_cidr(raw).is_err(), "{raw}");
        }
        assert_eq!(parse_cidr("10.1.2.3/8"), Ok((Ipv4Addr::new(10, 1, 2, 3).into(), 8)));
    }

    proptest! {
        #[test]
        fn what_prints_as_an_address_parses_to_it(address: IpAddr) {
            prop_assert_eq!(parse_address(&address.to_string()), Ok((address, false)));
        }

        #[test]
        fn we_agree_with_the_standard_library(text in "[0-9a-f:.]{0,20}") {
            prop_assert_eq!(parse_address(&text).ok().map(|(a, _)| a), text.parse::<IpAddr>().ok());
        }

        #[test]
        fn no_text_panics(text in "\\PC{0,24}") {
            let _ = parse_ip(&text);
            let _ = parse_cidr(&text);
        }
    }
}
