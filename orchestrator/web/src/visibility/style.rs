//! The styles of a page's elements: their own, and those of embedded style sheets.

use super::declarations::{Declarations, StyleEffect};
use super::sheet::{StyleRule, rules};
use crate::select::tokens;
use html5gum::{StartTag, Token};
use std::collections::HashMap;

/// Maximum rules of all style sheets of a page.
const RULES_MAX: usize = 20_000;
/// Maximum comparisons of elements with rules. Beyond it, each element that a rule may be for counts as hidden.
const STEPS_MAX: usize = 2_000_000;
/// Maximum classes of an element.
const CLASSES_MAX: usize = 64;
/// Maximum length of an element's own style, in bytes. A longer one counts as hiding.
const STYLE_MAX: usize = 16 << 10;

/// Knows the style of each element.
#[derive(Default)]
pub(super) struct Styles {
    rules: Vec<StyleRule>,
    /// The rules by what they need first: an ID (`#`), a class (`.`), a name, or nothing.
    by_need: HashMap<String, Vec<usize>>,
    steps: usize,
    /// Whether there are more rules than are kept.
    is_cut: bool,
}

impl Styles {
    /// Reads all style sheets that are embedded in a page.
    pub(super) fn of_page(page: &str) -> Self {
        let mut styles = Self::default();
        // Most pages have none, and need not be read twice.
        let start = |part: &[u8]| part.eq_ignore_ascii_case(b"<style");
        if !page.as_bytes().windows(6).any(start) {
            return styles;
        }
        let mut is_style = false;
        for token in tokens(page) {
            let Ok(token) = token;
            match token {
                Token::StartTag(tag) => is_style = *tag.name == *b"style",
                Token::String(text) if is_style => {
                    styles.read(&String::from_utf8_lossy(&text.value));
                }
                Token::EndTag(_) => is_style = false,
                Token::String(_) | Token::Comment(_) | Token::Doctype(_) | Token::Error(_) => {}
            }
        }
        styles
    }

    fn read(&mut self, sheet: &str) {
        let left = RULES_MAX - self.rules.len();
        let new = rules(sheet, left + 1);
        self.is_cut |= new.len() > left;
        for rule in new.into_iter().take(left) {
            let compound = &rule.compound;
            let need = match (&compound.id, compound.classes.first(), &compound.tag) {
                (Some(id), _, _) => format!("#{id}"),
                (None, Some(class), _) => format!(".{class}"),
                (None, None, tag) => tag.clone().unwrap_or_default(),
            };
            self.by_need.entry(need).or_default().push(self.rules.len());
            self.rules.push(rule);
        }
    }

    /// What an element's styles say of its text.
    pub(super) fn of_element(&mut self, tag: &StartTag<()>) -> StyleEffect {
        let attribute = |name: &[u8]| {
            tag.attributes
                .get(name)
                .map(|value| String::from_utf8_lossy(&value.value).into_owned())
        };
        let own = attribute(b"style");
        if own.as_ref().is_some_and(|style| style.len() > STYLE_MAX) {
            return StyleEffect::Hides("a style too long to read");
        }
        if self.rules.is_empty() && own.is_none() {
            return StyleEffect::None;
        }
        let Some(mut declared) = self.of_sheets(tag, &attribute) else {
            return StyleEffect::Hides("more styles than are compared");
        };
        if let Some(style) = own {
            declared.add(&Declarations::parse(&style));
        }
        declared.verdict()
    }

    /// What the style sheets declare for an element; `None` beyond a bound.
    fn of_sheets(
        &mut self,
        tag: &StartTag<()>,
        attribute: &impl Fn(&[u8]) -> Option<String>,
    ) -> Option<Declarations> {
        if self.rules.is_empty() {
            return Some(Declarations::default());
        }
        let (name, id) = (
            String::from_utf8_lossy(&tag.name).into_owned(),
            attribute(b"id").unwrap_or_default(),
        );
        let class = attribute(b"class").unwrap_or_default();
        let mut classes: Vec<&str> = class
            .split_ascii_whitespace()
            .take(CLASSES_MAX + 1)
            .collect();
        if self.is_cut || classes.len() > CLASSES_MAX {
            return None;
        }
        classes.sort_unstable();
        classes.dedup();
        let needs = [String::new(), name.clone(), format!("#{id}")]
            .into_iter()
            .chain(classes.iter().map(|class| format!(".{class}")));
        let mut matching = Vec::new();
        for need in needs {
            let candidates = self.by_need.get(&need).map_or(&[][..], Vec::as_slice);
            self.steps += candidates.len();
            if self.steps > STEPS_MAX && !candidates.is_empty() {
                return None;
            }
            matching.extend(candidates.iter().copied().filter(|at| {
                let compound = &self.rules[*at].compound;
                compound.tag.as_ref().is_none_or(|tag| *tag == name)
                    && compound.id.as_ref().is_none_or(|needed| *needed == id)
                    && compound
                        .classes
                        .iter()
                        .all(|needed| classes.binary_search(&needed.as_str()).is_ok())
            }));
        }
        matching.sort_by_key(|at| (self.rules[*at].compound.specificity(), *at));
        let mut declared = Declarations::default();
        matching
            .into_iter()
            .for_each(|at| declared.add(&self.rules[at].declarations));
        Some(declared)
    }
}
