//! The beginning of a `git push` ("gitprotocol-pack", "Reference Update Request and Packfile Transfer"): which references it changes.

use crate::unread::{UnreadBody, pieces};
use broker_protocol::gateway::{EffectKind, RequestEffect};
use broker_protocol::limit;

/// The commands in the first bytes of the request; `None` if they do not say all. No effects if nothing is pushed: git sends such a request
/// before a large one.
pub(super) fn read(bytes: &[u8]) -> Result<Option<Vec<RequestEffect>>, UnreadBody> {
    let (mut rest, mut effects, mut options) = (bytes, Vec::new(), false);
    loop {
        match line(&mut rest)? {
            PacketLine::More => return Ok(None),
            PacketLine::Flush => break,
            PacketLine::Data(data) => {
                let (text, capabilities) = split(data);
                if text.starts_with(b"push-cert") {
                    return Err(UnreadBody::Signed);
                }
                if let Some(id) = text.strip_prefix(b"shallow ") {
                    identifier(id.trim_ascii_end())?;
                    continue;
                }
                let capabilities = capabilities.unwrap_or_default();
                options |= capabilities
                    .split(|byte| byte.is_ascii_whitespace())
                    .any(has_options);
                add(&mut effects, command(text)?)?;
            }
        }
    }
    if options && !add_options(&mut rest, &mut effects)? {
        return Ok(None);
    }
    // What follows no commands, a server could take for some; and what is no pack, for options.
    let is_pack = || rest.iter().zip(PACK).all(|(sent, want)| *sent == want);
    if !rest.is_empty() && (effects.is_empty() || !is_pack()) {
        return Err(UnreadBody::Push);
    }
    Ok(Some(effects))
}

/// The beginning of a pack ("gitformat-pack").
const PACK: [u8; 4] = *b"PACK";

/// Whether a capability says that options follow. A server looks for its name, whatever value stands behind it.
fn has_options(capability: &[u8]) -> bool {
    capability.split(|byte| *byte == b'=').next() == Some(b"push-options")
}

/// Adds the push's options; false if there is more of them to come.
fn add_options(rest: &mut &[u8], effects: &mut Vec<RequestEffect>) -> Result<bool, UnreadBody> {
    loop {
        match line(rest)? {
            PacketLine::More => return Ok(false),
            PacketLine::Flush => return Ok(true),
            PacketLine::Data(data) => {
                for object in pieces(&format!("option {}", text(data)?)) {
                    let effect = RequestEffect {
                        object,
                        kind: EffectKind::Named,
                        change: String::new(),
                    };
                    add(effects, effect)?;
                }
            }
        }
    }
}

fn add(effects: &mut Vec<RequestEffect>, one: RequestEffect) -> Result<(), UnreadBody> {
    if effects.len() == limit::EFFECTS {
        return Err(UnreadBody::Many);
    }
    effects.push(one);
    Ok(())
}

enum PacketLine<'b> {
    /// There is more of it to come.
    More,
    Flush,
    Data(&'b [u8]),
}

/// The next line, with its length of four digits before it.
fn line<'b>(rest: &mut &'b [u8]) -> Result<PacketLine<'b>, UnreadBody> {
    let Some((digits, after)) = rest.split_first_chunk::<4>() else {
        return Ok(PacketLine::More);
    };
    let digits = digits.iter().map(|&digit| char::from(digit).to_digit(16));
    let digits: Option<Vec<u32>> = digits.collect();
    let length = digits.ok_or(UnreadBody::Push)?;
    let length = length
        .iter()
        .fold(0, |all, digit| all * 16 + *digit as usize);
    match length {
        0 => {
            *rest = after;
            Ok(PacketLine::Flush)
        }
        // Other marks than a flush have no place here.
        1..=4 => Err(UnreadBody::Push),
        length => match after.split_at_checked(length - 4) {
            Some((data, after)) => {
                *rest = after;
                Ok(PacketLine::Data(data))
            }
            None => Ok(PacketLine::More),
        },
    }
}

/// A line without its capabilities, and those.
fn split(data: &[u8]) -> (&[u8], Option<&[u8]>) {
    match data.iter().position(|byte| *byte == 0) {
        Some(at) => (&data[..at], Some(&data[at + 1..])),
        None => (data, None),
    }
}

fn command(line: &[u8]) -> Result<RequestEffect, UnreadBody> {
    let mut parts = line.splitn(3, |byte| *byte == b' ');
    let mut next = || parts.next().ok_or(UnreadBody::Push);
    let (old, new, name) = (identifier(next()?)?, identifier(next()?)?, text(next()?)?);
    if name.is_empty() || name.contains(char::is_whitespace) || name.len() > limit::DENIAL_TEXT {
        return Err(UnreadBody::Push);
    }
    let is_zero = |id: &str| id.bytes().all(|digit| digit == b'0');
    let (kind, change) = match (is_zero(old), is_zero(new)) {
        (true, false) => (EffectKind::Create, format!("new, at {new}")),
        (false, true) => (EffectKind::Delete, format!("deleted, was {old}")),
        (false, false) => (EffectKind::Update, format!("from {old} to {new}")),
        (true, true) => return Err(UnreadBody::Push),
    };
    Ok(RequestEffect {
        object: name.to_owned(),
        kind,
        change,
    })
}

