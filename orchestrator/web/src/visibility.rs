//! Which text of a page a browser does not display, by the page's own elements, attributes and embedded styles.
//!
//! A page can hide text from people that a model reads. It is not removed, because tabs and menus are hidden too: it is marked.
//! When in doubt, text counts as hidden. Styles from other addresses, scripts, and colours of other elements are unknown.

use crate::outline::{Outline, is_void};
use declarations::StyleEffect;
use html5gum::StartTag;
use style::Styles;

mod declarations;
mod sheet;
mod style;

pub(crate) use declarations::Reason;

/// Tracks which open elements are hidden.
pub(crate) struct Visibility {
    outline: Outline,
    styles: Styles,
    /// What was in force before each element that changes it, with the number of elements around it.
    changes: Vec<(usize, InheritedStyle)>,
    state: InheritedStyle,
}

/// What an element's ancestors say of its text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum InheritedStyle {
    #[default]
    Displayed,
    /// By `visibility`, which an inner element can undo.
    Invisible,
    Hidden(Reason),
}

impl InheritedStyle {
    fn reason(self) -> Option<Reason> {
        match self {
            Self::Displayed => None,
            Self::Invisible => Some("visibility: hidden"),
            Self::Hidden(reason) => Some(reason),
        }
    }

    fn within(self, own: StyleEffect) -> Self {
        match (self, own) {
            (Self::Hidden(reason), _) | (_, StyleEffect::Hides(reason)) => Self::Hidden(reason),
            (state, StyleEffect::None) => state,
            (_, StyleEffect::Invisible) => Self::Invisible,
            (_, StyleEffect::Visible) => Self::Displayed,
        }
    }
}

impl Visibility {
    /// Uses the styles that are embedded in `page`.
    pub(crate) fn new(page: &str) -> Self {
        Self {
            outline: Outline::default(),
            styles: Styles::of_page(page),
            changes: Vec::new(),
            state: InheritedStyle::default(),
        }
    }

    /// Why text that comes now is hidden, if it is.
    pub(crate) fn hidden_by(&self) -> Option<Reason> {
        self.state.reason()
    }

    /// Opens an element; returns why the element itself is hidden.
    pub(crate) fn start(&mut self, tag: &StartTag<()>) -> Option<Reason> {
        self.outline.before(&tag.name);
        self.restore();
        let state = self.state.within(own(tag, &mut self.styles));
        if !is_void(&tag.name) {
            let around = self.outline.depth();
            // A slash before `>` closes nothing in HTML.
            self.outline.open(&tag.name, 0);
            if state != self.state {
                // Nested too deep, it belongs to the innermost element that is tracked.
                let around = around.min(self.outline.depth().saturating_sub(1));
                self.changes
                    .push((around, std::mem::replace(&mut self.state, state)));
            }
        }
        state.reason()
    }

    /// Closes the elements that an end tag ends.
    pub(crate) fn end(&mut self, name: &[u8]) {
        if let Some(depth) = self.outline.ended_by(name) {
            self.outline.truncate(depth);
            self.restore();
        }
    }

    fn restore(&mut self) {
        while let Some((around, before)) = self.changes.last()
            && *around >= self.outline.depth()
        {
            self.state = *before;
            self.changes.pop();
        }
    }
}

