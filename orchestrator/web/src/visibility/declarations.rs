//! The declarations of a style that can hide text, and whether together they do.

use cssparser::{ParseError, Parser, ParserInput, ToCss, Token};
use std::collections::BTreeMap;

/// Maximum depth of functions in a value; deeper ones are left out.
const DEPTH: usize = 4;
/// Maximum length of a value, in bytes.
const VALUE: usize = 200;
/// Lengths, in pixels, of which text is still read, and beyond which it is off the screen.
const LEGIBLE: f32 = 2.0;
const FAR: f32 = 500.0;

/// The properties that can hide text.
const PROPERTIES: [&str; 28] = [
    "background",
    "background-color",
    "bottom",
    "clip",
    "clip-path",
    "color",
    "content-visibility",
    "display",
    "filter",
    "font",
    "font-size",
    "height",
    "left",
    "margin",
    "margin-left",
    "margin-top",
    "max-height",
    "max-width",
    "opacity",
    "overflow",
    "overflow-x",
    "overflow-y",
    "right",
    "scale",
    "text-indent",
    "top",
    "transform",
    "width",
];
/// The others, which do not fit a table of plain names.
const MORE: [&str; 2] = ["visibility", "-webkit-text-fill-color"];

/// Why an element is not displayed, in words for the mark.
pub(crate) type Reason = &'static str;

/// What an element says of its own text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StyleEffect {
    /// Nothing: what is around it decides.
    None,
    /// Neither it nor anything in it is displayed.
    Hides(Reason),
    /// It is not displayed, but what is in it may be.
    Invisible,
    /// It is displayed, unless something around it hides all.
    Visible,
}

/// A property's value, in lower case and with single spaces.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Declared {
    value: String,
    important: bool,
}

/// The declarations of an element, by property.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Declarations(BTreeMap<&'static str, Declared>);

impl Declarations {
    /// Parses a style without braces.
    pub(super) fn parse(text: &str) -> Self {
        let mut input = ParserInput::new(text);
        let mut input = Parser::new(&mut input);
        let mut all = Self::default();
        while !input.is_exhausted() {
            let mut one = None;
            let parsed: Result<(), ParseError<'_, ()>> =
                input.parse_until_after(cssparser::Delimiter::Semicolon, |input| {
                    one = declaration(input);
                    while input.next().is_ok() {}
                    Ok(())
                });
            if let Some((property, declared)) = one {
                all.set(property, declared);
            }
            if parsed.is_err() {
                break;
            }
        }
        all
    }

    /// Adds what `later` declares, which wins unless it is less important.
    pub(super) fn add(&mut self, later: &Self) {
        for (property, declared) in &later.0 {
            self.set(property, declared.clone());
        }
    }

    fn set(&mut self, property: &'static str, declared: Declared) {
        let wins = |known: &Declared| declared.important || !known.important;
        if self.0.get(property).is_none_or(wins) {
            self.0.insert(property, declared);
        }
    }

    fn get(&self, property: &str) -> &str {
        self.0
            .get(property)
            .map_or("", |declared| declared.value.as_str())
    }

    fn any(&self, properties: &[&str], is: impl Fn(&str) -> bool) -> bool {
        properties.iter().any(|property| is(self.get(property)))
    }

    /// What they say of an element's text.
    pub(super) fn verdict(&self) -> StyleEffect {
        let checks: [(Reason, bool); 8] = [
            ("display: none", self.get("display") == "none"),
            (
                "content-visibility: hidden",
                self.get("content-visibility") == "hidden",
            ),
            ("transparent", self.is_transparent()),
            ("its background's colour", self.is_background()),
            ("font-size", self.is_tiny()),
            ("no size", self.has_no_size()),
            ("clipped", self.is_clipped()),
            ("off the screen", self.is_far()),
        ];
        if let Some((reason, _)) = checks.into_iter().find(|(_, holds)| *holds) {
            return StyleEffect::Hides(reason);
        }
        match self.get("visibility") {
            "hidden" | "collapse" => StyleEffect::Invisible,
            "visible" => StyleEffect::Visible,
            _ => StyleEffect::None,
        }
    }