fn identifier(id: &[u8]) -> Result<&str, UnreadBody> {
    let is_one = matches!(id.len(), 40 | 64) && id.iter().all(u8::is_ascii_hexdigit);
    let id = std::str::from_utf8(id).ok().filter(|_| is_one);
    id.ok_or(UnreadBody::Push)
}

/// A text that ends with its line.
fn text(bytes: &[u8]) -> Result<&str, UnreadBody> {
    let bytes = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let text = std::str::from_utf8(bytes).ok();
    let text = text.filter(|text| !text.contains(char::is_control));
    text.ok_or(UnreadBody::Push)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet(data: &str) -> String {
        format!("{:04x}{data}", data.len() + 4)
    }

    fn id(digit: char) -> String {
        digit.to_string().repeat(40)
    }

    fn change(old: char, new: char, name: &str) -> String {
        format!("{} {} {name}", id(old), id(new))
    }

    #[test]
    fn references_are_shown_with_old_and_new_commits() {
        let capabilities = "\0 report-status agent=git/2.47";
        let body = [
            packet(&format!("shallow {}\n", id('e'))),
            packet(&(change('a', 'b', "refs/heads/main") + capabilities)),
            packet(&change('0', 'c', "refs/tags/v1")),
            packet(&change('d', '0', "refs/heads/old")),
            "0000PACK".into(),
        ]
        .concat();
        let read = read(body.as_bytes()).unwrap().unwrap();
        use EffectKind::{Create, Delete, Update};
        let updated = format!("from {} to {}", id('a'), id('b'));
        let want = [
            ("refs/heads/main", Update, updated),
            ("refs/tags/v1", Create, format!("new, at {}", id('c'))),
            (
                "refs/heads/old",
                Delete,
                format!("deleted, was {}", id('d')),
            ),
        ];
        let want = want.map(|(object, kind, change)| RequestEffect {
            object: object.into(),
            kind,
            change,
        });
        assert_eq!(read, want);
        // Each beginning without the end of the list says that more is to come.
        let end = body.find("0000PACK").unwrap() + 4;
        for length in 0..end {
            assert_eq!(
                super::read(&body.as_bytes()[..length]),
                Ok(None),
                "{length}"
            );
        }
        assert_eq!(super::read(b"0000"), Ok(Some(vec![])));
        assert_eq!(super::read(b"0000PACK"), Err(UnreadBody::Push));
    }

    #[test]
    fn options_of_a_push_are_shown() {
        let command = change('a', 'b', "refs/heads/main") + "\0report-status push-options";
        let body = [
            packet(&command),
            "0000".into(),
            packet("merge_request.create"),
            "0000".into(),
        ];
        let effects = read(body.concat().as_bytes()).unwrap().unwrap();
        assert_eq!(effects[1].object, "option merge_request.create");
        let of = |last: &str| {
            let long = packet(&("x".repeat(800) + last));
            let body = [&body[0], "0000", &long, "0000"].concat();
            read(body.as_bytes()).unwrap()
        };
        assert_eq!(of("A"), of("A"), "the control");
        assert_ne!(of("A"), of("B"));
        assert_eq!(read(body[..3].concat().as_bytes()), Ok(None));
    }

    #[test]
    fn options_are_known_by_the_name_of_the_capability() {
        for capability in ["push-options", "push-options=1", "atomic push-options="] {
            let command = change('a', 'b', "refs/heads/main") + "\0" + capability;
            let body = [&packet(&command), "0000", &packet("ci.skip"), "0000PACK"].concat();
            let effects = read(body.as_bytes()).unwrap().unwrap();
            assert_eq!(effects[1].object, "option ci.skip", "{capability}");
        }
        let command = change('a', 'b', "refs/heads/main") + "\0report-status";
        let hidden = [&packet(&command), "0000", &packet("ci.skip"), "0000PACK"].concat();
        assert_eq!(read(hidden.as_bytes()), Err(UnreadBody::Push));
    }

    #[test]
    fn push_in_no_form_of_git_is_not_read() {
        for (wrong, want) in [
            (packet("x"), UnreadBody::Push),
            ("zzzz".into(), UnreadBody::Push),
            ("0001".into(), UnreadBody::Push),
            ("0004".into(), UnreadBody::Push),
            (packet(&change('0', '0', "refs/heads/x")), UnreadBody::Push),
            (packet(&change('a', 'b', "")), UnreadBody::Push),
            (packet(&change('a', 'b', "refs/\x1b[2J")), UnreadBody::Push),
            (packet(&change('g', 'b', "refs/heads/x")), UnreadBody::Push),
            (packet("push-cert\0push-options\n"), UnreadBody::Signed),
        ] {
            let body = wrong.clone() + "0000";
            assert_eq!(read(body.as_bytes()), Err(want), "{wrong}");
        }
        let many = |count| packet(&change('a', 'b', "refs/heads/x")).repeat(count) + "0000";
        let read_many = |count| read(many(count).as_bytes());
        assert!(read_many(limit::EFFECTS).is_ok());
        assert_eq!(read_many(limit::EFFECTS + 1), Err(UnreadBody::Many));
    }
}
