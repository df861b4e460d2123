//! Finds the elements of a page that a CSS selector matches. Page and selector are untrusted: the number of elements to match, of
//! elements found and of steps is bounded.

use crate::elements::{Elements, Html, TooMany};
use crate::outline::Outline;
use crate::work::StopCheck;
use cssparser::{ParseErrorKind, ParserInput};
use html5gum::Tokenizer;
use html5gum::emitters::default::DefaultEmitter;
use selectors::SelectorList;
use selectors::context::{
    MatchingContext, MatchingForInvalidation, MatchingMode, NeedsSelectorFlags, QuirksMode,
    SelectorCaches,
};
use selectors::matching::matches_selector_list;
use selectors::parser::{ParseRelative, SelectorParseErrorKind};
use thiserror::Error;

/// Maximum length of a selector, in bytes.
pub(crate) const SELECTOR_MAX: usize = 500;
/// Maximum number of elements that one selector finds in a page.
pub(crate) const FOUND_MAX: usize = 10_000;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selector(String);

/// Why nothing of a page is shown for a selector.
#[derive(Debug, PartialEq, Eq, Error)]
pub enum SelectError {
    #[error("nothing in the page matches it")]
    NoMatch,
    /// Only HTML pages have elements; this is the actual media type.
    #[error("the page is not HTML but {0}, which is shown whole or not at all")]
    NotHtml(String),
    /// A bound is exceeded.
    #[error("the page is too large to look for it; leave the selector out")]
    TooLarge,
}

/// The elements that a selector matches.
#[derive(Debug, PartialEq, Eq)]
pub struct SelectedElements {
    /// The numbers of their start tags in the page, from 0, in order; never empty.
    pub elements: Vec<usize>,
    /// Whether these are all.
    pub complete: bool,
}

impl Selector {
    /// Parses a selector.
    ///
    /// # Errors
    /// The expected form, as text to follow "expected".
    pub fn parse(text: &str) -> Result<Self, String> {
        if text.len() > SELECTOR_MAX {
            return Err(format!("a CSS selector of at most {SELECTOR_MAX} bytes"));
        }
        parse(text)
            .map(|_| Self(text.to_owned()))
            .map_err(|why| format!("a CSS selector ({why})"))
    }

    /// The selector as it was written.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Finds the matching elements in `page`.
    ///
    /// # Errors
    /// [`SelectError::NoMatch`], and [`SelectError::TooLarge`] if the page exceeds a bound.
    pub fn find(&self, page: &str, stop: &StopCheck) -> Result<SelectedElements, SelectError> {
        let list = parse(&self.0).map_err(|_| SelectError::NoMatch)?;
        let elements = elements(page, stop).map_err(|TooMany| SelectError::TooLarge)?;
        let mut caches = SelectorCaches::default();
        let mut context = MatchingContext::new(
            MatchingMode::Normal,
            None,
            &mut caches,
            QuirksMode::NoQuirks,
            NeedsSelectorFlags::No,
            MatchingForInvalidation::No,
        );
        let mut found = Vec::new();
        for (at, element) in elements.iter().enumerate() {
            let is_meant = matches_selector_list(&list, &element, &mut context);
            if elements.is_exhausted() {
                return Err(SelectError::TooLarge);
            }
            if is_meant {
                if found.len() == FOUND_MAX {
                    return Ok(SelectedElements {
                        elements: found,
                        complete: false,
                    });
                }
                found.push(at);
            }
        }
        if found.is_empty() {
            Err(SelectError::NoMatch)
        } else {
            Ok(SelectedElements {
                elements: found,
                complete: true,
            })
        }
    }
}

/// The tokens of a page: the only way in which HTML is parsed here.
pub fn tokens(page: &str) -> Tokenizer<html5gum::StringReader<'_>, DefaultEmitter> {
    let mut emitter = DefaultEmitter::default();
    emitter.naively_switch_states(true);
    Tokenizer::new_with_emitter(page, emitter)
}

fn elements(page: &str, stop: &StopCheck) -> Result<Elements, TooMany> {
    let (mut elements, mut outline) = (Elements::new(stop), Outline::default());
    for token in tokens(page) {
        if stop.is_set() {
            return Err(TooMany);
        }
        let Ok(token) = token;
        elements.take(&token, &mut outline)?;
    }
    Ok(elements)
}

