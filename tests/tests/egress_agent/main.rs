//! Egress by a real agent on a real API server: what pods have when an ADD is answered, what reaches them later, and what is
//! left of it. Needs root.

mod bed;
mod chained;
mod listed;
mod pods;
