//! `file_list` and `glob`, and what `grep` shares with them.

use super::*;
use broker_protocol::{FileList, Glob, Grep, Grepped, Listed, ListedKind, Truncated, Walked};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::time::SystemTime;

fn list(path: &str) -> FileList {
    FileList {
        path: zoned(path),
        depth: 64,
        hidden: true,
        limit: limit::ENTRIES,
    }
}

fn glob(pattern: &str) -> Glob {
    let path = zoned("");
    Glob {
        pattern: pattern.into(),
        path,
        hidden: false,
        ignored: false,
        limit: limit::ENTRIES,
    }
}

pub(super) fn grep(pattern: &str) -> Grep {
    Grep {
        pattern: pattern.into(),
        literal: false,
        ignore_case: false,
        path: zoned(""),
        include: None,
        ignored: false,
        context: 0,
        limit: limit::ENTRIES,
        sort: broker_protocol::GrepSort::Path,
    }
}

/// Lines found in the whole project.
pub(super) fn found(ground: &Ground, pattern: &str) -> Vec<String> {
    ground.grepped(Grep {
        ignored: true,
        ..grep(pattern)
    })
}

impl Ground {
    fn list(&self, list: FileList) -> Result<Listed, Failed> {
        match self.answer(Request::FileList(list))? {
            FileReply::Listed(listed) => Ok(listed),
            other => panic!("{other:?}"),
        }
    }

    fn listed(&self, list: FileList) -> Vec<String> {
        self.list(list)
            .unwrap()
            .entries
            .into_iter()
            .map(|entry| entry.path)
            .collect()
    }

    fn glob(&self, glob: Glob) -> Result<Walked, Failed> {
        match self.answer(Request::Glob(glob))? {
            FileReply::Walked(walked) => Ok(walked),
            other => panic!("{other:?}"),
        }
    }

    /// Paths found, by name.
    fn globbed(&self, glob: Glob) -> Vec<String> {
        let mut paths = self.glob(glob).unwrap().paths;
        paths.sort();
        paths
    }

    pub(super) fn grep(&self, grep: Grep) -> Result<Grepped, Failed> {
        match self.answer(Request::Grep(grep))? {
            FileReply::Grepped(grepped) => Ok(grepped),
            other => panic!("{other:?}"),
        }
    }

    /// Lines found, as `path:number:text`, and `path-number-text` for lines beside them.
    pub(super) fn grepped(&self, grep: Grep) -> Vec<String> {
        let matches = self.grep(grep).unwrap().matches;
        let line = |path: &str, line: broker_protocol::MatchLine| match line.matched {
            true => format!("{path}:{}:{}", line.number, line.text),
            false => format!("{path}-{}-{}", line.number, line.text),
        };
        matches
            .into_iter()
            .flat_map(|m| m.lines.into_iter().map(move |l| line(&m.path, l)))
            .collect()
    }
}

#[test]
fn an_entry_has_the_mode_and_the_time_of_its_file() {
    let ground = Ground::new();
    ground.put("project/run.sh", "echo");
    let path = ground.path("project/run.sh");
    std::fs::set_permissions(&path, PermissionsExt::from_mode(0o750)).unwrap();
    let time = SystemTime::UNIX_EPOCH + std::time::Duration::from_millis(1_700_000_000_123);
    std::fs::File::open(&path)
        .unwrap()
        .set_modified(time)
        .unwrap();
    // A link is not followed, also for what it leads to.
    ground.link("run.sh", "project/link");
    let entries = ground.list(list("")).unwrap().entries;
    let run = entries.iter().find(|entry| entry.path == "run.sh").unwrap();
    assert_eq!(
        (run.size, run.mode, run.modified_ms),
        (4, 0o750, 1_700_000_000_123)
    );
    let link = entries.iter().find(|entry| entry.path == "link").unwrap();
    assert_eq!((link.size, link.mode), (0, 0o777));
    assert_ne!(link.modified_ms, run.modified_ms);
}

