//! Keys of the user's ssh agent in cells: logins in sessions that the gateway carries, signatures for git after a yes, and nothing else.
//! The agent, the server and git are Debian's own. Each attack is made on the user's agent too, where it works.

use lazaret_tests::approval::{asked, audited};
use lazaret_tests::connect_proxy::ConnectProxy;
use lazaret_tests::not_run;
use lazaret_tests::process::{below, left_after, until};
use lazaret_tests::session::Answer;
use lazaret_tests::{LIMIT, Place, Serving, Session, User, World, place_test, run};
use nix::unistd::geteuid;
use serde_json::json;
use std::collections::BTreeSet;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// `/usr/sbin` is not in everybody's `PATH`.
const SSHD: &str = "/usr/sbin/sshd";

/// A host with sshd that has the names `forge.example`, which the policy names, and `other.example`, and a user whose agent has two
/// keys that log in there; the policy names one of them.
struct Forge {
    world: World,
    /// The files of the host. They are an ordinary user's, as sshd needs folders of the machine for root.
    host: World,
    agent: Child,
    port: u16,
    _proxy: ConnectProxy,
    _serving: Serving,
}

const KEYS: &str = "
    for key in named unnamed third; do ssh-keygen -q -t ed25519 -N '' -C \"$key of me\" -f $key; done
    ssh-keygen -lf named.pub | cut -d' ' -f2";

const HOST: &str = "
    ssh-keygen -q -t ed25519 -N '' -f host.key
    printf 'HostKey %s\\nAuthorizedKeysFile %s\\nStrictModes no\\nUsePAM no\\nPidFile none\\nPasswordAuthentication no\\n' \
        $PWD/host.key $PWD/authorized > sshd.conf
    printf 'KbdInteractiveAuthentication no\\nPermitUserRC no\\n' >> sshd.conf
    git init -q --bare repository.git
    cut -d' ' -f1,2 host.key.pub";

impl Forge {
    fn start(place: Place) -> Self {
        if !Path::new(SSHD).exists() {
            not_run(format!("no {SSHD}: apt-get install openssh-server"));
        }
        if place.account().home.is_dir() && !geteuid().is_root() {
            not_run("only root can put another home in the place of the account's");
        }
        let world = World::new(place);
        let of_host = Place {
            user: User::Ordinary,
            ..place
        };
        let host = World::new(of_host);
        let fingerprint = world.set_up(&format!("cd {}; {KEYS}", world.outside.display()));
        let key = host.set_up(&format!("cd {}; {HOST}", host.outside.display()));
        let public = |name: &str| fs::read_to_string(world.outside.join(name)).unwrap();
        let both = public("named.pub") + &public("unnamed.pub");
        host.write(&host.outside.join("authorized"), both);
        let known: String = ["forge.example", "other.example"]
            .map(|name| format!("{name} {key}"))
            .concat();
        world.write(&world.home.join(".ssh/known_hosts"), known);
        // As Debian's ssh writes them.
        world.set_up("ssh-keygen -q -H -f ~/.ssh/known_hosts; rm -f ~/.ssh/known_hosts.old");
        let (port, serving) = serve(of_host, host.outside.join("sshd.conf"));
        let proxy = ConnectProxy::to(port);
        let agent = start_agent(&world);
        let user = &host.place.account().name;
        let entry = |name: &str, uses: &str| {
            format!(
                "[ssh.{name}]\nhosts = ['forge.example']\nuser = '{user}'\nkeys = ['{}']\nuse = '{uses}'\nsign = 'ask'\n\
                 [profile.{name}]\nssh = ['{name}']\n[profile.{name}.network]\nallow = ['other.example:22']\n",
                fingerprint.trim()
            )
        };
        world.set_policy(format!(
            "version = 1\n[gateway]\n{}\nproxy_names = true\n{}{}\
             [profile.without.network]\nallow = ['forge.example:22']\n",
            proxy.line(),
            entry("unasked", "allow"),
            entry("asked", "ask"),
        ));
        Self {
            world,
            host,
            agent,
            port,
            _proxy: proxy,
            _serving: serving,
        }
    }

