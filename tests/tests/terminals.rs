//! Pseudo-terminals of a cell's own: they are terminals like any other, and those of the machine, which lie beside them in
//! the flat tier, and those of other cells stay closed.
#![allow(clippy::unwrap_used)]

use broker_protocol::Tier;
use lazaret_tests::process::{Running, until};
use lazaret_tests::programs::need;
use lazaret_tests::{LIMIT, Place, Session, World, place_test, run, suite};
use serde_json::json;
use std::fs;
use std::process::ExitCode;
use std::sync::{Mutex, MutexGuard, PoisonError};

fn main() -> ExitCode {
    suite::main()
}

/// One of these tests takes all terminals that there are for cells.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

const WORKS: &str = r#"
import fcntl, os, pty, select, signal, subprocess, sys, termios, time
def ends(fd):
    text = b''
    while True:
        try: piece = os.read(fd, 999)
        except OSError as error: assert error.errno == 5, error; return text
        if not piece: return text
        text += piece
m, s = pty.openpty(); name = os.ttyname(s); assert os.isatty(s) and name.startswith('/dev/pts/')
os.write(s, b'x'); assert os.read(m, 9) == b'x'
for path in [name, f'/proc/self/fd/{s}']:
    for flags in [os.O_RDWR, os.O_WRONLY, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC]:
        f = os.open(path, flags | os.O_NOCTTY); os.write(f, b'y'); assert os.read(m, 9) == b'y'
        assert os.ttyname(f) == name and os.get_blocking(f) == (not flags & os.O_NONBLOCK); os.close(f)
# Nobody but this process has an end: the last one closed is the end of the other.
f = os.open(name, os.O_RDWR | os.O_NOCTTY); os.close(s); os.write(f, b'z'); os.close(f); assert ends(m) == b'z'
os.close(m); assert not os.path.exists(name)
try: os.open(name, os.O_RDWR); print('opened')
except OSError as error: assert error.errno == 2, error
# A session of its own on it, its controlling terminal, a signal by a key, a hang-up.
pid, fd = pty.fork()
if pid == 0:
    signal.signal(signal.SIGINT, lambda *_: os.write(1, b'interrupted'))
    signal.signal(signal.SIGHUP, lambda *_: (open('hung-up', 'w').close(), os._exit(0)))
    with open('/dev/tty', 'r+b', buffering=0) as tty: tty.write(b'ready')
    assert os.tcgetpgrp(0) == os.getpid()
    while True: time.sleep(1)
text = b''
while b'ready' not in text: text += os.read(fd, 99)
os.write(fd, b'\x03')
while b'interrupted' not in text: text += os.read(fd, 99)
os.close(fd); os.waitpid(pid, 0); assert os.path.exists('hung-up')
pid, fd = pty.fork()
if pid == 0: os.execvp('bash', ['bash', '--norc', '-ic', 'sleep 9 & jobs; kill %1; tty'])
text = ends(fd); assert b'no job control' not in text and b'sleep 9' in text and b'/dev/pts/' in text, text
pid, fd = pty.fork()
if pid == 0:
    os.dup2(0, 9); os.close(0); os.close(1); os.close(2)
    os.write(os.open('/dev/tty', os.O_RDWR), b'by name'); os._exit(0)
assert ends(fd) == b'by name'
"#;

place_test!(terminals_of_ones_own_work);
fn terminals_of_ones_own_work(place: Place) {
    let _one = alone();
    let world = World::new(place);
    world.put("works.py", WORKS);
    world.in_cell("python3 works.py").success();
}

place_test!(script_has_a_terminal);
fn script_has_a_terminal(place: Place) {
    need("script", "bsdutils");
    let _one = alone();
    let printed = World::new(place).in_cell("script -qec 'tty; exit 5' /dev/null; echo $?");
    let text = printed.success();
    assert!(
        text.starts_with("/dev/pts/") && text.ends_with("\n5\n"),
        "{text}\n{}",
        printed.errors()
    );
}

place_test!(tmux_has_a_terminal);
fn tmux_has_a_terminal(place: Place) {
    need("tmux", "tmux");
    let _one = alone();
    let world = World::new(place);
    let tmux = "export TMUX_TMPDIR=$TMPDIR; tmux new-session -d 'tty > t.new; mv t.new t'
            until [ -e t ]; do sleep 0.1; done; cat t";
    assert!(world.in_cell(tmux).success().starts_with("/dev/pts/"));
}

place_test!(terminals_are_limited, flat_only);
/// Some at one time, many one after the other, and an end of all: the machine keeps its own.
fn terminals_are_limited(place: Place) {
    let _one = alone();
    let script = "
import os
def all():
    found = []
    try:
        while len(found) < 3000: found.append(os.open('/dev/ptmx', os.O_RDWR))
    except OSError as error: assert error.errno in (24, 28), error
    return found
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
first = all(); [os.close(fd) for fd in first]
[os.close(os.open('/dev/ptmx', os.O_RDWR)) for _ in range(600)]
again = all(); print(len(first), len(again))
# Masters that are gone, whose slaves are kept.
slaves = []
[os.close(fd) for fd in again]
try:
    while len(slaves) < 3000:
        master, slave = os.openpty(); os.close(master); slaves.append(slave)
except OSError as error: assert error.errno in (24, 28), error
print(len(slaves))
";
    let world = World::new(place);
    world.put("many.py", script);
    let mut session = Session::open(&world);
    let printed = session.bash("python3 many.py").success().to_owned();
    let counts: Vec<usize> = printed
        .split_whitespace()
        .map(|word| word.parse().unwrap())
        .collect();
    assert_eq!(counts[..2], [256, 256], "{printed}");
    assert!(
        counts[2] < 2100,
        "more than half of the machine's: {printed}"
    );
    assert!(session.bash("python3 -c 'import pty; pty.openpty()'").ok());
    // A terminal that is gone is kept nowhere.
    run(
        world
            .host("python3")
            .args(["-c", "import pty; pty.openpty()"]),
        LIMIT,
    )
    .success();
}

