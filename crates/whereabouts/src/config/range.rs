//! One range of a network: its addresses, their order, and its slices.

use serde_json::Value;
use tenure_ipam::parse::prefix_length;
use tenure_ipam::{Address, Cidr, Exclusion, Notation, Range, Slices, Usable};

use super::keys::{self, Keys};
use super::{Notice, Object, Refusal};

/// More slices do not fit into the status of one object.
pub const MOST_SLICES: u128 = 16_384;

/// One range of a network.
#[derive(Clone, Debug, PartialEq)]
pub struct RangeConfig {
    /// The addresses that may be assigned.
    pub range: Range,
    /// `range_start`, or the network address.
    pub start: Address,
    /// `range_end`.
    pub end: Option<Address>,
    /// `exclude`, as written.
    pub exclude: Vec<String>,
    /// `pick_addresses`: if there are any, only these are assigned, in this order.
    pub pick: Vec<Address>,
    /// Whether network and broadcast address are ordinary addresses.
    pub l3: bool,
    /// The slices of nodes.
    pub slices: Option<Slices>,
}

/// What all ranges of a network share.
pub(super) struct Shared {
    /// `enable_l3`.
    pub(super) l3: bool,
    /// The gateway, if it must not be assigned.
    pub(super) kept_back: Option<Address>,
    /// `node_slice_size`, if there are slices.
    pub(super) slice_size: String,
}

const RANGE: &str = "a network such as 10.0.0.0/24, or 10.0.0.10-10.0.0.20/24";

impl RangeConfig {
    /// The network.
    pub fn cidr(&self) -> Cidr {
        self.range.cidr()
    }

    /// First and last address, for people.
    pub fn range_text(&self) -> String {
        format!("{} to {}", self.range.first(), self.range.last())
    }

    /// The part of this range in a node's slice; `None` if there is none.
    ///
    /// A slice has its own network and broadcast address, as in Whereabouts, except for slices too small for
    /// that and those of L3 ranges.
    pub fn within(&self, slice: Cidr) -> Option<Range> {
        let l3 = self.l3 || slice.host_bits() < 2;
        let whole = Range::new(slice, if l3 { Usable::Every } else { Usable::WithoutEdges }).ok()?;
        let (first, last) = (whole.first().max(self.range.first()), whole.last().min(self.range.last()));
        let excluded: Vec<Exclusion> = self.range.exclusions().collect();
        let cut = whole.between(Some(first), Some(last)).ok()?.without(excluded);
        (cut.count() > 0).then_some(cut)
    }
}

/// Reads the range in `object` at `path`. Addresses of the top level may have leading zeros.
pub(super) fn read(
    path: &str,
    object: &Object,
    notation: Notation,
    shared: &Shared,
    notices: &mut Vec<Notice>,
) -> Result<RangeConfig, Refusal> {
    let keys = Keys::new(path, object);
    let text = keys.text("range")?;
    if text.is_empty() {
        return Err(keys.refuse("range", "", "it is missing", RANGE));
    }
    let parsed = Notation::LeadingZeros
        .range(&text)
        .map_err(|error| Refusal::new(&keys.path("range"), &text, &error.reason, RANGE))?;
    let cidr = parsed.cidr;
    let end = |key: &str| {
        let text = keys.text(key)?;
        let address = (!text.is_empty()).then(|| notation.address(&text)).transpose();
        address.map_err(|error| Refusal::parse(&keys.path(key), &text, &error))
    };
    let (mut start, mut last) = (end("range_start")?, end("range_end")?);
    let (mut start_key, mut end_key) = ("range_start", "range_end");
    if let Some((first, end)) = parsed.window {
        for (key, given, wins) in [("range_start", start, first), ("range_end", last, end)] {
            if given.is_some_and(|given| given != wins) {
                notices.push(Notice { key: keys.path(key), note: format!("ignored: range says {wins}") });
            }
        }
        (start, last) = (Some(first), Some(end));
        (start_key, end_key) = ("range", "range");
    }
    let l3 = keys.flag("enable_l3")?.unwrap_or(shared.l3);
    // A network of one or two addresses has no separate network and broadcast address.
    let every = l3 || cidr.host_bits() < 2;
    let range = Range::new(cidr, if every { Usable::Every } else { Usable::WithoutEdges })
        .map_err(|error| keys.refuse("range", &text, &error.to_string(), RANGE))?;
    let usable = format!("an address from {} to {}", range.first(), range.last());
    for (key, end) in [(start_key, start), (end_key, last)] {
        if let Some(address) = end.filter(|address| !cidr.contains(*address)) {
            return Err(keys.refuse(key, &address.to_string(), &format!("it is outside {cidr}"), &usable));
        }
    }
    // The network's own first and last address mean "all of it".
    let first = start.filter(|start| every || *start != cidr.first());
    let until = last.filter(|last| every || *last != cidr.last());
    let range = range.between(first, until).map_err(|error| {
        let value = [start, last].iter().flatten().map(ToString::to_string).collect::<Vec<_>>().join(" to ");
        keys.refuse(if start.is_some() { start_key } else { end_key }, &value, &error.to_string(), &usable)
    })?;
    let (range, exclude) = excluded(&keys, &range, shared)?;
    let pick = picked(&keys, &range)?;
    let slices = slices(&keys, cidr, &range, shared)?;
    Ok(RangeConfig { range, start: start.unwrap_or(cidr.first()), end: last, exclude, pick, l3, slices })
}

