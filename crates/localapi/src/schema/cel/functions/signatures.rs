//! Which types the functions take and give.

use super::super::check::{member_overload, no_overload};
use super::super::types::Ty;

/// A signature: types of the arguments (of a member function, the target first), and of the result.
type Signature = (&'static [T], T);

/// Types as signatures write them; `A` stands for any type, the same one throughout a signature.
#[derive(Clone, Copy)]
enum T {
    A,
    ListA,
    ListListA,
    MapAB,
    OptA,
    ListOptA,
    Dyn,
    Bool,
    Int,
    Uint,
    Double,
    Str,
    Bytes,
    Dur,
    Time,
    Type,
    ListStr,
    ListInt,
    MapStrListStr,
    Ip,
    Cidr,
    Url,
    Quantity,
    Semver,
    Format,
    OptFormat,
    OptListStr,
}

use T::{
    A, Bool, Bytes, Cidr, Double, Dur, Dyn, Format, Int, Ip, ListA, ListInt, ListListA, ListOptA, ListStr,
    MapAB, MapStrListStr, OptA, OptFormat, OptListStr, Quantity, Semver, Str, Time, Type, Uint, Url,
};

impl T {
    fn ty<'a>(self) -> Ty<'a> {
        let list = |item: Ty<'a>| Ty::List(Box::new(item));
        let optional = |inner: Ty<'a>| Ty::Optional(Box::new(inner));
        let (a, b) = (Ty::Variable('A'), Ty::Variable('B'));
        match self {
            Self::A => a,
            Self::ListA => list(a),
            Self::ListListA => list(list(a)),
            Self::MapAB => Ty::Map(Box::new(a), Box::new(b)),
            Self::OptA => optional(a),
            Self::ListOptA => list(optional(a)),
            Self::Dyn => Ty::Dyn,
            Self::Bool => Ty::Bool,
            Self::Int => Ty::Int,
            Self::Uint => Ty::Uint,
            Self::Double => Ty::Double,
            Self::Str => Ty::Text,
            Self::Bytes => Ty::Bytes,
            Self::Dur => Ty::Duration,
            Self::Time => Ty::Timestamp,
            Self::Type => Ty::Type,
            Self::ListStr => list(Ty::Text),
            Self::ListInt => list(Ty::Int),
            Self::MapStrListStr => Ty::Map(Box::new(Ty::Text), Box::new(list(Ty::Text))),
            Self::Ip => Ty::Named("net.IP"),
            Self::Cidr => Ty::Named("net.CIDR"),
            Self::Url => Ty::Named("kubernetes.URL"),
            Self::Quantity => Ty::Named("kubernetes.Quantity"),
            Self::Semver => Ty::Named("kubernetes.Semver"),
            Self::Format => Ty::Named("kubernetes.NamedFormat"),
            Self::OptFormat => optional(Ty::Named("kubernetes.NamedFormat")),
            Self::OptListStr => optional(list(Ty::Text)),
        }
    }
}

/// The type of a call, or that there is no such call.
pub(in super::super) fn apply<'a>(name: &str, member: bool, args: &[Ty<'a>]) -> Result<Ty<'a>, String> {
    for (wanted, result) in signatures(name, member) {
        let mut bound = Bound { a: None, b: None };
        if wanted.len() == args.len() && wanted.iter().zip(args).all(|(want, arg)| bound.fit(&want.ty(), arg))
        {
            return Ok(bound.resolve(&result.ty()));
        }
    }
    match (member, args) {
        (true, [target, rest @ ..]) => member_overload(name, target, &rest.iter().collect::<Vec<_>>()),
        _ => no_overload(name, &args.iter().collect::<Vec<_>>()),
    }
}

/// What the type variables of a signature stand for so far.
struct Bound<'a> {
    a: Option<Ty<'a>>,
    b: Option<Ty<'a>>,
}

impl<'a> Bound<'a> {
    fn slot(&mut self, name: char) -> &mut Option<Ty<'a>> {
        if name == 'A' { &mut self.a } else { &mut self.b }
    }

    fn fit(&mut self, wanted: &Ty<'a>, given: &Ty<'a>) -> bool {
        match (wanted, given) {
            (Ty::Variable(name), given) => match self.slot(*name) {
                Some(known) => given.fits(known),
                slot @ None => {
                    *slot = Some(given.clone());
                    true
                }
            },
            (_, Ty::Dyn) => true,
            (Ty::List(wanted), Ty::List(given)) | (Ty::Optional(wanted), Ty::Optional(given)) => {
                self.fit(wanted, given)
            }
            (Ty::Map(key, value), Ty::Map(given_key, given_value)) => {
                self.fit(key, given_key) && self.fit(value, given_value)
            }
            (wanted, given) => given.fits(wanted),
        }
    }

    fn resolve(&self, ty: &Ty<'a>) -> Ty<'a> {
        match ty {
            Ty::Variable(name) => {
                let known = if *name == 'A' { &self.a } else { &self.b };
                known.clone().unwrap_or(Ty::Dyn)
            }
            Ty::List(item) => Ty::List(Box::new(self.resolve(item))),
            Ty::Optional(inner) => Ty::Optional(Box::new(self.resolve(inner))),
            Ty::Map(key, value) => Ty::Map(Box::new(self.resolve(key)), Box::new(self.resolve(value))),
            other => other.clone(),
        }
    }
}

