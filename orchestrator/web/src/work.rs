//! Work on an untrusted page, on a thread beside the session's. It ends when nobody waits for it any more.
//!
//! Such work also has a bound on its steps, so that it ends by itself, and always at the same point.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Whether work has to end.
#[derive(Clone, Debug, Default)]
pub struct StopCheck(Arc<AtomicBool>);

/// The runtime did not run the work, because the program is ending.
#[derive(Debug)]
pub(crate) struct Unfinished;

impl StopCheck {
    /// Makes the work end at its next step.
    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    /// Whether nobody waits for the work any more.
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// Sets its [`StopCheck`] when it is dropped.
struct StopOnDrop(StopCheck);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.set();
    }
}

/// Runs `work` on another thread. Dropping the future ends the work.
pub(crate) async fn aside<T: Send + 'static>(
    work: impl FnOnce(&StopCheck) -> T + Send + 'static,
) -> Result<T, Unfinished> {
    let stop = StopCheck::default();
    let _waits = StopOnDrop(stop.clone());
    tokio::task::spawn_blocking(move || work(&stop))
        .await
        .map_err(|_| Unfinished)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::time::Duration;

    #[test]
    fn work_that_nobody_waits_for_ends_and_holds_nobody_up() {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .build()
            .unwrap();
        let (ended, has_ended) = mpsc::channel();
        runtime.block_on(async {
            let work = aside(move |stop: &StopCheck| {
                while !stop.is_set() {
                    std::thread::sleep(Duration::from_millis(1));
                }
                ended.send(()).unwrap();
            });
            // The session's own thread continues meanwhile.
            assert!(
                tokio::time::timeout(Duration::from_millis(50), work)
                    .await
                    .is_err()
            );
        });
        has_ended.recv_timeout(Duration::from_secs(60)).unwrap();
    }
}
