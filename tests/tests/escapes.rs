//! Attacks, each tried outside first.
//!
//! An attack that does not work outside proves nothing when it is refused inside. So each runs as its control first, with
//! no cell; only where that gets what it wants is it run in a cell, and there it must not. Attacks whose control fails on
//! this machine are named and not counted.

use broker_protocol::Tier;
use lazaret_tests::process::{self, Process, Running};
use lazaret_tests::rows::{self, Verdict};
use lazaret_tests::serving::Listener;
use lazaret_tests::sys::{SharedSegment, let_inherit};
use lazaret_tests::world::unique;
use lazaret_tests::{LIMIT, Place, Serving, Session, User, World, once_test, place_test, run};
use serde_json::json;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener};
use std::path::PathBuf;
use std::time::Duration;

struct Attack {
    name: &'static str,
    words: fn(&Fixture) -> Vec<String>,
    /// How it shows that it worked.
    evidence: Evidence,
}

enum Evidence {
    Said,
    /// The attacker says `GOT`, and the answer holds the world's secret.
    Secret,
    Outside(fn(&Fixture) -> bool),
}

use Evidence::{Outside, Said, Secret};

/// Attacks that are known to get through, in which places, and why. A row that is here and held fails the test, so that it
/// goes.
const OPEN: &[(&str, &[&str], &str)] = &[(
    "capabilities",
    &["flat/ordinary"],
    "an ordinary user cannot empty its bounding set; it gives nothing without the other four",
)];

const FILES: &[Attack] = &[
    Attack {
        name: "read a file outside",
        words: |s| words(&["read", &s.secret()]),
        evidence: Secret,
    },
    Attack {
        name: "read the ssh key",
        words: |s| words(&["read", &s.home(".ssh/id_rsa")]),
        evidence: Secret,
    },
    Attack {
        name: "read /etc/shadow",
        words: |_| words(&["read", "/etc/shadow"]),
        evidence: Said,
    },
    Attack {
        name: "read shared memory file",
        words: |s| words(&["read", &s.shm_file]),
        evidence: Secret,
    },
    Attack {
        name: "list the home",
        words: |s| words(&["list", &s.home(".ssh")]),
        evidence: Said,
    },
    Attack {
        name: "list root's home",
        words: |_| words(&["list", "/root"]),
        evidence: Said,
    },
    Attack {
        name: "read through a link in the project",
        words: |s| words(&["link-and-read", &s.secret(), &s.fresh_in_project()]),
        evidence: Secret,
    },
    Attack {
        name: "read through /proc/self/root",
        words: |s| words(&["read", &format!("/proc/self/root{}", s.secret())]),
        evidence: Secret,
    },
    Attack {
        name: "read through the project's parent",
        words: |s| {
            words(&[
                "read",
                &format!("{}/../outside/secret.txt", s.world.project.display()),
            ])
        },
        evidence: Secret,
    },
    Attack {
        name: "read by handle",
        words: |s| words(&["open-by-handle", &s.secret()]),
        evidence: Secret,
    },
    Attack {
        name: "append outside",
        words: |s| words(&["write", &s.target(), &s.nonce()]),
        evidence: Outside(Fixture::target_has_nonce),
    },
    Attack {
        name: "create outside",
        words: |s| words(&["write", &s.fresh_outside(), "x"]),
        evidence: Outside(Fixture::fresh_exists),
    },
    Attack {
        name: "create in the home",
        words: |s| words(&["write", &s.home(&format!(".{}", s.nonce())), "x"]),
        evidence: Outside(|s| s.world.home.join(format!(".{}", s.nonce())).exists()),
    },
    Attack {
        name: "create in /etc",
        words: |s| words(&["write", &s.etc_file, "x"]),
        evidence: Outside(|s| fs::remove_file(&s.etc_file).is_ok()),
    },
    Attack {
        name: "truncate outside",
        words: |s| words(&["truncate", &s.target()]),
        evidence: Outside(|s| s.target_size() == 0),
    },
    Attack {
        name: "make a folder outside",
        words: |s| words(&["make-folder", &s.fresh_outside()]),
        evidence: Outside(Fixture::fresh_exists),
    },
    Attack {
        name: "remove outside",
        words: |s| words(&["unlink", &s.target()]),
        evidence: Outside(|s| !s.target_path().exists()),
    },
    Attack {
        name: "move a file in from outside",
        words: |s| words(&["rename", &s.target(), &s.fresh_in_project()]),
        evidence: Outside(|s| !s.target_path().exists()),
    },
    Attack {
        name: "link a file in from outside",
        words: |s| words(&["link", &s.target(), &s.fresh_in_project()]),
        evidence: Said,
    },
    Attack {
        name: "change a mode outside",
        words: |s| words(&["chmod", &s.target(), "777"]),
        evidence: Outside(|s| s.target_mode() == 0o777),
    },
    Attack {
        name: "change a time outside",
        words: |s| words(&["utime", &s.target()]),
        evidence: Outside(|s| s.target_age_is_ancient()),
    },
    Attack {
        name: "change an owner outside",
        words: |s| words(&["chown", &s.target()]),
        evidence: Said,
    },
    Attack {
        name: "set an attribute outside",
        words: |s| words(&["setxattr", &s.target()]),
        evidence: Said,
    },
    Attack {
        name: "run a program outside",
        words: |s| words(&["run", &s.outside("program.sh")]),
        evidence: Secret,
    },
    Attack {
        name: "make a device",
        words: |s| words(&["make-device", &s.fresh_in_project()]),
        evidence: Said,
    },
];

