//! Tracks the open elements of a page from its tags, without a tree: adds end tags that HTML permits to omit, and skips those that
//! end nothing. Its cost depends only on the number of tags.

use std::collections::HashMap;

/// Maximum nesting of open elements; deeper content belongs to the last of them, as in browsers.
const DEPTH: usize = 512;

/// The open elements, outermost first.
#[derive(Default)]
pub(crate) struct Outline {
    open: Vec<OpenElement>,
    /// How many elements of each name are open.
    counts: HashMap<Box<[u8]>, u32>,
    /// Start tags beyond [`DEPTH`] whose end tags have not come yet.
    beyond: usize,
}

struct OpenElement {
    name: Box<[u8]>,
    element: usize,
}

impl Outline {
    /// How many elements are open.
    pub(crate) fn depth(&self) -> usize {
        self.open.len()
    }

    /// The number of the innermost open element.
    pub(crate) fn innermost(&self) -> Option<usize> {
        self.open.last().map(|open| open.element)
    }

    /// Ends elements that lack their end tag and cannot contain a `name`.
    pub(crate) fn before(&mut self, name: &[u8]) {
        while self
            .open
            .last()
            .is_some_and(|open| ends_before(&open.name, name))
        {
            self.truncate(self.open.len() - 1);
        }
    }

    /// Opens an element, unless it is a void element.
    pub(crate) fn open(&mut self, name: &[u8], element: usize) {
        if is_void(name) {
            return;
        }
        if self.open.len() == DEPTH {
            self.beyond += 1;
            return;
        }
        *self.counts.entry(name.into()).or_default() += 1;
        self.open.push(OpenElement {
            name: name.into(),
            element,
        });
    }

    /// The index, from the outermost, of the element that an end tag ends; `None` if it ends none.
    pub(crate) fn ended_by(&mut self, name: &[u8]) -> Option<usize> {
        if self.beyond > 0 {
            self.beyond -= 1;
            return None;
        }
        self.counts.get(name).filter(|count| **count > 0)?;
        self.open.iter().rposition(|open| *open.name == *name)
    }

    /// Ends all elements from index `depth` on.
    pub(crate) fn truncate(&mut self, depth: usize) {
        for open in self.open.drain(depth..) {
            if let Some(count) = self.counts.get_mut(&open.name) {
                *count -= 1;
            }
        }
    }
}

/// Elements without content and end tag (HTML, 13.1.2).
pub(crate) fn is_void(name: &[u8]) -> bool {
    const VOID: [&[u8]; 14] = [
        b"area", b"base", b"br", b"col", b"embed", b"hr", b"img", b"input", b"link", b"meta",
        b"param", b"source", b"track", b"wbr",
    ];
    VOID.contains(&name)
}

/// Line breaks before and after an element that begins a line of its own.
pub(crate) fn breaks_around(name: &[u8]) -> usize {
    match name {
        b"p" | b"h1" | b"h2" | b"h3" | b"h4" | b"h5" | b"h6" | b"blockquote" | b"pre"
        | b"table" | b"article" | b"section" | b"figure" | b"hr" | b"dl" => 2,
        b"div" | b"header" | b"footer" | b"main" | b"nav" | b"aside" | b"ul" | b"ol" | b"li"
        | b"dt" | b"dd" | b"tr" | b"form" | b"fieldset" | b"legend" | b"figcaption"
        | b"details" | b"summary" | b"address" | b"option" | b"caption" | b"title" | b"body"
        | b"br" | b"textarea" | b"button" | b"video" | b"audio" => 1,
        _ => 0,
    }
}

/// Whether `open`, which may lack its end tag, ends where `next` begins (HTML, 13.1.2.4).
fn ends_before(open: &[u8], next: &[u8]) -> bool {
    match open {
        b"li" => next == b"li",
        b"dt" | b"dd" => matches!(next, b"dt" | b"dd"),
        b"td" | b"th" => matches!(next, b"td" | b"th" | b"tr" | b"tbody" | b"tfoot"),
        b"tr" => matches!(next, b"tr" | b"tbody" | b"tfoot"),
        b"option" => matches!(next, b"option" | b"optgroup"),
        b"p" => breaks_around(next) == 2 || matches!(next, b"div" | b"ul" | b"ol" | b"form"),
        _ => false,
    }
}
