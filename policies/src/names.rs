//! Protected names, compiled once for a session: is this name closed, by which rule?
//!
//! Paths come as bytes, relative to a zone's root, as the disk or a request has them; nothing about them is believed. A
//! name that is not UTF-8 is matched like any other. Letters are compared without case, beyond ASCII as well, and
//! characters that case-insensitive file systems leave out of a comparison are left out here.
//!
//! A path is gone down once, name by name: never more steps than the patterns have signs times the bytes of the path.

use crate::effective::{ProtectedName, WhenNew};
use crate::error::PolicyError;
use crate::pattern::{Case, Pattern, PatternError, Plain};
use crate::steps;
use std::borrow::Cow;
use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::sync::Arc;

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
    conditions: Vec<(usize, Vec<Pattern>)>,
    /// Each after the one it extends. The first is every directory.
    contexts: Vec<Context>,
    /// Last names that are no patterns, in lower case and sorted, each with its index in `names`.
    literals: Vec<(Vec<u8>, usize)>,
    /// All other last names, likewise, by the byte they end with where that is fixed: a walk asks about each name of a
    /// tree, and nearly all are refused by the first or the last byte.
    patterns: BTreeMap<Option<u8>, Vec<(Plain, usize)>>,
}

/// What stands before the last name of a pattern: `.git` and `.git/modules` and `.git/modules/**` are three.
#[derive(Debug)]
struct Context {
    /// Index of the context without the last component.
    parent: usize,
    component: Component,
    /// Index of the first name that begins so.
    rule: usize,
}

#[derive(Debug, PartialEq)]
enum Component {
    Name(Pattern),
    /// `**`: any number of names, none too.
    Deep,
}

impl Matcher {
    /// Compiles `names`.
    ///
    /// # Errors
    /// One of them is no pattern.
    pub fn new(names: &[ProtectedName]) -> Result<Self, PolicyError> {
        Self::shared(Arc::new(names.to_vec()))
    }

    /// Compiles names that a policy holds too.
    pub(crate) fn shared(names: Arc<Vec<ProtectedName>>) -> Result<Self, PolicyError> {
        let everywhere = Context { parent: 0, component: Component::Deep, rule: 0 };
        let mut compiled = Compiled {
            names: names.clone(),
            conditions: Vec::with_capacity(names.len()),
            contexts: vec![everywhere],
            literals: Vec::new(),
            patterns: BTreeMap::new(),
        };
        let mut known = BTreeMap::new();
        for (index, name) in names.iter().enumerate() {
            let added = compiled.add(index, name, &mut known);
            added.map_err(|why| PolicyError::Name { pattern: name.pattern.clone(), why })?;
        }
        compiled.literals.sort();
        Ok(Self(Arc::new(compiled)))
    }

    /// The strongest rule for `relative` or for a directory above it; the one nearest the root where several are
    /// equal. The empty path is the root of a zone, which no rule protects.
    pub fn protection(&self, relative: &[u8]) -> Option<&ProtectedName> {
        let mut descent = Descent::new(&self.0);
        let rules = names_of(relative).filter_map(|(_, name)| self.0.strongest(descent.enter(name)));
        rules.reduce(|first, next| if next.protection > first.protection { next } else { first })
    }

    /// The strongest rule that ends at `name`, an entry of the directory `parent` (relative to the zone's root, empty
    /// for it). For a walk, which asks this of each entry and does not go below what is closed to it.
    pub fn name(&self, parent: &[u8], name: &[u8]) -> Option<&ProtectedName> {
        // Nearly all entries end here.
        self.0.rules_of(&fold(name)).next()?;
        self.0.strongest(Descent::to(&self.0, parent).enter(name))
    }

