//! Findings of the checks after calls in the user's project: what a call has left there, or what could not be checked.
//!
//! A list has one finding a kind, so that nothing a call does often hides what it does once. It has a frame of its own, so that no
//! refusal takes its room, and so that it needs no result of a call. Texts may contain what a hostile program chose, as in a denial.

use crate::limit::{self, TooLarge, at_most};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Objects that a text names; of further ones it gives the number.
const SHOWN: usize = 3;

/// All findings of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    pub kind: FindingKind,
    /// The first [`limit::FOUND_OBJECTS`] different ones.
    pub objects: Vec<FoundObject>,
    /// How many there are; at least as many as `objects`.
    pub count: u64,
    /// A sentence about the first one: its meaning and its effect.
    pub why: String,
    /// Advice to the user, if there is any.
    pub advice: Option<String>,
}

/// Something that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundObject {
    /// A path (bytes that are not UTF-8 replaced), or another name.
    pub target: String,
    /// The action taken, or where the object is now.
    pub state: Option<String>,
}

/// The kinds of findings, in the order in which they are reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum FindingKind {
    /// There was more than a check looks at.
    Unchecked,
    /// A name where calls may make none, which could not be taken away.
    NotTaken,
    /// A name where calls may make none, which is in quarantine now.
    Quarantined,
    /// Who may use a root, which a command has changed.
    RootMode,
    /// A secret that git tracks now.
    TrackedSecret,
    /// An index with names to which git must not write.
    IndexSetAside,
    /// An index of which not all can be read.
    UnreadableIndex,
    /// A name that commands may not create, in git's index.
    IndexedName,
    /// A name that git takes for changed, and no command may change.
    PassedOver,
    /// A file whose changes git does not show (`assume-unchanged`, `skip-worktree`).
    HiddenChange,
    /// A file with names that git does not show (`info/exclude`).
    Exclude,
    /// A repository that has come about.
    Repository,
    /// A text that a shell's prompt would execute.
    PromptText,
    /// A stash that the next commit applies.
    Autostash,
    /// A file that makes git show another history.
    History,
    /// Objects that git shows in place of others.
    Replacement,
    /// A journal from which Mercurial writes files.
    Journal,
    /// A new name that could not be examined.
    Unexamined,
    Lock,
    /// A setting of the user's git that a command's commits were made without.
    CommitSetting,
    /// The gateway of the session, which has ended: connections of cells were cut.
    Gateway,
    /// A file of a repository that is larger than git, or a prompt that asks it, can read.
    TooLarge,
    /// The file system of the audit, on which there is little room.
    Disk,
}

impl FindingKind {
    /// Every kind, in order.
    pub const ALL: [FindingKind; 23] = [
        FindingKind::Unchecked,
        FindingKind::NotTaken,
        FindingKind::Quarantined,
        FindingKind::RootMode,
        FindingKind::TrackedSecret,
        FindingKind::IndexSetAside,
        FindingKind::UnreadableIndex,
        FindingKind::IndexedName,
        FindingKind::PassedOver,
        FindingKind::HiddenChange,
        FindingKind::Exclude,
        FindingKind::Repository,
        FindingKind::PromptText,
        FindingKind::Autostash,
        FindingKind::History,
        FindingKind::Replacement,
        FindingKind::Journal,
        FindingKind::Unexamined,
        FindingKind::Lock,
        FindingKind::CommitSetting,
        FindingKind::Gateway,
        FindingKind::TooLarge,
        FindingKind::Disk,
    ];

    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            FindingKind::Unchecked => "unchecked",
            FindingKind::NotTaken => "not_taken",
            FindingKind::Quarantined => "quarantined",
            FindingKind::RootMode => "root_mode",
            FindingKind::TrackedSecret => "tracked_secret",
            FindingKind::IndexSetAside => "index_set_aside",
            FindingKind::UnreadableIndex => "unreadable_index",
            FindingKind::IndexedName => "indexed_name",
            FindingKind::PassedOver => "passed_over",
            FindingKind::HiddenChange => "hidden_change",
            FindingKind::Exclude => "exclude",
            FindingKind::Repository => "repository",
            FindingKind::PromptText => "prompt_text",
            FindingKind::Autostash => "autostash",
            FindingKind::History => "history",
            FindingKind::Replacement => "replacement",
            FindingKind::Journal => "journal",
            FindingKind::Unexamined => "unexamined",
            FindingKind::Lock => "lock",
            FindingKind::CommitSetting => "commit_setting",
            FindingKind::Gateway => "gateway",
            FindingKind::TooLarge => "too_large",
            FindingKind::Disk => "disk",
        }
    }
}

