//! What a request needs: the policy for hosts, the resolver, the HTTP client.

use crate::error::WebError;
use crate::http::Http;
use orchestrator_reach::guard::System;
use policies::{PolicyError, WebPolicy};

/// Access to the web within a policy.
pub struct Reach<R = System> {
    /// The policy, or why there is none.
    policy: Result<WebPolicy, PolicyError>,
    pub resolver: R,
    pub http: Http,
}

impl<R> Reach<R> {
    pub fn new(policy: Result<WebPolicy, PolicyError>, resolver: R) -> Self {
        Self {
            policy,
            resolver,
            http: Http::default(),
        }
    }

    /// The policy; without it nothing can be reached.
    pub fn policy(&self) -> Result<&WebPolicy, WebError> {
        self.policy
            .as_ref()
            .map_err(|error| WebError::Policy(error.to_string()))
    }
}
