//! An agent in a cell as a whole with a key of its vendor's, as its user has it: in the variable that the agent reads. With a credential
//! in the policy the agent works all the same, and the vendor gets the key, which is nowhere that the agent can look. The control has
//! no credential, and finds the key by the same commands. The vendor's host is this test's, at the end of a company's proxy.

use crate::agents::{Agent, Packages, Vendor, Way};
use crate::model::reply;
use crate::seen::{LIMIT, PASSED, Seen, call_results, own_tools, print};
use lazaret_tests::connect_proxy::ConnectProxy;
use lazaret_tests::model_server::{ModelServer, SeenRequest};
use lazaret_tests::process::{self, Process, until};
use lazaret_tests::tls_host::TlsHost;
use lazaret_tests::world::unique;
use lazaret_tests::{Place, Terminal, World, run};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

/// The end of every placeholder.
const PLACEHOLDER: &str = "lazaret-stand-in-0AA";

/// Ends TLS, and hands what is in it to the model at `AT`.
const TO_MODEL: &str = "
import http.server, select, socket, socketserver
class Handler(socketserver.BaseRequestHandler):
    def handle(self):
        with socket.create_connection(AT) as model:
            other = {self.request: model, model: self.request}
            while True:
                for one in [self.request] if self.request.pending() else select.select([*other], [], [])[0]:
                    part = one.recv(1 << 16)
                    if not part: return
                    other[one].sendall(part)
";

/// Prints the variables of all processes.
const VARIABLES: &str =
    "{ env; cat /proc/self/environ /proc/[0-9]*/environ | tr '\\0' '\\n'; } 2>/dev/null | sort -u";
const WORK: &str = "printf fixed > made.txt; sh ./test.sh";
/// Names each file with the key or with a placeholder, of those that are newer than the task: toolchains are large. The key itself is in
/// no command.
const SEARCH: &str = r#"
k=$(printf %s%s START END); c=${CLAUDE_CONFIG_DIR:-.}; o=${CODEX_HOME:-.}; d=${XDG_DATA_HOME:-.}; s=${XDG_STATE_HOME:-.}
search() { find ~ /tmp . "$c" "$o" "$d" "$s" -type f -newer test.sh -exec grep -lFa -- "$1" {} + 2>/dev/null | sort -u | sed "s/^/$2 in /"; }
search "$k" KEY; search lazaret-stand-in-0AA PLACEHOLDER"#;

/// The beginning of a key, in lower case, as all is that the model has seen of a head.
const BEGINNING: &str = "sk-ant-api03-the-real-key-";

const SCREEN: (u16, u16) = (50, 120);

/// A user with a key, whose agent's vendor is this test's.
struct Bench<'b> {
    agent: &'b Agent,
    vendor: &'b Vendor,
    way: Way,
    world: World,
    model: ModelServer,
    key: String,
    proxy: ConnectProxy,
    host: TlsHost,
}

impl<'b> Bench<'b> {
    fn new((agent, vendor): (&'b Agent, &'b Vendor), way: Way, place: Place) -> Self {
        let world = World::new(place);
        world.put(
            "test.sh",
            format!("test \"$(cat made.txt)\" = fixed && echo {PASSED}\n"),
        );
        run(world.host("git").args(["init", "-q"]), LIMIT).success();
        let end = unique();
        let search = SEARCH.replace("START", BEGINNING).replace("END", &end);
        let inputs = [VARIABLES, WORK, &search].map(|command| agent.input(way, command));
        let tool = agent.tool(way);
        let model =
            ModelServer::answering("127.0.0.2", move |request| reply(request, tool, &inputs));
        let address = model.url().replace("http://", "").replace(':', "', ");
        let handler = TO_MODEL.replace("AT", &format!("('{address})"));
        let host = TlsHost::start(&world, vendor.hosts, &handler);
        Self {
            agent,
            vendor,
            way,
            model,
            key: format!("{BEGINNING}{end}"),
            proxy: ConnectProxy::to(host.port),
            host,
            world,
        }
    }

    /// The agent with its task.
    fn command(&self, packages: &Packages) -> Command {
        let Vendor {
            preset, variable, ..
        } = self.vendor;
        let mut before = format!(
            "[gateway]\nca = '{}'\n{}\nproxy_names = true\n",
            self.host.authority().display(),
            self.proxy.line()
        );
        if self.way.has_credential() {
            before += &format!(
                "[credential.{preset}]\nfrom = {{ env = '{variable}' }}\npreset = '{preset}'\n"
            );
        }
        let url = format!("https://{}", self.vendor.hosts[0]);
        self.agent.set_policy(&self.world, packages, (&before, ""));
        self.agent.prepare(&self.world, self.way, packages, &url);
        let mut command = self.agent.command(&self.world, self.way, packages, &url);
        command.env(variable, &self.key);
        command
    }

