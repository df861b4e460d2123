//! A body that does not say what its request would change, and how much is shown of one that does.

use broker_protocol::limit;
use thiserror::Error;

/// Why a body does not say what the request would change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Error)]
pub enum UnreadBody {
    #[error("its body is encoded")]
    Encoded,
    #[error("what says it in its body is longer than {0} bytes")]
    Long(usize),
    #[error("its body ends too early")]
    Short,
    #[error("its body is none that a git client sends")]
    Push,
    #[error("a signed push is not read")]
    Signed,
    #[error("it names more than {} references", limit::EFFECTS)]
    Many,
    #[error("its body is no JSON that all servers read alike")]
    Json,
    #[error("its body is a package's that names no version, no tag and no maintainer")]
    Package,
    #[error("its body is no single document of GraphQL with variables alone")]
    GraphQl,
    #[error(
        "its address has a query, from which a server may take what it does in place of the body"
    )]
    Query,
    #[error("too much waits for answers already")]
    Crowded,
}

/// A text of the program's, cut at its limit.
pub(super) fn cut(mut text: String) -> String {
    const MARK: &str = "…";
    if text.len() > limit::DENIAL_TEXT {
        let ends = (0..=limit::DENIAL_TEXT - MARK.len()).rev();
        let end = ends.into_iter().find(|at| text.is_char_boundary(*at));
        text.truncate(end.unwrap_or(0));
        text.push_str(MARK);
    }
    text
}
