//! Protected names, compiled once for a session: is this name closed, by which rule?
//!
//! Paths come as bytes, relative to a zone's root, as the disk or a request has them; nothing about them is believed. A
//! name that is not UTF-8 is matched like any other. Letters are compared without case, beyond ASCII as well, and
//! characters that case-insensitive file systems leave out of a comparison are left out here.
//!
//! Each path is walked once: O(pattern length × path length) steps.

use crate::fold::{fold, fold_pattern};
use crate::origin::Origin;
use crate::pattern::{Case, NameError, Pattern, PatternError, Plain, has_signs};
use crate::repository::is_git_name;
use crate::steps;
use crate::transit::{CompiledForm, TransitForm};
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// Longest name that a directory of Linux can hold, in bytes (`NAME_MAX` of `linux/limits.h`).
pub const NAME_MAX: usize = 255;

/// A name that is closed inside the zones, at any depth.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ProtectedName {
    /// The pattern as written, such as `.env.*` or `.git/modules/**/hooks`: one or more names, compared without case. With `/` before
    /// them they are those of a zone's root, as in `/auth.json`.
    pub pattern: String,
    /// Patterns of single names that stay open though the last name of `pattern` matches them.
    pub except: Vec<String>,
    /// Accesses to it that are closed.
    pub protection: Protection,
    /// Whether commands may create it.
    pub new: WhenNew,
    /// Whether a profile may open it.
    pub opens: bool,
    /// The reason that the user and the model get.
    pub why: String,
    /// The line that protects it.
    #[serde(skip)]
    pub origin: Origin,
}

impl ProtectedName {
    /// Whether commands may remove it where packages are installed. They may create such a name anywhere, as somebody has to push or
    /// run the project before it acts, and nobody does that with an installed package.
    pub(crate) fn may_be_removed_from_packages(&self) -> bool {
        match self.new {
            WhenNew::Open | WhenNew::Harmless => self.protection == Protection::Write,
            WhenNew::Closed => false,
        }
    }
}

/// Access to files: what a cell has below a path, or what a call asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Access {
    /// Read files, and run programs.
    Read,
    /// Anything a user may do to files.
    Write,
}

/// Accesses to a protected name that are closed. Ordered: the last is the strongest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protection {
    /// Closed for changes: reading is allowed; writing, replacing and removing are not.
    Write,
    /// Closed for reading as well as for changes.
    All,
}

impl Protection {
    /// Whether it keeps calls from this access.
    pub fn closes(self, access: Access) -> bool {
        match self {
            Self::All => true,
            Self::Write => access == Access::Write,
        }
    }
}

/// Whether commands may create a protected name that does not exist. File tools may never create one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum WhenNew {
    /// They may create it. What they created stays open to the commands of their session.
    Open,
    /// They may do so in packages and in directories that came about in their session. Elsewhere they may move a file there whose settings
    /// are harmless (`is_harmless_package_config` of `policies`), and write to none.
    Harmless,
    /// They may not create it.
    #[default]
    Closed,
}

/// The protected name that a path is in transit for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransitTarget<'m> {
    /// The strongest rule that ends there.
    pub name: &'m ProtectedName,
    /// Its path, as the path in transit spells it.
    pub path: Vec<u8>,
}

/// Answers for one list of protected names. A clone shares the compiled patterns.
///
/// A pattern of several names, such as `.git/hooks`, matches where its names follow each other, at any depth. What
/// lies below a protected name is protected with it.
#[derive(Clone, Debug)]
pub struct Matcher(Arc<Compiled>);

#[derive(Debug)]
struct Compiled {
    names: Arc<Vec<ProtectedName>>,
    /// For each of `names` the context of its last name, and its exceptions.
    conditions: Vec<(usize, Arc<[Pattern]>)>,
    /// Each after the one it extends. The first is every directory.
    contexts: Vec<PatternContext>,
    /// The contexts of one name that is no pattern, in lower case and sorted, each with its index in `contexts`: nearly every
    /// directory of a tree is none of them.
    roots: Vec<(Vec<u8>, usize)>,
    /// Last names that are no patterns, in lower case and sorted, each with its index in `names`.
    literals: Vec<(Vec<u8>, usize)>,
    /// The names that programs give a file before they rename it to a protected one.
    transit: Vec<CompiledForm>,
    /// Index of the context of a zone's root, if a pattern begins there.
    root: Option<usize>,
    /// All other last names, likewise, by the byte they end with where that is fixed: a walk asks about each name of a
    /// tree, and nearly all are refused by the first or the last byte.
    patterns: BTreeMap<Option<u8>, Vec<(Plain, usize)>>,
}

/// The part of a pattern before its last name: `.git` and `.git/modules` and `.git/modules/**` are three.
#[derive(Debug)]
struct PatternContext {
    component: Component,
    /// Indices of the contexts that extend this one, but for `roots`.
    children: Vec<usize>,
    /// Index of the first name that begins so.
    rule: usize,
}

