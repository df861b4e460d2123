//! How many requests with an answer of any size there are at once, until their clients have taken the answers: a client that sends much
//! and reads nothing fills no memory.

use crate::body::{Incomplete, ReplyBody};
use crate::fault::{FaultKind, SandboxFault};
use hyper::Response;
use hyper::body::{Body, Bytes, Frame, SizeHint};
use std::cell::Cell;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Requests that are carried out, or have an answer that is not taken yet.
const ADMITTED_MAX: usize = 64;
/// Requests that wait for that; further ones are refused.
const WAITING_MAX: usize = 256;

pub(crate) struct Admission {
    places: Arc<Semaphore>,
    waiting: Cell<usize>,
}

/// Counts a request that waits.
struct WaitingRequest<'c>(&'c Cell<usize>);

/// A body that holds a place until it is sent, or its client is gone.
struct Placed {
    body: ReplyBody,
    _place: OwnedSemaphorePermit,
}

impl Default for Admission {
    fn default() -> Self {
        Self {
            places: Arc::new(Semaphore::new(ADMITTED_MAX)),
            waiting: Cell::new(0),
        }
    }
}

impl Admission {
    /// Waits for a place, which the answer has to hold.
    ///
    /// # Errors
    /// Too many wait already.
    pub(crate) async fn admit(&self) -> Result<OwnedSemaphorePermit, SandboxFault> {
        let full = || {
            let message = format!("{WAITING_MAX} requests wait already; try again later");
            SandboxFault::new(FaultKind::Exhausted, message)
        };
        if self.waiting.get() == WAITING_MAX {
            return Err(full());
        }
        self.waiting.set(self.waiting.get() + 1);
        let _waiting = WaitingRequest(&self.waiting);
        // The semaphore is never closed, so this succeeds in the end.
        self.places
            .clone()
            .acquire_owned()
            .await
            .map_err(|_| full())
    }
}

impl Drop for WaitingRequest<'_> {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// The response, which holds `place` until it is sent.
pub(crate) fn placed(
    response: Response<ReplyBody>,
    place: OwnedSemaphorePermit,
) -> Response<ReplyBody> {
    response.map(|body| {
        Box::pin(Placed {
            body,
            _place: place,
        }) as ReplyBody
    })
}

impl Body for Placed {
    type Data = Bytes;
    type Error = Incomplete;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Incomplete>>> {
        self.body.as_mut().poll_frame(context)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::empty;
    use hyper::StatusCode;
    use std::rc::Rc;
    use tokio::task::{LocalSet, yield_now};

    #[tokio::test]
    async fn an_answer_that_nobody_takes_has_a_place_and_the_rest_waits_in_bounds() {
        let admission = Rc::new(Admission::default());
        let mut answers = Vec::new();
        for _ in 0..ADMITTED_MAX {
            let place = admission.admit().await.unwrap();
            answers.push(placed(empty(StatusCode::OK), place));
        }
        let local = LocalSet::new();
        let waiting: Vec<_> = (0..WAITING_MAX)
            .map(|_| {
                let admission = admission.clone();
                local.spawn_local(async move { admission.admit().await.map(drop) })
            })
            .collect();
        local
            .run_until(async {
                while admission.waiting.get() < WAITING_MAX {
                    yield_now().await;
                }
            })
            .await;
        let refused = admission.admit().await.map(drop).unwrap_err();
        assert_eq!(refused.kind, FaultKind::Exhausted);
        // One of them is taken, and all others go on.
        answers.pop();
        local
            .run_until(async {
                for one in waiting {
                    assert!(one.await.unwrap().is_ok());
                }
            })
            .await;
        assert_eq!(admission.waiting.get(), 0);
    }
}
