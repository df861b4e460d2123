//! Gateways that the client starts, for an executor that has no network: `--socket PATH --gateway client`.
//!
//! The executor listens in a network namespace of its own, with nothing but a loopback.

use broker_protocol::{
    ErrorKind, Failed, FromBroker, GatewaySupply, NetworkRequest, Open, ToBroker,
};
use lazaret_fakes::PongServer;
use lazaret_tests::approval::audited;
use lazaret_tests::process::{Process, Running, below, kill_tree, until};
use lazaret_tests::wire::{Received, framed, opening};
use lazaret_tests::{Broker, Finished, LIMIT, Place, Session, World, place_test, run};
use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use serde_json::json;
use std::fs::{self, File};
use std::io::{IoSlice, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Command, Stdio};

const PERMITTED: &str = "[gateway]\nfrom_client = true";
/// Brings the loopback up (`SIOCSIFFLAGS`), and becomes the program in the arguments without the capabilities for that.
const BECOME: &str = "python3 -c 'import fcntl, socket, struct
fcntl.ioctl(socket.socket(), 0x8914, struct.pack(\"16sH14x\", b\"lo\", 0x41))'
exec setpriv --inh-caps=-all --ambient-caps=-all \"$@\"";

/// An executor without a network, which ends with this.
struct Offline {
    listener: Running,
    socket: PathBuf,
}

impl Offline {
    #[track_caller]
    fn start(world: &World) -> Self {
        let folder = world.home.join("run");
        world.make_folder(&folder);
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o700)).unwrap();
        let socket = folder.join("executor.sock");
        let executor = world.program("lazaret-executor");
        let mut command = Command::new("unshare");
        match world.place.account().uid.is_root() {
            true => command.arg("--net"),
            false => command.args(["--net", "--map-current-user", "--keep-caps"]),
        };
        command.args(["sh", "-c", BECOME, "sh"]);
        command
            .arg(executor.get_program())
            .args(executor.get_args());
        command.args(["listen", "--socket"]).arg(&socket);
        let changed = executor.get_envs();
        command
            .env_clear()
            .envs(changed.filter_map(|(name, value)| Some((name, value?))));
        command.env("XDG_CONFIG_HOME", world.home.join("settings"));
        world.place.as_user(&mut command);
        let listener = Running::start(&mut command);
        assert!(until(LIMIT, || UnixStream::connect(&socket).is_ok()));
        Self { listener, socket }
    }

    /// What a cell of the profile `net` prints, with these options.
    fn cell(&self, world: &World, options: &[&str], script: &str) -> Finished {
        let mut command = world.configured("run");
        command
            .args(["--profile", "net", "--socket"])
            .arg(&self.socket);
        run(
            command.args(options).args(["--", "bash", "-c", script]),
            LIMIT,
        )
    }
}

impl Drop for Offline {
    fn drop(&mut self) {
        kill_tree(self.listener.pid());
        let _ = self.listener.child.wait();
    }
}

fn world(place: Place, before: &str, server: &PongServer) -> World {
    let port = server.port;
    let network = format!("allow = ['localhost:{port}']\nprivate = ['localhost:{port}']");
    World::networked(place, before, &network)
}

fn ask(port: u16) -> String {
    format!("curl -sS --noproxy '' http://localhost:{port}/")
}

/// The gateways below a process.
fn gateways(root: i32) -> Vec<Process> {
    let mut all = below(root);
    all.retain(|process| process.name == "lazaret-gateway");
    all
}

