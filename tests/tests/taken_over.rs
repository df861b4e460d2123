//! The orchestrator, taken over: system calls are made in the running process, by the tracer's right that only its user
//! has. Each is made in a process that is not confined first, and has to work there.
#![cfg(target_arch = "x86_64")]
#![allow(clippy::unwrap_used)]
#![allow(unreachable_pub)]

mod puppet;

use lazaret_tests::model_server::{ModelServer, Reply, ReplyEnd};
use lazaret_tests::not_run;
use lazaret_tests::process::{Process, Running, kill_tree, tree, until, with_marker};
use lazaret_tests::remote_server::{RemoteServer, answered_by, dressed, servers, settings};
use lazaret_tests::sidecar::Sidecar;
use lazaret_tests::world::long_sleep;
use lazaret_tests::{LIMIT, Place, Session, Terminal, World, place_test, suite};
use nix::errno::Errno;
use nix::libc;
use nix::unistd::geteuid;
use puppet::Argument::{Bytes, Number};
use puppet::{Argument, Puppet};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead, BufReader, Lines, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::ExitCode;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

fn main() -> ExitCode {
    suite::main()
}

const HERE: Argument = Number(libc::AT_FDCWD as u64);

/// Targets of an attack besides the world.
struct Fixture {
    project: Vec<u8>,
    new: Vec<u8>,
    gone: Vec<u8>,
    moved: Vec<u8>,
    key: Vec<u8>,
    bus: Vec<u8>,
    address: Vec<u8>,
    bystander: u64,
}

/// One attack: its name, whether it must work without walls, and its calls. The last one's result counts.
struct Attack {
    name: &'static str,
    core: bool,
    try_it: fn(&Puppet, &Fixture) -> Result<u64, Errno>,
}

const fn core(name: &'static str, try_it: fn(&Puppet, &Fixture) -> Result<u64, Errno>) -> Attack {
    Attack {
        name,
        core: true,
        try_it,
    }
}

/// A kernel may be set up to refuse these to everybody.
const fn other(name: &'static str, try_it: fn(&Puppet, &Fixture) -> Result<u64, Errno>) -> Attack {
    Attack {
        name,
        core: false,
        try_it,
    }
}

fn connect(puppet: &Puppet, family: i32, kind: i32, address: &[u8]) -> Result<u64, Errno> {
    let socket = puppet.call(
        libc::SYS_socket,
        &[Number(family as u64), Number(kind as u64), Number(0)],
    )?;
    let length = address.len() as u64;
    let connected = puppet.call(
        libc::SYS_connect,
        &[Number(socket), Bytes(address), Number(length)],
    );
    puppet.call(libc::SYS_close, &[Number(socket)])?;
    connected
}

fn open(puppet: &Puppet, path: &[u8], flags: i32) -> Result<u64, Errno> {
    let file = puppet.call(
        libc::SYS_openat,
        &[HERE, Bytes(path), Number(flags as u64), Number(0o600)],
    )?;
    puppet.call(libc::SYS_close, &[Number(file)])
}

/// The last one changes what the process is.
const ATTACKS: [Attack; 24] = [
    core("read a project file", |p, s| {
        open(p, &s.project, libc::O_RDONLY)
    }),
    core("write a project file", |p, s| {
        open(p, &s.project, libc::O_WRONLY)
    }),
    core("make a project file", |p, s| {
        open(p, &s.new, libc::O_WRONLY | libc::O_CREAT)
    }),
    core("remove a project file", |p, s| {
        p.call(libc::SYS_unlinkat, &[HERE, Bytes(&s.gone), Number(0)])
    }),
    core("move a project file", |p, s| {
        p.call(
            libc::SYS_renameat2,
            &[HERE, Bytes(&s.moved), HERE, Bytes(&s.new), Number(0)],
        )
    }),
    core("read a key", |p, s| open(p, &s.key, libc::O_RDONLY)),
    core("read any file", |p, _| {
        open(p, b"/etc/passwd", libc::O_RDONLY)
    }),
    core("list the root", |p, _| {
        open(p, b"/", libc::O_RDONLY | libc::O_DIRECTORY)
    }),
    core("change a mode", |p, s| {
        p.call(
            libc::SYS_fchmodat,
            &[HERE, Bytes(&s.project), Number(0o777)],
        )
    }),
    core("change times", |p, s| {
        p.call(
            libc::SYS_utimensat,
            &[HERE, Bytes(&s.project), Number(0), Number(0)],
        )
    }),
    core("connect to a bus", |p, s| {
        connect(p, libc::AF_UNIX, libc::SOCK_STREAM, &s.bus)
    }),
    core("signal a process", |p, s| {
        p.call(libc::SYS_kill, &[Number(s.bystander), Number(0)])
    }),
    core("look into a process", |p, s| {
        open(
            p,
            format!("/proc/{}/environ", s.bystander).as_bytes(),
            libc::O_RDONLY,
        )
    }),
    core("memory that is code", |p, _| {
        let code = (libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC) as u64;
        let own = (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS) as u64;
        p.call(
            libc::SYS_mmap,
            &[
                Number(0),
                Number(4096),
                Number(code),
                Number(own),
                Number(u64::MAX),
                Number(0),
            ],
        )
    }),
    core("a file of memory", |p, _| {
        p.call(libc::SYS_memfd_create, &[Bytes(b"x"), Number(0)])
    }),
    core("listen", |p, _| {
        let socket = p.call(
            libc::SYS_socket,
            &[Number(libc::AF_INET as u64), Number(1), Number(0)],
        )?;
        p.call(libc::SYS_listen, &[Number(socket), Number(1)])
    }),
    other("trace a process", |p, s| {
        p.call(
            libc::SYS_ptrace,
            &[Number(0x4206), Number(s.bystander), Number(0), Number(0)],
        )
    }),
    other("a handle of a process", |p, s| {
        p.call(libc::SYS_pidfd_open, &[Number(s.bystander), Number(0)])
    }),
    other("a keyring", |p, _| {
        p.call(
            libc::SYS_keyctl,
            &[Number(0), Number(-3i64 as u64), Number(1)],
        )
    }),
    other("io_uring", |p, _| {
        p.call(libc::SYS_io_uring_setup, &[Number(1), Bytes(&[0; 120])])
    }),
    other("a namespace", |p, _| {
        p.call(libc::SYS_unshare, &[Number(libc::CLONE_NEWUSER as u64)])
    }),
    other("bpf", |p, _| {
        p.call(
            libc::SYS_bpf,
            &[
                Number(0),
                Bytes(&[1, 0, 0, 0, 4, 0, 0, 0, 4, 0, 0, 0, 1, 0, 0, 0]),
                Number(16),
            ],
        )
    }),
    other("mount", |p, _| {
        p.call(
            libc::SYS_mount,
            &[
                Bytes(b"none"),
                Bytes(b"/mnt"),
                Bytes(b"tmpfs"),
                Number(0),
                Number(0),
            ],
        )
    }),
    core("start a program", |p, _| {
        p.call(
            libc::SYS_execve,
            &[Bytes(b"/bin/true"), Number(0), Number(0)],
        )
    }),
];