/// What a tag says by its name, its attributes and its styles.
fn own(tag: &StartTag<()>, styles: &mut Styles) -> StyleEffect {
    let attribute = |name: &[u8]| tag.attributes.get(name).map(|value| &value.value[..]);
    let by_name = match &tag.name[..] {
        b"noscript" => Some("noscript"),
        b"dialog" if attribute(b"open").is_none() => Some("a closed dialog"),
        b"datalist" | b"canvas" | b"video" | b"audio" | b"rp" => Some("never displayed"),
        _ => None,
    };
    let is_true = |value: &[u8]| value.trim_ascii().eq_ignore_ascii_case(b"true");
    let by_attribute = if attribute(b"hidden").is_some() {
        Some("hidden")
    } else if attribute(b"aria-hidden").is_some_and(is_true) {
        Some("aria-hidden")
    } else {
        None
    };
    match by_name.or(by_attribute) {
        Some(reason) => StyleEffect::Hides(reason),
        None => styles.of_element(tag),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::select::tokens;
    use html5gum::Token;

    /// The texts of a page, each with why it is hidden.
    fn texts(page: &str) -> Vec<(String, Option<Reason>)> {
        let mut visibility = Visibility::new(page);
        let mut texts = Vec::new();
        for token in tokens(page) {
            let Ok(token) = token;
            match token {
                Token::StartTag(tag) => drop(visibility.start(&tag)),
                Token::EndTag(tag) => visibility.end(&tag.name),
                Token::String(text) => texts.push((
                    String::from_utf8_lossy(&text.value).into_owned(),
                    visibility.hidden_by(),
                )),
                Token::Comment(_) | Token::Doctype(_) | Token::Error(_) => {}
            }
        }
        texts
    }

    /// Whether exactly the texts with a `!` are hidden.
    #[track_caller]
    fn check(page: &str) {
        let texts = texts(page);
        assert!(!texts.is_empty(), "{page}");
        for (text, reason) in texts {
            // A style sheet is no text of the page.
            let is_style = text.contains('{');
            assert!(
                is_style || text.contains('!') == reason.is_some(),
                "{page}: {text} is {reason:?}"
            );
        }
    }

    #[test]
    fn elements_and_attributes_that_hide_are_known() {
        for page in [
            "a<p hidden>b!<b>c!</b></p>d",
            "<p hidden=until-found>a!",
            "<p HIDDEN=''>a!",
            "<p aria-hidden=True>a!</p>b",
            "<noscript>a!</noscript>b",
            "<dialog>a!</dialog><dialog open>b</dialog>",
            "<video>a!</video><canvas>b!</canvas><datalist><option>c!</datalist>d",
            "<div hidden/>a!</div>b",
            "<p hidden>a!<p>b",
            "<ul><li hidden>a!<li>b</ul>",
            "<img hidden>a<br hidden>b",
            "<div hidden></span></p>a!</div>b",
        ] {
            check(page);
        }
    }

    #[test]
    fn inline_styles_that_hide_are_known() {
        for hides in [
            "display:none",
            "DISPLAY : NONE !important",
            "d\\69splay:no\\6e e",
            "display:/**/none",
            "color:red;display:none;",
            "display:block;display:none",
            "visibility:hidden",
            "visibility:collapse",
            "content-visibility:hidden",
            "opacity:0",
            "opacity:0.01",
            "opacity:0%",
            "filter:opacity(0)",
            "font-size:0",
            "font-size:1px",
            "font-size:.01em",
            "font:0/0 a",
            "height:0;overflow:hidden",
            "max-height:0px;overflow-y:hidden",
            "width:1px;overflow:clip",
            "position:absolute;left:-9999px",
            "position:fixed;top:-100vh",
            "margin-left:-5000px",
            "text-indent:-9999px",
            "right:9999px;position:absolute",
            "clip:rect(0,0,0,0)",
            "clip:rect(1px 1px 1px 1px)",
            "clip-path:inset(100%)",
            "clip-path:circle(0)",
            "transform:scale(0)",
            "transform:translateX(-9999px)",
            "scale:0",
            "color:transparent",
            "color:rgba(0,0,0,0)",
            "color:#fff0",
            "-webkit-text-fill-color:transparent",
            "color:White;background:white",
            "background-color:#FFF;color:#ffffff",
        ] {
            check(&format!("a<p style='{hides}'>b!<b>c!</b></p>d"));
        }
        for shows in [
            "",
            "display:block",
            "display:none;display:block",
            "opacity:0.5",
            "font-size:12px",
            "font:12px/0 a",
            "height:0",
            "overflow:hidden;height:10px",
            "left:-10px",
            "margin-left:-20px",
            "color:white",
            "color:white;background:black",
            "transform:scale(1.5)",
            "clip-path:inset(10%)",
            "xdisplay:none",
            "background:url(display:none)",
        ] {
            check(&format!("a<p style='{shows}'>b</p>c"));
        }
    }

    #[test]
    fn an_inner_element_undoes_only_visibility() {
        check(
            "<div style=visibility:hidden>a!<p style=visibility:visible>b</p>c!</div>d\
             <div style=display:none>e!<p style=display:block>f!<b style=visibility:visible>g!</b></div>h",
        );
    }

    #[test]
    fn embedded_style_sheets_that_hide_are_known() {
        for page in [
            "<style>.x{display:none}</style>a<p class='y x'>b!</p>c",
            "a<p class=x>b!</p>c<style>.x{display:none}</style>",
            "<style>#x { opacity: 0 }</style>a<p id=x>b!</p>",
            "<style>p.x, q { display: none }</style><p class=x>a!</p><b class=x>b</b><q>c!</q>",
            "<style>/*}*/.x/**/{color:red;display:none}</style><p class=x>a!",
            "<style>.\\78 {display:none}</style><p class=x>a!",
            "<style>body .x{display:none}</style><p class=x>a!",
            "<style>div > p.x + p {display:none}</style><p>a!",
            "<style>@media screen{.x{display:none}}</style><p class=x>a!",
            "<style>@import 'x';@media print{.x{display:none}}</style><p class=x>a",
            "<style>@font-face{src:x}.x{display:none}</style><p class=x>a!",
            "<style>.x{display:none}.x.on{display:block}</style><p class=x>a!</p><p class='x on'>b",
            "<style>.x{display:none}</style><p class=x style=display:block>a",
            "<style>.x{display:none!important}</style><p class=x style=display:block>a!",
            // A rule that may not apply shows nothing.
            "<style>.x{display:none}@supports (a:b){.x{display:block}}</style><p class=x>a!",
            "<style>.x{display:none}.n .x{display:block}</style><p class=x>a!",
            "<style>.x{display:none}.x:hover{display:block}</style><p class=x>a!",
            "<style>a:hover{display:none}</style><a>a",
            "<style>*{font-size:0}</style><a>a!",
        ] {
            check(page);
        }
    }

    #[test]
    fn hostile_pages_cost_what_they_are_long() {
        let rules: String = (0..20_000)
            .map(|n| format!(".x.a{n}{{display:none}}"))
            .collect();
        let pages = [
            format!("<style>{rules}</style>{}", "<b class=x>".repeat(50_000)),
            format!("<style>{}</style>a", "{".repeat(500_000)),
            format!("<style>{}</style>a", "@media x{".repeat(100_000)),
            format!("<style>{}</style>a", "a{b:c;".repeat(100_000)),
            format!("<style>{}</style>a", "/*".repeat(500_000)),
            format!("<p style='{}'>a", "a:(".repeat(100_000)),
            format!("<p style='{}'>a", "f(".repeat(300_000)),
            format!(
                "<style>.x{{display:none}}</style>{}",
                "<p class='".to_owned() + &"y ".repeat(500_000) + "'>"
            ),
            "<div hidden>".repeat(100_000),
            "<p style=display:none>".repeat(50_000),
        ];
        for page in pages {
            let begun = std::time::Instant::now();
            let found = texts(&page);
            let took = begun.elapsed();
            println!("{}: {} texts in {took:?}", &page[..20], found.len());
            // In a debug build; quadratic work would take minutes.
            assert!(took < std::time::Duration::from_secs(60), "{took:?}");
        }
    }

    #[test]
    fn more_styles_than_are_compared_hide() {
        let rules: String = (0..20_000)
            .map(|n| format!(".x.a{n}{{display:none}}"))
            .collect();
        let page = format!(
            "<style>{rules}</style>{}<b class=x>a!",
            "<i class=x></i>".repeat(20_000)
        );
        check(&page);
    }

    #[test]
    fn deeper_than_is_tracked_text_stays_hidden() {
        check(&format!("{}<b hidden>a!", "<div>".repeat(600)));
        check(&format!(
            "{}<b hidden>a!</b>{}b",
            "<div>".repeat(600),
            "</div>".repeat(600)
        ));
    }
}
