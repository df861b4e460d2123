//! Signals received by this program.

use broker_protocol::Failed;
use orchestrator_confine::ConfinementProof;
use std::future::poll_fn;
use std::task::Poll;
use tokio::signal::unix::{Signal, SignalKind, signal};

pub struct Signals(Vec<(i32, Signal)>);

impl Signals {
    /// Listens to the signals with these numbers. Needs the runtime.
    pub fn listen(numbers: &[i32], _: ConfinementProof) -> Result<Self, Failed> {
        let listen = |number: &i32| Ok((*number, signal(SignalKind::from_raw(*number))?));
        let listening = numbers.iter().map(listen).collect::<std::io::Result<_>>();
        listening
            .map(Self)
            .map_err(|error| Failed::internal(format!("cannot watch signals: {error}")))
    }

    /// The number of the next signal. Cancel-safe.
    pub async fn next(&mut self) -> i32 {
        poll_fn(|context| {
            let mut came = self.0.iter_mut().filter_map(|(number, signal)| {
                signal.poll_recv(context).is_ready().then_some(*number)
            });
            came.next().map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }
}
