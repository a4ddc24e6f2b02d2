//! Container images, made of files without a container engine.
//!
//! An image is one layer, written as an OCI image layout in a tar: what `ctr images import` and `podman load` take. The
//! same files make the same bytes, so an image's digest says what is in it and not when or where it was made.

mod archive;
mod elf;
mod image;

pub use archive::Archive;
pub use elf::{architecture, is_static};
pub use image::{Image, ImageError, Saved, digest_of};
