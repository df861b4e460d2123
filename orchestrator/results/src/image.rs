//! Images, recognised by their first bytes and never by their name.

use broker_protocol::{ErrorKind, Failed};

/// Largest image, in bytes.
pub const MAX: u64 = 5_000_000;

/// An image for the model.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Such as `image/png`.
    pub media_type: &'static str,
    pub data: Vec<u8>,
}

/// The type of an image that begins with `bytes`.
pub fn media_type(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [
            b'R',
            b'I',
            b'F',
            b'F',
            _,
            _,
            _,
            _,
            b'W',
            b'E',
            b'B',
            b'P',
            ..,
        ] => Some("image/webp"),
        _ => None,
    }
}

/// The type of an image of `size` bytes that begins with `bytes`.
///
/// # Errors
/// [`ErrorKind::InvalidInput`] if it is another type of file, or too large.
pub fn check(bytes: &[u8], size: u64) -> Result<&'static str, Failed> {
    let refused = |message: String| Failed {
        kind: ErrorKind::InvalidInput,
        message,
    };
    let media_type = media_type(bytes).ok_or_else(|| {
        refused("this is not a PNG, JPEG, GIF or WebP image, whatever its name says".into())
    })?;
    if size > MAX {
        return Err(refused(format!(
            "the image has {size} bytes; more than {MAX} are not shown"
        )));
    }
    Ok(media_type)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_is_known_by_its_bytes_and_bounded() {
        let png = b"\x89PNG\r\n\x1a\nrest";
        for (bytes, want) in [
            (&png[..], Some("image/png")),
            (b"\xff\xd8\xff\xe0", Some("image/jpeg")),
            (b"GIF89a..", Some("image/gif")),
            (b"RIFF\x01\x02\x03\x04WEBPVP8", Some("image/webp")),
            (b"RIFF\x01\x02\x03\x04WAVE", None),
            (b"<svg", None),
            (b"", None),
        ] {
            assert_eq!(media_type(bytes), want, "{bytes:?}");
        }
        assert!(check(png, MAX).is_ok());
        assert!(
            check(png, MAX + 1)
                .unwrap_err()
                .message
                .contains("more than 5000000")
        );
        assert_eq!(check(b"text", 4).unwrap_err().kind, ErrorKind::InvalidInput);
    }
}
