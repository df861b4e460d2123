//! A key from the desktop keyring, of a bus and a service that the test plays.

use super::chats::{Printed, chat, configure, script};
use super::providers::{files_with, world};
use super::vendors::Vendor;
use lazaret_fakes::bus::FakeService;
use lazaret_tests::model_server::{ModelServer, Reply};
use lazaret_tests::process::until;
use lazaret_tests::sidecar::Sidecar;
use lazaret_tests::world::unique;
use lazaret_tests::{LIMIT, Serving, World, once_test, run};
use serde_json::json;
use std::fs::{self, Permissions};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A session bus that does the same with each connection, as long as the test's process runs.
struct Bus {
    address: String,
    connections: Arc<AtomicUsize>,
    _serving: Serving,
}

impl Bus {
    fn of(world: &World, service: FakeService) -> Self {
        Self::serving(world, move |stream| service.serve(stream))
    }

    /// One that takes connections and says nothing.
    fn silent(world: &World) -> Self {
        Self::serving(world, |mut stream| {
            drop(stream.read_to_end(&mut Vec::new()))
        })
    }

    fn serving(world: &World, serve: impl Fn(UnixStream) + Send + Sync + 'static) -> Self {
        let path = world.base().join(format!("bus-{}", unique()));
        let listener = UnixListener::bind(&path).unwrap();
        // The world's user may be another than the test's.
        fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
        let connections = Arc::<AtomicUsize>::default();
        let (count, serve) = (connections.clone(), Arc::new(serve));
        let serving = Serving::start(listener, move |stream| {
            count.fetch_add(1, Ordering::SeqCst);
            serve(stream);
        });
        Self {
            address: format!("unix:path={}", path.display()),
            connections,
            _serving: serving,
        }
    }

    fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    fn env<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        command.env("DBUS_SESSION_BUS_ADDRESS", &self.address)
    }
}

/// A key that is nowhere else.
fn fresh_key() -> String {
    format!("sk-{}", unique())
}

