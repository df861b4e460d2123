//! The task that owns a session: receives the commands of front ends and runs each call as a task of its own on the same thread.

use crate::call;
use crate::command::SessionCommand;
use crate::engine::Engine;
use crate::publish::RawEvent;
use crate::registration::{NewTool, Registered};
use crate::tools::Tools;
use broker_protocol::Failed;
use serde_json::Value;
use std::rc::Rc;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::task::spawn_local;

/// Receives commands until all handles are dropped.
pub(crate) async fn run(
    engine: Rc<Engine>,
    tools: Rc<dyn Tools>,
    mut commands: UnboundedReceiver<SessionCommand>,
) {
    while let Some(command) = commands.recv().await {
        let engine = engine.clone();
        // Whoever asked may be gone when the answer is ready.
        match command {
            SessionCommand::Call(order) => {
                drop(spawn_local(call::serve(engine, tools.clone(), *order)))
            }
            SessionCommand::Open(reply) => {
                drop(spawn_local(
                    async move { reply.send(engine.opened().await) },
                ))
            }
            SessionCommand::Grants { revoke, reply } => {
                drop(spawn_local(async move {
                    reply.send(engine.grants(revoke).await)
                }));
            }
            SessionCommand::Explain { traced, reply } => {
                drop(spawn_local(async move {
                    reply.send(engine.explain(traced).await)
                }));
            }
            SessionCommand::Register {
                client_id,
                tool,
                reply,
            } => {
                let _ = reply.send(register(&engine, &*tools, &client_id, *tool).await);
            }
            SessionCommand::Unregister {
                client_id,
                tool,
                reply,
            } => {
                let _ = reply.send(unregister(&engine, &*tools, &client_id, &tool).await);
            }
            SessionCommand::Tools(reply) => {
                let _ = reply.send(tools.list(engine.scope.as_ref()));
            }
            SessionCommand::LowerTrust(trust) => engine.lower_trust(trust),
            SessionCommand::PutBack(found) => engine.found.put_back(found),
            SessionCommand::Close(reply) => {
                let closed = engine.close();
                drop(spawn_local(async move {
                    closed.await;
                    reply.send(())
                }));
            }
            SessionCommand::CancelAll => engine.under_way.borrow().values().for_each(|end| end()),
        }
    }
}

async fn register(
    engine: &Engine,
    tools: &dyn Tools,
    client_id: &Value,
    tool: NewTool,
) -> Result<Registered, Failed> {
    let (description, schema) = (tool.description.clone(), tool.schema.to_string());
    let (risk, timeout_s) = (tool.risk.name(), tool.timeout_s);
    let registered = tools.register(tool)?;
    let event = RawEvent::ToolRegistered {
        client_id,
        tool: &registered.name,
        description: &description,
        schema,
        risk,
        timeout_s,
    };
    let _ = engine.hub.of_session().publish(event).await;
    Ok(registered)
}

async fn unregister(
    engine: &Engine,
    tools: &dyn Tools,
    client_id: &Value,
    tool: &str,
) -> Result<(), Failed> {
    tools.unregister(tool)?;
    let event = RawEvent::ToolUnregistered { client_id, tool };
    let _ = engine.hub.of_session().publish(event).await;
    engine.revoke_grants(tool).await;
    Ok(())
}
