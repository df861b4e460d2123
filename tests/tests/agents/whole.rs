//! An agent that is in a cell as a whole: what its profile gives it, and what it does not get. The agent is a script, which does
//! what agents do and then what they are talked into; `outside_agents` does the same with released ones.

use lazaret_tests::model_server::{ModelServer, Reply};
use lazaret_tests::{Finished, LIMIT, Place, Terminal, World, place_test, run};
use std::fs;
use std::path::Path;
use std::process::Command;

/// A profile, the variable of its state, where it has one that outlives the cell, and that of its credential.
const AGENTS: [(&str, Option<&str>, &str); 4] = [
    ("claude", Some("CLAUDE_CONFIG_DIR"), "ANTHROPIC_API_KEY"),
    ("codex", Some("CODEX_HOME"), "OPENAI_API_KEY"),
    ("gemini", None, "GEMINI_API_KEY"),
    ("opencode", Some("XDG_DATA_HOME"), "OPENCODE_API_KEY"),
];
const CREDENTIALS: [&str; 4] = [
    "ANTHROPIC_API_KEY",
    "OPENAI_API_KEY",
    "GEMINI_API_KEY",
    "OPENCODE_API_KEY",
];

/// Attempts one after the other: `NAME GOT` or `NAME`.
const AGENT: &str = r#"
import os, sys, urllib.request
def attempt(name, work):
    try: got = work()
    except Exception as error: got = None
    print(name, 'GOT' if got else '')
def reach(url): return urllib.request.urlopen(url, timeout=100).read() == b'pong'
def write(path):
    with open(path, 'a') as file: file.write('kept\n')
    return True
state, credential, others, model, elsewhere, home, other_state = sys.argv[1:8]
state = os.environ.get(state) or os.environ['HOME']
attempt('remembers', lambda: open(state + '/memory').read())
attempt('state', lambda: write(state + '/memory'))
attempt('credential', lambda: os.environ[credential] == 'credential of ' + credential)
attempt('model', lambda: reach(model))
attempt('project', lambda: write('made'))
print('--')
for other in others.split(','): attempt('credential ' + other, lambda: os.environ[other])
attempt('secret', lambda: os.environ['MY_API_KEY'])
attempt('elsewhere', lambda: reach(elsewhere))
attempt('key', lambda: open(home + '/.ssh/id_rsa').read())
attempt('state of another', lambda: open(other_state + '/memory').read())
attempt('settings outside', lambda: write(home + '/.claude/settings.json'))
print('state', state)
"#;

/// Two servers, and a world whose policy opens the first to each profile, under `PROFILE-here`.
struct Bench {
    world: World,
    model: ModelServer,
    elsewhere: ModelServer,
}

impl Bench {
    fn new(place: Place) -> Self {
        let world = World::new(place);
        // Programs ask for these without the relay: 127.0.0.1 is the cell itself.
        let server = || ModelServer::answering("127.0.0.2", |_| Reply::stream("pong"));
        let (model, elsewhere) = (server(), server());
        let host = model.url().replace("http://", "");
        let profile = |(name, ..): &(&str, Option<&str>, &str)| {
            format!(
                "[profile.{name}-here]\nextends = '{name}'\nnetwork = {{ allow = ['{host}'], private = ['{host}'] }}\n"
            )
        };
        let profiles: String = AGENTS.iter().map(profile).collect();
        world.set_policy(format!("version = 1\n{profiles}"));
        world.write(&world.home.join(".claude/settings.json"), "");
        world.put("agent.py", AGENT);
        Self {
            world,
            model,
            elsewhere,
        }
    }

    /// With what a user of all these agents has.
    fn dressed(&self, mut command: Command) -> Command {
        let (settings, data) = (
            self.world.home.join("settings"),
            self.world.home.join("data"),
        );
        command
            .env("XDG_CONFIG_HOME", settings)
            .env("XDG_DATA_HOME", data);
        command.envs(CREDENTIALS.map(|name| (name, format!("credential of {name}"))));
        command
    }

    fn cell(&self, profile: &str) -> Command {
        let mut command = self.dressed(self.world.program("lazaret"));
        command.args(["run", "--profile", &format!("{profile}-here"), "--"]);
        command
    }

    /// The agent by `command`, beside one whose state is `other_state`.
    fn agent(&self, mut command: Command, profile: &str, other_state: &Path) -> Finished {
        let (_, state, credential) = AGENTS.iter().find(|(name, ..)| *name == profile).unwrap();
        let others: Vec<_> = CREDENTIALS
            .into_iter()
            .filter(|other| self.is_other(profile, other))
            .collect();
        command.args([
            "python3",
            "agent.py",
            state.unwrap_or("NONE"),
            credential,
            &others.join(","),
        ]);
        command
            .args([self.model.url(), self.elsewhere.url()])
            .arg(&self.world.home)
            .arg(other_state);
        run(&mut command, LIMIT)
    }

    /// Whether a credential is none of this profile's.
    fn is_other(&self, profile: &str, credential: &str) -> bool {
        match profile {
            "opencode" => credential == "GEMINI_API_KEY",
            _ => AGENTS
                .iter()
                .all(|(name, _, own)| *name != profile || *own != credential),
        }
    }
}