#[test]
fn a_directory_is_listed_in_order() {
    let ground = Ground::new();
    for name in ["b/x", "b/y/z", "a.txt", "b.txt", ".hidden/x", ".git/config"] {
        ground.put(&format!("project/{name}"), name);
    }
    ground.link("b", "project/link");
    ground.link("..", "project/b/loop");
    fifo(&ground.path("project/fifo"));
    let all = [
        ".git",
        ".hidden",
        ".hidden/x",
        "a.txt",
        "b",
        "b/loop",
        "b/x",
        "b/y",
        "b/y/z",
        "b.txt",
        "fifo",
        "link",
    ];
    assert_eq!(ground.listed(list("")), all);
    assert_eq!(
        ground.listed(FileList {
            depth: 1,
            hidden: false,
            ..list("")
        }),
        ["a.txt", "b", "b.txt", "fifo", "link"]
    );
    assert_eq!(ground.listed(list("b")), ["loop", "x", "y", "y/z"]);
    assert_eq!(ground.listed(list("link")), ["loop", "x", "y", "y/z"]);
    assert_eq!(ground.listed(list(".git")), ["config"]);
    let entries = ground
        .list(FileList {
            depth: 1,
            ..list("")
        })
        .unwrap()
        .entries;
    let kinds: Vec<_> = entries
        .iter()
        .map(|entry| (entry.path.as_str(), entry.kind, entry.size))
        .collect();
    assert!(kinds.contains(&("a.txt", ListedKind::File, 5)));
    assert!(kinds.contains(&("b", ListedKind::Directory, 0)));
    assert!(kinds.contains(&("link", ListedKind::Link, 0)));
    assert!(kinds.contains(&("fifo", ListedKind::Other, 0)));
}

#[test]
fn a_list_stops_at_its_limit_and_says_so() {
    let ground = Ground::new();
    (0..10).for_each(|n| _ = ground.put(&format!("project/{n}"), ""));
    assert_eq!(
        ground
            .list(FileList {
                limit: 10,
                ..list("")
            })
            .unwrap()
            .truncated,
        None
    );
    let cut = ground
        .list(FileList {
            limit: 9,
            ..list("")
        })
        .unwrap();
    assert_eq!(
        (cut.entries.len(), cut.truncated),
        (
            9,
            Some(Truncated {
                total: Some(10),
                shown: 9
            })
        )
    );
}

#[test]
fn listing_something_other_than_a_directory_fails() {
    let ground = Ground::new();
    ground.put("project/a", "");
    ground.put("project/.env/secret", "");
    ground.link(ground.path("outside"), "project/out");
    assert_eq!(
        ground.list(list("a")).unwrap_err().message,
        "a is a regular file, not a directory"
    );
    assert_eq!(kind(ground.list(list("none"))), ErrorKind::NotFound);
    assert_eq!(kind(ground.list(list("out"))), ErrorKind::Violation);
    assert_eq!(kind(ground.list(list(".env"))), ErrorKind::DeniedPolicy);
    assert_eq!(ground.listed(list("")), [".env", "a", "out"]);
}

#[test]
fn odd_names_are_listed_and_searched() {
    let ground = Ground::new();
    ground.put("project/new\nline", "needle\n");
    let raw = std::ffi::OsStr::from_bytes(b"raw\xff");
    fs::write(ground.path("project").join(raw), "needle\n").unwrap();
    let names = ["new\nline", "raw\u{fffd}"];
    assert_eq!(ground.listed(list("")), names);
    assert_eq!(ground.globbed(glob("*")), names);
    assert_eq!(
        ground.grepped(grep("needle")),
        ["new\nline:1:needle", "raw\u{fffd}:1:needle"]
    );
}

#[test]
fn long_lists_stay_below_the_size_of_an_answer() {
    let ground = Ground::new();
    let directory = format!("project/{}/{}", "d".repeat(250), "e".repeat(250));
    (0..9000).for_each(|n| _ = ground.put(&format!("{directory}/{n:0200}"), "needle\n"));
    let listed = ground.list(list("")).unwrap();
    assert_eq!(listed.truncated.unwrap().shown, listed.entries.len() as u64);
    // With the two directories.
    assert!(
        listed
            .truncated
            .unwrap()
            .total
            .is_none_or(|total| total == 9002)
    );
    let walked = ground.glob(glob("**")).unwrap();
    assert_eq!(walked.truncated.unwrap().total, Some(9000));
    assert!(walked.paths.len() < 9000);
    assert!(ground.grep(grep("needle")).unwrap().truncated.is_some());
}

