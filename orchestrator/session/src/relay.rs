//! The network of a session's cells: carried as long as its connection lives; each decision is recorded and reported.

use crate::executor::{Connection, ExecutorError};
use crate::publish::{Hub, RawEvent};
use crate::refused_hosts::RefusedHosts;
use broker_protocol::ConnectionReport;
use orchestrator_web::relay::{Decision, Relay};
use policies::{WebPolicy, network};
use std::rc::Rc;
use tokio::task::{JoinHandle, spawn_local};

/// A running relay. Dropping it ends it and all its connections.
pub(crate) struct CarriedNetwork(JoinHandle<()>);

impl Drop for CarriedNetwork {
    fn drop(&mut self) {
        self.0.abort();
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
    let (hub, refused) = (hub.clone(), refused.clone());
    carry(connection, move |decision, policy| {
        refused.hear(&decision, || {
            network::remedy(policy, leases, &decision.host, decision.port)
        });
        let publisher = hub.of_session();
        // The records receive it at once; there is no front end to wait for.
        drop(spawn_local(async move {
            publisher.publish(RawEvent::Connection(&decision)).await
        }));
    })
}

/// The same with `observe` in place of the records. The executor's audit still receives each decision.
///
/// # Errors
/// The executor's lists are malformed.
pub(crate) fn carry(
    connection: &Connection,
    observe: impl Fn(Decision, &WebPolicy) + 'static,
) -> Result<Option<CarriedNetwork>, ExecutorError> {
    let (Some(network), Some(sockets)) = (&connection.opened().network, connection.take_relay())
    else {
        return Ok(None);
    };
    let policy = network::from_lists(network)
        .map_err(|_| ExecutorError::Protocol("a malformed list of hosts"))?;
    let report = connection.reporter();
    let known = policy.clone();
    let observe = move |decision: Decision| {
        let Decision {
            host,
            port,
            verdict,
            ..
        } = &decision;
        report(ConnectionReport {
            host: host.clone(),
            port: *port,
            verdict: *verdict,
        });
        observe(decision, &known);
    };
    let relay = Relay::new(policy, connection.leases(), observe);
    Ok(Some(CarriedNetwork(spawn_local(async move {
        // If a socket cannot be watched, it closes, and programs see their connections refused.
        let _ = relay.serve(sockets).await;
    }))))
}
