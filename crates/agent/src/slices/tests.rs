//! Slices against the embedded API server.
