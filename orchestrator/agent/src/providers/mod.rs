//! The vendors: each has a file, and a line here.

pub mod claude;
pub(crate) mod openai_models;
pub mod openai_chat;
pub mod openai_responses;
pub mod ollama;
pub mod mock;

use crate::error::ProviderError;
use crate::http;
use crate::provider::Provider;
use crate::wire::{HttpProvider, Wire};
use claude::Claude;
use ollama::Ollama;
use openai_chat::OpenAiChat;
use openai_responses::OpenAiResponses;
use orchestrator_http::key::{Key, KeyNames};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::rc::Rc;
use url::Url;

/// A vendor, also used for compatible servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vendor {
    Claude,
    OpenAi,
    OpenAiChat,
    Ollama,
}

impl Vendor {
    pub(crate) const ALL: [Vendor; 4] = [
        Vendor::Claude,
        Vendor::OpenAi,
        Vendor::OpenAiChat,
        Vendor::Ollama,
    ];

    /// The vendor called `name`.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|vendor| vendor.name() == name)
    }

    pub fn name(self) -> &'static str {
        match self {
            Vendor::Claude => Claude.name(),
            Vendor::OpenAi => OpenAiResponses.name(),
            Vendor::OpenAiChat => OpenAiChat.name(),
            Vendor::Ollama => Ollama.name(),
        }
    }

    /// The names of its key in the places where keys are kept; `None` if it needs no key.
    pub fn key_names(self) -> Option<KeyNames> {
        match self {
            Vendor::Claude => Claude.key_names(),
            Vendor::OpenAi => OpenAiResponses.key_names(),
            Vendor::OpenAiChat => OpenAiChat.key_names(),
            Vendor::Ollama => Ollama.key_names(),
        }
    }
}

/// The address of `vendor`, at `base` or by default.
fn address(vendor: Vendor, base: Option<&str>) -> Option<Url> {
    let default = match vendor {
        Vendor::Claude => Claude.base(),
        Vendor::OpenAi => OpenAiResponses.base(),
        Vendor::OpenAiChat => OpenAiChat.base(),
        Vendor::Ollama => Ollama.base(),
    };
    Url::parse(base.unwrap_or(default)).ok()
}

/// Names the requests to `vendor` for the gateway, at `base` or by default.
pub fn name_requests(vendor: Vendor, base: Option<&str>) {
    let requests = match vendor {
        Vendor::Claude => Claude.requests(),
        Vendor::OpenAi => OpenAiResponses.requests(),
        Vendor::OpenAiChat => OpenAiChat.requests(),
        Vendor::Ollama => Ollama.requests(),
    };
    if let Some(url) = address(vendor, base) {
        http::name_requests(&url, requests);
    }
}

/// Where a server on this machine listens for requests to `vendor`, at `base` or by default; `None` if it is elsewhere.
pub fn local_address(vendor: Vendor, base: Option<&str>) -> Option<SocketAddr> {
    let url = address(vendor, base)?;
    let host = match url.host_str()?.trim_matches(['[', ']']) {
        "localhost" => IpAddr::from(Ipv4Addr::LOCALHOST),
        host => host.parse().ok()?,
    };
    host.is_loopback()
        .then_some(SocketAddr::new(host, url.port_or_known_default()?))
}

/// The provider of `vendor`, at `base` or at the vendor's default address.
///
/// # Errors
/// If the base is no URL, or a key would cross a network in clear text.
pub fn build(
    vendor: Vendor,
    base: Option<&str>,
    key: Option<&Key>,
) -> Result<Rc<dyn Provider>, ProviderError> {
    Ok(match vendor {
        Vendor::Claude => Rc::new(HttpProvider::new(Claude, base, key)?),
        Vendor::OpenAi => Rc::new(HttpProvider::new(OpenAiResponses, base, key)?),
        Vendor::OpenAiChat => Rc::new(HttpProvider::new(OpenAiChat, base, key)?),
        Vendor::Ollama => Rc::new(HttpProvider::new(Ollama, base, key)?),
    })
}