    /// A session whose user has the world's home as the one of the account, where `known_hosts` is looked for.
    fn session(&self, profile: &str) -> Session {
        let inner = self.world.configured("session");
        let home = &self.world.place.account().home;
        let mut command = match home.is_dir() {
            true => {
                let mut command = self.with_home_at(home);
                command.arg(inner.get_program()).args(inner.get_args());
                command.env("XDG_CONFIG_HOME", self.world.home.join("settings"));
                command
            }
            false => inner,
        };
        command.env("SSH_AUTH_SOCK", socket(&self.world));
        Session::start(command.args(["--profile", profile]))
    }

    /// Runs a program as the place's user, with the world's home mounted over `home`, which only root can do.
    fn with_home_at(&self, home: &Path) -> Command {
        let account = self.world.place.account();
        let as_user = self.world.host("true");
        let mut command = Command::new("unshare");
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default());
        for (name, value) in as_user.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        if let Some(folder) = as_user.get_current_dir() {
            command.current_dir(folder);
        }
        command.args(["-m", "sh", "-c"]);
        command
            .arg("mount --bind \"$HOME\" \"$0\" && exec \"$@\"")
            .arg(home);
        command.args(["setpriv", "--clear-groups"]);
        command.arg(format!("--reuid={}", account.uid));
        command.arg(format!("--regid={}", account.gid));
        command.arg("--");
        command
    }

    /// The script of a login at a host in a cell.
    fn login(&self, at: &str) -> String {
        let user = &self.host.place.account().name;
        format!(
            "$GIT_SSH_COMMAND -o BatchMode=yes -T {user}@{at} echo logged in 2>&1 | grep -E 'logged in|denied'"
        )
    }

    /// A script outside, where the user's agent is.
    fn outside(&self, script: &str) -> String {
        let mut command = self.world.host("bash");
        command.env("SSH_AUTH_SOCK", socket(&self.world));
        command.env("GIT_SSH_COMMAND", self.ssh());
        let done = run(command.args(["-c", script]), LIMIT);
        done.text() + &done.errors()
    }

    /// `ssh` as it reaches the host from outside.
    fn ssh(&self) -> String {
        format!(
            "ssh -F none -p {} -o HostName=127.0.0.1 -o HostKeyAlias=forge.example -o UserKnownHostsFile={}",
            self.port,
            self.world.home.join(".ssh/known_hosts").display()
        )
    }

    fn repository(&self) -> PathBuf {
        self.host.outside.join("repository.git")
    }

    fn url(&self) -> String {
        let user = &self.host.place.account().name;
        format!("ssh://{user}@forge.example{}", self.repository().display())
    }

    /// Makes the attacks of `ATTACKS` in a cell and outside.
    fn attack(&self, session: &mut Session, words: &str) -> [String; 2] {
        self.world.put("attacks.py", ATTACKS);
        for name in ["named.pub", "unnamed.pub", "third"] {
            let content = fs::read(self.world.outside.join(name)).unwrap();
            self.world.put(name, content);
        }
        let user = &self.host.place.account().name;
        let script = format!("python3 attacks.py {user} {words} 2>&1");
        let inside = session.bash(&script).text().to_owned();
        [inside, self.outside(&script)]
    }
}

impl Drop for Forge {
    fn drop(&mut self) {
        let _ = self.agent.kill();
        let _ = self.agent.wait();
    }
}

fn socket(world: &World) -> PathBuf {
    world.outside.join("agent")
}

/// The user's agent, with the first two keys.
fn start_agent(world: &World) -> Child {
    let mut command = world.host("ssh-agent");
    command.arg("-D").arg("-a").arg(socket(world));
    let agent = command.stdout(Stdio::null()).spawn().unwrap();
    assert!(until(LIMIT, || UnixStream::connect(socket(world)).is_ok()));
    world.set_up(&format!(
        "cd {}; export SSH_AUTH_SOCK=$PWD/agent; ssh-add -q named unnamed",
        world.outside.display()
    ));
    agent
}

/// Gives each connection an sshd of its own, so none needs a service of the machine.
fn serve(place: Place, settings: PathBuf) -> (u16, Serving) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let serving = Serving::start(listener, move |client: TcpStream| {
        let mut command = Command::new(SSHD);
        place.as_user(&mut command);
        let output = OwnedFd::from(client.try_clone().unwrap());
        command.arg("-i").arg("-f").arg(&settings);
        command.arg("-E").arg(settings.with_file_name("log"));
        command.stdin(OwnedFd::from(client)).stdout(output);
        let mut sshd = command.stderr(Stdio::null()).spawn().unwrap();
        // Until then the command has the descriptors too.
        drop(command);
        let _ = sshd.wait();
    });
    (port, serving)
}

