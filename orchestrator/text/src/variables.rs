//! Variables in texts of settings: `${NAME}`, `${NAME:-default}` and `$NAME`.

use thiserror::Error;

/// Maximum bytes of a text after replacing its variables.
pub const TEXT_MAX: usize = 128 * 1024;

/// Why variables in a text cannot be replaced.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum VariableError {
    #[error("the variable {0} is not set")]
    Missing(String),
    #[error("with its variables it has more than {TEXT_MAX} bytes")]
    TooLong,
}

/// A piece of a text.
enum VariablePiece<'t> {
    Text(&'t str),
    Variable {
        name: &'t str,
        default: Option<&'t str>,
    },
}

/// The text with each variable replaced by its `value`. Values are not searched for variables.
///
/// # Errors
/// If a variable without a default is not set, or the text becomes too long.
pub fn replace(
    text: &str,
    value: &dyn Fn(&str) -> Option<String>,
) -> Result<String, VariableError> {
    let mut replaced = String::new();
    for piece in pieces(text) {
        match piece {
            VariablePiece::Text(text) => replaced.push_str(text),
            VariablePiece::Variable { name, default } => {
                match (value(name).filter(|value| !value.is_empty()), default) {
                    (Some(value), _) => replaced.push_str(&value),
                    (None, Some(default)) => replaced.push_str(default),
                    (None, None) => return Err(VariableError::Missing(name.to_owned())),
                }
            }
        }
        if replaced.len() > TEXT_MAX {
            return Err(VariableError::TooLong);
        }
    }
    Ok(replaced)
}

/// The names of the variables in a text.
pub fn names(text: &str) -> Vec<String> {
    let name = |piece: VariablePiece| match piece {
        VariablePiece::Text(_) => None,
        VariablePiece::Variable { name, .. } => Some(name.to_owned()),
    };
    pieces(text).into_iter().filter_map(name).collect()
}

fn pieces(text: &str) -> Vec<VariablePiece<'_>> {
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        let (before, from) = rest.split_at(at);
        pieces.push(VariablePiece::Text(before));
        let (piece, length) = variable(from).unwrap_or((VariablePiece::Text("$"), 1));
        pieces.push(piece);
        rest = &from[length..];
    }
    pieces.push(VariablePiece::Text(rest));
    pieces
}

/// The variable at the beginning of a text, with its length in bytes.
fn variable(text: &str) -> Option<(VariablePiece<'_>, usize)> {
    let after = text.strip_prefix('$')?;
    if let Some(inner) = after.strip_prefix('{') {
        let end = inner.find('}')?;
        let inside = &inner[..end];
        let (name, default) = match inside.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inside, None),
        };
        return is_name(name).then_some((VariablePiece::Variable { name, default }, end + 3));
    }
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let end = after.find(|c| !plain(c)).unwrap_or(after.len());
    let name = &after[..end];
    is_name(name).then_some((
        VariablePiece::Variable {
            name,
            default: None,
        },
        end + 1,
    ))
}

fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '_';
    !name.is_empty() && name.chars().all(plain) && !name.starts_with(|c: char| c.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(name: &str) -> Option<String> {
        match name {
            "A" => Some("a".into()),
            "NESTED" => Some("${A}".into()),
            "EMPTY" => Some(String::new()),
            "LONG" => Some("x".repeat(TEXT_MAX)),
            _ => None,
        }
    }

    #[test]
    fn each_form_of_a_variable_is_replaced_once() {
        for (text, want) in [
            ("plain", "plain"),
            ("${A}/$A-x", "a/a-x"),
            ("${B:-b c}${EMPTY:-e}", "b ce"),
            ("$A_", "?"),
            ("${NESTED}", "${A}"),
            ("$ $$ ${ ${} ${9} $9 ${a b}", "$ $$ ${ ${} ${9} $9 ${a b}"),
            ("é$Aé", "éaé"),
        ] {
            let got = replace(text, &value);
            match want {
                "?" => assert_eq!(got, Err(VariableError::Missing("A_".into()))),
                want => assert_eq!(got.as_deref(), Ok(want), "{text}"),
            }
        }
        assert_eq!(names("${A} $B ${C:-d} $9 ${é}"), ["A", "B", "C"]);
    }

    #[test]
    fn a_text_grows_to_its_limit_and_no_further() {
        assert!(replace("$LONG", &value).is_ok());
        assert_eq!(replace("${LONG}x", &value), Err(VariableError::TooLong));
    }
}
