//! Which elements of a page a CSS selector means, found by `lol_html`, which reads a page as a stream and builds no tree.
//!
//! Page and selector are strangers'. What finding takes is bounded in memory, in time and in matches. Without a tree an
//! element that has no end tag ends with the one around it.

use lol_html::errors::{MemoryLimitExceededError, RewritingError};
use lol_html::html_content::Element;
use lol_html::{ElementContentHandlers, HtmlRewriter, MemorySettings, OutputSink, Settings};
use std::borrow::Cow;
use std::cell::RefCell;
use std::time::{Duration, Instant};
use thiserror::Error;

/// Longest selector, in bytes.
pub const SELECTOR_MAX: usize = 500;
/// Most elements that one selector finds in a page.
pub const ELEMENTS_MAX: usize = 10_000;
/// Bytes that finding may take besides the page: it bounds how deep a page may be nested.
const MEMORY: usize = 4 << 20;
/// Longest time that finding may take.
const TIME: Duration = Duration::from_secs(1);
/// Bytes between two looks at the time.
const PIECE: usize = 4096;

/// A selector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector(String);

/// Why there is nothing to show of a page.
#[derive(Debug, PartialEq, Eq, Error)]
#[allow(missing_docs)] // The messages say it.
pub enum SelectError {
    #[error("nothing in the page matches it")]
    Nothing,
    #[error("the page is no HTML but {0}, of which only all can be shown")]
    NoHtml(String),
    #[error("the page is too large or too deep to look for it; leave the selector out")]
    TooMuch,
}

impl Selector {
    /// Reads a selector.
    ///
    /// # Errors
    /// The rule that it breaks.
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > SELECTOR_MAX {
            return Err(format!("at most {SELECTOR_MAX} bytes"));
        }
        match text.parse::<lol_html::Selector>() {
            Ok(_) => Ok(Self(text.to_owned())),
            Err(error) => Err(format!("a CSS selector ({})", error.to_string().trim_end_matches('.'))),
        }
    }

    /// The selector as it was written.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Where in `page` the start tags of the elements stand that are meant, in order, and whether these are all.
    pub fn find(&self, page: &str) -> Result<(Vec<usize>, bool), SelectError> {
        let selector = self.0.parse::<lol_html::Selector>().map_err(|_| SelectError::TooMuch)?;
        let found = RefCell::new(Vec::new());
        let note = |element: &mut Element<'_, '_>| {
            let mut found = found.borrow_mut();
            // A selector of several parts may mean an element twice.
            let start = element.source_location().bytes().start;
            if found.last() == Some(&start) {
                return Ok(());
            }
            found.push(start);
            if found.len() > ELEMENTS_MAX { Err(Enough.into()) } else { Ok(()) }
        };
        let handlers = ElementContentHandlers::default().element(note);
        let settings = Settings::new()
            .append_element_content_handler((Cow::Owned(selector), handlers))
            .with_memory_settings(MemorySettings::new().with_max_allowed_memory_usage(MEMORY))
            .with_strict(false);
        match read(HtmlRewriter::new(settings, |_: &[u8]| ()), page) {
            // There are enough.
            Ok(()) | Err(RewritingError::ContentHandlerError(_)) => {}
            Err(_) => return Err(SelectError::TooMuch),
        }
        let mut found = found.into_inner();
        let whole = found.len() <= ELEMENTS_MAX;
        found.truncate(ELEMENTS_MAX);
        if found.is_empty() { Err(SelectError::Nothing) } else { Ok((found, whole)) }
    }
}

fn read(mut reader: HtmlRewriter<'_, impl OutputSink>, page: &str) -> Result<(), RewritingError> {
    let begun = Instant::now();
    for piece in page.as_bytes().chunks(PIECE) {
        reader.write(piece)?;
        if begun.elapsed() > TIME {
            return Err(RewritingError::MemoryLimitExceeded(MemoryLimitExceededError));
        }
    }
    reader.end()
}

/// There are more elements than are wanted.
#[derive(Debug, Error)]
#[error("more than {ELEMENTS_MAX} elements")]
struct Enough;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selector_is_one_or_says_why_not() {
        for good in
            ["main", "#a .b > c", "a[href$='x' i]", "h1, h2", "li:nth-child(2)", "p:not(.x)", "*", "é"]
        {
            assert_eq!(Selector::parse(good).unwrap().text(), good);
        }
        for bad in ["", " ", "a >", "a[", "a::before", "p:has(b)", "a:hover", "<p>", "a b,", "1", "svg|a"] {
            let rule = Selector::parse(bad).unwrap_err();
            assert!(rule.starts_with("a CSS selector ("), "{bad:?}: {rule}");
        }
        assert!(Selector::parse(&"x".repeat(SELECTOR_MAX)).is_ok());
        assert_eq!(Selector::parse(&"x".repeat(SELECTOR_MAX + 1)).unwrap_err(), "at most 500 bytes");
    }

    #[test]
    fn what_is_found_is_bounded() {
        let find = |page: &str, selector: &str| Selector::parse(selector).unwrap().find(page);
        assert_eq!(find("<p>a</p><b>c</b>", "b"), Ok((vec![8], true)));
        assert_eq!(find("<p>a</p>", "b"), Err(SelectError::Nothing));
        assert_eq!(find("", "b"), Err(SelectError::Nothing));
        let page = |count: usize| "<b></b>".repeat(count);
        let (found, whole) = find(&page(ELEMENTS_MAX), "b").unwrap();
        assert_eq!((found.len(), whole), (ELEMENTS_MAX, true));
        let (found, whole) = find(&page(ELEMENTS_MAX + 1), "b, *").unwrap();
        assert_eq!((found.len(), whole), (ELEMENTS_MAX, false));
        assert_eq!(find(&"<i>".repeat(700_000), "b"), Err(SelectError::TooMuch));
    }
}
