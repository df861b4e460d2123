//! `grep`.

use super::searching::grep;
use super::*;
use broker_protocol::{Grep, Truncated, Unsearched};

#[test]
fn lines_are_found_in_the_order_of_paths() {
    let ground = Ground::new();
    ground.put("project/b.rs", "fn Needle()\nother\nneedle");
    ground.put("project/a/x.rs", "needle\r\n");
    ground.put("project/a/y.txt", "a.needle(\n");
    ground.put("project/.github/z", "needle\n");
    ground.put("project/.git/config", "needle\n");
    let lower = [
        ".github/z:1:needle",
        "a/x.rs:1:needle",
        "a/y.txt:1:a.needle(",
        "b.rs:3:needle",
    ];
    assert_eq!(ground.grepped(grep("needle")), lower);
    let include = |glob: &str| {
        ground.grepped(Grep {
            include: Some(glob.into()),
            ..grep("needle")
        })
    };
    assert_eq!(include("*.rs"), [lower[1], lower[3]]);
    assert_eq!(include("a/*"), lower[1..3]);
    assert_eq!(
        ground
            .grepped(Grep {
                ignore_case: true,
                ..grep("NEEDLE$")
            })
            .len(),
        3
    );
    assert_eq!(
        ground.grepped(Grep {
            literal: true,
            ..grep("a.needle(")
        }),
        [lower[2]]
    );
    assert_eq!(
        ground.grepped(Grep {
            path: zoned("a"),
            ..grep("needle")
        }),
        lower[1..3]
    );
    assert_eq!(
        ground.grepped(Grep {
            path: zoned("b.rs"),
            ..grep("Needle")
        }),
        ["b.rs:1:fn Needle()"]
    );
    assert_eq!(
        ground.grepped(Grep {
            path: zoned(".git"),
            ..grep("needle")
        }),
        [".git/config:1:needle"]
    );
    assert_eq!(ground.grepped(grep(r"needle\r")), ["a/x.rs:1:needle"]);
    assert_eq!(ground.grepped(grep("^needle$")).len(), 3);
    assert_eq!(
        kind(ground.grep(Grep {
            path: zoned("none"),
            ..grep("x")
        })),
        ErrorKind::NotFound
    );
}

#[test]
fn context_stands_around_matches_and_nowhere_else() {
    let ground = Ground::new();
    ground.put("project/a", "1\n2\nhit 3\n4\n5\n6\n7\nhit 8\n9\n");
    let found = |context, limit| {
        ground.grepped(Grep {
            context,
            limit,
            ..grep("hit")
        })
    };
    assert_eq!(
        found(1, 10),
        ["a-2-2", "a:3:hit 3", "a-4-4", "a-7-7", "a:8:hit 8", "a-9-9"]
    );
    assert_eq!(found(1, 1), ["a-2-2", "a:3:hit 3", "a-4-4"]);
    assert_eq!(
        found(20, 1),
        [
            "a-1-1",
            "a-2-2",
            "a:3:hit 3",
            "a-4-4",
            "a-5-5",
            "a-6-6",
            "a-7-7"
        ]
    );
}

#[test]
fn matching_lines_are_counted() {
    let ground = Ground::new();
    ground.put("project/a", "hit\nhit\n");
    ground.put("project/b", "hit\n");
    let answer = |limit| {
        ground
            .grep(Grep {
                limit,
                ..grep("hit")
            })
            .unwrap()
    };
    assert_eq!(answer(3).truncated, None);
    let cut = answer(2);
    assert_eq!(
        (cut.matches.len(), cut.truncated),
        (
            1,
            Some(Truncated {
                total: Some(3),
                shown: 2
            })
        )
    );
    assert_eq!(answer(1).matches[0].lines.len(), 1);
}

#[test]
fn invalid_regex_fails() {
    let ground = Ground::new();
    for bad in [
        "(",
        "a\nb",
        r"\p{nonsense}",
        "(((a{100}){100}){100})",
        "a{4294967296}",
    ] {
        assert_eq!(
            kind(ground.grep(grep(bad))),
            ErrorKind::InvalidInput,
            "{bad}"
        );
    }
    assert_eq!(
        kind(ground.grep(Grep {
            include: Some("[".into()),
            ..grep("a")
        })),
        ErrorKind::InvalidInput
    );
    ground.put("project/a", "0123456-89ab-cdef-0123-456789abcdef\n(\n");
    assert_eq!(ground.grepped(grep(r"[\w-]{35}")).len(), 1);
    assert_eq!(
        ground.grepped(Grep {
            literal: true,
            ..grep("(")
        }),
        ["a:2:("]
    );
}

