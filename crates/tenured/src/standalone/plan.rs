//! Which file each pool belongs to, and which pools are in no file any more. Without I/O.
//!
//! A pool that was created from a file has the file's name in an annotation. A pool without it belongs to
//! somebody else and is left alone. A file is applied completely or not at all.

use std::collections::{BTreeMap, BTreeSet};

use kube::ResourceExt;
use tenure_api::coil::AddressPool;

use super::directory::FileState;
use super::manifest::{Mistake, Wanted};

/// The annotation with the name of a pool's file.
pub const POOL_FILE: &str = "tenure/pool-file";

/// What to do.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Plan {
    /// The desired pools by file.
    pub(super) apply: BTreeMap<String, Vec<Wanted>>,
    /// Pools that are in no file any more, by name.
    pub(super) superfluous: BTreeSet<String>,
    /// Why files are not applied.
    pub(super) mistakes: Vec<Mistake>,
}

/// Decides from all files and all pools.
pub(super) fn plan(files: BTreeMap<String, FileState>, pools: &[AddressPool]) -> Plan {
    let mut plan = Plan::default();
    let mut readable = BTreeMap::new();
    // Files whose pools stay as they are.
    let mut keeping = BTreeSet::new();
    for (name, state) in files {
        match state {
            FileState::Read(wanted) => drop(readable.insert(name, wanted)),
            FileState::Bad(mistake) => {
                plan.mistakes.push(mistake);
                keeping.insert(name);
            }
            FileState::Unsettled => drop(keeping.insert(name)),
        }
    }
    let owners = owners(&readable, &keeping, pools);
    for (file, wanted) in readable {
        let mistakes: Vec<Mistake> =
            wanted.iter().filter_map(|pool| conflict(&file, pool, owners.get(&pool.name)?)).collect();
        if mistakes.is_empty() {
            plan.apply.insert(file, wanted);
        } else {
            plan.mistakes.extend(mistakes);
            keeping.insert(file);
        }
    }
    let claimed: BTreeSet<&str> = plan.apply.values().flatten().map(|pool| pool.name.as_str()).collect();
    for pool in pools {
        let (name, Some(file)) = (pool.name_any(), file_of(pool)) else { continue };
        let deleting = pool.metadata.deletion_timestamp.is_some();
        if !deleting && !keeping.contains(file) && !claimed.contains(name.as_str()) {
            plan.superfluous.insert(name);
        }
    }
    plan
}

/// The owner of a pool.
#[derive(Debug, PartialEq, Eq)]
enum Owner {
    File(String),
    /// It was not created from a file.
    Somebody,
}

/// The owner of each pool that is in a file or exists: the file that created it as long as it contains it,
/// else the first one that does.
fn owners(
    readable: &BTreeMap<String, Vec<Wanted>>,
    keeping: &BTreeSet<String>,
    pools: &[AddressPool],
) -> BTreeMap<String, Owner> {
    let mut owners = BTreeMap::new();
    for pool in pools {
        let name = pool.name_any();
        let Some(file) = file_of(pool) else {
            owners.insert(name, Owner::Somebody);
            continue;
        };
        let wants = |wanted: &Vec<Wanted>| wanted.iter().any(|pool| pool.name == name);
        if keeping.contains(file) || readable.get(file).is_some_and(wants) {
            owners.insert(name, Owner::File(file.to_owned()));
        }
    }
    for (file, wanted) in readable {
        for pool in wanted {
            owners.entry(pool.name.clone()).or_insert_with(|| Owner::File(file.clone()));
        }
    }
    owners
}

fn conflict(file: &str, pool: &Wanted, owner: &Owner) -> Option<Mistake> {
    let name = &pool.name;
    let problem = match owner {
        Owner::File(owner) if owner == file => return None,
        Owner::File(owner) => {
            format!("metadata.name is {name:?}, a pool of the file {owner}; accepted is each name once")
        }
        Owner::Somebody => format!(
            "metadata.name is {name:?}, a pool that was not made from a file; accepted is another name, or delete that pool"
        ),
    };
    Some(Mistake { file: file.to_owned(), document: Some(pool.document), problem })
}

