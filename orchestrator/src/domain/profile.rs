//! How much of a result a model reads. The executor bounds what is *captured*; a profile bounds what is *shown* of it.

use broker_protocol::{Request, limit};
use std::borrow::Cow;

/// The limits for one kind of model.
#[derive(Debug, PartialEq, Eq)]
pub struct Profile {
    /// Its name on the command line.
    pub name: &'static str,
    /// Bytes of a file; the beginning is kept.
    pub file: Bound,
    /// Bytes of a command's output.
    pub output: Bound,
    /// Which part of that is kept.
    pub ends: Ends,
    /// Entries of a directory; the first are kept.
    pub entries: Bound,
    /// Files or lines found; the first are kept.
    pub matches: Bound,
}

/// What is longer than `most` is cut to `keep`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bound {
    /// The most that is shown whole.
    pub most: usize,
    /// What is shown of more.
    pub keep: usize,
}

/// Which part of an output is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// The beginning and the end, half and half.
    Both,
    /// The end.
    Last,
}

/// For models with room: what the executor captures by default.
pub static STANDARD: Profile = Profile {
    name: "standard",
    file: Bound::same(limit::READ),
    output: Bound::same(100 << 10),
    ends: Ends::Both,
    entries: Bound::same(limit::ENTRIES as usize),
    matches: Bound::same(limit::ENTRIES as usize),
};

/// For models with little room.
pub static COMPACT: Profile = Profile {
    name: "compact",
    file: Bound { most: 10 << 10, keep: 5 << 10 },
    output: Bound { most: 10 << 10, keep: 5 << 10 },
    ends: Ends::Last,
    entries: Bound { most: 1000, keep: 500 },
    matches: Bound { most: 100, keep: 50 },
};

/// For people and programs that take what the executor captured.
pub static WHOLE: Profile =
    Profile { name: "whole", output: Bound::same(usize::MAX), file: Bound::same(usize::MAX), ..STANDARD };

impl Bound {
    const fn same(most: usize) -> Self {
        Self { most, keep: most }
    }

    /// How many of `count` things are shown, if not all.
    pub fn cut(self, count: usize) -> Option<usize> {
        (count > self.most).then_some(self.keep)
    }
}

impl Profile {
    /// Asks for as much as has to be known to say how much there is, where less than that is shown.
    pub fn widen(&self, request: &mut Request) {
        let widen = |limit: &mut u32, bound: Bound| {
            if bound.keep < bound.most && *limit as usize >= bound.most {
                *limit = limit::ENTRIES;
            }
        };
        match request {
            Request::FileList(list) => widen(&mut list.limit, self.entries),
            Request::Glob(glob) => widen(&mut glob.limit, self.matches),
            Request::Grep(grep) => widen(&mut grep.limit, self.matches),
            _ => {}
        }
    }

    /// Bytes of output that the executor should keep of a call, so that the rest stands in a file.
    pub fn capture(&self) -> Option<u32> {
        u32::try_from(self.output.most).ok()
    }
}

/// The note where something is left out: for people and for programs. What was not read to its end was not counted.
pub fn note(total: Option<u64>, shown: u64, strategy: &str, full: Option<&str>) -> String {
    let why = if total.is_none() { " why=not-read-to-the-end" } else { "" };
    let total = total.map_or(Cow::Borrowed("unknown"), |total| total.to_string().into());
    let full = full.map_or(String::new(), |path| format!(" full={}", super::text::name(path)));
    format!("[truncated: total={total} shown={shown} strategy={strategy}{full}{why}]")
}

#[cfg(test)]
mod tests {
    use super::*;
    use broker_protocol::{FileList, Zone, ZonePath};

    #[test]
    fn what_is_at_the_bound_is_whole_and_one_more_is_cut() {
        for (bound, most, keep) in [
            (COMPACT.file, 10_240, 5_120),
            (COMPACT.output, 10_240, 5_120),
            (COMPACT.entries, 1000, 500),
            (COMPACT.matches, 100, 50),
            (STANDARD.file, 1_048_576, 1_048_576),
            (STANDARD.output, 102_400, 102_400),
        ] {
            assert_eq!((bound.cut(most), bound.cut(most + 1)), (None, Some(keep)));
        }
    }

    #[test]
    fn a_list_that_would_be_cut_is_counted() {
        let widened = |profile: &Profile, limit| {
            let path = ZonePath::root(Zone::Project);
            let mut request = Request::FileList(FileList { path, depth: 1, hidden: false, limit });
            profile.widen(&mut request);
            let Request::FileList(list) = request else { panic!() };
            list.limit
        };
        assert_eq!([999, 1000, 5000].map(|limit| widened(&COMPACT, limit)), [999, 10_000, 10_000]);
        assert_eq!(widened(&STANDARD, 1000), 1000);
    }

    #[test]
    fn a_note_is_one_line_of_known_words() {
        let want = "[truncated: total=9 shown=3 strategy=tail full=/c/outputs/1.log]";
        assert_eq!(note(Some(9), 3, "tail", Some("/c/outputs/1.log")), want);
        let uncounted = "[truncated: total=unknown shown=3 strategy=head why=not-read-to-the-end]";
        assert_eq!(note(None, 3, "head", None), uncounted);
        assert!(note(Some(4), 3, "head", Some("a\nb")).ends_with(r#" full="a\nb"]"#));
    }
}
