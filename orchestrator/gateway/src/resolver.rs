//! The machine's resolver: no other program of ours asks for addresses.

use orchestrator_reach::guard::Resolve;
use std::io;
use std::net::SocketAddr;

/// With `/etc/hosts` and whatever else is configured.
pub struct System;

impl Resolve for System {
    async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        Ok(tokio::net::lookup_host((host, port)).await?.collect())
    }
}