const NETWORK: &[Attack] = &[
    Attack {
        name: "TCP",
        words: |s| words(&["connect", "tcp", &s.tcp]),
        evidence: Secret,
    },
    Attack {
        name: "TCP over IPv6",
        words: |s| words(&["connect", "tcp", &s.tcp6]),
        evidence: Secret,
    },
    Attack {
        name: "TCP over IPv4 in IPv6",
        words: |s| {
            words(&[
                "connect",
                "tcp",
                &s.tcp.replace("127.0.0.1", "[::ffff:127.0.0.1]"),
            ])
        },
        evidence: Secret,
    },
    Attack {
        name: "TCP to 0.0.0.0",
        words: |s| words(&["connect", "tcp", &s.tcp_any]),
        evidence: Secret,
    },
    Attack {
        name: "TCP to another address of the loopback",
        words: |s| words(&["connect", "tcp", &s.tcp_any.replace("0.0.0.0", "127.3.2.1")]),
        evidence: Secret,
    },
    Attack {
        name: "TCP with data",
        words: |s| words(&["connect", "fast", &s.tcp]),
        evidence: Secret,
    },
    Attack {
        name: "TCP with a message",
        words: |s| words(&["connect", "fast-message", &s.tcp]),
        evidence: Secret,
    },
    Attack {
        name: "TCP with later data",
        words: |s| words(&["connect", "fast-later", &s.tcp]),
        evidence: Secret,
    },
    Attack {
        name: "TCP by a socket that was connected",
        words: |s| words(&["connect", "again", &s.tcp]),
        evidence: Secret,
    },
    Attack {
        name: "TCP by an address that changes",
        words: |s| words(&["connect", "racing", &s.tcp]),
        evidence: Secret,
    },
    Attack {
        name: "MPTCP",
        words: |s| words(&["connect", "mptcp", &s.tcp]),
        evidence: Secret,
    },
    Attack {
        name: "UDP",
        words: |s| words(&["connect", "udp", &s.udp]),
        evidence: Secret,
    },
    Attack {
        name: "a socket file",
        words: |s| words(&["connect", "unix", &s.outside("listener.sock")]),
        evidence: Secret,
    },
    Attack {
        name: "an abstract socket",
        words: |s| words(&["connect", "abstract", &s.abstract_name]),
        evidence: Secret,
    },
    Attack {
        name: "an abstract datagram",
        words: |s| {
            words(&[
                "connect",
                "abstract-datagram",
                &format!("{}-datagram", s.abstract_name),
            ])
        },
        evidence: Outside(Fixture::datagram_came),
    },
    Attack {
        name: "a VSOCK socket",
        words: |_| words(&["socket", "40", "1", "0"]),
        evidence: Said,
    },
    Attack {
        name: "a raw socket",
        words: |_| words(&["socket", "2", "3", "1"]),
        evidence: Said,
    },
    Attack {
        name: "a ping socket",
        words: |_| words(&["socket", "2", "2", "1"]),
        evidence: Said,
    },
    Attack {
        name: "a UDP-Lite socket",
        words: |_| words(&["socket", "2", "2", "136"]),
        evidence: Said,
    },
    Attack {
        name: "an MPTCP socket",
        words: |_| words(&["socket", "2", "1", "262"]),
        evidence: Said,
    },
    Attack {
        name: "an SCTP socket",
        words: |_| words(&["socket", "2", "1", "132"]),
        evidence: Said,
    },
    Attack {
        name: "a packet socket",
        words: |_| words(&["socket", "17", "3", "0"]),
        evidence: Said,
    },
    Attack {
        name: "an XDP socket",
        words: |_| words(&["socket", "44", "3", "0"]),
        evidence: Said,
    },
    Attack {
        name: "a crypto socket",
        words: |_| words(&["socket", "38", "5", "0"]),
        evidence: Said,
    },
    Attack {
        name: "a key socket",
        words: |_| words(&["socket", "15", "3", "2"]),
        evidence: Said,
    },
    Attack {
        name: "an audit socket",
        words: |_| words(&["socket", "16", "3", "9"]),
        evidence: Said,
    },
    Attack {
        name: "a firewall socket",
        words: |_| words(&["socket", "16", "3", "12"]),
        evidence: Said,
    },
    Attack {
        name: "a SMC socket",
        words: |_| words(&["socket", "43", "1", "0"]),
        evidence: Said,
    },
];

