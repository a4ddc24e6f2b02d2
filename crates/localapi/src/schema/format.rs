//! The string formats that kube-apiserver checks in custom resources.
//!
//! Formats that it does not know (`int32`, `ip`, …) are ignored, exactly as it ignores them.

use std::net::Ipv6Addr;
use std::sync::LazyLock;

use regex::Regex;

use super::regexp;

mod duration;

pub(crate) use duration::{parse_duration, parse_go_duration};

/// A format that is checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    BsonObjectId,
    Uri,
    Email,
    Hostname,
    Ipv4,
    Ipv6,
    Cidr,
    Mac,
    Uuid,
    Uuid3,
    Uuid4,
    Uuid5,
    Isbn,
    Isbn10,
    Isbn13,
    CreditCard,
    Ssn,
    HexColor,
    RgbColor,
    Byte,
    Password,
    Date,
    Duration,
    DateTime,
    ShortName,
    LongName,
}

impl Format {
    /// The format with this name in a schema; dashes do not matter.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Some(match name.replace('-', "").as_str() {
            "bsonobjectid" => Self::BsonObjectId,
            "uri" => Self::Uri,
            "email" => Self::Email,
            "hostname" => Self::Hostname,
            "ipv4" => Self::Ipv4,
            "ipv6" => Self::Ipv6,
            "cidr" => Self::Cidr,
            "mac" => Self::Mac,
            "uuid" => Self::Uuid,
            "uuid3" => Self::Uuid3,
            "uuid4" => Self::Uuid4,
            "uuid5" => Self::Uuid5,
            "isbn" => Self::Isbn,
            "isbn10" => Self::Isbn10,
            "isbn13" => Self::Isbn13,
            "creditcard" => Self::CreditCard,
            "ssn" => Self::Ssn,
            "hexcolor" => Self::HexColor,
            "rgbcolor" => Self::RgbColor,
            "byte" => Self::Byte,
            "password" => Self::Password,
            "date" => Self::Date,
            "duration" => Self::Duration,
            "datetime" => Self::DateTime,
            "k8sshortname" => Self::ShortName,
            "k8slongname" => Self::LongName,
            _ => return None,
        })
    }

    /// Whether a text has this format.
    pub(crate) fn accepts(self, text: &str) -> bool {
        match self {
            Self::BsonObjectId => text.len() == 24 && text.bytes().all(|b| b.is_ascii_hexdigit()),
            Self::Uri => is_request_uri(text),
            Self::Email => is_email(text),
            Self::Hostname => is_hostname(text),
            Self::Ipv4 => parse_ip(text) && text.contains('.'),
            Self::Ipv6 => parse_ip(text) && text.contains(':'),
            Self::Cidr => is_cidr(text),
            Self::Mac => is_mac(text),
            Self::Uuid => is(&UUID, text),
            Self::Uuid3 => is(&UUID3, text),
            Self::Uuid4 => is(&UUID4, text),
            Self::Uuid5 => is(&UUID5, text),
            Self::Isbn => is_isbn(text, 10) || is_isbn(text, 13),
            Self::Isbn10 => is_isbn(text, 10),
            Self::Isbn13 => is_isbn(text, 13),
            Self::CreditCard => is_credit_card(text),
            Self::Ssn => is(&SSN, text),
            Self::HexColor => is(&HEX_COLOR, text),
            Self::RgbColor => is(&RGB_COLOR, text),
            Self::Byte => is(&BASE64, text),
            Self::Password => true,
            Self::Date => is_date(text),
            Self::Duration => parse_duration(text).is_some(),
            Self::DateTime => is_date_time(text),
            Self::ShortName => crate::names::label_problems(text).is_empty(),
            Self::LongName => crate::names::subdomain_problems(text).is_empty(),
        }
    }
}

type Pattern = LazyLock<Option<Regex>>;

macro_rules! pattern {
    ($name:ident, $pattern:expr) => {
        static $name: Pattern = LazyLock::new(|| regexp::compile($pattern).ok());
    };
}

fn is(pattern: &Pattern, text: &str) -> bool {
    pattern.as_ref().is_some_and(|regex| regex.is_match(text))
}