fn fixture(world: &World, bystander: &Child) -> Fixture {
    let key = world.home.join(".ssh/id_ed25519");
    world.write(&key, "key");
    let path = |path: std::path::PathBuf| path.as_os_str().as_bytes().to_vec();
    let project = path(world.put("attacked", "content"));
    let bus = [
        &(libc::AF_UNIX as u16).to_le_bytes()[..],
        &path(world.home.join("bus")),
        b"\0",
    ]
    .concat();
    Fixture {
        project,
        new: path(world.project.join("new")),
        gone: path(world.put("gone", "content")),
        moved: path(world.put("moved", "content")),
        key: path(key),
        bus,
        address: vec![],
        bystander: bystander.id().into(),
    }
}

fn bystander(world: &World) -> Child {
    world
        .host("sleep")
        .arg(long_sleep())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

/// Takes over a process as soon as it waits in a system call: it may have woken up for a moment, to write its log.
fn taken_over(pid: u32) -> Puppet {
    let sleeps = || {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(')')
            .next()
            .is_some_and(|rest| rest.starts_with(" S"))
    };
    let mut puppet = None;
    let taken = || {
        puppet = sleeps()
            .then(|| Puppet::take(pid as i32).unwrap())
            .flatten();
        puppet.is_some()
    };
    assert!(until(LIMIT, taken), "it does not settle");
    puppet.unwrap()
}

place_test!(a_taken_over_orchestrator_gets_nothing);
fn a_taken_over_orchestrator_gets_nothing(place: Place) {
    let world = World::new(place);
    let mut session = Session::open(&world);
    session.bash("true").success();
    gets_nothing(&world, session.pid(), Network::None, || {
        assert_eq!(
            session
                .call("file_read", json!({"path": "attacked"}))
                .success(),
            "content"
        );
    });
    session.close(LIMIT);
}

place_test!(a_taken_over_gateway_gets_nothing);
/// The process with the network of cells has nothing else.
fn a_taken_over_gateway_gets_nothing(place: Place) {
    let world = World::new(place);
    let mut command = world.lazaret("session");
    let mut session = Session::start(command.args(["--allow-host", "a.example:443"]));
    session.bash("true").success();
    let gateway = below(session.pid(), "lazaret-gateway");
    if geteuid().is_root() {
        gets_nothing(&world, gateway.pid, Network::AsClient, || {
            let refused = session.bash("curl -sS -m 20 https://b.example/ 2>&1");
            assert!(refused.text().contains("403"), "{}", refused.text());
        });
    } else {
        // By tracing, root alone takes it over: it is closed to its own user, who may trace `lazaret`.
        assert_eq!(Puppet::take(gateway.pid).err(), Some(Errno::EPERM));
    }
    assert!(gateway.is_alive());
    session.close(LIMIT);
}

/// The process called `name` below the process `pid`.
fn below(pid: i32, name: &str) -> Process {
    let mut all = tree(pid).into_iter();
    all.find(|process| process.name == name).unwrap()
}

place_test!(a_taken_over_gateway_of_a_client_gets_nothing);
/// The process with `lazaret`'s network has nothing else: no file, and nothing of its user's environment.
fn a_taken_over_gateway_of_a_client_gets_nothing(place: Place) {
    let world = World::new(place);
    let mut command = world.lazaret("session");
    let mut session = Session::start(command.env("SOME_TOKEN", "no gateway has it"));
    session.bash("true").success();
    let gateway = below(session.pid(), "lazaret-network");
    if geteuid().is_root() {
        let environment = fs::read(format!("/proc/{}/environ", gateway.pid)).unwrap();
        let protocol = format!("LAZARET_PROTOCOL={}\0", broker_protocol::VERSION);
        assert_eq!(String::from_utf8_lossy(&environment), protocol);
        gets_nothing(&world, gateway.pid, Network::AsClient, || {
            let refused = session.call("web_fetch", json!({"url": "https://127.0.0.1/"}));
            assert!(refused.text().contains("loopback"), "{}", refused.text());
        });
    } else {
        // By tracing, root alone takes it over: it is closed to its own user, who may trace `lazaret`.
        assert_eq!(Puppet::take(gateway.pid).err(), Some(Errno::EPERM));
    }
    assert!(gateway.is_alive());
    session.close(LIMIT);
}

/// The sockets of this process: the numbers by which the kernel names them.
fn sockets_of(pid: i32) -> BTreeSet<u64> {
    let links = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let number = |link: PathBuf| {
        let name = fs::read_link(link).ok()?.into_os_string().into_string();
        name.ok()?
            .strip_prefix("socket:[")?
            .strip_suffix(']')?
            .parse()
            .ok()
    };
    links
        .filter_map(|link| number(link.unwrap().path()))
        .collect()
}

/// All Unix sockets of this machine that keep the borders of messages.
fn sockets_with_messages() -> BTreeSet<u64> {
    let all = fs::read("/proc/net/unix").unwrap();
    // The names, at the ends, are any bytes: whoever binds a socket chooses one.
    let all = String::from_utf8_lossy(&all);
    let number = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        (*words.get(4)? == "0005").then(|| words.get(6)?.parse().ok())?
    };
    all.lines().skip(1).filter_map(number).collect()
}

place_test!(a_taken_over_orchestrator_has_no_end_of_the_tickets_line);
/// What it could write there, its gateway would take for a permission; what it could read there, it could use before its call does.
fn a_taken_over_orchestrator_has_no_end_of_the_tickets_line(place: Place) {
    let world = World::new(place);
    let mut session = Session::open(&world);
    session.bash("true").success();
    let lines = |pid: i32| {
        let with_messages = sockets_with_messages();
        sockets_of(pid).intersection(&with_messages).count()
    };
    assert_eq!(lines(session.pid()), 0);
    if geteuid().is_root() {
        // The control: who has an end of it is seen to.
        let gateway = below(session.pid(), "lazaret-network");
        assert_eq!(lines(gateway.pid), 1);
        let spawner = below(session.pid(), "lazaret-spawner");
        assert_eq!(lines(spawner.pid), 1);
    }
    // Nor has what the broker starts: a command, and the session's warden.
    let found = session.bash("ls -l /proc/self/fd /proc/$PPID/fd 2>/dev/null");
    assert!(!found.text().contains("socket:"), "{}", found.text());
    session.close(LIMIT);
}

