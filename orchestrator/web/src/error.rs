//! Errors of web requests, worded for the model.

use crate::request::REDIRECTS_MAX;
use crate::select::SelectError;
use broker_protocol::{ErrorKind, Failed};
use orchestrator_http::HttpFailure;
use orchestrator_http::ask::NetworkFault;
use orchestrator_reach::ReachError;
use orchestrator_reach::target::{Target, TargetError};
use orchestrator_results::image;
use thiserror::Error;

/// Why a search engine returned nothing.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum EngineError {
    #[error("not set up ({0} is not set)")]
    NotSetUp(&'static str),
    #[error("{0} is no base URL for it: {1}")]
    Base(&'static str, &'static str),
    #[error("no answer within {0} s")]
    TimedOut(u64),
    #[error("{0}")]
    Http(HttpError),
    #[error("its answer is not the JSON that was asked for")]
    NotJson,
}

/// Why a request over HTTP failed.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum HttpError {
    #[error("{0}")]
    Reach(#[from] ReachError),
    #[error("cannot connect: {0}")]
    Connect(String),
    /// The gateway cannot be asked, or does not do this.
    #[error("{0}")]
    Gateway(String),
    #[error("HTTP status {0}")]
    Status(u16),
    #[error("the answer broke off: {0}")]
    Broken(String),
    #[error("the answer is compressed in a way that was not asked for ({0})")]
    Compressed(String),
    #[error("the answer has more than {0} bytes")]
    TooLong(usize),
    #[error("TLS failed: {0}")]
    Tls(String),
}

/// Why a web tool failed.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum WebError {
    #[error("the policy switches web_search off")]
    SearchOff,
    #[error("no search engine answered. SearXNG: {searxng}. Brave: {brave}")]
    NoEngine {
        searxng: EngineError,
        brave: EngineError,
    },
    #[error("{0}")]
    Reach(#[from] ReachError),
    #[error("the page redirects to another host, {to}; fetch that if it is what you want")]
    OtherHost { to: Target },
    #[error("the page redirects to something else than {0}")]
    Redirect(TargetError),
    #[error("more than {REDIRECTS_MAX} redirections")]
    Redirects,
    #[error("{0}")]
    Http(#[from] HttpError),
    #[error("the page is not text but {0}")]
    NotText(String),
    #[error("an image is fetched with https:// only, except from this machine itself")]
    PlainImage,
    #[error("the image is elsewhere, at {to}; ask for that if it is what you want")]
    Moved { to: Target },
    #[error("this is not an image but {0}")]
    NotImage(String),
    #[error("the image has more than {} bytes; more are not shown", image::MAX)]
    LargeImage,
    #[error("{0}")]
    Image(Failed),
    #[error("the selector {selector:?}: {error}")]
    Select {
        selector: String,
        error: SelectError,
    },
    #[error("not done within {0} s")]
    TimedOut(u32),
    #[error("the policy cannot be read: {0}")]
    Policy(String),
}

impl WebError {
    /// The kind of this error in results.
    pub fn kind(&self) -> ErrorKind {
        match self {
            WebError::SearchOff
            | WebError::Reach(
                ReachError::Host { .. } | ReachError::Plain { .. } | ReachError::Address { .. },
            )
            | WebError::PlainImage
            | WebError::Moved { .. }
            | WebError::OtherHost { .. } => ErrorKind::DeniedPolicy,
            WebError::NotImage(_) | WebError::LargeImage => ErrorKind::InvalidInput,
            WebError::Image(failed) => failed.kind,
            WebError::Http(HttpError::Status(404 | 410)) => ErrorKind::NotFound,
            WebError::Select {
                error: SelectError::NoMatch,
                ..
            } => ErrorKind::NotFound,
            WebError::Select {
                error: SelectError::TooLarge,
                ..
            } => ErrorKind::ResourceLimit,
            WebError::TimedOut(_) => ErrorKind::Timeout,
            WebError::Policy(_) => ErrorKind::Internal,
            WebError::NoEngine { .. }
            | WebError::Reach(ReachError::Unresolved(_))
            | WebError::Redirect(_)
            | WebError::Redirects
            | WebError::Http(_)
            | WebError::Select {
                error: SelectError::NotHtml(_),
                ..
            }
            | WebError::NotText(_) => ErrorKind::Io,
        }
    }
}

impl From<HttpFailure> for HttpError {
    fn from(failure: HttpFailure) -> Self {
        match failure {
            HttpFailure::Fault(NetworkFault::Reach(error)) => Self::Reach(error),
            HttpFailure::Fault(NetworkFault::Connect(why)) | HttpFailure::Broken(why) => {
                Self::Connect(why)
            }
            HttpFailure::Fault(NetworkFault::Tls(why)) => Self::Tls(why),
            HttpFailure::Fault(
                NetworkFault::PlainImage
                | NetworkFault::NotNamed(_)
                | NetworkFault::NotRequest(_)
                | NetworkFault::NotOfLogin(_)
                | NetworkFault::Login(_)
                | NetworkFault::NotPolicy
                | NetworkFault::NoTicket,
            )
            | HttpFailure::Gateway(_)
            | HttpFailure::Malformed(_)
            | HttpFailure::Elsewhere => Self::Gateway(failure.to_string()),
        }
    }
}

impl From<HttpFailure> for WebError {
    fn from(failure: HttpFailure) -> Self {
        match failure {
            HttpFailure::Fault(NetworkFault::Reach(error)) => Self::Reach(error),
            HttpFailure::Fault(NetworkFault::PlainImage) => Self::PlainImage,
            failure => Self::Http(failure.into()),
        }
    }
}

impl From<WebError> for Failed {
    fn from(error: WebError) -> Self {
        Failed {
            kind: error.kind(),
            message: error.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use policies::address::Class;
    use std::net::IpAddr;

    #[test]
    fn errors_have_their_kinds() {
        let address = WebError::from(ReachError::Address {
            host: "h".into(),
            address: IpAddr::from([127, 0, 0, 1]),
            class: Class::Loopback,
        });
        assert_eq!(
            address.to_string(),
            "h is at 127.0.0.1, a loopback address, and no line of the policy opens it"
        );
        assert_eq!(
            address.kind(),
            ErrorKind::DeniedPolicy,
            "a closed address is a refusal"
        );
        let none = WebError::NoEngine {
            searxng: EngineError::NotSetUp("SEARXNG_URL"),
            brave: EngineError::TimedOut(10),
        };
        assert_eq!(none.kind(), ErrorKind::Io);
        assert_eq!(
            none.to_string(),
            "no search engine answered. SearXNG: not set up (SEARXNG_URL is not set). Brave: no answer within 10 s"
        );
        assert_eq!(
            WebError::from(HttpError::Status(404)).kind(),
            ErrorKind::NotFound
        );
        assert_eq!(
            WebError::from(ReachError::Host {
                host: "h".into(),
                port: 443
            })
            .kind(),
            ErrorKind::DeniedPolicy
        );
    }
}
