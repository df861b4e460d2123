//! Converts the answer of a server's tool for a model: untrusted blocks become text, structure and one image.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use broker_protocol::{ErrorKind, Failed};
use orchestrator_engine::execution::OutsideReply;
use orchestrator_results::image::{self, Image};
use orchestrator_text::utf8::beginning;
use rmcp::model::{CallToolResult, ContentBlock, ResourceContents};

/// Maximum number of blocks of an answer; of the others only the number is given.
pub(crate) const BLOCKS_MAX: usize = 256;
/// Maximum bytes of an error message.
pub(crate) const MESSAGE_MAX: usize = 4096;

/// The answer of a tool of `server`.
///
/// # Errors
/// If the tool reports a failure, with the tool's own message.
pub(crate) fn reply(server: &str, result: CallToolResult) -> Result<OutsideReply, Failed> {
    let mut shown = Shown::default();
    let count = result.content.len();
    result
        .content
        .into_iter()
        .take(BLOCKS_MAX)
        .for_each(|block| shown.push(block));
    if count > BLOCKS_MAX {
        shown.line(&format!(
            "[{} more blocks are left out]",
            count - BLOCKS_MAX
        ));
    }
    let structured = result.structured_content;
    if let (true, Some(structured)) = (count == 0, &structured) {
        shown.line(&structured.to_string());
    }
    if result.is_error == Some(true) {
        let message = format!("the server `{server}` says: {}", brief(&shown.text));
        return Err(Failed {
            kind: ErrorKind::Io,
            message,
        });
    }
    Ok(OutsideReply {
        text: shown.text.into_bytes(),
        structured,
        image: shown.image,
    })
}

/// The beginning of a text.
pub(crate) fn brief(text: &str) -> &str {
    beginning(text, MESSAGE_MAX)
}

#[derive(Default)]
struct Shown {
    text: String,
    image: Option<Image>,
}

impl Shown {
    fn line(&mut self, text: &str) {
        if !self.text.is_empty() && !self.text.ends_with('\n') {
            self.text.push('\n');
        }
        self.text.push_str(text);
    }

    fn push(&mut self, block: ContentBlock) {
        match block {
            ContentBlock::Text(text) => self.line(&text.text),
            ContentBlock::Image(image) => self.picture("image", &image.data, &image.mime_type),
            ContentBlock::Audio(audio) => {
                let (bytes, media_type) = (size(&audio.data), name(&audio.mime_type));
                self.line(&format!("[audio, {media_type}, {bytes} bytes: not shown]"));
            }
            ContentBlock::Resource(embedded) => match embedded.resource {
                ResourceContents::TextResourceContents { uri, text, .. } => {
                    self.line(&format!("[resource {}]", name(&uri)));
                    self.line(&text);
                }
                ResourceContents::BlobResourceContents {
                    uri,
                    blob,
                    mime_type,
                    ..
                } => {
                    let what = format!("resource {}", name(&uri));
                    self.picture(&what, &blob, mime_type.as_deref().unwrap_or("of no type"));
                }
                _ => self.line("[a resource of an unknown kind]"),
            },
            ContentBlock::ResourceLink(link) => {
                self.line(&format!(
                    "[resource {}: {}]",
                    name(&link.uri),
                    name(&link.name)
                ));
            }
            _ => self.line("[a block of an unknown kind]"),
        }
    }

    /// Keeps the first image; for an invalid or further one, notes that it exists.
    fn picture(&mut self, what: &str, base64: &str, media_type: &str) {
        let (bytes, media_type) = (size(base64), name(media_type));
        let checked = if bytes as u64 > image::MAX + 2 {
            None
        } else {
            STANDARD.decode(base64).ok()
        };
        let checked = checked.and_then(|data| {
            let media_type = image::check(&data, data.len() as u64).ok()?;
            Some(Image { media_type, data })
        });
        match (checked, &self.image) {
            (Some(image), None) => self.image = Some(image),
            (Some(_), Some(_)) => {
                self.line(&format!(
                    "[{what}, {media_type}, {bytes} bytes: only the first image is shown]"
                ));
            }
            (None, _) => {
                self.line(&format!(
                    "[{what}, {media_type}, {bytes} bytes: no image that can be shown]"
                ));
            }
        }
    }
}

/// Approximate number of bytes in a base64 text.
fn size(base64: &str) -> usize {
    base64.len() / 4 * 3
}

/// An untrusted name for one of our lines.
fn name(text: &str) -> String {
    orchestrator_text::escape::line(&text.chars().take(200).collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const PNG: &[u8] = b"\x89PNG\r\n\x1a\nrest";

    fn of(content: Vec<ContentBlock>) -> OutsideReply {
        reply("s", CallToolResult::success(content)).unwrap()
    }

    fn text(content: Vec<ContentBlock>) -> String {
        String::from_utf8(of(content).text).unwrap()
    }

    #[test]
    fn each_kind_of_block_comes_through_or_is_named() {
        let png = STANDARD.encode(PNG);
        let all = of(vec![
            ContentBlock::text("one"),
            ContentBlock::image(png.clone(), "image/png"),
            ContentBlock::image(png.clone(), "image/png"),
            ContentBlock::image("%%%", "image/png"),
            ContentBlock::audio("AAAA", "audio/wav"),
            ContentBlock::embedded_text("file:///a", "inside"),
        ]);
        assert_eq!(
            all.image
                .as_ref()
                .map(|image| (image.media_type, image.data.as_slice())),
            Some(("image/png", PNG))
        );
        let shown = String::from_utf8(all.text).unwrap();
        assert_eq!(
            shown,
            "one\n[image, image/png, 12 bytes: only the first image is shown]\n[image, image/png, 0 bytes: no image that can be \
             shown]\n[audio, audio/wav, 3 bytes: not shown]\n[resource file:///a]\ninside"
        );
    }

    #[test]
    fn blocks_and_images_hold_their_limits_at_the_edge() {
        assert!(!text(vec![ContentBlock::text("x"); BLOCKS_MAX]).contains("left out"));
        assert!(
            text(vec![ContentBlock::text("x"); BLOCKS_MAX + 1])
                .ends_with("[1 more blocks are left out]")
        );
        let image = |bytes: usize| {
            let mut data = PNG.to_vec();
            data.resize(bytes, 0);
            of(vec![ContentBlock::image(
                STANDARD.encode(data),
                "image/png",
            )])
            .image
        };
        assert!(image(image::MAX as usize).is_some() && image(image::MAX as usize + 1).is_none());
    }

    #[test]
    fn an_error_has_the_words_of_the_tool_and_is_bounded() {
        let failed = |text: &str| {
            reply("s", CallToolResult::error(vec![ContentBlock::text(text)])).unwrap_err()
        };
        assert_eq!(
            failed("no such file").message,
            "the server `s` says: no such file"
        );
        assert!(failed(&"é".repeat(MESSAGE_MAX)).message.len() < MESSAGE_MAX + 40);
        assert_eq!(failed("x").kind, ErrorKind::Io);
    }

    #[test]
    fn a_structure_is_kept_and_shown_where_there_is_nothing_else() {
        let reply = reply("s", CallToolResult::structured(json!({ "a": 1 }))).unwrap();
        assert_eq!(reply.structured, Some(json!({ "a": 1 })));
        let mut bare = CallToolResult::success(vec![]);
        bare.structured_content = Some(json!({ "a": 1 }));
        assert_eq!(super::reply("s", bare).unwrap().text, br#"{"a":1}"#);
    }
}
