#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod ask;
mod client;
mod gateway;
pub mod key;
pub mod percent;
mod named;
pub mod written;

pub use client::{HostClient, HostRequest, HttpFailure, Response, user_agent};
pub use gateway::{ClientGateway, ClientGatewayError, begin};
pub use named::{
    name_any_login, name_engine, name_host, name_key, name_login, name_login_key, name_request,
    name_stranger,
};