pattern!(UUID, "(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{4}-?[0-9a-f]{12}$");
pattern!(UUID3, "(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?3[0-9a-f]{3}-?[0-9a-f]{4}-?[0-9a-f]{12}$");
pattern!(UUID4, "(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?4[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$");
pattern!(UUID5, "(?i)^[0-9a-f]{8}-?[0-9a-f]{4}-?5[0-9a-f]{3}-?[89ab][0-9a-f]{3}-?[0-9a-f]{12}$");
pattern!(SSN, r"^\d{3}[- ]?\d{2}[- ]?\d{4}$");
pattern!(HEX_COLOR, "^#?([0-9a-fA-F]{3}|[0-9a-fA-F]{6})$");
pattern!(
    RGB_COLOR,
    r"^rgb\(\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*,\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*,\s*(0|[1-9]\d?|1\d\d?|2[0-4]\d|25[0-5])\s*\)$"
);
pattern!(BASE64, "^(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=|[A-Za-z0-9+/]{4})$");
pattern!(
    CREDIT_CARD,
    r"^(?:4[0-9]{12}(?:[0-9]{3})?|5[1-5][0-9]{14}|6(?:011|5[0-9][0-9])[0-9]{12}|3[47][0-9]{13}|3(?:0[0-5]|[68][0-9])[0-9]{11}|(?:2131|1800|35\d{3})\d{11})$"
);
pattern!(TIME, r"^([0-9]{2}):([0-9]{2}):([0-9]{2})(.[0-9]+)?(z|([+-][0-9]{2}:[0-9]{2}))$");
pattern!(DURATION_PART, r"(\d+)\s*([A-Za-zµ]+)");
pattern!(LETTER_OR_SYMBOL, r"^[\p{S}\p{L}]$");

/// One label in which only the second character may be a dash, or labels with a top-level domain of letters.
fn is_hostname(text: &str) -> bool {
    let special = |c: char| is(&LETTER_OR_SYMBOL, c.encode_utf8(&mut [0; 4]));
    let good = |c: char| c.is_ascii_alphanumeric() || special(c);
    let label = |part: &str| {
        part.starts_with(good)
            && part.ends_with(good)
            && part.chars().count() <= 63
            && part.chars().all(|c| c == '-' || good(c))
    };
    let shaped = match text.rsplit_once('.') {
        None => {
            let mut chars = text.chars();
            let first = chars.next().is_some_and(good);
            let rest = chars.as_str();
            let rest = rest.strip_prefix('-').unwrap_or(rest);
            first && rest.chars().count() <= 62 && rest.chars().all(good)
        }
        Some((labels, top)) => {
            let letters = top.chars().all(|c| c.is_ascii_alphabetic() || (c.is_alphabetic() && special(c)));
            labels.split('.').all(label) && (2..=63).contains(&top.chars().count()) && letters
        }
    };
    text.len() <= 255 && shaped && text.split('.').all(|part| part.len() <= 63)
}

