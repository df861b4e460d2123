//! A host that is named in settings, to which the web tools' host lists do not apply: the address of an MCP server, and addresses
//! that such a server refers to for a login.

use crate::error::{HttpError, WebError};
use crate::http::{self, DecompressedBody};
use orchestrator_http::{ClientGateway, HostClient, HostRequest, Response};
use orchestrator_reach::target::Target;

pub use orchestrator_http::ask::By as NamedBy;

/// A host that may be reached. The gateway checks the addresses of each connection to it.
#[derive(Clone, Debug)]
pub struct NamedHost {
    target: Target,
    client: HostClient,
}

impl NamedHost {
    /// Has `target`'s host resolved, and all its addresses checked.
    ///
    /// # Errors
    /// If it cannot be resolved, or this source may not name such addresses.
    pub async fn find(target: Target, by: NamedBy) -> Result<Self, WebError> {
        let client = HostClient::new(ClientGateway::of_process(), by, target.url());
        client.locate().await?;
        Ok(Self { target, client })
    }

    /// The named target, with its path.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Whether `other` has the same scheme, host and port.
    pub fn serves(&self, other: &Target) -> bool {
        other.url().origin() == self.target.url().origin()
    }

    /// Builds requests; each must be for this host, and be sent with [`NamedHost::send`].
    pub fn client(&self) -> &HostClient {
        &self.client
    }

    /// Sends a request; returns the head of the response. Follows no redirect.
    ///
    /// # Errors
    /// If there is no connection to a checked address.
    pub async fn send(&self, request: HostRequest) -> Result<Response, HttpError> {
        Ok(request.send().await?)
    }
}

/// The body of a response, of at most `max` bytes.
///
/// # Errors
/// If it is longer, incomplete, or compressed in a way that was not requested.
pub async fn body(response: Response, max: usize) -> Result<Vec<u8>, HttpError> {
    match http::read(response, max).await? {
        DecompressedBody {
            bytes,
            complete: true,
        } => Ok(bytes),
        DecompressedBody {
            complete: false, ..
        } => Err(HttpError::TooLong(max)),
    }
}
