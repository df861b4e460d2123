//! Certificates in PEM form, and what they contain.

pub(crate) const BEGIN: &str = "-----BEGIN CERTIFICATE-----";
pub(crate) const END: &str = "-----END CERTIFICATE-----";

/// The certificates in a text, each with its lines and a final line feed.
pub(crate) fn blocks(text: &str) -> impl Iterator<Item = String> {
    text.split(BEGIN).skip(1).filter_map(|rest| {
        let (body, _) = rest.split_once(END)?;
        let lines: Vec<&str> = body.split_whitespace().collect();
        let is_base64 = |byte: u8| byte.is_ascii_alphanumeric() || b"+/=".contains(&byte);
        let is_whole = !lines.is_empty() && lines.iter().all(|line| line.bytes().all(is_base64));
        is_whole.then(|| format!("{BEGIN}\n{}\n{END}\n", lines.join("\n")))
    })
}

/// The object of DER in a block, if it is as long as it says. Only the gateway, and programs in cells, read it as a certificate.
pub(crate) fn der(block: &str) -> Option<Vec<u8>> {
    /// The tag of a sequence, and lengths of one and of two bytes (X.690, 8.1.3).
    const SEQUENCE: u8 = 0x30;
    let lines = block.lines().filter(|line| !line.starts_with("-----"));
    let object = decoded(&lines.collect::<String>())?;
    let length = match *object.get(..4)? {
        [SEQUENCE, 0x81, length, _] => usize::from(length) + 3,
        [SEQUENCE, 0x82, high, low] => usize::from(u16::from_be_bytes([high, low])) + 4,
        _ => return None,
    };
    (object.len() == length).then_some(object)
}

/// The bytes of a text in base64 with padding (RFC 4648, section 4).
fn decoded(text: &str) -> Option<Vec<u8>> {
    let digits = text.trim_end_matches('=');
    if !text.len().is_multiple_of(4) || text.len() - digits.len() > 2 {
        return None;
    }
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut held) = (0_u32, 0);
    for digit in digits.bytes() {
        let sextet = SEXTETS[usize::from(digit)];
        if sextet == NONE {
            return None;
        }
        bits = bits << 6 | u32::from(sextet);
        held += 6;
        if held >= 8 {
            held -= 8;
            bytes.push((bits >> held).to_le_bytes()[0]);
        }
    }
    Some(bytes)
}

/// The value of each letter of base64, and [`NONE`] for all other bytes. A table, as a branch for each letter takes the longest of all
/// that a session does for its certificates.
const SEXTETS: [u8; 256] = {
    let letters = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut table = [NONE; 256];
    let mut value = 0;
    while value < letters.len() {
        table[letters[value] as usize] = value.to_le_bytes()[0];
        value += 1;
    }
    table
};
const NONE: u8 = u8::MAX;

#[cfg(test)]
mod tests {
    use super::*;

    /// The vectors of RFC 4648, section 10.
    #[test]
    fn base64_is_decoded() {
        for (text, want) in [
            ("", ""),
            ("Zg==", "f"),
            ("Zm8=", "fo"),
            ("Zm9v", "foo"),
            ("Zm9vYg==", "foob"),
            ("Zm9vYmE=", "fooba"),
            ("Zm9vYmFy", "foobar"),
        ] {
            assert_eq!(decoded(text).as_deref(), Some(want.as_bytes()), "{text}");
        }
        for text in ["Zg", "Zg=", "Z===", "Zm9v=Zg=", "Zm9-", "Zm9v\n"] {
            assert_eq!(decoded(text), None, "{text:?}");
        }
        assert_eq!(decoded("+/+/").unwrap(), [0xfb, 0xff, 0xbf]);
    }
}