#[test]
fn a_glob_finds_the_newest_first() {
    let ground = Ground::new();
    for (name, age) in [
        ("old.rs", 300),
        ("src/new.rs", 100),
        ("src/mid.rs", 200),
        ("src/x.c", 1),
    ] {
        let file = fs::File::open(ground.put(&format!("project/{name}"), "")).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(age))
            .unwrap();
    }
    assert_eq!(
        ground.glob(glob("**/*.rs")).unwrap().paths,
        ["src/new.rs", "src/mid.rs", "old.rs"]
    );
    let cut = ground
        .glob(Glob {
            limit: 2,
            ..glob("**/*.rs")
        })
        .unwrap();
    assert_eq!(cut.paths, ["src/new.rs", "src/mid.rs"]);
    assert_eq!(
        (cut.truncated.unwrap().total, cut.truncated.unwrap().shown),
        (Some(3), 2)
    );
}

#[test]
fn stars_choices_and_plain_directories() {
    let ground = Ground::new();
    for name in ["a.rs", "b.c", "src/c.rs", "src/deep/d.rs", "target/e.rs"] {
        ground.put(&format!("project/{name}"), "");
    }
    ground.put("project/.gitignore", "target\n");
    ground.link("src", "project/link");
    ground.link("b.c", "project/alias.rs");
    ground.link(ground.path("outside/canary"), "project/out.rs");
    let found = |pattern: &str| ground.globbed(glob(pattern));
    assert_eq!(found("*.rs"), ["a.rs", "alias.rs"]);
    assert_eq!(found("./*.{rs,c}"), ["a.rs", "alias.rs", "b.c"]);
    assert_eq!(found("src/*.rs"), ["src/c.rs"]);
    assert_eq!(found("src/**/*.rs"), ["src/c.rs", "src/deep/d.rs"]);
    assert_eq!(found("*/[cd].rs"), ["src/c.rs"]);
    assert_eq!(found("**/d.rs"), ["src/deep/d.rs"]);
    assert_eq!(found("target/*.rs"), ["target/e.rs"]);
    assert_eq!(found("link/*.rs"), ["link/c.rs"]);
    assert_eq!(found("src/deep"), [""; 0]);
    assert_eq!(found("none/*"), [""; 0]);
    assert_eq!(found("a.rs/*"), [""; 0]);
    assert_eq!(
        ground.globbed(Glob {
            path: zoned("src"),
            ..glob("**/*.rs")
        }),
        ["src/c.rs", "src/deep/d.rs"]
    );
    for bad in ["/etc/*", "../*", "src/../../*", "{a", "[z-a]"] {
        assert_eq!(
            kind(ground.glob(glob(bad))),
            ErrorKind::InvalidInput,
            "{bad}"
        );
    }
    assert_eq!(
        kind(ground.glob(Glob {
            path: zoned("none"),
            ..glob("*")
        })),
        ErrorKind::NotFound
    );
}

#[test]
fn dots_are_looked_at_when_asked_for() {
    let ground = Ground::new();
    for name in ["a", ".b", ".github/ci", ".git/config", "x/.c"] {
        ground.put(&format!("project/{name}"), "");
    }
    let found = |pattern: &str, hidden| {
        ground.globbed(Glob {
            hidden,
            ..glob(pattern)
        })
    };
    assert_eq!(found("**", false), ["a"]);
    assert_eq!(found("**", true), [".b", ".github/ci", "a", "x/.c"]);
    assert_eq!(found("**/.*", false), [".b", "x/.c"]);
    assert_eq!(found(".github/*", false), [".github/ci"]);
    assert_eq!(found("**/.git/*", false), [".git/config"]);
    assert_eq!(found(".git/*", false), [".git/config"]);
}

