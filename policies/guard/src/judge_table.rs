//! The judge as a table: a tree, a change, the verdict. No row needs a kernel.

use crate::change::{AtRest, Change, Described, DirectoryName, Moment, New};
use crate::judge::{Judge, judge};
use crate::names::Access;
use crate::names::{Matcher, ProtectedName, Protection, WhenNew};
use crate::origin::Origin;
use crate::search::SearchedDirectory;
use crate::transit::TransitForm;
use crate::tree::{ObjectKind, Tree};
use crate::verdict::{Rule, Verdict};
use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A tree of paths below the zones `/p` and `/c`; `/c/ro` is for reading. An object is its path.
struct Paths {
    names: Matcher,
    kinds: BTreeMap<PathBuf, ObjectKind>,
    /// Made by calls; in directories a repository may come about.
    made: BTreeSet<PathBuf>,
    /// Closed for writing when the session opened: as places, and as objects.
    places: BTreeSet<PathBuf>,
    objects: BTreeSet<PathBuf>,
    repositories: BTreeSet<PathBuf>,
    leased: BTreeSet<PathBuf>,
    /// Whether those who ask are commands, and no file tools.
    commands: bool,
    /// How often the disk was asked.
    asked: Cell<usize>,
}

/// A tree from words: `d` a directory, `f` a file, `l` a link, `+` before one that a call has made; `place`, `object`, `repository`,
/// `leased` for what is known of a path; `file-tools` for those who ask.
fn tree(words: &str) -> Paths {
    let name = |(pattern, protection, new)| ProtectedName {
        pattern: String::from(pattern),
        except: vec![],
        protection,
        new,
        opens: pattern == ".envrc",
        why: "why".into(),
        origin: Origin::default(),
    };
    let names = [
        (".env", Protection::All, WhenNew::Open),
        (".envrc", Protection::Write, WhenNew::Closed),
        (".npmrc", Protection::Write, WhenNew::Harmless),
        (".git/config", Protection::Write, WhenNew::Open),
        (".git/hooks", Protection::Write, WhenNew::Closed),
        (".git/modules/**/hooks", Protection::Write, WhenNew::Closed),
    ];
    let lock = TransitForm {
        before: String::new(),
        after: ".lock".into(),
        except: vec![],
        why: "why".into(),
    };
    let mut tree = Paths {
        names: Matcher::shared(Arc::new(names.map(name).to_vec()), &[lock]).unwrap(),
        kinds: BTreeMap::new(),
        made: BTreeSet::new(),
        places: BTreeSet::new(),
        objects: BTreeSet::new(),
        repositories: BTreeSet::new(),
        leased: BTreeSet::new(),
        commands: true,
        asked: Cell::new(0),
    };
    let mut words = words.split_whitespace();
    while let Some(word) = words.next() {
        if word == "file-tools" {
            tree.commands = false;
            continue;
        }
        let path = PathBuf::from(words.next().unwrap());
        if word.starts_with('+') {
            tree.made.insert(path.clone());
        }
        match word {
            "place" => drop(tree.places.insert(path)),
            "object" => drop(tree.objects.insert(path)),
            "repository" => drop(tree.repositories.insert(path)),
            "leased" => drop(tree.leased.insert(path)),
            _ => drop(
                tree.kinds
                    .insert(path, kind_of(word.trim_start_matches('+'))),
            ),
        }
    }
    tree
}

fn kind_of(word: &str) -> ObjectKind {
    match word {
        "d" => ObjectKind::Directory,
        "f" => ObjectKind::File,
        "l" => ObjectKind::Link,
        "o" => ObjectKind::Other,
        other => panic!("{other}"),
    }
}

impl Paths {
    fn asks(&self) {
        self.asked.set(self.asked.get() + 1);
    }
}

impl Tree for Paths {
    type Handle<'h> = &'h Path;

    fn names(&self, _: &Path) -> &Matcher {
        &self.names
    }

