//! The elements of a page for the `selectors` crate: a bounded flat list in the order of their start tags.

use crate::outline::Outline;
use crate::work::StopCheck;
use cssparser::{CowRcStr, ToCss, serialize_identifier};
use html5gum::{StartTag, Token};
use precomputed_hash::PrecomputedHash;
use selectors::attr::{AttrSelectorOperation, CaseSensitivity, NamespaceConstraint};
use selectors::bloom::BloomFilter;
use selectors::context::MatchingContext;
use selectors::matching::ElementSelectorFlags;
use selectors::parser::{NonTSPseudoClass, PseudoElement, SelectorParseErrorKind};
use selectors::{Element, OpaqueElement, Parser, SelectorImpl};
use std::cell::Cell;
use std::fmt;

/// Maximum number of a page's elements, and of its attributes, that a selector is matched against.
pub(crate) const ELEMENTS_MAX: usize = 200_000;

/// Maximum steps of matching: each element, attribute and piece of text that is read. A sensible selector needs a few for each
/// element.
pub(crate) const STEPS_MAX: u64 = 20_000_000;
/// Bytes of text that count as one step.
const TEXT_STEP: usize = 32;

/// The elements of a page.
#[derive(Debug)]
pub(crate) struct Elements {
    nodes: Vec<Node>,
    attributes: Vec<(Box<str>, Box<str>)>,
    /// Steps left. At zero, an element has no relatives and no attributes, so that all matching ends.
    steps: Cell<u64>,
    stop: StopCheck,
}

#[derive(Debug)]
struct Node {
    name: Box<str>,
    parent: Option<u32>,
    previous: Option<u32>,
    next: Option<u32>,
    first_child: Option<u32>,
    last_child: Option<u32>,
    has_text: bool,
    /// Its attributes end here; they begin where those of the previous node end.
    attributes_end: u32,
}

/// A page has more elements or attributes than may be matched.
#[derive(Debug)]
pub(crate) struct TooMany;

impl Elements {
    /// An empty list. Matching ends when `stop` is set.
    pub(crate) fn new(stop: &StopCheck) -> Self {
        let steps = Cell::new(STEPS_MAX);
        Self {
            nodes: Vec::new(),
            attributes: Vec::new(),
            steps,
            stop: stop.clone(),
        }
    }

    /// Whether no steps are left: then the result of matching is invalid.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.steps.get() == 0
    }

    /// Uses `count` steps; returns whether that many were left.
    fn take_steps(&self, count: usize) -> bool {
        let left = if self.stop.is_set() {
            0
        } else {
            self.steps.get().saturating_sub(count as u64)
        };
        self.steps.set(left);
        left > 0
    }

    /// Adds the next token of the page; `outline` holds the open elements.
    pub(crate) fn take(&mut self, token: &Token, outline: &mut Outline) -> Result<(), TooMany> {
        match token {
            Token::StartTag(tag) => self.start(tag, outline),
            Token::EndTag(tag) => {
                if let Some(depth) = outline.ended_by(&tag.name) {
                    outline.truncate(depth);
                }
                Ok(())
            }
            Token::String(_) => {
                if let Some(node) = outline.innermost().and_then(|at| self.nodes.get_mut(at)) {
                    node.has_text = true;
                }
                Ok(())
            }
            Token::Comment(_) | Token::Doctype(_) | Token::Error(_) => Ok(()),
        }
    }

    fn start(&mut self, tag: &StartTag<()>, outline: &mut Outline) -> Result<(), TooMany> {
        let at = self.nodes.len();
        if at == ELEMENTS_MAX || self.attributes.len() + tag.attributes.len() > ELEMENTS_MAX {
            return Err(TooMany);
        }
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned().into_boxed_str();
        let attributes = tag
            .attributes
            .iter()
            .map(|(name, value)| (text(name), text(&value.value)));
        self.attributes.extend(attributes);
        outline.before(&tag.name);
        let parent = outline.innermost();
        let previous = parent.and_then(|parent| self.nodes[parent].last_child.replace(at as u32));
        match (previous, parent) {
            (Some(previous), _) => self.nodes[previous as usize].next = Some(at as u32),
            (None, Some(parent)) => self.nodes[parent].first_child = Some(at as u32),
            (None, None) => {}
        }
        self.nodes.push(Node {
            name: text(&tag.name),
            parent: parent.map(|parent| parent as u32),
            previous,
            next: None,
            first_child: None,
            last_child: None,
            has_text: false,
            attributes_end: self.attributes.len() as u32,
        });
        if !tag.self_closing {
            outline.open(&tag.name, at);
        }
        Ok(())
    }

    /// Each element, in order.
    pub(crate) fn iter(&self) -> impl Iterator<Item = ElementRef<'_>> {
        (0..self.nodes.len()).map(|at| ElementRef { elements: self, at })
    }
}

/// One element of a page.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ElementRef<'a> {
    elements: &'a Elements,
    at: usize,
}

impl<'a> ElementRef<'a> {
    fn node(&self) -> &'a Node {
        &self.elements.nodes[self.at]
    }

    fn to(self, at: Option<u32>) -> Option<Self> {
        let at = at.filter(|_| self.elements.take_steps(1))?;
        Some(Self {
            at: at as usize,
            ..self
        })
    }

    fn attribute(&self, name: &str) -> Option<&'a str> {
        let start = self
            .at
            .checked_sub(1)
            .map_or(0, |before| self.elements.nodes[before].attributes_end);
        let own = &self.elements.attributes[start as usize..self.node().attributes_end as usize];
        let own = if self.elements.take_steps(1 + own.len()) {
            own
        } else {
            &[]
        };
        let (_, value) = own.iter().find(|(known, _)| **known == *name)?;
        self.elements
            .take_steps(value.len() / TEXT_STEP)
            .then_some(&**value)
    }
}