/// The socket over which the process `pid` passes connections to its gateway: both ends of a pair were made one after the other.
fn control_of(pid: i32) -> u64 {
    let ends = sockets_of(below(pid, "lazaret-network").pid);
    let links = fs::read_dir(format!("/proc/{pid}/fd")).unwrap();
    let descriptor = |link: fs::DirEntry| {
        let target = fs::read_link(link.path()).ok()?;
        let socket = target.to_str()?.strip_prefix("socket:[")?;
        let socket: u64 = socket.strip_suffix(']')?.parse().ok()?;
        let distance = ends.iter().map(|end| end.abs_diff(socket)).min()?;
        Some((distance, link.file_name().to_str()?.parse().ok()?))
    };
    let nearest = links.filter_map(|link| descriptor(link.unwrap())).min();
    let (distance, descriptor) = nearest.unwrap();
    assert_eq!(distance, 1, "the pair is not told from others");
    descriptor
}

/// Asks the gateway of the taken-over process for what `ask` says, as that process would; returns its answer.
fn asked_of_gateway(puppet: &Puppet, control: u64, ask: &Value, request: &str) -> String {
    let pair = puppet.place(0, &[0; 8]);
    let (family, kind) = (libc::AF_UNIX as u64, libc::SOCK_STREAM as u64);
    let made = [Number(family), Number(kind), Number(0), Number(pair)];
    puppet.call(libc::SYS_socketpair, &made).unwrap();
    let number = |at| u32::from_le_bytes(puppet.read(at, 4).try_into().unwrap());
    let (ours, theirs) = (number(pair), number(pair + 4));
    // One octet, and a control message with the descriptor.
    let octet = puppet.place(16, &[0]);
    let parts = puppet.place(32, &[octet, 1].map(u64::to_le_bytes).concat());
    let (level, rights) = (libc::SOL_SOCKET as u32, libc::SCM_RIGHTS as u32);
    let words = [level, rights, theirs, 0].map(u32::to_le_bytes).concat();
    let passed = puppet.place(64, &[&20u64.to_le_bytes()[..], &words].concat());
    let message = [0, 0, parts, 1, passed, 24, 0].map(u64::to_le_bytes);
    let message = puppet.place(128, &message.concat());
    let passing = [Number(control), Number(message), Number(0)];
    puppet.call(libc::SYS_sendmsg, &passing).unwrap();
    puppet
        .call(libc::SYS_close, &[Number(theirs.into())])
        .unwrap();
    let ask = ask.to_string();
    let length = (ask.len() as u32).to_be_bytes();
    let said = [&length[..], ask.as_bytes(), request.as_bytes()].concat();
    let (ours, length) = (Number(ours.into()), Number(said.len() as u64));
    let written = puppet.call(libc::SYS_write, &[ours, Bytes(&said), length]);
    assert_eq!(written, Ok(said.len() as u64));
    let (mut answer, room) = (Vec::new(), puppet.place(256, &[]));
    loop {
        let got = puppet.call(libc::SYS_read, &[ours, Number(room), Number(1024)]);
        match got.unwrap() {
            0 => break,
            got => answer.extend(puppet.read(room, got as usize)),
        }
    }
    puppet.call(libc::SYS_close, &[ours]).unwrap();
    String::from_utf8(answer).unwrap()
}

place_test!(a_taken_over_orchestrator_gets_no_page_without_a_ticket);
/// Its policy allows the place, and a page of it was permitted a moment ago.
fn a_taken_over_orchestrator_gets_no_page_without_a_ticket(place: Place) {
    if !geteuid().is_root() {
        not_run("the gateway's sockets are seen by root alone");
    }
    let world = World::new(place);
    let server = ModelServer::answering("127.0.0.1", |_| Reply::stream("a page"));
    let at = server.url().replace("http://", "");
    world.set_policy(format!(
        "version = 1\n[profile.near.web]\nsearch = false\nallow = []\nhttp = []\nprivate = ['{at}']\n"
    ));
    let web = json!({"search": false, "allow": [], "http": [], "private": [at]});
    let ask = json!({"by": {"Model": {"own": web, "bounds": []}}, "url": server.url()});
    let request = format!("GET /?data HTTP/1.1\r\nHost: {at}\r\nConnection: close\r\n\r\n");
    let attack = |command: &mut Command| {
        let mut session = Session::start(command.args(["--profile", "near"]));
        let page = json!({"url": format!("{}/page", server.url())});
        let page = session.call("web_fetch", page);
        assert!(page.success().contains("a page"));
        let control = control_of(session.pid());
        let puppet = taken_over(session.pid() as u32);
        let answer = asked_of_gateway(&puppet, control, &ask, &request);
        drop(puppet);
        session.bash("true").success();
        session.close(LIMIT);
        answer
    };
    let lines = || -> Vec<String> { server.asked().into_iter().map(|seen| seen.line).collect() };
    let refused = attack(&mut world.configured("session"));
    assert!(refused.contains("\"NoTicket\""), "{refused}");
    assert_eq!(lines(), ["GET /page HTTP/1.1"]);
    // The control: with an executor that somebody else has started there are no tickets.
    let folder = world.home.join("run");
    world.make_folder(&folder);
    fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
    let socket = folder.join("executor.sock");
    let mut listener = world.program("lazaret-executor");
    listener
        .env("XDG_CONFIG_HOME", world.home.join("settings"))
        .args(["listen", "--socket"])
        .arg(&socket);
    let mut listener = Running::start(&mut listener);
    assert!(until(LIMIT, || UnixStream::connect(&socket).is_ok()));
    let reached = attack(world.configured("session").arg("--socket").arg(&socket));
    assert!(reached.contains("\r\na page\r\n"), "{reached}");
    assert!(lines().contains(&"GET /?data HTTP/1.1".to_owned()));
    kill_tree(listener.pid());
    let _ = listener.child.wait();
}

place_test!(a_taken_over_chat_has_its_provider_do_nothing_else);
/// A server of models also fetches and removes some, which chats need not.
fn a_taken_over_chat_has_its_provider_do_nothing_else(place: Place) {
    if !geteuid().is_root() {
        not_run("the gateway's sockets are seen by root alone");
    }
    let world = World::new(place);
    let server = ModelServer::answering("127.0.0.1", |seen| {
        let text = format!(
            "{}\n",
            json!({"message": {"content": "Wait for me, please."}})
        );
        match seen.line.contains("/api/chat") {
            true => Reply {
                end: ReplyEnd::Hang,
                ..Reply::stream(text)
            },
            false => Reply::status(200, &json!({"capabilities": ["completion", "tools"]})),
        }
    });
    let at = server.url().replace("http://", "");
    let mut command = world.lazaret("chat");
    command
        .args(["--json", "--provider", "ollama", "--model", "m"])
        .args(["--base-url", &server.url(), "x"]);
    let mut chat = Running::start(&mut command);
    chat.wait_for("Wait for me", LIMIT);
    let control = control_of(chat.pid());
    let puppet = taken_over(chat.pid() as u32);
    let ask = |by: &str, line: &str| {
        let ask = json!({"by": by, "url": server.url()});
        let head = format!("Host: {at}\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{{}}");
        asked_of_gateway(&puppet, control, &ask, &format!("{line}\r\n{head}"))
    };
    let lines = || server.asked().len();
    let before = lines();
    // The control: a request of the interface arrives, whoever makes it.
    let answer = ask("ProviderSettings", "POST /api/show HTTP/1.1");
    assert!(answer.contains("capabilities"), "{answer}");
    assert_eq!(lines(), before + 1);
    for line in [
        "POST /api/pull",
        "POST /api/push",
        "POST /api/create",
        "DELETE /api/delete",
        "POST /api/show?data",
        "POST /api/show/",
        "POST /api//show",
        "POST /api/%73how",
        "PUT /api/show",
    ] {
        let refused = ask("ProviderSettings", &format!("{line} HTTP/1.1"));
        assert!(refused.contains("\"NotRequest\""), "{line}: {refused}");
        let refused = ask("ServerSettings", &format!("{line} HTTP/1.1"));
        assert!(refused.contains("\"NotNamed\""), "{line}: {refused}");
    }
    assert_eq!(lines(), before + 1);
    drop(puppet);
    let _ = chat.child.kill();
    chat.finish(LIMIT);
}

