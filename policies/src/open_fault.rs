//! Why a profile's `open` is refused. Imports nothing here: [`PolicyError`](crate::PolicyError) has it.

use thiserror::Error;

/// Why a name cannot be opened.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum OpenFault {
    #[error("it is no protected name, so nothing has to open it")]
    NotProtected,
    #[error("`{0}` is protected as a whole; open that")]
    Below(String),
    #[error(
        "it holds secrets; `secrets` of a profile shows files in dotenv form, and nothing else is opened"
    )]
    Secret,
    #[error("no profile opens it: {0}")]
    Never(String),
}
