//! The agent and an API server.
