//! Converts a page to readable text: HTML without its tags, or only the elements that a selector matches.
//!
//! The page is untrusted. It is read as a stream of tags and texts in one pass: no tree is built, nothing recurses, and the result
//! is bounded, because a short relative link may stand for a long address.

use crate::outline::{Outline, breaks_around};
use crate::select::{SelectError, SelectedElements, Selector, tokens};
use crate::visibility::{Reason, Visibility};
use crate::work::StopCheck;
use html5gum::{StartTag, Token};
use orchestrator_reach::target::Target;
use std::borrow::Cow;

/// Maximum bytes of text from a page, whatever its links expand to.
pub const TEXT_MAX: usize = 4 << 20;
/// Maximum length of a displayed link address, in bytes.
const LINK_MAX: usize = 2000;
/// Maximum depth of list indentation.
const INDENT_MAX: usize = 8;

/// A page, or some elements of it, as text.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct PageText {
    pub title: Option<String>,
    /// Headings with `#`, list entries with `-`, links as `[text](address)`, and what is not displayed between two marks.
    pub text: String,
    /// How many elements the selector matched, if there was one.
    pub elements: Option<u64>,
    /// Whether the text is complete.
    pub complete: bool,
}

/// Reads HTML from `base`: all of it, or the elements that `selector` matches. Ends early when `stop` is set.
///
/// # Errors
/// Those of [`Selector::find`].
pub fn read(
    page: &str,
    base: &Target,
    selector: Option<&Selector>,
    stop: &StopCheck,
) -> Result<PageText, SelectError> {
    let chosen = selector
        .map(|selector| selector.find(page, stop))
        .transpose()?;
    let mut writer = TextWriter {
        base: Some(base),
        ..TextWriter::default()
    };
    let mut visibility = Visibility::new(page);
    let mut choice = chosen.as_ref().map(SelectedParts::new);
    let mut complete = chosen.as_ref().is_none_or(|chosen| chosen.complete);
    for token in tokens(page) {
        let Ok(token) = token;
        if let Token::StartTag(tag) = &token {
            writer.hidden_by = visibility.start(tag);
        }
        if choice
            .as_mut()
            .is_none_or(|choice| choice.admits(&token, &mut writer))
        {
            match &token {
                Token::StartTag(tag) => writer.start(tag),
                Token::EndTag(tag) => writer.end(&tag.name),
                Token::String(text) => writer.text(&String::from_utf8_lossy(&text.value)),
                Token::Comment(_) | Token::Doctype(_) | Token::Error(_) => {}
            }
        }
        if let Token::EndTag(tag) = &token {
            visibility.end(&tag.name);
        }
        writer.hidden_by = visibility.hidden_by();
        if writer.out.len() > TEXT_MAX || stop.is_set() {
            complete = false;
            break;
        }
    }
    let elements = chosen.as_ref().map(|chosen| chosen.elements.len() as u64);
    let (title, text) = writer.finish();
    Ok(PageText {
        title,
        text,
        elements,
        complete,
    })
}

/// The text of a fragment of HTML, such as a search result with emphasis.
pub(crate) fn fragment(html: &str) -> String {
    let mut writer = TextWriter::default();
    for token in tokens(html) {
        let Ok(token) = token;
        if let Token::String(text) = token {
            writer.text(&String::from_utf8_lossy(&text.value));
        }
    }
    writer.finish().1
}

/// The parts of a page to read if elements are selected: these with their content, and the title.
struct SelectedParts<'a> {
    /// Numbers of the selected elements that have not started yet.
    coming: &'a [usize],
    /// Number of start tags so far.
    started: usize,
    outline: Outline,
    /// How many elements were open outside the selected element that is being read.
    inside: Option<usize>,
}

impl<'a> SelectedParts<'a> {
    fn new(chosen: &'a SelectedElements) -> Self {
        Self {
            coming: &chosen.elements,
            started: 0,
            outline: Outline::default(),
            inside: None,
        }
    }

    /// Whether to read `token`.
    fn admits(&mut self, token: &Token, writer: &mut TextWriter<'_>) -> bool {
        match token {
            Token::StartTag(tag) => self.start(tag, writer),
            Token::EndTag(tag) => self.end(&tag.name, writer),
            Token::String(_) => self.inside.is_some() || writer.in_title,
            Token::Comment(_) | Token::Doctype(_) | Token::Error(_) => false,
        }
    }

