//! Connections that are decrypted, with real TLS on both sides: hosts made here, and clients that nobody here wrote. The README's claims are tested here, and what went wrong in other proxies of this kind.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::disallowed_methods,
    reason = "tests start clients and write files"
)]

mod world;
mod requests;
mod hostile;
mod answers;
mod values;
mod protocols;
mod certificates;
mod clients;
mod limits;
mod frames;
mod asks;
mod held;
mod aws;
mod rules;
mod logins;
