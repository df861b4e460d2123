//! The limits that a policy sets: each is met, has its name in the result, and the session goes on.

use lazaret_tests::{LIMIT, Place, World, place_test, run};
use serde_json::Value;
use std::sync::{Mutex, PoisonError};

/// Held by the one place that takes a share of the disk: what another takes or gives back is in the same figure.
static DISK: Mutex<()> = Mutex::new(());

const POLICY: &str = r#"
version = 1
[profile.tight.limits]
processes = 64
memory = "256 MiB"
output = "1 MiB"
file_size = "8 MiB"
written = "64 MiB"
open_files = 256
cpu_s = 2
[profile.disk_share.limits]
disk_share = 1
[profile.memory_share.limits]
memory_share = 1
"#;

/// Commands that exceed each limit, if nothing holds them: bounded, and ending by themselves after they have held the resource for some time.
const ATTACKS: [(&str, &str); 7] = [
    (
        "output",
        "head -c 20000000 /dev/zero | tr '\\0' x; sleep HELD",
    ),
    ("file_size", "exec head -c 20000000 /dev/zero > big"),
    (
        "written",
        "for i in $(seq 40); do head -c 4000000 /dev/zero > part; done; sleep HELD",
    ),
    (
        "memory",
        "python3 -c 'import time; b = [bytearray(60 << 20) for _ in range(8)]; time.sleep(HELD)'",
    ),
    ("memory", SHARED),
    (
        "cpu_s",
        "timeout 150 bash -c 'while :; do :; done'; exit $?",
    ),
    (
        "processes",
        "for i in $(seq 200); do sleep HELD & done; wait",
    ),
];

/// Memory that is no process's own: 480 MiB and 2 percent of the machine's, whichever is more.
const SHARED: &str = "python3 -c '
import mmap, os, time
length = max(480 << 20, os.sysconf(\"SC_PHYS_PAGES\") * 4096 // 50)
shared = mmap.mmap(-1, length)
for at in range(0, length, 4096): shared[at] = 1
time.sleep(HELD)'";
/// Space that nothing is written to: 4 percent of what is free, and more for as long as others make room.
const ALLOCATED: &str = "python3 -c '
import os, time
def free():
    stat = os.statvfs(\".\")
    return stat.f_bavail * stat.f_frsize
file = os.open(\"allocated\", os.O_RDWR | os.O_CREAT)
os.unlink(\"allocated\")
bound, length = free() // 100 * 96, 0
for _ in range(10 * HELD):
    more = free() - bound
    if more > 0:
        os.posix_fallocate(file, length, more)
        length += more
    time.sleep(0.1)'";

place_test!(a_share_of_the_machine_ends_the_call_by_its_name);
/// A use of the machine that no process's own figures show works without the limit, and is ended with it.
fn a_share_of_the_machine_ends_the_call_by_its_name(place: Place) {
    let world = World::new(place);
    world.make_folder(&world.home.join("settings/lazaret"));
    world.set_policy(POLICY);
    let _alone = DISK.lock().unwrap_or_else(PoisonError::into_inner);
    for (limit, attack) in [("memory_share", SHARED), ("disk_share", ALLOCATED)] {
        let control = attack.replace("HELD", "3");
        run(&mut world.lazaret_run(&["bash", "-c", &control]), LIMIT).success();
        let finished = run(&mut under(limit, &world, &held(attack)), LIMIT);
        let result: Value = serde_json::from_str(&finished.text()).unwrap();
        assert_eq!(
            result["error"]["code"], "resource_limit",
            "{limit}: {result}"
        );
        assert!(
            result["error"]["message"].as_str().unwrap().contains(limit),
            "{limit}: {result}"
        );
    }
}

/// Held until even a busy machine has seen it.
fn held(attack: &str) -> String {
    attack.replace("HELD", "100")
}

fn tight(world: &World, script: &str) -> std::process::Command {
    under("tight", world, script)
}

fn under(profile: &str, world: &World, script: &str) -> std::process::Command {
    let mut command = world.configured("run");
    command.args(["--profile", profile, "--json", "--", "bash", "-c", script]);
    command
}

place_test!(a_limit_ends_the_call_by_its_name);
fn a_limit_ends_the_call_by_its_name(place: Place) {
    let world = World::new(place);
    world.make_folder(&world.home.join("settings/lazaret"));
    world.set_policy(POLICY);
    for (limit, attack) in ATTACKS {
        let finished = run(&mut tight(&world, &held(attack)), LIMIT);
        let result: Value = serde_json::from_str(&finished.text()).unwrap();
        // The kernel holds memory and processes for each process too, and then the program fails by itself.
        let held = ["memory", "processes"].contains(&limit)
            && result["error"]["code"] == "exit_nonzero"
            || result["result"]
                .as_str()
                .unwrap_or_default()
                .contains("Resource temporarily unavailable");
        let message = result["error"]["message"].as_str().unwrap_or_default();
        assert!(held || message.contains(limit), "{limit}: {result}");
        assert!(
            held || result["error"]["code"] == "resource_limit",
            "{limit}: {result}"
        );
    }
    // The control: what stays within them works.
    run(
        &mut tight(&world, "head -c 1000000 /dev/zero > small"),
        LIMIT,
    )
    .success();
}

place_test!(signals_that_we_ignore_a_program_hears);
/// Who starts us may ignore signals, as Python does the one of the file size: a program hears them all the same.
fn signals_that_we_ignore_a_program_hears(place: Place) {
    const LOOK: [&str; 3] = ["grep", "SigIgn", "/proc/self/status"];
    let deaf = "trap '' XFSZ XCPU USR1 ALRM TSTP PIPE TERM; exec \"$@\"";
    let none = "SigIgn:\t0000000000000000";
    let world = World::new(place);
    let control = run(
        world.host("bash").args(["-c", deaf, "bash"]).args(LOOK),
        LIMIT,
    )
    .success();
    assert_ne!(control.trim(), none);
    let inside = world.lazaret_run(&LOOK);
    let mut command = world.host("bash");
    command
        .args(["-c", deaf, "bash"])
        .arg(inside.get_program())
        .args(inside.get_args());
    let text = run(&mut command, LIMIT).success();
    assert_eq!(text.trim(), none);
}

place_test!(a_crash_starts_no_handler_of_the_machine);
/// The kernel starts the handler that `core_pattern` names, as root, for a limit of 0 too, and not for 1.
fn a_crash_starts_no_handler_of_the_machine(place: Place) {
    let world = World::new(place);
    let hard = |limits: &str| {
        let core = limits
            .lines()
            .find(|line| line.starts_with("Max core"))
            .unwrap();
        core.split_whitespace().nth(5).unwrap().to_owned()
    };
    let outside = hard(&std::fs::read_to_string("/proc/self/limits").unwrap());
    let inside = hard(&world.in_cell("cat /proc/self/limits").success());
    // A limit of 0 from outside cannot be raised.
    assert_eq!(inside, if outside == "0" { "0" } else { "1" });
}

place_test!(one_cell_does_not_take_all_terminals);
/// All instances of `devpts` take from one number of the machine's, 4096 as it comes.
fn one_cell_does_not_take_all_terminals(place: Place) {
    let world = World::new(place);
    let script = "python3 -c '
import os, resource
resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
made = 0
try:
    while made < 400: made += len(os.openpty()) // 2
except OSError: pass
print(made)'";
    let made: u32 = world.in_cell(script).success().trim().parse().unwrap();
    assert!((64..=256).contains(&made), "{made}");
}