#[test]
fn binary_files_are_counted_and_passed_over() {
    let ground = Ground::new();
    ground.put("project/a", "hit\0");
    ground.put(
        "project/late",
        format!("hit\n{}\0", "text\n".repeat(100_000)),
    );
    ground.put("project/text", b"hit \xff\n");
    ground.put("project/utf16", b"\xff\xfeh\0i\0t\0\n\0");
    let answer = ground.grep(grep("hit")).unwrap();
    assert_eq!(answer.binary, 2);
    assert_eq!(
        ground.grepped(grep("hit")),
        ["text:1:hit \u{fffd}", "utf16:1:hit"]
    );
    assert_eq!(answer.truncated, None);
}

/// K14.
#[test]
fn long_lines_are_cut_after_300_characters_and_marked() {
    let ground = Ground::new();
    let mut wants = Vec::new();
    for (name, unit) in [("a", "x"), ("b", "\u{e9}"), ("c", "\u{1f600}")] {
        for count in [299, 300, 301] {
            ground.put(
                &format!("project/{name}{count}"),
                format!("{}\r\n", unit.repeat(count)),
            );
            wants.push(if count > 300 {
                unit.repeat(300) + "…"
            } else {
                unit.repeat(count)
            });
        }
    }
    // A wrong byte is one character; where bytes begin one that they do not end, all of them are.
    ground.put("project/d", [[0xff; 300].as_slice(), b"\n"].concat());
    ground.put("project/e", [0xff; 2000]);
    ground.put("project/f", b"\xf0\x9f\x98".repeat(301));
    let wrong = "\u{fffd}".repeat(300);
    wants.extend([wrong.clone(), wrong.clone() + "…", wrong + "…"]);
    let answer = ground.grep(grep("")).unwrap();
    let texts: Vec<_> = answer
        .matches
        .into_iter()
        .map(|mut found| found.lines.remove(0).text)
        .collect();
    assert_eq!(texts, wants);
}

#[test]
fn files_that_never_end_are_searched_within_bounds() {
    let ground = Ground::new();
    fs::File::create(ground.path("project/sparse"))
        .unwrap()
        .set_len(1 << 40)
        .unwrap();
    ground.put("project/line", vec![b'x'; 20 << 20]);
    ground.put("project/z", "hit\n");
    fifo(&ground.path("project/fifo"));
    let answer = ground.grep(grep("hit")).unwrap();
    assert_eq!(answer.binary, 1);
    assert_eq!(answer.matches[0].path, "z");
    assert_eq!(
        (answer.truncated, answer.in_part_count),
        (None, 1),
        "one file was not searched to its end"
    );
    assert_eq!(
        (answer.in_part[0].path.as_str(), answer.in_part[0].why),
        ("line", Unsearched::LongLine)
    );
}

#[test]
fn lines_at_the_edge_of_a_piece_are_found_once() {
    use crate::bounds::PIECE;
    let ground = Ground::new();
    for end in ["\n", "\r\n"] {
        let filler = format!("{}{end}", "x".repeat(99 - end.len())).repeat(PIECE / 50);
        ground.put("project/a", format!("{filler}hit{end}{end}{filler}hit"));
        let lines = ground
            .grep(Grep {
                context: 1,
                ..grep("^hit$|^$")
            })
            .unwrap();
        assert_eq!(lines.truncated, None);
        let first = filler.lines().count() as u64 + 1;
        let numbers: Vec<_> = lines.matches[0]
            .lines
            .iter()
            .filter(|line| line.matched)
            .map(|line| line.number)
            .collect();
        assert_eq!(numbers, [first, first + 1, 2 * first + 1]);
    }
}

