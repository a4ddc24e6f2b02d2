//! The records of an `IPPool`, by address.

use tenure_ipam::ledger::{Decoded, LedgerError, Offsets};
use tenure_ipam::{Address, Cidr, Notation, ParseError};

use super::{Allocation, IPPoolSpec};

/// An address and its holder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reservation {
    /// The container.
    pub id: String,
    /// The pod, as `namespace/name`.
    pub podref: String,
    /// The pod's UID; empty if unknown.
    pub uid: String,
    /// The interface; empty in old records.
    pub ifname: String,
    /// The address.
    pub address: Address,
}

impl IPPoolSpec {
    /// A ledger of these reservations. Refuses an address outside the range, and a duplicate one.
    pub fn of<'a>(
        range: &Cidr,
        reservations: impl IntoIterator<Item = &'a Reservation>,
    ) -> Result<Self, LedgerError> {
        let held = reservations.into_iter().map(|held| (held.address, Allocation::from(held)));
        Ok(Self { range: range.to_string(), allocations: Offsets::of(range).encode_map(held)? })
    }

    /// The range, without its host bits.
    pub fn cidr(&self) -> Result<Cidr, ParseError> {
        Notation::Strict.cidr(&self.range)
    }

    /// The records of the ledger, and beside them the invalid ones: an invalid record is no address, and no
    /// reason to ignore the others.
    pub fn reservations(&self) -> Result<Decoded<Reservation>, ParseError> {
        let Decoded { entries, refused } = Offsets::of(&self.cidr()?).decode_map(&self.allocations);
        let entries = entries.into_iter().map(|(address, allocation)| {
            let Allocation { id, podref, ifname, poduid, .. } = allocation.clone();
            let (uid, ifname) = (poduid.unwrap_or_default(), ifname.unwrap_or_default());
            (address, Reservation { id, podref, uid, ifname, address })
        });
        Ok(Decoded { entries: entries.collect(), refused })
    }
}

impl From<&Reservation> for Allocation {
    fn from(held: &Reservation) -> Self {
        let said = |text: &String| (!text.is_empty()).then(|| text.clone());
        let (ifname, poduid) = (said(&held.ifname), said(&held.uid));
        Self { id: held.id.clone(), podref: held.podref.clone(), ifname, poduid, ..Self::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool(range: &str, allocations: &[(&str, &str)]) -> IPPoolSpec {
        let allocation = |podref: &str| Allocation {
            id: "c1".into(),
            podref: podref.into(),
            ifname: Some("net1".into()),
            poduid: Some(format!("uid of {podref}")),
            ..Allocation::default()
        };
        let allocations = allocations.iter().map(|(offset, pod)| ((*offset).to_owned(), allocation(pod)));
        IPPoolSpec { range: range.into(), allocations: allocations.collect() }
    }

    fn held(spec: &IPPoolSpec) -> Vec<(String, String)> {
        let entries = spec.reservations().unwrap().entries;
        entries.into_iter().map(|(address, held)| (address.to_string(), held.podref)).collect()
    }

    #[test]
    fn a_ledger_is_read_and_written_back_unchanged() {
        for (range, offsets) in [
            ("10.0.0.0/24", vec![("0", "ns/a"), ("255", "ns/b"), ("7", "ns/c")]),
            ("fd00::/64", vec![("1", "ns/a"), ("9223372036854775808", "ns/b")]),
            ("2001:db8::/32", vec![("18446744073709551617", "ns/a"), ("1", "ns/b")]),
        ] {
            let spec = pool(range, &offsets);
            let decoded = spec.reservations().unwrap();
            assert_eq!(decoded.refused, []);
            let reservations: Vec<_> = decoded.entries.into_iter().map(|(_, held)| held).collect();
            assert_eq!(IPPoolSpec::of(&spec.cidr().unwrap(), &reservations).unwrap(), spec);
        }
    }

    #[test]
    fn offsets_count_from_the_network_address() {
        let expected = [("10.0.0.1".to_owned(), "ns/a".to_owned())];
        assert_eq!(held(&pool("10.0.0.7/24", &[("1", "ns/a")])), expected);
    }

    #[test]
    fn a_record_that_makes_no_sense_is_reported_and_the_others_are_read() {
        let spec = pool("10.0.0.0/24", &[("-1", "ns/a"), ("2", "ns/b"), ("300", "ns/c")]);
        assert_eq!(held(&spec), [("10.0.0.2".to_owned(), "ns/b".to_owned())]);
        let refused: Vec<_> = spec.reservations().unwrap().refused.iter().map(ToString::to_string).collect();
        assert_eq!(
            refused,
            [
                "offset \"-1\" is not a number: accepted are decimal digits",
                "offset 300 is outside 10.0.0.0 to 10.0.0.255: accepted is 0 to 255"
            ]
        );
    }

    #[test]
    fn a_record_of_an_old_version_has_no_interface() {
        let mut spec = pool("10.0.0.0/24", &[("2", "ns/b")]);
        spec.allocations
            .values_mut()
            .for_each(|allocation| (allocation.ifname, allocation.poduid) = (None, None));
        let reservations: Vec<_> =
            spec.reservations().unwrap().entries.into_iter().map(|(_, held)| held).collect();
        assert_eq!(reservations[0].ifname, "");
        assert_eq!(IPPoolSpec::of(&spec.cidr().unwrap(), &reservations).unwrap(), spec);
    }

    #[test]
    fn an_address_outside_the_range_is_no_record() {
        let spec = pool("10.0.0.0/24", &[("2", "ns/b")]);
        let reservations: Vec<_> =
            spec.reservations().unwrap().entries.into_iter().map(|(_, held)| held).collect();
        let error = IPPoolSpec::of(&"10.0.1.0/24".parse().unwrap(), &reservations).unwrap_err();
        assert_eq!(error.to_string(), "10.0.0.2 has no offset in 10.0.1.0 to 10.0.1.255");
    }
}