/// Says what of the terminals `argv[1:]` it has, by every name for them.
const REACH: &str = r#"
import os, sys
for name in sys.argv[1:]:
    def link():
        os.symlink(name, 'link')
        try: return os.open('link', os.O_RDWR | os.O_NOCTTY)
        finally: os.unlink('link')
    place = lambda: os.open('/proc/self/fd/%d' % os.open(name, os.O_PATH), os.O_RDWR | os.O_NOCTTY)
    below = lambda: os.open(name[len('/dev/'):], os.O_RDWR | os.O_NOCTTY, dir_fd=os.open('/dev', os.O_PATH))
    ways = [lambda flags=flags: os.open(name, flags | os.O_NOCTTY) for flags in (os.O_RDWR, os.O_RDONLY, os.O_WRONLY)]
    for way in ways + [link, place, below]:
        try: fd = way(); print('GOT', os.ttyname(fd)); os.close(fd)
        except OSError as error: print('no', error)
"#;

/// A terminal that waits, and its name.
const HOLDER: &str = "import os, pty, sys, time; m, s = pty.openpty(); print(os.ttyname(s), flush=True); time.sleep(60)";

place_test!(terminals_of_others_stay_closed);
fn terminals_of_others_stay_closed(place: Place) {
    let _one = alone();
    let world = World::new(place);
    world.put("reach.py", REACH);
    world.put("holder.py", HOLDER);
    let mut holder = Running::start(world.host("python3").arg("holder.py"));
    let name = String::from_utf8(holder.wait_for("\n", LIMIT))
        .unwrap()
        .trim()
        .to_owned();
    let control = run(world.host("python3").args(["reach.py", &name]), LIMIT);
    assert_eq!(control.success().matches("GOT").count(), 6, "{control:?}");
    let mut session = Session::open(&world);
    let inside = session
        .bash(&format!("python3 reach.py {name}"))
        .success()
        .to_owned();
    assert!(
        !inside.contains("GOT") && inside.lines().count() == 6,
        "{inside}"
    );
    // With terminals of its own open, and another cell's.
    let id = session.start_call("bash", json!({"command": "python3 holder.py > other"}));
    let other = world.project.join("other");
    assert!(until(LIMIT, || fs::read_to_string(&other)
        .is_ok_and(|text| text.ends_with('\n'))));
    let theirs = fs::read_to_string(&other).unwrap();
    let own = format!(
        "import pty, runpy, sys; pair = pty.openpty(); sys.argv[1:] = ['{name}', '{}']
runpy.run_path('reach.py')",
        theirs.trim()
    );
    world.put("own.py", own);
    let inside = session.bash("python3 own.py").success().to_owned();
    // In the namespaced tier the names are those of the session's own instance, which its cells share.
    if place.tier == Tier::Flat {
        assert!(
            !inside.contains("GOT") && inside.lines().count() == 12,
            "{inside}"
        );
    }
    session.cancel(&id);
    session.answer_within(&id, LIMIT);
    holder.child.kill().unwrap();
    holder.child.wait().unwrap();
}

place_test!(a_number_does_not_become_a_terminal_of_the_host, flat_only);
/// A number means another terminal when the first is gone: of the host, while the cell has had one with that number.
fn a_number_does_not_become_a_terminal_of_the_host(place: Place) {
    let _one = alone();
    let world = World::new(place);
    world.put("reach.py", REACH);
    world.put("holder.py", HOLDER);
    let wait = "
import os, pty, runpy, sys, time
m, s = pty.openpty(); name = os.ttyname(s); os.close(os.open(name, os.O_RDWR | os.O_NOCTTY))
os.close(s); os.close(m); open('mine.new', 'w').write(name); os.rename('mine.new', 'mine')
while not os.path.exists('go'): time.sleep(0.02)
sys.argv[1:] = [name]; runpy.run_path('reach.py')
";
    world.put("wait.py", wait);
    let is_given_again = |_| {
        let inside = Running::start(&mut world.cell("python3 wait.py"));
        let mine = world.project.join("mine");
        assert!(until(LIMIT, || mine.exists()));
        let mut holder = Running::start(world.host("python3").arg("holder.py"));
        let theirs = String::from_utf8(holder.wait_for("\n", LIMIT))
            .unwrap()
            .trim()
            .to_owned();
        let same = fs::read_to_string(&mine).unwrap() == theirs;
        world.put("go", "");
        let control = run(world.host("python3").args(["reach.py", &theirs]), LIMIT);
        assert!(control.success().contains("GOT"), "{control:?}");
        let printed = inside.finish(LIMIT);
        holder.child.kill().unwrap();
        holder.child.wait().unwrap();
        assert!(!printed.success().contains("GOT"), "{}", printed.text());
        assert_eq!(printed.text().lines().count(), 6, "{}", printed.text());
        for file in ["mine", "go"] {
            fs::remove_file(world.project.join(file)).unwrap();
        }
        same
    };
    // Others may take the number first.
    assert!(
        (0..10).any(is_given_again),
        "the host never got the number that the cell had had"
    );
}
