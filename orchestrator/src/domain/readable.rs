//! A page becomes text that reads well: what it was written in, and then HTML without its tags.
//!
//! The page is a stranger's. It is read as a stream of tags and texts in one pass: no tree is built, nothing recurses, and
//! the result has a bound, because a short relative link may stand for a long address.

use super::text::is_unsafe;
use super::web::Target;
use encoding_rs::{Encoding, UTF_8};
use html5gum::emitters::default::DefaultEmitter;
use html5gum::{HtmlString, StartTag, Token, Tokenizer};
use std::collections::HashMap;

/// Most bytes of text that a page gives, whatever its links stand for.
pub const TEXT_MAX: usize = 4 << 20;
/// Longest address of a link that is shown, in bytes.
const LINK_MAX: usize = 2000;
/// How far into a page its own word about its encoding is looked for: what browsers do.
const PRESCAN: usize = 1024;
/// Deepest list that is indented further than the one around it.
const INDENT_MAX: usize = 8;

/// What kind of text a media type is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A page.
    Html,
    /// Text that is shown as it is.
    Plain,
}

/// The kind of `media`, such as `text/html`, in lower case and without parameters; none if it is no text.
pub fn kind(media: &str) -> Option<Kind> {
    const PLAIN: [&str; 12] = [
        "application/json",
        "application/xml",
        "application/javascript",
        "application/ecmascript",
        "application/x-javascript",
        "application/yaml",
        "application/x-yaml",
        "application/toml",
        "application/x-ndjson",
        "application/graphql",
        "application/sql",
        "application/x-sh",
    ];
    match media {
        "text/html" | "application/xhtml+xml" => Some(Kind::Html),
        _ if media.starts_with("text/") || PLAIN.contains(&media) => Some(Kind::Plain),
        _ if media.ends_with("+json") || media.ends_with("+xml") || media.ends_with("+yaml") => {
            Some(Kind::Plain)
        }
        _ => None,
    }
}

/// `bytes` as text, by a mark at their beginning, else by what the server said, else by what the page says, else UTF-8.
/// What is left of a character where `cut` says that bytes are missing is left out; controls are taken out.
pub fn decode(bytes: &[u8], charset: Option<&str>, kind: Kind, cut: bool) -> String {
    let named = charset.and_then(|label| Encoding::for_label(label.as_bytes()));
    let own = || (kind == Kind::Html).then(|| prescan(bytes)).flatten();
    let (text, _, _) = named.or_else(own).unwrap_or(UTF_8).decode(bytes);
    let text = if cut { text.trim_end_matches('\u{fffd}') } else { &text };
    text.chars().filter(|c| !is_unsafe(*c) || matches!(c, '\n' | '\t')).collect()
}

/// The encoding that a page names in a `meta` tag near its beginning.
fn prescan(bytes: &[u8]) -> Option<&'static Encoding> {
    const WORD: &[u8] = b"charset";
    let start = bytes[..bytes.len().min(PRESCAN)].to_ascii_lowercase();
    let at = start.windows(WORD.len()).position(|window| window == WORD)? + WORD.len();
    let label: Vec<u8> = start[at..]
        .iter()
        .skip_while(|byte| b" \t\r\n='\"".contains(byte))
        .take_while(|byte| byte.is_ascii_alphanumeric() || b"-_:.".contains(byte))
        .copied()
        .collect();
    let encoding = Encoding::for_label(&label)?;
    // A page whose tag could be read is not in UTF-16, whatever it says.
    Some(if encoding.is_ascii_compatible() { encoding } else { UTF_8 })
}

/// What a page says.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Readable {
    /// Its title.
    pub title: Option<String>,
    /// Its text: headings with `#`, list entries with `-`, links as `[text](address)`.
    pub text: String,
    /// Whether that is all of it.
    pub whole: bool,
}

/// Reads HTML that was found at `base`: all of it, or the elements whose start tags stand at `chosen`, in order.
pub fn html(page: &str, base: &Target, chosen: Option<&[usize]>) -> Readable {
    let mut emitter = DefaultEmitter::new_with_span();
    emitter.naively_switch_states(true);
    let mut writer = Writer { base: Some(base), ..Writer::default() };
    let mut choice = chosen.map(Choice::new);
    for token in Tokenizer::new_with_emitter(page, emitter) {
        let Ok(token) = token;
        if choice.as_mut().is_none_or(|choice| choice.admits(&token, &mut writer)) {
            match token {
                Token::StartTag(tag) => writer.start(&tag),
                Token::EndTag(tag) => writer.end(&tag.name),
                Token::String(text) => writer.text(&String::from_utf8_lossy(&text.value)),
                Token::Comment(_) | Token::Doctype(_) | Token::Error(_) => {}
            }
        }
        if writer.out.len() > TEXT_MAX {
            return writer.finish(false);
        }
    }
    writer.finish(true)
}

