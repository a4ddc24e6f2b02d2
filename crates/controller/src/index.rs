//! Which objects belong to which others, by key, in both directions.

use std::collections::{BTreeMap, BTreeSet};

/// Objects and what each belongs to.
#[derive(Debug, Default)]
pub(crate) struct Index {
    owners: BTreeMap<String, BTreeSet<String>>,
    members: BTreeMap<String, BTreeSet<String>>,
}

impl Index {
    /// Sets what this object belongs to.
    pub(crate) fn set(&mut self, member: &str, owners: impl IntoIterator<Item = String>) {
        for owner in self.owners.remove(member).unwrap_or_default() {
            if let Some(members) = self.members.get_mut(&owner) {
                members.remove(member);
                if members.is_empty() {
                    self.members.remove(&owner);
                }
            }
        }
        let owners: BTreeSet<String> = owners.into_iter().collect();
        for owner in &owners {
            self.members.entry(owner.clone()).or_default().insert(member.to_owned());
        }
        if !owners.is_empty() {
            self.owners.insert(member.to_owned(), owners);
        }
    }

    /// What belongs to it.
    pub(crate) fn members(&self, owner: &str) -> impl Iterator<Item = &String> {
        self.members.get(owner).into_iter().flatten()
    }

    /// What it belongs to.
    pub(crate) fn owners(&self, member: &str) -> impl Iterator<Item = &String> {
        self.owners.get(member).into_iter().flatten()
    }

    /// Everything that has members, with its members.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&String, &BTreeSet<String>)> {
        self.members.iter()
    }

    /// All objects that share an owner with this one, itself included.
    pub(crate) fn neighbours(&self, member: &str) -> BTreeSet<String> {
        self.owners(member).flat_map(|owner| self.members(owner)).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_found_by_owner_and_neighbours_by_what_they_share() {
        let mut index = Index::default();
        let owners = |all: &[&str]| all.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        index.set("a", owners(&["1", "2"]));
        index.set("b", owners(&["2"]));
        index.set("c", owners(&["3"]));
        assert_eq!(index.neighbours("a"), ["a", "b"].map(str::to_owned).into());
        index.set("a", owners(&["3"]));
        assert_eq!(index.members("2").collect::<Vec<_>>(), ["b"]);
        assert_eq!(index.members("1").count(), 0);
        index.set("a", Vec::new());
        assert_eq!(index.owners("a").count(), 0);
        assert_eq!(index.members("3").collect::<Vec<_>>(), ["c"]);
    }
}
