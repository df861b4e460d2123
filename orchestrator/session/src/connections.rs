//! Connections of a session's cells, as the executor reports them: each is recorded, and refusals are told to the commands that run.

use crate::executor::{Connection, ExecutorError};
use crate::publish::{Hub, RawEvent};
use crate::refused_hosts::RefusedHosts;
use broker_protocol::{ConnectionReport, ConnectionVerdict};
use policies::network;
use std::rc::Rc;

/// Listens to the connections of a newly opened session, if its cells have a network: with the hosts that the executor named, and with
/// further hosts if calls may have `leases`.
///
/// # Errors
/// The executor's lists are malformed.
pub(crate) fn listen(
    hub: &Rc<Hub>,
    refused: &Rc<RefusedHosts>,
    connection: &Connection,
    leases: bool,
) -> Result<(), ExecutorError> {
    let Some(lists) = &connection.opened().network else {
        return Ok(());
    };
    let policy = network::from_lists(lists)
        .map_err(|_| ExecutorError::Protocol("a malformed list of hosts"))?;
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

/// What people can do about something that the gateway or a company's proxy has refused; `None` for what is none of that.
pub fn gateway_advice(verdict: ConnectionVerdict) -> Option<&'static str> {
    match verdict {
        ConnectionVerdict::RequestRefused => Some(
            "the policy decides: `lazaret policy show` prints what it says of requests and credentials",
        ),
        ConnectionVerdict::NoValue => Some("`lazaret credential test NAME` tries the source"),
        ConnectionVerdict::NotTrusted => Some(
            "the authority is in the files that SSL_CERT_FILE and NODE_EXTRA_CA_CERTS name: have the program read one of them, \
             as \"What a cell sees\" in the guide's page on credentials says",
        ),
        ConnectionVerdict::ProxyRefused => {
            Some("`[gateway]` of the policy sets the proxy; `lazaret doctor` asks it")
        }
        ConnectionVerdict::Allowed
        | ConnectionVerdict::NotListed
        | ConnectionVerdict::NotPublic
        | ConnectionVerdict::Unreachable
        | ConnectionVerdict::Malformed
        | ConnectionVerdict::Published
        | ConnectionVerdict::Stranger => None,
    }
}
