//! Which claims virtual machines and StatefulSets need, and what becomes of those that are there.