    fn is_transparent(&self) -> bool {
        let fades = |value: &str| number(value).is_some_and(|(value, _)| value <= 0.05);
        fades(self.get("opacity"))
            || arguments(self.get("filter"), "opacity").is_some_and(|inner| fades(&inner))
            || self.any(&["color", "-webkit-text-fill-color"], no_colour)
    }

    fn is_background(&self) -> bool {
        let colour = colour(self.get("color"));
        !colour.is_empty()
            && self.any(&["background", "background-color"], |value| {
                value.split(' ').any(|part| self::colour(part) == colour)
            })
    }

    fn is_tiny(&self) -> bool {
        let size = |value: &str| {
            let value = value.split('/').next().unwrap_or_default();
            pixels(value.trim()).is_some_and(|size| (0.0..LEGIBLE).contains(&size))
        };
        // The first length of `font` is the size of its letters.
        let is_length = |part: &&str| part.starts_with(|c: char| c.is_ascii_digit() || c == '.');
        size(self.get("font-size"))
            || self
                .get("font")
                .split(' ')
                .find(is_length)
                .is_some_and(size)
    }

    fn has_no_size(&self) -> bool {
        let is_small =
            |value: &str| pixels(value).is_some_and(|size| (0.0..LEGIBLE).contains(&size));
        let is_cut = |value: &str| {
            value
                .split(' ')
                .any(|part| matches!(part, "hidden" | "clip"))
        };
        let none = |value: &str| {
            ["scale", "scalex", "scaley", "scale3d"].iter().any(|name| {
                arguments(value, name).is_some_and(|inner| {
                    inner
                        .split([' ', ','])
                        .any(|part| number(part).is_some_and(|(scale, _)| scale.abs() < 0.05))
                })
            })
        };
        let cut = self.any(&["overflow", "overflow-x", "overflow-y"], is_cut);
        cut && self.any(&["width", "height", "max-width", "max-height"], is_small)
            || none(self.get("transform"))
            || self
                .get("scale")
                .split(' ')
                .any(|part| number(part).is_some_and(|(scale, _)| scale.abs() < 0.05))
    }

    fn is_clipped(&self) -> bool {
        let path = self.get("clip-path");
        let all = |value: &str, at_least: f32| {
            number(value).is_some_and(|(value, unit)| unit == "%" && value >= at_least)
        };
        let rectangle = arguments(self.get("clip"), "rect").is_some_and(|inner| {
            let sides: Vec<f32> = inner.split([' ', ',']).filter_map(pixels).collect();
            matches!(sides[..], [top, right, bottom, left]
                if bottom - top < LEGIBLE || right - left < LEGIBLE)
        });
        rectangle
            || arguments(path, "inset")
                .is_some_and(|inner| inner.split(' ').any(|part| all(part, 50.0)))
            || ["circle", "ellipse"].iter().any(|name| {
                arguments(path, name).is_some_and(|inner| {
                    pixels(inner.split(' ').next().unwrap_or_default())
                        .is_some_and(|radius| radius < LEGIBLE)
                })
            })
            || arguments(path, "polygon").is_some_and(|inner| {
                inner
                    .split([' ', ','])
                    .filter(|part| !part.is_empty())
                    .all(|part| number(part).is_some_and(|(value, _)| value == 0.0))
            })
    }

    fn is_far(&self) -> bool {
        const OFFSETS: [&str; 8] = [
            "left",
            "right",
            "top",
            "bottom",
            "margin",
            "margin-left",
            "margin-top",
            "text-indent",
        ];
        let far = |part: &str| pixels(part).is_some_and(|offset| offset.abs() >= FAR);
        let is_far = |value: &str| value.split([' ', ',']).any(far);
        let moves = |name: &&str| {
            arguments(self.get("transform"), name).is_some_and(|inner| is_far(&inner))
        };
        self.any(&OFFSETS, is_far)
            || ["translate", "translatex", "translatey", "translate3d"]
                .iter()
                .any(moves)
    }
}