    fn in_zones<'p>(&'p self, at: &'p Path) -> impl Iterator<Item = (&'p Path, &'p [u8])> {
        let zones = ["/p", "/c"].map(Path::new).into_iter();
        zones.filter_map(|zone| {
            let path = at.strip_prefix(zone).ok()?;
            Some((zone, path.as_os_str().as_encoded_bytes()))
        })
    }

    fn other_paths<'p>(&'p self, at: &'p Path) -> impl Iterator<Item = PathBuf> {
        let below =
            |directory: &PathBuf| Some(Path::new(".git").join(at.strip_prefix(directory).ok()?));
        self.repositories.iter().filter_map(below)
    }

    fn is_writable(&self, at: &Path) -> bool {
        self.in_zones(at).next().is_some() && !at.starts_with("/c/ro")
    }

    fn is_enclosed(&self) -> bool {
        false
    }

    fn may_reach(&self, _: &Path, at: &Path, access: Access) -> io::Result<bool> {
        if at.starts_with("/proc") {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(self.is_writable(at) || access == Access::Read && self.in_zones(at).next().is_some())
    }

    fn is_one_area(&self, from: &Path, to: &Path) -> bool {
        ["/p", "/c"]
            .iter()
            .any(|zone| from.starts_with(zone) && to.starts_with(zone))
    }

    fn is_package(&self, at: &Path) -> bool {
        at.components()
            .any(|name| name.as_os_str() == "node_modules")
    }

    fn holds_zone(&self, directory: &Path) -> bool {
        Path::new("/p").starts_with(directory)
    }

    fn protection_of_place(&self, at: &Path) -> Option<Protection> {
        let is_closed = self.places.iter().any(|place| at.starts_with(place));
        is_closed.then_some(Protection::Write)
    }

    fn has_place_below(&self, at: &Path) -> bool {
        let below = |place: &PathBuf| place.starts_with(at) && place != at;
        self.places.iter().any(below)
    }

    fn protection_of_object(&self, object: &Path) -> Option<Protection> {
        self.objects.contains(object).then_some(Protection::Write)
    }

    fn was_repository(&self, directory: &Path) -> bool {
        self.repositories.contains(directory)
    }

    fn was_directory(&self, at: &Path) -> bool {
        self.kinds.contains_key(at) && !self.made.contains(at)
    }

    fn is_younger(&self, at: &Path) -> bool {
        self.has_made_at(at)
    }

    fn is_leased(&self, object: &Path, at: &Path) -> bool {
        object == at && self.leased.contains(at)
    }

    fn has_made(&self, object: &Path) -> bool {
        self.asks();
        self.made.contains(object)
    }

    fn has_made_at(&self, at: &Path) -> bool {
        self.has_made(at)
    }

    fn has_room(&self, at: &Path) -> bool {
        self.commands && !self.exists(at)
    }

    fn is_new_directory(&self, directory: &Path, at: &Path) -> bool {
        self.has_made(directory) && !self.was_directory(at)
    }

    fn repositories_moved(&self, from: &Path, to: &Path) -> io::Result<Vec<PathBuf>> {
        let made = self.made.iter().filter(|path| path.ends_with(".git"));
        let moved = made.filter_map(|path| Some(to.join(path.strip_prefix(from).ok()?)));
        Ok(moved.collect())
    }

    fn leads_through(&self, at: &Path) -> bool {
        Path::new("/p/written/w").starts_with(at)
    }

    fn may_write_heads(&self) -> bool {
        self.commands
    }

    fn exists(&self, at: &Path) -> bool {
        self.asks();
        self.kinds.contains_key(at)
    }

    fn has(&self, directory: &Path, name: &str) -> bool {
        self.exists(&directory.join(name))
    }

    fn in_directory<R>(&self, at: &Path, ask: impl FnOnce(&Path) -> R) -> Option<R> {
        self.exists(at).then(|| ask(at))
    }

    fn kind(&self, directory: &Path, name: &OsStr) -> io::Result<ObjectKind> {
        self.asks();
        let kind = self.kinds.get(&directory.join(name)).copied();
        kind.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn each_below(
        &self,
        parent: &Path,
        name: &OsStr,
        visit: impl Fn(&Path, &Path) -> io::Result<Verdict>,
    ) -> io::Result<Verdict> {
        self.asks();
        let directory = parent.join(name);
        for path in self.kinds.keys().filter(|path| **path != directory) {
            let (Ok(below), Some(above)) = (path.strip_prefix(&directory), path.parent()) else {
                continue;
            };
            if below.as_os_str() == "closed" {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
            let verdict = visit(above, below)?;
            if !verdict.is_allowed() {
                return Ok(verdict);
            }
        }
        Ok(Verdict::Allow)
    }
}

/// The verdict on a change from words: `make PATH`, `create KIND PATH`, `link TEXT PATH`, `second LINKS PATH` (a file with so many names
/// gets one more), `read PATH`, `write PATH`, `rename FROM TO`, `further PATH` (what is there gets another name), `remove PATH`, `mark
/// PATH`, `look PATH` and `take PATH` (to take away what is there); before the first four `made` or `ended` for the moment, and `ended tree FROM PATH`.
fn verdict(tree: &Paths, words: &str) -> io::Result<Verdict> {
    let mut words: Vec<&str> = words.split_whitespace().collect();
    let moment = match words[0] {
        "made" => Moment::Made,
        "ended" => Moment::Ended,
        _ => Moment::Before,
    };
    if moment != Moment::Before {
        words.remove(0);
    }
    let at = Path::new(words[words.len() - 1]);
    let name = |path| name_at(path);
    let kind = |path| tree.kinds.get(path).copied().unwrap_or(ObjectKind::File);
    let create = |new| Change::Create {
        name: name(at),
        new,
        moment,
    };
    let change = match words[..] {
        ["make", _] => create(New::Directory),
        ["create", kind, _] => create(New::Object(kind_of(kind))),
        ["link", text, _] => create(New::Link {
            target: text.as_bytes(),
        }),
        ["second", links, _] => create(New::Second {
            kind: ObjectKind::File,
            has_others: links != "0",
        }),
        ["tree", from, _] => create(New::Tree {
            from: Path::new(from),
        }),
        ["read" | "write", _] => Change::Open {
            object: at,
            at,
            kind: kind(at),
            access: match words[0] {
                "write" => Access::Write,
                _ => Access::Read,
            },
        },
        ["rename", from, _] => Change::Rename {
            object: Described {
                object: Path::new(from),
                kind: kind(Path::new(from)),
                has_others: false,
            },
            from: name(Path::new(from)),
            to: name(at),
            replaced: tree.kinds.contains_key(at).then_some(at),
        },
        ["further", _] => Change::Link {
            object: at,
            at,
            kind: kind(at),
        },
        ["remove", _] => Change::Remove { at },
        ["mark", _] => Change::Mark {
            object: at,
            at,
            kind: kind(at),
        },
        ["look" | "take", _] => Change::TakeAway {
            object: (words[0] == "take").then_some(at),
            at,
        },
        ref other => panic!("{other:?}"),
    };
    judge(tree, change)
}

fn name_at(path: &Path) -> DirectoryName<'_, &Path> {
    DirectoryName {
        parent: path.parent().unwrap(),
        name: path.file_name().unwrap(),
        path,
    }
}

#[track_caller]
fn check(table: &[(&str, &str, Result<(), Rule>)]) {
    for (words, change, wanted) in table {
        let wanted = match wanted {
            Ok(()) => Verdict::Allow,
            Err(rule) => Verdict::Refuse(*rule),
        };
        let verdict = verdict(&tree(words), change).unwrap();
        assert_eq!(verdict, wanted, "{change} in: {words}");
    }
}

#[test]
fn new_names() {
    check(&[
        ("", "create f /p/main.rs", Ok(())),
        ("", "create f /elsewhere/x", Err(Rule::Outside)),
        ("", "create f /c/ro/x", Err(Rule::Outside)),
        // Open, harmless and closed when new.
        ("", "create f /p/.env", Ok(())),
        ("f /p/.env", "create f /p/.env", Err(Rule::Name)),
        ("+f /p/.env", "create f /p/.env", Ok(())),
        ("file-tools", "create f /p/.env", Err(Rule::Name)),
        ("", "create f /p/.envrc", Err(Rule::Name)),
        ("", "create f /p/.npmrc", Err(Rule::Name)),
        ("+d /p/new", "create f /p/new/.npmrc", Ok(())),
        ("", "create f /p/node_modules/a/.npmrc", Ok(())),
        // In other directories that count as `.git`.
        ("d /p/x.git", "create f /p/x.git/hooks/a", Err(Rule::Name)),
        (
            "repository /p/store",
            "create f /p/store/hooks",
            Err(Rule::Name),
        ),
        (
            "d /p/new f /p/new/HEAD d /p/new/objects d /p/new/refs",
            "create f /p/new/hooks",
            Err(Rule::Name),
        ),
        (
            "d /p/new f /p/new/HEAD d /p/new/objects",
            "create f /p/new/hooks",
            Ok(()),
        ),
        // Places.
        ("place /p/tools", "create f /p/tools/x", Err(Rule::Object)),
        // An empty directory with a name that is closed; none where git expects a file.
        ("+d /p/.git", "make /p/.git/hooks", Ok(())),
        ("", "make /p/.envrc", Ok(())),
        ("", "make /p/.git/config", Err(Rule::Name)),
        ("place /p/tools", "make /p/tools/x", Err(Rule::Object)),
        ("file-tools", "make /p/.envrc", Err(Rule::Name)),
    ]);
}

#[test]
fn links_nodes_and_second_names() {
    check(&[
        ("", "link x /p/a", Ok(())),
        ("", "link x /p/.env", Err(Rule::Name)),
        (
            "+d /p/.git",
            "link x /p/.git/logs",
            Err(Rule::LinkInRepository),
        ),
        ("+d /p/.git", "link testing /p/.git/tXYZ", Ok(())),
        (
            "+d /p/new",
            "link x /p/new/.git",
            Err(Rule::LinkInRepository),
        ),
        ("place /p/a/tools", "link x /p/a", Err(Rule::Name)),
        ("", "link x /p/written", Err(Rule::Name)),
        ("", "create o /p/a", Ok(())),
        ("", "create o /p/.env", Err(Rule::Name)),
        ("", "create o /p/.gitignore", Err(Rule::Name)),
        ("", "create f /p/.gitignore", Ok(())),
        ("", "second 0 /p/.env", Ok(())),
        ("", "second 1 /p/.env", Err(Rule::SecondName)),
        ("", "second 1 /p/a", Ok(())),
        ("f /p/a", "further /p/a", Ok(())),
        ("+f /p/.env", "further /p/.env", Err(Rule::SecondName)),
        ("f /p/.env", "further /p/.env", Err(Rule::Name)),
        ("f /p/a object /p/a", "further /p/a", Err(Rule::Object)),
        ("f /p/.env.lock", "further /p/.env.lock", Err(Rule::Transit)),
        ("d /p f /p/.git", "further /p/.git", Err(Rule::Repository)),
        (
            "d /p/.git f /p/.git/HEAD",
            "further /p/.git/HEAD",
            Err(Rule::KeptPart),
        ),
    ]);
}

#[test]
fn repositories() {
    let begun = "+d /p/a d /p/a/objects d /p/a/refs";
    let whole = "d /p/.git f /p/.git/HEAD d /p/.git/objects d /p/.git/refs repository /p/.git";
    check(&[
        ("d /p/a", "make /p/a/.git", Err(Rule::Repository)),
        ("+d /p/a", "make /p/a/.git", Ok(())),
        ("+d /p/a", "create f /p/a/.git", Err(Rule::Name)),
        ("d /p/a", "create f /p/a/.git", Err(Rule::Repository)),
        ("+d /p/a", "make /p/a/.hg", Ok(())),
        ("d /p/a", "make /p/a/.hg", Err(Rule::Repository)),
        ("+d /p/a +d /p/a/.git", "create f /p/a/.git/HEAD", Ok(())),
        ("", "create f /p/a/HEAD", Err(Rule::Structure)),
        (begun, "create f /p/a/HEAD", Err(Rule::Structure)),
        ("+d /p/a.git", "make /p/a.git/HEAD", Err(Rule::Structure)),
        // The user has begun one, and a call completes it.
        (
            "d /p/.git f /p/.git/HEAD d /p/.git/objects",
            "make /p/.git/refs",
            Err(Rule::Repository),
        ),
        (
            "d /p +d /p/.git f /p/.git/HEAD d /p/.git/objects",
            "make /p/.git/refs",
            Err(Rule::Repository),
        ),
        (
            "+d /p/a +d /p/a/.git f /p/a/.git/HEAD d /p/a/.git/objects",
            "make /p/a/.git/refs",
            Ok(()),
        ),
        (whole, "make /p/.git/refs", Ok(())),
        // Whoever looks last sees all of it.
        (
            "d /p/.git f /p/.git/HEAD d /p/.git/objects",
            "made make /p/.git/refs",
            Err(Rule::Repository),
        ),
        ("", "made create f /p/.envrc", Ok(())),
        // What makes it one stays.
        (whole, "remove /p/.git/HEAD", Err(Rule::KeptPart)),
        (whole, "remove /p/.git/refs", Err(Rule::KeptPart)),
        (whole, "write /p/.git/HEAD", Err(Rule::KeptPart)),
        (whole, "rename /p/.git/HEAD /p/x", Err(Rule::KeptPart)),
        (whole, "read /p/.git/HEAD", Ok(())),
        ("+d /p/.git +f /p/.git/HEAD", "remove /p/.git/HEAD", Ok(())),
        // File tools write no branch.
        (
            "file-tools f /p/a/HEAD",
            "write /p/a/HEAD",
            Err(Rule::KeptPart),
        ),
        ("file-tools f /p/a/HEAD", "read /p/a/HEAD", Ok(())),
        (
            "file-tools +d /p/.git",
            "create f /p/.git/HEAD",
            Err(Rule::Structure),
        ),
        ("file-tools d /p/.git", "make /p/.git/refs", Ok(())),
        (
            "file-tools f /p/.git/HEAD d /p/.git/objects",
            "make /p/.git/refs",
            Err(Rule::Repository),
        ),
    ]);
}

#[test]
fn opened_and_marked_objects() {
    check(&[
        ("f /p/a", "write /p/a", Ok(())),
        ("f /c/ro/a", "read /c/ro/a", Ok(())),
        ("f /c/ro/a", "write /c/ro/a", Err(Rule::Outside)),
        ("", "read /elsewhere", Err(Rule::Outside)),
        ("f /p/.env", "read /p/.env", Err(Rule::Name)),
        ("+f /p/.env", "read /p/.env", Ok(())),
        ("f /p/.envrc", "read /p/.envrc", Ok(())),
        ("f /p/.envrc", "write /p/.envrc", Err(Rule::Name)),
        ("f /p/.envrc leased /p/.envrc", "write /p/.envrc", Ok(())),
        ("f /p/.env leased /p/.env", "write /p/.env", Err(Rule::Name)),
        ("f /p/a object /p/a", "write /p/a", Err(Rule::Object)),
        ("f /p/a object /p/a", "read /p/a", Ok(())),
        ("place /p/tools", "write /p/tools/x", Err(Rule::Object)),
        // Closed when new: what a call has made there may only be marked.
        ("+f /p/.envrc", "write /p/.envrc", Err(Rule::Name)),
        ("+f /p/.envrc", "mark /p/.envrc", Ok(())),
        ("f /p/.envrc", "mark /p/.envrc", Err(Rule::Name)),
        ("f /c/ro/a", "mark /c/ro/a", Err(Rule::Outside)),
        // A file that names a repository.
        ("f /p/.git d /p", "write /p/.git", Err(Rule::Repository)),
        ("+d /p/a +f /p/a/.git", "write /p/a/.git", Err(Rule::Name)),
        // On its way to a protected name.
        ("f /p/.env.lock", "read /p/.env.lock", Err(Rule::Transit)),
        ("+f /p/.env.lock", "read /p/.env.lock", Ok(())),
        ("f /p/.envrc.lock", "read /p/.envrc.lock", Ok(())),
        (
            "f /p/.envrc.lock",
            "write /p/.envrc.lock",
            Err(Rule::Transit),
        ),
        ("f /p/.envrc", "create f /p/.envrc.lock", Err(Rule::Transit)),
        ("", "create f /p/.envrc.lock", Ok(())),
    ]);
}

#[test]
fn moved_and_removed_names() {
    let made = "+d /p/new +d /p/new/.git +f /p/new/.git/HEAD d /p/new/.git/refs";
    check(&[
        ("f /p/a", "rename /p/a /p/b", Ok(())),
        ("f /p/a", "rename /p/a /elsewhere/b", Err(Rule::Outside)),
        ("f /p/a f /p/.env", "rename /p/a /p/.env", Err(Rule::Name)),
        ("f /p/.env", "rename /p/.env /p/a", Err(Rule::Name)),
        ("+f /p/.env", "rename /p/.env /p/a", Ok(())),
        (
            "f /p/.envrc.lock",
            "rename /p/.envrc.lock /p/a",
            Err(Rule::Transit),
        ),
        (
            "f /p/a f /p/.envrc.lock",
            "rename /p/a /p/.envrc.lock",
            Err(Rule::Transit),
        ),
        (
            "l /p/a +d /p/.git",
            "rename /p/a /p/.git/logs",
            Err(Rule::LinkInRepository),
        ),
        // Directories, with what is in them.
        ("d /p/a f /p/a/x", "rename /p/a /p/b", Ok(())),
        ("d /p/a f /p/a/.env", "rename /p/a /p/b", Err(Rule::Name)),
        (
            "d /p/a place /p/a/tools",
            "rename /p/a /p/b",
            Err(Rule::Object),
        ),
        ("d /p/a", "rename /p/a /p/.git", Err(Rule::Repository)),
        (
            "d /p/a d /p/.git",
            "rename /p/a /p/.git/modules",
            Err(Rule::Name),
        ),
        ("d /p/a", "rename /p/a /p/written", Err(Rule::Name)),
        (
            "d /p/a l /p/a/x +d /p/.git",
            "rename /p/a /p/.git/x",
            Err(Rule::LinkInRepository),
        ),
        (made, "rename /p/new/.git /p/new/x", Err(Rule::Structure)),
        ("d /p/git d /p/git/db", "rename /p/git /p/x", Ok(())),
        (
            "d /p/git d /p/git/db d /p/git/db/a-0123456789abcdef",
            "rename /p/git /p/x",
            Err(Rule::Structure),
        ),
        ("+d /p/new +d /p/new/.git", "rename /p/new /p/other", Ok(())),
        // Another directory was there when the session opened.
        (
            "+d /p/new +d /p/new/.git d /p/old",
            "rename /p/new /p/old",
            Err(Rule::Repository),
        ),
        ("f /p/a", "remove /p/a", Ok(())),
        ("f /elsewhere", "remove /elsewhere", Err(Rule::Outside)),
        ("f /p/.envrc", "remove /p/.envrc", Err(Rule::Name)),
        ("+f /p/.envrc", "remove /p/.envrc", Ok(())),
        (
            "f /p/node_modules/a/.npmrc",
            "remove /p/node_modules/a/.npmrc",
            Ok(()),
        ),
        (
            "f /p/node_modules/a/.envrc",
            "remove /p/node_modules/a/.envrc",
            Err(Rule::Name),
        ),
        ("place /p/tools", "remove /p/tools", Err(Rule::Object)),
    ]);
}

#[test]
fn rename_between_areas_is_refused() {
    let (tree, at) = (tree(""), |path| Path::new(path));
    let cross = |from, to| Judge::of(&tree).may_cross(at(from), at(to));
    assert_eq!(cross("/p/a", "/p/b"), Verdict::Allow);
    assert_eq!(cross("/p/a", "/c/b"), Verdict::Refuse(Rule::OtherArea));
}

#[test]
fn judge_decides_on_objects_that_a_call_left() {
    check(&[
        ("+f /p/a", "ended create f /p/a", Ok(())),
        ("f /p/.envrc", "ended create f /p/.envrc", Err(Rule::Name)),
        ("+f /p/.env", "ended create f /p/.env", Ok(())),
        (
            "+d /p/.git l /p/.git/logs",
            "ended link x /p/.git/logs",
            Err(Rule::LinkInRepository),
        ),
        (
            "+d /p/.git l /p/.git/t",
            "ended link testing /p/.git/t",
            Ok(()),
        ),
        ("d /p/a/.git", "ended make /p/a/.git", Err(Rule::Repository)),
        (
            "f /p/x/HEAD",
            "ended create f /p/x/HEAD",
            Err(Rule::Structure),
        ),
        (
            "d /p/.git/a l /p/.git/a/x",
            "ended tree /p/a /p/.git/a",
            Err(Rule::LinkInRepository),
        ),
        ("d /p/b f /p/b/x", "ended tree /p/a /p/b", Ok(())),
    ]);
}

#[test]
fn disk_error_is_no_verdict() {
    for (words, change) in [
        ("", "read /proc/1"),
        ("d /p/a f /p/a/closed", "rename /p/a /p/b"),
        (
            "d /p/.git/a f /p/.git/a/closed",
            "ended tree /p/a /p/.git/a",
        ),
    ] {
        assert!(verdict(&tree(words), change).is_err(), "{change}");
    }
    // A rule that is against it needs no more of the disk.
    let closed = tree("d /p/a f /p/a/closed");
    let refused = verdict(&closed, "rename /p/a /elsewhere/b").unwrap();
    assert_eq!(refused, Verdict::Refuse(Rule::Outside));
}

/// Nearly all names of a project.
#[test]
fn nothing_is_asked_of_the_disk_about_an_ordinary_name() {
    let tree = tree("d /p/src f /p/src/main.rs");
    for change in [
        "read /p/src/main.rs",
        "write /p/src/main.rs",
        "mark /p/src/main.rs",
        "remove /p/src/main.rs",
        "create f /p/src/new.rs",
        "made create f /p/src/new.rs",
        "make /p/src/new",
        "rename /p/src/main.rs /p/src/lib.rs",
        "further /p/src/main.rs",
    ] {
        assert!(verdict(&tree, change).unwrap().is_allowed(), "{change}");
        assert_eq!(tree.asked.get(), 0, "{change}");
    }
}

#[test]
fn found_entries_are_closed_by_their_directorys_names() {
    let tree = tree("");
    // A directory, the paths as which it counts besides, and how an entry is closed.
    for (at, others, name, reading, writing) in [
        ("", vec![], "a", Ok(()), Ok(())),
        ("", vec![], ".env", Err(Rule::Name), Err(Rule::Name)),
        ("a/b", vec![], ".envrc", Ok(()), Err(Rule::Name)),
        (".git", vec![], "hooks", Ok(()), Err(Rule::Name)),
        ("store", vec![], "hooks", Ok(()), Ok(())),
        ("store", vec![".git"], "hooks", Ok(()), Err(Rule::Name)),
        (
            "store",
            vec!["x", ".git"],
            "config",
            Ok(()),
            Err(Rule::Name),
        ),
        // The directory is protected, so what lies in it needs no rule of its own.
        (".git/hooks", vec![], "x", Ok(()), Ok(())),
        // Nobody acts on it there, and pinned it would keep the package from being removed.
        ("node_modules/x", vec![], ".npmrc", Ok(()), Ok(())),
        (
            "node_modules/x",
            vec![],
            ".env",
            Err(Rule::Name),
            Err(Rule::Name),
        ),
    ] {
        let others: Vec<PathBuf> = others.iter().map(PathBuf::from).collect();
        let path = Path::new("/p").join(at);
        let directory = SearchedDirectory {
            names: &tree.names,
            path: &path,
            relative: Path::new(at),
            others: &others,
        };
        let name_of = OsStr::new(name);
        for (access, wanted) in [(Access::Read, reading), (Access::Write, writing)] {
            let found = AtRest::Entry {
                directory,
                name: name_of,
            };
            let verdict = judge(&tree, Change::Find { found, access }).unwrap();
            let wanted = wanted.map_or_else(Verdict::Refuse, |()| Verdict::Allow);
            assert_eq!(verdict, wanted, "{name} in {at} {others:?}, {access:?}");
        }
    }
    for (path, writing) in [
        ("crypt/transcrypt", Verdict::Refuse(Rule::Object)),
        ("objects/ab/cd", Verdict::Allow),
        ("refs/heads/x", Verdict::Allow),
        ("my-refs/x", Verdict::Refuse(Rule::Object)),
    ] {
        let found = AtRest::Program {
            in_repository: Path::new(path),
        };
        let verdict = |access| judge(&tree, Change::Find { found, access }).unwrap();
        assert_eq!(
            (verdict(Access::Read), verdict(Access::Write)),
            (Verdict::Allow, writing)
        );
    }
    assert_eq!(tree.asked.get(), 0, "nothing is asked of the disk");
}

#[test]
fn judge_takes_away_objects_that_a_call_misplaced() {
    check(&[
        ("f /p/lefthook.yml", "take /p/lefthook.yml", Ok(())),
        // Whatever it is called, and whoever has made it.
        ("f /p/.env", "take /p/.env", Ok(())),
        ("d /p/a d /p/a/.git", "take /p/a/.git", Ok(())),
        ("", "look /elsewhere/x", Err(Rule::Outside)),
        ("", "look /c/ro/x", Err(Rule::Outside)),
        ("f /elsewhere/x", "take /elsewhere/x", Err(Rule::Outside)),
        // What was protected when the session opened stays, with all that lies around it.
        ("d /p/a place /p/a/tools", "look /p/a", Err(Rule::Object)),
        ("f /p/a object /p/a", "take /p/a", Err(Rule::Object)),
        // Of the object nothing is known before it is opened.
        ("f /p/a object /p/a", "look /p/a", Ok(())),
    ]);
}
