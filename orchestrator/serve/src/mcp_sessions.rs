//! The sessions of MCP clients: each client has its own, for the project that it works on.

use crate::opener::{SessionOrder, StartableSession};
use crate::service::ServeState;
use broker_protocol::{ErrorKind, Failed};
use orchestrator_engine::Session;
use orchestrator_mcp_client::SessionServers;
use orchestrator_mcp_server::{Clients, SessionOpener, open_sessions};
use std::path::PathBuf;
use std::rc::Rc;

/// Opens sessions for clients as they connect, until the server ends.
pub(crate) async fn open_for(service: Rc<ServeState>, mut clients: Clients) {
    while let Some(requests) = clients.recv().await {
        tokio::task::spawn_local(open_sessions(OpenerForClient(service.clone()), requests));
    }
}

struct OpenerForClient(Rc<ServeState>);

impl SessionOpener for OpenerForClient {
    type Order = SessionOrder;
    type Companion = SessionServers;

    fn order(&self, roots: Vec<PathBuf>) -> Result<SessionOrder, Failed> {
        let opener = &self.0.opener;
        let order = SessionOrder {
            // If the server was started for one project, clients cannot choose another.
            project: roots
                .into_iter()
                .next()
                .filter(|_| opener.project().is_none()),
            scope: None,
            profile: None,
            trust: self.0.trust.get(),
        };
        if opener.has_project(&order) {
            return Ok(order);
        }
        Err(Failed {
            kind: ErrorKind::InvalidInput,
            message:
                "no project: `lazaret serve` was started without --project, and the client names no root"
                    .into(),
        })
    }

    async fn open(&mut self, order: &SessionOrder) -> Result<(Session, SessionServers), Failed> {
        let StartableSession {
            config, servers, ..
        } = StartableSession::prepare(&*self.0.opener, order).await?;
        let session = Session::start(config, self.0.proof);
        servers.follow(&session);
        Ok((session, servers))
    }

    async fn close(&self, servers: SessionServers) {
        servers.close().await;
    }
}