    /// The names of `relative` at which rules end: how many names of the path there are up to each, and whether it is
    /// closed where it is new, as it is by any rule that does not say otherwise.
    pub fn closings(&self, relative: &[u8]) -> Vec<(usize, WhenNew)> {
        let mut descent = Descent::new(&self.0);
        let mut closing = |name| descent.enter(name).into_iter().map(|rule| self.0.names[rule].new).max();
        let names = (1..).zip(names_of(relative));
        names.filter_map(|(count, (_, name))| Some((count, closing(name)?))).collect()
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
        let mut descent = Descent::new(&self.0);
        names_of(path).find_map(|(end, name)| {
            let closed = self.0.strongest(descent.enter(name));
            let leads = below || fold(name).eq_ignore_ascii_case(b".git");
            Some((closed.or_else(|| descent.leads_to().filter(|_| leads))?, end))
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
        let mut context = 0;
        for text in parents.split('/').filter(|name| !name.is_empty()) {
            let parent = context;
            context = *known.entry((parent, text)).or_insert(self.contexts.len());
            if context == self.contexts.len() {
                self.contexts.push(Context { parent, component: Component::new(text)?, rule: index });
            }
        }
        let except = name.except.iter().map(|name| parse(name)).collect::<Result<_, _>>()?;
        self.conditions.push((context, except));
        for pattern in parse(last)?.into_plain() {
            match pattern.literal().map(<[u8]>::to_vec) {
                Some(text) => self.literals.push((text, index)),
                None => self.patterns.entry(pattern.last_byte()).or_default().push((pattern, index)),
            }
        }
        Ok(())
    }

    /// The rules whose last name is `name`, which is folded, wherever it is.
    fn rules_of<'a>(&'a self, name: &'a [u8]) -> impl Iterator<Item = usize> + 'a {
        let literals = self.literals_of(name).iter().map(|(_, index)| *index);
        let ends = [None, name.last().map(u8::to_ascii_lowercase)];
        let patterns = ends.into_iter().filter_map(|end| self.patterns.get(&end)).flatten();
        literals.chain(patterns.filter(|(pattern, _)| pattern.matches(name)).map(|(_, index)| *index))
    }

    fn literals_of(&self, name: &[u8]) -> &[(Vec<u8>, usize)] {
        let lower = || name.iter().map(u8::to_ascii_lowercase);
        let start = self.literals.partition_point(|(text, _)| text.iter().copied().lt(lower()));
        let equal = self.literals[start..].partition_point(|(text, _)| text.iter().copied().eq(lower()));
        &self.literals[start..start + equal]
    }

    /// The strongest of `rules`; the first of equals.
    fn strongest(&self, rules: Vec<usize>) -> Option<&ProtectedName> {
        let strongest =
            rules.into_iter().max_by_key(|index| (self.names[*index].protection, Reverse(*index)))?;
        self.names.get(strongest)
    }
}

/// A directory, as the patterns see it: which contexts are its last names.
struct Descent<'m> {
    compiled: &'m Compiled,
    /// One for each context.
    holds: Vec<bool>,
}

impl<'m> Descent<'m> {
    /// The root of a zone.
    fn new(compiled: &'m Compiled) -> Self {
        let holds = (0..compiled.contexts.len()).map(|context| context == 0).collect();
        Self { compiled, holds }
    }

    fn to(compiled: &'m Compiled, directory: &[u8]) -> Self {
        let mut descent = Self::new(compiled);
        names_of(directory).for_each(|(_, name)| descent.step(&fold(name)));
        descent
    }

    /// Goes to `name` in this directory. Returns the rules that end there.
    fn enter(&mut self, name: &[u8]) -> Vec<usize> {
        let name = fold(name);
        let about = |rule: &usize| {
            let (context, except) = &self.compiled.conditions[*rule];
            self.holds[*context] && !except.iter().any(|pattern| pattern.matches(&name))
        };
        let rules = self.compiled.rules_of(&name).filter(about).collect();
        self.step(&name);
        rules
    }

