//! Names whose changes git does not show (`assume-unchanged`, `skip-worktree`): which of them commands have hidden since the last check.

use broker_protocol::{Finding, FindingKind};
use executor_spec::worker::HiddenNames;
use std::collections::BTreeSet;

/// The hidden names of an index.
#[derive(Debug, Default)]
pub(crate) struct HiddenChanges {
    /// Those with a file in the work tree.
    present: HiddenNames,
    /// Those without.
    left_out: HiddenNames,
}

impl HiddenChanges {
    pub(crate) fn new(present: HiddenNames, left_out: HiddenNames) -> Self {
        Self { present, left_out }
    }

    /// Those that were not hidden `before`, as far as `is_counted` says. Where names without a file were hidden before, the user's
    /// checkout is sparse, and each checkout of a command hides others.
    pub(crate) fn since(
        &self,
        before: &Self,
        is_counted: impl Fn(&[u8]) -> bool,
    ) -> Option<Finding> {
        let mut new = NewlyHidden::of(&self.present, &before.present, &is_counted);
        if before.left_out.count == 0 {
            // A name is not new because its file is gone.
            let known: BTreeSet<&[u8]> = before.present.first.iter().map(Vec::as_slice).collect();
            let left_out = |path: &[u8]| is_counted(path) && !known.contains(path);
            new.add(NewlyHidden::of(&self.left_out, &before.left_out, &left_out));
        }
        if new.count == 0 {
            return None;
        }
        let why = "A command has made git not show its changes (`assume-unchanged`, `skip-worktree`): `git status`, `git diff` and \
                   `git commit -a` pass over it, whatever it contains now.";
        let advice = "look at `git ls-files -v` (small letters and S), and run `git update-index --no-assume-unchanged \
                      --no-skip-worktree` for each that is not yours";
        let names = new
            .names
            .iter()
            .map(|name| String::from_utf8_lossy(name).into_owned());
        let names: Vec<String> = names.collect();
        let (first, others) = match names.split_first() {
            Some((first, others)) => (first.as_str(), others),
            None => ("the index", &[][..]),
        };
        let mut found = Finding::new(FindingKind::HiddenChange, first, why).with_advice(advice);
        others
            .iter()
            .for_each(|name| found.add_object(name.as_str()));
        let named = 1 + others.len() as u64;
        Some(found.with_unnamed(new.count.saturating_sub(named)))
    }
}

/// Names that were not hidden before.
struct NewlyHidden<'n> {
    names: Vec<&'n [u8]>,
    count: u64,
}

impl<'n> NewlyHidden<'n> {
    fn of(now: &'n HiddenNames, before: &HiddenNames, is_counted: &dyn Fn(&[u8]) -> bool) -> Self {
        if now.digest == before.digest {
            return Self {
                names: Vec::new(),
                count: 0,
            };
        }
        let known: BTreeSet<&Vec<u8>> = before.first.iter().collect();
        let new = now
            .first
            .iter()
            .filter(|name| !known.contains(name) && is_counted(name));
        let names: Vec<&[u8]> = new.map(Vec::as_slice).collect();
        let are_all = |of: &HiddenNames| of.first.len() as u64 == of.count;
        let count = match are_all(now) && are_all(before) {
            true => names.len() as u64,
            // Which of them is new is not known; that they are others is.
            false => (names.len() as u64)
                .max(now.count.saturating_sub(before.count))
                .max(1),
        };
        Self { names, count }
    }

    fn add(&mut self, other: Self) {
        self.names.extend(other.names);
        self.count = self.count.saturating_add(other.count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use broker_protocol::Digest;

    fn hidden(names: &[&str], count: u64) -> HiddenNames {
        let first = names.iter().map(|name| name.as_bytes().to_vec()).collect();
        HiddenNames {
            first,
            count,
            digest: Digest::of(format!("{names:?}{count}").as_bytes()),
        }
    }

    fn of(present: &[&str], left_out: &[&str]) -> HiddenChanges {
        HiddenChanges::new(
            hidden(present, present.len() as u64),
            hidden(left_out, left_out.len() as u64),
        )
    }

    fn since(now: &HiddenChanges, before: &HiddenChanges) -> Option<(u64, String)> {
        let found = now.since(before, |path| path != b"closed")?;
        Some((found.count, found.objects[0].target.clone()))
    }

    #[test]
    fn a_name_that_was_hidden_before_is_the_users() {
        let before = of(&["a"], &[]);
        assert_eq!(since(&of(&["a"], &[]), &before), None);
        assert_eq!(since(&of(&[], &[]), &before), None, "it is shown again");
        assert_eq!(since(&of(&["b"], &[]), &before), Some((1, "b".into())));
        assert_eq!(since(&of(&["a", "closed"], &[]), &before), None);
        assert_eq!(since(&of(&[], &["a"]), &before), None, "its file is gone");
        assert_eq!(since(&of(&["a"], &["c"]), &before), Some((1, "c".into())));
    }

    #[test]
    fn a_sparse_checkout_may_leave_out_more() {
        let before = of(&[], &["x"]);
        assert_eq!(since(&of(&[], &["x", "y"]), &before), None);
        assert_eq!(since(&of(&["y"], &["x"]), &before), Some((1, "y".into())));
    }

    #[test]
    fn a_change_among_more_names_than_are_listed_is_reported() {
        let (before, now) = (hidden(&["a"], 9), hidden(&["a"], 9));
        let before = HiddenChanges::new(before, HiddenNames::default());
        let same = HiddenChanges::new(now, HiddenNames::default());
        assert_eq!(since(&same, &before), None);
        let other = HiddenNames {
            digest: Digest::of(b"other"),
            ..hidden(&["a"], 9)
        };
        let other = HiddenChanges::new(other, HiddenNames::default());
        assert_eq!(since(&other, &before), Some((1, "the index".into())));
    }
}