place_test!(a_taken_over_export_reaches_no_host_but_its_collector);
fn a_taken_over_export_reaches_no_host_but_its_collector(place: Place) {
    let world = World::new(place);
    world.in_cell("true").success();
    let taking = || ModelServer::answering("127.0.0.1", |_| Reply::status(200, &json!({})));
    let (collector, other) = (taking(), taking());
    let mut command = world.program("lazaret");
    command.args(["audit", "export", "--follow", "--otlp", &collector.url()]);
    let mut export = Running::start(&mut command);
    export.wait_for("acknowledged", LIMIT);
    gets_nothing(&world, export.pid(), Network::None, || {
        let before = collector.asked().len();
        world.in_cell("true").success();
        assert!(until(LIMIT, || collector.asked().len() > before));
    });
    // By its gateway it reaches what its user has named, and nothing else on this machine.
    if geteuid().is_root() {
        let control = control_of(export.pid());
        let puppet = taken_over(export.pid() as u32);
        let ask = |server: &ModelServer| {
            let ask = json!({"by": "ProviderSettings", "url": server.url()});
            let request = "POST /v1/logs HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
            asked_of_gateway(&puppet, control, &ask, request)
        };
        let refused = ask(&other);
        assert!(refused.contains("NotNamed"), "{refused}");
        let reached = ask(&collector);
        assert!(
            reached.starts_with("HTTP/1.1 200"),
            "control: the same request is answered by its collector: {reached}"
        );
    }
    assert_eq!(other.asked().len(), 0);
    kill_tree(export.pid());
    let _ = export.child.wait();
}

place_test!(a_taken_over_mcp_server_gets_nothing);
fn a_taken_over_mcp_server_gets_nothing(place: Place) {
    let world = World::new(place);
    let mut client = McpClient::start(&mut world.lazaret("mcp"));
    client.call(2, "bash", json!({ "command": "true" }));
    gets_nothing(&world, client.child.id() as i32, Network::None, || {
        let read = client.call(3, "file_read", json!({ "path": "attacked" }));
        assert!(read.contains("content"));
    });
    client.end();
}

/// A client of `lazaret mcp` that has said who it is.
struct McpClient {
    child: Child,
    stdin: ChildStdin,
    lines: Lines<BufReader<ChildStdout>>,
}

impl McpClient {
    fn start(command: &mut Command) -> Self {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let lines = BufReader::new(stdout).lines();
        let mut client = Self {
            child,
            stdin,
            lines,
        };
        let who = json!({ "name": "test", "version": "1" });
        let params =
            json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": who });
        client.request(1, "initialize", params);
        client
    }

    fn request(&mut self, id: u64, method: &str, params: Value) -> String {
        let line = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        self.stdin
            .write_all(format!("{line}\n").as_bytes())
            .unwrap();
        let answers = |line: &String| serde_json::from_str::<Value>(line).unwrap()["id"] == id;
        let mut lines = self.lines.by_ref().map_while(Result::ok);
        lines.find(answers).expect("an answer")
    }

    fn call(&mut self, id: u64, tool: &str, arguments: Value) -> String {
        let params = json!({ "name": tool, "arguments": arguments });
        self.request(id, "tools/call", params)
    }

    fn end(mut self) {
        drop(self.stdin);
        self.child.wait().unwrap();
    }
}

place_test!(a_taken_over_chat_gets_nothing);
/// The process that hears a model all day has no more rights than the one that hears a client.
fn a_taken_over_chat_gets_nothing(place: Place) {
    let world = World::new(place);
    let call = json!({"function": {"name": "file_list", "arguments": {}}});
    let line = |message| format!("{}\n", json!({"message": message, "done": true}));
    let shown = Reply::status(200, &json!({"capabilities": ["completion", "tools"]}));
    let waiting = Reply {
        end: ReplyEnd::Hang,
        ..Reply::stream(format!(
            "{}\n",
            json!({"message": {"content": "Wait for me, please."}})
        ))
    };
    let server = ModelServer::start(vec![
        shown,
        Reply::stream(line(json!({"tool_calls": [call]}))),
        waiting,
    ]);
    let mut command = world.lazaret("chat");
    command.args([
        "--json",
        "--provider",
        "ollama",
        "--model",
        "m",
        "--base-url",
        &server.url(),
        "x",
    ]);
    let mut chat = Running::start(&mut command);
    chat.wait_for("Wait for me", LIMIT);
    // It waits for its model for as long as it is attacked.
    gets_nothing(&world, chat.pid(), Network::None, || {});
    let _ = chat.child.kill();
    chat.finish(LIMIT);
}