    fn start(&mut self, tag: &StartTag<()>, writer: &mut TextWriter<'_>) -> bool {
        self.outline.before(&tag.name);
        self.end_chosen(writer);
        let is_chosen = self.coming.first() == Some(&self.started);
        if is_chosen {
            self.coming = &self.coming[1..];
            if self.inside.is_none() {
                writer.pause();
            }
        }
        let (is_read, depth) = (is_chosen || self.inside.is_some(), self.outline.depth());
        if !tag.self_closing {
            self.outline.open(&tag.name, self.started);
        }
        if is_chosen && self.inside.is_none() && self.outline.depth() > depth {
            self.inside = Some(depth);
        }
        self.started += 1;
        is_read || *tag.name == *b"title"
    }

    /// Ends elements. An end tag is written here, because what follows it may be outside the selection.
    fn end(&mut self, name: &[u8], writer: &mut TextWriter<'_>) -> bool {
        let Some(depth) = self.outline.ended_by(name) else {
            return false;
        };
        if self.inside.is_some_and(|outside| outside <= depth) || *name == *b"title" {
            writer.end(name);
        }
        self.outline.truncate(depth);
        self.end_chosen(writer);
        false
    }

    /// Records the end of the selected element, if it has ended.
    fn end_chosen(&mut self, writer: &mut TextWriter<'_>) {
        if self
            .inside
            .is_some_and(|outside| outside >= self.outline.depth())
        {
            self.inside = None;
            writer.pause();
        }
    }
}

#[derive(Default)]
struct TextWriter<'a> {
    base: Option<&'a Target>,
    out: String,
    title: Option<String>,
    /// Line breaks to write before the next word.
    breaks: usize,
    /// Whether to write a space before the next word.
    space: bool,
    /// The element whose content is hidden until it ends.
    hidden: Option<Vec<u8>>,
    in_title: bool,
    /// Number of open `pre` elements.
    preformatted: usize,
    /// Number of open lists.
    lists: usize,
    /// Where the text of an open link begins, and the link's target as the page has it.
    link: Option<(usize, String)>,
    /// Why what comes now is not displayed, if it is not.
    hidden_by: Option<Reason>,
    /// Whether the mark of hidden text is open in `out`.
    is_marked: bool,
}

/// Elements whose content is not text.
fn is_hidden(name: &[u8]) -> bool {
    matches!(
        name,
        b"script"
            | b"style"
            | b"template"
            | b"iframe"
            | b"noembed"
            | b"noframes"
            | b"object"
            | b"svg"
            | b"math"
    )
}

/// Encloses what a browser does not display. A page's own text cannot contain these brackets.
const HIDDEN: [char; 2] = ['⟦', '⟧'];
const HIDDEN_END: &str = " ⟦end of hidden text⟧";

/// A text of the page without the brackets of our marks.
fn unmarked(text: &str) -> Cow<'_, str> {
    if text.contains(HIDDEN) {
        Cow::Owned(text.replace(HIDDEN[0], "[[").replace(HIDDEN[1], "]]"))
    } else {
        Cow::Borrowed(text)
    }
}

