#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]
#![cfg_attr(test, allow(clippy::unwrap_used))]

mod owner;
mod source;
mod program;
mod reader;
mod held;
mod sha1;
mod pem;
mod trust_store;
mod certificates;
mod company;
mod ssh;
mod session;

pub use certificates::Certificates;
pub use company::CompanyError;
pub use held::{Credentials, Delivery};
pub use owner::{Owner, SourceError};
pub use program::UserPrograms;
pub use session::{ClientCompany, FindError, NewCredentials, SessionCredentials, WrittenPaths};
pub use source::kept_at;
pub use ssh::{AgentError, UserSsh};