place_test!(no_key_and_no_secret_of_the_environment_is_in_the_memory_of_a_chat);
/// Nor are they in its initial stack, nor in a file that it still has. The control is a process that searches texts by itself.
fn no_key_and_no_secret_of_the_environment_is_in_the_memory_of_a_chat(place: Place) {
    let world = World::new(place);
    let token = format!("tok-{}-of-nobody", lazaret_tests::world::unique());
    let key = format!("sk-{}-of-a-file", lazaret_tests::world::unique());
    let file = key_file(&world, "key", &key);
    let brave = format!("brave-{}-of-nobody", lazaret_tests::world::unique());
    let call = json!({"function": {"name": "bash", "arguments": {"command": "echo $SOME_TOKEN"}}});
    let search = json!({"function": {"name": "web_search", "arguments": {"query": "q"}}});
    let engine = ModelServer::answering("127.0.0.1", |_| {
        Reply::status(200, &json!({"web": {"results": []}}))
    });
    let waiting = Reply {
        end: ReplyEnd::Hang,
        ..Reply::stream(format!(
            "{}\n",
            json!({"message": {"content": "Wait for me, please."}})
        ))
    };
    let server = ModelServer::start(vec![
        Reply::status(200, &json!({"capabilities": ["completion", "tools"]})),
        Reply::stream(format!(
            "{}\n",
            json!({"message": {"tool_calls": [call, search]}, "done": true})
        )),
        waiting,
    ]);
    let mut command = world.lazaret("chat");
    command
        .env("SOME_TOKEN", &token)
        .env("BRAVE_SEARCH_API_KEY", &brave)
        .env("BRAVE_SEARCH_URL", engine.url())
        .args(["--json", "--trust", "autonomous", "--provider", "ollama"])
        .args(["--model", "m", "--base-url", &server.url(), "--key-file"])
        .arg(&file)
        .arg("x");
    let mut chat = Running::start(&mut command);
    chat.wait_for("Wait for me", LIMIT);
    let sent = format!("authorization: bearer {key}");
    assert!(
        server
            .asked()
            .iter()
            .all(|asked| asked.head.contains(&sent))
    );
    let searched = engine.asked();
    let sent = format!("x-subscription-token: {brave}");
    assert_eq!(searched.len(), 1);
    assert!(searched[0].head.contains(&sent), "{}", searched[0].head);
    for secret in [&token, &key, &brave] {
        assert_eq!(forms_in_memory(chat.pid(), secret), Vec::<&str>::new());
    }
    let links = fs::read_dir(format!("/proc/{}/fd", chat.pid())).unwrap();
    let mut links = links.filter_map(|link| fs::read_link(link.unwrap().path()).ok());
    assert!(!links.any(|link| link.as_os_str().as_bytes().starts_with(b"/memfd:")));
    // What needs the whole environment has it, and the process with the secrets has nothing else.
    let executor = below(chat.pid(), "lazaret-spawner");
    let keeper = below(chat.pid(), "lazaret-secrets");
    if geteuid().is_root() {
        assert!(forms_in_memory(executor.pid, &token).contains(&"plain"));
        for secret in [&token, &key, &brave] {
            assert!(forms_in_memory(keeper.pid, secret).contains(&"plain"));
        }
        gets_nothing(&world, keeper.pid, Network::None, || {});
    } else {
        assert_eq!(Puppet::take(keeper.pid).err(), Some(Errno::EPERM));
    }
    let _ = chat.child.kill();
    chat.finish(LIMIT);
    assert!(until(LIMIT, || !keeper.is_alive()));
    is_found_in_a_command_that_hears_nobody(&world, &token);
}

/// The control: where this program searches texts by itself, the secrets of its environment are in its memory.
fn is_found_in_a_command_that_hears_nobody(world: &World, token: &str) {
    let marker = long_sleep();
    let mut command = world.lazaret("run");
    command
        .env("SOME_TOKEN", token)
        .args(["--", "sleep", &marker]);
    let run = Running::start(&mut command);
    let runs = || with_marker(&marker).iter().any(|one| one.name == "sleep");
    assert!(until(LIMIT, runs));
    let all = ["plain", "hexadecimal", "address", "reversed"];
    assert_eq!(forms_in_memory(run.pid(), token), all, "control");
    kill_tree(run.pid());
    run.finish(LIMIT);
}

/// Checks that `lazaret`, and what it has started for itself, have none of these values in their memory or environment. The executor has.
fn has_no_secret(pid: i32, secrets: &[&str]) {
    for process in tree(pid) {
        let is_readable = process.pid == pid || geteuid().is_root();
        let is_ours = matches!(&*process.name, "lazaret" | "lazaret-network");
        if !is_ours || !is_readable {
            continue;
        }
        for secret in secrets {
            // The gateway has the keys that it puts into requests, and no variables.
            let environment = fs::read(format!("/proc/{}/environ", process.pid)).unwrap();
            let has = memchr::memmem::find(&environment, secret.as_bytes());
            assert_eq!(has, None, "{process:?}");
            if process.name == "lazaret" {
                let found = forms_in_memory(process.pid, secret);
                assert_eq!(found, Vec::<&str>::new(), "{process:?}");
            }
        }
    }
    let keeper = below(pid, "lazaret-secrets");
    if geteuid().is_root() {
        for secret in secrets {
            let found = forms_in_memory(keeper.pid, secret);
            assert!(found.contains(&"plain"), "control: {found:?}");
        }
    }
}

fn key_file(world: &World, name: &str, key: &str) -> PathBuf {
    let file = world.home.join(name);
    world.write(&file, key);
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).unwrap();
    world.own(&file);
    file
}

fn token() -> String {
    format!("tok-{}-of-nobody", lazaret_tests::world::unique())
}

place_test!(no_secret_of_the_environment_is_in_the_memory_of_a_session);
fn no_secret_of_the_environment_is_in_the_memory_of_a_session(place: Place) {
    let (world, token) = (World::new(place), token());
    let mut command = world.lazaret("session");
    let mut session = Session::start(command.env("SOME_TOKEN", &token));
    session.bash("true").success();
    has_no_secret(session.pid(), &[&token]);
    session.close(LIMIT);
    is_found_in_a_command_that_hears_nobody(&world, &token);
}

place_test!(no_key_and_no_secret_of_the_environment_is_in_the_memory_of_a_server);
fn no_key_and_no_secret_of_the_environment_is_in_the_memory_of_a_server(place: Place) {
    let (world, token) = (World::new(place), token());
    let key = format!("sk-{}-of-nobody", lazaret_tests::world::unique());
    let server = ModelServer::answering("127.0.0.1", |request| {
        let done = json!({"message": {"content": "Done."}, "done": true});
        match request.line.contains("/api/show") {
            true => Reply::status(200, &json!({"capabilities": ["completion", "tools"]})),
            false => Reply::stream(format!("{done}\n")),
        }
    });
    let file = key_file(&world, "key", &key);
    let mut command = world.lazaret("serve");
    command
        .env("SOME_TOKEN", &token)
        .args(["--listen", "127.0.0.1:0", "--trust", "autonomous"])
        .args(["--provider", "ollama", "--model", "m", "--base-url"])
        .arg(server.url())
        .arg("--key-file")
        .arg(&file)
        .arg("--unix")
        .arg(world.home.join("socket"));
    let sidecar = Sidecar::of(&mut command);
    let mut client = sidecar.client();
    client.say("chat:send", json!({"content": "x", "conversationId": "c"}));
    client.to_end();
    let sent = format!("authorization: bearer {key}");
    let asked = server.asked();
    assert!(!asked.is_empty() && asked.iter().all(|asked| asked.head.contains(&sent)));
    has_no_secret(sidecar.running.pid(), &[&token, &key]);
    sidecar.end().success();
    is_found_in_a_command_that_hears_nobody(&world, &token);
}

place_test!(no_secret_of_the_environment_is_in_the_memory_of_an_mcp_server);
fn no_secret_of_the_environment_is_in_the_memory_of_an_mcp_server(place: Place) {
    let (world, token) = (World::new(place), token());
    let mut command = world.lazaret("mcp");
    let mut client = McpClient::start(command.env("SOME_TOKEN", &token));
    client.call(2, "bash", json!({ "command": "true" }));
    has_no_secret(client.child.id() as i32, &[&token]);
    client.end();
    is_found_in_a_command_that_hears_nobody(&world, &token);
}

