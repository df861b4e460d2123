//! How a character affects the text around it, by Unicode's own properties.

use icu_normalizer::ComposingNormalizerBorrowed;
use icu_properties::props::{
    BidiClass, DefaultIgnorableCodePoint, GeneralCategory, PrependedConcatenationMark, Script,
};
use icu_properties::{CodePointMapData, CodePointSetData};

fn category(c: char) -> GeneralCategory {
    CodePointMapData::<GeneralCategory>::new().get(c)
}

fn script(c: char) -> Script {
    CodePointMapData::<Script>::new().get(c)
}

/// Whether a character can move the cursor or change how the text around it is displayed, or is itself invisible.
pub fn is_unsafe(c: char) -> bool {
    c.is_control() || is_invisible(c)
}

/// Whether a character has no glyph of its own: default ignorables, format characters such as those for the direction of writing,
/// line separators.
pub(crate) fn is_invisible(c: char) -> bool {
    if c < '\u{ad}' {
        return false;
    }
    let is_format = match category(c) {
        GeneralCategory::LineSeparator | GeneralCategory::ParagraphSeparator => true,
        // Those that enclose the digits after them, as in Arabic, are visible.
        GeneralCategory::Format => {
            !CodePointSetData::new::<PrependedConcatenationMark>().contains(c)
        }
        _ => false,
    };
    is_format || CodePointSetData::new::<DefaultIgnorableCodePoint>().contains(c)
}

/// Whether a character does not look like what it is: unsafe characters, marks that combine with any neighbour, spaces other than
/// the space, private and unassigned code points.
pub(crate) fn is_deceptive(c: char) -> bool {
    use GeneralCategory as Category;
    if c.is_ascii() {
        return c.is_control();
    }
    is_unsafe(c)
        || c == '\u{2800}'
        || match category(c) {
            Category::SpaceSeparator | Category::PrivateUse | Category::Unassigned => true,
            // A mark of one script belongs to the words of that script.
            Category::NonspacingMark | Category::EnclosingMark => script(c) == Script::Inherited,
            _ => false,
        }
}

/// Whether a terminal with bidirectional text may move a character, or its neighbours because of it: letters and digits of
/// right-to-left scripts, and all format characters.
pub(crate) fn is_reordering(c: char) -> bool {
    let moves = [
        BidiClass::RightToLeft,
        BidiClass::ArabicLetter,
        BidiClass::ArabicNumber,
    ];
    c >= '\u{ad}'
        && (category(c) == GeneralCategory::Format
            || moves.contains(&CodePointMapData::<BidiClass>::new().get(c)))
}

/// Maximum columns of a character on a terminal: anything but ASCII may be wide.
pub fn columns_max(c: char) -> usize {
    if c.is_ascii() { 1 } else { 2 }
}

/// Whether a character belongs to a script with letters that look like Latin ones.
pub(crate) fn resembles_latin(c: char) -> bool {
    const SCRIPTS: [Script; 6] = [
        Script::Greek,
        Script::Cyrillic,
        Script::Armenian,
        Script::Cherokee,
        Script::Coptic,
        Script::Lisu,
    ];
    !c.is_ascii() && SCRIPTS.contains(&script(c))
}

/// Whether a character is a variant form of an ASCII character, such as a full-width letter.
pub(crate) fn is_ascii_variant(c: char) -> bool {
    use GeneralCategory as Category;
    if c < '\u{aa}'
        || matches!(
            category(c),
            Category::OtherNumber | Category::SpaceSeparator
        )
    {
        return false;
    }
    let mut folded = ComposingNormalizerBorrowed::new_nfkc().normalize_iter(std::iter::once(c));
    folded.next().is_some_and(|c| c.is_ascii_graphic()) && folded.next().is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The characters that were listed one by one before we used Unicode's own tables.
    #[test]
    fn known_invisible_characters_are_invisible_and_ordinary_text_is_not() {
        let ranges = [
            ('\u{ad}', '\u{ad}'),
            ('\u{34f}', '\u{34f}'),
            ('\u{61c}', '\u{61c}'),
            ('\u{115f}', '\u{1160}'),
            ('\u{17b4}', '\u{17b5}'),
            ('\u{180b}', '\u{180f}'),
            ('\u{200b}', '\u{200f}'),
            ('\u{2028}', '\u{202e}'),
            ('\u{2060}', '\u{206f}'),
            ('\u{3164}', '\u{3164}'),
            ('\u{fe00}', '\u{fe0f}'),
            ('\u{feff}', '\u{feff}'),
            ('\u{ffa0}', '\u{ffa0}'),
            ('\u{fff0}', '\u{fffb}'),
            ('\u{1bca0}', '\u{1bca3}'),
            ('\u{1d173}', '\u{1d17a}'),
            ('\u{e0000}', '\u{e0fff}'),
        ];
        for (first, last) in ranges {
            assert!((first..=last).all(is_invisible), "{:x}", u32::from(first));
        }
        for c in "aé日本语한국어हिन्दी😀ع\u{600}\u{301}ﬁ\u{a0}".chars() {
            assert!(!is_invisible(c), "{c:?}");
        }
    }

    #[test]
    fn marks_of_one_script_belong_to_its_words_and_others_deceive() {
        assert!(
            "हिन्दी ไทย العربية"
                .chars()
                .filter(|c| *c != ' ')
                .all(|c| !is_deceptive(c))
        );
        assert!(
            "\u{301}\u{20dd}\u{a0}\u{3000}\u{2800}\u{e000}\u{378}\u{1}"
                .chars()
                .all(is_deceptive)
        );
    }
}
