//! Attacks, each tried outside first.
//!
//! An attack that does not work outside proves nothing when it is refused inside. So each runs as its control first, with
//! no cell; only where that gets what it wants is it run in a cell, and there it must not. Attacks whose control fails on
//! this machine are named and not counted.

use broker_protocol::Tier;
use lazaret_fakes::Listener;
use lazaret_tests::process::{self, Process, Running};
use lazaret_tests::rows::{self, Verdict};
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

/// A name, the attacker's words with names of what `Fixture::fill` knows, and how it shows that it worked.
type Attack = (&'static str, &'static str, Evidence);

enum Evidence {
    Said,
    /// The attacker says `GOT`, and the answer holds the world's secret.
    Secret,
    Outside(fn(&Fixture) -> bool),
    /// A file of the project holds the attempt's number.
    Planted(&'static str),
}

use Evidence::{Outside, Planted, Said, Secret};

/// Attacks that are known to get through, in which places, and why. A row that is here and held fails the test, so that it
/// goes.
const OPEN: &[(&str, &[&str], &str)] = &[(
    "capabilities",
    &["flat/ordinary"],
    "an ordinary user cannot empty its bounding set; it gives nothing without the other four",
)];

const FILES: &[Attack] = &[
    ("read a file outside", "read {secret}", Secret),
    ("read the ssh key", "read {home}/.ssh/id_rsa", Secret),
    ("read /etc/shadow", "read /etc/shadow", Said),
    ("read shared memory file", "read {shm}", Secret),
    ("list the home", "list {home}/.ssh", Said),
    ("list root's home", "list /root", Said),
    (
        "read through a link in the project",
        "link-and-read {secret} {new}",
        Secret,
    ),
    (
        "read through /proc/self/root",
        "read /proc/self/root{secret}",
        Secret,
    ),
    (
        "read through the project's parent",
        "read {project}/../outside/secret.txt",
        Secret,
    ),
    ("read by handle", "open-by-handle {secret}", Secret),
    (
        "append outside",
        "write {target} {nonce}",
        Outside(Fixture::target_has_nonce),
    ),
    (
        "create outside",
        "write {outside}/fresh-{nonce} x",
        Outside(Fixture::fresh_exists),
    ),
    (
        "create in the home",
        "write {home}/.{nonce} x",
        Outside(|s| s.world.home.join(format!(".{}", s.nonce())).exists()),
    ),
    (
        "create in /etc",
        "write {etc} x",
        Outside(|s| fs::remove_file(&s.etc_file).is_ok()),
    ),
    (
        "truncate outside",
        "truncate {target}",
        Outside(|s| s.target_size() == 0),
    ),
    (
        "make a folder outside",
        "make-folder {outside}/fresh-{nonce}",
        Outside(Fixture::fresh_exists),
    ),
    (
        "remove outside",
        "unlink {target}",
        Outside(|s| !s.target_path().exists()),
    ),
    (
        "move a file in from outside",
        "rename {target} {new}",
        Outside(|s| !s.target_path().exists()),
    ),
    ("link a file in from outside", "link {target} {new}", Said),
    (
        "change a mode outside",
        "chmod {target} 777",
        Outside(|s| s.target_mode() == 0o777),
    ),
    (
        "change a time outside",
        "utime {target}",
        Outside(|s| s.target_age_is_ancient()),
    ),
    ("change an owner outside", "chown {target}", Said),
    ("set an attribute outside", "setxattr {target}", Said),
    ("run a program outside", "run {outside}/program.sh", Secret),
    ("make a device", "make-device {new}", Said),
];

const NETWORK: &[Attack] = &[
    ("TCP", "connect tcp {tcp}", Secret),
    ("TCP over IPv6", "connect tcp {tcp6}", Secret),
    (
        "TCP over IPv4 in IPv6",
        "connect tcp [::ffff:127.0.0.1]:{tcp-port}",
        Secret,
    ),
    ("TCP to 0.0.0.0", "connect tcp {tcp-any}", Secret),
    (
        "TCP to another address of the loopback",
        "connect tcp 127.3.2.1:{any-port}",
        Secret,
    ),
    ("TCP with data", "connect fast {tcp}", Secret),
    ("TCP with a message", "connect fast-message {tcp}", Secret),
    ("TCP with later data", "connect fast-later {tcp}", Secret),
    (
        "TCP by a socket that was connected",
        "connect again {tcp}",
        Secret,
    ),
    (
        "TCP by an address that changes",
        "connect racing {tcp}",
        Secret,
    ),
    ("MPTCP", "connect mptcp {tcp}", Secret),
    ("UDP", "connect udp {udp}", Secret),
    (
        "a socket file",
        "connect unix {outside}/listener.sock",
        Secret,
    ),
    ("an abstract socket", "connect abstract {abstract}", Secret),
    (
        "an abstract datagram",
        "connect abstract-datagram {abstract}-datagram",
        Outside(Fixture::datagram_came),
    ),
    ("a VSOCK socket", "socket 40 1 0", Said),
    ("a raw socket", "socket 2 3 1", Said),
    ("a ping socket", "socket 2 2 1", Said),
    ("a UDP-Lite socket", "socket 2 2 136", Said),
    ("an MPTCP socket", "socket 2 1 262", Said),
    ("an SCTP socket", "socket 2 1 132", Said),
    ("a packet socket", "socket 17 3 0", Said),
    ("an XDP socket", "socket 44 3 0", Said),
    ("a crypto socket", "socket 38 5 0", Said),
    ("a key socket", "socket 15 3 2", Said),
    ("an audit socket", "socket 16 3 9", Said),
    ("a firewall socket", "socket 16 3 12", Said),
    ("a SMC socket", "socket 43 1 0", Said),
];

/// Other processes, and what a process is given.
const PROCESSES: &[Attack] = &[
    (
        "signal",
        "signal {victim}",
        Outside(Fixture::victim_is_dead),
    ),
    ("ptrace", "ptrace {victim}", Said),
    ("read memory", "read-memory {victim} {address}", Said),
    ("read memory file", "read /proc/{victim}/environ", Said),
    (
        "read through another's root",
        "read /proc/{victim}/root{secret}",
        Secret,
    ),
    (
        "read through another's descriptor",
        "read /proc/{victim}/fd/{descriptor}",
        Secret,
    ),
    (
        "steal a descriptor",
        "steal-descriptor {victim} {descriptor}",
        Secret,
    ),
    (
        "make another nice",
        "nice {victim}",
        Outside(Fixture::victim_is_nice),
    ),
    (
        "limit another",
        "set-limit {victim}",
        Outside(Fixture::victim_is_limited),
    ),
    (
        "find the secret in another's environment",
        "search-processes {canary}",
        Said,
    ),
    (
        "find the secret in the environment",
        "environment {canary}",
        Said,
    ),
    ("inherited descriptors", "descriptors", Said),
    ("capabilities", "capabilities", Said),
    (
        "a set-user-id program",
        "run-other {setuid} become-root",
        Said,
    ),
];

const KERNEL: &[Attack] = &[
    ("mount", "mount {project}/folder", Said),
    (
        "lay a file over another",
        "bind-over {project}/mine {project}/other",
        Said,
    ),
    ("unshare", "unshare", Said),
    ("clone into a user namespace", "clone-user", Said),
    ("clone3 into a user namespace", "clone3-user", Said),
    ("setns", "setns /proc/self/ns/uts", Said),
    ("chroot", "chroot {project}/folder", Said),
    ("io_uring", "io-uring", Said),
    ("userfaultfd", "userfaultfd", Said),
    ("bpf", "bpf", Said),
    ("keyring", "keyring", Said),
    ("perf", "perf", Said),
    ("fanotify", "fanotify", Said),
    ("x32", "x32", Said),
    ("i386", "int80", Said),
    ("push a key into a terminal", "push-key", Said),
    ("System V shared memory", "shared-memory {segment}", Said),
    ("set the hostname", "hostname", Said),
];

/// Names that do not exist yet, in directories that do not exist yet, which programs of the host act on.
const NAMES: &[Attack] = &[
    (
        "a hook of a submodule to come",
        "plant {project}/.git/modules/{n}/hooks/post-checkout {nonce}",
        Planted(".git/modules/{n}/hooks/post-checkout"),
    ),
    (
        "the same, by moving a directory",
        "plant-and-move {new} {project}/.git/modules/{n} hooks/post-checkout {nonce}",
        Planted(".git/modules/{n}/hooks/post-checkout"),
    ),
    (
        "the same, by a link",
        "plant-and-link {new} {project}/.git/modules/{n} hooks/post-checkout {nonce}",
        Planted(".git/modules/{n}/hooks/post-checkout"),
    ),
    (
        "a submodule's settings, in a linked worktree",
        "plant {project}/.git/worktrees/{n}/modules/sub/config {nonce}",
        Planted(".git/worktrees/{n}/modules/sub/config"),
    ),
    (
        "another directory as a worktree's own",
        "plant {project}/.git/worktrees/{n}/commondir {nonce}",
        Planted(".git/worktrees/{n}/commondir"),
    ),
    (
        "a hook of a repository of its own",
        "plant {project}/{n}/.git/hooks/pre-commit {nonce}",
        Planted("{n}/.git/hooks/pre-commit"),
    ),
    (
        "the same, by moving the repository",
        "plant-and-move {new} {project}/{n}/.git hooks/pre-commit {nonce}",
        Planted("{n}/.git/hooks/pre-commit"),
    ),
    (
        "a program in the settings of a repository of its own",
        "plant-settings {project}/{n} {nonce}",
        Planted("{n}/.git/config"),
    ),
    (
        "a file that makes another directory the repository",
        "plant {project}/{n}/.git {nonce}",
        Planted("{n}/.git"),
    ),
    (
        "an editor's tasks",
        "plant {project}/{n}/.vscode/tasks.json {nonce}",
        Planted("{n}/.vscode/tasks.json"),
    ),
    (
        "a shell's settings",
        "plant {project}/{n}/.mise.toml {nonce}",
        Planted("{n}/.mise.toml"),
    ),
    (
        "the settings of a worktree that has no other",
        "plant {project}/.git/worktrees/{n}/config {nonce}",
        Planted(".git/worktrees/{n}/config"),
    ),
    (
        "an agent's settings, by moving a directory",
        "plant-and-move {new} {project}/{n}/.claude settings.json {nonce}",
        Planted("{n}/.claude/settings.json"),
    ),
];

const SURVIVORS: &[Attack] = &[
    (
        "an orphan",
        "survive orphan {nonce}",
        Outside(Fixture::survivor_lives),
    ),
    (
        "a session of its own",
        "survive session {nonce}",
        Outside(Fixture::survivor_lives),
    ),
    (
        "holding the output",
        "survive holding-output {nonce}",
        Outside(Fixture::survivor_lives),
    ),
    (
        "two hundred",
        "survive many {nonce}",
        Outside(Fixture::survivor_lives),
    ),
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

/// Names in backticks in the rows of an ABI and of those after it: attacks that get out with it.
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
    let all = [FILES, NETWORK, PROCESSES, KERNEL, NAMES, SURVIVORS];
    let mut working = 0;
    for attacks in all {
        let judged = fixture.judge(attacks, &[("nothing", &|words| fixture.control(words))]);
        let controls = attacks.len() - judged.impossible.len();
        assert!(
            controls > 0,
            "no control works here: {:?}",
            judged.impossible
        );
        assert_eq!(
            judged.escaped.len(),
            controls,
            "an open door was not seen in {:?}",
            judged.held
        );
        working += controls;
    }
    // Docker's profile leaves 3 of 18 of the kernel's: only all together say whether there is anything to hold.
    let number: usize = all.iter().map(|attacks| attacks.len()).sum();
    assert!(working > number / 2, "{working} controls of {number} work");
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
    /// Verdicts of programs: each attack, as often as it was tried.
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

/// Fixtures that each attempt gets new.
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
            segment: SharedSegment::make().unwrap(),
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

    /// Judges attacks, where it may be known already which of them work outside.
    fn judge_knowing(&self, controls: &mut Controls, attacks: &[Attack], cells: &[Cell]) -> Judged {
        let mut judged = Judged::default();
        for attack in attacks {
            let name = attack.0;
            let control = || self.attempt(attack, &|words| self.control(words)).1;
            if !*controls.entry(name).or_insert_with(control) {
                judged.impossible.push(name);
                continue;
            }
            for (way, cell) in cells {
                let (reply, worked) = self.attempt(attack, cell);
                let row = format!("{name} by {way}: {reply:?}");
                let verdict = match (reply, worked) {
                    (_, true) => (&mut judged.escaped, Verdict::Escaped),
                    (Reply::NotRun(_), false) => (&mut judged.not_run, Verdict::NotRun),
                    (_, false) => (&mut judged.held, Verdict::Held),
                };
                verdict.0.push(row);
                judged.verdicts.push((name, verdict.1));
            }
        }
        judged
    }

    /// One try, with everything fresh, and whether it worked.
    fn attempt(&self, attack: &Attack, how: &dyn Fn(&[String]) -> Reply) -> (Reply, bool) {
        let (_, words, evidence) = attack;
        self.prepare();
        let words: Vec<String> = words.split(' ').map(|word| self.fill(word)).collect();
        let printed = how(&words);
        let worked = match (evidence, &printed) {
            (Outside(look), _) => look(self),
            (Planted(name), _) => self.has_planted(name),
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

    fn outside(&self, name: &str) -> String {
        self.world.outside.join(name).display().to_string()
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

    /// A word of an attack, with what it names in this attempt.
    fn fill(&self, word: &str) -> String {
        let port = |address: &str| address.rsplit(':').next().unwrap_or_default().to_owned();
        let mut rest = word;
        let mut filled = String::new();
        while let Some((before, after)) = rest.split_once('{') {
            let (name, after) = after.split_once('}').unwrap();
            filled += before;
            filled += &match name {
                "secret" => self.outside("secret.txt"),
                "canary" => self.world.canary.clone(),
                "nonce" => self.nonce(),
                "n" => format!("n{}", self.nonce()),
                "project" => self.world.project.display().to_string(),
                "outside" => self.world.outside.display().to_string(),
                "home" => self.world.home.display().to_string(),
                "new" => self.project(&format!("fresh-{}", self.nonce())),
                "target" => self.target(),
                "shm" => self.shm_file.clone(),
                "etc" => self.etc_file.clone(),
                "setuid" => self.setuid.clone(),
                "segment" => self.segment.key.to_string(),
                "tcp" => self.tcp.clone(),
                "tcp6" => self.tcp6.clone(),
                "tcp-any" => self.tcp_any.clone(),
                "tcp-port" => port(&self.tcp),
                "any-port" => port(&self.tcp_any),
                "udp" => self.udp.clone(),
                "abstract" => self.abstract_name.clone(),
                "victim" => self.victim_pid(),
                "address" => self.of_victim(|victim| victim.address.clone()),
                "descriptor" => self.of_victim(|victim| victim.descriptor.clone()),
                name => panic!("no attack can name {name}"),
            };
            rest = after;
        }
        filled + rest
    }

    fn has_planted(&self, name: &str) -> bool {
        fs::read_to_string(self.project(&self.fill(name)))
            .is_ok_and(|text| text.contains(&self.nonce()))
    }

    fn fresh_exists(&self) -> bool {
        PathBuf::from(self.outside(&format!("fresh-{}", self.nonce()))).exists()
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

    /// Killed is who has the signal, or is gone: a killed process still needs a processor to die.
    fn victim_is_dead(&self) -> bool {
        looks().any(|()| self.of_victim(|victim| is_killed(victim.running.pid())))
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

    /// A killed process still needs a processor to die, and two hundred of them need more of a busy machine: a survivor is alive, and
    /// no signal is on its way that ends it.
    fn survivor_lives(&self) -> bool {
        // During an exec a process has no command line for a moment.
        let mut absent = 0;
        !looks().any(|()| {
            let found = process::with_marker(&self.nonce());
            let lives = found.iter().any(|process| !is_killed(process.pid));
            absent = if lives { 0 } else { absent + 1 };
            absent == 3
        })
    }
}

/// So many looks, and a pause after each, however long one takes: between the signal and its end a process is neither killed nor gone
/// for a moment.
fn looks() -> impl Iterator<Item = ()> {
    (0..15).map(|look| {
        if look > 0 {
            std::thread::sleep(Duration::from_millis(100));
        }
    })
}

/// Whether a process is gone, or SIGKILL is on its way to it.
fn is_killed(pid: i32) -> bool {
    const KILL: u64 = 1 << (libc::SIGKILL - 1);
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let pending = |key: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(key))?;
        u64::from_str_radix(line.trim(), 16).ok()
    };
    // Of its threads each has the signal, once one of them has begun to die.
    let killed = ["SigPnd:", "ShdPnd:"]
        .iter()
        .any(|key| pending(key).is_some_and(|signals| signals & KILL != 0));
    killed || Process::find(pid).is_none()
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

/// How a kernel ends an attacker.
const KILLS: [i32; 2] = [libc::SIGSYS, libc::SIGKILL];

/// The attacker's one line of output. A kernel that kills the attacker has denied it.
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