place_test!(cells_of_an_executor_without_a_network_connect_from_the_clients);
fn cells_of_an_executor_without_a_network_connect_from_the_clients(place: Place) {
    let server = PongServer::start();
    let world = world(place, PERMITTED, &server);
    let executor = Offline::start(&world);
    // The control: the executor's own gateway reaches nothing.
    let own = executor.cell(&world, &[], &ask(server.port));
    assert!(!own.text().contains("pong"), "{}", own.text());
    assert_eq!(server.hits(), 0);
    let by_client = ["--gateway", "client"];
    let other = "; curl -sS http://other.example/";
    let done = executor.cell(&world, &by_client, &(ask(server.port) + other));
    assert!(
        done.text().contains("pong"),
        "{}{}",
        done.text(),
        done.errors()
    );
    assert!(
        done.errors().contains("other.example:80"),
        "{}",
        done.errors()
    );
    assert_eq!(server.hits(), 1);
    let records = audited(&world, "connection");
    let shown: Vec<_> = records
        .iter()
        .map(|one| json!([one["host"], one["verdict"]]))
        .collect();
    assert!(
        shown.contains(&json!(["localhost", "allowed"])),
        "{shown:?}"
    );
    assert!(
        shown.contains(&json!(["other.example", "not_listed"])),
        "{shown:?}"
    );
    let shown = executor.cell(&world, &["--gateway", "client", "-v"], "true");
    assert!(
        shown.errors().contains("the client starts the gateway"),
        "{}",
        shown.errors()
    );
}

place_test!(a_gateway_of_the_client_that_is_killed_is_followed_by_another);
fn a_gateway_of_the_client_that_is_killed_is_followed_by_another(place: Place) {
    let server = PongServer::start();
    let world = world(place, PERMITTED, &server);
    let executor = Offline::start(&world);
    let mut command = world.configured("session");
    command
        .args(["--profile", "net", "--gateway", "client", "--socket"])
        .arg(&executor.socket);
    let mut session = Session::start(&mut command);
    assert!(session.bash(&ask(server.port)).success().contains("pong"));
    let [first] = &gateways(session.pid())[..] else {
        panic!("{:?}", gateways(session.pid()));
    };
    first.kill();
    assert!(until(LIMIT, || !first.is_alive()));
    let answer = session.bash(&ask(server.port));
    assert!(answer.success().contains("pong"), "{}", answer.text());
    let found = answer.result["metadata"]["found"].to_string();
    assert!(found.contains("Another one serves now"), "{found}");
    let left = below(session.pid());
    assert!(session.close(LIMIT).success());
    assert!(lazaret_tests::process::left_after(&left, LIMIT).is_empty());
}

place_test!(only_a_policy_lets_a_client_start_gateways_and_none_with_a_credential);
fn only_a_policy_lets_a_client_start_gateways_and_none_with_a_credential(place: Place) {
    let server = PongServer::start();
    let by_client = ["--gateway", "client"];
    for (before, why) in [
        ("", "`from_client = true`"),
        ("[gateway]\nfrom_client = false", "`from_client = true`"),
    ] {
        let world = world(place, before, &server);
        let executor = Offline::start(&world);
        let refused = executor.cell(&world, &by_client, &ask(server.port));
        assert!(refused.errors().contains(why), "{}", refused.errors());
        assert!(!refused.text().contains("pong"));
    }
    let port = server.port;
    let world = world(place, "", &server);
    let key = world.home.join("key");
    world.write(&key, "a-key-of-nobody\n");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap();
    world.set_policy(format!(
        "version = 1\n{PERMITTED}\n[credential.own]\nfrom = {{ file = '{}' }}\nhosts = ['localhost:{port}']\nattach = 'bearer'\nenv = \
         ['OWN_KEY']\n[profile.net]\ncredentials = ['own']\n[profile.net.network]\nallow = ['localhost:{port}']\n",
        key.display()
    ));
    let executor = Offline::start(&world);
    let held = executor.cell(&world, &[], "echo \"${OWN_KEY:-none}\"");
    assert!(!held.success().contains("none"), "the control");
    let refused = executor.cell(&world, &by_client, "true");
    let why = "own: a credential is used by a gateway that the executor starts";
    assert!(refused.errors().contains(why), "{}", refused.errors());
}

