//! The connection to the executor. It holds the executor to the protocol: a message out of turn, or output beyond the window, ends
//! the connection. However this process ends, its socket closes, and then the executor ends by itself.

mod approver;
mod connection;
mod error;
mod greeting;
mod running_request;
mod shared_requests;
mod socket;
mod trial;

pub use approver::{ApproverConnections, FromSession};
pub(crate) use connection::ExecutorConnection;
pub use error::ExecutorError;
pub use greeting::{Dial, Dialed, Greeting};
pub(crate) use running_request::{HadPaths, RequestControl, RunningRequest};
pub(crate) use shared_requests::RequestEvent;
pub use socket::connect;
pub use trial::Tried;