/// Starts a call whose question the caller answers.
fn start(session: &mut Session, id: &str, script: &str) {
    session.send(&json!({ "id": id, "tool": "bash", "input": { "command": script } }));
}

/// Starts a call, answers its question, and returns the question's text and the result.
fn answered(session: &mut Session, id: &str, script: &str, answer: &str) -> (String, Answer) {
    start(session, id, script);
    let question = asked(session, id);
    session.send(&json!({ "id": id, "approve": answer }));
    let why = question["why"].as_str().unwrap().to_owned();
    (why, session.answer_within(id, LIMIT))
}

const IDENTITY: &str = "-c user.name=a -c user.email=a@b.invalid";

place_test!(git_and_ssh_log_in_where_the_policy_allows_it);
fn git_and_ssh_log_in_where_the_policy_allows_it(place: Place) {
    let forge = Forge::start(place);
    let mut session = forge.session("unasked");
    let done = session.bash(&forge.login("forge.example"));
    assert_eq!(done.success(), "logged in\n");
    let script = format!(
        "git clone -q {} work 2>&1 && cd work && git {IDENTITY} commit -q --allow-empty -m one && git push -q origin HEAD:refs/heads/main 2>&1; \
         git rev-parse HEAD",
        forge.url()
    );
    let done = session.bash(&script);
    let refs = format!(
        "git --git-dir {} rev-parse main",
        forge.repository().display()
    );
    let pushed = forge.host.on_host(&refs);
    assert!(
        done.success().ends_with(&pushed.success()),
        "{}",
        done.text()
    );
    let logins = audited(&forge.world, "ssh_login");
    let calls: Vec<_> = logins.iter().map(|login| &login["call"]).collect();
    assert!(calls.len() == 3 && calls[0] != calls[1], "{logins:#?}");
    assert!(logins.iter().all(|login| login["host"] == "forge.example"));
    assert!(session.close(LIMIT).success());
}

