//! The way to the executor. What comes from there is held to the protocol: a message out of turn, or output beyond its
//! window, ends the connection. When this process ends, however it ends, the socket closes and the executor ends by itself.

mod approver;
mod connection;
mod error;
mod greeting;
mod socket;

pub use approver::{ApproverConnections, FromSession};
pub use connection::{Connection, Control, HadPaths, RequestEvent, RunningRequest};
pub use error::ExecutorError;
pub use greeting::{Dial, Greeting};
pub use socket::connect;