    fn step(&mut self, name: &[u8]) {
        let contexts = &self.compiled.contexts;
        steps::count(contexts.len());
        // From the longest to the shortest, as each name follows what its parent was before.
        for (index, context) in contexts.iter().enumerate().skip(1).rev() {
            if let Component::Name(pattern) = &context.component {
                self.holds[index] = self.holds[context.parent] && pattern.matches(name);
            }
        }
        // It follows what its parent is now.
        for (index, context) in contexts.iter().enumerate().skip(1) {
            self.holds[index] |= context.component == Component::Deep && self.holds[context.parent];
        }
    }

    /// The contexts that hold here, but for that of every directory.
    fn contexts(&self) -> impl Iterator<Item = &'m Context> {
        let contexts = self.compiled.contexts.iter().zip(&self.holds).skip(1);
        contexts.filter(|(_, holds)| **holds).map(|(context, _)| context)
    }

    /// See [`Matcher::leads_to`]. A context that ends in `**` would be every directory below the names before it.
    fn leads_to(&self) -> Option<&'m ProtectedName> {
        let context = self.contexts().find(|context| context.component != Component::Deep)?;
        self.compiled.names.get(context.rule)
    }
}

impl Component {
    fn new(name: &str) -> Result<Self, PatternError> {
        if name == "**" { Ok(Component::Deep) } else { parse(name).map(Component::Name) }
    }
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

/// Bytes in which ASCII stands as it is (the patterns fold its case) and everything else has one form for each letter.
/// Directories with case folding (ext4, f2fs) compare so: to them `.e\u{200c}nv` and `.env` are one name.
fn fold(bytes: &[u8]) -> Cow<'_, [u8]> {
    if bytes.is_ascii() {
        return Cow::Borrowed(bytes);
    }
    let text = String::from_utf8_lossy(bytes);
    Cow::Owned(fold_text(&text).into_bytes())
}

/// A pattern as names are compared with it.
pub(crate) fn fold_pattern(pattern: &str) -> Cow<'_, str> {
    if pattern.is_ascii() { Cow::Borrowed(pattern) } else { Cow::Owned(fold_text(pattern)) }
}

fn fold_text(text: &str) -> String {
    let kept = text.chars().filter(|c| !is_ignorable(*c));
    // To upper case in between: the long s and the Kelvin sign have a small letter of their own. To lower case before:
    // the capital sharp s is two letters only by way of the small one.
    kept.flat_map(char::to_lowercase).flat_map(char::to_uppercase).flat_map(char::to_lowercase).collect()
}

