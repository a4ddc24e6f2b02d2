//! The configurations that `docs/routing.md` shows, taken from there.

use std::path::Path;

/// How nodes tell each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Variant {
    /// The first of the two that the document shows.
    Ospf,
    /// The second.
    Bgp,
}

/// The whole configuration for a node.
pub fn configuration(variant: Variant) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/routing.md");
    let document = std::fs::read_to_string(&path).unwrap();
    let blocks: Vec<&str> = document
        .split("\n```bird\n")
        .skip(1)
        .map(|after| after.split_once("\n```").expect("a block that ends").0)
        .collect();
    let [common, ospf, bgp] = blocks[..] else {
        panic!("{} shows {} configurations", path.display(), blocks.len())
    };
    format!("{common}\n{}\n", if variant == Variant::Ospf { ospf } else { bgp })
}
