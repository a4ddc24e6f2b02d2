//! Writes the generated pages of `docs/reference`. The test `reference` says which are stale.

fn main() -> std::io::Result<()> {
    tenure_tests::reference::write()
}
