//! What an edit or a write has changed, as whole lines with context: for records and people, who
//! see the difference and not the file.
//!
//! Nothing is compared except the two ends of a file that was rewritten: an edit knows where it has put its texts.
//! Everything is one pass over the file, however many places were replaced and however long its lines are.

use broker_protocol::{Hunk, limit};
use memchr::{memchr_iter, memrchr_iter};
use std::ops::Range;

/// Unchanged lines around a change.
const CONTEXT: usize = 3;

/// Bytes that have replaced others. What lies between two regions is equal in both files.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Region {
    old: Range<usize>,
    new: Range<usize>,
}

/// The regions that differ, in order and not touching; `None` if there are more than an answer holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Regions(Option<Vec<Region>>);

impl Regions {
    /// For two equal files.
    pub(crate) fn none() -> Self {
        Self(Some(Vec::new()))
    }

    /// For two files about which nothing is known: everything except what is equal at both ends.
    pub(crate) fn between(old: &[u8], new: &[u8]) -> Self {
        let same = |(a, b): &(&u8, &u8)| a == b;
        let start = old.iter().zip(new).take_while(same).count();
        let end = old[start..]
            .iter()
            .rev()
            .zip(new[start..].iter().rev())
            .take_while(same)
            .count();
        let region = Region {
            old: start..old.len() - end,
            new: start..new.len() - end,
        };
        let differs = !(region.old.is_empty() && region.new.is_empty());
        Self(Some(differs.then_some(region).into_iter().collect()))
    }

    /// The regions after one more edit, which replaced `old` bytes at each of `places` by `new` bytes.
    pub(crate) fn then(self, places: impl Iterator<Item = usize>, old: usize, new: usize) -> Self {
        let Some(before) = self.0 else { return self };
        let (mut before, mut places) = (before.into_iter().peekable(), places.peekable());
        let mut regions: Vec<Region> = Vec::new();
        // From the old file to the one before this edit, and from there to the new one.
        let (mut earlier, mut now) = (Shift::default(), Shift::default());
        loop {
            let starts = [
                before.peek().map(|region| region.new.start),
                places.peek().copied(),
            ];
            let Some(start) = starts.into_iter().flatten().min() else {
                break;
            };
            let (first_old, first_new) = (earlier.back(start), now.forth(start));
            let mut end = start;
            loop {
                if let Some(region) = before.next_if(|region| region.new.start <= end) {
                    end = end.max(region.new.end);
                    earlier = Shift {
                        less: region.old.end,
                        more: region.new.end,
                    };
                } else if let Some(offset) = places.next_if(|offset| *offset <= end) {
                    end = end.max(offset + old);
                    now = Shift {
                        less: now.less + old,
                        more: now.more + new,
                    };
                } else {
                    break;
                }
            }
            regions.push(Region {
                old: first_old..earlier.back(end),
                new: first_new..now.forth(end),
            });
            // Each has at least one byte of the old file, so this many are already too many.
            if regions.len() > limit::HUNKS {
                return Self(None);
            }
        }
        Self(Some(regions))
    }

    /// The changed lines of `old`, which has become `new`; `None` if there are more than an answer holds.
    pub(crate) fn hunks(&self, old: &[u8], new: &[u8]) -> Option<Vec<Hunk>> {
        let mut room = limit::HUNKS;
        let mut hunks = Vec::new();
        let (mut old_lines, mut new_lines) = (LineNumbers::of(old), LineNumbers::of(new));
        let together = |one: &Region, next: &Region| is_near(one, next, old, new);
        for group in self.0.as_ref()?.chunk_by(together) {
            let (first, last) = (group.first()?, group.last()?);
            let start = before(old, first.old.start);
            // The rest of its last line counts as one line more.
            let lines = CONTEXT + usize::from(!ends_line(last, old, new));
            let end = after(old, last.old.end, lines);
            let was = start..end;
            let is =
                first.new.start - (first.old.start - start)..last.new.end + (end - last.old.end);
            room = room.checked_sub(was.len() + is.len())?;
            hunks.push(Hunk {
                old_start: old_lines.number(was.start),
                new_start: new_lines.number(is.start),
                old: old[was].into(),
                new: new[is].into(),
            });
        }
        Some(hunks)
    }
}

/// How far positions have moved: those from `less` on lie farther on by `more`.
#[derive(Clone, Copy, Default)]
struct Shift {
    less: usize,
    more: usize,
}

impl Shift {
    fn forth(self, offset: usize) -> usize {
        offset + self.more - self.less
    }

    fn back(self, offset: usize) -> usize {
        offset + self.less - self.more
    }
}

/// Line numbers for positions given in ascending order.
struct LineNumbers<'c> {
    content: &'c [u8],
    at: usize,
    ends: u64,
}

impl<'c> LineNumbers<'c> {
    fn of(content: &'c [u8]) -> Self {
        Self {
            content,
            at: 0,
            ends: 0,
        }
    }

    fn number(&mut self, offset: usize) -> u64 {
        self.ends += memchr_iter(b'\n', &self.content[self.at..offset]).count() as u64;
        self.at = offset;
        self.ends + 1
    }
}

