//! Measures the cost of Lazaret beside that of alternatives. They take turns in one run, so that a busy machine affects all alike.
//! `cargo run --release -p lazaret-tests --bin bench`.
//!
//! Plain spawning goes through the standard library, which uses `posix_spawn` here: an absolute program, no change of
//! user or folder, nothing to do between fork and exec.
#![allow(unreachable_pub)]

mod clients;
mod figures;
mod gateway;
mod work;

use broker_protocol::{FileRead, Outcome, Request, Zone, ZonePath};
use clap::Parser;
use clients::{Echo, Lines, Mcp, bubblewrap, spawn};
use figures::{Row, Times, time};
use lazaret_tests::process::{self, LIMIT, figure, until};
use lazaret_tests::wire::shell;
use lazaret_tests::{Broker, Place, User, World, programs};
use serde_json::{Value, json};
use std::fs::Permissions;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// Measures one part of the table.
type Part = fn(&Options) -> Vec<Row>;

/// Measures what Lazaret costs beside what it is compared with, in turns.
#[derive(Parser)]
struct Options {
    /// Rounds of each contender
    #[arg(long = "n", value_name = "COUNT", default_value_t = 300, value_parser = clap::value_parser!(u32).range(10..))]
    count: u32,
    /// Parts: `a` warm calls, `b` two at once, `c` cold starts, `d` file reads, `e` memory of an idle session, `f` peak memory
    /// while a gigabyte of output passes, `g` the gateway of cells, `m` other ways in, `n` a download through the relay, `r` work that reads and compiles
    #[arg(long, value_name = "PARTS", default_value = "abcdefgmnr")]
    only: String,
    /// A tier and a user, such as `flat/ordinary` [default: the first place of this machine]
    #[arg(long)]
    place: Option<Place>,
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
}

impl Options {
    fn place(&self) -> Place {
        self.place.unwrap_or_else(Place::any)
    }
}

fn main() {
    let options = Options::parse();
    let rows = if options.place().account().uid == nix::unistd::geteuid() {
        measure(&options).iter().map(Row::to_json).collect()
    } else {
        measure_as_user(&options)
    };
    if options.json {
        println!(
            "{}",
            json!({"place": options.place().to_string(), "count": options.count, "rows": rows})
        );
    } else {
        println!("{}, {} rounds", options.place(), options.count);
        rows.iter().for_each(print);
    }
}

/// Runs this program again as the ordinary user, so that no measured program has to change users first. Memory is inspected from
/// here: only root may inspect processes that are not dumpable.
fn measure_as_user(options: &Options) -> Vec<Value> {
    assert!(
        options.place().user == User::Ordinary,
        "only root becomes another user"
    );
    let copy = programs::folder().join("bench");
    // Not by its path: building the programs may have replaced it.
    std::fs::copy("/proc/self/exe", &copy).expect("our own folder takes a copy");
    let account = options.place().account();
    let only = options.only.replace('e', "");
    let mut command = Command::new(copy);
    command.args(["--json", "--n", &options.count.to_string(), "--only", &only]);
    command.args(["--place", &options.place().to_string()]);
    command
        .env("LAZARET_BIN", programs::folder())
        .env("HOME", &account.home)
        .stderr(Stdio::inherit());
    let output = command
        .uid(account.uid.as_raw())
        .gid(account.gid.as_raw())
        .output()
        .expect("our copy starts");
    let report: Value =
        serde_json::from_slice(&output.stdout).expect("our copy prints its figures");
    let mut rows = report["rows"].as_array().cloned().unwrap_or_default();
    if options.only.contains('e') {
        rows.extend(idle_memory(options).iter().map(Row::to_json));
    }
    rows.sort_by_key(|row| row["part"].to_string());
    rows
}

/// Prints one line of the table.
fn print(row: &Value) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let holds = if row["goal"]["holds"] == true {
        "yes"
    } else {
        "NO"
    };
    let goal = row["goal"]["goal"]
        .as_str()
        .map_or(String::new(), |goal| format!("   {goal}: {holds}"));
    println!(
        "  {}  {:<38} {}{goal}",
        text(&row["part"]),
        text(&row["name"]),
        text(&row["value"])
    );
}