impl TextWriter<'_> {
    fn start(&mut self, tag: &StartTag<()>) {
        let name: &[u8] = &tag.name;
        if self.hidden.is_some() {
            return;
        }
        if is_hidden(name) {
            self.hidden = (!tag.self_closing).then(|| name.to_vec());
            return;
        }
        self.breaks = self.breaks.max(breaks_around(name));
        match name {
            b"title" => self.in_title = self.title.is_none(),
            b"h1" | b"h2" | b"h3" | b"h4" | b"h5" | b"h6" => {
                self.word(&"#".repeat(usize::from(name[1] - b'0')));
                self.space = true;
            }
            b"li" => {
                let indent = "  ".repeat(self.lists.saturating_sub(1).min(INDENT_MAX));
                self.word(&format!("{indent}-"));
                self.space = true;
            }
            b"ul" | b"ol" => self.lists += 1,
            b"pre" => {
                self.word("```");
                self.breaks = 1;
                self.preformatted += 1;
            }
            b"hr" => {
                self.word("---");
                self.breaks = 2;
            }
            b"td" | b"th" if !self.out.ends_with('\n') && self.breaks == 0 => {
                self.word(" |");
                self.space = true;
            }
            b"img" => self.image(tag),
            b"a" => self.open_link(tag),
            _ => {}
        }
    }

    /// A part of the page is left out here: ends what is open and begins a new line.
    fn pause(&mut self) {
        self.close_link();
        if self.preformatted > 0 {
            self.breaks = 1;
            self.word("```");
        }
        (self.hidden, self.preformatted, self.lists, self.in_title) = (None, 0, 0, false);
        self.breaks = self.breaks.max(1);
    }

    fn end(&mut self, name: &[u8]) {
        if let Some(hidden) = &self.hidden {
            if hidden == name {
                self.hidden = None;
            }
            return;
        }
        match name {
            b"title" => self.in_title = false,
            b"ul" | b"ol" => self.lists = self.lists.saturating_sub(1),
            b"a" => self.close_link(),
            b"pre" if self.preformatted > 0 => {
                self.preformatted -= 1;
                self.breaks = 1;
                self.word("```");
            }
            _ => {}
        }
        self.breaks = self.breaks.max(breaks_around(name));
    }

    fn text(&mut self, text: &str) {
        if self.hidden.is_some() {
            return;
        }
        if self.in_title {
            let title = unmarked(text)
                .split_whitespace()
                .collect::<Vec<_>>()
                .join(" ");
            self.title = Some(title).filter(|title| !title.is_empty());
            self.in_title = false;
        } else if self.preformatted > 0 {
            self.verbatim(text);
        } else {
            self.space |= text.starts_with(char::is_whitespace);
            for (index, word) in text.split_whitespace().enumerate() {
                self.space |= index > 0;
                self.word(word);
            }
            self.space |= text.ends_with(char::is_whitespace);
        }
    }

    /// Adds a word after the pending space or line breaks.
    fn word(&mut self, word: &str) {
        self.write_due();
        self.begin_hidden();
        self.out.push_str(&unmarked(word));
    }

    fn verbatim(&mut self, text: &str) {
        if !text.is_empty() {
            self.write_due();
            self.begin_hidden();
            self.out.push_str(&unmarked(text));
        }
    }

    /// Marks what follows, if a browser does not display it.
    fn begin_hidden(&mut self) {
        if let Some(reason) = self.hidden_by.filter(|_| !self.is_marked) {
            self.out
                .push_str(&format!("{}hidden: {reason}{} ", HIDDEN[0], HIDDEN[1]));
            self.is_marked = true;
        }
    }

    /// Ends the mark before what is displayed.
    fn end_hidden(&mut self) {
        if std::mem::take(&mut self.is_marked) {
            self.out.push_str(HIDDEN_END);
        }
    }

    /// Writes the pending space or line breaks.
    fn write_due(&mut self) {
        if self.hidden_by.is_none() {
            self.end_hidden();
        }
        if self.breaks > 0 && !self.out.is_empty() {
            // Looks back no further than needed: a page may have a million line breaks there.
            let there = self
                .out
                .bytes()
                .rev()
                .take(self.breaks)
                .take_while(|byte| *byte == b'\n')
                .count();
            self.out
                .extend(std::iter::repeat_n('\n', self.breaks.saturating_sub(there)));
        } else if self.space && !self.out.is_empty() && !self.out.ends_with(['\n', ' ']) {
            self.out.push(' ');
        }
        (self.breaks, self.space) = (0, false);
    }

    fn image(&mut self, tag: &StartTag<()>) {
        let words = attribute(tag, b"alt")
            .map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "));
        if let Some(words) = words.filter(|words| !words.is_empty()) {
            self.word(&format!("[image: {words}]"));
        }
    }

    fn open_link(&mut self, tag: &StartTag<()>) {
        self.close_link();
        let leads =
            |href: &String| !href.is_empty() && !href.starts_with('#') && href.len() <= LINK_MAX;
        let Some(href) = attribute(tag, b"href").filter(leads) else {
            return;
        };
        self.write_due();
        self.link = Some((self.out.len(), href));
    }

    /// A link without text is left out: nothing could represent it.
    fn close_link(&mut self) {
        let Some((start, href)) = self.link.take() else {
            return;
        };
        if self
            .out
            .get(start..)
            .is_none_or(|words| words.trim().is_empty())
        {
            return;
        }
        let target = self
            .base
            .and_then(|base| base.join(href.trim()).ok())
            .map(|target| target.to_string());
        if self.hidden_by.is_none() {
            self.end_hidden();
        }
        if let Some(target) = target.filter(|target| target.len() <= LINK_MAX) {
            self.out.insert(start, '[');
            self.out.push_str(&format!("]({target})"));
        }
    }

    fn finish(mut self) -> (Option<String>, String) {
        self.close_link();
        self.end_hidden();
        self.hidden_by = None;
        if self.preformatted > 0 {
            self.breaks = 1;
            self.word("```");
        }
        (
            self.title,
            self.out.trim_matches('\n').trim_end().to_owned(),
        )
    }
}

