//! One call after the other: cells come and go, and the process that starts them serves several. Nothing of a call reaches
//! the next one: no process, no descriptor, no limit, no priority, no figure.

use broker_protocol::{Ended, Outcome, Request, Signal, Tier, ToBroker};
use lazaret_tests::process::{self, until};
use lazaret_tests::wire::shell;
use lazaret_tests::{Broker, LIMIT, Place, Session, World, place_test};
use serde_json::json;
use std::collections::BTreeSet;

/// Everything that a program inherits, as far as it can see it. Its numbers are not among them: they go on.
const STATE: &str = r#"
import ctypes, os, resource, signal, sys
libc = ctypes.CDLL(None, use_errno=True)
status = dict(line.split(':', 1) for line in open('/proc/self/status'))
for key in ('Uid', 'Gid', 'Groups', 'Umask', 'SigBlk', 'SigIgn', 'SigCgt', 'CapEff', 'CapBnd', 'NoNewPrivs', 'Seccomp',
            'Seccomp_filters', 'Cpus_allowed', 'Mems_allowed'):
    print(key, status.get(key, '').split())
print('limits', [resource.getrlimit(number) for number in range(16)])
print('scheduling', os.getpriority(os.PRIO_PROCESS, 0), os.sched_getscheduler(0), libc.syscall(252, 1, 0))
print('memory', [open('/proc/self/' + name).read() for name in ('oom_score_adj', 'coredump_filter')])
print('slack', libc.prctl(30, 0, 0, 0, 0), 'name', open('/proc/self/comm').read())
print('descriptors', sorted(os.listdir('/proc/self/fd')))
print('place', os.getcwd(), sorted(os.environ.items()))
print('leads', os.getsid(0) == os.getpgid(0) == os.getpid())
if sys.argv[1] == 'namespaced':
    own = [int(name) for name in os.listdir('/proc') if name.isdigit()]
    print('processes', len(own), 'mounts', len(open('/proc/self/mountinfo').readlines()))
"#;

/// Whatever one process can do to another of its user by number, done to the first process; then to itself and to children
/// that it leaves behind. Says which of the first were let pass.
const CHANGE: &str = r#"
import ctypes, os, resource, signal, time
libc = ctypes.CDLL(None, use_errno=True)
first = os.getppid()
def write(name, text):
    with open(f'/proc/{first}/{name}', 'w') as file: file.write(text)
def input_output():
    if libc.syscall(251, 1, first, 3 << 13): raise OSError(ctypes.get_errno())
attempts = {
    'nice': lambda: os.setpriority(os.PRIO_PROCESS, first, 15),
    'descriptors': lambda: resource.prlimit(first, resource.RLIMIT_NOFILE, (8, 8)),
    'processes': lambda: resource.prlimit(first, resource.RLIMIT_NPROC, (1, 1)),
    'files': lambda: resource.prlimit(first, resource.RLIMIT_FSIZE, (0, 0)),
    'processors': lambda: os.sched_setaffinity(first, {min(os.sched_getaffinity(0))}),
    'idle': lambda: os.sched_setscheduler(first, os.SCHED_IDLE, os.sched_param(0)),
    'input and output': input_output,
    'group': lambda: os.setpgid(first, 0),
    'stop': lambda: os.kill(first, signal.SIGSTOP),
    'end': lambda: os.kill(first, signal.SIGKILL),
    'victim': lambda: write('oom_score_adj', '1000'),
    'slack': lambda: write('timerslack_ns', '1000000000'),
    'dump': lambda: write('coredump_filter', '0'),
    'name': lambda: write('comm', 'x'),
}
for name, attempt in attempts.items():
    try: attempt(); print('passed', name)
    except OSError: pass
os.umask(0)
os.nice(5)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
for _ in range(5):
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))
            time.sleep(300)
        os._exit(0)
"#;

/// Commands for which a single one of these changes is enough.
const NICE: &str = "import os\nos.setpriority(os.PRIO_PROCESS, os.getppid(), 19)";

/// Runs a script of Python without a shell: its parent is the cell's first process.
fn python(session: &mut Session, script: &str, word: &str) -> String {
    session
        .call("bash", json!({"command": ["python3", "-c", script, word]}))
        .success()
        .to_owned()
}

/// The first processes of the cells of a session. A process that will become the next program still has its parent's name.
fn first_processes(session: &Session) -> BTreeSet<i32> {
    let tree = process::tree(session.pid());
    let named = |name| {
        tree.iter()
            .filter(move |process| process.name == name)
            .map(|process| process.pid)
    };
    let wardens: Vec<i32> = named("lazaret-warden").collect();
    let ours = |process: &&process::Process| {
        wardens.contains(&process.parent) && process.name == "lazaret-cell"
    };
    tree.iter()
        .filter(ours)
        .map(|process| process.pid)
        .collect()
}

place_test!(nothing_of_a_call_reaches_the_next);
fn nothing_of_a_call_reaches_the_next(place: Place) {
    let world = World::new(place);
    let mut session = Session::open(&world);
    let tier = if place.tier == Tier::Namespaced {
        "namespaced"
    } else {
        "flat"
    };
    let before = python(&mut session, STATE, tier);
    for _ in 0..3 {
        let passed = python(&mut session, CHANGE, tier);
        if place.tier == Tier::Namespaced {
            // The control: these do reach the first process.
            for name in ["nice", "descriptors", "files", "idle", "input and output"] {
                assert!(
                    passed.contains(&format!("passed {name}\n")),
                    "{name}: {passed}"
                );
            }
        }
        assert_eq!(python(&mut session, STATE, tier), before, "after {passed}");
    }
}