fn measure(options: &Options) -> Vec<Row> {
    let parts: [(char, Part); 10] = [
        ('a', warm_calls),
        ('b', two_at_once),
        ('c', cold_start),
        ('d', file_reads),
        ('e', idle_memory),
        ('f', flood_memory),
        ('g', |options| {
            gateway::costs(options.place(), options.count)
        }),
        ('m', other_ways_in),
        ('n', downloads),
        ('r', |options| {
            work::ordinary_work(options.place(), options.count)
        }),
    ];
    parts
        .iter()
        .filter(|(name, _)| options.only.contains(*name))
        .flat_map(|(_, part)| part(options))
        .collect()
}

/// `bash -c true` in three ways, taking turns.
fn warm_calls(options: &Options) -> Vec<Row> {
    let world = World::new(options.place());
    let mut session = Lines::open(&world, &[]);
    let (mut broker, _) = Broker::open(&world);
    let [mut plain, mut lines, mut raw] = [const { Times(Vec::new()) }; 3];
    for round in 0..options.count + 20 {
        let times = [
            time(plain_bash),
            time(|| session.bash("true")),
            time(|| raw_bash(&mut broker, round as u64)),
        ];
        // The first rounds only fill caches and pools.
        if round >= 20 {
            [&mut plain, &mut lines, &mut raw]
                .into_iter()
                .zip(times)
                .for_each(|(all, one)| all.0.push(one));
        }
    }
    let ratio = lines.median() / plain.median();
    vec![
        plain.row('a', "bash -c true, plain posix_spawn", None),
        lines
            .row('a', "bash -c true, warm session", Some(&plain))
            .goal("at most 1.25 × plain", ratio <= 1.25),
        raw.row('a', "bash -c true, raw protocol", Some(&plain)),
        on_top(lines.median() - raw.median()),
    ]
}

/// The cost of registry, validation, policy and records: the difference between a session and the raw protocol.
fn on_top(micros: f64) -> Row {
    let row = Row {
        part: 'a',
        name: "the orchestrator, on top of the raw protocol".into(),
        value: format!("{micros:.0} µs"),
        figures: json!({ "us": micros }),
        goal: None,
    };
    row.goal("at most 300 µs", micros <= 300.0)
}

/// Two simultaneous clients, each in a loop, against two plain spawners; three turns of two seconds each.
fn two_at_once(options: &Options) -> Vec<Row> {
    let worlds = [World::new(options.place()), World::new(options.place())];
    let mut sessions = worlds.each_ref().map(|world| Lines::open(world, &[]));
    let (mut plain, mut calls) = (0.0, 0.0);
    for _ in 0..3 {
        plain += rate(&mut [(), ()], |()| plain_bash());
        calls += rate(&mut sessions, |session| session.bash("true"));
    }
    let (plain, calls) = (plain / 3.0, calls / 3.0);
    let row = |name: &str, rate: f64| Row {
        part: 'b',
        name: name.into(),
        value: format!("{rate:.0} calls/s ({:.2} of plain)", rate / plain),
        figures: json!({"perSecond": rate, "ofPlain": rate / plain}),
        goal: None,
    };
    vec![
        row("two plain spawners of bash -c true", plain),
        row("two warm sessions", calls).goal("at least 0.5 of plain", calls >= plain / 2.0),
    ]
}

/// Calls a second of several clients together.
fn rate<C: Send>(clients: &mut [C], call: impl Fn(&mut C) + Copy + Send) -> f64 {
    let window = Duration::from_secs(2);
    let count: u32 = std::thread::scope(|scope| {
        let running: Vec<_> = clients
            .iter_mut()
            .map(|client| {
                scope.spawn(move || {
                    let end = Instant::now() + window;
                    let mut count = 0;
                    while Instant::now() < end {
                        call(client);
                        count += 1;
                    }
                    count
                })
            })
            .collect();
        running
            .into_iter()
            .map(|client| client.join().expect("a client runs to its end"))
            .sum()
    });
    f64::from(count) / window.as_secs_f64()
}

/// How long the next sandbox has to stand ready.
const BETWEEN: Duration = Duration::from_millis(200);

