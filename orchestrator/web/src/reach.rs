//! What a request needs: the policy for hosts, and the gateway.

use crate::error::WebError;
use orchestrator_http::ClientGateway;
use policies::{PolicyError, WebPolicy};

/// Access to the web within a policy.
pub(crate) struct WebReach {
    /// The policy, or why there is none.
    policy: Result<WebPolicy, PolicyError>,
    /// Another gateway than this process's.
    gateway: Option<ClientGateway>,
}

impl WebReach {
    pub(crate) fn new(
        policy: Result<WebPolicy, PolicyError>,
        gateway: Option<ClientGateway>,
    ) -> Self {
        Self { policy, gateway }
    }

    /// The gateway. Clients are made before this process has one.
    pub(crate) fn gateway(&self) -> ClientGateway {
        self.gateway
            .clone()
            .unwrap_or_else(ClientGateway::of_process)
    }

    /// The policy; without it nothing can be reached.
    pub(crate) fn policy(&self) -> Result<&WebPolicy, WebError> {
        self.policy
            .as_ref()
            .map_err(|error| WebError::Policy(error.to_string()))
    }
}