#[derive(Debug, PartialEq)]
enum Component {
    /// The root of a zone, which no name leads to.
    Root,
    Name(Pattern),
    /// `**`: any number of names, none too.
    Deep,
}

impl Matcher {
    /// Compiles `names`. None of them is ever in transit.
    ///
    /// # Errors
    /// One of them is no pattern.
    pub fn new(names: &[ProtectedName]) -> Result<Self, NameError> {
        Self::shared(Arc::new(names.to_vec()), &[])
    }

    /// A matcher with `more` names, which are in transit in the same forms.
    pub fn with(&self, more: impl Iterator<Item = ProtectedName>) -> Result<Self, NameError> {
        let names = self.0.names.iter().cloned().chain(more).collect();
        Self::compile(Arc::new(names), self.0.transit.clone())
    }

    /// Compiles names that a policy holds too, and the forms in which they are in transit.
    pub fn shared(
        names: Arc<Vec<ProtectedName>>,
        transit: &[TransitForm],
    ) -> Result<Self, NameError> {
        Self::compile(
            names,
            transit
                .iter()
                .map(CompiledForm::new)
                .collect::<Result<_, _>>()?,
        )
    }

    fn compile(
        names: Arc<Vec<ProtectedName>>,
        transit: Vec<CompiledForm>,
    ) -> Result<Self, NameError> {
        let everywhere = PatternContext {
            component: Component::Deep,
            children: Vec::new(),
            rule: 0,
        };
        let mut compiled = Compiled {
            names: names.clone(),
            conditions: Vec::with_capacity(names.len()),
            contexts: vec![everywhere],
            root: None,
            roots: Vec::new(),
            literals: Vec::new(),
            transit,
            patterns: BTreeMap::new(),
        };
        let mut known = BTreeMap::new();
        for (index, name) in names.iter().enumerate() {
            let added = compiled.add(index, name, &mut known);
            added.map_err(|why| NameError {
                pattern: name.pattern.clone(),
                why,
            })?;
        }
        compiled.literals.sort();
        compiled.roots.sort();
        Ok(Self(Arc::new(compiled)))
    }

    /// The strongest rule for `relative` or for a directory above it; the one nearest the root where several are
    /// equal. The empty path is the root of a zone, which no rule protects.
    pub fn protection(&self, relative: &[u8]) -> Option<&ProtectedName> {
        let mut descent = Descent::new(&self.0);
        let rules =
            names_of(relative).filter_map(|(_, name)| self.0.strongest(descent.enter(name)));
        rules.reduce(|first, next| {
            if next.protection > first.protection {
                next
            } else {
                first
            }
        })
    }

    /// Whether a profile may open every rule about `relative`, of which there is at least one.
    pub fn opens(&self, relative: &[u8]) -> bool {
        let mut descent = Descent::new(&self.0);
        let rules: Vec<usize> = names_of(relative)
            .flat_map(|(_, name)| descent.enter(name))
            .collect();
        !rules.is_empty() && rules.iter().all(|rule| self.0.names[*rule].opens)
    }

    /// The strongest rule that ends at `name`, an entry of the directory `parent` (relative to the zone's root, empty
    /// for it). For a walk, which asks this of each entry and does not go below what is closed to it.
    pub fn name(&self, parent: &[u8], name: &[u8]) -> Option<&ProtectedName> {
        // Nearly all entries end here.
        self.0.rules_of(&fold(name)).next()?;
        self.0.strongest(Descent::to(&self.0, parent).enter(name))
    }

    /// Whether any rule's last component is exactly this name (no wildcard), in any directory.
    pub fn is_last_of_a_rule(&self, name: &[u8]) -> bool {
        !equal(&self.0.literals, &fold(name)).is_empty()
    }