/// What of a page is read where elements are chosen: these, with all that is in them, and the title.
struct Choice<'a> {
    /// Where the chosen elements begin that have not come yet.
    starts: &'a [usize],
    /// Names of the elements that are open, from the outermost, and how many of each name.
    open: Vec<HtmlString>,
    counts: HashMap<HtmlString, usize>,
    /// How many were open outside of the chosen element that is being read.
    inside: Option<usize>,
}

impl<'a> Choice<'a> {
    fn new(starts: &'a [usize]) -> Self {
        Self { starts, open: Vec::new(), counts: HashMap::new(), inside: None }
    }

    /// Whether `token` is to be read.
    fn admits(&mut self, token: &Token<usize>, writer: &mut Writer<'_>) -> bool {
        match token {
            Token::StartTag(tag) => self.start(tag, writer),
            Token::EndTag(tag) => self.end(&tag.name, writer),
            Token::String(_) => self.inside.is_some() || writer.in_title,
            Token::Comment(_) | Token::Doctype(_) | Token::Error(_) => false,
        }
    }

    fn start(&mut self, tag: &StartTag<usize>, writer: &mut Writer<'_>) -> bool {
        while self.open.last().is_some_and(|open| ends_before(open, &tag.name)) {
            self.close(self.open.len() - 1, writer);
        }
        let at = tag.span.start;
        self.starts = &self.starts[self.starts.partition_point(|start| *start < at)..];
        let is_chosen = self.starts.first() == Some(&at);
        if is_chosen && self.inside.is_none() {
            writer.pause();
        }
        let is_read = is_chosen || self.inside.is_some();
        if !is_void(&tag.name) && !tag.self_closing {
            if is_chosen && self.inside.is_none() {
                self.inside = Some(self.open.len());
            }
            *self.counts.entry(tag.name.clone()).or_default() += 1;
            self.open.push(tag.name.clone());
        }
        is_read || *tag.name == *b"title"
    }

    fn end(&mut self, name: &HtmlString, writer: &mut Writer<'_>) -> bool {
        if self.counts.get(name).is_none_or(|count| *count == 0) {
            // It ends nothing.
            return false;
        }
        let Some(place) = self.open.iter().rposition(|open| open == name) else { return false };
        let is_read = self.inside.is_some_and(|outside| outside <= place) || **name == *b"title";
        if is_read {
            writer.end(name);
        }
        self.close(place, writer);
        // It is read already: what comes after it may be outside.
        false
    }

    /// Ends the element at `place`, and all in it.
    fn close(&mut self, place: usize, writer: &mut Writer<'_>) {
        for name in self.open.drain(place..) {
            if let Some(count) = self.counts.get_mut(&name) {
                *count -= 1;
            }
        }
        if self.inside.is_some_and(|outside| outside >= place) {
            self.inside = None;
            writer.pause();
        }
    }
}

/// Elements that have no content and no end tag.
fn is_void(name: &[u8]) -> bool {
    matches!(
        name,
        b"area"
            | b"base"
            | b"br"
            | b"col"
            | b"embed"
            | b"hr"
            | b"img"
            | b"input"
            | b"link"
            | b"meta"
            | b"param"
            | b"source"
            | b"track"
            | b"wbr"
    )
}

/// Whether `open`, which may lack its end tag, is over where `next` begins.
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

/// The text of a piece of HTML, such as a search result with emphasis in it.
pub fn fragment(html: &str) -> String {
    let mut writer = Writer::default();
    for token in Tokenizer::new(html) {
        let Ok(token) = token;
        if let Token::String(text) = token {
            writer.text(&String::from_utf8_lossy(&text.value));
        }
    }
    writer.finish(true).text
}