/// Gives the host a key of each of these kinds, and has the user know it. `ssh-keygen` makes one of each with `-t KIND -b BITS`.
const MORE_HOST_KEYS: &str = "
    for kind in ecdsa-256 ecdsa-384 ecdsa-521 rsa-2048; do
        ssh-keygen -q -t ${kind%-*} -b ${kind#*-} -N '' -f $kind
        echo HostKey $PWD/$kind >> sshd.conf
        cut -d' ' -f1,2 $kind.pub
    done";

place_test!(host_keys_of_each_kind_are_verified_and_of_others_refused);
/// The control is the last row: outside, the same kind of key logs in.
fn host_keys_of_each_kind_are_verified_and_of_others_refused(place: Place) {
    let forge = Forge::start(place);
    let folder = forge.host.outside.display();
    let keys = forge.host.set_up(&format!("cd {folder}; {MORE_HOST_KEYS}"));
    let known = forge.world.home.join(".ssh/known_hosts");
    let mut lines = fs::read_to_string(&known).unwrap();
    lines.extend(keys.lines().map(|key| format!("forge.example {key}\n")));
    forge.world.write(&known, lines);
    let mut session = forge.session("unasked");
    let login = forge.login("forge.example");
    let with = |kind: &str| login.replacen(" -o", &format!(" -o HostKeyAlgorithms={kind} -o"), 1);
    for kind in [
        "ssh-ed25519",
        "ecdsa-sha2-nistp256",
        "ecdsa-sha2-nistp384",
        "rsa-sha2-256",
        "rsa-sha2-512",
    ] {
        assert_eq!(session.bash(&with(kind)).text(), "logged in\n", "{kind}");
    }
    let last = "ecdsa-sha2-nistp521";
    let refused = session.bash(&with(last)).text().to_owned();
    assert!(refused.contains("Permission denied"), "{refused}");
    let outside = with(last).replace("$GIT_SSH_COMMAND", &forge.ssh());
    let outside = outside.replace("@forge.example", "@host");
    assert_eq!(forge.outside(&outside), "logged in\n");
}

place_test!(host_keys_that_ssh_refuses_are_signed_nothing);
/// Each with what is added to the files. The control is `ssh` outside, which refuses the same; the first row logs in at both.
fn host_keys_that_ssh_refuses_are_signed_nothing(place: Place) {
    let forge = Forge::start(place);
    let folder = forge.world.home.join(".ssh");
    let key = fs::read_to_string(forge.host.outside.join("host.key.pub")).unwrap();
    let key = key.split(' ').take(2).collect::<Vec<_>>().join(" ");
    let blob = key.split(' ').nth(1).unwrap();
    let login = forge.login("forge.example");
    let files = format!("{0}/known_hosts {0}/known_hosts2", folder.display());
    let alone = format!("UserKnownHostsFile={}/known_hosts", folder.display());
    let ssh = forge
        .ssh()
        .replace(&alone, &format!("\"UserKnownHostsFile={files}\""));
    let outside = login.replace("$GIT_SSH_COMMAND", &ssh);
    let outside = outside.replace("@forge.example", "@host") + " || echo refused";
    let plain = format!("forge.example {key}\n");
    for (text, more, is_known) in [
        (plain.clone(), String::new(), true),
        (
            format!("{plain} @revoked forge.example {key}\n"),
            String::new(),
            false,
        ),
        (
            format!("{plain}\t@revoked forge.example {key}\n"),
            String::new(),
            false,
        ),
        (plain, format!("@revoked forge.example {key}\n"), false),
        (
            format!("forge.example,!*.example {key}\n"),
            String::new(),
            false,
        ),
        (
            format!("!forge.example,forge.example {key}\n"),
            String::new(),
            false,
        ),
        (
            format!("forge.example ssh-rsa {blob}\n"),
            String::new(),
            false,
        ),
    ] {
        forge.world.write(&folder.join("known_hosts"), &text);
        forge.world.write(&folder.join("known_hosts2"), &more);
        let mut session = forge.session("unasked");
        // The command accepts each key.
        let trusting = "ssh -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null";
        let inside = session.bash(&login.replace("$GIT_SSH_COMMAND", trusting));
        let refused = inside.text().contains("Permission denied");
        assert_eq!(
            inside.text().contains("logged in"),
            is_known,
            "{text}{more}"
        );
        assert_eq!(refused, !is_known, "{text}{more}");
        let denied = inside.result["metadata"]["denied"].to_string();
        let is_named = denied.contains("signs no login at forge.example: ");
        assert_eq!(is_named, !is_known, "{denied}");
        let outside = forge.outside(&outside);
        assert_eq!(
            outside.contains("logged in"),
            is_known,
            "{text}{more}{outside}"
        );
    }
}

place_test!(a_login_waits_for_its_answer_where_the_policy_asks);
fn a_login_waits_for_its_answer_where_the_policy_asks(place: Place) {
    let forge = Forge::start(place);
    let mut session = forge.session("asked");
    let login = forge.login("forge.example");
    let (why, done) = answered(&mut session, "a", &login, "no");
    for part in ["log in as ", "forge.example:22", "(asked)"] {
        assert!(why.contains(part), "{part}: {why}");
    }
    assert!(done.text().contains("Permission denied"), "{}", done.text());
    let denied = done.result["metadata"]["denied"].to_string();
    for part in ["forge.example:22", "the user has not allowed its ssh agent"] {
        assert!(denied.contains(part), "{part}: {denied}");
    }
    let (_, done) = answered(&mut session, "b", &login, "once");
    assert_eq!(done.success(), "logged in\n");
    let (_, done) = answered(&mut session, "c", &login, "session");
    assert_eq!(done.success(), "logged in\n");
    assert_eq!(session.bash(&login).success(), "logged in\n");
    let answers = audited(&forge.world, "request_answered");
    let given: Vec<_> = answers.iter().map(|one| &one["answer"]).collect();
    assert_eq!(given, ["refused", "granted", "granted"]);
}

place_test!(without_a_policy_there_is_no_agent);
fn without_a_policy_there_is_no_agent(place: Place) {
    let forge = Forge::start(place);
    let connect = "python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect(\"/run/lazaret-ssh-agent\"); print(\"GOT\")' 2>&1";
    let mut session = forge.session("without");
    let said = session.bash(&format!("echo \"<$SSH_AUTH_SOCK>\"; {connect}"));
    let said = said.text();
    assert!(said.contains("<>") && !said.contains("GOT"), "{said}");
    let login = forge.login("forge.example");
    let login = login.replace("$GIT_SSH_COMMAND", "ssh -o StrictHostKeyChecking=no");
    let said = session.bash(&login);
    assert!(said.text().contains("Permission denied"), "{}", said.text());
    let mut session = forge.session("unasked");
    let said = session.bash(&format!("echo $SSH_AUTH_SOCK; {connect}"));
    assert_eq!(said.success(), "/run/lazaret-ssh-agent\nGOT\n");
    for (profile, is_left_out) in [("without", true), ("unasked", false)] {
        let mut command = forge.world.configured("run");
        command.env("SSH_AUTH_SOCK", socket(&forge.world));
        command.args(["-v", "--profile", profile, "--", "true"]);
        let notes = run(&mut command, LIMIT).errors();
        let names = notes.lines().find(|line| line.contains("does not get"));
        let is_named = names.is_some_and(|names| names.contains("SSH_AUTH_SOCK"));
        assert_eq!(is_named, is_left_out, "{notes}");
    }
}

place_test!(a_commit_is_signed_after_a_yes);
fn a_commit_is_signed_after_a_yes(place: Place) {
    let forge = Forge::start(place);
    let mut session = forge.session("unasked");
    session.bash("git init -q made").success();
    let commit = format!(
        "cd made && git {IDENTITY} -c gpg.format=ssh -c user.signingkey=\"key::$(ssh-add -L)\" commit -q -S --allow-empty -m one 2>&1"
    );
    let (why, done) = answered(&mut session, "a", &commit, "no");
    assert!(why.contains("cannot be shown"), "{why}");
    assert!(!done.ok(), "{}", done.text());
    let (_, done) = answered(&mut session, "b", &commit, "once");
    done.success();
    let verify = format!(
        "cd made && (printf 'a@b.invalid '; cat {}/named.pub) > ../signers && \
         git -c safe.directory='*' -c gpg.ssh.allowedSignersFile=$PWD/../signers verify-commit HEAD 2>&1; git rev-list --count HEAD",
        forge.world.outside.display()
    );
    let verified = forge.outside(&verify);
    assert!(
        verified.contains("Good \"git\" signature for a@b.invalid"),
        "{verified}"
    );
    assert!(verified.ends_with("\n1\n"), "{verified}");
    // A yes is for one signature: nothing more is offered, and nothing more is given to who asks for it all the same.
    start(&mut session, "c", &commit);
    let question = asked(&mut session, "c");
    assert_eq!(
        (&question["session"], &question["forSession"]),
        (&json!("request_once"), &json!(null))
    );
    session.send(&json!({ "id": "c", "approve": "session" }));
    session.answer_within("c", LIMIT).success();
    let (_, done) = answered(&mut session, "d", &commit, "no");
    assert!(!done.ok(), "{}", done.text());
    // The control: of a login more is offered.
    let mut session = forge.session("asked");
    start(&mut session, "e", &forge.login("forge.example"));
    let question = asked(&mut session, "e");
    assert_eq!(question["session"], "request");
    assert!(question["forSession"].is_string(), "{question}");
    session.send(&json!({ "id": "e", "approve": "no" }));
    session.answer_within("e", LIMIT);
}

/// Speaks the agent's protocol: `USER ATTACK…`, each answered by the number of the agent's message, `closed` if there is none.
const ATTACKS: &str = r#"
import base64, os, socket, struct, subprocess, sys
def string(data): return struct.pack('>I', len(data)) + data
def key(name): return base64.b64decode(open(name + '.pub').read().split()[1])
def talk(*messages):
    s, got = socket.socket(socket.AF_UNIX), []
    s.settimeout(100); s.connect(os.environ['SSH_AUTH_SOCK'])
    for message in messages:
        try:
            s.sendall(string(message))
            head = s.recv(4, socket.MSG_WAITALL)
            got.append(s.recv(struct.unpack('>I', head)[0], socket.MSG_WAITALL)[0] if len(head) == 4 else 'closed')
        except OSError: got.append('closed')
    return got
def sign(name, data): return b'\x0d' + string(key(name)) + string(data) + b'\0\0\0\0'
def signed(namespace): return b'SSHSIG' + string(namespace) + string(b'') + string(b'sha512') + string(b'h' * 64)
def login(sid):
    parts = [user, b'ssh-connection', b'publickey']
    return string(sid) + b'\x32' + b''.join(map(string, parts)) + b'\1' + string(b'ssh-ed25519') + string(key('named'))
def bind(): return open('bind', 'rb').read()
def sid():
    at, parts = 1, []
    while len(parts) < 3:
        size = struct.unpack('>I', bind()[at:at + 4])[0]
        parts.append(bind()[at + 4:at + 4 + size]); at += 4 + size
    return parts[2]
def capture():
    s = socket.socket(socket.AF_UNIX); s.bind('capture'); s.listen()
    ssh = subprocess.Popen(os.environ['GIT_SSH_COMMAND'].split() + ['-o', 'BatchMode=yes', '-o', 'IdentityAgent=' + os.getcwd() + '/capture', user.decode() + '@forge.example', 'true'])
    c, _ = s.accept(); size = struct.unpack('>I', c.recv(4, socket.MSG_WAITALL))[0]
    open('bind', 'wb').write(c.recv(size, socket.MSG_WAITALL)); c.close(); s.close(); ssh.wait(); os.unlink('capture')
    return 'captured'
user = sys.argv[1].encode()
attacks = {
    'capture': capture,
    'unbound': lambda: talk(sign('named', login(b's' * 32))),
    'elsewhere': lambda: talk(bind(), sign('named', login(sid()))),
    'forwarded': lambda: talk(bind()[:-1] + b'\1'),
    'namespace': lambda: talk(sign('named', signed(b'file'))),
    'unnamed': lambda: talk(sign('unnamed', signed(b'git'))),
    'large': lambda: talk(b'\x1b' + string(b'x' * 40000)),
    'add': lambda: subprocess.run('cat third > .third; chmod 600 .third; ssh-add -q .third', shell=True).returncode,
    'lock': lambda: talk(b'\x16' + string(b'word'), b'\x17' + string(b'word')),
    'remove': lambda: talk(b'\x13'),
    'list': lambda: len(subprocess.run(['ssh-add', '-L'], capture_output=True).stdout.splitlines()),
}
for name in sys.argv[2:]: print(name, attacks[name](), flush=True)
"#;

place_test!(the_agent_signs_and_does_nothing_else);
fn the_agent_signs_and_does_nothing_else(place: Place) {
    let forge = Forge::start(place);
    let mut session = forge.session("unasked");
    let words = "list unbound namespace unnamed large add lock remove";
    let [inside, outside] = forge.attack(&mut session, words);
    let refused = "list 1\nunbound [5]\nnamespace [5]\nunnamed [5]\nlarge ['closed']\n";
    assert!(inside.starts_with(refused), "{inside}");
    for line in ["add 1\n", "lock [5, 5]\n", "remove [5]\n"] {
        assert!(inside.contains(line), "{line}: {inside}");
    }
    let control = "list 2\nunbound [14]\nnamespace [14]\nunnamed [14]\nlarge [5]\nadd 0\nlock [6, 6]\nremove [6]\n";
    assert_eq!(outside, control);
    // The first refusal of each kind is recorded at once: of a message and of a signature. Equal ones are counted and come later.
    let kinds = || {
        let mut records = audited(&forge.world, "connection");
        records.retain(|one| one["verdict"] == "request_refused");
        records
            .iter()
            .map(|one| one["why"].to_string())
            .collect::<BTreeSet<_>>()
    };
    assert!(until(LIMIT, || kinds().len() >= 2), "{:?}", kinds());
    // The question of a signature for git never came.
    assert!(audited(&forge.world, "request_asked").is_empty());
    assert!(audited(&forge.world, "ssh_login").is_empty());
}

place_test!(refusals_of_the_last_second_are_recorded);
fn refusals_of_the_last_second_are_recorded(place: Place) {
    let forge = Forge::start(place);
    forge.world.put("attacks.py", ATTACKS);
    let mut session = forge.session("unasked");
    // Four messages that nothing answers but a refusal: the first is recorded at once, the others are counted for a second.
    let done = session.bash("python3 attacks.py nobody remove remove remove remove 2>&1");
    assert_eq!(done.success(), "remove [5]\n".repeat(4));
    assert!(session.close(LIMIT).success());
    // The executor ends behind its client.
    let counted = || {
        let records = audited(&forge.world, "connection").into_iter();
        let refused = records.filter(|one| one["verdict"] == "request_refused");
        refused
            .map(|one| one["count"].as_u64().unwrap())
            .sum::<u64>()
    };
    until(LIMIT, || counted() == 4);
    assert_eq!(counted(), 4);
}

place_test!(a_session_that_is_carried_elsewhere_is_signed_nothing);
fn a_session_that_is_carried_elsewhere_is_signed_nothing(place: Place) {
    let forge = Forge::start(place);
    forge.world.put("attacks.py", ATTACKS);
    let user = &forge.host.place.account().name;
    for name in ["named.pub", "unnamed.pub"] {
        forge
            .world
            .put(name, fs::read(forge.world.outside.join(name)).unwrap());
    }
    let captured = forge.outside(&format!("python3 attacks.py {user} capture 2>&1"));
    assert!(captured.contains("captured"), "{captured}");
    let mut session = forge.session("unasked");
    let [inside, outside] = forge.attack(&mut session, "elsewhere forwarded");
    assert_eq!(inside, "elsewhere [5, 5]\nforwarded [5]\n");
    assert_eq!(outside, "elsewhere [6, 14]\nforwarded [6]\n", "the control");
    // A host that the policy reaches, and names for no key.
    let other = session.bash(&forge.login("other.example"));
    assert!(
        other.text().contains("Permission denied"),
        "{}",
        other.text()
    );
    let denied = other.result["metadata"]["denied"].to_string();
    assert!(
        denied.contains("in sessions that the gateway carries"),
        "{denied}"
    );
    let other = forge
        .login("other.example")
        .replace("$GIT_SSH_COMMAND", &forge.ssh());
    assert_eq!(forge.outside(&other), "logged in\n", "the control");
    assert!(audited(&forge.world, "ssh_login").is_empty());
    let done = session.bash(&forge.login("forge.example"));
    assert_eq!(done.success(), "logged in\n", "the control");
}

place_test!(a_login_as_another_user_is_signed_nothing);
/// The host has the key for every user, so a signature would be all that a login as another one needs.
fn a_login_as_another_user_is_signed_nothing(place: Place) {
    let forge = Forge::start(place);
    let user = format!("{}@", forge.host.place.account().name);
    let accepted = || {
        let log = fs::read_to_string(forge.host.outside.join("log")).unwrap();
        log.contains("Accepted publickey for daemon ")
    };
    let login = forge.login("forge.example");
    let other = login.replace(&user, "daemon@");
    let mut session = forge.session("unasked");
    let said = session.bash(&other);
    assert!(said.text().contains("Permission denied"), "{}", said.text());
    let denied = said.result["metadata"]["denied"].to_string();
    assert!(
        denied.contains("signs logins as the user of `[ssh]`"),
        "{denied}"
    );
    assert!(!accepted());
    assert!(audited(&forge.world, "ssh_login").is_empty());
    let outside = other.replace("$GIT_SSH_COMMAND", &forge.ssh());
    forge.outside(&outside.replace("@forge.example", "@host"));
    assert!(accepted(), "the control");
    assert_eq!(session.bash(&login).success(), "logged in\n", "the control");
}

place_test!(nothing_answers_after_the_session);
fn nothing_answers_after_the_session(place: Place) {
    let forge = Forge::start(place);
    let mut session = forge.session("unasked");
    let hold = "python3 -c 'import os, socket, time
s = socket.socket(socket.AF_UNIX); s.connect(os.environ[\"SSH_AUTH_SOCK\"]); s.sendall(b\"\\0\\0\\0\\1\\x0b\"); s.recv(9); print(\"open\", flush=True)
open(\"held\", \"w\").close(); s.recv(100000); s.recv(9); print(\"cut\")'";
    let id = session.start_call("bash", json!({ "command": hold }));
    assert!(until(LIMIT, || forge.world.project.join("held").exists()));
    // Nobody finds it by its name.
    assert!(UnixStream::connect("/run/lazaret-ssh-agent").is_err());
    let all = below(session.pid());
    let gateways: Vec<_> = all
        .into_iter()
        .filter(|one| one.name == "lazaret-gateway")
        .collect();
    assert_eq!(gateways.len(), 1);
    gateways[0].kill();
    let said = session.answer_within(&id, LIMIT);
    assert!(said.text().contains("open\ncut\n"), "{}", said.text());
    // A successor serves.
    let done = session.bash(&forge.login("forge.example"));
    assert_eq!(done.success(), "logged in\n");
    let all = below(session.pid());
    assert!(session.close(LIMIT).success());
    assert!(left_after(&all, LIMIT).is_empty());
    assert!(UnixStream::connect("/run/lazaret-ssh-agent").is_err());
    assert!(
        UnixStream::connect(socket(&forge.world)).is_ok(),
        "the control"
    );
}
