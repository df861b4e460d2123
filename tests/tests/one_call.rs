//! One `bash` call, followed by a debugger through the broker and its cell, and compared with the table of `executor/README.md`.
#![allow(clippy::unwrap_used)]

use broker_protocol::{Ended, Outcome, Request};
use lazaret_tests::process::{self, Running};
use lazaret_tests::programs::{self, is_installed};
use lazaret_tests::wire::shell;
use lazaret_tests::{Broker, LIMIT, Place, World, once, suite};
use std::fs;
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    suite::main(once![a_call_enters_each_file_once_in_the_order_of_the_page])
}

/// Prints the file of each function of the list that is entered, the list being `FILE FUNCTION` in lines; first of all that in
/// which the process waits.
const SCRIPT: &str = r#"
import gdb, os, re

class Entry(gdb.Breakpoint):
    def __init__(self, place, file):
        super().__init__(place)
        self.silent, self.file = True, file
    def stop(self):
        print('entered', self.file, flush=True)
        return False

gdb.execute('set breakpoint pending off')
waits, places = set(), {}
frame = gdb.newest_frame()
while frame is not None:
    waits.add(frame.name() or '')
    frame = frame.older()
for line in os.environ['FUNCTIONS'].splitlines():
    file, function = line.split()
    if any(re.sub('<.*', '', name) == function for name in waits):
        print('entered', file, flush=True)
    listed = gdb.execute(f"info functions -n ^{function}", to_string=True)
    source = None
    for line in listed.splitlines():
        if line.startswith('File '):
            source = line[5:].rstrip(':')
        found = re.match(rf'(\d+):.* fn {function}[<(]', line.replace('\t', ' '))
        if found:
            places[f'{source}:{found[1]}'] = file
for place, file in places.items():
    Entry(place, file)
print('ready', flush=True)
gdb.execute('continue')
"#;

/// A line of the table: a file below `executor`, and the function by which the call enters it.
struct Step {
    file: String,
    function: String,
}

/// The steps of the table, those in the broker and those in the cell.
fn steps() -> (Vec<Step>, Vec<Step>) {
    let page = fs::read_to_string(programs::workspace().join("executor/README.md")).unwrap();
    let (_, table) = page.split_once("<!-- one call:").unwrap();
    let (table, _) = table.split_once("<!-- /one call -->").unwrap();
    let step = |line: &str| {
        let mut names = line.split('`').skip(1).step_by(2);
        let (file, function) = (names.next()?, names.next()?);
        let (folder, name) = file.rsplit_once("src/")?;
        let module = name.strip_suffix(".rs")?;
        let krate = if folder.is_empty() {
            "lazaret_executor".to_owned()
        } else {
            format!("executor_{}", folder.trim_end_matches('/'))
        };
        Some(Step {
            file: file.to_owned(),
            function: format!("{krate}::{module}::{function}"),
        })
    };
    let steps = table
        .lines()
        .filter(|line| line.starts_with("| `"))
        .map(|line| step(line).unwrap());
    let mut broker: Vec<Step> = steps.collect();
    let sent = broker
        .iter()
        .position(|step| step.file.ends_with("cell_handle.rs"))
        .unwrap();
    let cell = broker.split_off(sent + 1);
    (broker, cell)
}

/// A debugger on a process, when it has set its breakpoints.
fn follow(world: &World, pid: i32, steps: &[Step]) -> Running {
    let script = world.put("follow.py", SCRIPT);
    let functions: Vec<String> = steps
        .iter()
        .map(|step| format!("{} {}", step.file, step.function))
        .collect();
    let mut gdb = Command::new("gdb");
    gdb.args([
        "-nx",
        "-batch",
        "-iex",
        "set sysroot /",
        "-iex",
        "set debuginfod enabled off",
    ]);
    gdb.arg(programs::path("lazaret-executor"))
        .args(["-p", &pid.to_string(), "-x"])
        .arg(script);
    let mut gdb = Running::start(gdb.env("FUNCTIONS", functions.join("\n")));
    gdb.wait_for("ready", LIMIT);
    gdb
}

/// The files that were entered, up to the last of the steps.
fn entered(gdb: Running, steps: &[Step]) -> Vec<String> {
    let text = gdb.finish(LIMIT).text();
    let mut files: Vec<String> = text
        .lines()
        .filter_map(|line| Some(line.strip_prefix("entered ")?.to_owned()))
        .collect();
    // It may wait in the first of them when it is stopped, and go through it anew.
    files.dedup();
    let last = &steps.last().unwrap().file;
    let end = files
        .iter()
        .position(|file| file == last)
        .unwrap_or_else(|| panic!("{last} was not entered: {text}"));
    files.truncate(end + 1);
    files
}

/// Whether a process waits as it does once it has given its memory back: until then it could give back the pages that the
/// debugger has put its breakpoints in. `syscall` in proc(5): the number of `poll`, then its arguments.
fn has_settled(pid: i32) -> bool {
    let waits = fs::read_to_string(format!("/proc/{pid}/syscall")).unwrap();
    let mut waits = waits.split(' ');
    waits.next() == Some(&libc::SYS_poll.to_string())
        && waits.nth(2).is_some_and(|timeout| timeout != "0x1f4")
}

fn a_call_enters_each_file_once_in_the_order_of_the_page() {
    let is_root =
        fs::metadata("/proc/self").is_ok_and(|of| std::os::unix::fs::MetadataExt::uid(&of) == 0);
    if !is_root || std::env::var_os("LAZARET_BIN").is_some() || !is_installed("gdb", "gdb") {
        return eprintln!(
            "not tried: it needs root, as cells cannot be traced by others, a debug build, and gdb"
        );
    }
    let world = World::new(Place::any());
    let (mut broker, _) = Broker::open(&world);
    let cell = || {
        process::tree(broker.pid())
            .into_iter()
            .find(|process| process.name == "lazaret-cell")
    };
    assert!(process::until(LIMIT, || cell().is_some()));
    let cell = cell().unwrap().pid;
    assert!(process::until(LIMIT, || has_settled(broker.pid()) && has_settled(cell)));
    let (in_broker, in_cell) = steps();
    let debuggers = [
        follow(&world, broker.pid(), &in_broker),
        follow(&world, cell, &in_cell),
    ];
    let done = broker.call(1, Request::Bash(shell("true")));
    assert!(matches!(done.outcome, Outcome::Ran(ran) if ran.ended == Ended::Exited(0)));
    drop(broker);
    for (gdb, steps) in debuggers.into_iter().zip([in_broker, in_cell]) {
        let want: Vec<&str> = steps.iter().map(|step| step.file.as_str()).collect();
        assert_eq!(entered(gdb, &steps), want);
    }
}