impl Finding {
    /// One object that was found. Texts are cut at [`limit::DENIAL_TEXT`] bytes.
    pub fn new(kind: FindingKind, target: impl Into<String>, why: impl Into<String>) -> Self {
        let object = FoundObject {
            target: target.into(),
            state: None,
        };
        Self {
            kind,
            objects: vec![object],
            count: 1,
            why: why.into(),
            advice: None,
        }
        .cut()
    }

    /// Adds what was done about the object.
    pub fn with_state(mut self, state: impl Into<String>) -> Self {
        let state = state.into();
        self.objects
            .iter_mut()
            .for_each(|object| object.state = Some(state.clone()));
        self.cut()
    }

    /// Adds what the user can do.
    pub fn with_advice(mut self, advice: impl Into<String>) -> Self {
        self.advice = Some(advice.into());
        self.cut()
    }

    pub fn add_object(&mut self, target: impl Into<String>) {
        self.add(Self::new(self.kind, target, String::new()));
    }

    /// Adds objects of which only the number is known.
    pub fn with_unnamed(mut self, count: u64) -> Self {
        self.count = self.count.saturating_add(count);
        self
    }

    fn cut(mut self) -> Self {
        self.texts_mut().into_iter().for_each(limit::cut);
        self
    }

    /// Every text, for cleaning: it may contain what a program chose.
    pub fn texts_mut(&mut self) -> Vec<&mut String> {
        let mut texts = vec![&mut self.why];
        texts.extend(&mut self.advice);
        for FoundObject { target, state } in &mut self.objects {
            texts.push(target);
            texts.extend(state);
        }
        texts
    }

    /// Adds what another finding of this kind has. An object that is named already is not counted again.
    fn add(&mut self, other: Finding) {
        let named = other.objects.len() as u64;
        let new = other
            .objects
            .into_iter()
            .filter(|object| !self.objects.contains(object));
        let new: Vec<FoundObject> = new.collect();
        let known = named - new.len() as u64;
        self.count = self.count.saturating_add(other.count.saturating_sub(known));
        self.objects.extend(new);
        self.objects.truncate(limit::FOUND_OBJECTS);
    }

    fn check(&self) -> Result<(), TooLarge> {
        at_most("found", self.objects.len(), limit::FOUND_OBJECTS, "objects")?;
        let mut copy = self.clone();
        let mut texts = copy.texts_mut().into_iter();
        texts.try_for_each(|text| at_most("found", text.len(), limit::DENIAL_TEXT, "bytes"))
    }
}

impl fmt::Display for FoundObject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.target)?;
        self.state
            .iter()
            .try_for_each(|state| write!(f, " ({state})"))
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            kind,
            objects,
            count,
            why,
            advice,
        } = self;
        write!(f, "{}: ", kind.name().replace('_', " "))?;
        let shown = objects.len().min(SHOWN);
        for (at, object) in objects[..shown].iter().enumerate() {
            write!(f, "{}{object}", if at > 0 { ", " } else { "" })?;
        }
        match count.saturating_sub(shown as u64) {
            0 => {}
            unnamed => write!(f, " and {unnamed} more")?,
        }
        write!(f, ": {why}")?;
        advice
            .iter()
            .try_for_each(|advice| write!(f, " [{advice}]"))
    }
}

/// Findings of a call: one for each kind, in the order of the kinds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Findings {
    list: Vec<Finding>,
}

impl Findings {
    /// Adds a finding to those of its kind.
    pub fn push(&mut self, finding: Finding) {
        match self
            .list
            .binary_search_by_key(&finding.kind, |known| known.kind)
        {
            Ok(at) => self.list[at].add(finding),
            Err(at) => self.list.insert(at, finding),
        }
    }

    /// Adds those of another list.
    pub fn append(&mut self, other: Findings) {
        other
            .list
            .into_iter()
            .for_each(|finding| self.push(finding));
    }

    /// The findings, one a kind.
    pub fn list(&self) -> &[Finding] {
        &self.list
    }