/// The file that a pool was created from.
pub(super) fn file_of(pool: &AddressPool) -> Option<&str> {
    pool.annotations().get(POOL_FILE).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use tenure_api::coil::AddressPoolSpec;

    use super::*;

    fn pool(name: &str, file: Option<&str>) -> AddressPool {
        let mut pool = AddressPool::new(name, AddressPoolSpec::default());
        pool.metadata.annotations =
            file.map(|file| BTreeMap::from([(POOL_FILE.to_owned(), file.to_owned())]));
        pool
    }

    fn file(name: &str, pools: &[&str]) -> (String, FileState) {
        let wanted = pools.iter().enumerate().map(|(index, pool)| Wanted {
            document: index + 1,
            name: (*pool).to_owned(),
            labels: BTreeMap::new(),
            annotations: BTreeMap::new(),
            spec: serde_json::json!({}),
        });
        (name.to_owned(), FileState::Read(wanted.collect()))
    }

    fn bad(name: &str) -> (String, FileState) {
        (name.to_owned(), FileState::Bad(Mistake::of_file(name, "is bad")))
    }

    /// Files to apply, pools to delete, mistakes.
    fn said<const N: usize>(
        files: [(String, FileState); N],
        pools: &[AddressPool],
    ) -> (String, String, String) {
        let plan = plan(files.into(), pools);
        let join = |words: Vec<String>| words.join(" ");
        (
            join(plan.apply.into_keys().collect()),
            join(plan.superfluous.into_iter().collect()),
            join(plan.mistakes.iter().map(ToString::to_string).collect()),
        )
    }

    #[test]
    fn a_pool_goes_with_its_file_and_others_stay() {
        let pools = [pool("x", Some("x.yaml")), pool("y", Some("y.yaml")), pool("by-hand", None)];
        assert_eq!(said([file("y.yaml", &["y"])], &pools), ("y.yaml".into(), "x".into(), String::new()));
        let mut deleting = pools[0].clone();
        deleting.metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
        assert_eq!(said([], &[deleting]).1, "", "one that is being deleted is not deleted again");
    }

    #[test]
    fn a_pool_goes_with_its_document() {
        let pools = [pool("x", Some("a.yaml")), pool("y", Some("a.yaml"))];
        assert_eq!(said([file("a.yaml", &["x"])], &pools).1, "y");
    }

    #[test]
    fn a_bad_file_and_one_that_is_being_written_keep_their_pools() {
        let pools = [pool("x", Some("x.yaml"))];
        let kept = said([bad("x.yaml")], &pools);
        assert_eq!(kept, (String::new(), String::new(), "pool file x.yaml: is bad".into()));
        let unsettled = ("x.yaml".to_owned(), FileState::Unsettled);
        assert_eq!(said([unsettled], &pools), Default::default());
    }

    #[test]
    fn a_renamed_file_takes_its_pools_along() {
        let pools = [pool("x", Some("old.yaml"))];
        assert_eq!(
            said([file("new.yaml", &["x"])], &pools),
            ("new.yaml".into(), String::new(), String::new())
        );
    }

    #[test]
    fn of_two_files_with_one_name_the_owner_keeps_it_and_the_other_is_told() {
        let files = || [file("a.yaml", &["x"]), file("b.yaml", &["y", "x"])];
        let told = "pool file b.yaml, document 2: metadata.name is \"x\", a pool of the file a.yaml; accepted is each name once";
        assert_eq!(said(files(), &[]), ("a.yaml".into(), String::new(), told.into()));
        let (applied, _, told) = said(files(), &[pool("x", Some("b.yaml"))]);
        assert_eq!(applied, "b.yaml");
        assert!(told.starts_with("pool file a.yaml, document 1: "), "{told}");
    }

    #[test]
    fn a_file_does_not_take_a_pool_that_was_made_otherwise() {
        let (applied, superfluous, told) = said([file("a.yaml", &["x"])], &[pool("x", None)]);
        assert_eq!((applied.as_str(), superfluous.as_str()), ("", ""));
        assert!(told.contains("was not made from a file"), "{told}");
    }

    #[test]
    fn a_file_does_not_take_a_pool_of_a_bad_file() {
        let (applied, superfluous, told) =
            said([file("a.yaml", &["x"]), bad("b.yaml")], &[pool("x", Some("b.yaml"))]);
        assert_eq!((applied.as_str(), superfluous.as_str()), ("", ""));
        assert!(told.contains("a pool of the file b.yaml"), "{told}");
    }
}