#[test]
fn ignore_files_hold_with_and_without_a_repository() {
    let ground = Ground::new();
    for name in [
        "keep",
        "x.log",
        "important.log",
        "build/out",
        "src/build/out",
        "src/gen.rs",
        "src/a.rs",
        "top",
        "src/top",
    ] {
        ground.put(&format!("project/{name}"), "needle\n");
    }
    ground.put(
        "project/.gitignore",
        "\u{feff}*.log\n!important.log\nbuild/\n/top\n# comment\n\n[z-a]\n",
    );
    ground.put("project/src/.gitignore", "gen.rs\n!build/\n");
    let kept = [
        "important.log",
        "keep",
        "src/a.rs",
        "src/build/out",
        "src/top",
    ];
    assert_eq!(ground.globbed(glob("**")), kept);
    assert_eq!(
        ground.grep(grep("needle")).unwrap().matches.len(),
        kept.len()
    );
    assert_eq!(
        ground.globbed(Glob {
            path: zoned("src"),
            ..glob("**")
        }),
        kept[2..]
    );
    assert_eq!(
        ground
            .globbed(Glob {
                ignored: true,
                ..glob("**")
            })
            .len(),
        9
    );
    assert_eq!(
        ground
            .grep(Grep {
                ignored: true,
                ..grep("needle")
            })
            .unwrap()
            .matches
            .len(),
        9
    );
}

#[test]
fn ignore_files_have_their_order() {
    let ground = Ground::new();
    for name in ["a", "b", "c", "inner/a", "inner/b", "inner/c"] {
        ground.put(&format!("project/{name}"), "");
    }
    ground.put("project/.ignore", "!a\n");
    ground.put("project/.gitignore", "a\nb\n!c\n");
    ground.put("project/.git/info/exclude", "c\n");
    assert_eq!(ground.globbed(glob("**")), ["a", "c", "inner/a", "inner/c"]);
    // Another repository: what the outer one ignores does not hold, `.ignore` files do.
    fs::create_dir(ground.path("project/inner/.git")).unwrap();
    ground.put("project/.ignore", "inner/c\n");
    assert_eq!(ground.globbed(glob("**")), ["c", "inner/a", "inner/b"]);
}

#[test]
fn an_ignore_file_above_the_root_is_not_read() {
    let ground = Ground::new();
    ground.put(".gitignore", "*\n");
    ground.put("outside/rules", "*\n");
    ground.put("project/a", "");
    ground.link(ground.path("outside/rules"), "project/.gitignore");
    assert_eq!(ground.globbed(glob("*")), ["a"]);
}

#[test]
fn hostile_ignore_files_are_passed_over() {
    let ground = Ground::new();
    ground.put("project/a", "needle\n");
    fifo(&ground.path("project/.gitignore"));
    fs::File::create(ground.path("project/.ignore"))
        .unwrap()
        .set_len(1 << 40)
        .unwrap();
    fs::create_dir_all(ground.path("project/.git/info")).unwrap();
    fifo(&ground.path("project/.git/info/exclude"));
    assert_eq!(ground.globbed(glob("**")), ["a"]);
    assert_eq!(ground.grepped(grep("needle")), ["a:1:needle"]);
}

#[test]
fn a_linked_start_is_searched_under_the_name_it_was_given() {
    let ground = Ground::new();
    ground.put("central/notes/a.md", "hit\n");
    ground.link(ground.path("central/notes"), "project/notes");
    assert_eq!(
        ground.grepped(Grep {
            path: zoned("notes"),
            ..grep("hit")
        }),
        ["notes/a.md:1:hit"]
    );
    assert_eq!(
        ground.globbed(Glob {
            path: zoned("notes"),
            ..glob("*.md")
        }),
        ["notes/a.md"]
    );
    assert_eq!(ground.listed(list("notes")), ["a.md"]);
}

#[test]
fn a_deep_tree_ends() {
    let ground = Ground::new();
    let mut directory: std::os::fd::OwnedFd =
        fs::File::open(ground.path("project")).unwrap().into();
    for _ in 0..3000 {
        use nix::fcntl::{OFlag, openat};
        use nix::sys::stat::{Mode, mkdirat};
        mkdirat(&directory, "d", Mode::from_bits_truncate(0o777)).unwrap();
        directory = openat(&directory, "d", OFlag::O_DIRECTORY, Mode::empty()).unwrap();
    }
    let listed = ground.list(list("")).unwrap();
    assert_eq!((listed.entries.len(), listed.truncated), (64, None));
    let walked = ground.glob(glob("**")).unwrap();
    assert!(walked.truncated.is_some());
    // From above: removing the tree as a whole holds a descriptor for each level, and other tests find none left.
    let (top, next) = (ground.path("project/d"), ground.path("project/next"));
    while fs::rename(top.join("d"), &next).is_ok() {
        fs::remove_dir(&top).unwrap();
        fs::rename(&next, &top).unwrap();
    }
}