place_test!(no_secret_of_the_environment_is_in_the_memory_between_an_editor_and_its_agent);
/// The agent has them: it is the user's program.
fn no_secret_of_the_environment_is_in_the_memory_between_an_editor_and_its_agent(place: Place) {
    let (world, token) = (World::new(place), token());
    let script = world.base().join("agent.py");
    let answer = r#"{"jsonrpc":"2.0","id":1,"result":{"has":"%s"}}"#;
    let text = format!(
        "import os, sys\nfor _ in sys.stdin:\n    print('{answer}' % os.environ.get('SOME_TOKEN', '-')[::-1], flush=True)\n"
    );
    world.write(&script, text);
    let mut command = world.lazaret("acp");
    command
        .env("SOME_TOKEN", &token)
        .args(["--", "python3"])
        .arg(&script)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut editor = command.spawn().unwrap();
    let (mut stdin, stdout) = (editor.stdin.take().unwrap(), editor.stdout.take().unwrap());
    let ask = json!({ "jsonrpc": "2.0", "id": 1, "method": "initialize", "params": { "protocolVersion": 1 } });
    stdin.write_all(format!("{ask}\n").as_bytes()).unwrap();
    let mut line = String::new();
    BufReader::new(stdout).read_line(&mut line).unwrap();
    let pid = editor.id() as i32;
    for process in tree(pid) {
        if process.name == "lazaret" {
            let found = forms_in_memory(process.pid, &token);
            // The agent has just said it, backwards, to show that it has it.
            assert!(found.iter().all(|form| *form == "reversed"), "{found:?}");
        }
    }
    let agent = below(pid, "python3");
    let environment = fs::read(format!("/proc/{}/environ", agent.pid)).unwrap();
    let has = memchr::memmem::find(&environment, token.as_bytes());
    assert!(has.is_some(), "control: the agent has it");
    let reversed: String = token.chars().rev().collect();
    assert!(line.contains(&reversed), "{line}");
    drop(stdin);
    editor.wait().unwrap();
    is_found_in_a_command_that_hears_nobody(&world, &token);
}

/// A server at which a person has logged in, by a secret of the environment of all that is started with it.
fn logged_in(world: &World, mode: &str, secret: &str) -> RemoteServer {
    logged_in_by(world, mode, "${LOGIN_SECRET}", secret)
}

/// Begins such a server, where the settings have `text` for the secret.
fn logged_in_by(world: &World, mode: &str, text: &str, secret: &str) -> RemoteServer {
    let remote = RemoteServer::start(world, mode);
    let login = json!({ "clientId": "of-the-test", "clientSecret": text });
    let entry = json!({ "type": "http", "url": remote.url(), "oauth": login });
    settings(world, json!({ "there": entry }));
    let mut command = servers(world);
    let login = answered_by(command.env("LOGIN_SECRET", secret));
    login.finish(LIMIT).success();
    remote
}

/// The secrets of a login that was renewed once.
fn of_login(secret: &str) -> Vec<String> {
    let tokens = [
        "access-token-0",
        "refresh-token-0",
        "access-token-1",
        "refresh-token-1",
    ];
    let tokens = tokens.iter().map(|token| format!("{token}-of-the-test"));
    tokens.chain([secret.to_owned()]).collect()
}

place_test!(no_token_of_a_login_is_in_the_memory_of_a_session_nor_in_its_files);
fn no_token_of_a_login_is_in_the_memory_of_a_session_nor_in_its_files(place: Place) {
    let (world, token) = (World::new(place), token());
    let remote = logged_in(&world, "login-short", &token);
    let stored = world.state.join("lazaret/servers/there.login");
    let first = fs::read_to_string(&stored).unwrap();
    let mut command = dressed(&world, world.lazaret("session"));
    let mut session = Session::start(command.env("LOGIN_SECRET", &token));
    let said = session.call("mcp__there__echo", json!({ "text": "x" }));
    assert_eq!(said.success(), "x");
    assert!(remote.was_asked("POST", "Bearer access-token-1-of-the-test"));
    assert!(remote.was_asked("POST", "refresh_token=refresh-token-0-of-the-test"));
    assert!(remote.was_asked("POST", &format!("of-the-test:{token}")));
    let secrets = of_login(&token);
    let all: Vec<&str> = secrets.iter().map(String::as_str).collect();
    has_no_secret(session.pid(), &all);
    let renewed = fs::read_to_string(&stored).unwrap();
    assert_ne!(first, renewed);
    let key = world.state.join("lazaret/login-key");
    let opened = |pid| open(&taken_over(pid), key.as_os_str().as_bytes(), libc::O_RDONLY);
    assert_eq!(opened(session.pid() as u32), Err(Errno::EACCES));
    let mut free = bystander(&world);
    assert!(opened(free.id()).is_ok(), "control");
    free.kill().unwrap();
    free.wait().unwrap();
    for secret in &secrets {
        assert!(
            !first.contains(secret) && !renewed.contains(secret),
            "{secret}"
        );
    }
    session.close(LIMIT);
    is_found_in_a_command_that_hears_nobody(&world, &token);
}

place_test!(no_secret_in_the_settings_of_servers_is_in_the_memory_of_a_session);
fn no_secret_in_the_settings_of_servers_is_in_the_memory_of_a_session(place: Place) {
    let world = World::new(place);
    let secrets = [(); 3].map(|()| token());
    let [of_client, of_header, of_path] = &secrets;
    let with_login = logged_in_by(&world, "login-short", of_client, of_client);
    let plain = RemoteServer::start(&world, "friendly");
    let login = json!({ "clientId": "of-the-test", "clientSecret": of_client });
    let header = json!({ "Authorization": format!("Bearer {of_header}") });
    let url = |key: &str| format!("{}?api_key={key}&tenant=of-the-test", plain.url());
    let entries = json!({
        "there": { "type": "http", "url": with_login.url(), "oauth": login },
        "header": { "url": plain.url(), "headers": header },
        "path": { "url": url(of_path) },
        "variable": { "url": url("${PATH_TOKEN}") },
    });
    settings(&world, entries);
    let of_variable = token();
    let mut command = dressed(&world, world.lazaret("session"));
    let mut session = Session::start(command.env("PATH_TOKEN", &of_variable));
    for server in ["there", "header", "path", "variable"] {
        let said = session.call(&format!("mcp__{server}__echo"), json!({ "text": "x" }));
        assert_eq!(said.success(), "x");
    }
    assert!(with_login.was_asked("POST", &format!("of-the-test:{of_client}")));
    for part in [
        &format!("Bearer {of_header}"),
        &format!("/mcp?api_key={of_path}&tenant=of-the-test"),
        &format!("/mcp?api_key={of_variable}&tenant=of-the-test"),
    ] {
        assert!(plain.was_asked("POST", part), "{part}");
    }
    let named = forms_in_memory(session.pid(), &plain.url());
    assert!(named.contains(&"plain"), "control");
    let mut all: Vec<&str> = secrets.iter().map(String::as_str).collect();
    all.push(&of_variable);
    has_no_secret(session.pid(), &all);
    session.close(LIMIT);
}

