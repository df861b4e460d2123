//! The sessions of MCP clients: each client has its own, for the project that it works on.

use crate::opener::{Opening, SessionOrder};
use crate::service::Service;
use broker_protocol::{ErrorKind, Failed};
use orchestrator_engine::Session;
use orchestrator_mcp_client::SessionServers;
use orchestrator_mcp_server::{Clients, SessionRequest};
use std::path::PathBuf;
use std::rc::Rc;
use tokio::sync::mpsc::UnboundedReceiver;

/// Opens sessions for clients as they connect, until the server ends.
pub async fn open_for(service: Rc<Service>, mut clients: Clients) {
    while let Some(requests) = clients.recv().await {
        tokio::task::spawn_local(open_for_one(service.clone(), requests));
    }
}

/// The session of a client, with the servers in it.
struct Current {
    order: SessionOrder,
    session: Session,
    servers: SessionServers,
}

/// The same for one client. The session ends with its client.
async fn open_for_one(service: Rc<Service>, mut requests: UnboundedReceiver<SessionRequest>) {
    let mut current: Option<Current> = None;
    while let Some(SessionRequest { roots, reply }) = requests.recv().await {
        let order = order(&service, roots);
        let opened = match current.take() {
            Some(open) if open.order == order => Ok(open),
            before => {
                if let Some(Current { servers, .. }) = before {
                    tokio::task::spawn_local(async move { servers.close().await });
                }
                open(&service, order).await
            }
        };
        // The client may be gone.
        let _ = reply.send(
            opened
                .as_ref()
                .map(|open| open.session.clone())
                .map_err(Clone::clone),
        );
        current = opened.ok();
    }
    if let Some(Current { servers, .. }) = current {
        servers.close().await;
    }
}

fn order(service: &Service, roots: Vec<PathBuf>) -> SessionOrder {
    // If the server was started for one project, clients cannot choose another.
    let project = roots
        .into_iter()
        .next()
        .filter(|_| service.opener.project().is_none());
    SessionOrder {
        project,
        scope: None,
        profile: None,
        trust: service.trust.get(),
    }
}

async fn open(service: &Service, order: SessionOrder) -> Result<Current, Failed> {
    if !service.opener.has_project(&order) {
        return Err(Failed {
            kind: ErrorKind::InvalidInput,
            message:
                "no project: `lazaret serve` was started without --project, and the client names no root"
                    .into(),
        });
    }
    let opening = Opening::prepare(&*service.opener, &order).await;
    let Opening {
        config, servers, ..
    } = opening.map_err(|failed| Failed {
        message: service.redactor.text(&failed.message).into_owned(),
        ..failed
    })?;
    let session = Session::start(config);
    servers.follow(&session);
    Ok(Current {
        order,
        session,
        servers,
    })
}
