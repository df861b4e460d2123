#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![allow(unreachable_pub, clippy::unwrap_used)]

mod broker;
pub mod bus;
mod local_server;
mod peer;
mod serving;
mod session;

pub use broker::{Broker, Client};
pub use local_server::{EchoServer, PongServer};
pub use peer::{PATIENCE, Peer, Script, ran, shell};
pub use serving::{Listener, Serving};
pub use session::{open, opened};
