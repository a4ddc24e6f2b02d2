//! Tests that cross crates and need the real thing live in `tests/`; run them with `cargo xtask test`.
