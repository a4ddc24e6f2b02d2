//! The path in an object at which a cause was found.
//!
//! A path is a chain of borrowed steps on the stack and becomes text only if something is refused, so that
//! validating a valid object allocates nothing for it.

use std::fmt;

/// A field path; prints as kube-apiserver prints it: `spec.pools[0].labels[a.b/c]`, and `<nil>` at the root.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Path<'a> {
    /// The object itself.
    Root,
    /// A path given as text, for example `metadata`.
    Text(&'a str),
    /// A declared field.
    Child(&'a Path<'a>, &'a str),
    /// A key of a map.
    Key(&'a Path<'a>, &'a str),
    /// An item of a list.
    Index(&'a Path<'a>, usize),
}

impl<'a> Path<'a> {
    /// The object itself.
    pub(crate) fn root() -> Self {
        Self::Root
    }

    /// A declared field below this path.
    pub(crate) fn child(&'a self, name: &'a str) -> Path<'a> {
        Path::Child(self, name)
    }

    /// A key of the map at this path.
    pub(crate) fn key(&'a self, key: &'a str) -> Path<'a> {
        Path::Key(self, key)
    }

    /// An item of the list at this path.
    pub(crate) fn index(&'a self, index: usize) -> Path<'a> {
        Path::Index(self, index)
    }

    fn is_root(&self) -> bool {
        match self {
            Path::Root => true,
            Path::Text(text) => text.is_empty(),
            _ => false,
        }
    }

    fn write(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Path::Root => Ok(()),
            Path::Text(text) => out.write_str(text),
            Path::Child(parent, name) => {
                parent.write(out)?;
                if parent.is_root() { out.write_str(name) } else { write!(out, ".{name}") }
            }
            Path::Key(parent, key) => {
                parent.write(out)?;
                write!(out, "[{key}]")
            }
            Path::Index(parent, index) => {
                parent.write(out)?;
                write!(out, "[{index}]")
            }
        }
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_root() { out.write_str("<nil>") } else { self.write(out) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_prints_fields_keys_and_items() {
        let root = Path::root();
        let spec = root.child("spec");
        let pools = spec.child("pools");
        let first = pools.index(0);
        let labels = first.child("labels");
        assert_eq!(labels.key("a.b/c").to_string(), "spec.pools[0].labels[a.b/c]");
        assert_eq!(root.to_string(), "<nil>");
        assert_eq!(Path::Text("metadata").child("name").to_string(), "metadata.name");
    }
}
