//! How much of a result is shown to a model. The executor bounds what is *captured*; a profile bounds what is *shown* of it.

use broker_protocol::{Request, limit};
use orchestrator_text::truncate::Bound;

/// How much is shown to one kind of model.
#[derive(Debug, PartialEq, Eq)]
pub struct ModelProfile {
    /// The name used on the command line.
    pub name: &'static str,
    /// Bytes of a file; the beginning is kept.
    pub file: Bound,
    /// Bytes of a command's output.
    pub output: Bound,
    /// Which part of the output is kept.
    pub ends: Ends,
    /// Entries of a directory; the first are kept.
    pub entries: Bound,
    /// Files or lines found; the first are kept.
    pub matches: Bound,
}

/// Which part of an output is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ends {
    /// The beginning and the end, half and half.
    Both,
    Last,
}

/// For models with a large context: what the executor captures by default.
pub static STANDARD: ModelProfile = ModelProfile {
    name: "standard",
    file: Bound::same(limit::READ),
    output: Bound::same(100 << 10),
    ends: Ends::Both,
    entries: Bound::same(limit::ENTRIES as usize),
    matches: Bound::same(limit::ENTRIES as usize),
};

/// For models with a small context.
pub static COMPACT: ModelProfile = ModelProfile {
    name: "compact",
    file: Bound {
        max: 10 << 10,
        keep: 5 << 10,
    },
    output: Bound {
        max: 10 << 10,
        keep: 5 << 10,
    },
    ends: Ends::Last,
    entries: Bound {
        max: 1000,
        keep: 500,
    },
    matches: Bound { max: 100, keep: 50 },
};

/// For people and programs that want everything the executor captured.
pub static WHOLE: ModelProfile = ModelProfile {
    name: "whole",
    output: Bound::same(usize::MAX),
    file: Bound::same(usize::MAX),
    ..STANDARD
};

impl ModelProfile {
    /// Raises the limits of a request so that the items can be counted even if fewer are shown.
    pub fn widen(&self, request: &mut Request) {
        let widen = |limit: &mut u32, bound: Bound| {
            if bound.keep < bound.max && *limit as usize >= bound.max {
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

    /// Bytes of output that the executor should capture for a call; the rest goes to a file.
    pub fn capture(&self) -> Option<u32> {
        u32::try_from(self.output.max).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use broker_protocol::{FileList, Zone, ZonePath};

    #[test]
    fn a_result_at_the_bound_is_whole_and_one_over_is_cut() {
        for (bound, max, keep) in [
            (COMPACT.file, 10_240, 5_120),
            (COMPACT.output, 10_240, 5_120),
            (COMPACT.entries, 1000, 500),
            (COMPACT.matches, 100, 50),
            (STANDARD.file, 1_048_576, 1_048_576),
            (STANDARD.output, 102_400, 102_400),
        ] {
            assert_eq!((bound.cut(max), bound.cut(max + 1)), (None, Some(keep)));
        }
    }

    #[test]
    fn a_list_that_would_be_cut_is_counted() {
        let widened = |profile: &ModelProfile, limit| {
            let path = ZonePath::root(Zone::Project);
            let mut request = Request::FileList(FileList {
                path,
                depth: 1,
                hidden: false,
                limit,
            });
            profile.widen(&mut request);
            let Request::FileList(list) = request else {
                panic!()
            };
            list.limit
        };
        assert_eq!(
            [999, 1000, 5000].map(|limit| widened(&COMPACT, limit)),
            [999, 10_000, 10_000]
        );
        assert_eq!(widened(&STANDARD, 1000), 1000);
    }
}
