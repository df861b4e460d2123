//! The tools that clients are offered: once they are known, and again when they change.

use rmcp::RoleServer;
use rmcp::service::Peer;
use serde_json::Value;
use std::sync::Arc;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// The tools, as entries of a list of tools. A client that lists them waits until they are known.
#[derive(Clone, Debug, Default)]
pub struct Listing(watch::Sender<Option<Arc<[Value]>>>);

impl Listing {
    /// Offers these tools from now on.
    pub fn set(&self, tools: Vec<Value>) {
        self.0.send_replace(Some(tools.into()));
    }

    /// The tools, once they are known.
    pub async fn wait(&self) -> Arc<[Value]> {
        let mut known = self.0.subscribe();
        let known = known.wait_for(Option::is_some).await;
        // It cannot close while `self` is there.
        known
            .ok()
            .and_then(|tools| tools.clone())
            .unwrap_or_default()
    }

    /// Tells `peer` of each change after the first list, until the returned tasks are dropped.
    pub(crate) fn announce_to(&self, peer: Peer<RoleServer>) -> JoinSet<()> {
        let mut changes = self.0.subscribe();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            if changes.wait_for(Option::is_some).await.is_err() {
                return;
            }
            while changes.changed().await.is_ok() {
                if peer.notify_tool_list_changed().await.is_err() {
                    return;
                }
            }
        });
        tasks
    }
}