fn signatures(name: &str, member: bool) -> Vec<Signature> {
    if member { member_signatures(name) } else { global_signatures(name) }
}

fn global_signatures(name: &str) -> Vec<Signature> {
    match name {
        "size" => vec![(&[Str], Int), (&[Bytes], Int), (&[ListA], Int), (&[MapAB], Int)],
        "type" => vec![(&[A], Type)],
        "matches" => vec![(&[Str, Str], Bool)],
        "int" => vec![
            (&[Int], Int),
            (&[Uint], Int),
            (&[Double], Int),
            (&[Str], Int),
            (&[Time], Int),
            (&[Dur], Int),
        ],
        "uint" => vec![(&[Uint], Uint), (&[Int], Uint), (&[Double], Uint), (&[Str], Uint)],
        "double" => vec![(&[Double], Double), (&[Int], Double), (&[Uint], Double), (&[Str], Double)],
        "string" => {
            let mut all: Vec<Signature> = vec![(&[Ip], Str), (&[Cidr], Str)];
            all.extend(
                [&[Str] as &[T], &[Int], &[Uint], &[Double], &[Bool], &[Bytes], &[Time], &[Dur]]
                    .map(|from| (from, Str)),
            );
            all
        }
        "bytes" => vec![(&[Bytes], Bytes), (&[Str], Bytes)],
        "bool" => vec![(&[Bool], Bool), (&[Str], Bool)],
        "duration" => vec![(&[Dur], Dur), (&[Str], Dur), (&[Int], Dur)],
        "timestamp" => vec![(&[Time], Time), (&[Str], Time), (&[Int], Time)],
        "ip" => vec![(&[Str], Ip)],
        "cidr" => vec![(&[Str], Cidr)],
        "isIP" | "isCIDR" | "ip.isCanonical" | "isURL" | "isQuantity" => vec![(&[Str], Bool)],
        "isSemver" => vec![(&[Str], Bool), (&[Str, Bool], Bool)],
        "sets.contains" | "sets.equivalent" | "sets.intersects" => vec![(&[ListA, ListA], Bool)],
        "lists.range" => vec![(&[Int], ListInt)],
        "strings.quote" => vec![(&[Str], Str)],
        "optional.none" => vec![(&[], OptA)],
        "optional.of" | "optional.ofNonZeroValue" => vec![(&[A], OptA)],
        "optional.unwrap" => vec![(&[ListOptA], ListA)],
        "url" => vec![(&[Str], Url)],
        "quantity" => vec![(&[Str], Quantity)],
        "semver" => vec![(&[Str], Semver), (&[Str, Bool], Semver)],
        "format.named" => vec![(&[Str], OptFormat)],
        _ if name.starts_with("format.") => vec![(&[], Format)],
        _ => Vec::new(),
    }
}