/// Other processes, and what a process is given.
const PROCESSES: &[Attack] = &[
    Attack {
        name: "signal",
        words: |s| words(&["signal", &s.victim_pid()]),
        evidence: Outside(Fixture::victim_is_dead),
    },
    Attack {
        name: "ptrace",
        words: |s| words(&["ptrace", &s.victim_pid()]),
        evidence: Said,
    },
    Attack {
        name: "read memory",
        words: |s| words(&["read-memory", &s.victim_pid(), &s.victim_address()]),
        evidence: Said,
    },
    Attack {
        name: "read memory file",
        words: |s| words(&["read", &format!("/proc/{}/environ", s.victim_pid())]),
        evidence: Said,
    },
    Attack {
        name: "read through another's root",
        words: |s| {
            words(&[
                "read",
                &format!("/proc/{}/root{}", s.victim_pid(), s.secret()),
            ])
        },
        evidence: Secret,
    },
    Attack {
        name: "read through another's descriptor",
        words: |s| {
            words(&[
                "read",
                &format!("/proc/{}/fd/{}", s.victim_pid(), s.victim_descriptor()),
            ])
        },
        evidence: Secret,
    },
    Attack {
        name: "steal a descriptor",
        words: |s| words(&["steal-descriptor", &s.victim_pid(), &s.victim_descriptor()]),
        evidence: Secret,
    },
    Attack {
        name: "make another nice",
        words: |s| words(&["nice", &s.victim_pid()]),
        evidence: Outside(Fixture::victim_is_nice),
    },
    Attack {
        name: "limit another",
        words: |s| words(&["set-limit", &s.victim_pid()]),
        evidence: Outside(Fixture::victim_is_limited),
    },
    Attack {
        name: "find the secret in another's environment",
        words: |s| words(&["search-processes", &s.world.canary]),
        evidence: Said,
    },
    Attack {
        name: "find the secret in the environment",
        words: |s| words(&["environment", &s.world.canary]),
        evidence: Said,
    },
    Attack {
        name: "inherited descriptors",
        words: |_| words(&["descriptors"]),
        evidence: Said,
    },
    Attack {
        name: "capabilities",
        words: |_| words(&["capabilities"]),
        evidence: Said,
    },
    Attack {
        name: "a set-user-id program",
        words: |s| words(&["run-other", &s.setuid, "become-root"]),
        evidence: Said,
    },
];

const KERNEL: &[Attack] = &[
    Attack {
        name: "mount",
        words: |s| words(&["mount", &s.project("folder")]),
        evidence: Said,
    },
    Attack {
        name: "lay a file over another",
        words: |s| words(&["bind-over", &s.project("mine"), &s.project("other")]),
        evidence: Said,
    },
    Attack {
        name: "unshare",
        words: |_| words(&["unshare"]),
        evidence: Said,
    },
    Attack {
        name: "clone into a user namespace",
        words: |_| words(&["clone-user"]),
        evidence: Said,
    },
    Attack {
        name: "clone3 into a user namespace",
        words: |_| words(&["clone3-user"]),
        evidence: Said,
    },
    Attack {
        name: "setns",
        words: |_| words(&["setns", "/proc/self/ns/uts"]),
        evidence: Said,
    },
    Attack {
        name: "chroot",
        words: |s| words(&["chroot", &s.project("folder")]),
        evidence: Said,
    },
    Attack {
        name: "io_uring",
        words: |_| words(&["io-uring"]),
        evidence: Said,
    },
    Attack {
        name: "userfaultfd",
        words: |_| words(&["userfaultfd"]),
        evidence: Said,
    },
    Attack {
        name: "bpf",
        words: |_| words(&["bpf"]),
        evidence: Said,
    },
    Attack {
        name: "keyring",
        words: |_| words(&["keyring"]),
        evidence: Said,
    },
    Attack {
        name: "perf",
        words: |_| words(&["perf"]),
        evidence: Said,
    },
    Attack {
        name: "fanotify",
        words: |_| words(&["fanotify"]),
        evidence: Said,
    },
    Attack {
        name: "x32",
        words: |_| words(&["x32"]),
        evidence: Said,
    },
    Attack {
        name: "i386",
        words: |_| words(&["int80"]),
        evidence: Said,
    },
    Attack {
        name: "push a key into a terminal",
        words: |_| words(&["push-key"]),
        evidence: Said,
    },
    Attack {
        name: "System V shared memory",
        words: |s| words(&["shared-memory", &s.segment.key.to_string()]),
        evidence: Said,
    },
    Attack {
        name: "set the hostname",
        words: |_| words(&["hostname"]),
        evidence: Said,
    },
];

