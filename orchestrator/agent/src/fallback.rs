//! The fallback model, which takes over a run when the first model's answers are too poor: for small local models whose tool calls
//! fail. It does not replace a provider that is down; that is an error that tells how to start it.

use crate::provider::{Model, Provider, choose};
use serde::Deserialize;
use std::fmt;
use std::rc::Rc;

/// Malformed calls that a run tolerates: telling the model usually corrects the first one.
pub(crate) const MALFORMED_MAX: u32 = 1;

/// Which answers are too poor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FallbackWhen {
    /// The run would end without having used a tool, although there are some.
    NoToolCalls,
    /// For the second time in a run, a call's input is no JSON object.
    MalformedArgs,
    /// Either of the two.
    Always,
}

/// What an answer lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Poor {
    NoToolCalls,
    MalformedArgs,
}

impl Poor {
    pub(crate) fn text(self) -> &'static str {
        match self {
            Poor::NoToolCalls => "it has used no tool",
            Poor::MalformedArgs => "its calls are malformed",
        }
    }
}

impl FallbackWhen {
    pub(crate) fn covers(self, poor: Poor) -> bool {
        match (self, poor) {
            (FallbackWhen::Always, Poor::NoToolCalls | Poor::MalformedArgs)
            | (FallbackWhen::NoToolCalls, Poor::NoToolCalls)
            | (FallbackWhen::MalformedArgs, Poor::MalformedArgs) => true,
            (FallbackWhen::NoToolCalls, Poor::MalformedArgs)
            | (FallbackWhen::MalformedArgs, Poor::NoToolCalls) => false,
        }
    }
}

/// The provider that takes over, and when. It then receives the whole conversation.
#[derive(Clone)]
pub struct Fallback {
    pub when: FallbackWhen,
    pub provider: Rc<dyn Provider>,
    /// The model; by default, the provider's smallest that can chat.
    pub model: Option<String>,
}

impl fmt::Debug for Fallback {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            when,
            provider,
            model,
        } = self;
        write!(formatter, "{when:?}: {} {model:?}", provider.name())
    }
}

impl Fallback {
    /// The fallback model, or why there is none.
    pub(crate) async fn model(&self) -> Result<Model, String> {
        let model = match &self.model {
            Some(name) => self
                .provider
                .model(name)
                .await
                .map_err(|error| error.to_string())?,
            None => {
                let models = self
                    .provider
                    .models()
                    .await
                    .map_err(|error| error.to_string())?;
                choose(None, &models)
                    .cloned()
                    .ok_or_else(|| "it has no model that can chat".to_owned())?
            }
        };
        match model.supports_tools {
            Some(false) => Err(format!("{} cannot call tools", model.id)),
            Some(true) | None => Ok(model),
        }
    }
}