once_test!(a_key_of_the_keyring_goes_to_its_provider_and_nowhere_else);
fn a_key_of_the_keyring_goes_to_its_provider_and_nowhere_else() {
    let (world, key) = (world(), fresh_key());
    let bus = Bus::of(&world, FakeService::with(&key));
    let echo = Reply::status(
        401,
        &json!({"error": {"message": format!("wrong key {key}")}}),
    );
    let says = Vendor::Claude.answer(
        &format!("your key is {key}"),
        &[(
            "c",
            "bash",
            json!({"command": format!("echo {key}; env; cat /proc/self/environ")}),
        )],
    );
    let server = ModelServer::start(vec![says, Vendor::Claude.answer("done", &[]), echo]);
    for code in [0, 1] {
        let mut command = chat(&world, Vendor::Claude, &server);
        bus.env(command.args(["--trust", "autonomous", "--input-events", "x"]));
        let printed = Printed::of(&mut command);
        printed.finished.expect(code);
        let output = printed.finished.text() + &printed.finished.errors();
        assert!(
            !output.contains(&key) && output.contains("[redacted:MODEL_KEY]"),
            "{output}"
        );
        assert!(
            output.contains("using the key for claude from the desktop keyring"),
            "{output}"
        );
    }
    // The control: it was found, and sent.
    let asked = server.asked();
    assert!(
        asked.len() == 3
            && asked
                .iter()
                .all(|asked| asked.head.contains(&format!("x-api-key: {key}")))
    );
    for folder in [&world.state, &world.central, &world.project] {
        assert_eq!(
            files_with(folder, &key),
            [""; 0].map(std::path::PathBuf::from)
        );
    }
    assert!(
        !files_with(&world.state, r#""key":"keyring""#).is_empty(),
        "the transcript names the place"
    );
}

once_test!(a_server_has_the_key_of_the_keyring_and_starts_without_one);
fn a_server_has_the_key_of_the_keyring_and_starts_without_one() {
    let (world, key) = (world(), fresh_key());
    let bus = Bus::of(&world, FakeService::with(&key));
    let server = ModelServer::start(vec![Vendor::Claude.answer("done", &[])]);
    let mut command = Sidecar::command(&world, &script(&[]));
    let config = format!(
        "[providers.claude]\nbase_url = \"{}\"\nmodel = \"m\"",
        server.url()
    );
    configure(&world, &mut command, &config);
    let sidecar = Sidecar::of(bus.env(&mut command));
    let answer = sidecar.send(
        "POST",
        "/run",
        &json!({"prompt": "x", "provider": "claude"}),
    );
    assert_eq!(answer.status, 200, "{}", answer.body);
    assert!(
        server.asked()[0]
            .head
            .contains(&format!("x-api-key: {key}"))
    );
    // A thread that was left of reading it would have kept the server from confining itself.
    let status = fs::read_to_string(format!("/proc/{}/status", sidecar.running.pid())).unwrap();
    assert!(
        status.contains("Seccomp:\t2") && status.contains("Threads:\t1"),
        "{status}"
    );
    let finished = sidecar.end();
    assert!(!finished.errors().contains(&key) && !answer.body.contains(&key));
    assert!(files_with(&world.state, &key).is_empty());
    // A client may bring a key of its own: that there is none here ends nothing.
    let locked = Bus::of(&world, FakeService::locked());
    let sidecar = Sidecar::of(locked.env(&mut Sidecar::command(&world, &script(&[]))));
    let valid = sidecar.send("POST", "/keys/validate", &json!({"provider": "claude"}));
    assert!(valid.body.contains("secret-tool store"), "{}", valid.body);
    let finished = sidecar.end();
    assert!(
        finished
            .errors()
            .contains("claude: no key from the desktop keyring: it is locked")
    );
}

once_test!(the_keyring_is_asked_last_and_not_where_it_is_switched_off);
fn the_keyring_is_asked_last_and_not_where_it_is_switched_off() {
    let (world, key) = (world(), fresh_key());
    let bus = Bus::of(&world, FakeService::with(&key));
    let server = ModelServer::start((0..3).map(|_| Vendor::Claude.answer("done", &[])).collect());
    let file = world.home.join("key");
    world.write(&file, "sk-of-the-file");
    fs::set_permissions(&file, Permissions::from_mode(0o600)).unwrap();
    let ask = |change: &dyn Fn(&mut Command)| {
        let mut command = chat(&world, Vendor::Claude, &server);
        change(bus.env(command.arg("x")));
        Printed::of(&mut command).finished.success();
        server.asked().last().unwrap().head.clone()
    };
    let of_file = ask(&|command| _ = command.arg("--key-file").arg(&file));
    assert!(of_file.contains("x-api-key: sk-of-the-file"), "{of_file}");
    let of_variable = ask(&|command| _ = command.env("ANTHROPIC_API_KEY", "sk-of-the-variable"));
    assert!(
        of_variable.contains("x-api-key: sk-of-the-variable"),
        "{of_variable}"
    );
    let off = ask(&|command| configure(&world, command, "keyring = false"));
    assert!(!off.contains("x-api-key"), "{off}");
    assert_eq!(bus.connections(), 0);
    // The control: but for these it would have been.
    let mut command = world.program("lazaret");
    run(
        bus.env(command.args([
            "models",
            "--provider",
            "claude",
            "--base-url",
            &server.url(),
        ])),
        LIMIT,
    );
    assert_eq!(bus.connections(), 1);
    assert!(
        server
            .asked()
            .last()
            .unwrap()
            .head
            .contains(&format!("x-api-key: {key}"))
    );
}

once_test!(a_keyring_that_gives_no_key_is_an_error_with_its_reason);
fn a_keyring_that_gives_no_key_is_an_error_with_its_reason() {
    let world = world();
    let of = |secret: &str| FakeService::with(secret);
    let cases = [
        (
            FakeService::locked(),
            "no key from the desktop keyring: it is locked; unlock it",
        ),
        (
            FakeService {
                unlocked: 2,
                ..of("")
            },
            "2 items have these attributes",
        ),
        (of(&"k".repeat(4097)), "the secret has more than 4096 bytes"),
        (
            FakeService {
                secret: vec![0xff],
                ..of("")
            },
            "the secret is no text",
        ),
        (
            FakeService {
                sender: ":1.8",
                ..of("")
            },
            "an answer of another process",
        ),
        // These have no error of their own: there is no key.
        (
            FakeService {
                unlocked: 0,
                ..of("")
            },
            "auth_error: no key for claude: set ANTHROPIC_API_KEY",
        ),
        (
            FakeService {
                is_running: false,
                ..of("")
            },
            "store it in the desktop keyring (secret-tool store --label=Lazaret service lazaret",
        ),
    ];
    for (service, reason) in cases {
        let bus = Bus::of(&world, service);
        let mut command = world.program("lazaret");
        let finished = run(
            bus.env(command.args(["models", "--provider", "claude"])),
            LIMIT,
        );
        finished.expect(2);
        assert!(
            finished.errors().contains(reason),
            "{reason}: {}",
            finished.errors()
        );
    }
    // The socket of the runtime directory, where no address is named.
    let bus = Bus::of(&world, FakeService::locked());
    fs::rename(
        bus.address.strip_prefix("unix:path=").unwrap(),
        world.base().join("bus"),
    )
    .unwrap();
    let mut command = world.program("lazaret");
    command
        .args(["models", "--provider", "claude"])
        .env("XDG_RUNTIME_DIR", world.base());
    let finished = run(&mut command, LIMIT);
    assert!(
        finished.errors().contains("it is locked"),
        "{}",
        finished.errors()
    );
}

once_test!(a_silent_keyring_costs_seconds_and_no_server_of_ones_own);
fn a_silent_keyring_costs_seconds_and_no_server_of_ones_own() {
    let world = world();
    let bus = Bus::silent(&world);
    let mut command = world.program("lazaret");
    let finished = run(
        bus.env(command.args(["models", "--provider", "claude"])),
        LIMIT,
    );
    finished.expect(2);
    assert!(
        finished.errors().contains("no answer within 5 s"),
        "{}",
        finished.errors()
    );
    let server = ModelServer::start(vec![Vendor::Claude.answer("done", &[])]);
    let mut command = chat(&world, Vendor::Claude, &server);
    let printed = Printed::of(bus.env(command.arg("x")));
    printed.finished.success();
    assert!(
        printed.finished.errors().contains("no answer within 5 s"),
        "{}",
        printed.finished.errors()
    );
    assert!(!server.asked()[0].head.contains("x-api-key"));
    assert!(until(LIMIT, || bus.connections() == 2));
}
