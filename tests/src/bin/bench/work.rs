//! The cost of ordinary work in a cell: reading, git, compilers.

use crate::clients::{Lines, bubblewrap, spawn};
use crate::figures::{Row, Times, time};
use lazaret_tests::{Place, World};

const FILES: usize = 3000;

struct Work {
    name: &'static str,
    command: &'static str,
    /// Maximum time in a warm session, as a multiple of the plain time.
    most: f64,
}

const READING: [Work; 4] = [
    Work {
        name: "grep -r, 3,000 files",
        command: "grep -r nowhere src || true",
        most: 2.0,
    },
    Work {
        name: "cat, 3,000 files",
        command: "find src -type f -exec cat {} + > /dev/null",
        most: 2.0,
    },
    Work {
        name: "git status",
        command: "git status --short",
        most: 2.0,
    },
    Work {
        name: "cc, 20 files",
        command: "for f in src/7/*.c; do cc -O1 -c -o /tmp/o.o $f || exit; [ $((++n)) = 20 ] && exit; done; exit 0",
        most: 2.0,
    },
];

/// Earlier compilation results are cached, so this only links again.
const GO: Work = Work {
    name: "go test, a further time",
    command: "cd go && go test -count=1 ./...",
    most: 1.2,
};

/// Work on a repository of 3,000 files, alternately in a warm session, by bubblewrap and without either.
pub fn ordinary_work(place: Place, rounds: u32) -> Vec<Row> {
    let world = World::new(place);
    for number in 0..FILES {
        world.put(&format!("src/{}/{number}.c", number % 50), source(number));
    }
    let git = |arguments: &[&str]| {
        spawn(
            world
                .host("git")
                .current_dir(&world.project)
                .args(arguments),
        )
    };
    git(&["init", "-q"]);
    git(&["add", "."]);
    git(&[
        "-c",
        "user.name=a",
        "-c",
        "user.email=a@b",
        "commit",
        "-qm",
        "all",
    ]);
    let count = (rounds / 15).max(5);
    let has_bwrap = bubblewrap(&world, &["true"])
        .output()
        .is_ok_and(|output| output.status.success());
    let mut session = Lines::open(&world, &[]);
    let mut rows: Vec<Row> = READING
        .iter()
        .flat_map(|work| in_turns(&world, &mut session, work, count, has_bwrap))
        .collect();
    if world
        .host("go")
        .arg("version")
        .output()
        .is_ok_and(|output| output.status.success())
    {
        world.put("go/go.mod", "module p\n\ngo 1.18\n");
        world.put("go/p_test.go", "package p\n\nimport (\n\t\"net/http\"\n\t\"testing\"\n)\n\nfunc TestP(t *testing.T) { _ = http.Client{} }\n");
        let mut session = Lines::open(&world, &["--profile", "go"]);
        // There its cache is not writable.
        rows.extend(in_turns(&world, &mut session, &GO, count, false));
    }
    rows
}

fn in_turns(
    world: &World,
    session: &mut Lines,
    work: &Work,
    count: u32,
    has_bwrap: bool,
) -> Vec<Row> {
    let Work {
        name,
        command,
        most,
    } = work;
    let [mut plain, mut theirs, mut ours] = [const { Times(Vec::new()) }; 3];
    let mut outside = world.host("bash");
    outside.current_dir(&world.project).args(["-c", command]);
    let mut bwrap = bubblewrap(world, &["bash", "-c", command]);
    for round in 0..count + 1 {
        let mut times = [
            time(|| spawn(&mut outside)),
            time(|| session.bash(command)),
            0.0,
        ];
        if has_bwrap {
            times[2] = time(|| spawn(&mut bwrap));
        }
        // The first round only fills caches.
        if round >= 1 {
            [&mut plain, &mut ours, &mut theirs]
                .into_iter()
                .zip(times)
                .for_each(|(all, one)| all.0.push(one));
        }
    }
    let holds = ours.median() <= most * plain.median();
    let mut rows = vec![plain.row('r', &format!("{name}, plain"), None)];
    if has_bwrap {
        rows.push(theirs.row('r', &format!("{name}, bwrap"), Some(&plain)));
    }
    let row = ours.row('r', &format!("{name}, warm session"), Some(&plain));
    rows.push(row.goal(&format!("at most {most} × plain"), holds));
    rows
}

/// A C file that takes a compiler some milliseconds.
fn source(number: usize) -> String {
    let function = |part| {
        format!(
            "int f{number}_{part}(int a) {{ return a % {} ? a * {part} : a + {number}; }}\n",
            part + 2
        )
    };
    format!(
        "#include <stdio.h>\n{}",
        (0..20).map(function).collect::<String>()
    )
}