/// Names that do not exist yet, in directories that do not exist yet, which programs of the host act on.
const NAMES: &[Attack] = &[
    Attack {
        name: "a hook of a submodule to come",
        words: |s| {
            words(&[
                "plant",
                &s.planted(".git/modules/N/hooks/post-checkout"),
                &s.nonce(),
            ])
        },
        evidence: Outside(|s| s.has_planted(".git/modules/N/hooks/post-checkout")),
    },
    Attack {
        name: "the same, by moving a directory",
        words: |s| s.elsewhere("plant-and-move", ".git/modules/N", "hooks/post-checkout"),
        evidence: Outside(|s| s.has_planted(".git/modules/N/hooks/post-checkout")),
    },
    Attack {
        name: "the same, by a link",
        words: |s| s.elsewhere("plant-and-link", ".git/modules/N", "hooks/post-checkout"),
        evidence: Outside(|s| s.has_planted(".git/modules/N/hooks/post-checkout")),
    },
    Attack {
        name: "a submodule's settings, in a linked worktree",
        words: |s| {
            words(&[
                "plant",
                &s.planted(".git/worktrees/N/modules/sub/config"),
                &s.nonce(),
            ])
        },
        evidence: Outside(|s| s.has_planted(".git/worktrees/N/modules/sub/config")),
    },
    Attack {
        name: "another directory as a worktree's own",
        words: |s| {
            words(&[
                "plant",
                &s.planted(".git/worktrees/N/commondir"),
                &s.nonce(),
            ])
        },
        evidence: Outside(|s| s.has_planted(".git/worktrees/N/commondir")),
    },
    Attack {
        name: "a hook of a repository of its own",
        words: |s| words(&["plant", &s.planted("N/.git/hooks/pre-commit"), &s.nonce()]),
        evidence: Outside(|s| s.has_planted("N/.git/hooks/pre-commit")),
    },
    Attack {
        name: "the same, by moving the repository",
        words: |s| s.elsewhere("plant-and-move", "N/.git", "hooks/pre-commit"),
        evidence: Outside(|s| s.has_planted("N/.git/hooks/pre-commit")),
    },
    Attack {
        name: "a program in the settings of a repository of its own",
        words: |s| words(&["plant-settings", &s.planted("N"), &s.nonce()]),
        evidence: Outside(|s| s.has_planted("N/.git/config")),
    },
    Attack {
        name: "a file that makes another directory the repository",
        words: |s| words(&["plant", &s.planted("N/.git"), &s.nonce()]),
        evidence: Outside(|s| s.has_planted("N/.git")),
    },
    Attack {
        name: "an editor's tasks",
        words: |s| words(&["plant", &s.planted("N/.vscode/tasks.json"), &s.nonce()]),
        evidence: Outside(|s| s.has_planted("N/.vscode/tasks.json")),
    },
    Attack {
        name: "a shell's settings",
        words: |s| words(&["plant", &s.planted("N/.mise.toml"), &s.nonce()]),
        evidence: Outside(|s| s.has_planted("N/.mise.toml")),
    },
    Attack {
        name: "the settings of a worktree that has no other",
        words: |s| words(&["plant", &s.planted(".git/worktrees/N/config"), &s.nonce()]),
        evidence: Outside(|s| s.has_planted(".git/worktrees/N/config")),
    },
    Attack {
        name: "an agent's settings, by moving a directory",
        words: |s| s.elsewhere("plant-and-move", "N/.claude", "settings.json"),
        evidence: Outside(|s| s.has_planted("N/.claude/settings.json")),
    },
];

const SURVIVORS: &[Attack] = &[
    Attack {
        name: "an orphan",
        words: |s| words(&["survive", "orphan", &s.nonce()]),
        evidence: Outside(Fixture::survivor_lives),
    },
    Attack {
        name: "a session of its own",
        words: |s| words(&["survive", "session", &s.nonce()]),
        evidence: Outside(Fixture::survivor_lives),
    },
    Attack {
        name: "holding the output",
        words: |s| words(&["survive", "holding-output", &s.nonce()]),
        evidence: Outside(Fixture::survivor_lives),
    },
    Attack {
        name: "two hundred",
        words: |s| words(&["survive", "many", &s.nonce()]),
        evidence: Outside(Fixture::survivor_lives),
    },
];

place_test!(files_outside_stay_closed);
fn files_outside_stay_closed(place: Place) {
    Fixture::new(place).expect_held("files", FILES);
}

place_test!(no_socket_leads_out);
fn no_socket_leads_out(place: Place) {
    Fixture::new(place).expect_held("network", NETWORK);
}

place_test!(other_processes_are_out_of_reach);
fn other_processes_are_out_of_reach(place: Place) {
    Fixture::new(place).expect_held("processes", PROCESSES);
}

place_test!(the_kernel_is_not_reached);
fn the_kernel_is_not_reached(place: Place) {
    Fixture::new(place).expect_held("kernel", KERNEL);
}

place_test!(no_name_is_made_that_the_host_acts_on);
fn no_name_is_made_that_the_host_acts_on(place: Place) {
    Fixture::new(place).expect_held("names", NAMES);
}

place_test!(nothing_outlives_its_call);
fn nothing_outlives_its_call(place: Place) {
    Fixture::new(place).expect_held("survivors", SURVIVORS);
}