/// An absolute path, or `scheme:rest` with a plausible scheme; no spaces and no control characters.
fn is_request_uri(text: &str) -> bool {
    if text.is_empty() || text.bytes().any(|b| b < b' ' || b == 0x7f) {
        return false;
    }
    if let Some(path) = text.strip_prefix('/') {
        return !bad_percent(path) && (!path.starts_with('/') || good_authority(&path[1..]));
    }
    if text == "*" {
        return true;
    }
    let Some((scheme, rest)) = text.split_once(':') else { return false };
    let mut letters = scheme.bytes();
    let good_scheme = letters.next().is_some_and(|b| b.is_ascii_alphabetic())
        && letters.all(|b| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.'));
    let authority = rest.strip_prefix("//");
    good_scheme && !rest.is_empty() && !bad_percent(rest) && authority.is_none_or(good_authority)
}

fn good_authority(rest: &str) -> bool {
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let authority = &rest[..end];
    let host = authority.rsplit('@').next().unwrap_or(authority);
    let port = match host.strip_prefix('[') {
        Some(bracketed) => match bracketed.split_once(']') {
            Some((inside, after)) if inside.contains(':') => {
                after.strip_prefix(':').or(if after.is_empty() { Some("") } else { None })
            }
            _ => None,
        },
        None => Some(host.split_once(':').map_or("", |(_, port)| port)),
    };
    !authority.contains([' ', '<', '>', '"', '\\', '^', '`', '{', '}'])
        && port.is_some_and(|p| p.bytes().all(|b| b.is_ascii_digit()))
}

fn bad_percent(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.iter().enumerate().any(|(index, b)| {
        *b == b'%'
            && !matches!(bytes.get(index + 1..index + 3), Some(hex) if hex.iter().all(u8::is_ascii_hexdigit))
    })
}

/// `local@domain`, or `Name <local@domain>`.
fn is_email(text: &str) -> bool {
    let text = text.trim_matches([' ', '\t']);
    let address = match text.strip_suffix('>') {
        Some(inside) => match inside.rsplit_once('<') {
            Some((_, address)) => address,
            None => return false,
        },
        None => text,
    };
    let Some((local, domain)) = address.rsplit_once('@') else { return false };
    let atom = |s: &str| {
        !s.is_empty()
            && s.split('.').all(|part| {
                !part.is_empty()
                    && part.chars().all(|c| {
                        c.is_ascii_alphanumeric() || "!#$%&'*+-/=?^_`{|}~".contains(c) || !c.is_ascii()
                    })
            })
    };
    let quoted = local.len() > 2 && local.starts_with('"') && local.ends_with('"');
    let literal = domain.len() > 2 && domain.starts_with('[') && domain.ends_with(']');
    (atom(local) || quoted) && (atom(domain) || literal)
}

/// An IP address in the reading of Go before 1.17: leading zeros are allowed and decimal, zones are not.
pub(crate) fn parse_ip(text: &str) -> bool {
    if text.contains(':') { parse_ip6(text).is_some() } else { parse_ip4(text).is_some() }
}

fn parse_ip4(text: &str) -> Option<[u8; 4]> {
    let mut out = [0; 4];
    let mut parts = text.split('.');
    for slot in &mut out {
        let part = parts.next()?;
        if part.is_empty() || !part.bytes().all(|b| b.is_ascii_digit()) {
            return None;
        }
        let digits = part.trim_start_matches('0');
        *slot = if digits.is_empty() { 0 } else { digits.parse().ok()? };
    }
    parts.next().is_none().then_some(out)
}

fn parse_ip6(text: &str) -> Option<Ipv6Addr> {
    let (head, tail) = text.rsplit_once(':')?;
    let mut normal: Vec<String> = head.split(':').map(short_group).collect();
    if tail.contains('.') {
        let [a, b, c, d] = parse_ip4(tail)?;
        normal.push(format!("{a}.{b}.{c}.{d}"));
    } else {
        normal.push(short_group(tail));
    }
    normal.join(":").parse().ok()
}

fn short_group(group: &str) -> String {
    let short = group.trim_start_matches('0');
    if group.len() > 4 && !short.is_empty() { short.to_owned() } else { group.chars().take(5).collect() }
}

fn is_cidr(text: &str) -> bool {
    let Some((address, length)) = text.split_once('/') else { return false };
    let max = if address.contains(':') { 128 } else { 32 };
    let good = !length.is_empty() && length.bytes().all(|b| b.is_ascii_digit());
    let digits = length.trim_start_matches('0');
    let bits: Option<u32> = if digits.is_empty() { Some(0) } else { digits.parse().ok() };
    good && parse_ip(address) && bits.is_some_and(|b| b <= max)
}

fn is_mac(text: &str) -> bool {
    let hex = |s: &str, len: usize| s.len() == len && s.bytes().all(|b| b.is_ascii_hexdigit());
    let groups = |separator: char, len: usize| {
        let parts: Vec<&str> = text.split(separator).collect();
        (parts.iter().all(|p| hex(p, len))).then_some(parts.len() * len / 2)
    };
    [groups(':', 2), groups('-', 2), groups('.', 4)]
        .into_iter()
        .flatten()
        .any(|bytes| [6, 8, 20].contains(&bytes))
}

fn is_isbn(text: &str, length: usize) -> bool {
    let digits: Vec<u8> =
        text.bytes().filter(|b| !matches!(b, b'-' | b' ' | b'\t' | b'\n' | b'\r' | b'\x0c')).collect();
    if digits.len() != length {
        return false;
    }
    let mut sum = 0u32;
    for (index, byte) in digits.iter().enumerate() {
        let value = match byte {
            b'0'..=b'9' => u32::from(byte - b'0'),
            b'X' if length == 10 && index == 9 => 10,
            _ => return false,
        };
        let position = u32::try_from(index).unwrap_or(0);
        let weight = if length == 10 { 10 - position } else { [1, 3][index % 2] };
        sum += weight * value;
    }
    sum.is_multiple_of(if length == 10 { 11 } else { 10 })
}

fn is_credit_card(text: &str) -> bool {
    let digits: String = text.chars().filter(char::is_ascii_digit).collect();
    if !is(&CREDIT_CARD, &digits) {
        return false;
    }
    let sum: u32 = digits
        .bytes()
        .rev()
        .enumerate()
        .map(|(index, byte)| {
            let digit = u32::from(byte - b'0');
            if index % 2 == 0 { digit } else { digit * 2 / 10 + digit * 2 % 10 }
        })
        .sum();
    sum.is_multiple_of(10)
}

fn is_date(text: &str) -> bool {
    let shape = text.len() == 10
        && text
            .bytes()
            .enumerate()
            .all(|(i, b)| if i == 4 || i == 7 { b == b'-' } else { b.is_ascii_digit() });
    shape && text.parse::<jiff::civil::Date>().is_ok()
}

fn is_date_time(text: &str) -> bool {
    let lower = text.to_lowercase();
    let Some((date, rest)) = lower.split_once('t') else { return false };
    let time = rest.split('t').next().unwrap_or(rest);
    is_date(date)
        && TIME
            .as_ref()
            .and_then(|regex| regex.captures(time))
            .is_some_and(|m| &m[1] <= "23" && &m[2] <= "59" && &m[3] <= "59")
}

#[cfg(test)]
mod tests;