/// Searches the memory of a `command` that uses a login at a server in this mode, while that does not answer a request with `part`.
fn has_no_token((place, mode): (Place, &str), command: impl FnOnce(&World) -> Command, part: &str) {
    let (world, token) = (World::new(place), token());
    let remote = logged_in(&world, mode, &token);
    let mut command = command(&world);
    let running = Running::start(command.env("LOGIN_SECRET", &token));
    assert!(until(LIMIT, || remote.was_asked("POST", part)));
    assert!(remote.was_asked("POST", "Bearer access-token-1-of-the-test"));
    let secrets = of_login(&token);
    let all: Vec<&str> = secrets.iter().map(String::as_str).collect();
    has_no_secret(running.pid(), &all);
    kill_tree(running.pid());
    running.finish(LIMIT);
    is_found_in_a_command_that_hears_nobody(&world, &token);
}

place_test!(no_token_of_a_login_is_in_the_memory_of_a_call);
fn no_token_of_a_login_is_in_the_memory_of_a_call(place: Place) {
    let call = |world: &World| {
        let call = world.lazaret_call("mcp__there__sleep", &json!({}));
        dressed(world, call)
    };
    has_no_token((place, "login-short"), call, "\\\"sleep\\\"");
}

place_test!(no_token_of_a_login_is_in_the_memory_of_a_list_of_tools);
fn no_token_of_a_login_is_in_the_memory_of_a_list_of_tools(place: Place) {
    let tools = |world: &World| dressed(world, world.lazaret("tools"));
    has_no_token((place, "login-waits"), tools, "tools/list");
}

place_test!(no_token_of_a_login_is_in_the_memory_of_a_command_about_servers);
fn no_token_of_a_login_is_in_the_memory_of_a_command_about_servers(place: Place) {
    let status = |world: &World| {
        let mut command = servers(world);
        command.arg("status");
        command
    };
    has_no_token((place, "login-waits"), status, "tools/list");
}

place_test!(no_secret_of_the_environment_is_in_the_memory_of_a_sandbox);
fn no_secret_of_the_environment_is_in_the_memory_of_a_sandbox(place: Place) {
    let (world, token) = (World::new(place), token());
    let mut command = world.lazaret("sandboxd");
    command.env("SOME_TOKEN", &token);
    for port in ["--legacy-port", "--rest-port", "--grpc-port"] {
        command.args([port, "0"]);
    }
    let mut sandbox = Running::start(&mut command);
    let ready: Value = serde_json::from_slice(&sandbox.wait_for("\n", LIMIT)).unwrap();
    let at = ready["legacy"].as_str().unwrap();
    let body = json!({ "command": "echo it runs" }).to_string();
    let mut stream = TcpStream::connect(at).unwrap();
    let head = format!(
        "POST /execute HTTP/1.1\r\nHost: {at}\r\nContent-Type: application/json\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all((head + &body).as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.contains("it runs"), "{answer}");
    has_no_secret(sandbox.pid(), &[&token]);
    kill_tree(sandbox.pid());
    sandbox.finish(LIMIT);
    is_found_in_a_command_that_hears_nobody(&world, &token);
}

place_test!(no_header_of_a_collector_is_in_the_memory_of_an_export);
fn no_header_of_a_collector_is_in_the_memory_of_an_export(place: Place) {
    let (world, token) = (World::new(place), token());
    world.in_cell("true").success();
    let collector = ModelServer::answering("127.0.0.1", |_| Reply::status(200, &json!({})));
    let mut command = world.program("lazaret");
    let headers = format!("x-tenant=t,authorization=Bearer%20{token}");
    command
        .env("OTEL_EXPORTER_OTLP_LOGS_HEADERS", headers)
        .args(["audit", "export", "--follow", "--otlp", &collector.url()]);
    let mut export = Running::start(&mut command);
    export.wait_for("acknowledged", LIMIT);
    let head = &collector.asked()[0].head;
    let sent = format!("authorization: bearer {token}");
    assert!(
        head.contains(&sent) && head.contains("x-tenant: t"),
        "{head}"
    );
    has_no_secret(export.pid(), &[&token]);
    kill_tree(export.pid());
    let _ = export.child.wait();
}

place_test!(no_key_is_in_the_memory_of_a_list_of_models);
fn no_key_is_in_the_memory_of_a_list_of_models(place: Place) {
    let (world, token) = (World::new(place), token());
    let key = format!("sk-{}-of-nobody", lazaret_tests::world::unique());
    let server = ModelServer::start(vec![Reply {
        end: ReplyEnd::Hang,
        ..Reply::stream("{")
    }]);
    let mut command = world.program("lazaret");
    command
        .env("SOME_TOKEN", &token)
        .env("OPENAI_API_KEY", &key)
        .args(["models", "--provider", "openai-chat", "--base-url"])
        .arg(server.url());
    let models = Running::start(&mut command);
    assert!(until(LIMIT, || !server.asked().is_empty()));
    let head = &server.asked()[0].head;
    assert!(head.contains(&format!("bearer {key}")), "{head}");
    has_no_secret(models.pid(), &[&token, &key]);
    kill_tree(models.pid());
    models.finish(LIMIT);
}

/// The forms in which `value` is in some memory of the process `pid`.
fn forms_in_memory(pid: i32, value: &str) -> Vec<&'static str> {
    let digits = |before: &str| {
        let byte = |byte: u8| format!("{before}{byte:02x}");
        value.bytes().map(byte).collect::<String>()
    };
    let forms = [
        ("plain", value.to_owned()),
        ("hexadecimal", digits("")),
        ("address", digits("%")),
        ("reversed", value.chars().rev().collect()),
    ];
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap();
    let memory = fs::File::open(format!("/proc/{pid}/mem")).unwrap();
    let mut found = BTreeSet::new();
    let mut read = 0;
    for line in maps.lines() {
        let mut words = line.split_whitespace();
        let (range, rights) = (words.next().unwrap(), words.next().unwrap());
        let name = words.nth(3).unwrap_or_default();
        if !rights.starts_with('r') || name.starts_with("[v") {
            continue;
        }
        let (start, end) = range.split_once('-').unwrap();
        let [start, end] = [start, end].map(|text| u64::from_str_radix(text, 16).unwrap());
        let mut bytes = vec![0; (end - start) as usize];
        // A mapping behind the end of its file has no content.
        let Ok(length) = memory.read_at(&mut bytes, start) else {
            continue;
        };
        read += length;
        for (number, (_, form)) in forms.iter().enumerate() {
            if memchr::memmem::find(&bytes[..length], form.as_bytes()).is_some() {
                found.insert(number);
            }
        }
    }
    assert!(read > 1 << 20, "{read} bytes of memory were read");
    found.into_iter().map(|number| forms[number].0).collect()
}