fn excluded(keys: &Keys<'_>, range: &Range, shared: &Shared) -> Result<(Range, Vec<String>), Refusal> {
    let (mut exclusions, mut texts) = (Vec::new(), Vec::new());
    for (path, text) in keys.texts("exclude")? {
        let cidr = Notation::Strict.cidr_or_address(&text).map_err(|error| {
            Refusal::new(
                &path,
                &text,
                &error.reason,
                "an address such as 10.0.0.5 or a network such as 10.0.0.0/28",
            )
        })?;
        exclusions.push(Exclusion::from(cidr));
        texts.push(text);
    }
    exclusions.extend(shared.kept_back.map(Exclusion::from));
    let left = range.clone().without(exclusions);
    if left.count() == 0 {
        let problem = format!("nothing is left of {} to {}", range.first(), range.last());
        return Err(keys.refuse("exclude", &texts.join(", "), &problem, "what leaves at least one address"));
    }
    Ok((left, texts))
}

fn picked(keys: &Keys<'_>, range: &Range) -> Result<Vec<Address>, Refusal> {
    let entry = |(path, text): (String, String)| {
        let address =
            Notation::Strict.address(&text).map_err(|error| Refusal::parse(&path, &text, &error))?;
        if range.contains(address) {
            return Ok(address);
        }
        let accepted = format!("an address from {} to {} that is not excluded", range.first(), range.last());
        Err(Refusal::new(&path, &text, "the range does not assign it", &accepted))
    };
    keys.texts("pick_addresses")?.into_iter().map(entry).collect()
}

fn slices(keys: &Keys<'_>, cidr: Cidr, range: &Range, shared: &Shared) -> Result<Option<Slices>, Refusal> {
    let own = keys.text("node_slice_size")?;
    let size = if own.is_empty() { &shared.slice_size } else { &own };
    if shared.slice_size.is_empty() || size.is_empty() {
        return Ok(None);
    }
    let most = cidr.prefix().saturating_add(14).min(cidr.family().bits());
    let accepted = format!("a prefix length from /{} to /{most}", cidr.prefix());
    let refuse = |problem: String| keys.refuse("node_slice_size", size, &problem, &accepted);
    let prefix = prefix_length(size).map_err(|error| refuse(error.reason))?;
    let slices = Slices::new(cidr, prefix).map_err(|_| refuse(format!("{cidr} cannot be cut so")))?;
    if slices.count() > MOST_SLICES {
        return Err(refuse(format!("{cidr} would have {} slices", slices.count())));
    }
    if range.count() == 0 {
        return Err(refuse("no slice would have an address".to_owned()));
    }
    Ok(Some(slices))
}

/// The slice size of a range without one: as many slices as the first range has.
pub(super) fn size_like(first: &Slices, cidr: Cidr) -> String {
    format!("/{}", u16::from(cidr.prefix()) + u16::from(first.prefix() - first.whole().prefix()))
}

/// An entry of `ipRanges` as an object with checked keys.
pub(super) fn entry<'v>(
    path: &str,
    value: &'v Value,
    notices: &mut Vec<Notice>,
) -> Result<&'v Object, Refusal> {
    let object = value.as_object().ok_or_else(|| {
        Refusal::new(path, &value.to_string(), "it is no object", "{\"range\": \"10.0.0.0/24\"}")
    })?;
    for key in object.keys() {
        if !keys::OF_A_RANGE.iter().any(|known| known.eq_ignore_ascii_case(key)) {
            keys::refuse_typo(path, key, keys::OF_A_RANGE.into_iter())?;
            notices.push(Notice {
                key: format!("{path}.{key}"),
                note: "ignored: no such key is known".to_owned(),
            });
        }
    }
    Ok(object)
}
