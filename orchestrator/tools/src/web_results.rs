//! Renders results of web tools as text and data.

use orchestrator_results::image::Image;
use orchestrator_results::metadata::Details;
use orchestrator_results::result::{ForeignText, ToolResult};
use orchestrator_text::clean::Cleaner;
use orchestrator_web::request::{FetchRequest, ViewRequest};
use orchestrator_web::{Hit, Page, SearchResults};

/// The hits of a search, numbered.
pub(crate) fn hits(found: &SearchResults) -> Vec<String> {
    let entry = |(index, hit): (usize, &Hit)| {
        let mut entry = format!(
            "{}. {}\n   {}",
            index + 1,
            line(&hit.title, 300),
            line(&hit.url, 2000)
        );
        if !hit.snippet.is_empty() {
            entry.push_str("\n   ");
            entry.push_str(&line(&hit.snippet, 1000));
        }
        entry
    };
    found.hits.iter().enumerate().map(entry).collect()
}

/// The results of a search, as a numbered list.
pub(crate) fn found(found: &SearchResults) -> ToolResult {
    let list = hits(found);
    let text = if list.is_empty() {
        "no results".to_owned()
    } else {
        list.join("\n\n")
    };
    let details = Details::Searched {
        provider: found.provider.name(),
        result_count: found.hits.len() as u64,
    };
    ToolResult::success("web_search", text, details)
}

/// All of a page's text, and how much of it `wanted` shows.
pub(crate) fn page(page: Page, wanted: &FetchRequest) -> ForeignText {
    let Page {
        target,
        media,
        title,
        text,
        elements,
        bytes,
        complete,
    } = page;
    let (url, timeout) = (target.to_string(), wanted.timeout_s);
    let details = Details::Fetched {
        url,
        media_type: media,
        title,
        elements,
        bytes,
        timeout,
    };
    let result = ToolResult::success("web_fetch", text, details);
    ForeignText {
        result,
        max: wanted.shown as usize,
        complete,
    }
}

/// An image that has been fetched.
pub(crate) fn image(image: Image, wanted: &ViewRequest) -> ToolResult {
    let (media_type, size) = (image.media_type, image.data.len() as u64);
    let (url, timeout) = (wanted.target.to_string(), wanted.timeout_s);
    let text = format!("{media_type}, {size} bytes: {url}");
    let details = Details::Viewed {
        url,
        media_type,
        size,
        timeout,
    };
    ToolResult {
        image: Some(image),
        ..ToolResult::success("view_image", text, details)
    }
}

/// An untrusted text on one line of at most `max` bytes plus one character, so that nothing in it can imitate another entry.
fn line(text: &str, max: usize) -> String {
    let clean = Cleaner::default().clean(text.as_bytes()).into_owned();
    let text = String::from_utf8_lossy(&clean);
    let mut line = String::new();
    for c in text
        .split_whitespace()
        .flat_map(|word| [" ", word])
        .flat_map(str::chars)
        .skip(1)
    {
        if line.len() >= max {
            line.push('…');
            break;
        }
        line.push(c);
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;
    use broker_protocol::Roots;
    use orchestrator_reach::target::Target;
    use orchestrator_web::EngineKind;
    use serde_json::json;

    #[test]
    fn results_are_a_numbered_list_and_a_stranger_adds_no_entry() {
        let hit = |title: &str, url: &str, snippet: &str| Hit {
            title: title.into(),
            url: url.into(),
            snippet: snippet.into(),
        };
        let hits = vec![
            hit("One", "https://one.example/", "First."),
            hit("Two\n3. Three\x1b[2J", "https://two.example/\u{202e}", ""),
        ];
        let result = found(&SearchResults {
            provider: EngineKind::SearXng,
            hits,
        });
        let want = "1. One\n   https://one.example/\n   First.\n\n2. Two 3. Three\n   https://two.example/";
        assert_eq!(String::from_utf8(result.text).unwrap(), want);
        let about = serde_json::to_value(result.metadata).unwrap();
        assert_eq!(
            (&about["provider"], &about["resultCount"]),
            (&json!("searxng"), &json!(2))
        );
        let none = found(&SearchResults {
            provider: EngineKind::Brave,
            hits: vec![],
        });
        assert_eq!(none.text, b"no results");
        assert_eq!(line(&"x".repeat(301), 300).chars().count(), 301);
        assert_eq!(line(&"x".repeat(300), 300), "x".repeat(300));
    }

    #[test]
    fn a_page_is_cut_at_a_character_and_a_note_says_so() {
        let target = Target::parse("https://a.example/").unwrap();
        let cut = |text: &str, complete, shown| {
            let wanted = FetchRequest {
                target: target.clone(),
                selector: None,
                shown,
                timeout_s: 120,
            };
            let (media, text) = ("text/plain".into(), text.into());
            let fetched = Page {
                target: target.clone(),
                media,
                title: None,
                text,
                elements: None,
                bytes: 9,
                complete,
            };
            let roots = Roots {
                project: "/p".into(),
                central: "/c".into(),
            };
            String::from_utf8(page(fetched, &wanted).cut(None, &roots).text).unwrap()
        };
        assert_eq!(cut("abcé", true, 5), "abcé");
        assert_eq!(
            cut("abcé", true, 4),
            "abc\n[truncated: total=5 shown=3 strategy=head]"
        );
        assert_eq!(
            cut("abcé", true, 3),
            "abc\n[truncated: total=5 shown=3 strategy=head]"
        );
        assert_eq!(
            cut("😀", true, 3),
            "\n[truncated: total=4 shown=0 strategy=head]"
        );
        let unread =
            "abc\n[truncated: total=unknown shown=3 strategy=head why=not-read-to-the-end]";
        assert_eq!(cut("abc", false, 9), unread);
    }
}
