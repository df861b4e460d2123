//! A host that is named in settings, to which the web tools' host lists do not apply: the address of an MCP server, and addresses
//! that such a server refers to for a login.

use crate::error::{HttpError, WebError};
use crate::http::{self, Body};
use crate::tls::Tls;
use orchestrator_reach::ReachError;
use orchestrator_reach::guard::{System, locate};
use orchestrator_reach::target::Target;
use policies::address::{Class, class};
use policies::web::not_public;
use reqwest::{Client, RequestBuilder, Response};
use std::net::{IpAddr, SocketAddr};

/// Connections that are kept for later requests.
const IDLE: usize = 4;

/// Who named a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamedBy {
    /// The user: any literal address; for a name, the addresses that a name may open. Without TLS only if none is public.
    User,
    /// An untrusted source: only public addresses, only with TLS.
    Stranger,
    /// A server at an address of this class: the same, and also addresses of that class.
    ServerAt(Class),
}

/// A host with the addresses that it resolved to; no request goes to any other.
#[derive(Clone, Debug)]
pub struct NamedHost {
    target: Target,
    addresses: Vec<SocketAddr>,
    client: Client,
}

impl NamedHost {
    /// Resolves `target`'s host and checks all its addresses.
    ///
    /// # Errors
    /// If it cannot be resolved, or this source may not name such addresses.
    pub async fn find(target: Target, by: NamedBy) -> Result<Self, WebError> {
        let addresses = locate(&System, &target).await.map_err(HttpError::from)?;
        judge(&target, addresses.iter().map(SocketAddr::ip), by)?;
        let client = http::client(&Tls::default(), &target, &addresses, IDLE)?;
        Ok(Self {
            target,
            addresses,
            client,
        })
    }

    /// The named target, with its path.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// The class of its addresses.
    pub fn class(&self) -> Class {
        self.addresses
            .first()
            .map_or(Class::Public, |address| class(address.ip()))
    }

    /// Whether `other` has the same scheme, host and port.
    pub fn serves(&self, other: &Target) -> bool {
        other.url().origin() == self.target.url().origin()
    }

    /// Builds requests; each must be for this host, and be sent with [`NamedHost::send`].
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Sends a request; returns the head of the response. Follows no redirect.
    ///
    /// # Errors
    /// If there is no connection to a checked address.
    pub async fn send(&self, request: RequestBuilder) -> Result<Response, HttpError> {
        http::send(request, &self.addresses).await
    }
}

fn judge(
    target: &Target,
    addresses: impl Iterator<Item = IpAddr>,
    by: NamedBy,
) -> Result<(), ReachError> {
    let host = || target.host().to_owned();
    let mut plain = true;
    for address in addresses {
        match (not_public(address), by) {
            (None, _) => plain = false,
            (Some(class), NamedBy::User) if target.address().is_some() || class.opens_by_name() => {
            }
            (Some(class), NamedBy::ServerAt(own)) if class == own && class.opens_by_name() => {}
            (Some(class), NamedBy::User | NamedBy::Stranger | NamedBy::ServerAt(_)) => {
                return Err(ReachError::Address {
                    host: host(),
                    address,
                    class,
                });
            }
        }
    }
    if target.is_plain() && !plain {
        return Err(ReachError::Plain { host: host() });
    }
    Ok(())
}

/// The body of a response, of at most `max` bytes.
///
/// # Errors
/// If it is longer, incomplete, or compressed in a way that was not requested.
pub async fn body(response: Response, max: usize) -> Result<Vec<u8>, HttpError> {
    match http::read(response, max).await? {
        Body {
            bytes,
            complete: true,
        } => Ok(bytes),
        Body {
            complete: false, ..
        } => Err(HttpError::TooLong(max)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(url: &str, addresses: &[&str], by: NamedBy) -> Result<(), ReachError> {
        let addresses = addresses.iter().map(|text| text.parse().unwrap());
        judge(&Target::parse(url).unwrap(), addresses, by)
    }

    #[test]
    fn a_user_may_name_every_place_and_without_tls_those_that_are_not_public() {
        for (url, address) in [
            ("https://a.example/", "8.8.8.8"),
            ("https://a.example/", "10.0.0.1"),
            ("http://localhost:8000/", "127.0.0.1"),
            ("http://box/", "192.168.1.2"),
        ] {
            assert_eq!(
                judged(url, &[address], NamedBy::User),
                Ok(()),
                "{url} {address}"
            );
        }
        let metadata = judged("http://a.example/", &["169.254.169.254"], NamedBy::User);
        assert!(matches!(metadata, Err(ReachError::Address { .. })));
        assert_eq!(
            judged(
                "http://169.254.169.254/",
                &["169.254.169.254"],
                NamedBy::User
            ),
            Ok(())
        );
        let plain = judged("http://a.example/", &["8.8.8.8"], NamedBy::User);
        assert!(matches!(plain, Err(ReachError::Plain { .. })));
        let both = judged(
            "http://a.example/",
            &["127.0.0.1", "8.8.8.8"],
            NamedBy::User,
        );
        assert!(matches!(both, Err(ReachError::Plain { .. })));
    }

    #[test]
    fn a_stranger_names_public_places_and_a_server_such_as_its_own() {
        let refused = |url: &str, address: &str, by| {
            assert!(
                matches!(judged(url, &[address], by), Err(ReachError::Address { .. })),
                "{url} {address}"
            );
        };
        let local = NamedBy::ServerAt(Class::Loopback);
        for by in [
            NamedBy::Stranger,
            local,
            NamedBy::ServerAt(Class::LinkLocal),
        ] {
            assert_eq!(judged("https://a.example/", &["8.8.8.8"], by), Ok(()));
            refused("https://a.example/", "169.254.169.254", by);
            refused("https://a.example/", "10.0.0.1", by);
            let plain = judged("http://a.example/", &["8.8.8.8"], by);
            assert!(matches!(plain, Err(ReachError::Plain { .. })));
        }
        refused("http://localhost/", "127.0.0.1", NamedBy::Stranger);
        assert_eq!(judged("http://localhost/", &["127.0.0.1"], local), Ok(()));
    }
}
