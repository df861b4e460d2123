//! Why a target is not reached.

use policies::address::Class;
use serde::{Deserialize, Serialize};
use std::net::IpAddr;
use thiserror::Error;

/// A name without an address, and why.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Error)]
#[error("the name cannot be resolved: {0}")]
pub struct Unresolved(pub String);

/// Why no address of a target may be connected to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Error)]
pub enum ReachError {
    #[error("the policy does not allow the host {host} at port {port}")]
    Host { host: String, port: u16 },
    #[error("the policy allows {host} only with https://")]
    Plain { host: String },
    #[error("{host} is at {address}, a {} address, and no line of the policy opens it", .class.name())]
    Address {
        host: String,
        address: IpAddr,
        class: Class,
    },
    #[error("{0}")]
    Unresolved(#[from] Unresolved),
}