/// Text under way.
#[derive(Default)]
struct Writer<'a> {
    base: Option<&'a Target>,
    out: String,
    title: Option<String>,
    /// Line ends that come before the next word.
    breaks: usize,
    /// Whether a space comes before the next word.
    space: bool,
    /// The element whose content is not shown, until its end.
    hidden: Option<Vec<u8>>,
    in_title: bool,
    /// Inside how many `pre`.
    preformatted: usize,
    /// Inside how many lists.
    lists: usize,
    /// Where the text of an open link begins, and where it leads.
    link: Option<(usize, String)>,
}

/// Elements that begin a line of their own, with the line ends before and after them.
fn breaks_around(name: &[u8]) -> usize {
    match name {
        b"p" | b"h1" | b"h2" | b"h3" | b"h4" | b"h5" | b"h6" | b"blockquote" | b"pre" | b"table"
        | b"article" | b"section" | b"figure" | b"hr" | b"dl" => 2,
        b"div" | b"header" | b"footer" | b"main" | b"nav" | b"aside" | b"ul" | b"ol" | b"li" | b"dt"
        | b"dd" | b"tr" | b"form" | b"fieldset" | b"legend" | b"figcaption" | b"details" | b"summary"
        | b"address" | b"option" | b"caption" | b"title" | b"body" | b"br" | b"textarea" | b"button"
        | b"video" | b"audio" => 1,
        _ => 0,
    }
}

/// Elements whose content nobody reads.
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