/// The nice value of a process (`man 5 proc_pid_stat`), if it is alive.
fn nice(pid: i32) -> Option<i32> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    stat.rsplit_once(')')?
        .1
        .split_whitespace()
        .nth(19 - 3)?
        .parse()
        .ok()
}

place_test!(a_first_process_serves_several_calls);
/// The place of a cell is used again, two in turn where calls come in a row.
fn a_first_process_serves_several_calls(place: Place) {
    let world = World::new(place);
    let mut session = Session::open(&world);
    let mut seen = BTreeSet::new();
    for _ in 0..20 {
        python(&mut session, "", "");
        seen.extend(first_processes(&session));
    }
    assert!((1..=2).contains(&seen.len()), "{seen:?}");
}

place_test!(
    a_first_process_that_was_changed_serves_no_call_more,
    namespaced_only
);
/// In the flat tier no call changes another process.
fn a_first_process_that_was_changed_serves_no_call_more(place: Place) {
    let world = World::new(place);
    let mut session = Session::open(&world);
    let usual = nice(session.pid()).unwrap();
    let changed = |session: &Session| {
        first_processes(session)
            .iter()
            .any(|pid| nice(*pid).is_some_and(|nice| nice != usual))
    };
    let script = format!("{NICE}\nimport time\nwhile not os.path.exists('seen'): time.sleep(.05)");
    let id = session.start_call("bash", json!({"command": ["python3", "-c", script]}));
    // The control: it was changed.
    assert!(until(LIMIT, || changed(&session)));
    world.put("seen", "");
    session.answer_within(&id, LIMIT).success();
    // It may take its time to leave, being as nice as it was made.
    assert!(until(LIMIT, || !changed(&session)));
}

place_test!(successive_calls_have_identical_surroundings);
/// More calls than one first process is for. Each sees its own processes only, and what others leave does not pile up.
fn successive_calls_have_identical_surroundings(place: Place) {
    let world = World::new(place);
    let mut session = Session::open(&world);
    let look = "ls -d /proc/[0-9]* | wc -l; wc -l < /proc/self/mountinfo; ls /proc/self/fd | wc -l";
    let mut seen = BTreeSet::new();
    for number in 0..150 {
        let answer = session.bash(&format!("({look}); exit {}", number % 100));
        assert_eq!(answer.exit_code(), Some(number % 100), "{}", answer.result);
        let [processes, rest] = answer
            .text()
            .split_once('\n')
            .map(|(one, two)| [one, two])
            .unwrap()
            .map(str::to_owned);
        if place.tier == Tier::Namespaced {
            // The first process, bash, its subshell, and the two of the pipe.
            assert!(
                (3..=5).contains(&processes.parse::<u32>().unwrap()),
                "{processes} processes"
            );
            seen.insert(rest);
        }
    }
    assert!(
        seen.len() <= 1,
        "mounts and descriptors come and go: {seen:?}"
    );
    let first = first_processes(&session);
    assert!((1..=4).contains(&first.len()), "{first:?}");
}

place_test!(each_call_has_its_own_figures);
/// Figures of a call are its own, and not the sum or the largest of all before it.
fn each_call_has_its_own_figures(place: Place) {
    let world = World::new(place);
    let mut session = Session::open(&world);
    let usage = |session: &mut Session, script: &str| {
        let call = session.call("bash", json!({"command": ["python3", "-c", script]}));
        let usage = &call.result["metadata"]["usage"];
        let number = |name: &str| {
            usage[name]
                .as_u64()
                .unwrap_or_else(|| panic!("{name} in {usage}"))
        };
        (number("peakKib"), number("userUs") + number("systemUs"))
    };
    let much = "import os, time\nif os.fork() == 0:\n  x = b'x' * 300_000_000\n  end = time.process_time() + 0.5\n  while time.process_time() < end: pass\n  os._exit(0)\nos.wait()";
    let (peak, cpu) = usage(&mut session, much);
    assert!(peak > 250_000 && cpu > 500_000, "{peak} KiB, {cpu} µs");
    let (peak, cpu) = usage(&mut session, "pass");
    assert!(
        (1_000..100_000).contains(&peak) && (1_000..400_000).contains(&cpu),
        "{peak} KiB, {cpu} µs"
    );
}

place_test!(late_signals_reach_no_other_call);
/// A signal that comes when its program has ended is for nobody.
fn late_signals_reach_no_other_call(place: Place) {
    let world = World::new(place);
    let (mut broker, _) = Broker::open(&world);
    for call in 0..200 {
        broker.send(&ToBroker::Call {
            call,
            request: Request::Bash(shell("exit 7")),
        });
        for _ in 0..20 {
            broker.send(&ToBroker::Signal {
                call,
                signal: Signal::Interrupt,
            });
        }
        let done = broker.done(call);
        let Outcome::Ran(ran) = &done.outcome else {
            panic!("{done:?}")
        };
        assert!(
            matches!(ran.ended, Ended::Exited(7) | Ended::Signalled(2)),
            "{ran:?}"
        );
        let done = broker.call(
            1000 + call,
            Request::Bash(shell("trap 'echo hit' INT; exit 8")),
        );
        let Outcome::Ran(ran) = &done.outcome else {
            panic!("{done:?}")
        };
        assert_eq!(
            (&ran.ended, ran.output.head.len()),
            (&Ended::Exited(8), 0),
            "{ran:?}"
        );
    }
}
