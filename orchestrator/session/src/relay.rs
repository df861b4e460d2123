//! The network of a session's cells: carried as long as its connection lives; each decision is recorded and reported.

use crate::executor::{Connection, ExecutorError};
use crate::publish::{Hub, RawEvent};
use crate::refused_hosts::RefusedHosts;
use crate::repeats::{self, Repeats};
use broker_protocol::ConnectionReport;
use orchestrator_gateway::relay::{Decision, Relay};
use policies::{WebPolicy, network};
use std::rc::Rc;
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::sleep;

/// A running relay. Dropping it ends it and all its connections, and records what was only counted.
pub(crate) struct CarriedNetwork {
    tasks: [JoinHandle<()>; 2],
    recorder: Rc<Recorder>,
}

impl Drop for CarriedNetwork {
    fn drop(&mut self) {
        self.tasks.iter().for_each(JoinHandle::abort);
        self.recorder.record_counted();
    }
}

/// Records decisions, with repeated refusals as a number.
struct Recorder {
    repeats: Repeats,
    write: Box<dyn Fn(Decision)>,
}

impl Recorder {
    fn hear(&self, decision: Decision) {
        if self.repeats.is_new(&decision) {
            (self.write)(decision);
        }
    }

    fn record_counted(&self) {
        self.repeats.take().into_iter().for_each(&self.write);
    }

    async fn record_at_intervals(&self) {
        loop {
            sleep(repeats::INTERVAL).await;
            self.record_counted();
            self.repeats.forget();
        }
    }
}

/// Starts the relay of a newly opened session, if its cells have a network: with the hosts that the executor named, and with
/// further hosts if calls may have `leases`.
///
/// # Errors
/// The executor's lists are malformed.
pub(crate) fn start(
    hub: &Rc<Hub>,
    refused: &Rc<RefusedHosts>,
    connection: &Connection,
    leases: bool,
) -> Result<Option<CarriedNetwork>, ExecutorError> {
    let (hub, heard) = (hub.clone(), refused.clone());
    let hear = move |decision: &Decision, policy: &WebPolicy| {
        heard.hear(decision, || {
            network::remedy(policy, leases, &decision.host, decision.port)
        });
    };
    let carried = carry(connection, hear, move |decision| {
        hub.of_session().record(RawEvent::Connection(&decision));
    })?;
    if let Some(carried) = &carried {
        let recorder = Rc::downgrade(&carried.recorder);
        refused.record_with(move || {
            if let Some(recorder) = recorder.upgrade() {
                recorder.record_counted();
            }
        });
    }
    Ok(carried)
}

/// Starts a relay: `hear` is called with each decision, `record` with those to be recorded, which the executor's audit receives too.
///
/// # Errors
/// The executor's lists are malformed.
pub(crate) fn carry(
    connection: &Connection,
    hear: impl Fn(&Decision, &WebPolicy) + 'static,
    record: impl Fn(Decision) + 'static,
) -> Result<Option<CarriedNetwork>, ExecutorError> {
    let (Some(network), Some(sockets)) = (&connection.opened().network, connection.take_relay())
    else {
        return Ok(None);
    };
    let policy = network::from_lists(network)
        .map_err(|_| ExecutorError::Protocol("a malformed list of hosts"))?;
    let report = connection.reporter();
    let write = move |decision: Decision| {
        report(ConnectionReport {
            host: decision.host.clone(),
            port: decision.port,
            verdict: decision.verdict,
            count: decision.count,
        });
        record(decision);
    };
    let recorder = Rc::new(Recorder {
        repeats: Repeats::default(),
        write: Box::new(write),
    });
    let (known, observer) = (policy.clone(), recorder.clone());
    let observe = move |decision: Decision| {
        hear(&decision, &known);
        observer.hear(decision);
    };
    let relay = Relay::new(policy, connection.leases(), observe);
    let serving = spawn_local(async move {
        // If a socket cannot be watched, it closes, and programs see their connections refused.
        let _ = relay.serve(sockets).await;
    });
    let counting = recorder.clone();
    let counting = spawn_local(async move { counting.record_at_intervals().await });
    Ok(Some(CarriedNetwork {
        tasks: [serving, counting],
        recorder,
    }))
}