/// `lazaret warm`, and commands that find it.
struct Warm {
    server: Child,
    commands: [Command; 2],
}

impl Warm {
    fn start(world: &World) -> Self {
        let runtime = world.base().join("runtime");
        world.make_folder(&runtime);
        std::fs::set_permissions(&runtime, Permissions::from_mode(0o700))
            .expect("a folder we made is ours");
        let in_login = |mut command: Command| {
            command.env("XDG_RUNTIME_DIR", &runtime);
            command
        };
        let mut server = in_login(world.program("lazaret"));
        let server = server.arg("warm").stderr(Stdio::null()).spawn();
        let mut shell = in_login(world.program("lazaret-bash"));
        shell
            .env("LAZARET_PROJECT", &world.project)
            .args(["-c", "true"]);
        let server = server.expect("lazaret starts");
        let commands = [in_login(world.lazaret_run(&["true"])), shell];
        until(LIMIT, || runtime.join("lazaret-warm/socket").exists());
        Self { server, commands }
    }
}

impl Drop for Warm {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// Cold starts of `true`, and warm ones, taking turns.
fn cold_start(options: &Options) -> Vec<Row> {
    let world = World::new(options.place());
    let mut bwrap = bubblewrap(&world, &["true"]);
    let has_bwrap = bwrap.output().is_ok_and(|output| output.status.success());
    let mut lazaret = world.lazaret_run(&["true"]);
    let mut warm = Warm::start(&world);
    let [mut plain, mut ours, mut theirs] = [const { Times(Vec::new()) }; 3];
    let [mut run, mut shell] = [const { Times(Vec::new()) }; 2];
    for round in 0..options.count.min(150) + 5 {
        let mut times = [
            time(|| spawn(&mut Command::new("/bin/true"))),
            time(|| spawn(&mut lazaret)),
            0.0,
        ];
        if has_bwrap {
            times[2] = time(|| spawn(&mut bwrap));
        }
        let warm = warm.commands.each_mut().map(|command| {
            std::thread::sleep(BETWEEN);
            time(|| spawn(command))
        });
        if round >= 5 {
            [&mut plain, &mut ours, &mut theirs, &mut run, &mut shell]
                .into_iter()
                .zip(times.into_iter().chain(warm))
                .for_each(|(all, one)| all.0.push(one));
        }
    }
    let mut ours_row = ours.row('c', "lazaret run -- true, cold", Some(&plain));
    let mut rows = vec![plain.row('c', "true, plain", None)];
    if has_bwrap {
        ours_row = ours_row.goal("at most 2 × bwrap", ours.median() <= 2.0 * theirs.median());
        let is_less = |warm: &Times| warm.median() <= 0.9 * theirs.median();
        rows.push(theirs.row('c', "bwrap, all namespaces, true", Some(&plain)));
        rows.push(
            run.row('c', "lazaret run -- true, warm", Some(&theirs))
                .goal("at most 0.9 × bwrap", is_less(&run)),
        );
        rows.push(
            shell
                .row('c', "lazaret-bash -c true, warm", Some(&theirs))
                .goal("at most 0.9 × bwrap", is_less(&shell)),
        );
    }
    rows.push(ours_row);
    rows
}

/// The same call through `lazaret session` and `lazaret mcp`, and cold starts of `true` in two ways, taking turns.
fn other_ways_in(options: &Options) -> Vec<Row> {
    let world = World::new(options.place());
    let (mut session, mut mcp) = (Lines::open(&world, &[]), Mcp::open(&world));
    let (mut run, mut shell) = (world.lazaret_run(&["true"]), world.program("lazaret-bash"));
    shell
        .env("LAZARET_PROJECT", &world.project)
        .args(["-c", "true"]);
    let [mut lines, mut messages, mut cold, mut prefixed] = [const { Times(Vec::new()) }; 4];
    for round in 0..options.count + 20 {
        let times = [time(|| session.bash("true")), time(|| mcp.bash("true"))];
        if round >= 20 {
            [&mut lines, &mut messages]
                .into_iter()
                .zip(times)
                .for_each(|(all, one)| all.0.push(one));
        }
    }
    for _ in 0..options.count.min(150) {
        cold.0.push(time(|| spawn(&mut run)));
        prefixed.0.push(time(|| spawn(&mut shell)));
    }
    let more = messages.median() - lines.median();
    let ratio = prefixed.median() / cold.median();
    vec![
        lines.row('m', "bash -c true, lazaret session", None),
        messages
            .row('m', "bash -c true, lazaret mcp", Some(&lines))
            .goal("at most 500 µs more", more <= 500.0),
        cold.row('m', "lazaret run -- true, cold", None),
        prefixed
            .row('m', "lazaret-bash -c true, cold", Some(&cold))
            .goal("at most 1.1 × run", ratio <= 1.1),
    ]
}

/// Reads through the broker, compared with direct reads, and with the cost of a socket.
fn file_reads(options: &Options) -> Vec<Row> {
    let world = World::new(options.place());
    let (mut broker, _) = Broker::open(&world);
    let mut rows = Vec::new();
    let mut echo = Echo::start();
    let mut bare = Times(Vec::new());
    for (name, size) in [("4 KiB", 4096), ("1 MiB", 1 << 20)] {
        let path = world.put(name, vec![b'x'; size]);
        let [mut plain, mut ours] = [const { Times(Vec::new()) }; 2];
        for round in 0..options.count + 20 {
            let times = [
                time(|| assert_eq!(std::fs::read(&path).map_or(0, |bytes| bytes.len()), size)),
                time(|| raw_read(&mut broker, round as u64, name, size)),
                time(|| echo.round_trip()),
            ];
            if round >= 20 {
                [&mut plain, &mut ours, &mut bare]
                    .into_iter()
                    .zip(times)
                    .for_each(|(all, one)| all.0.push(one));
            }
        }
        rows.push(plain.row('d', &format!("open and read {name}, plain"), None));
        let row = ours.row(
            'd',
            &format!("file_read {name}, raw protocol"),
            Some(&plain),
        );
        let small = size == 4096;
        rows.push(if small {
            row.goal("at most 150 µs", ours.median() <= 150.0)
        } else {
            row
        });
    }
    rows.push(bare.row('d', "100 bytes over a socket and back", None));
    rows
}

/// 100 MB from a local server, directly and through the relay, as timed by `curl`.
fn downloads(options: &Options) -> Vec<Row> {
    const BYTES: usize = 100_000_000;
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port of this machine");
    let port = listener.local_addr().expect("it is bound").port();
    std::thread::spawn(move || {
        let block = vec![b'x'; 1 << 20];
        while let Ok((mut client, _)) = listener.accept() {
            let _ = client.read(&mut [0; 4096]);
            let _ = write!(
                client,
                "HTTP/1.1 200 OK\r\nContent-Length: {BYTES}\r\nConnection: close\r\n\r\n"
            );
            let mut left = BYTES;
            while left > 0 && client.write_all(&block[..left.min(block.len())]).is_ok() {
                left -= left.min(block.len());
            }
        }
    });
    let world = World::new(options.place());
    let settings = world.home.join("settings");
    let hosts = format!("allow = ['localhost:{port}']\nprivate = ['localhost:{port}']");
    world.write(
        &settings.join("lazaret/policy.toml"),
        format!("version = 1\n[profile.net.network]\n{hosts}\n"),
    );
    let url = format!("http://localhost:{port}/");
    let words = [
        "-sS",
        "--noproxy",
        "",
        "-o",
        "/dev/null",
        "-w",
        "%{time_total} %{size_download}",
        &url,
    ];
    let mut direct = world.host("curl");
    direct.env_remove("http_proxy").args(words);
    let mut relayed = world.lazaret("run");
    relayed
        .env("XDG_CONFIG_HOME", settings)
        .args(["--profile", "net", "--", "curl", "--proxytunnel"])
        .args(words);
    let [mut plain, mut ours] = [const { Times(Vec::new()) }; 2];
    for round in 0..options.count.min(15) + 2 {
        let times = [&mut direct, &mut relayed].map(|command| {
            let output = command
                .stdin(Stdio::null())
                .stderr(Stdio::inherit())
                .output()
                .expect("curl starts");
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            let (seconds, bytes) = text.split_once(' ').expect("two figures");
            assert_eq!(bytes.parse(), Ok(BYTES), "all of it");
            seconds.parse::<f64>().expect("seconds") * 1e6
        });
        if round >= 2 {
            [&mut plain, &mut ours]
                .into_iter()
                .zip(times)
                .for_each(|(all, one)| all.0.push(one));
        }
    }
    let speed = plain.median() / ours.median();
    vec![
        plain.row('n', "100 MB, curl, direct", None),
        ours.row(
            'n',
            &format!("100 MB, curl, by the relay: {speed:.2}"),
            Some(&plain),
        )
        .goal("at least 0.5 of direct", speed >= 0.5),
    ]
}

/// Proportional memory of an idle session.
fn idle_memory(options: &Options) -> Vec<Row> {
    let world = World::new(options.place());
    world.put("file", "text");
    let mut session = Lines::open(&world, &[]);
    session.bash("true");
    session.call("file_read", &json!({"path": "file"}));
    // Memory needed only to open a session is released once the session is first idle.
    std::thread::sleep(Duration::from_secs(2));
    let pss = |pid: i32| figure(pid, "smaps_rollup", "Pss").unwrap_or(0) as f64 / 1024.0;
    let executor: f64 = process::below(session.pid())
        .iter()
        .map(|process| pss(process.pid))
        .sum();
    let all = executor + pss(session.pid());
    let processes = process::below(session.pid()).len();
    let row = |name: String, mib: f64| Row {
        part: 'e',
        name,
        value: format!("{mib:.1} MiB"),
        figures: json!({"mib": mib}),
        goal: None,
    };
    if process::below(session.pid())
        .iter()
        .any(|process| pss(process.pid) == 0.0)
    {
        let mut hidden = row(
            "idle: hidden from an ordinary user; run as root".into(),
            0.0,
        );
        hidden.value = String::new();
        return vec![hidden];
    }
    vec![
        row(format!("idle: {processes} executor processes"), executor)
            .goal("at most 4 MiB", executor <= 4.0),
        row("idle: with lazaret session".into(), all).goal("at most 20 MiB", all <= 20.0),
        gateway::held_memory(options.place()),
    ]
}

/// Peak memory of each of our processes while a gigabyte of output passes.
fn flood_memory(options: &Options) -> Vec<Row> {
    let world = World::new(options.place());
    let started = Instant::now();
    let mut command = world.cell("yes | head -c 1000000000");
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .expect("lazaret starts");
    let pid = child.id() as i32;
    let mut peak = 0;
    while child.try_wait().expect("a child of ours").is_none() {
        let ours = process::tree(pid)
            .into_iter()
            .filter(|process| process.name.starts_with("lazaret"));
        peak = peak.max(
            ours.filter_map(|process| figure(process.pid, "status", "VmHWM"))
                .sum::<u64>(),
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    let (mib, seconds) = (peak as f64 / 1024.0, started.elapsed().as_secs_f64());
    let row = Row {
        part: 'f',
        name: "peak while 1 GB of output passes".into(),
        value: format!("{mib:.1} MiB, {seconds:.1} s"),
        figures: json!({"mib": mib, "seconds": seconds}),
        goal: None,
    };
    vec![row.goal("at most 64 MiB", peak > 0 && mib <= 64.0)]
}

/// With the arguments that a cell's bash has: called by a path, it looks for itself in `PATH` less.
fn plain_bash() {
    spawn(Command::new("/bin/bash").arg0("bash").args(["-c", "true"]));
}

fn raw_bash(broker: &mut Broker, round: u64) {
    let done = broker.call(2 * round, Request::Bash(shell("true")));
    assert!(matches!(done.outcome, Outcome::Ran(_)), "{done:?}");
}

fn raw_read(broker: &mut Broker, round: u64, name: &str, size: usize) {
    let path = ZonePath::new(Zone::Project, name).expect("a name of ours");
    let done = broker.call(
        2 * round,
        Request::FileRead(FileRead {
            path,
            offset: None,
            limit: None,
        }),
    );
    assert!(
        matches!(done.outcome, Outcome::Answered) && done.parts.len() > size,
        "{:?}",
        done.outcome
    );
}