/// The two halves of what it printed: what it should get, and what not; and its state.
fn halves(finished: &Finished) -> (Vec<String>, Vec<String>, String) {
    let text = finished.success();
    let (own, rest) = text.split_once("--\n").unwrap();
    let (others, state) = rest.trim_end().rsplit_once("\nstate ").unwrap();
    let lines = |text: &str| {
        text.lines()
            .map(|line| line.trim_end().to_owned())
            .collect()
    };
    (lines(own), lines(others), state.to_owned())
}

place_test!(an_agent_has_its_state_its_credential_and_its_host);
fn an_agent_has_its_state_its_credential_and_its_host(place: Place) {
    let bench = Bench::new(place);
    for (profile, state, _) in AGENTS {
        let run = || bench.agent(bench.cell(profile), profile, Path::new("/none"));
        let (first, ..) = halves(&run());
        assert_eq!(
            first,
            [
                "remembers",
                "state GOT",
                "credential GOT",
                "model GOT",
                "project GOT"
            ],
            "{profile}"
        );
        let (second, ..) = halves(&run());
        let remembers = if state.is_some() {
            "remembers GOT"
        } else {
            "remembers"
        };
        assert_eq!(second[0], remembers, "{profile}");
    }
    assert_eq!(bench.model.asked().len(), 8);
    assert!(bench.elsewhere.asked().is_empty());
}

place_test!(the_state_of_an_agent_begins_with_the_answer_about_its_placeholder);
fn the_state_of_an_agent_begins_with_the_answer_about_its_placeholder(place: Place) {
    let world = World::new(place);
    let from = format!("{{ file = '{}/token' }}", world.home.display());
    let define =
        format!("version = 1\n[credential.anthropic]\nfrom = {from}\npreset = 'anthropic'\n");
    let state = |script: &str| {
        let options = ["--profile", "claude"];
        world.in_cell_with(&options, &format!("cd $CLAUDE_CONFIG_DIR; {script}"))
    };
    world.set_policy(&define);
    let ls = "ls -A";
    assert_eq!(state(ls).success(), "", "no source, no placeholder");
    world.write(&world.home.join("token"), "a key");
    world.set_policy(format!(
        "{define}[credential.claude-login]\npreset = 'claude-login'\n"
    ));
    assert_eq!(state(ls).success(), "", "its user has a subscription too");
    world.set_policy(&define);
    let end = "${ANTHROPIC_API_KEY: -20}";
    let told = state(&format!(
        "grep -c \"approved.*{end}\" .claude.json; echo own > .claude.json"
    ));
    assert_eq!(told.success(), "1\n", "{}", told.errors());
    assert_eq!(state("cat .claude.json").success(), "own\n");
}

place_test!(an_agent_gets_nothing_that_is_not_its_own);
fn an_agent_gets_nothing_that_is_not_its_own(place: Place) {
    let bench = Bench::new(place);
    let world = &bench.world;
    let (.., of_codex) = halves(&bench.agent(bench.cell("codex"), "codex", Path::new("/none")));
    assert!(
        fs::read_to_string(Path::new(&of_codex).join("memory")).is_ok(),
        "the other agent has state"
    );
    let mut plain = bench.dressed(world.host("env"));
    plain.env("CLAUDE_CONFIG_DIR", &world.outside);
    let (_, control, _) = halves(&bench.agent(plain, "claude", Path::new(&of_codex)));
    assert!(
        control.len() == 8 && control.iter().all(|line| line.ends_with(" GOT")),
        "the control: {control:?}"
    );
    let settings = world.home.join(".claude/settings.json");
    let (written, reached) = (fs::read(&settings).unwrap(), bench.elsewhere.asked().len());
    assert!(!written.is_empty() && reached == 1, "the control");
    for profile in ["claude", "gemini", "opencode"] {
        let finished = bench.agent(bench.cell(profile), profile, Path::new(&of_codex));
        let (_, others, _) = halves(&finished);
        assert!(
            others.len() >= 6 && others.iter().all(|line| !line.ends_with("GOT")),
            "{profile}: {others:?}"
        );
        assert!(!finished.text().contains(&world.canary), "{profile}");
        assert!(
            finished.errors().contains("refused: 127.0.0.2"),
            "{profile}: {}",
            finished.errors()
        );
    }
    assert_eq!(
        (fs::read(&settings).unwrap(), bench.elsewhere.asked().len()),
        (written, reached)
    );
}

place_test!(an_agent_at_a_terminal_has_one);
fn an_agent_at_a_terminal_has_one(place: Place) {
    let bench = Bench::new(place);
    let mut command = bench.cell("claude");
    command.args([
        "python3",
        "-c",
        "import os; print(os.isatty(0), os.get_terminal_size()); input('you: '); print('bye')",
    ]);
    let mut terminal = Terminal::start(&mut command, 24, 80);
    terminal.expect("True os.terminal_size(columns=80, lines=24)", LIMIT);
    terminal.expect("you: ", LIMIT);
    terminal.send("hello\r");
    terminal.expect("bye", LIMIT);
}
