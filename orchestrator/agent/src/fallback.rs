//! Another model, which goes on with a run where the first one's answers are too poor: for small models near the user, whose tool
//! calls fail. A provider that is down is no such case; that is an error, and says what starts it.

use crate::provider::{Model, Provider, choose};
use serde::Deserialize;
use std::fmt;
use std::rc::Rc;

/// Malformed calls of a run that are borne: one is put right by telling the model.
pub(crate) const MALFORMED_MAX: u32 = 1;

/// What is too poor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FallbackWhen {
    /// A run would end without having used a tool, though there are some.
    NoToolCalls,
    /// For the second time in a run, the input of a call is no JSON object.
    MalformedArgs,
    /// Either.
    Always,
}

/// What an answer lacks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Poor {
    NoToolCalls,
    MalformedArgs,
}

impl Poor {
    pub fn text(self) -> &'static str {
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

/// Who goes on, and when. All that was said in the conversation goes to that provider then.
#[derive(Clone)]
pub struct Fallback {
    /// When.
    pub when: FallbackWhen,
    /// The provider.
    pub provider: Rc<dyn Provider>,
    /// The model; absent, the smallest of the provider that can chat.
    pub model: Option<String>,
}

impl fmt::Debug for Fallback {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { when, provider, model } = self;
        write!(formatter, "{when:?}: {} {model:?}", provider.name())
    }
}

impl Fallback {
    /// The model that goes on, or why none can.
    pub(crate) async fn model(&self) -> Result<Model, String> {
        let model = match &self.model {
            Some(name) => self.provider.model(name).await.map_err(|error| error.to_string())?,
            None => {
                let models = self.provider.models().await.map_err(|error| error.to_string())?;
                choose(None, &models).cloned().ok_or_else(|| "it has no model that can chat".to_owned())?
            }
        };
        match model.supports_tools {
            Some(false) => Err(format!("{} cannot call tools", model.id)),
            Some(true) | None => Ok(model),
        }
    }
}
