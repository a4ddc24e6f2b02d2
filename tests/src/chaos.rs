//! What runs of chaos share: the programs that fail, what goes wrong with them, and what is between them and the API server.

pub mod clock;
pub mod course;
pub mod egress;
pub mod looks;
pub mod objects;
pub mod pods;
pub mod programs;
pub mod proxy;
pub mod run;
pub mod trouble;