    /// Mutable access, for cleaning the texts.
    pub fn list_mut(&mut self) -> &mut [Finding] {
        &mut self.list
    }

    /// Whether nothing was found.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Checks every limit that the type itself does not enforce.
    pub fn check(&self) -> Result<(), TooLarge> {
        at_most("found", self.list.len(), FindingKind::ALL.len(), "findings")?;
        if !self.list.is_sorted_by(|one, next| one.kind < next.kind) {
            return Err(TooLarge {
                field: "found",
                rule: "one finding a kind, in order".into(),
            });
        }
        self.list.iter().try_for_each(Finding::check)
    }
}

impl Extend<Finding> for Findings {
    fn extend<I: IntoIterator<Item = Finding>>(&mut self, findings: I) {
        findings.into_iter().for_each(|finding| self.push(finding));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame;

    fn lock(name: &str) -> Finding {
        Finding::new(FindingKind::Lock, name, "It is a lock.").with_advice("remove it")
    }

    #[test]
    fn a_kind_is_named_once_with_its_first_objects_and_a_count() {
        let mut found = Findings::default();
        found.extend((0..20).map(|number| lock(&number.to_string())));
        found.push(Finding::new(
            FindingKind::TrackedSecret,
            ".env",
            "It is a secret.",
        ));
        let kinds: Vec<_> = found
            .list()
            .iter()
            .map(|finding| (finding.kind, finding.count))
            .collect();
        assert_eq!(
            kinds,
            [(FindingKind::TrackedSecret, 1), (FindingKind::Lock, 20)]
        );
        assert_eq!(
            found.list()[1].to_string(),
            "lock: 0, 1, 2 and 17 more: It is a lock. [remove it]"
        );
        assert_eq!(found.check(), Ok(()));
        let mut twice = found.clone();
        twice.append(found.clone());
        assert_eq!(twice.list()[0].count, 1, "the object is the same");
        assert_eq!(
            twice.list()[1].count,
            28,
            "of 20 locks, twelve are known by name"
        );
    }

    #[test]
    fn state_is_shown_with_its_object() {
        let mut found = lock("a").with_state("removed");
        found.add(lock("b"));
        found.add(lock("c").with_unnamed(4));
        assert_eq!(
            found.to_string(),
            "lock: a (removed), b, c and 4 more: It is a lock. [remove it]"
        );
    }

    #[test]
    fn finding_over_a_limit_or_out_of_order_is_refused() {
        let long = "x".repeat(limit::DENIAL_TEXT + 1);
        let cut = Finding::new(FindingKind::Lock, &*long, &*long)
            .with_advice(&*long)
            .with_state(&*long);
        assert_eq!(cut.check(), Ok(()));
        for at in 0..cut.clone().texts_mut().len() {
            let mut one = cut.clone();
            *one.texts_mut()[at] = long.clone();
            assert!(one.check().is_err(), "text {at}");
        }
        let object = FoundObject {
            target: String::new(),
            state: None,
        };
        let many = Finding {
            objects: vec![object; limit::FOUND_OBJECTS + 1],
            ..lock("a")
        };
        assert!(Findings { list: vec![many] }.check().is_err());
        let secret = Finding::new(FindingKind::TrackedSecret, ".env", "");
        for list in [vec![lock("a"), lock("b")], vec![lock("a"), secret]] {
            assert!(Findings { list }.check().is_err());
        }
    }

    #[test]
    fn the_longest_list_fits_into_a_frame() {
        let long = "x".repeat(limit::DENIAL_TEXT);
        let of = |kind| (0..limit::FOUND_OBJECTS).map(move |number| (kind, number));
        let mut found = Findings::default();
        found.extend(
            FindingKind::ALL
                .into_iter()
                .flat_map(of)
                .map(|(kind, number)| {
                    let target = format!("{number:02}{}", &long[2..]);
                    Finding::new(kind, target, &*long)
                        .with_state(&*long)
                        .with_advice(&*long)
                }),
        );
        assert_eq!(found.check(), Ok(()));
        assert!(frame::encode_whole(&found).is_ok_and(|bytes| bytes.len() < frame::FRAME_MAX / 3));
        let names: std::collections::HashSet<_> = FindingKind::ALL.map(FindingKind::name).into();
        assert_eq!(names.len(), FindingKind::ALL.len());
    }
}
