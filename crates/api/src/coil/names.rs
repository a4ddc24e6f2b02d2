//! The names of Coil's objects.

use crate::names::{NameError, is_object_name};

/// The name of a block: `<pool>-<index>`. Creating the object is the lock on the index.
pub fn block_name(pool: &str, index: u128) -> String {
    format!("{pool}-{index}")
}

/// The pool and the index that a block's name is made of. The index is what follows the last dash, so a pool may
/// have dashes of its own.
pub fn split_block_name(name: &str) -> Option<(&str, u128)> {
    let (pool, index) = name.rsplit_once('-')?;
    let number = index.parse().ok()?;
    // `007` and `+7` parse as well, but nobody writes them.
    (!pool.is_empty() && block_name(pool, number) == name).then_some((pool, number))
}

/// The name of a node's request for a block: `req-<pool>-<node>`, as Coil writes it, so that a node asks once at a time.
///
/// Where that would be ambiguous, the pool is preceded by its length and a dot. Pool `a-b` on node `c` asks as
/// `req-3.a-b-c`, while `req-a-b-c` is pool `a` on node `b-c`. Coil gives both the same name, and one of the two
/// nodes waits for ever.
pub fn request_name(pool: &str, node: &str) -> Result<String, NameError> {
    let name = if pool.contains('-') || looks_counted(pool) {
        format!("req-{}.{pool}-{node}", pool.len())
    } else {
        format!("req-{pool}-{node}")
    };
    if is_object_name(&name) {
        return Ok(name);
    }
    let (field, value) = if is_object_name(pool) { ("node", node) } else { ("pool", pool) };
    Err(NameError { object: "a BlockRequest", field, value: value.to_owned(), name })
}

/// Whether a pool's name starts like the counted form does: digits and a dot.
fn looks_counted(pool: &str) -> bool {
    pool.split_once('.')
        .is_some_and(|(digits, _)| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_block_is_named_for_its_pool_and_index() {
        assert_eq!(block_name("default", 100), "default-100");
        assert_eq!(split_block_name("default-100"), Some(("default", 100)));
        assert_eq!(split_block_name("blue-green-7"), Some(("blue-green", 7)));
        assert_eq!(split_block_name(&block_name("p", u128::MAX)), Some(("p", u128::MAX)));
        for other in ["default", "-1", "default-", "default-007", "default-+1", "default-x"] {
            assert_eq!(split_block_name(other), None, "{other}");
        }
    }

    #[test]
    fn a_request_is_named_as_coil_names_it_unless_that_is_ambiguous() {
        assert_eq!(request_name("default", "node-1").unwrap(), "req-default-node-1");
        assert_eq!(request_name("a", "b-c").unwrap(), "req-a-b-c");
        assert_eq!(request_name("a-b", "c").unwrap(), "req-3.a-b-c");
        assert_eq!(request_name("7.my", "pool-x").unwrap(), "req-4.7.my-pool-x");
        assert_eq!(request_name("my-pool", "x").unwrap(), "req-7.my-pool-x");
    }

    #[test]
    fn a_request_that_cannot_be_named_says_why() {
        let error = request_name("default", "Node_1").unwrap_err();
        assert_eq!(
            error.to_string(),
            "naming a BlockRequest: node \"Node_1\" would make the object name \"req-default-Node_1\"; accepted are names \
             of lower-case letters, digits, '-' and '.', at most 253 characters, whose parts between dots start and end \
             with a letter or digit"
        );
    }

    proptest! {
        #[test]
        fn no_two_pairs_of_pool_and_node_share_a_request_name(
            pairs in proptest::collection::vec(("([1-9]\\.)?[ab1](-?[ab1.]?[ab1]){0,3}", "[ab1](-?[ab1.]?[ab1]){0,3}"), 2..30)
        ) {
            let mut seen: HashMap<String, (String, String)> = HashMap::new();
            for (pool, node) in pairs {
                let Ok(name) = request_name(&pool, &node) else { continue };
                if let Some(other) = seen.insert(name.clone(), (pool.clone(), node.clone())) {
                    prop_assert_eq!(other, (pool, node), "both are named {}", name);
                }
            }
        }

        #[test]
        fn a_block_name_gives_back_what_it_was_made_of(pool in "[a-z0-9]([-a-z0-9.]{0,20}[a-z0-9])?", index: u128) {
            let name = block_name(&pool, index);
            prop_assert_eq!(split_block_name(&name), Some((pool.as_str(), index)));
        }
    }
}