    /// The key or other text that a request has for its vendor, in lower case.
    fn sent<'r>(&self, request: &'r SeenRequest) -> Option<&'r str> {
        let mut lines = request.head.lines();
        lines.find_map(|line| line.strip_prefix(self.vendor.header))
    }

    /// Faults of the keys that the vendor got, in at least `least` requests.
    fn wrong_keys(&self, asked: &[SeenRequest], least: usize) -> Vec<String> {
        let placeholder = PLACEHOLDER.to_lowercase();
        let sent = |request: &SeenRequest| self.sent(request).map(str::to_owned);
        let is_wrong = |request: &&SeenRequest| {
            request.head.contains(&placeholder)
                || sent(request).is_some_and(|sent| sent != self.key)
        };
        let wrong = asked.iter().filter(is_wrong);
        let wrong = wrong.map(|request| format!("another key than its own in {}", request.line));
        let few = asked.iter().filter_map(sent).count() < least;
        let few = few.then(|| "the vendor got too few keys".to_owned());
        wrong.chain(few).collect()
    }

    /// The files of the user's with the key.
    fn files(&self) -> String {
        let mut files = Command::new("grep");
        files
            .args(["-rlFa", "-D", "skip", "-e", &self.key])
            .arg(self.world.base());
        run(&mut files, LIMIT).text()
    }
}

pub fn attempt(
    agent: (&Agent, &Vendor),
    way: Way,
    place: Place,
    packages: &Packages,
    show: bool,
) -> Seen {
    let bench = Bench::new(agent, way, place);
    if way == Way::Terminal || way == Way::KeyTerminal {
        return on_terminal(&bench, packages, show);
    }
    let finished = run(&mut bench.command(packages), LIMIT);
    let asked = bench.model.asked();
    if show {
        print(&finished, &asked);
        println!("{:?}", bench.proxy.targets());
        let sent = asked.iter().map(|request| bench.sent(request));
        println!("{:?}", sent.collect::<Vec<_>>());
    }
    let (all, key) = (call_results(&asked).concat(), &bench.key);
    let (is_shown, is_in_cell) = (all.contains(key), all.contains("KEY in "));
    let printed = (finished.text() + &finished.errors()).contains(key);
    let files = bench.files();
    let value = variable(&all, bench.vendor.variable);
    let checks = match way.has_credential() {
        true => [
            (value.ends_with(PLACEHOLDER), "no placeholder is shown"),
            (all.contains("PLACEHOLDER in "), "the search finds nothing"),
        ],
        false => [
            (value == key, "the control shows no key"),
            (is_in_cell && !files.is_empty(), "the search finds no key"),
        ],
    };
    let wrong = checks.iter().filter(|(good, _)| !good);
    let wrong = wrong.map(|(_, what)| (*what).to_owned());
    Seen {
        escaped: is_shown || is_in_cell || printed || !files.is_empty(),
        worked: all.contains(PASSED) && bench.world.project.join("made.txt").exists(),
        own: own_tools(&asked),
        // One request for each call, and one for the end.
        wrong: wrong.chain(bench.wrong_keys(&asked, 4)).collect(),
    }
}

/// The value of a variable in what `env` has printed, as JSON.
fn variable<'t>(text: &'t str, name: &str) -> &'t str {
    let after = text.split_once(&format!("{name}="));
    let value = after.and_then(|(_, rest)| rest.split(['\\', '"']).next());
    value.unwrap_or_default()
}

/// Whether a character is one of braille, of which Codex makes pictures that move.
fn is_of_picture(character: char) -> bool {
    ('\u{2800}'..='\u{28ff}').contains(&character)
}

/// Ends a session, and waits until its processes' numbers are free: in the flat tier an agent takes the number of one that is not reaped yet
/// for a server of its own.
fn end(terminal: Terminal) {
    let processes = process::tree(terminal.child.id() as i32);
    drop(terminal);
    let has_number = |one: &Process| Path::new(&format!("/proc/{}", one.pid)).exists();
    until(LIMIT, || !processes.iter().any(has_number));
}

/// Two sessions of an agent at which a person sits, who says yes to all. The agent must not ask about a placeholder, which is another one
/// in each session. It asks once about a key in its variable: the control.
fn on_terminal(bench: &Bench, packages: &Packages, show: bool) -> Seen {
    let mut questions = Vec::new();
    let mut worked = true;
    for _ in 0..2 {
        let before = bench.model.asked().len();
        let is_asked = || {
            let asked = bench.model.asked();
            let mut new = asked.iter().skip(before);
            new.any(|request| request.line.starts_with(bench.vendor.request))
        };
        let (rows, columns) = SCREEN;
        let mut terminal = Terminal::start(&mut bench.command(packages), rows, columns);
        let (mut last, mut asks) = (String::new(), false);
        worked &= until(LIMIT, || {
            std::thread::sleep(Duration::from_secs(1));
            let screen = terminal.rows(rows, columns).join("\n");
            let screen = screen.replace(is_of_picture, "");
            // A screen that still changes takes no keys, and one that does not has its answer.
            if screen != last {
                last = screen;
                return is_asked();
            }
            asks |= screen.contains(bench.vendor.question);
            let mut answers = bench.vendor.answers.iter();
            let answer = answers.find(|(text, _)| screen.contains(text));
            // A key that has been typed is confirmed.
            let answer = answer.filter(|_| !screen.contains(&bench.key));
            let (_, keys) = answer.unwrap_or(&("", "\r"));
            terminal.send(&keys.replace("{key}", &bench.key));
            is_asked()
        });
        if show {
            println!("{}", terminal.screen());
        }
        questions.push(asks);
        end(terminal);
    }
    let asked = bench.model.asked();
    let wanted = [!bench.way.has_credential(), false];
    let wrong = (questions != wanted)
        .then(|| format!("it asks about the key in its first and second session: {questions:?}"));
    Seen {
        escaped: !bench.files().is_empty(),
        worked,
        own: own_tools(&asked),
        wrong: wrong
            .into_iter()
            .chain(bench.wrong_keys(&asked, 2))
            .collect(),
    }
}