    /// The protected names for which the last name of `relative` is in transit: what a program calls a file that it will rename
    /// to the protected name, or keeps a copy of it under, such as `.git/config.lock`. A descriptor of it is one of the protected
    /// file a moment later, so a command may open one that exists only where its own session made it.
    ///
    /// A path without names, or of which the last has more than [`NAME_MAX`] bytes, is in transit for none. It takes at most as
    /// many steps as the forms and patterns have signs times the square of the bytes of the last name, plus the bytes of the path.
    pub fn transit(&self, relative: &[u8]) -> Vec<TransitTarget<'_>> {
        let Some((end, written)) = names_of(relative)
            .last()
            .filter(|(_, name)| name.len() <= NAME_MAX)
        else {
            return Vec::new();
        };
        let (parent, name) = (&relative[..end - written.len()], fold(written));
        let mut directory = None;
        let targets = self.0.transit.iter().flat_map(|form| form.targets(&name));
        let rules = targets.filter_map(|target| {
            // Nearly all names end here.
            self.0.rules_of(&name[target.clone()]).next()?;
            let directory = directory.get_or_insert_with(|| Descent::to(&self.0, parent));
            let rule = self.0.strongest(directory.rules(&name[target.clone()]))?;
            let path = [parent, as_written(written, &name, target)].concat();
            Some(TransitTarget { name: rule, path })
        });
        rules.collect()
    }

    /// The names of `relative` at which rules end: how many names of the path there are up to each, and whether it is
    /// closed where it is new, as it is by any rule that does not say otherwise.
    pub fn closings(&self, relative: &[u8]) -> Vec<(usize, WhenNew)> {
        let mut descent = Descent::new(&self.0);
        let mut closing = |name| {
            descent
                .enter(name)
                .into_iter()
                .map(|rule| self.0.names[rule].new)
                .max()
        };
        let names = (1..).zip(names_of(relative));
        names
            .filter_map(|(count, (_, name))| Some((count, closing(name)?)))
            .collect()
    }

    /// Permissions for a new name at `relative` by the strictest rule; `None` if there is no rule.
    pub fn when_new(&self, relative: &[u8]) -> Option<WhenNew> {
        let closings = self.closings(relative).into_iter();
        closings.map(|(_, new)| new).max()
    }

    /// Whether a rule about `relative` lets commands create the name.
    pub fn closes_what_exists(&self, relative: &[u8]) -> bool {
        let mut closings = self.closings(relative).into_iter();
        closings.any(|(_, new)| new != WhenNew::Closed)
    }

    /// Whether commands may not create this name wherever they want.
    pub fn is_closed_when_new(&self, relative: &[u8]) -> bool {
        self.when_new(relative) > Some(WhenNew::Open)
    }

    /// Whether a rule closes this name for reading.
    pub fn is_secret(&self, relative: &[u8]) -> bool {
        let rule = self.protection(relative);
        rule.is_some_and(|rule| rule.protection == Protection::All)
    }

    /// A rule that has names below `relative`: `.git` leads to `.git/hooks`. A file in the place of such a directory
    /// undoes the rule (a `.git` file points to another repository), so none may be written there.
    pub fn leads_to(&self, relative: &[u8]) -> Option<&ProtectedName> {
        Descent::to(&self.0, relative).leads_to()
    }

    /// Why the directory at `path`, from the root of the host, may be no zone, in which nobody would see what it is called: the
    /// rule that closes it or a directory above it, or that begins with its names and ends below it; and how much of `path`
    /// leads to what is protected. Of git's own directory nothing may be one.
    pub fn closed_to_zones(&self, path: &[u8]) -> Option<(&ProtectedName, usize)> {
        let below = self.reaches_below(path);
        let last = names_of(path).last()?.0;
        let mut descent = Descent::new(&self.0);
        names_of(path).find_map(|(end, name)| {
            // A directory that is called `NAME.git` may be a project; what lies in it is git's, or will be.
            let git = fold(name).eq_ignore_ascii_case(b".git") || end != last && is_git_name(name);
            let closed = self
                .0
                .strongest(descent.enter(if git { b".git" } else { name }));
            Some((
                closed.or_else(|| descent.leads_to().filter(|_| below || git))?,
                end,
            ))
        })
    }

    /// Whether a rule may begin with names of `relative` and end below it: `.git/modules/**/hooks` reaches below
    /// `.git/modules/x/y`. Where none does, what lies below a directory is protected wherever the directory is, or nowhere.
    pub fn reaches_below(&self, relative: &[u8]) -> bool {
        Descent::to(&self.0, relative).contexts().next().is_some()
    }
}

impl Compiled {
    /// Adds name number `index`. `known` are the contexts by their parents and last components.
    fn add<'n>(
        &mut self,
        index: usize,
        name: &'n ProtectedName,
        known: &mut BTreeMap<(usize, &'n str), usize>,
    ) -> Result<(), PatternError> {
        let (parents, last) = name.pattern.rsplit_once('/').unwrap_or(("", &name.pattern));
        let mut context = match name.pattern.strip_prefix('/') {
            Some(_) => self.root(index),
            None => 0,
        };
        for text in parents.split('/').filter(|name| !name.is_empty()) {
            let parent = context;
            context = *known.entry((parent, text)).or_insert(self.contexts.len());
            if context == self.contexts.len() {
                self.add_context(parent, Component::new(text)?, index);
            }
        }
        // Names of one entry have the same exceptions.
        let before = index
            .checked_sub(1)
            .filter(|before| self.names[*before].except == name.except);
        let except = match before {
            Some(before) => self.conditions[before].1.clone(),
            None => name
                .except
                .iter()
                .map(|name| parse(name))
                .collect::<Result<_, _>>()?,
        };
        self.conditions.push((context, except));
        // Nearly all names are no patterns, and every session waits for them.
        if !has_signs(last) {
            let text = fold_pattern(last).to_ascii_lowercase();
            self.literals.push((text.into_bytes(), index));
            return Ok(());
        }
        for pattern in parse(last)?.into_plain() {
            match pattern.literal().map(<[u8]>::to_vec) {
                Some(text) => self.literals.push((text, index)),
                None => self
                    .patterns
                    .entry(pattern.last_byte())
                    .or_default()
                    .push((pattern, index)),
            }
        }
        Ok(())
    }