fn member_signatures(name: &str) -> Vec<Signature> {
    match name {
        "size" => vec![(&[Str], Int), (&[Bytes], Int), (&[ListA], Int), (&[MapAB], Int)],
        "contains" | "startsWith" | "endsWith" | "matches" => vec![(&[Str, Str], Bool)],
        "charAt" => vec![(&[Str, Int], Str)],
        "indexOf" | "lastIndexOf" => {
            vec![(&[Str, Str], Int), (&[Str, Str, Int], Int), (&[ListA, A], Int)]
        }
        "lowerAscii" | "upperAscii" | "trim" => vec![(&[Str], Str)],
        "replace" => vec![(&[Str, Str, Str], Str), (&[Str, Str, Str, Int], Str)],
        "split" | "findAll" => vec![(&[Str, Str], ListStr), (&[Str, Str, Int], ListStr)],
        "substring" => vec![(&[Str, Int], Str), (&[Str, Int, Int], Str)],
        "join" => vec![(&[ListStr], Str), (&[ListStr, Str], Str)],
        "format" => vec![(&[Str, T::ListA], Str), (&[Str, Dyn], Str)],
        "find" => vec![(&[Str, Str], Str)],
        // Whether items have an order shows when the rule runs.
        "isSorted" => vec![(&[ListA], Bool)],
        "min" | "max" | "sum" => vec![(&[ListA], A)],
        "sort" | "reverse" | "distinct" => vec![(&[ListA], ListA)],
        "slice" => vec![(&[ListA, Int, Int], ListA)],
        "flatten" => vec![(&[ListListA], ListA), (&[ListA], ListA), (&[ListA, Int], T::Dyn)],
        "first" | "last" => vec![(&[ListA], OptA)],
        "unwrapOpt" => vec![(&[ListOptA], ListA)],
        "hasValue" => vec![(&[OptA], Bool)],
        "value" => vec![(&[OptA], A)],
        "family" => vec![(&[Ip], Int)],
        "isUnspecified"
        | "isLoopback"
        | "isLinkLocalMulticast"
        | "isLinkLocalUnicast"
        | "isGlobalUnicast" => {
            vec![(&[Ip], Bool)]
        }
        "containsIP" => vec![(&[Cidr, Str], Bool), (&[Cidr, Ip], Bool)],
        "containsCIDR" => vec![(&[Cidr, Str], Bool), (&[Cidr, Cidr], Bool)],
        "prefixLength" => vec![(&[Cidr], Int)],
        "masked" => vec![(&[Cidr], Cidr)],
        "ip" => vec![(&[Cidr], Ip)],
        "getFullYear" | "getMonth" | "getDayOfYear" | "getDayOfMonth" | "getDate" | "getDayOfWeek" => {
            vec![(&[Time], Int), (&[Time, Str], Int)]
        }
        "getHours" | "getMinutes" | "getSeconds" | "getMilliseconds" => {
            vec![(&[Time], Int), (&[Time, Str], Int), (&[Dur], Int)]
        }
        "getScheme" | "getHost" | "getHostname" | "getPort" | "getEscapedPath" => vec![(&[Url], Str)],
        "getQuery" => vec![(&[Url], MapStrListStr)],
        "isInteger" => vec![(&[Quantity], Bool)],
        "asInteger" | "sign" => vec![(&[Quantity], Int)],
        "asApproximateFloat" => vec![(&[Quantity], Double)],
        "add" | "sub" => vec![(&[Quantity, Quantity], Quantity), (&[Quantity, Int], Quantity)],
        "isGreaterThan" | "isLessThan" => vec![(&[Quantity, Quantity], Bool), (&[Semver, Semver], Bool)],
        "compareTo" => vec![(&[Quantity, Quantity], Int), (&[Semver, Semver], Int)],
        "major" | "minor" | "patch" => vec![(&[Semver], Int)],
        "validate" => vec![(&[Format, Str], OptListStr)],
        _ => Vec::new(),
    }
}

/// Checks a template of `format` against the types of what it prints.
pub(in super::super) fn check_format(template: &str, types: &[Ty<'_>]) -> Result<(), String> {
    let mut next = 0;
    let mut rest = template;
    while let Some(place) = rest.find('%') {
        rest = &rest[place + 1..];
        if let Some(after) = rest.strip_prefix('%') {
            rest = after;
            continue;
        }
        let Some(ty) = types.get(next) else { return Err(format!("index {next} out of range")) };
        next += 1;
        let clause = rest.trim_start_matches(|c: char| c == '.' || c.is_ascii_digit());
        let Some(verb) = clause.chars().next() else { return Err("unexpected end of string".to_owned()) };
        rest = &clause[verb.len_utf8()..];
        let problem = match (verb, ty) {
            (_, Ty::Dyn)
            | ('d' | 'o', Ty::Int | Ty::Uint)
            | ('f' | 'e', Ty::Double | Ty::Text)
            | ('b', Ty::Int | Ty::Uint | Ty::Bool)
            | ('x' | 'X', Ty::Int | Ty::Uint | Ty::Text | Ty::Bytes) => None,
            ('s', ty) if !matches!(ty, Ty::Object(..) | Ty::Optional(_) | Ty::Named(_)) => None,
            ('s', _) => Some(
                "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, and timestamps",
            ),
            ('d', _) => Some("decimal clause can only be used on integers"),
            ('f', _) => Some("fixed-point clause can only be used on doubles"),
            ('e', _) => Some("scientific clause can only be used on doubles"),
            ('b', _) => Some("only integers and bools can be formatted as binary"),
            ('o', _) => Some("octal clause can only be used on integers"),
            ('x' | 'X', _) => Some("only integers, byte buffers, and strings can be formatted as hex"),
            (other, _) => {
                return Err(format!(
                    "could not parse formatting clause: unrecognized formatting clause \"{other}\""
                ));
            }
        };
        if let Some(problem) = problem {
            return Err(format!("error during formatting: {problem}, was given {ty}"));
        }
    }
    if types.len() > next {
        return Err(format!(
            "too many arguments supplied to string.format (expected {next}, got {})",
            types.len()
        ));
    }
    Ok(())
}