/// Whether the contexts of two regions touch: then they are one hunk.
fn is_near(one: &Region, next: &Region, old: &[u8], new: &[u8]) -> bool {
    let between = &old[one.old.end..next.old.start];
    let own = usize::from(!ends_line(one, old, new));
    memchr_iter(b'\n', between)
        .take(2 * CONTEXT + own + 1)
        .count()
        <= 2 * CONTEXT + own
}

/// Whether no part of the line after `region` belongs to it, in either file.
fn ends_line(region: &Region, old: &[u8], new: &[u8]) -> bool {
    let starts = |content: &[u8], at: usize| at == 0 || content[at - 1] == b'\n';
    starts(old, region.old.end) && starts(new, region.new.end)
}

/// Where the context before the line of `at` begins.
fn before(content: &[u8], at: usize) -> usize {
    memrchr_iter(b'\n', &content[..at])
        .nth(CONTEXT)
        .map_or(0, |end| end + 1)
}

/// Where this many lines after `at` end.
fn after(content: &[u8], at: usize, lines: usize) -> usize {
    memchr_iter(b'\n', &content[at..])
        .nth(lines - 1)
        .map_or(content.len(), |end| at + end + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use memchr::memmem;

    /// A hunk as its first line numbers and its texts.
    type Seen = (u64, u64, String, String);

    /// The hunks after these edits, each of which replaces every `old`.
    fn edited(content: &str, edits: &[(&str, &str)]) -> Option<Vec<Seen>> {
        let (new, regions) = apply(content.as_bytes(), edits);
        let hunks = regions.hunks(content.as_bytes(), &new)?;
        assert_eq!(
            undone(&hunks, &new),
            content.as_bytes(),
            "{content:?} {edits:?}"
        );
        Some(hunks.into_iter().map(seen).collect())
    }

    fn seen(hunk: Hunk) -> Seen {
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (
            hunk.old_start,
            hunk.new_start,
            text(hunk.old),
            text(hunk.new),
        )
    }

    fn apply(content: &[u8], edits: &[(&str, &str)]) -> (Vec<u8>, Regions) {
        let mut regions = Regions::none();
        let mut now = content.to_vec();
        for (old, new) in edits {
            let places: Vec<usize> = memmem::find_iter(&now, old).collect();
            regions = regions.then(places.iter().copied(), old.len(), new.len());
            for offset in places.into_iter().rev() {
                now.splice(offset..offset + old.len(), new.bytes());
            }
        }
        (now, regions)
    }

    /// The old file, from the new one.
    fn undone(hunks: &[Hunk], new: &[u8]) -> Vec<u8> {
        let lines: Vec<&[u8]> = new.split_inclusive(|byte| *byte == b'\n').collect();
        let mut old = Vec::new();
        let mut at = 0;
        for hunk in hunks {
            let start = hunk.new_start as usize - 1;
            let count = hunk.new.split_inclusive(|byte| *byte == b'\n').count();
            assert_eq!(lines[start..start + count].concat(), hunk.new);
            old.extend(lines[at..start].concat());
            let first = old.iter().filter(|byte| **byte == b'\n').count() as u64 + 1;
            assert_eq!(first, hunk.old_start);
            old.extend_from_slice(&hunk.old);
            at = start + count;
        }
        old.extend(lines[at..].concat());
        old
    }

    fn numbered(lines: Range<u32>) -> String {
        lines.map(|line| format!("<{line}>\n")).collect()
    }

    #[test]
    fn a_change_has_three_lines_on_each_side_and_fewer_where_the_file_ends() {
        let file = numbered(1..10);
        let hunk = |from, to, text: &str, new: &str| {
            let is = numbered(from..to);
            Some(vec![(
                u64::from(from),
                u64::from(from),
                is.clone(),
                is.replace(text, new),
            )])
        };
        assert_eq!(edited(&file, &[("<5>", "x")]), hunk(2, 9, "<5>", "x"));
        assert_eq!(edited(&file, &[("<4>", "x")]), hunk(1, 8, "<4>", "x"));
        assert_eq!(edited(&file, &[("<1>", "x")]), hunk(1, 5, "<1>", "x"));
        assert_eq!(edited(&file, &[("<9>", "x")]), hunk(6, 10, "<9>", "x"));
        // A whole line is removed or added, and no other one is touched.
        assert_eq!(edited(&file, &[("<5>\n", "")]), hunk(2, 9, "<5>\n", ""));
        assert_eq!(
            edited(&file, &[("<5>\n", "<5>\nx\n")]),
            hunk(2, 9, "<5>\n", "<5>\nx\n")
        );
        // A line end is removed: the line after it belongs to the change.
        assert_eq!(edited(&file, &[("5>\n", "")]), hunk(2, 10, "5>\n", ""));
    }

    #[test]
    fn hunks_keep_the_end_of_a_file() {
        let one = |old: &str, new: &str| Some(vec![(1, 1, old.to_owned(), new.to_owned())]);
        assert_eq!(edited("a\nb", &[("b", "c")]), one("a\nb", "a\nc"));
        assert_eq!(edited("a\nb", &[("b", "b\n")]), one("a\nb", "a\nb\n"));
        assert_eq!(edited("a\nb\n", &[("b\n", "b")]), one("a\nb\n", "a\nb"));
        assert_eq!(
            edited("a\r\nb\r\n", &[("b", "c")]),
            one("a\r\nb\r\n", "a\r\nc\r\n")
        );
        assert_eq!(edited("abc", &[("abc", "")]), one("abc", ""));
        assert_eq!(edited("a", &[("none", "x")]), Some(vec![]));
    }

    #[test]
    fn changes_with_touching_context_are_one_hunk() {
        let file = numbered(1..30);
        let hunks = |second: &str| edited(&file, &[("<5>", "x"), (second, "y")]).unwrap();
        let spans = |hunks: Vec<Seen>| -> Vec<_> {
            hunks
                .into_iter()
                .map(|(old, new, text, _)| (old, new, text.lines().count()))
                .collect()
        };
        assert_eq!(spans(hunks("<11>")), [(2, 2, 13)]);
        assert_eq!(spans(hunks("<12>")), [(2, 2, 13 + 1)]);
        assert_eq!(spans(hunks("<13>")), [(2, 2, 7), (10, 10, 7)]);
        // The same for lines that are removed as a whole.
        let gone = |second: &str| spans(edited(&file, &[("<5>\n", ""), (second, "")]).unwrap());
        assert_eq!(gone("<12>\n"), [(2, 2, 14)]);
        assert_eq!(gone("<13>\n"), [(2, 2, 7), (10, 9, 7)]);
    }

    #[test]
    fn hunks_over_the_limit_are_omitted() {
        let bytes = |old: usize, new: usize| {
            let (old, new) = (vec![b'a'; old], vec![b'b'; new]);
            Regions::between(&old, &new).hunks(&old, &new).is_some()
        };
        assert!(
            bytes(limit::HUNKS / 2, limit::HUNKS / 2)
                && bytes(0, limit::HUNKS)
                && bytes(limit::HUNKS, 0)
        );
        assert!(!bytes(limit::HUNKS / 2, limit::HUNKS / 2 + 1) && !bytes(0, limit::HUNKS + 1));
        let places = |count: usize| {
            let file = "a ".repeat(count);
            let (new, regions) = apply_all(file.as_bytes());
            regions.hunks(file.as_bytes(), &new)
        };
        assert!(places(limit::HUNKS / 4).is_some());
        assert!(places(limit::HUNKS / 4 + 1).is_none() && places(limit::HUNKS + 1).is_none());
    }

    /// Every `a` becomes `b`.
    fn apply_all(content: &[u8]) -> (Vec<u8>, Regions) {
        let places = memchr_iter(b'a', content);
        let new = content
            .iter()
            .map(|byte| if *byte == b'a' { b'b' } else { *byte })
            .collect();
        (new, Regions::none().then(places, 1, 1))
    }

    #[test]
    fn a_long_line_with_many_places_takes_no_time() {
        let file = "a ".repeat(2 << 20);
        let start = std::time::Instant::now();
        let (new, regions) = apply_all(file.as_bytes());
        assert_eq!(regions.hunks(file.as_bytes(), &new), None);
        let some = [&file.as_bytes()[1..], b"a ".repeat(60_000).as_slice()]
            .concat()
            .replace_a();
        let (new, regions) = apply_all(&some);
        assert_eq!(regions.hunks(&some, &new), None);
        assert!(start.elapsed().as_secs() < 5, "{:?}", start.elapsed());
    }

    trait ReplaceA {
        fn replace_a(self) -> Self;
    }

    impl ReplaceA for Vec<u8> {
        /// Only the last 60,000 are kept.
        fn replace_a(mut self) -> Self {
            let keep = self.len() - 120_000;
            self[..keep]
                .iter_mut()
                .filter(|byte| **byte == b'a')
                .for_each(|byte| *byte = b'c');
            self
        }
    }

    #[test]
    fn hunks_undo_any_edits() {
        let mut seed = 7u64;
        let mut next = |most: usize| {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (seed >> 33) as usize % most
        };
        let texts = [
            "a",
            "b",
            "\n",
            "a\n",
            "\nb",
            "ab",
            "\n\n",
            "",
            "b\na",
            "c",
            "a\nb\nc\n",
        ];
        for _ in 0..20_000 {
            let length = next(60);
            let file: String = (0..length)
                .map(|_| ["a", "b", "\n", "c\n", "\n\n\n"][next(5)])
                .collect();
            let edits: Vec<(&str, &str)> = (0..next(4))
                .map(|_| (texts[next(texts.len())], texts[next(texts.len())]))
                .filter(|(old, _)| !old.is_empty())
                .collect();
            edited(&file, &edits).unwrap();
            let new: String = (0..next(60))
                .map(|_| ["a", "b", "\n", "c\n"][next(4)])
                .collect();
            let hunks = Regions::between(file.as_bytes(), new.as_bytes());
            let hunks = hunks.hunks(file.as_bytes(), new.as_bytes()).unwrap();
            assert_eq!(undone(&hunks, new.as_bytes()), file.as_bytes());
        }
    }
}
