//! `tenure ui` in a real browser: on a host with `tenured --standalone`, and on a real API server with 100,000 addresses. Needs root,
//! iproute2 and Chromium. Pictures are kept under `target/ui`.

mod bed;
mod crowd;
mod host;
mod strangers;