place_test!(a_session_that_names_the_client_needs_its_line);
fn a_session_that_names_the_client_needs_its_line(place: Place) {
    let server = PongServer::start();
    let world = world(place, PERMITTED, &server);
    let full = UnixStream::pair().unwrap();
    full.0.set_nonblocking(true).unwrap();
    while (&full.0).write(&[0; 1 << 16]).is_ok() {}
    let null: OwnedFd = File::open("/dev/null").unwrap().into();
    // One that takes nothing now costs the broker no time.
    for (line, part) in [
        (None, "has sent no line"),
        (Some(null), "its line for that cannot be used"),
        (Some(full.0.into()), "its line for that cannot be used"),
    ] {
        let mut command = world.program("lazaret-executor");
        command.env("XDG_CONFIG_HOME", world.home.join("settings"));
        let mut broker = Broker::spawn(&world, command);
        broker.greet();
        if let Some(line) = line {
            let (frame, rights) = (framed(&ToBroker::GatewayLine), [line.as_raw_fd()]);
            let (parts, rights) = ([IoSlice::new(&frame)], [ControlMessage::ScmRights(&rights)]);
            let to = broker.stream.as_raw_fd();
            sendmsg::<()>(to, &parts, &rights, MsgFlags::empty(), None).unwrap();
        }
        broker.send(&ToBroker::Open(Open {
            network: Some(NetworkRequest {
                hosts: vec!["a.example:443".into()],
                gateway: GatewaySupply::Client,
                ..NetworkRequest::default()
            }),
            ..opening(&world)
        }));
        let got = broker.receive(LIMIT);
        let Received::Message(FromBroker::Fault(Failed { kind, message })) = got else {
            panic!("{got:?}")
        };
        assert_eq!(kind, ErrorKind::InvalidInput);
        assert!(message.contains(part), "{message}");
    }
}

/// Sends a socket over the line that `LINE` names, and prints whether whoever reads there starts a gateway or drops it.
const SEND: &str = "import os, socket, struct, time
sent, theirs = socket.socketpair(); sent.settimeout(0.1)
rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, struct.pack('i', theirs.fileno()))]
if os.geteuid() == 0 and 'FORGED' in os.environ: rights.append((socket.SOL_SOCKET, 2, struct.pack('3i', 1, 0, 0)))
socket.socket(fileno=os.dup(int(os.environ['LINE']))).sendmsg([b'x'], rights); theirs.close()
pid = os.environ['STARTER']; end = time.time() + 60; seen = ''
while not seen and time.time() < end:
    if open(f'/proc/{pid}/task/{pid}/children').read(): seen = 'started'
    try: seen = seen or sent.recv(1) == b'' and 'dropped'
    except TimeoutError: pass
print(seen)";

place_test!(a_client_that_is_taken_over_has_no_gateway_started);
/// It still has the executor's end of the line, for its next session. Here the test is what started the starter.
fn a_client_that_is_taken_over_has_no_gateway_started(place: Place) {
    let world = World::new(place);
    let script = format!(
        "import os, socket, subprocess, sys
ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
starter = subprocess.Popen(sys.argv[2:] + ['gateway-starter'], stdin=theirs); theirs.close()
os.environ['LINE'], os.environ['STARTER'] = str(ours.fileno()), str(starter.pid)
if sys.argv[1] == 'parent':
    exec({SEND:?})
else:
    subprocess.run([sys.executable, '-c', {SEND:?}], pass_fds=[ours.fileno()])
ours.close(); starter.wait()"
    );
    let send = |who: &str| {
        let lazaret = world.program("lazaret");
        let mut command = Command::new("python3");
        command
            .args(["-c", &script, who])
            .arg(lazaret.get_program());
        command.args(lazaret.get_args()).stdin(Stdio::null());
        // Root may state that another process has sent it.
        command.env("FORGED", "1");
        world.place.as_user(&mut command);
        run(&mut command, LIMIT).success()
    };
    assert_eq!(send("executor").trim(), "started", "the control");
    assert_eq!(send("parent").trim(), "dropped");
}
