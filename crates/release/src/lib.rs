//! What a release has besides its programs, and what is checked of its dependencies.
//!
//! | module | owns |
//! |---|---|
//! | [`manual`] | manual pages and completions, from the programs' own flags |
//! | [`graph`] | the packages that the programs are made of, as cargo tells |
//! | [`bill`] | the software bill of materials, in the format CycloneDX |
//! | [`licence`] | licence expressions |
//! | [`policy`] | what `deny.toml` allows of dependencies |
//! | [`pack`] | the files of a release: archives, image, bill, checksums |
//!
//! It promises: the same programs, sources, time and revision make the same bytes.

pub mod bill;
pub mod graph;
pub mod licence;
pub mod manual;
pub mod pack;
pub mod policy;