#[test]
fn only_the_beginning_of_a_long_line_is_searched() {
    use crate::bounds::PIECE;
    let ground = Ground::new();
    let line = |before: usize| format!("first\n{}hit\nlast\n", "x".repeat(before));
    ground.put("project/a", line(PIECE - 4));
    assert_eq!(
        ground.grep(grep("hit")).unwrap().matches[0].lines[0].number,
        2
    );
    ground.put("project/a", line(PIECE));
    let answer = ground.grep(grep("hit|last")).unwrap();
    assert_eq!(answer.matches[0].lines[0].number, 3);
    assert_eq!((answer.truncated, answer.in_part_count), (None, 1));
    // The next file is another one, and where some have no place they are counted.
    ground.put("project/b", "hit\n");
    (0..limit::IN_PART + 1).for_each(|n| _ = ground.put(&format!("project/c/{n:02}"), line(PIECE)));
    let answer = ground
        .grep(Grep {
            limit: 1,
            ..grep("hit")
        })
        .unwrap();
    assert_eq!(
        (answer.in_part.len(), answer.in_part_count),
        (limit::IN_PART, limit::IN_PART as u64 + 2)
    );
    assert!(answer.in_part.iter().all(|file| file.path != "b"));
    // What was not searched was not counted either.
    ground.put("project/b", "hit\nhit\n");
    let answer = ground
        .grep(Grep {
            limit: 1,
            ..grep("hit")
        })
        .unwrap();
    assert_eq!(
        answer.truncated,
        Some(Truncated {
            total: None,
            shown: 1
        })
    );
}

#[test]
fn a_pattern_that_takes_for_ever_is_given_up() {
    use crate::deadline_matcher::DeadlineMatcher;
    use grep_matcher::Matcher;
    let pattern = grep_regex::RegexMatcher::new("x").unwrap();
    let late = DeadlineMatcher::new(pattern, Instant::now());
    assert!(late.find_candidate_line(b"x\n").is_err());
    assert!(late.is_match(b"x").is_err());
}

#[test]
fn closed_files_are_not_searched() {
    let ground = Ground::new();
    ground.put("project/.env", "SECRET\n");
    ground.put("project/.env.d/x", "SECRET\n");
    ground.link(".env", "project/alias");
    ground.link(ground.path("outside"), "project/out");
    assert_eq!(ground.grepped(grep("SECRET|OUTSIDE")), [""; 0]);
    assert_eq!(
        kind(ground.grep(Grep {
            path: zoned(".env"),
            ..grep("x")
        })),
        ErrorKind::DeniedPolicy
    );
    assert_eq!(
        kind(ground.grep(Grep {
            path: zoned("alias"),
            ..grep("x")
        })),
        ErrorKind::DeniedPolicy
    );
    assert_eq!(
        kind(ground.grep(Grep {
            path: zoned("out"),
            ..grep("x")
        })),
        ErrorKind::Violation
    );
    fifo(&ground.path("project/fifo"));
    assert_eq!(
        kind(ground.grep(Grep {
            path: zoned("fifo"),
            ..grep("x")
        })),
        ErrorKind::InvalidInput
    );
}

#[test]
fn files_are_searched_newest_first_where_that_is_asked_for() {
    use broker_protocol::GrepSort;
    use std::time::{Duration, SystemTime};
    let ground = Ground::new();
    for (age, name) in [(3, "a"), (1, "d/b"), (2, "c")] {
        let path = ground.put(&format!("project/{name}"), "hit\n");
        let file = fs::File::options().write(true).open(path).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(60 * age))
            .unwrap();
    }
    let found = |sort, limit| {
        ground.grepped(Grep {
            sort,
            limit,
            ..grep("hit")
        })
    };
    assert_eq!(
        found(GrepSort::Path, 9),
        ["a:1:hit", "c:1:hit", "d/b:1:hit"]
    );
    assert_eq!(
        found(GrepSort::Modified, 9),
        ["d/b:1:hit", "c:1:hit", "a:1:hit"]
    );
    assert_eq!(found(GrepSort::Modified, 1), ["d/b:1:hit"]);
    let one = Grep {
        sort: GrepSort::Modified,
        path: zoned("d/b"),
        ..grep("hit")
    };
    assert_eq!(ground.grepped(one), ["d/b:1:hit"]);
}

#[test]
fn no_more_paths_are_sorted_than_the_bound() {
    use crate::bounds::SORTED;
    use crate::grep::ByAge;
    let mut sorted = ByAge::default();
    let path =
        |number: usize| std::path::PathBuf::from(format!("{}{number:04}", "0".repeat(999_996)));
    let count = SORTED / 1_000_000;
    (0..=count).for_each(|number| sorted.add(Some((number as i64, 0)), path(number)));
    assert!(sorted.dropped);
    let left: Vec<_> = sorted.newest_first().collect();
    assert_eq!(
        (left.len(), &left[0], left.last()),
        (count, &path(count), Some(&path(1)))
    );
}
