#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod answer;
mod fault;
mod request;
mod seal;
mod server;

pub use answer::{CapturedAnswer, capture, capture_by, passed_headers};
pub use fault::{LOGIN_BODY, LoginFault};
pub use request::read_request;
pub use seal::{KEY_MIN, RealToken, TokenKey, TokenRole};
pub use server::{ClientSecret, ServerLogins, TokenRequest, asks_for_tokens};
