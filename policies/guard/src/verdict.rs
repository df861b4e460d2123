//! The judge's verdict on a change, and the rules that can refuse it.

/// The verdict on a change of a name or an object. An error of the kernel is none: who reads the disk returns it beside the verdict.
#[must_use]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// No rule is against it.
    Allow,
    /// This rule is the first against it.
    Refuse(Rule),
}

/// A rule that refuses a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rule {
    /// The path lies outside what may be seen or changed.
    Outside,
    /// The name is protected, or names below it are.
    Name,
    /// The object or its place was protected when the session opened, or lies above such a place.
    Object,
    /// A program of the host's is about to rename the file to a protected name.
    Transit,
    /// The user's repository needs the part, or would be none.
    KeptPart,
    /// The change would give a directory the structure of a repository where its settings are not protected.
    Structure,
    /// A repository would come about over a directory that no call has made.
    Repository,
    /// The user's git would write through the link.
    LinkInRepository,
    /// The content would make a program of the host's act, or replace settings that no cell has made.
    Content,
    /// The file has another name, which would be protected too.
    SecondName,
    /// A rename or a link would lead from one area to another.
    OtherArea,
    /// More empty directories than are removed after a call.
    EmptyDirectories,
    /// The directory belongs to the private storage of another cell.
    OtherStorage,
}

impl Rule {
    /// Whether it says that a repository would come about.
    pub fn is_of_new_repositories(self) -> bool {
        self == Rule::Repository
    }

    /// Whether programs answer the refusal by a copy, as they do across file systems.
    pub fn leads_to_a_copy(self) -> bool {
        match self {
            Rule::SecondName | Rule::OtherArea => true,
            Rule::Outside
            | Rule::Name
            | Rule::Object
            | Rule::Transit
            | Rule::KeptPart
            | Rule::Structure
            | Rule::Repository
            | Rule::LinkInRepository
            | Rule::Content
            | Rule::EmptyDirectories
            | Rule::OtherStorage => false,
        }
    }
}

impl Verdict {
    /// Refuses by `rule` if that is `against` the change.
    pub(crate) fn refuse_if(against: bool, rule: Rule) -> Self {
        if against {
            Self::Refuse(rule)
        } else {
            Self::Allow
        }
    }

    /// Asks `next` if nothing is against the change so far.
    pub fn and(self, next: impl FnOnce() -> Self) -> Self {
        match self {
            Self::Allow => next(),
            Self::Refuse(_) => self,
        }
    }

    /// Like [`Self::and`], where `next` reads the disk.
    ///
    /// # Errors
    /// Those errors that `next` returns.
    pub fn and_try<E>(self, next: impl FnOnce() -> Result<Self, E>) -> Result<Self, E> {
        match self {
            Self::Allow => next(),
            Self::Refuse(_) => Ok(self),
        }
    }

    /// Whether nothing is against the change.
    pub fn is_allowed(self) -> bool {
        self == Self::Allow
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_rule_against_a_change_refuses_it() {
        let name = Verdict::Refuse(Rule::Name);
        let outside = Verdict::Refuse(Rule::Outside);
        for (first, next, both) in [
            (Verdict::Allow, Verdict::Allow, Verdict::Allow),
            (Verdict::Allow, name, name),
            (name, Verdict::Allow, name),
            (name, outside, name),
        ] {
            assert_eq!(first.and(|| next), both);
            assert_eq!(first.and_try(|| Ok::<_, ()>(next)), Ok(both));
        }
        let failed = |verdict: Verdict| verdict.and_try(|| Err("kernel"));
        assert_eq!(failed(Verdict::Allow), Err("kernel"));
        assert_eq!(failed(name), Ok(name), "nothing more is asked");
    }
}