place_test!(files_outside_stay_closed_without_landlock);
/// Files outside have two walls in each tier: mounts, or the supervisor, and Landlock.
fn files_outside_stay_closed_without_landlock(place: Place) {
    let fixture = Fixture::of(World::ablated(place, "landlock-files"));
    let judged = fixture.judge(FILES, &[("run", &|words| fixture.in_cell(words))]);
    assert!(
        judged.escaped.is_empty() && judged.not_run.is_empty(),
        "{:?}",
        judged.escaped
    );
    assert!(
        judged.held.len() > FILES.len() / 2,
        "not possible here: {:?}",
        judged.impossible
    );
}

once_test!(an_older_landlock_loses_what_security_md_lists);
/// With every older Landlock, what gets out of a session is what the table of `SECURITY.md` says, and nothing else.
fn an_older_landlock_loses_what_security_md_lists() {
    let mut wrong = Vec::new();
    // Without a cell nothing knows of Landlock, and the user is one.
    let mut controls = BTreeMap::new();
    for place in Place::all()
        .into_iter()
        .filter(|place| place.user == User::Ordinary)
    {
        for abi in 1..=6 {
            let fixture = Fixture::of(World::ablated(place, &format!("landlock-abi={abi}")));
            let session = RefCell::new(Session::open(&fixture.world));
            let in_session =
                |words: &[String]| fixture.in_session(&mut session.borrow_mut(), words);
            let mut out = BTreeSet::new();
            for attacks in [FILES, NETWORK, PROCESSES] {
                let judged =
                    fixture.judge_knowing(&mut controls, attacks, &[("session", &in_session)]);
                assert!(
                    judged.not_run.is_empty(),
                    "{place}, ABI {abi}: {:?}",
                    judged.not_run
                );
                let open = |name: &str| OPEN.iter().any(|(known, ..)| *known == name);
                let escaped = judged
                    .verdicts
                    .iter()
                    .filter(|(name, verdict)| *verdict == Verdict::Escaped && !open(name));
                out.extend(escaped.map(|(name, _)| (*name).to_owned()));
            }
            println!("{place}, ABI {abi}: {out:?}");
            let listed = listed_as_lost(place, abi);
            if out != listed {
                wrong.push(format!(
                    "{place}, ABI {abi}: {out:?}, and the list has {listed:?}"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// What stands in backticks in the rows of an ABI and of those after it: names of the attacks that get out with it.
fn listed_as_lost(place: Place, abi: u32) -> BTreeSet<String> {
    let page =
        fs::read_to_string(lazaret_tests::programs::workspace().join("SECURITY.md")).unwrap();
    let column = if place.tier == Tier::Namespaced { 2 } else { 3 };
    let lost = |abi: u32| {
        let row = page
            .lines()
            .find(|line| line.starts_with(&format!("| {abi} (")))
            .unwrap();
        let cell = row.split('|').nth(column).unwrap();
        cell.split('`')
            .skip(1)
            .step_by(2)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    (abi..=6).flat_map(lost).collect()
}

once_test!(an_open_door_is_seen);
/// The judge itself: a sandbox that holds nothing must be called open in every row, and one that starts nothing must not
/// be called safe.
fn an_open_door_is_seen() {
    let fixture = Fixture::new(Place::any());
    for attacks in [FILES, NETWORK, PROCESSES, KERNEL, NAMES, SURVIVORS] {
        let judged = fixture.judge(attacks, &[("nothing", &|words| fixture.control(words))]);
        let controls = attacks.len() - judged.impossible.len();
        assert!(
            controls > attacks.len() / 4,
            "too few controls work here: {:?}",
            judged.impossible
        );
        assert_eq!(
            judged.escaped.len(),
            controls,
            "an open door was not seen in {:?}",
            judged.held
        );
    }
    let judged = fixture.judge(
        &FILES[..2],
        &[("nothing", &|_| Reply::NotRun("it said nothing".into()))],
    );
    assert_eq!(
        judged.not_run.len(),
        2,
        "a sandbox that runs nothing was called safe"
    );
}

#[derive(Clone, Debug)]
enum Reply {
    Got(String),
    #[allow(dead_code)]
    Denied(String),
    #[allow(dead_code)]
    NotRun(String),
}

/// A way to run the attacker, and its name.
type Cell<'a> = (&'a str, &'a dyn Fn(&[String]) -> Reply);

/// Whether each attack works outside, by its name.
type Controls = BTreeMap<&'static str, bool>;

/// How the rows came out.
#[derive(Default)]
struct Judged {
    escaped: Vec<String>,
    held: Vec<String>,
    impossible: Vec<&'static str>,
    not_run: Vec<String>,
    /// The same for programs: each attack, as often as it was tried.
    verdicts: Vec<(&'static str, Verdict)>,
}

/// Everything around the attacks: things to steal, peers to reach, a bystander to harm.
struct Fixture {
    world: World,
    attacker: PathBuf,
    tcp: String,
    tcp6: String,
    tcp_any: String,
    _servers: [Serving; 5],
    udp: String,
    abstract_name: String,
    datagrams: UnixDatagram,
    shm_file: String,
    etc_file: String,
    setuid: String,
    segment: SharedSegment,
    /// Open in this process and in everything it starts.
    _leaked: File,
    attempt: RefCell<Attempt>,
}

/// What is made anew for each attempt.
#[derive(Default)]
struct Attempt {
    nonce: String,
    victim: Option<Victim>,
}

struct Victim {
    running: Running,
    address: String,
    descriptor: String,
}

impl Fixture {
    fn new(place: Place) -> Self {
        Self::of(World::new(place))
    }

    fn of(world: World) -> Self {
        let attacker = world.put_helper("attacker");
        let secret = world.canary.clone();
        for name in ["mine", "other"] {
            world.put(name, "x");
        }
        world.make_folder(&world.project.join("folder"));
        let program = world.outside.join("program.sh");
        world.write(&program, format!("#!/bin/sh\necho {secret}\n"));
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let shm_file = format!("/dev/shm/lazaret-{}", unique());
        world.write(&PathBuf::from(&shm_file), &secret);
        let leaked = File::open(world.outside.join("secret.txt")).unwrap();
        let_inherit(&leaked).unwrap();
        let abstract_name = format!("lazaret-{}", unique());
        let socket_file = world.outside.join("listener.sock");
        let file = serve(UnixListener::bind(&socket_file).unwrap(), &secret);
        fs::set_permissions(&socket_file, fs::Permissions::from_mode(0o777)).unwrap();
        let address = SocketAddr::from_abstract_name(&abstract_name).unwrap();
        let unnamed = serve(UnixListener::bind_addr(&address).unwrap(), &secret);
        let address = SocketAddr::from_abstract_name(format!("{abstract_name}-datagram")).unwrap();
        let datagrams = UnixDatagram::bind_addr(&address).unwrap();
        datagrams.set_nonblocking(true).unwrap();
        let [tcp, tcp6, tcp_any] =
            ["127.0.0.1:0", "[::1]:0", "0.0.0.0:0"].map(|at| serve_tcp(at, &secret));
        Self {
            tcp: tcp.0,
            tcp6: tcp6.0,
            tcp_any: tcp_any.0,
            _servers: [file, unnamed, tcp.1, tcp6.1, tcp_any.1],
            udp: serve_udp(&secret),
            setuid: put_setuid(&world),
            segment: SharedSegment::make(1_000_000_000).unwrap(),
            etc_file: format!("/etc/lazaret-{}", unique()),
            _leaked: leaked,
            attempt: RefCell::default(),
            world,
            attacker,
            abstract_name,
            datagrams,
            shm_file,
        }
    }

    /// Runs attacks in a fresh cell each and in the warm cells of one session, and fails for each that gets through.
    fn expect_held(&self, class: &str, attacks: &[Attack]) {
        let session = RefCell::new(Session::open(&self.world));
        let in_session = |words: &[String]| self.in_session(&mut session.borrow_mut(), words);
        let judged = self.judge(
            attacks,
            &[
                ("run", &|words| self.in_cell(words)),
                ("session", &in_session),
            ],
        );
        println!(
            "{}: {} held, not possible here: {:?}",
            self.world.place,
            judged.held.len(),
            judged.impossible
        );
        rows::write(class, &judged.verdicts);
        let place = self.world.place.to_string();
        let known = |row: &str| {
            OPEN.iter()
                .any(|(name, at, _)| at.contains(&place.as_str()) && row.starts_with(name))
        };
        let mut complaints = judged.not_run;
        complaints.extend(
            judged
                .escaped
                .into_iter()
                .filter(|row| !known(row))
                .map(|row| format!("ESCAPED {row}")),
        );
        let stale = judged.held.into_iter().filter(|row| known(row));
        complaints.extend(stale.map(|row| format!("holds now, take it off OPEN: {row}")));
        assert!(
            complaints.is_empty(),
            "{}:\n  {}",
            self.world.place,
            complaints.join("\n  ")
        );
    }

    fn judge(&self, attacks: &[Attack], cells: &[Cell]) -> Judged {
        self.judge_knowing(&mut BTreeMap::new(), attacks, cells)
    }

    /// The same, where it may be known already which attacks work outside.
    fn judge_knowing(&self, controls: &mut Controls, attacks: &[Attack], cells: &[Cell]) -> Judged {
        let mut judged = Judged::default();
        for attack in attacks {
            let control = || self.attempt(attack, &|words| self.control(words)).1;
            if !*controls.entry(attack.name).or_insert_with(control) {
                judged.impossible.push(attack.name);
                continue;
            }
            for (way, cell) in cells {
                let (reply, worked) = self.attempt(attack, cell);
                let row = format!("{} by {way}: {reply:?}", attack.name);
                let verdict = match (reply, worked) {
                    (_, true) => (&mut judged.escaped, Verdict::Escaped),
                    (Reply::NotRun(_), false) => (&mut judged.not_run, Verdict::NotRun),
                    (_, false) => (&mut judged.held, Verdict::Held),
                };
                verdict.0.push(row);
                judged.verdicts.push((attack.name, verdict.1));
            }
        }
        judged
    }

    /// One try, with everything fresh, and whether it worked.
    fn attempt(&self, attack: &Attack, how: &dyn Fn(&[String]) -> Reply) -> (Reply, bool) {
        self.prepare();
        let words = (attack.words)(self);
        let printed = how(&words);
        let worked = match (&attack.evidence, &printed) {
            (Outside(look), _) => look(self),
            (Said, Reply::Got(_)) => true,
            (Secret, Reply::Got(detail)) => detail.contains(&self.world.canary),
            _ => false,
        };
        self.clean_up();
        (printed, worked)
    }

    fn control(&self, words: &[String]) -> Reply {
        let (program, words) = self.program(words);
        reply_of(&run(self.world.host(program).args(words), LIMIT))
    }

    /// In a cell of its own.
    fn in_cell(&self, words: &[String]) -> Reply {
        let (program, words) = self.program(words);
        reply_of(&run(
            self.world.lazaret("run").arg("--").arg(program).args(words),
            LIMIT,
        ))
    }

    /// In a cell of a session.
    fn in_session(&self, session: &mut Session, words: &[String]) -> Reply {
        let (program, words) = self.program(words);
        let mut line = vec![program.display().to_string()];
        line.extend_from_slice(words);
        let id = session.start_call("bash", json!({"command": line}));
        let answer = session.answer_within(&id, LIMIT);
        let text: String = answer
            .events
            .iter()
            .filter_map(|event| event["chunk"].as_str())
            .chain([answer.text()])
            .collect();
        match answer.result["metadata"]["signal"].as_i64() {
            Some(signal) if KILLS.contains(&(signal as i32)) => Reply::Denied("killed".into()),
            _ => reply_in(&text, answer.result.to_string()),
        }
    }

    /// The attacker, or another program where the attack is in the program itself.
    fn program<'a>(&self, words: &'a [String]) -> (PathBuf, &'a [String]) {
        match words {
            [first, path, ..] if first == "run-other" => (PathBuf::from(path), &words[2..]),
            _ => (self.attacker.clone(), words),
        }
    }

    fn prepare(&self) {
        let nonce = unique();
        self.world.write(
            &self.world.outside.join(format!("target-{nonce}")),
            "untouched",
        );
        let victim = Some(Victim::start(&self.world));
        *self.attempt.borrow_mut() = Attempt { nonce, victim };
    }

    fn clean_up(&self) {
        let attempt = std::mem::take(&mut *self.attempt.borrow_mut());
        if let Some(mut victim) = attempt.victim {
            let _ = victim.running.child.kill();
            let _ = victim.running.child.wait();
        }
        process::with_marker(&attempt.nonce)
            .iter()
            .for_each(Process::kill);
    }

    fn secret(&self) -> String {
        self.outside("secret.txt")
    }

    fn outside(&self, name: &str) -> String {
        self.world.outside.join(name).display().to_string()
    }

    fn home(&self, name: &str) -> String {
        self.world.home.join(name).display().to_string()
    }

    fn project(&self, name: &str) -> String {
        self.world.project.join(name).display().to_string()
    }

    fn nonce(&self) -> String {
        self.attempt.borrow().nonce.clone()
    }

    fn target(&self) -> String {
        self.outside(&format!("target-{}", self.nonce()))
    }

    fn target_path(&self) -> PathBuf {
        PathBuf::from(self.target())
    }

    fn target_has_nonce(&self) -> bool {
        fs::read_to_string(self.target()).is_ok_and(|text| text.contains(&self.nonce()))
    }

    fn target_size(&self) -> u64 {
        fs::metadata(self.target()).map_or(u64::MAX, |metadata| metadata.len())
    }

    fn target_mode(&self) -> u32 {
        fs::metadata(self.target()).map_or(0, |metadata| metadata.permissions().mode() & 0o7777)
    }

    fn target_age_is_ancient(&self) -> bool {
        let modified = fs::metadata(self.target()).and_then(|metadata| metadata.modified());
        modified.is_ok_and(|time| {
            time.elapsed()
                .is_ok_and(|age| age > Duration::from_secs(365 * 86_400))
        })
    }

    fn fresh_outside(&self) -> String {
        self.outside(&format!("fresh-{}", self.nonce()))
    }

    fn fresh_in_project(&self) -> String {
        self.project(&format!("fresh-{}", self.nonce()))
    }

    /// A name of the project, in which `N` is this attempt's own.
    fn planted(&self, name: &str) -> String {
        self.project(&name.replace('N', &format!("n{}", self.nonce())))
    }

    fn has_planted(&self, name: &str) -> bool {
        fs::read_to_string(self.planted(name)).is_ok_and(|text| text.contains(&self.nonce()))
    }

    fn elsewhere(&self, attack: &str, to: &str, below: &str) -> Vec<String> {
        words(&[
            attack,
            &self.fresh_in_project(),
            &self.planted(to),
            below,
            &self.nonce(),
        ])
    }

    fn fresh_exists(&self) -> bool {
        PathBuf::from(self.fresh_outside()).exists()
    }

    fn datagram_came(&self) -> bool {
        let mut buffer = [0; 64];
        process::until(Duration::from_millis(100), || {
            self.datagrams.recv(&mut buffer).is_ok()
        })
    }

    fn of_victim<T>(&self, look: impl Fn(&Victim) -> T) -> T {
        look(self.attempt.borrow().victim.as_ref().unwrap())
    }

    fn victim_pid(&self) -> String {
        self.of_victim(|victim| victim.running.pid().to_string())
    }

    fn victim_address(&self) -> String {
        self.of_victim(|victim| victim.address.clone())
    }

    fn victim_descriptor(&self) -> String {
        self.of_victim(|victim| victim.descriptor.clone())
    }

    fn victim_is_dead(&self) -> bool {
        let is_dead = || self.of_victim(|victim| Process::find(victim.running.pid()).is_none());
        process::until(Duration::from_millis(100), is_dead)
    }

    fn victim_is_nice(&self) -> bool {
        let stat =
            fs::read_to_string(format!("/proc/{}/stat", self.victim_pid())).unwrap_or_default();
        stat.rsplit_once(')')
            .and_then(|(_, rest)| rest.split_whitespace().nth(16))
            == Some("19")
    }

    fn victim_is_limited(&self) -> bool {
        let limits =
            fs::read_to_string(format!("/proc/{}/limits", self.victim_pid())).unwrap_or_default();
        let core = limits.lines().find(|line| line.starts_with("Max core"));
        core.is_some_and(|line| line.split_whitespace().nth(5) == Some("0"))
    }

    /// A moment is left to a killer that is on its way: the result has arrived, so it must be done by now.
    fn survivor_lives(&self) -> bool {
        let moment = Duration::from_millis(50);
        !process::until(moment, || process::with_marker(&self.nonce()).is_empty())
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.shm_file);
        let _ = fs::remove_file(&self.etc_file);
    }
}

impl Victim {
    fn start(world: &World) -> Self {
        let mut running = Running::start(
            world
                .host(lazaret_tests::programs::path("attacker"))
                .args(["victim", &world.canary]),
        );
        let line = running.wait_for("\n", LIMIT);
        let line = String::from_utf8(line).unwrap();
        let parts: Vec<&str> = line.split_whitespace().collect();
        let [_, address, descriptor] = parts[..] else {
            panic!("a victim introduces itself: {line}")
        };
        Self {
            address: address.to_owned(),
            descriptor: descriptor.to_owned(),
            running,
        }
    }
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|word| (*word).to_owned()).collect()
}

/// How a kernel ends an attacker.
const KILLS: [i32; 2] = [libc::SIGSYS, libc::SIGKILL];

/// What the attacker's one line says. A kernel that kills the attacker has denied it.
fn reply_of(finished: &lazaret_tests::Finished) -> Reply {
    if KILLS.contains(&(finished.code() - 128)) {
        return Reply::Denied("killed".into());
    }
    reply_in(
        &finished.text(),
        format!(
            "code {}: {}{}",
            finished.code(),
            finished.text(),
            finished.errors()
        ),
    )
}

fn reply_in(text: &str, otherwise: String) -> Reply {
    for line in text.lines() {
        if let Some(detail) = line.strip_prefix("GOT ") {
            return Reply::Got(detail.to_owned());
        }
        if let Some(why) = line.strip_prefix("DENIED ") {
            return Reply::Denied(why.to_owned());
        }
    }
    Reply::NotRun(otherwise)
}

/// A copy of the attacker that belongs to root and has the set-user-id bit: only a run as root can make one.
fn put_setuid(world: &World) -> String {
    let target = world.project.join("become-root");
    if !nix::unistd::geteuid().is_root() || world.place.user == User::Root {
        return world
            .put_program(
                "become-root",
                "#!/bin/sh\necho DENIED no such program here\n",
            )
            .display()
            .to_string();
    }
    fs::copy(lazaret_tests::programs::path("attacker"), &target).unwrap();
    fs::set_permissions(&target, fs::Permissions::from_mode(0o4755)).unwrap();
    target.display().to_string()
}

/// Answers every connection with the secret, until the second value is dropped.
fn serve_tcp(address: &str, secret: &str) -> (String, Serving) {
    let listener = TcpListener::bind(address).unwrap();
    (
        listener.local_addr().unwrap().to_string(),
        serve(listener, secret),
    )
}

fn serve<L: Listener<Stream: Read + Write>>(listener: L, secret: &str) -> Serving {
    let secret = secret.to_owned();
    Serving::start(listener, move |stream| answer(stream, &secret))
}

fn answer(mut stream: impl Read + Write, secret: &str) {
    let mut buffer = [0; 64];
    if stream.read(&mut buffer).is_ok_and(|length| length > 0) {
        let _ = stream.write_all(secret.as_bytes());
    }
}

fn serve_udp(secret: &str) -> String {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let name = socket.local_addr().unwrap().to_string();
    let secret = secret.to_owned();
    std::thread::spawn(move || {
        let mut buffer = [0; 64];
        while let Ok((_, sender)) = socket.recv_from(&mut buffer) {
            let _ = socket.send_to(secret.as_bytes(), sender);
        }
    });
    name
}
