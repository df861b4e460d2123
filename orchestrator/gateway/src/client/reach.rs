//! The way to a host: by checked addresses, or by a company's proxy, which is asked as for cells.

use super::admit::ClientNetwork;
use crate::relay::{ConnectError, TargetJudge, first_of};
use orchestrator_http::ask::{By, NetworkFault};
use orchestrator_reach::ReachError;
use orchestrator_reach::guard::Resolve;
use orchestrator_reach::target::Target;
use std::net::SocketAddr;
use tokio::net::TcpStream;

/// Judges by who has named a host.
struct ByJudge<'a, R>(&'a ClientNetwork<R>, &'a By);

impl<R: Resolve> ClientNetwork<R> {
    /// Connects to `target`, which `by` has named. Each connection is checked anew: a name may have moved.
    pub(super) async fn connect(
        &self,
        by: &By,
        target: &Target,
    ) -> Result<TcpStream, NetworkFault> {
        let judge = ByJudge(self, by);
        let Some(proxy) = &self.proxy else {
            let addresses = judge.admit(target).await?;
            return Ok(first_of(&addresses).await?);
        };
        let login = self.login.as_deref();
        proxy.connect((&judge, &self.resolver), target, login).await
    }

    /// Whether `by` may reach `target`.
    pub(super) async fn check(&self, by: &By, target: &Target) -> Result<(), NetworkFault> {
        let judge = ByJudge(self, by);
        match &self.proxy {
            None => judge.admit(target).await.map(drop),
            Some(proxy) => proxy.check((&judge, &self.resolver), target).await,
        }
    }
}

impl<R: Resolve> TargetJudge for ByJudge<'_, R> {
    type Error = NetworkFault;

    fn foresee(&self, target: &Target) -> Result<(), NetworkFault> {
        self.0.foresee(self.1, target)
    }

    fn allows_unseen(&self, target: &Target) -> bool {
        self.0.allows_unseen(self.1, target)
    }

    async fn admit(&self, target: &Target) -> Result<Vec<SocketAddr>, NetworkFault> {
        self.0.admit(self.1, target).await
    }

    fn is_unresolved(error: &NetworkFault) -> bool {
        match error {
            NetworkFault::Reach(error) => matches!(error, ReachError::Unresolved(_)),
            NetworkFault::PlainImage
            | NetworkFault::NotNamed(_)
            | NetworkFault::NotRequest(_)
            | NetworkFault::NotOfLogin(_)
            | NetworkFault::Login(_)
            | NetworkFault::NotPolicy
            | NetworkFault::NoTicket
            | NetworkFault::Connect(_)
            | NetworkFault::Tls(_) => false,
        }
    }
}

impl From<ConnectError> for NetworkFault {
    fn from(error: ConnectError) -> Self {
        match error {
            ConnectError::Reach(error) => Self::Reach(error),
            ConnectError::NoAnswer(why) => Self::Connect(why),
            ConnectError::Proxy { .. } | ConnectError::TimedOut(_) => {
                Self::Connect(error.to_string())
            }
        }
    }
}