    /// The context of a zone's root. It is the child of none, so that no step looks at it.
    fn root(&mut self, rule: usize) -> usize {
        *self.root.get_or_insert_with(|| {
            self.contexts.push(PatternContext {
                component: Component::Root,
                children: Vec::new(),
                rule,
            });
            self.contexts.len() - 1
        })
    }

    fn add_context(&mut self, parent: usize, component: Component, rule: usize) {
        let index = self.contexts.len();
        match component.literal().filter(|_| parent == 0) {
            Some(name) => self.roots.push((name.to_vec(), index)),
            None => self.contexts[parent].children.push(index),
        }
        self.contexts.push(PatternContext {
            component,
            children: Vec::new(),
            rule,
        });
    }

    /// The rules whose last name is `name`, which is folded, wherever it is.
    fn rules_of<'a>(&'a self, name: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
        let literals = equal(&self.literals, name).iter().map(|(_, index)| *index);
        let ends = [None, name.last().map(u8::to_ascii_lowercase)];
        let patterns = ends
            .into_iter()
            .filter_map(|end| self.patterns.get(&end))
            .flatten();
        literals.chain(
            patterns
                .filter(|(pattern, _)| pattern.matches(name))
                .map(|(_, index)| *index),
        )
    }

    /// The strongest of `rules`; the first of equals.
    fn strongest(&self, rules: Vec<usize>) -> Option<&ProtectedName> {
        let strongest = rules
            .into_iter()
            .max_by_key(|index| (self.names[*index].protection, Reverse(*index)))?;
        self.names.get(strongest)
    }
}

/// The part of `literals`, which are sorted, that equals `name` without case.
fn equal<'a>(literals: &'a [(Vec<u8>, usize)], name: &[u8]) -> &'a [(Vec<u8>, usize)] {
    let lower = || name.iter().map(u8::to_ascii_lowercase);
    let start = literals.partition_point(|(text, _)| text.iter().copied().lt(lower()));
    let count = literals[start..].partition_point(|(text, _)| text.iter().copied().eq(lower()));
    &literals[start..start + count]
}

/// A directory, as the patterns see it: which contexts are its last names.
struct Descent<'m> {
    compiled: &'m Compiled,
    /// The contexts that end here, each once, but for that of every directory.
    holds: Vec<usize>,
}

impl<'m> Descent<'m> {
    /// The root of a zone.
    fn new(compiled: &'m Compiled) -> Self {
        Self {
            compiled,
            holds: compiled.root.into_iter().collect(),
        }
    }

    fn to(compiled: &'m Compiled, directory: &[u8]) -> Self {
        let mut descent = Self::new(compiled);
        names_of(directory).for_each(|(_, name)| descent.step(&fold(name)));
        descent
    }

    /// Goes to `name` in this directory. Returns the rules that end there.
    fn enter(&mut self, name: &[u8]) -> Vec<usize> {
        let name = fold(name);
        let rules = self.rules(&name);
        self.step(&name);
        rules
    }

    /// The rules that end at `name` in this directory, which is folded.
    fn rules(&self, name: &[u8]) -> Vec<usize> {
        let about = |rule: &usize| {
            let (context, except) = &self.compiled.conditions[*rule];
            (*context == 0 || self.holds.contains(context))
                && !except.iter().any(|pattern| pattern.matches(name))
        };
        self.compiled.rules_of(name).filter(about).collect()
    }

    /// Each name follows what its parent was before.
    fn step(&mut self, name: &[u8]) {
        let compiled = self.compiled;
        let before = std::mem::take(&mut self.holds);
        for (_, root) in equal(&compiled.roots, name) {
            self.hold(*root);
        }
        for index in [0].iter().chain(&before) {
            let context = &compiled.contexts[*index];
            steps::count(1 + context.children.len());
            if *index > 0 && context.component == Component::Deep {
                self.hold(*index);
            }
            for child in &context.children {
                if compiled.contexts[*child].component.takes(name) {
                    self.hold(*child);
                }
            }
        }
    }

    /// A context ends here, and with it those that extend it by any number of names.
    fn hold(&mut self, index: usize) {
        if self.holds.contains(&index) {
            return;
        }
        self.holds.push(index);
        for child in &self.compiled.contexts[index].children {
            if self.compiled.contexts[*child].component == Component::Deep {
                self.hold(*child);
            }
        }
    }

    /// The contexts of names that hold here.
    fn contexts(&self) -> impl Iterator<Item = &'m PatternContext> {
        self.holds
            .iter()
            .filter_map(|index| self.compiled.contexts.get(*index))
            .filter(|context| context.component != Component::Root)
    }

    /// See [`Matcher::leads_to`]. A context that ends in `**` would be every directory below the names before it.
    fn leads_to(&self) -> Option<&'m ProtectedName> {
        let contexts = self
            .contexts()
            .filter(|context| context.component != Component::Deep);
        self.compiled
            .names
            .get(contexts.map(|context| context.rule).min()?)
    }
}

impl Component {
    fn new(name: &str) -> Result<Self, PatternError> {
        if name == "**" {
            Ok(Component::Deep)
        } else {
            parse(name).map(Component::Name)
        }
    }

