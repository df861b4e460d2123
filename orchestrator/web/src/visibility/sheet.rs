//! The rules of an embedded style sheet, as far as they can hide text: selectors by their last part, declarations by
//! [`Declarations`].

use super::declarations::{Declarations, StyleEffect};
use cssparser::{Parser, ParserInput, Token};

/// The last part of a selector: what an element itself has to be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Compound {
    /// The element's name, in lower case.
    pub(crate) tag: Option<String>,
    /// Its ID, if the selector names one.
    pub id: Option<String>,
    /// Its classes, all of which it needs.
    pub(crate) classes: Vec<String>,
    /// Whether more is needed than this: other elements around it.
    pub(crate) is_part: bool,
}

/// A rule for one selector.
#[derive(Debug)]
pub(super) struct StyleRule {
    /// Which elements it is for.
    pub(crate) compound: Compound,
    /// The declarations that can hide or show it.
    pub(crate) declarations: Declarations,
}

impl Compound {
    /// The weight of the selector: IDs, then classes, then names.
    pub(super) fn specificity(&self) -> (usize, usize, usize) {
        (
            usize::from(self.id.is_some()),
            self.classes.len(),
            usize::from(self.tag.is_some()),
        )
    }

    /// Parses one selector; `None` if its last part depends on more than an element's name, ID and classes.
    fn parse(text: &str) -> Option<Self> {
        let mut input = ParserInput::new(text);
        let mut input = Parser::new(&mut input);
        let (mut compound, mut is_new) = (Self::default(), false);
        let mut names = 0;
        while let Ok(token) = input.next_including_whitespace().cloned() {
            let begins = std::mem::take(&mut is_new);
            match token {
                Token::WhiteSpace(_) | Token::Delim('>' | '+' | '~') => {
                    is_new = true;
                    continue;
                }
                _ if begins && names > 0 => {
                    compound = Self {
                        is_part: true,
                        ..Self::default()
                    };
                }
                _ => {}
            }
            names += 1;
            match token {
                Token::Ident(name) => compound.tag = Some(name.to_ascii_lowercase()),
                Token::IDHash(id) | Token::Hash(id) => compound.id = Some(id.to_string()),
                Token::Delim('.') => compound
                    .classes
                    .push(input.expect_ident().ok()?.to_string()),
                Token::Delim('*') => {}
                _ => return None,
            }
        }
        (names > 0).then_some(compound)
    }
}

/// The rules of a style sheet that can hide an element, or show it again; at most `max`. Rules that may not apply, because of a
/// condition or of other elements, count only if they hide.
pub(super) fn rules(text: &str, max: usize) -> Vec<StyleRule> {
    let mut rules = Vec::new();
    let text = without_comments(text);
    let (mut rest, mut conditions) = (text.as_str(), 0_usize);
    while let Some(at) = rest.find(['{', '}', ';']) {
        let (prelude, sign) = (rest[..at].trim(), rest.as_bytes()[at]);
        rest = &rest[at + 1..];
        match sign {
            b'}' => conditions = conditions.saturating_sub(1),
            b'{' if is_condition(prelude) => conditions += 1,
            b'{' => {
                let end = block_end(rest);
                if !prelude.starts_with('@') {
                    let validity = match conditions {
                        0 => RuleValidity::Always,
                        _ => RuleValidity::OnCondition,
                    };
                    add(&mut rules, prelude, &rest[..end], validity);
                }
                rest = rest.get(end + 1..).unwrap_or_default();
            }
            // A statement such as `@import`.
            _ => {}
        }
        if rules.len() >= max {
            rules.truncate(max);
            break;
        }
    }
    rules
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum RuleValidity {
    Always,
    /// Inside a block such as `@media`.
    OnCondition,
}

fn add(rules: &mut Vec<StyleRule>, prelude: &str, body: &str, validity: RuleValidity) {
    let declarations = Declarations::parse(body);
    let hides = matches!(
        declarations.verdict(),
        StyleEffect::Hides(_) | StyleEffect::Invisible
    );
    if declarations == Declarations::default() {
        return;
    }
    for selector in prelude.split(',') {
        if let Some(compound) = Compound::parse(selector.trim())
            && (hides || validity == RuleValidity::Always && !compound.is_part)
        {
            rules.push(StyleRule {
                compound,
                declarations: declarations.clone(),
            });
        }
    }
}

/// Whether a block holds rules that may apply on a screen.
fn is_condition(prelude: &str) -> bool {
    let prelude = prelude.to_ascii_lowercase();
    let begins = |name: &&str| prelude.starts_with(name);
    ["@media", "@supports", "@layer", "@container", "@scope"]
        .iter()
        .any(begins)
        && (!prelude.contains("print") || prelude.contains("screen"))
}

/// Where the block ends in which `text` begins.
fn block_end(text: &str) -> usize {
    let mut open = 0_usize;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b'{' => open += 1,
            b'}' if open == 0 => return at,
            b'}' => open -= 1,
            _ => {}
        }
    }
    text.len()
}

fn without_comments(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, comment)) = rest.split_once("/*") {
        out.push_str(before);
        out.push(' ');
        rest = comment.split_once("*/").map_or("", |(_, behind)| behind);
    }
    out + rest
}
