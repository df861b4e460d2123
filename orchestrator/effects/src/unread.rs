//! A body that does not say what its request would change, and the lines of one that does.

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
    #[error(
        "it is more than a question shows, which is {} lines of {} bytes",
        limit::EFFECTS,
        limit::DENIAL_TEXT
    )]
    Many,
    #[error("its body is no JSON that all servers read alike")]
    Json,
    #[error("its body is a package's that names no version, no tag and no maintainer")]
    Package,
    #[error(
        "its body calls a package or a version otherwise than its path or that version's key does"
    )]
    Names,
    #[error("its body is no single document of GraphQL with variables alone")]
    GraphQl,
    #[error(
        "its address has a query, from which a server may take what it does in place of the body"
    )]
    Query,
    #[error(
        "its Content-Type is not `application/json` once, in UTF-8, so a server may read its body otherwise"
    )]
    Type,
    #[error("too much waits for answers already")]
    Crowded,
}

/// A text of the program's as lines of a question. None of it is left out: a yes for the session is for the same lines, and whoever says it
/// has to see what differs.
pub(super) fn pieces(text: &str) -> Vec<String> {
    /// Stands on both sides of a break.
    const MARK: &str = "…";
    let (mut all, mut before, mut rest) = (Vec::new(), "", text);
    while before.len() + rest.len() > limit::DENIAL_TEXT {
        let most = limit::DENIAL_TEXT - before.len() - MARK.len();
        let mut ends = (0..=most).rev();
        let end = ends.find(|at| rest.is_char_boundary(*at)).unwrap_or(most);
        let (piece, after) = rest.split_at(end);
        all.push([before, piece, MARK].concat());
        (before, rest) = (MARK, after);
    }
    all.push([before, rest].concat());
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_are_the_whole_text() {
        for text in [
            "",
            "a",
            &"x".repeat(limit::DENIAL_TEXT),
            &"ä…".repeat(2_000),
        ] {
            let all = pieces(text);
            assert!(all.iter().all(|one| one.len() <= limit::DENIAL_TEXT));
            let last = all.len() - 1;
            let bare = all.iter().enumerate().map(|(at, one)| {
                let one = if at > 0 { &one["…".len()..] } else { one };
                if at < last {
                    &one[..one.len() - "…".len()]
                } else {
                    one
                }
            });
            assert_eq!(bare.collect::<String>(), text);
        }
    }
}