    /// The only name that it is, in lower case, if there is only one.
    fn literal(&self) -> Option<&[u8]> {
        match self {
            Component::Name(pattern) => pattern.literal(),
            Component::Root | Component::Deep => None,
        }
    }

    /// Whether a directory of this name, which is folded, is one more of it.
    fn takes(&self, name: &[u8]) -> bool {
        match self {
            Component::Name(pattern) => pattern.matches(name),
            Component::Root => false,
            Component::Deep => true,
        }
    }
}

/// The part of the name `written` that is `part` of its folded form.
fn as_written<'n>(written: &'n [u8], folded: &[u8], part: Range<usize>) -> &'n [u8] {
    let place =
        |end: usize| (0..written.len()).find(|place| *fold(&written[..*place]) == folded[..end]);
    if written.is_ascii() {
        return &written[part];
    }
    &written[place(part.start).unwrap_or(0)..place(part.end).unwrap_or(written.len())]
}

fn parse(name: &str) -> Result<Pattern, PatternError> {
    Pattern::parse(&fold_pattern(name), Case::Ignored)
}

/// The names of a path from the root down, each with the place in the path where it ends.
fn names_of(path: &[u8]) -> impl Iterator<Item = (usize, &[u8])> {
    let mut start = 0;
    let names = path.split(|byte| *byte == b'/').map(move |name| {
        start += name.len() + 1;
        (start - 1, name)
    });
    names.filter(|(_, name)| !name.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn protected(pattern: &str, protection: Protection) -> ProtectedName {
        ProtectedName {
            pattern: pattern.into(),
            except: vec![],
            protection,
            new: WhenNew::Closed,
            opens: false,
            why: "why".into(),
            origin: Origin::default(),
        }
    }

    fn matcher(patterns: &[&str]) -> Matcher {
        let names: Vec<_> = patterns
            .iter()
            .map(|pattern| protected(pattern, Protection::All))
            .collect();
        Matcher::new(&names).unwrap()
    }

    fn hits(matcher: &Matcher, path: impl AsRef<[u8]>) -> bool {
        matcher.protection(path.as_ref()).is_some()
    }

    #[test]
    fn a_name_is_protected_at_any_depth_and_with_all_below_it() {
        let matcher = matcher(&[".env", "*.pem"]);
        for path in [
            ".env",
            "a/.env",
            "a/b/.env",
            ".env/x/y",
            "x.pem",
            "a/x.pem/y",
            "a//.env",
        ] {
            assert!(hits(&matcher, path), "{path}");
        }
        for path in [
            "", "env", ".envy", "a.env", "a/.env2", "pem", "x.pem2", "a/b",
        ] {
            assert!(!hits(&matcher, path), "{path}");
        }
    }

    #[test]
    fn several_names_match_where_they_follow_each_other() {
        let matcher = matcher(&[".git/hooks", ".git/modules/**/config", "a*/b"]);
        for path in [
            ".git/hooks",
            "sub/.git/hooks/pre-commit",
            ".git/modules/config",
            ".git/modules/x/config",
            "s/.git/modules/libs/x/y/config",
            "abc/b",
            "x/a/b/c",
        ] {
            assert!(hits(&matcher, path), "{path}");
        }
        for path in [
            ".git",
            "hooks",
            ".git/x/hooks",
            "x.git/hooks",
            ".git/config",
            "modules/x/config",
            ".git/xmodules/config",
            "xa/b",
        ] {
            assert!(!hits(&matcher, path), "{path}");
        }
    }

    #[test]
    fn case_does_not_matter_in_any_alphabet() {
        let matcher = matcher(&[".Env", ".GIT/hooks", "*.Key", "Schlüssel", ".kube/config"]);
        for path in [
            ".ENV",
            ".eNv/x",
            ".git/HOOKS",
            ".Git/Hooks",
            "A.KEY",
            "SCHLÜSSEL",
            "schlüssel",
            ".\u{212a}ube/config",
        ] {
            assert!(hits(&matcher, path), "{path}");
        }
    }

    #[test]
    fn ignorable_characters_hide_no_name() {
        let matcher = matcher(&[".env", ".git/hooks", "*secret*.txt"]);
        for path in [
            ".e\u{200c}nv",
            "\u{feff}.env",
            ".g\u{200b}it/ho\u{ad}oks/x",
            "client_\u{17f}ecret.txt",
        ] {
            assert!(hits(&matcher, path), "{path:?}");
        }
    }

    #[test]
    fn non_utf8_bytes_match_like_others() {
        let matcher = matcher(&[".env", "*credential*.json", ".git/hooks"]);
        assert!(hits(&matcher, b"\xff\xfe/.env"));
        assert!(hits(&matcher, b".env/\xff"));
        assert!(hits(&matcher, b"\xffcredential\xfe.json"));
        assert!(hits(&matcher, b"\xff/.git/HOOKS/\xfe"));
        assert!(!hits(&matcher, b".env\xff"));
        assert!(matcher.name(b"\xff", b".env").is_some());
    }

    #[test]
    fn pattern_with_leading_slash_matches_at_the_root_only() {
        let matcher = matcher(&["/auth.json", "/a/{b,c}"]);
        let closed = |path: &str| matcher.protection(path.as_bytes()).is_some();
        for path in ["auth.json", "Auth.JSON", "auth.json/x", "a/b", "a/c/d"] {
            assert!(closed(path), "{path}");
        }
        for path in ["x/auth.json", "x/a/b", "a", "a/a/b", "b"] {
            assert!(!closed(path), "{path}");
        }
        assert!(matcher.name(b"", b"auth.json").is_some());
        assert!(matcher.name(b"x", b"auth.json").is_none());
        assert!(matcher.leads_to(b"a").is_some() && matcher.reaches_below(b"a"));
        assert!(matcher.leads_to(b"").is_none() && !matcher.reaches_below(b""));
        assert!(matcher.leads_to(b"x/a").is_none());
    }

    #[test]
    fn exception_holds_for_its_rule_and_name_only() {
        let open = ProtectedName {
            except: vec!["*.example".into(), ".env.dist".into()],
            ..protected(".env.*", Protection::All)
        };
        let matcher =
            Matcher::new(&[open.clone(), protected("*.key.example", Protection::Write)]).unwrap();
        for path in [".env.example", ".ENV.LOCAL.EXAMPLE", "a/.env.dist"] {
            assert!(!hits(&matcher, path), "{path}");
        }
        for path in [
            ".env.local",
            ".env.example.local",
            ".env.d/example",
            ".env.x.key.example",
        ] {
            assert!(hits(&matcher, path), "{path}");
        }
    }

    #[test]
    fn the_strongest_rule_answers_and_of_equals_the_first() {
        let names = [
            protected(".claude", Protection::Write),
            protected("*.json", Protection::Write),
            protected("*credential*.json", Protection::All),
        ];
        let matcher = Matcher::new(&names).unwrap();
        let rule = |path: &str| {
            matcher
                .protection(path.as_bytes())
                .unwrap()
                .pattern
                .as_str()
        };
        assert_eq!(rule("credentials.json"), "*credential*.json");
        assert_eq!(rule(".claude/x.json"), ".claude");
        assert_eq!(rule(".claude/credentials.json"), "*credential*.json");
        assert_eq!(
            matcher.name(b".claude", b"x.json").unwrap().pattern,
            "*.json"
        );
        assert!(matcher.name(b".claude", b"x").is_none());
    }

    #[test]
    fn a_new_name_is_closed_by_any_rule_that_says_so() {
        let open = |pattern| ProtectedName {
            new: WhenNew::Open,
            ..protected(pattern, Protection::All)
        };
        let names = [
            open(".env*"),
            open("ci/flows"),
            protected(".envrc", Protection::Write),
            protected("x", Protection::Write),
        ];
        let matcher = Matcher::new(&names).unwrap();
        let closings = |path: &str| matcher.closings(path.as_bytes());
        assert_eq!(closings("a/b"), []);
        assert_eq!(closings("a/.env"), [(2, WhenNew::Open)]);
        assert_eq!(closings("a/.ENVRC/y"), [(2, WhenNew::Closed)]);
        assert_eq!(
            closings("a/ci/flows/b/x/c"),
            [(3, WhenNew::Open), (5, WhenNew::Closed)]
        );
        // A name of which nothing is left is one all the same.
        assert_eq!(closings("\u{200b}/a/.env"), [(3, WhenNew::Open)]);
    }

    #[test]
    fn a_directory_that_leads_to_a_protected_name_is_known() {
        let matcher = matcher(&[".git/modules/**/hooks", ".github/workflows", ".env"]);
        for path in [".git", "a/.GIT", ".git/modules", ".github"] {
            assert!(matcher.leads_to(path.as_bytes()).is_some(), "{path}");
        }
        for path in [
            "",
            ".git/modules/x",
            ".git/HEAD",
            ".git/modules/x/hooks",
            "git",
            ".env",
            ".github/workflows",
        ] {
            assert!(matcher.leads_to(path.as_bytes()).is_none(), "{path}");
        }
    }

    #[test]
    fn directories_above_a_rule_are_recognised() {
        let matcher = matcher(&[".git/modules/**/hooks", ".github/workflows", ".env"]);
        for path in [
            ".git",
            "a/.GIT",
            ".git/modules",
            ".git/modules/x",
            ".git/modules/x/y/z",
            "b/.github",
        ] {
            assert!(matcher.reaches_below(path.as_bytes()), "{path}");
        }
        for path in ["", "a", "modules/x", ".git/refs", ".github/x", ".env"] {
            assert!(!matcher.reaches_below(path.as_bytes()), "{path}");
        }
    }

    #[test]
    fn protected_directories_cannot_be_zones() {
        let matcher = matcher(&[
            ".git/modules/**/hooks",
            ".git/hooks",
            ".vscode/tasks.json",
            ".ssh",
            "a/**/token",
        ]);
        for (path, place) in [
            ("home/u/.ssh", "home/u/.ssh"),
            ("home/u/.SSH/x/y", "home/u/.SSH"),
            ("p/.git", "p/.git"),
            ("p/.git/refs/heads", "p/.git"),
            ("p/.git/modules/x", "p/.git"),
            ("p/.git/hooks", "p/.git"),
            ("p/x.git/hooks", "p/x.git"),
            ("p/X.GIT/refs", "p/X.GIT"),
            ("p/x.git/.git", "p/x.git"),
            ("p/.vscode", "p/.vscode"),
            ("p/a/b/c", "p/a"),
        ] {
            let found = matcher
                .closed_to_zones(path.as_bytes())
                .map(|(_, end)| &path[..end]);
            assert_eq!(found, Some(place), "{path}");
        }
        for path in [
            "",
            "p",
            "p/x.git",
            "p/.github",
            "p/.vscode/mine",
            "p/git/modules/x",
        ] {
            assert!(matcher.closed_to_zones(path.as_bytes()).is_none(), "{path}");
        }
    }

    #[test]
    fn walking_and_asking_once_agree() {
        let matcher = matcher(&[
            ".env",
            ".env.*",
            ".git/hooks",
            ".git/modules/**/config",
            "*.{pem,key}",
            "a/b/c",
        ]);
        let names = [
            ".env", ".ENV.x", ".git", "hooks", "modules", "config", "x.KEY", "a", "b", "c",
            "\u{e9}",
        ];
        for first in names {
            for second in names {
                for third in names {
                    let path = format!("{first}/{second}/{third}");
                    let walked = names_of(path.as_bytes()).any(|(end, name)| {
                        matcher
                            .name(&path.as_bytes()[..end - name.len()], name)
                            .is_some()
                    });
                    assert_eq!(walked, hits(&matcher, &path), "{path}");
                }
            }
        }
    }

    #[test]
    fn a_long_path_is_judged_like_a_short_one() {
        let matcher = matcher(&["a/**/b/c", "x"]);
        let path = "a/".repeat(2000);
        assert!(!hits(&matcher, &path));
        assert!(hits(&matcher, format!("{path}b/c")));
    }

    /// The longest paths there are, on patterns that a matcher could look back for.
    #[test]
    fn steps_are_at_most_signs_times_bytes() {
        let patterns = [
            "hooks/**/hooks",
            ".git/modules/**/hooks",
            "a/*/a/*/a/x",
            "*a*a*a*a*b/**/{a,b}*{a,b}*c",
        ];
        let signs: usize = patterns.iter().map(|pattern| 4 * pattern.len()).sum();
        let matcher = matcher(&patterns);
        for name in [
            "hooks/",
            "a",
            "a/",
            "ab",
            "aaaaaaaaaa/",
            "\u{e9}/",
            "\u{17f}",
        ] {
            let path = name.repeat(4095 / name.len()).into_bytes();
            let questions: [(&str, &dyn Fn() -> bool); 7] = [
                ("transit", &|| !matcher.transit(&path).is_empty()),
                ("protection", &|| matcher.protection(&path).is_some()),
                ("name", &|| matcher.name(&path, b"hooks").is_some()),
                ("closings", &|| matcher.closings(&path).is_empty()),
                ("leads_to", &|| matcher.leads_to(&path).is_some()),
                ("reaches_below", &|| matcher.reaches_below(&path)),
                ("closed_to_zones", &|| {
                    matcher.closed_to_zones(&path).is_some()
                }),
            ];
            for (question, ask) in questions {
                let (steps, _) = steps::of(ask);
                assert!(
                    steps <= signs * (path.len() + 1),
                    "{question} of {name} took {steps}"
                );
            }
        }
    }

    fn in_transit(names: &[ProtectedName], forms: &[(&str, &str)]) -> Matcher {
        let form = |(before, after): &(&str, &str)| TransitForm {
            before: (*before).into(),
            after: (*after).into(),
            except: vec![],
            why: "why".into(),
        };
        let forms: Vec<TransitForm> = forms.iter().map(form).collect();
        Matcher::shared(Arc::new(names.to_vec()), &forms).unwrap()
    }

    #[test]
    fn transit_name_matches_by_form_and_place() {
        let names = [
            protected(".git/config", Protection::Write),
            protected(".mise*.toml", Protection::Write),
            ProtectedName {
                except: vec!["*.example".into()],
                ..protected(".env.*", Protection::All)
            },
        ];
        let forms = [
            ("", ".lock"),
            ("", "~"),
            (".", ".sw?"),
            ("#", "#"),
            (".#", ""),
            ("", ".tmp*"),
            ("", ".[0-9]*"),
        ];
        let matcher = in_transit(&names, &forms);
        let name = |path: &str| {
            let targets = matcher.transit(path.as_bytes());
            assert!(targets.iter().all(|target| {
                let name = path.rsplit('/').next().unwrap().as_bytes();
                let target = target.path.rsplit(|byte| *byte == b'/').next().unwrap();
                name.windows(target.len()).any(|part| part == target)
            }));
            targets.first().map(|target| target.name.pattern.as_str())
        };
        for path in [
            ".git/config.lock",
            "a/.GIT/Config.LOCK",
            ".git/config~",
            ".git/.config.swp",
            ".git/#config#",
            ".git/.#config",
            ".git/config.tmp.17.x",
            ".git/config.12345",
            ".g\u{200b}it/con\u{ad}fig.lock",
        ] {
            assert_eq!(name(path), Some(".git/config"), "{path}");
        }
        assert_eq!(name(".mise.local.toml.tmp-1"), Some(".mise*.toml"));
        assert_eq!(name(".env.local~"), Some(".env.*"));
        for path in [
            "",
            "/",
            "config.lock",
            ".git/config",
            ".git/config.lock/x",
            ".git/HEAD.lock",
            ".git/.lock",
            ".git/config.locks",
            ".git/swp.config",
            "x.example~",
            ".env.example~",
        ] {
            assert_eq!(name(path), None, "{path}");
        }
        let control = Matcher::new(&names).unwrap();
        assert!(
            control.transit(b".git/config.lock").is_empty(),
            "it has no forms"
        );
    }

    #[test]
    fn transit_targets_carry_their_strongest_rules() {
        let names = [
            protected("a*", Protection::Write),
            protected("*z", Protection::All),
        ];
        let matcher = in_transit(&names, &[("", ".*")]);
        let targets = matcher.transit(b"d/a.z.x");
        let targets: Vec<_> = targets
            .iter()
            .map(|target| (&target.path[..], &*target.name.pattern))
            .collect();
        assert_eq!(targets, [(b"d/a".as_slice(), "a*"), (b"d/a.z", "*z")]);
        let longest = [b"a.".as_slice(), &[b'x'; NAME_MAX - 2]].concat();
        assert!(!matcher.transit(&longest).is_empty());
        assert!(matcher.transit(&[&longest[..], b"x"].concat()).is_empty());
    }

    #[test]
    fn a_target_is_spelled_as_the_name_in_transit() {
        let names = [protected(".env.*", Protection::All)];
        let matcher = in_transit(&names, &[(".", ".sw?"), ("", ".lock")]);
        for (name, target) in [
            (".ENV.Local.lock", ".ENV.Local"),
            (".env.\u{c9}.lock", ".env.\u{c9}"),
            ("..e\u{200b}nv.\u{1e9e}.swp", ".e\u{200b}nv.\u{1e9e}"),
        ] {
            let targets = matcher.transit(format!("d\u{c9}/{name}").as_bytes());
            let path = format!("d\u{c9}/{target}").into_bytes();
            assert!(
                targets.iter().any(|target| target.path == path),
                "{name}: {targets:?}"
            );
        }
        assert!(!matcher.transit(b".env.\xff\xc3.lock").is_empty());
    }

    #[test]
    fn exception_of_a_transit_form_is_not_in_transit() {
        let form = |except: &[&str]| TransitForm {
            before: String::new(),
            after: ".??????".into(),
            except: except.iter().map(|pattern| (*pattern).into()).collect(),
            why: "why".into(),
        };
        let names = Arc::new(vec![protected(".npmrc", Protection::All)]);
        let matcher = |except| Matcher::shared(names.clone(), &[form(except)]).unwrap();
        let (control, matcher) = (matcher(&[]), matcher(&[".back*"]));
        for (name, is_excepted) in [
            (".npmrc.a8Xk2P", false),
            (".npmrc.backup", true),
            (".npmrc.BACKUP", true),
        ] {
            assert_eq!(control.transit(name.as_bytes()).len(), 1, "{name}");
            assert_eq!(
                matcher.transit(name.as_bytes()).is_empty(),
                is_excepted,
                "{name}"
            );
        }
    }

    #[test]
    fn steps_of_a_name_in_transit_are_bounded() {
        let names: Vec<_> = ["*a*a*b", "a*b?c"]
            .iter()
            .map(|name| protected(name, Protection::All))
            .collect();
        let forms = [("", "*a*b"), (".", ".[a.]*x"), ("a", "??????.b")];
        let signs: usize = names.iter().map(|name| name.pattern.len()).sum::<usize>()
            + forms
                .iter()
                .map(|(before, after)| before.len() + after.len())
                .sum::<usize>();
        let matcher = in_transit(&names, &forms);
        for name in ["a", "ab", ".a", ".a.x", "a.b"] {
            let name = name.repeat(NAME_MAX / name.len());
            let path = format!("{}{name}", "a/".repeat(1900)).into_bytes();
            let (steps, _) = steps::of(|| matcher.transit(&path));
            assert!(
                steps <= signs * (name.len() + 1).pow(2) + path.len() * signs,
                "{name} took {steps}"
            );
        }
    }

    #[test]
    fn an_empty_list_protects_nothing() {
        assert!(!hits(&matcher(&[]), ".env"));
    }
}