impl Element for ElementRef<'_> {
    type Impl = Html;

    fn opaque(&self) -> OpaqueElement {
        OpaqueElement::new(self.node())
    }

    fn parent_element(&self) -> Option<Self> {
        self.to(self.node().parent)
    }

    fn parent_node_is_shadow_root(&self) -> bool {
        false
    }

    fn containing_shadow_host(&self) -> Option<Self> {
        None
    }

    fn is_pseudo_element(&self) -> bool {
        false
    }

    fn prev_sibling_element(&self) -> Option<Self> {
        self.to(self.node().previous)
    }

    fn next_sibling_element(&self) -> Option<Self> {
        self.to(self.node().next)
    }

    fn first_element_child(&self) -> Option<Self> {
        self.to(self.node().first_child)
    }

    fn is_html_element_in_html_document(&self) -> bool {
        true
    }

    fn has_local_name(&self, name: &str) -> bool {
        *self.node().name == *name
    }

    fn has_namespace(&self, _: &str) -> bool {
        true
    }

    fn is_same_type(&self, other: &Self) -> bool {
        self.node().name == other.node().name
    }

    fn attr_matches(
        &self,
        _: &NamespaceConstraint<&SelectorName>,
        name: &SelectorName,
        operation: &AttrSelectorOperation<&SelectorName>,
    ) -> bool {
        self.attribute(&name.0)
            .is_some_and(|value| operation.eval_str(value))
    }

    fn match_non_ts_pseudo_class(&self, class: &Never, _: &mut MatchingContext<Html>) -> bool {
        match *class {}
    }

    fn match_pseudo_element(&self, element: &Never, _: &mut MatchingContext<Html>) -> bool {
        match *element {}
    }

    fn apply_selector_flags(&self, _: ElementSelectorFlags) {}

    fn is_link(&self) -> bool {
        *self.node().name == *"a" && self.attribute("href").is_some()
    }

    fn is_html_slot_element(&self) -> bool {
        false
    }

    fn has_id(&self, id: &SelectorName, case: CaseSensitivity) -> bool {
        self.attribute("id")
            .is_some_and(|own| case.eq(own.as_bytes(), id.0.as_bytes()))
    }

    fn has_class(&self, name: &SelectorName, case: CaseSensitivity) -> bool {
        let classes = self.attribute("class").unwrap_or_default();
        classes
            .split_ascii_whitespace()
            .any(|own| case.eq(own.as_bytes(), name.0.as_bytes()))
    }

    fn has_custom_state(&self, _: &SelectorName) -> bool {
        false
    }

    fn imported_part(&self, _: &SelectorName) -> Option<SelectorName> {
        None
    }

    fn is_part(&self, _: &SelectorName) -> bool {
        false
    }

    fn is_empty(&self) -> bool {
        self.node().first_child.is_none() && !self.node().has_text
    }

    fn is_root(&self) -> bool {
        self.node().parent.is_none()
    }

    fn add_element_unique_hashes(&self, _: &mut BloomFilter) -> bool {
        false
    }
}

/// Selectors for HTML: one namespace, and only features that depend on the page, not on a user who interacts with it.
#[derive(Clone, Debug)]
pub(crate) struct Html;

/// A name or value in a selector.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct SelectorName(Box<str>);

/// Only structural pseudo-classes are supported, and no pseudo-elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Never {}

impl SelectorImpl for Html {
    type ExtraMatchingData<'a> = ();
    type AttrValue = SelectorName;
    type Identifier = SelectorName;
    type LocalName = SelectorName;
    type NamespaceUrl = SelectorName;
    type NamespacePrefix = SelectorName;
    type BorrowedNamespaceUrl = str;
    type BorrowedLocalName = str;
    type NonTSPseudoClass = Never;
    type PseudoElement = Never;
}

impl<'i> Parser<'i> for Html {
    type Impl = Html;
    type Error = SelectorParseErrorKind<'i>;

    fn parse_is_and_where(&self) -> bool {
        true
    }
}

impl From<&str> for SelectorName {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl From<CowRcStr<'_>> for SelectorName {
    fn from(text: CowRcStr<'_>) -> Self {
        Self((*text).into())
    }
}

impl AsRef<str> for SelectorName {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

impl std::borrow::Borrow<str> for SelectorName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl PrecomputedHash for SelectorName {
    /// Hashes are for Bloom filters, which are not used here.
    fn precomputed_hash(&self) -> u32 {
        0
    }
}

impl ToCss for SelectorName {
    fn to_css<W: fmt::Write>(&self, out: &mut W) -> fmt::Result {
        serialize_identifier(&self.0, out)
    }
}

impl ToCss for Never {
    fn to_css<W: fmt::Write>(&self, _: &mut W) -> fmt::Result {
        match *self {}
    }
}

impl NonTSPseudoClass for Never {
    type Impl = Html;

    fn is_active_or_hover(&self) -> bool {
        match *self {}
    }

    fn is_user_action_state(&self) -> bool {
        match *self {}
    }
}

impl PseudoElement for Never {
    type Impl = Html;
}
