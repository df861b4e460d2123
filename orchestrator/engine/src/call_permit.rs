//! Bounds the calls of a front end whose results it has not passed on yet: a result waits in memory for a client that reads slowly, and a
//! client that reads nothing must not fill it.

use std::sync::{Arc, OnceLock};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The permits of a front end's calls.
#[derive(Clone, Debug)]
pub struct CallPermits {
    /// For calls that the executor carries out.
    inside: Arc<Semaphore>,
    /// For calls that leave it. They have permits of their own: a tool of the client may call others before it answers, and if it could
    /// take the last permit, these would wait for it while it waits for them.
    outside: Arc<Semaphore>,
}

impl CallPermits {
    /// `count` permits of each kind.
    pub fn new(count: usize) -> Self {
        Self {
            inside: Arc::new(Semaphore::new(count)),
            outside: Arc::new(Semaphore::new(count)),
        }
    }

    /// The permit of one call, which takes it before it is carried out.
    pub fn permit(&self) -> CallPermit {
        CallPermit {
            permits: self.clone(),
            taken: Arc::default(),
        }
    }
}

/// The permit of one call. It goes to another call once the call and its front end have both dropped it: when the result has been passed on.
#[derive(Clone, Debug)]
pub struct CallPermit {
    permits: CallPermits,
    taken: Arc<OnceLock<OwnedSemaphorePermit>>,
}

impl CallPermit {
    /// Waits for the permit. Cancel-safe.
    pub(crate) async fn take(&self, runs_outside: bool) {
        let permits = if runs_outside {
            &self.permits.outside
        } else {
            &self.permits.inside
        };
        // The semaphore is never closed, so this succeeds in the end.
        if let Ok(permit) = permits.clone().acquire_owned().await {
            let _ = self.taken.set(permit);
        }
    }
}
