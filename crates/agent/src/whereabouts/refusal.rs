//! Error texts for pods that get no address from this node's slice of a range.

use tenure_cni::{Code, Failure};

use crate::node::Full;
use crate::whereabouts::slices::POOLS;

/// Unknown containers may use addresses of a slice.
pub(crate) fn slice_withheld(slice: &str) -> Failure {
    let message =
        format!("addresses of slice {slice:?} may be in use by containers that no journal knows of");
    Failure::new(Code::TryAgainLater, message)
        .detail("they are assigned after namespaces, pods and the runtime were asked twice who uses them, which takes about a minute")
}

/// A slice has no suitable address.
pub(crate) fn slice_full(Full { pool, blocks, wish, pod }: &Full) -> Failure {
    let pool = pool.strip_prefix(POOLS).unwrap_or(pool);
    let Some(slice) = blocks.first() else {
        let message = format!(
            "could not allocate IP in range: this node has no slice of NodeSlicePool {pool:?} any more for pod {pod}"
        );
        let detail = "the conditions and events of the NodeSlicePool say why: kubectl describe nodeslicepool";
        return Failure::new(Code::TryAgainLater, message).detail(detail);
    };
    let taken = match (&wish.within, wish.only.as_slice()) {
        (_, [_, ..]) => {
            let list: Vec<String> = wish.only.iter().map(ToString::to_string).collect();
            format!("none of {} is free", list.join(", "))
        }
        (Some(range), []) => {
            let (count, first, last) = (range.count(), range.first(), range.last());
            format!("none of the {count} addresses {first} to {last} is free")
        }
        (None, []) => "none of its addresses is free".to_owned(),
    };
    let message = format!(
        "could not allocate IP in range: this node's slice of NodeSlicePool {pool:?} ({slice}) for pod {pod}: {taken}"
    );
    Failure::new(Code::TryAgainLater, message)
        .detail("make node_slice_size or the range larger, exclude fewer addresses, or delete pods of this node that use the network")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_is_called_what_people_call_it() {
        let full = |blocks: Vec<String>| Full {
            pool: format!("{POOLS}net"),
            blocks,
            wish: crate::node::Wish::default(),
            pod: crate::key::Pod { namespace: "shop".into(), name: "web".into(), uid: String::new() },
        };
        let taken = slice_full(&full(vec!["net-10.9.0.0-29".into()])).message;
        assert_eq!(
            taken,
            "could not allocate IP in range: this node's slice of NodeSlicePool \"net\" (net-10.9.0.0-29) for pod shop/web: \
             none of its addresses is free"
        );
        let gone = slice_full(&full(Vec::new())).message;
        assert!(gone.contains("no slice of NodeSlicePool \"net\" any more for pod shop/web"), "{gone}");
    }
}