place_test!(a_taken_over_prompt_gets_nothing);
/// A line that is edited, with its history, needs no right besides.
fn a_taken_over_prompt_gets_nothing(place: Place) {
    let world = World::new(place);
    let call = json!({"name": "file_read", "input": {"path": "attacked"}});
    let script = json!({"turns": [{"toolCalls": [call]}, {"text": "Done."}, {"text": "Again."}]});
    let path = world.home.join("script.json");
    world.write(&path, script.to_string());
    let mut command = world.lazaret("chat");
    command
        .args(["--trust", "autonomous", "--provider", "mock", "--script"])
        .arg(path)
        .arg("x");
    let mut terminal = Terminal::start(&mut command, 30, 100);
    terminal.expect("Done.", LIMIT);
    terminal.expect("> ", LIMIT);
    let pid = terminal.child.id() as i32;
    gets_nothing(&world, pid, Network::None, || {
        terminal.send("go on\r");
        terminal.expect("Again.", LIMIT);
        terminal.expect("> ", LIMIT);
        assert!(
            world
                .state
                .join("lazaret/chat_history")
                .metadata()
                .unwrap()
                .len()
                > 0
        );
    });
}

place_test!(a_taken_over_server_gets_nothing);
/// Nor has what serves an application: its sockets were bound before.
fn a_taken_over_server_gets_nothing(place: Place) {
    let world = World::new(place);
    let call = json!({"name": "file_read", "input": {"path": "attacked"}});
    let script = json!({"turns": [{"toolCalls": [call.clone()]}, {"text": "Done."}, {"toolCalls": [call]}, {"text": "Done."}]});
    let sidecar = Sidecar::start(&world, &script, &["--trust", "autonomous"]);
    let mut client = sidecar.client();
    let mut run = || {
        client.say("chat:send", json!({"content": "x", "conversationId": "c"}));
        client.to_end()
    };
    run();
    gets_nothing(&world, sidecar.running.pid(), Network::None, || {
        let all = run();
        let result = all
            .iter()
            .find(|message| message["type"] == "chat:tool-result")
            .unwrap();
        assert!(
            result["payload"]["result"]
                .as_str()
                .unwrap()
                .contains("content"),
            "{result}"
        );
    });
    sidecar.end().success();
}

/// Whether a process that was taken over can connect.
#[derive(Clone, Copy)]
enum Network {
    None,
    AsClient,
}

const SOCKETS: [(i32, i32); 4] = [
    (libc::AF_INET, libc::SOCK_STREAM),
    (libc::AF_INET, libc::SOCK_DGRAM),
    (libc::AF_INET6, libc::SOCK_STREAM),
    (libc::AF_UNIX, libc::SOCK_STREAM),
];

/// Attacks from within the process `pid`, which has had a call and goes on as if nothing had been, and from within one that is not
/// confined.
fn gets_nothing(world: &World, pid: i32, network: Network, goes_on: impl FnOnce()) {
    let mut by = bystander(world);
    let _bus = UnixListener::bind(world.home.join("bus")).unwrap();
    world.own(&world.home.join("bus"));
    let web = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut fixture = fixture(world, &by);
    let port = web.local_addr().unwrap().port().to_be_bytes();
    fixture.address = [
        &(libc::AF_INET as u16).to_le_bytes()[..],
        &port,
        &[127, 0, 0, 1],
        &[0; 8],
    ]
    .concat();

    let confined: Vec<_> = {
        let puppet = taken_over(pid as u32);
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        for line in ["Seccomp:\t2", "NoNewPrivs:\t1", "Threads:\t1"] {
            assert!(status.contains(line), "{line} is not in {status}");
        }
        for (family, kind) in SOCKETS {
            let connected = connect(&puppet, family, kind, &fixture.address);
            match (network, family == libc::AF_INET) {
                // The gateway's is left, and the test can tell a refusal from a call that it makes wrongly.
                (Network::AsClient, true) => assert_eq!(connected, Ok(0), "{kind}"),
                (Network::AsClient, false) => {}
                (Network::None, _) => assert_eq!(connected, Err(Errno::ENOSYS), "{family} {kind}"),
            }
        }
        ATTACKS
            .iter()
            .map(|attack| (attack.try_it)(&puppet, &fixture))
            .collect()
    };
    goes_on();
    let mut free = bystander(world);
    let puppet = taken_over(free.id());
    for kind in [libc::SOCK_STREAM, libc::SOCK_DGRAM] {
        assert_eq!(
            connect(&puppet, libc::AF_INET, kind, &fixture.address),
            Ok(0)
        );
    }
    let (mut held, mut untested) = (0, vec![]);
    for (attack, confined) in ATTACKS.iter().zip(confined) {
        match (attack.try_it)(&puppet, &fixture) {
            Ok(_) => held += 1,
            Err(errno) if attack.core => {
                panic!("{} does not work without walls: {errno}", attack.name)
            }
            Err(_) => untested.push(attack.name),
        }
        let refused = matches!(confined, Err(Errno::EACCES | Errno::EPERM | Errno::ENOSYS));
        assert!(refused, "{}: {confined:?}", attack.name);
    }
    drop(puppet);
    for child in [&mut by, &mut free] {
        let _ = child.kill();
        child.wait().unwrap();
    }
    println!("{held} of {} held, untested: {untested:?}", ATTACKS.len());
}

place_test!(without_the_web_there_is_no_socket);
/// Commands that need no web have no network at all, whether their cells have one or not.
fn without_the_web_there_is_no_socket(place: Place) {
    let world = World::new(place);
    let web = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = web.local_addr().unwrap().port().to_be_bytes();
    let address = [
        &(libc::AF_INET as u16).to_le_bytes()[..],
        &port,
        &[127, 0, 0, 1],
        &[0; 8],
    ]
    .concat();
    let marker = long_sleep();
    let mut command = world.lazaret("run");
    command.args(["--allow-host", "a.example:443", "--", "sleep", &marker]);
    let mut run = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    // Confined as soon as the executor has been asked, and so before the command begins.
    let runs = || {
        with_marker(&marker)
            .into_iter()
            .any(|process| process.name == "sleep")
    };
    assert!(until(LIMIT, runs));
    let all = tree(run.id() as i32);
    let gateway = |process: &&Process| process.name == "lazaret-network";
    assert_eq!(
        all.iter().find(gateway).map(|one| one.pid),
        None,
        "{all:#?}"
    );
    let puppet = taken_over(run.id());
    for (family, kind) in SOCKETS {
        assert_eq!(
            connect(&puppet, family, kind, &address),
            Err(Errno::ENOSYS),
            "{family} {kind}"
        );
    }
    drop(puppet);
    let _ = run.kill();
    run.wait().unwrap();
}