/// The next declaration, if it is of a property that can hide text.
fn declaration(input: &mut Parser<'_, '_>) -> Option<(&'static str, Declared)> {
    let name = input.expect_ident().ok()?.to_ascii_lowercase();
    let property = PROPERTIES
        .iter()
        .chain(&MORE)
        .find(|property| **property == name)?;
    input.expect_colon().ok()?;
    let mut value = String::new();
    append(input, &mut value, 0);
    let (important, value) = match value.split_once('!') {
        Some((value, mark)) => (mark.trim() == "important", value),
        None => (false, value.as_str()),
    };
    let value = value.trim().to_owned();
    Some((property, Declared { value, important }))
}

/// Appends the rest of a value: in lower case, with a space between its parts.
fn append(input: &mut Parser<'_, '_>, out: &mut String, depth: usize) {
    while let Ok(token) = input.next() {
        if out.len() > VALUE {
            return;
        }
        let (is_function, text) = (
            matches!(token, Token::Function(_)),
            token.to_css_string().to_ascii_lowercase(),
        );
        let tight = matches!(text.as_str(), "," | "/")
            || out.is_empty()
            || out.ends_with(['(', ',', '/', '!']);
        if !tight {
            out.push(' ');
        }
        out.push_str(&text);
        if is_function && depth < DEPTH {
            let _: Result<(), ParseError<'_, ()>> = input.parse_nested_block(|inner| {
                append(inner, out, depth + 1);
                Ok(())
            });
            out.push(')');
        }
    }
}

/// The arguments of the function `name` in a value.
fn arguments(value: &str, name: &str) -> Option<String> {
    let start = value.match_indices(name).find_map(|(at, _)| {
        let is_start = value[..at].ends_with(' ') || at == 0;
        let inner = value[at + name.len()..].strip_prefix('(')?;
        is_start.then_some(inner)
    })?;
    Some(start.split(')').next().unwrap_or_default().to_owned())
}

/// A number and its unit.
fn number(value: &str) -> Option<(f32, &str)> {
    let is_part = |c: char| c.is_ascii_digit() || matches!(c, '.' | '-' | '+');
    let end = value.find(|c| !is_part(c)).unwrap_or(value.len());
    Some((value[..end].parse().ok()?, &value[end..]))
}

/// A length in pixels, roughly: relative units count as on a usual screen.
fn pixels(value: &str) -> Option<f32> {
    let (number, unit) = number(value)?;
    let size = match unit {
        "" | "px" => 1.0,
        "pt" => 4.0 / 3.0,
        "em" | "rem" | "pc" => 16.0,
        "ex" | "ch" => 8.0,
        "in" => 96.0,
        "cm" => 38.0,
        "mm" => 3.8,
        "vw" | "vh" | "vmin" | "vmax" | "%" => 10.0,
        _ => return None,
    };
    Some(number * size)
}

fn no_colour(value: &str) -> bool {
    let alpha = |inner: String| {
        let parts: Vec<&str> = inner
            .split([' ', ',', '/'])
            .filter(|part| !part.is_empty())
            .collect();
        parts.len() >= 4
            && parts
                .last()
                .and_then(|part| number(part))
                .is_some_and(|(alpha, _)| alpha <= 0.05)
    };
    let hex = value.strip_prefix('#').unwrap_or_default();
    value == "transparent"
        || hex.len() == 4 && hex.ends_with('0')
        || hex.len() == 8 && hex.ends_with("00")
        || ["rgba", "rgb", "hsla", "hsl"]
            .iter()
            .filter_map(|name| arguments(value, name))
            .any(alpha)
}

/// A colour in one form, as far as the common ones go; empty if it is none.
fn colour(value: &str) -> String {
    match value {
        "white" => "#ffffff".to_owned(),
        "black" => "#000000".to_owned(),
        _ => match value.strip_prefix('#') {
            Some(hex) if hex.len() == 3 => hex
                .chars()
                .fold("#".to_owned(), |out, c| out + &c.to_string().repeat(2)),
            _ if matches!(
                value,
                "inherit" | "initial" | "unset" | "none" | "currentcolor"
            ) =>
            {
                String::new()
            }
            _ => value.to_owned(),
        },
    }
}
