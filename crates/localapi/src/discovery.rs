//! Empty until its owner fills it.