fn parse(text: &str) -> Result<SelectorList<Html>, String> {
    let mut input = ParserInput::new(text);
    let mut input = cssparser::Parser::new(&mut input);
    SelectorList::parse(&Html, &mut input, ParseRelative::No).map_err(|error| match error.kind {
        ParseErrorKind::Custom(SelectorParseErrorKind::DanglingCombinator) => {
            "nothing follows the last combinator".to_owned()
        }
        ParseErrorKind::Custom(SelectorParseErrorKind::EmptySelector) => "it is empty".to_owned(),
        ParseErrorKind::Custom(SelectorParseErrorKind::UnsupportedPseudoClassOrElement(name)) => {
            format!("`:{name}` is not supported")
        }
        ParseErrorKind::Custom(_) | ParseErrorKind::Basic(_) => {
            format!("it is not understood at column {}", error.location.column)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selector_parses_or_the_error_says_why_not() {
        for good in [
            "main",
            "#a .b > c",
            "a[href$='x' i]",
            "h1, h2",
            "li:nth-child(2)",
            "p:not(.x)",
            "*",
            "é",
            "a ~ b + c",
            ":is(a, b)",
        ] {
            assert_eq!(Selector::parse(good).unwrap().text(), good);
        }
        for bad in [
            "",
            " ",
            "a >",
            "a[",
            "a::before",
            "p:has(b)",
            "a:hover",
            "<p>",
            "a b,",
            "1",
            "svg|a",
        ] {
            let rule = Selector::parse(bad).unwrap_err();
            assert!(rule.starts_with("a CSS selector ("), "{bad:?}: {rule}");
        }
        assert_eq!(
            Selector::parse("a:hover").unwrap_err(),
            "a CSS selector (`:hover` is not supported)"
        );
        assert!(Selector::parse(&"x".repeat(SELECTOR_MAX)).is_ok());
        let long = Selector::parse(&"x".repeat(SELECTOR_MAX + 1)).unwrap_err();
        assert_eq!(long, "a CSS selector of at most 500 bytes");
    }

    #[test]
    fn elements_are_found_by_the_tree_that_a_browser_would_make() {
        let page = "<ul id=u><li class='a b'>1<li lang=EN>2<li>3</ul><p>x<p><b></b><img><i>y</i><DIV Title=t>z</div>";
        for (selector, want) in [
            ("ul > li", &[1, 2, 3][..]),
            ("li:nth-child(2)", &[2]),
            ("li:nth-last-child(1)", &[3]),
            ("li ~ li", &[2, 3]),
            ("li.b + li", &[2]),
            ("[lang=en i]", &[2]),
            ("p > b", &[6]),
            ("b:empty, p", &[4, 5, 6]),
            ("#u li:first-of-type", &[1]),
            ("p div", &[]),
            ("div[title]", &[9]),
            ("img + i", &[8]),
        ] {
            let found = Selector::parse(selector)
                .unwrap()
                .find(page, &StopCheck::default())
                .map(|chosen| chosen.elements);
            assert_eq!(found.unwrap_or_default(), want, "{selector}");
        }
    }

    #[test]
    fn selected_elements_are_limited() {
        let find = |page: &str, selector: &str| {
            Selector::parse(selector)
                .unwrap()
                .find(page, &StopCheck::default())
        };
        assert_eq!(
            find("<p>a</p><b>c</b>", "b"),
            Ok(SelectedElements {
                elements: vec![1],
                complete: true
            })
        );
        assert_eq!(find("<p>a</p>", "b"), Err(SelectError::NoMatch));
        assert_eq!(find("", "b"), Err(SelectError::NoMatch));
        let found = find(&"<b></b>".repeat(FOUND_MAX), "b").unwrap();
        assert_eq!((found.elements.len(), found.complete), (FOUND_MAX, true));
        let found = find(&"<b></b>".repeat(FOUND_MAX + 1), "b, *").unwrap();
        assert_eq!((found.elements.len(), found.complete), (FOUND_MAX, false));
        assert_eq!(
            find(&"<i>".repeat(crate::elements::ELEMENTS_MAX), "b"),
            Err(SelectError::NoMatch)
        );
        assert_eq!(
            find(&"<i>".repeat(crate::elements::ELEMENTS_MAX + 1), "b"),
            Err(SelectError::TooLarge)
        );
    }

    /// Steps for one element that double with each level of a selector, and rows that are searched again for each element.
    #[test]
    fn a_selector_takes_so_many_steps_and_no_more() {
        let deep = format!("{}{}", "<a>".repeat(500), "<b></b>".repeat(1000));
        let nested = (0..10).fold("q".to_owned(), |inner, _| format!(":is({inner} *)"));
        let wide = format!("<p>{}</p>", "<i c=1></i>".repeat(150_000));
        let many = format!(
            "<p {}></p>",
            (0..100_000).map(|n| format!("a{n}=1 ")).collect::<String>()
        );
        let long = format!("<p class='{}'></p>", "x ".repeat(900_000)).repeat(1);
        for (page, selector, want) in [
            (&deep, nested.as_str(), SelectError::TooLarge),
            (
                &deep,
                ":not(:is(* * * * * * q) :is(* * * * * * q) :is(* * * * q)) q",
                SelectError::NoMatch,
            ),
            (&wide, "i ~ i ~ q ~ i", SelectError::TooLarge),
            (&wide, "[c='2'] ~ i", SelectError::TooLarge),
            (&many, "[b='1']", SelectError::NoMatch),
            (&long, ".y.z", SelectError::NoMatch),
        ] {
            let begun = std::time::Instant::now();
            let found = Selector::parse(selector)
                .unwrap()
                .find(page, &StopCheck::default());
            println!("{selector}: {found:?} in {:?}", begun.elapsed());
            assert_eq!(found.err(), Some(want), "{selector}");
        }
        let stop = StopCheck::default();
        stop.set();
        assert_eq!(
            Selector::parse("b").unwrap().find(&deep, &stop),
            Err(SelectError::TooLarge)
        );
    }
}
