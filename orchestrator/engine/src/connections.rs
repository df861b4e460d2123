//! Connections of a session's cells, as the executor reports them: each is recorded, and refusals are told to the commands that run.

use crate::executor::{ExecutorConnection, ExecutorError};
use crate::publish::{Hub, RawEvent};
use crate::refused_hosts::RefusedHosts;
use broker_protocol::ConnectionReport;
use policies::network;
use policies::network::Leasing;
use std::rc::Rc;

/// Listens to the connections of a newly opened session, to the hosts that the executor named, to further ones if there are
/// `leases`, and to ports, with which a session may have no hosts.
///
/// # Errors
/// The executor's lists are malformed.
pub(crate) fn listen(
    hub: &Rc<Hub>,
    refused: &Rc<RefusedHosts>,
    connection: &ExecutorConnection,
    leases: Leasing,
) -> Result<(), ExecutorError> {
    let lists = connection.opened().network.as_ref();
    let policy = lists.map(network::from_lists).transpose();
    let policy = policy.map_err(|_| ExecutorError::Protocol("a malformed list of hosts"))?;
    let policy = policy.unwrap_or_default();
    let (hub, refused) = (hub.clone(), refused.clone());
    connection.hear_connections(move |report| {
        refused.hear(report, || {
            network::remedy(&policy, leases, &report.host, report.port)
        });
        hub.of_session().record(RawEvent::Connection(report));
    });
    Ok(())
}

/// Why a connection was refused or failed, and what would open it where its address is not public.
pub fn explain(report: &ConnectionReport) -> Option<String> {
    let why = report.why.as_deref()?;
    Some(network::explained(why, report.private.as_deref()))
}
