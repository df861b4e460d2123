//! The tools of a session as a value.

use crate::registry::{Entry, Registry, RegistryError};
use orchestrator_web::WebClient;
use std::cell::RefCell;
use tokio::sync::Mutex;

/// The tools of a session, and what they need besides the executor.
#[derive(Default)]
pub struct Toolbox {
    pub(super) registry: RefCell<Registry>,
    /// Access to the web; without it, no web tool works.
    pub(super) web: Option<WebClient>,
    /// Held while a state file is read and replaced.
    pub(super) state: Mutex<()>,
}

impl Toolbox {
    /// The tools of `registry`, which reach the web by `web`.
    pub fn new(registry: Registry, web: Option<WebClient>) -> Self {
        Self {
            registry: RefCell::new(registry),
            web,
            state: Mutex::default(),
        }
    }

    /// The tool with this name or alias.
    ///
    /// # Errors
    /// See [`Registry::get`].
    pub fn get(&self, name: &str) -> Result<Entry, RegistryError> {
        self.registry.borrow().get(name)
    }

    /// The registry, before the session begins.
    pub fn registry(&mut self) -> &mut Registry {
        self.registry.get_mut()
    }

    /// With other access to the web.
    pub fn with_web(self, change: impl FnOnce(WebClient) -> WebClient) -> Self {
        Self {
            web: self.web.map(change),
            ..self
        }
    }

    /// With the tools about the agent itself; see [`Registry::with_models`].
    pub fn with_models(self) -> Self {
        Self {
            registry: RefCell::new(self.registry.into_inner().with_models()),
            ..self
        }
    }
}