/// Unicode's Default_Ignorable_Code_Point.
fn is_ignorable(c: char) -> bool {
    matches!(u32::from(c), 0xad | 0x34f | 0x61c | 0x115f..=0x1160 | 0x17b4..=0x17b5 | 0x180b..=0x180f | 0x200b..=0x200f
        | 0x202a..=0x202e | 0x2060..=0x206f | 0x3164 | 0xfe00..=0xfe0f | 0xfeff | 0xffa0 | 0xfff0..=0xfff8
        | 0x1bca0..=0x1bca3 | 0x1d173..=0x1d17a | 0xe0000..=0xe0fff)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::effective::Protection;
    use crate::rules::Origin;

    fn protected(pattern: &str, protection: Protection) -> ProtectedName {
        ProtectedName {
            pattern: pattern.into(),
            except: vec![],
            protection,
            new: WhenNew::Closed,
            why: "why".into(),
            origin: Origin::default(),
        }
    }

    fn matcher(patterns: &[&str]) -> Matcher {
        let names: Vec<_> = patterns.iter().map(|pattern| protected(pattern, Protection::All)).collect();
        Matcher::new(&names).unwrap()
    }

    fn hits(matcher: &Matcher, path: impl AsRef<[u8]>) -> bool {
        matcher.protection(path.as_ref()).is_some()
    }

    #[test]
    fn a_name_is_protected_at_any_depth_and_with_all_below_it() {
        let matcher = matcher(&[".env", "*.pem"]);
        for path in [".env", "a/.env", "a/b/.env", ".env/x/y", "x.pem", "a/x.pem/y", "a//.env"] {
            assert!(hits(&matcher, path), "{path}");
        }
        for path in ["", "env", ".envy", "a.env", "a/.env2", "pem", "x.pem2", "a/b"] {
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
    fn characters_that_a_folding_file_system_skips_hide_nothing() {
        let matcher = matcher(&[".env", ".git/hooks", "*secret*.txt"]);
        for path in [".e\u{200c}nv", "\u{feff}.env", ".g\u{200b}it/ho\u{ad}oks/x", "client_\u{17f}ecret.txt"]
        {
            assert!(hits(&matcher, path), "{path:?}");
        }
    }

    #[test]
    fn every_letter_has_one_form() {
        assert!(hits(&matcher(&[".ssh"]), ".\u{1e9e}h"));
        // No letter above these has another case.
        for letter in (0..0x2_0000).filter_map(char::from_u32).map(String::from) {
            let form = fold_text(&letter);
            for other in [letter.to_lowercase(), letter.to_uppercase(), form.clone()] {
                assert_eq!(fold_text(&other), form, "{letter} and {other}");
            }
        }
    }

    #[test]
    fn bytes_that_are_not_utf8_are_matched_like_others() {
        let matcher = matcher(&[".env", "*credential*.json", ".git/hooks"]);
        assert!(hits(&matcher, b"\xff\xfe/.env"));
        assert!(hits(&matcher, b".env/\xff"));
        assert!(hits(&matcher, b"\xffcredential\xfe.json"));
        assert!(hits(&matcher, b"\xff/.git/HOOKS/\xfe"));
        assert!(!hits(&matcher, b".env\xff"));
        assert!(matcher.name(b"\xff", b".env").is_some());
    }

    #[test]
    fn an_exception_holds_for_its_rule_and_its_name_only() {
        let open = ProtectedName {
            except: vec!["*.example".into(), ".env.dist".into()],
            ..protected(".env.*", Protection::All)
        };
        let matcher = Matcher::new(&[open.clone(), protected("*.key.example", Protection::Write)]).unwrap();
        for path in [".env.example", ".ENV.LOCAL.EXAMPLE", "a/.env.dist"] {
            assert!(!hits(&matcher, path), "{path}");
        }
        for path in [".env.local", ".env.example.local", ".env.d/example", ".env.x.key.example"] {
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
        let rule = |path: &str| matcher.protection(path.as_bytes()).unwrap().pattern.as_str();
        assert_eq!(rule("credentials.json"), "*credential*.json");
        assert_eq!(rule(".claude/x.json"), ".claude");
        assert_eq!(rule(".claude/credentials.json"), "*credential*.json");
        assert_eq!(matcher.name(b".claude", b"x.json").unwrap().pattern, "*.json");
        assert!(matcher.name(b".claude", b"x").is_none());
    }

    #[test]
    fn a_new_name_is_closed_by_any_rule_that_says_so() {
        let open = |pattern| ProtectedName { new: WhenNew::Open, ..protected(pattern, Protection::All) };
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
        assert_eq!(closings("a/ci/flows/b/x/c"), [(3, WhenNew::Open), (5, WhenNew::Closed)]);
        // A name of which nothing is left is one all the same.
        assert_eq!(closings("\u{200b}/a/.env"), [(3, WhenNew::Open)]);
    }

    #[test]
    fn a_directory_that_leads_to_a_protected_name_is_known() {
        let matcher = matcher(&[".git/modules/**/hooks", ".github/workflows", ".env"]);
        for path in [".git", "a/.GIT", ".git/modules", ".github"] {
            assert!(matcher.leads_to(path.as_bytes()).is_some(), "{path}");
        }
        for path in
            ["", ".git/modules/x", ".git/HEAD", ".git/modules/x/hooks", "git", ".env", ".github/workflows"]
        {
            assert!(matcher.leads_to(path.as_bytes()).is_none(), "{path}");
        }
    }

    #[test]
    fn where_a_rule_reaches_below_is_known() {
        let matcher = matcher(&[".git/modules/**/hooks", ".github/workflows", ".env"]);
        for path in [".git", "a/.GIT", ".git/modules", ".git/modules/x", ".git/modules/x/y/z", "b/.github"] {
            assert!(matcher.reaches_below(path.as_bytes()), "{path}");
        }
        for path in ["", "a", "modules/x", ".git/refs", ".github/x", ".env"] {
            assert!(!matcher.reaches_below(path.as_bytes()), "{path}");
        }
    }

    #[test]
    fn what_is_no_zone_is_known_by_all_its_names() {
        let matcher =
            matcher(&[".git/modules/**/hooks", ".git/hooks", ".vscode/tasks.json", ".ssh", "a/**/token"]);
        for (path, place) in [
            ("home/u/.ssh", "home/u/.ssh"),
            ("home/u/.SSH/x/y", "home/u/.SSH"),
            ("p/.git", "p/.git"),
            ("p/.git/refs/heads", "p/.git"),
            ("p/.git/modules/x", "p/.git"),
            ("p/.git/hooks", "p/.git"),
            ("p/.vscode", "p/.vscode"),
            ("p/a/b/c", "p/a"),
        ] {
            let found = matcher.closed_to_zones(path.as_bytes()).map(|(_, end)| &path[..end]);
            assert_eq!(found, Some(place), "{path}");
        }
        for path in ["", "p", "p/x.git", "p/x.git/refs", "p/.github", "p/.vscode/mine", "p/git/modules/x"] {
            assert!(matcher.closed_to_zones(path.as_bytes()).is_none(), "{path}");
        }
    }

    #[test]
    fn walking_and_asking_once_agree() {
        let matcher =
            matcher(&[".env", ".env.*", ".git/hooks", ".git/modules/**/config", "*.{pem,key}", "a/b/c"]);
        let names =
            [".env", ".ENV.x", ".git", "hooks", "modules", "config", "x.KEY", "a", "b", "c", "\u{e9}"];
        for first in names {
            for second in names {
                for third in names {
                    let path = format!("{first}/{second}/{third}");
                    let walked = names_of(path.as_bytes()).any(|(end, name)| {
                        matcher.name(&path.as_bytes()[..end - name.len()], name).is_some()
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
        let patterns =
            ["hooks/**/hooks", ".git/modules/**/hooks", "a/*/a/*/a/x", "*a*a*a*a*b/**/{a,b}*{a,b}*c"];
        let signs: usize = patterns.iter().map(|pattern| 4 * pattern.len()).sum();
        let matcher = matcher(&patterns);
        for name in ["hooks/", "a", "a/", "ab", "aaaaaaaaaa/", "\u{e9}/", "\u{17f}"] {
            let path = name.repeat(4095 / name.len()).into_bytes();
            let questions: [(&str, &dyn Fn() -> bool); 6] = [
                ("protection", &|| matcher.protection(&path).is_some()),
                ("name", &|| matcher.name(&path, b"hooks").is_some()),
                ("closings", &|| matcher.closings(&path).is_empty()),
                ("leads_to", &|| matcher.leads_to(&path).is_some()),
                ("reaches_below", &|| matcher.reaches_below(&path)),
                ("closed_to_zones", &|| matcher.closed_to_zones(&path).is_some()),
            ];
            for (question, ask) in questions {
                let (steps, _) = steps::of(ask);
                assert!(steps <= signs * (path.len() + 1), "{question} of {name} took {steps}");
            }
        }
    }

    #[test]
    fn no_names_protect_nothing() {
        assert!(!hits(&matcher(&[]), ".env"));
    }
}
