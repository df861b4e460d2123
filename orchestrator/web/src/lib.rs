#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

pub mod base;
mod work;
mod outline;
mod elements;
pub mod select;
mod visibility;
pub mod html;
pub mod decode;
pub mod error;
pub mod request;
mod http;
pub mod named;
pub mod callback;
mod reach;
mod fetch;
mod search;
mod client;

#[cfg(test)]
mod tests;

pub use client::{SearchEngines, WebClient, foresee};
pub use error::WebError;
pub use fetch::Page;
pub use search::{EngineKind, Hit, SearchResults, name_brave_key};