fn attribute(tag: &StartTag<()>, name: &[u8]) -> Option<String> {
    tag.attributes
        .get(name)
        .map(|value| String::from_utf8_lossy(&value.value).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::select::FOUND_MAX;
    use std::time::{Duration, Instant};

    fn read(page: &str) -> PageText {
        super::read(
            page,
            &Target::parse("https://a.example/d/p").unwrap(),
            None,
            &StopCheck::default(),
        )
        .unwrap()
    }

    /// The text that a selector matches in a page.
    fn chosen(page: &str, selector: &str) -> String {
        let selector = Selector::parse(selector).unwrap();
        super::read(
            page,
            &Target::parse("https://a.example/d/p").unwrap(),
            Some(&selector),
            &StopCheck::default(),
        )
        .unwrap()
        .text
    }

    #[test]
    fn a_selector_means_elements_with_all_that_is_in_them() {
        let page = "<title>T</title><nav><a href=/n>nav</a></nav><main id=m><h1>Head</h1><p class=x>One <b>two</b><p>Three\
            <ul><li>a<li class=x>b</ul><pre>c\n d</pre></main><footer><p class=x>foot <a href=/f>link</a></footer>";
        for (selector, want) in [
            (
                "main",
                "# Head\n\nOne two\n\nThree\n- a\n- b\n\n```\nc\n d\n```",
            ),
            ("#m > h1", "# Head"),
            ("p.x", "One two\n\nfoot [link](https://a.example/f)"),
            (".x", "One two\n- b\n\nfoot [link](https://a.example/f)"),
            (
                "main, main li, footer a",
                "# Head\n\nOne two\n\nThree\n- a\n- b\n\n```\nc\n d\n```\n\n[link](https://a.example/f)",
            ),
            ("a[href^='/f']", "[link](https://a.example/f)"),
            ("b", "two"),
            (
                "a",
                "[nav](https://a.example/n)\n[link](https://a.example/f)",
            ),
        ] {
            assert_eq!(chosen(page, selector), want, "{selector}");
        }
        let selector = Selector::parse("b").unwrap();
        let read = super::read(
            page,
            &Target::parse("https://a.example/").unwrap(),
            Some(&selector),
            &StopCheck::default(),
        )
        .unwrap();
        assert_eq!(read.title.as_deref(), Some("T"));
    }

    #[test]
    fn a_chosen_element_ends_where_it_does_however_a_page_is_broken() {
        for (page, selector, want) in [
            ("<div><p id=a>in</div>out", "#a", "in"),
            ("<div id=a>in</span></p>in</div>out", "#a", "inin"),
            ("<div id=a><div>in</div>in</div>out", "#a", "in\nin"),
            ("<div id=a><div>in</div>in", "#a", "in\nin"),
            (
                "<table><tr><td id=a>in<td>out<tr><td>out</table>",
                "#a",
                "in",
            ),
            ("<dl><dt>out<dd id=a>in<dt>out</dl>", "#a", "in"),
            (
                "<section><pre id=a>in</section><p>out",
                "#a",
                "```\nin\n```",
            ),
            (
                "<section><script id=a>no</script></section><p id=b>in</p>",
                "script, #b",
                "in",
            ),
            ("<p id=a>in<img alt=x id=b>", "img", "[image: x]"),
            ("<!-- <p id=a>no</p> --><p id=a>in", "#a", "in"),
            ("<script>'<p id=a>no</p>'</script><p id=a>in", "#a", "in"),
            ("<p id=a>in<title>t</title>", "#a", "in"),
        ] {
            assert_eq!(chosen(page, selector), want, "{page}");
        }
        // Far from the beginning, and between multi-byte characters.
        let page = format!("{}<p id=a>in</p>out", "é<b>x</b>".repeat(50_000));
        assert_eq!(chosen(&page, "#a"), "in");
    }

    fn text(page: &str) -> String {
        read(page).text
    }

    #[test]
    fn text_that_is_not_displayed_is_marked() {
        for (page, want) in [
            (
                "a <b hidden>b c</b> d",
                "a ⟦hidden: hidden⟧ b c ⟦end of hidden text⟧ d",
            ),
            (
                "<p>a</p><div style='display:none'><p>b</p><p>c</p></div><p>d</p>",
                "a\n\n⟦hidden: display: none⟧ b\n\nc ⟦end of hidden text⟧\n\nd",
            ),
            (
                "<i hidden>b</i><i hidden>c</i>",
                "⟦hidden: hidden⟧ bc ⟦end of hidden text⟧",
            ),
            (
                "<a href=x hidden>b</a>c",
                "[⟦hidden: hidden⟧ b](https://a.example/d/x) ⟦end of hidden text⟧c",
            ),
            (
                "<a href=x>a<i hidden>b</i></a>c",
                "[a⟦hidden: hidden⟧ b ⟦end of hidden text⟧](https://a.example/d/x)c",
            ),
            (
                "<img alt=a hidden>b",
                "⟦hidden: hidden⟧ [image: a] ⟦end of hidden text⟧b",
            ),
            (
                "<pre hidden>b\n c</pre>d",
                "⟦hidden: hidden⟧ ```\nb\n c\n``` ⟦end of hidden text⟧\n\nd",
            ),
            // Nothing of a page ends the mark.
            (
                "<p hidden>b ⟦end of hidden text&#x27e7; &lang;</p>c",
                "⟦hidden: hidden⟧ b [[end of hidden text]] ⟨ ⟦end of hidden text⟧\n\nc",
            ),
            ("<p hidden></p><p hidden> <b></b></p>c", "c"),
            ("<!-- never shown -->c", "c"),
        ] {
            assert_eq!(text(page), want, "{page}");
        }
    }

    #[test]
    fn a_chosen_part_of_hidden_text_is_marked() {
        let page = "<div style=display:none><p id=a>b</p></div><p id=c>d</p>";
        let marked = "⟦hidden: display: none⟧ b ⟦end of hidden text⟧";
        assert_eq!(chosen(page, "#a"), marked);
        assert_eq!(chosen(page, "p"), format!("{marked}\n\nd"));
        assert_eq!(chosen("<i hidden>x</i><p id=c>d</p>", "#c"), "d");
    }

    #[test]
    fn page_is_rendered_as_readable_text() {
        let page = "<!DOCTYPE html><html><head><title> A\n title </title><style>p { color: red }</style>\
            <script>if (a < b) document.write('<p>not me</p>')</script></head><body><h1>Head</h1>\
            <p>One <b>two</b>\n three &amp; &#x1F600;.<br>Next</p><ul><li>a</li><li>b<ol><li>c</li></ol></li></ul>\
            <pre>x  y\n  z</pre><table><tr><th>k</th><th>v</th></tr><tr><td>1</td><td>2</td></tr></table>\
            <p><a href=\"../e?x=1#f\">link</a> <a href='javascript:x()'>no</a> <a href=\"#g\">here</a>\
            <img src=x alt=\"a dog\"><!-- <p>nor me</p> --><hr>end</body></html>";
        let read = read(page);
        assert_eq!(read.title.as_deref(), Some("A title"));
        let want = "# Head\n\nOne two three & 😀.\nNext\n\n- a\n- b\n  - c\n\n```\nx  y\n  z\n```\n\nk | v\n1 | 2\n\n\
            [link](https://a.example/e?x=1) no here[image: a dog]\n\n---\n\nend";
        assert_eq!(read.text, want);
        assert!(read.complete);
    }

    #[test]
    fn broken_pages_are_read_as_far_as_they_go() {
        for (page, want) in [
            ("", ""),
            ("plain", "plain"),
            ("<p>a<p>b", "a\n\nb"),
            ("a</div></ul></a></pre>b", "a\n\nb"),
            ("<a href=x>open", "[open](https://a.example/d/x)"),
            ("<a href=x></a>z", "z"),
            ("<pre>open", "```\nopen\n```"),
            ("<script>never closed <p>a", ""),
            ("<p", ""),
            ("a &bogus; b &#0; c", "a &bogus; b \u{fffd} c"),
            (
                "<a href=x>one<a href=y>two</a>",
                "[one](https://a.example/d/x)[two](https://a.example/d/y)",
            ),
            ("<svg><text>x</text></svg>y", "y"),
            (
                "<noscript>z</noscript>",
                "⟦hidden: noscript⟧ z ⟦end of hidden text⟧",
            ),
            ("<textarea><p>t</textarea>", "<p>t"),
        ] {
            assert_eq!(text(page), want, "{page}");
        }
        assert_eq!(
            fragment("a <strong>b</strong> &lt;c&gt;<script>"),
            "a b <c>"
        );
    }

    #[test]
    fn hostile_pages_take_no_more_than_their_length() {
        let link = Target::parse(&format!("https://a.example/{}/", "x".repeat(1900))).unwrap();
        let deep = "<div><ul><li><blockquote><table><tr><td>".repeat(10_000);
        let cases = [
            ("marks", "<i hidden>a</i>b".repeat(50_000)),
            ("depth", deep),
            ("pre", "<pre>".repeat(80_000)),
            ("links", "<a href=x>y".repeat(170_000)),
            (
                "attributes",
                format!(
                    "<p {}>",
                    (0..40_000).map(|n| format!("a{n}=1 ")).collect::<String>()
                ),
            ),
            ("open", "<".repeat(1 << 19)),
            ("entities", "&amp".repeat(120_000)),
            ("comment", "<!--".repeat(120_000)),
            ("breaks", "<br><p>".repeat(70_000)),
            ("line ends", format!("<pre>{}", "\n".repeat(1_000_000))),
            (
                "breaks in pre",
                format!("<pre>{}{}", "\n".repeat(1_000_000), "<br>".repeat(200_000)),
            ),
            ("links without words", "<a href=x></a>".repeat(140_000)),
            ("attribute", format!("<p a='{}'>", "x".repeat(2_000_000))),
            ("title", format!("<title>{}", "a\n".repeat(500_000))),
            ("cells", "<td>".repeat(200_000)),
            (
                "line ends and breaks",
                format!("<pre>{}", "\n\n\n\n\n<br>".repeat(200_000)),
            ),
        ];
        for (name, page) in cases {
            let start = Instant::now();
            let read = super::read(&page, &link, None, &StopCheck::default()).unwrap();
            let took = start.elapsed();
            assert!(
                read.text.len() <= TEXT_MAX + LINK_MAX + 100,
                "{name}: {}",
                read.text.len()
            );
            assert_eq!(read.complete, name != "links", "{name}");
            // In a debug build; quadratic work would take minutes.
            assert!(took < Duration::from_secs(60), "{name}: {took:?}");
            println!("{name}: {} bytes in {took:?}", page.len());
        }
    }

    #[test]
    fn hostile_pages_and_selectors_take_no_more_than_their_bounds() {
        let link = Target::parse("https://a.example/").unwrap();
        let names = "<b a=1><i b=2><u c=3>";
        let cases = [
            ("depth", "<div>".repeat(200_000)),
            (
                "up and down",
                format!("{}{}", "<div>".repeat(9_000), "<i></i>".repeat(100_000)),
            ),
            (
                "formatting",
                format!(
                    "<p>{}</p>{}",
                    names.repeat(20_000),
                    "<p>x</p>".repeat(50_000)
                ),
            ),
            (
                "ends of nothing",
                format!("{}{}", "<div>".repeat(9_000), "</x>".repeat(200_000)),
            ),
            ("siblings", "<p>x</p>".repeat(100_000)),
            ("one tag", format!("<p {}", "a=1 ".repeat(500_000))),
            ("quote", format!("<p a=\"{}", "x".repeat(2_000_000))),
            ("script", "<script>".repeat(100_000)),
        ];
        let selectors = [
            "*",
            "div div div div div div i",
            "p:nth-of-type(2n+1)",
            "b > i > u > b i u p",
            "no",
            ":not(p):not(i)",
        ];
        for (name, page) in &cases {
            for selector in selectors {
                let start = Instant::now();
                let read = super::read(
                    page,
                    &link,
                    Some(&Selector::parse(selector).unwrap()),
                    &StopCheck::default(),
                );
                if let Ok(read) = &read {
                    assert!(read.elements <= Some(FOUND_MAX as u64), "{name} {selector}");
                    assert!(read.text.len() <= 2 * TEXT_MAX, "{name} {selector}");
                }
                let took = start.elapsed();
                println!(
                    "{name}, {selector}: {:?} in {took:?}",
                    read.map(|read| read.elements)
                );
                // Steps bound the work; this only distinguishes a hang from a busy machine.
                assert!(
                    took < Duration::from_secs(60),
                    "{name} {selector}: {took:?}"
                );
            }
        }
    }
}