impl Writer<'_> {
    fn start(&mut self, tag: &StartTag<usize>) {
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

    /// Here something is left out: what is open there ends, and what comes next begins a line.
    fn pause(&mut self) {
        self.close_link();
        if self.preformatted > 0 {
            self.breaks = 1;
            self.word("```");
        }
        (self.hidden, self.preformatted, self.lists, self.in_title) = (None, 0, 0, false);
        self.breaks = self.breaks.max(1);
    }

    fn end(&mut self, name: &HtmlString) {
        let name: &[u8] = name;
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
            let title = text.split_whitespace().collect::<Vec<_>>().join(" ");
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

    /// Adds a word, after what was due before it.
    fn word(&mut self, word: &str) {
        self.settle();
        self.out.push_str(word);
    }

    fn verbatim(&mut self, text: &str) {
        if !text.is_empty() {
            self.settle();
            self.out.push_str(text);
        }
    }

    /// Writes the line ends or the space that are due.
    fn settle(&mut self) {
        if self.breaks > 0 && !self.out.is_empty() {
            let there = self.out.bytes().rev().take_while(|byte| *byte == b'\n').count();
            self.out.extend(std::iter::repeat_n('\n', self.breaks.saturating_sub(there)));
        } else if self.space && !self.out.is_empty() && !self.out.ends_with(['\n', ' ']) {
            self.out.push(' ');
        }
        (self.breaks, self.space) = (0, false);
    }

    fn image(&mut self, tag: &StartTag<usize>) {
        let words = attribute(tag, b"alt").map(|text| text.split_whitespace().collect::<Vec<_>>().join(" "));
        if let Some(words) = words.filter(|words| !words.is_empty()) {
            self.word(&format!("[image: {words}]"));
        }
    }

    fn open_link(&mut self, tag: &StartTag<usize>) {
        self.close_link();
        let leads = |href: &String| !href.is_empty() && !href.starts_with('#');
        let target = attribute(tag, b"href").filter(leads).and_then(|href| self.base?.join(href.trim()).ok());
        let Some(target) = target.map(|target| target.to_string()).filter(|text| text.len() <= LINK_MAX)
        else {
            return;
        };
        self.settle();
        self.link = Some((self.out.len(), target));
    }

    /// A link without words is left out: there is nothing that it could be a link of.
    fn close_link(&mut self) {
        let Some((start, target)) = self.link.take() else { return };
        if self.out.get(start..).is_some_and(|words| !words.trim().is_empty()) {
            self.out.insert(start, '[');
            self.out.push_str(&format!("]({target})"));
        }
    }

    fn finish(mut self, whole: bool) -> Readable {
        self.close_link();
        if self.preformatted > 0 {
            self.breaks = 1;
            self.word("```");
        }
        Readable { title: self.title, text: self.out.trim_matches('\n').trim_end().to_owned(), whole }
    }
}

fn attribute(tag: &StartTag<usize>, name: &[u8]) -> Option<String> {
    tag.attributes.get(name).map(|value| String::from_utf8_lossy(&value.value).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::select::{ELEMENTS_MAX, Selector};
    use std::time::{Duration, Instant};

    fn read(page: &str) -> Readable {
        html(page, &Target::parse("https://a.example/d/p").unwrap(), None)
    }

    /// What of a page a selector means.
    fn chosen(page: &str, selector: &str) -> String {
        let (starts, _) = Selector::parse(selector).unwrap().find(page).unwrap();
        html(page, &Target::parse("https://a.example/d/p").unwrap(), Some(&starts)).text
    }

    #[test]
    fn a_selector_means_elements_with_all_that_is_in_them() {
        let page = "<title>T</title><nav><a href=/n>nav</a></nav><main id=m><h1>Head</h1><p class=x>One <b>two</b><p>Three\
            <ul><li>a<li class=x>b</ul><pre>c\n d</pre></main><footer><p class=x>foot <a href=/f>link</a></footer>";
        for (selector, want) in [
            ("main", "# Head\n\nOne two\n\nThree\n- a\n- b\n\n```\nc\n d\n```"),
            ("#m > h1", "# Head"),
            ("p.x", "One two\n\nfoot [link](https://a.example/f)"),
            (".x", "One two\n- b\n\nfoot [link](https://a.example/f)"),
            (
                "main, main li, footer a",
                "# Head\n\nOne two\n\nThree\n- a\n- b\n\n```\nc\n d\n```\n\n[link](https://a.example/f)",
            ),
            ("a[href^='/f']", "[link](https://a.example/f)"),
            ("b", "two"),
            ("a", "[nav](https://a.example/n)\n[link](https://a.example/f)"),
        ] {
            assert_eq!(chosen(page, selector), want, "{selector}");
        }
        let (starts, _) = Selector::parse("b").unwrap().find(page).unwrap();
        let read = html(page, &Target::parse("https://a.example/").unwrap(), Some(&starts));
        assert_eq!(read.title.as_deref(), Some("T"));
    }

    #[test]
    fn a_chosen_element_ends_where_it_does_however_a_page_is_broken() {
        for (page, selector, want) in [
            ("<div><p id=a>in</div>out", "#a", "in"),
            ("<div id=a>in</span></p>in</div>out", "#a", "inin"),
            ("<div id=a><div>in</div>in</div>out", "#a", "in\nin"),
            ("<div id=a><div>in</div>in", "#a", "in\nin"),
            ("<table><tr><td id=a>in<td>out<tr><td>out</table>", "#a", "in"),
            ("<dl><dt>out<dd id=a>in<dt>out</dl>", "#a", "in"),
            ("<section><pre id=a>in</section><p>out", "#a", "```\nin\n```"),
            ("<section><script id=a>no</script></section><p id=b>in</p>", "script, #b", "in"),
            ("<p id=a>in<img alt=x id=b>", "img", "[image: x]"),
            ("<!-- <p id=a>no</p> --><p id=a>in", "#a", "in"),
            ("<script>'<p id=a>no</p>'</script><p id=a>in", "#a", "in"),
            ("<p id=a>in<title>t</title>", "#a", "in"),
        ] {
            assert_eq!(chosen(page, selector), want, "{page}");
        }
        // Far behind its beginning, and between characters of more than a byte.
        let page = format!("{}<p id=a>in</p>out", "é<b>x</b>".repeat(50_000));
        assert_eq!(chosen(&page, "#a"), "in");
    }

    fn text(page: &str) -> String {
        read(page).text
    }

    #[test]
    fn a_page_reads_like_one() {
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
        assert!(read.whole);
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
            ("<a href=x>one<a href=y>two</a>", "[one](https://a.example/d/x)[two](https://a.example/d/y)"),
            ("<svg><text>x</text></svg>y", "y"),
            ("<noscript>z</noscript>", "z"),
            ("<textarea><p>t</textarea>", "<p>t"),
        ] {
            assert_eq!(text(page), want, "{page}");
        }
        assert_eq!(fragment("a <strong>b</strong> &lt;c&gt;<script>"), "a b <c>");
    }

    #[test]
    fn hostile_pages_take_no_more_than_their_length() {
        let link = Target::parse(&format!("https://a.example/{}/", "x".repeat(1900))).unwrap();
        let deep = "<div><ul><li><blockquote><table><tr><td>".repeat(10_000);
        let cases = [
            ("depth", deep),
            ("pre", "<pre>".repeat(80_000)),
            ("links", "<a href=x>y".repeat(170_000)),
            ("attributes", format!("<p {}>", (0..40_000).map(|n| format!("a{n}=1 ")).collect::<String>())),
            ("open", "<".repeat(1 << 19)),
            ("entities", "&amp".repeat(120_000)),
            ("comment", "<!--".repeat(120_000)),
            ("breaks", "<br><p>".repeat(70_000)),
        ];
        for (name, page) in cases {
            let start = Instant::now();
            let read = html(&page, &link, None);
            let took = start.elapsed();
            assert!(read.text.len() <= TEXT_MAX + LINK_MAX + 100, "{name}: {}", read.text.len());
            assert_eq!(read.whole, name != "links", "{name}");
            // A debug build; quadratic work would take minutes.
            assert!(took < Duration::from_secs(10), "{name}: {took:?}");
            println!("{name}: {} bytes in {took:?}", page.len());
        }
    }

    #[test]
    fn hostile_pages_and_selectors_take_no_more_than_their_bounds() {
        let link = Target::parse("https://a.example/").unwrap();
        let names = "<b a=1><i b=2><u c=3>";
        let cases = [
            ("depth", "<div>".repeat(200_000)),
            ("up and down", format!("{}{}", "<div>".repeat(9_000), "<i></i>".repeat(100_000))),
            ("formatting", format!("<p>{}</p>{}", names.repeat(20_000), "<p>x</p>".repeat(50_000))),
            ("ends of nothing", format!("{}{}", "<div>".repeat(9_000), "</x>".repeat(200_000))),
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
                let found = Selector::parse(selector).unwrap().find(page);
                if let Ok((starts, _)) = &found {
                    let read = html(page, &link, Some(starts));
                    assert!(
                        starts.len() <= ELEMENTS_MAX && read.text.len() <= 2 * TEXT_MAX,
                        "{name} {selector}"
                    );
                }
                let took = start.elapsed();
                println!("{name}, {selector}: {:?} in {took:?}", found.map(|(starts, _)| starts.len()));
                assert!(took < Duration::from_secs(10), "{name} {selector}: {took:?}");
            }
        }
    }

    #[test]
    fn text_is_read_in_its_own_encoding() {
        let decoded = |bytes: &[u8], charset, kind| decode(bytes, charset, kind, false);
        assert_eq!(decoded(b"caf\xe9", Some("iso-8859-1"), Kind::Plain), "café");
        assert_eq!(decoded(b"caf\xc3\xa9", None, Kind::Plain), "café");
        assert_eq!(decoded(b"caf\xc3\xa9", Some("no-such"), Kind::Plain), "café");
        assert_eq!(decoded(b"\x93\xfa\x96\x7b", Some("Shift_JIS"), Kind::Plain), "日本");
        // A byte order mark is stronger than the server.
        assert_eq!(decoded(b"\xef\xbb\xbfcaf\xc3\xa9", Some("iso-8859-1"), Kind::Plain), "café");
        assert_eq!(decoded(b"\xff\xfea\0", None, Kind::Plain), "a");
        let page = b"<meta charset=\"windows-1251\"><p>\xef\xf0\xe8";
        assert!(decoded(page, None, Kind::Html).ends_with("при"));
        assert!(decoded(page, Some("utf-8"), Kind::Html).contains('\u{fffd}'));
        assert!(!decoded(page, None, Kind::Plain).ends_with("при"));
        assert_eq!(decoded(b"<meta charset=utf-16>a", None, Kind::Html), "<meta charset=utf-16>a");
        assert_eq!(decode(b"a\xe2\x82", None, Kind::Plain, true), "a");
        assert_eq!(decode(b"a\xe2\x82", None, Kind::Plain, false), "a\u{fffd}");
        assert_eq!(decoded(b"a\x1b[2J\0\r\n\tb\xe2\x80\xae", None, Kind::Plain), "a[2J\n\tb");
    }

    #[test]
    fn only_text_is_text() {
        for (media, want) in [
            ("text/html", Some(Kind::Html)),
            ("application/xhtml+xml", Some(Kind::Html)),
            ("text/plain", Some(Kind::Plain)),
            ("application/json", Some(Kind::Plain)),
            ("application/activity+json", Some(Kind::Plain)),
            ("image/svg+xml", Some(Kind::Plain)),
            ("image/png", None),
            ("application/octet-stream", None),
            ("application/pdf", None),
            ("", None),
        ] {
            assert_eq!(kind(media), want, "{media}");
        }
    }
}
