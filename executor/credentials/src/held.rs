//! The credentials of a session: those of its policy that the user has, with what stands for them in cells.

use crate::owner::{Owner, SourceError};
use crate::reader::SourceProgram;
use crate::source::{MemorySource, UserSource};
use broker_protocol::Digest;
use broker_protocol::gateway::{Attach, CredentialSpec};
use executor_sys::random;
use policies::credential_table::{AgentStateFile, Shape};
use policies::{Credential, EffectivePolicy};
use std::collections::BTreeMap;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// How often the program of one credential is started.
const INTERVAL: Duration = Duration::from_secs(30);

/// The credentials of a session.
#[derive(Debug, Default)]
pub struct Credentials {
    held: Vec<HeldCredential>,
    /// The variables of all credentials of the policy, with the placeholders of those that the user has and what belongs to them.
    variables: BTreeMap<String, Option<String>>,
    /// The place in `held` of the proxy's login, which is the credential of no host.
    login: Option<u16>,
    /// Files of the cells' home, by their paths below it.
    files: BTreeMap<PathBuf, String>,
    /// Files of agents' own state.
    state: Vec<AgentStateFile>,
    /// Why the user lacks a credential of the policy, and what else people are told.
    notices: Vec<String>,
}

#[derive(Debug)]
struct HeldCredential {
    spec: CredentialSpec,
    source: UserSource,
    reader: Option<SourceProgram>,
    /// When its program was last started.
    started: Option<Instant>,
}

/// A value for the gateway: the read end of a pipe that holds all of it, or why there is none.
#[derive(Debug)]
pub struct Delivery {
    /// The credential, by its place in [`Credentials::specs`].
    pub credential: u16,
    pub value: Result<OwnedFd, String>,
}

impl Credentials {
    /// The credentials of `policy` that the user has. No program is run.
    ///
    /// # Errors
    /// The kernel has no random bytes.
    pub fn resolve(policy: &EffectivePolicy, owner: &Owner) -> io::Result<Self> {
        let mut resolved = Self::default();
        // Values are in variables too, which a profile may pass.
        let withheld = policy.withheld.iter().cloned();
        resolved.variables.extend(withheld.map(|name| (name, None)));
        for credential in &policy.credentials {
            for name in &credential.variables {
                resolved.variables.entry(name.clone()).or_insert(None);
            }
            // Without a network there is no gateway that could put the value in.
            if !policy.has_network() {
                continue;
            }
            let is_login = matches!(credential.attach, Attach::Login(_));
            let source = match is_login {
                true => UserSource::of_logins(&credential.from, policy, owner),
                false => UserSource::of_policy(&credential.from, policy, owner),
            };
            match source {
                Ok(source) => resolved.add(credential, source)?,
                // Without a key programs would get the tokens themselves.
                Err(why) if is_login => {
                    resolved.notices.push(format!(
                        "logins of `{}` are good for this session only: {why}",
                        credential.name
                    ));
                    resolved.add(credential, UserSource::Memory(MemorySource::key()?))?;
                }
                Err(why) => {
                    let text = format!("the credential `{}` is not there: {why}", credential.name);
                    resolved.notices.push(text);
                }
            }
        }
        resolved.leave_out_state(policy);
        Ok(resolved)
    }

    /// Leaves out the files of agents' state that another credential of the user's stands against.
    fn leave_out_state(&mut self, policy: &EffectivePolicy) {
        let is_held = |name: &str| self.held.iter().any(|held| held.spec.name == name);
        let held = policy.credentials.iter().filter(|one| is_held(&one.name));
        let presets: Vec<&String> = held.filter_map(|one| one.preset.as_ref()).collect();
        self.state.retain(|state| {
            !state
                .file
                .unless
                .iter()
                .any(|preset| presets.contains(&preset))
        });
    }

    fn add(&mut self, credential: &Credential, source: UserSource) -> io::Result<()> {
        let placeholder = match &credential.attach {
            Attach::Login(_) => marker(&credential.name),
            Attach::Bearer
            | Attach::Basic { .. }
            | Attach::Any { .. }
            | Attach::Header { .. }
            | Attach::Aws => placeholder(&credential.shape)?,
        };
        for name in &credential.variables {
            self.variables
                .insert(name.clone(), Some(placeholder.clone()));
        }
        let set = credential.set.iter();
        self.variables
            .extend(set.map(|(name, value)| (name.clone(), Some(value.clone()))));
        for file in &credential.files {
            let text = file.text(&credential.hosts, &placeholder);
            if !text.is_empty() {
                *self.files.entry(PathBuf::from(&file.path)).or_default() += &text;
            }
        }
        let state = credential.state.iter().cloned();
        self.state
            .extend(state.map(|file| AgentStateFile::new(file, &placeholder, &credential.shape)));
        self.held.push(HeldCredential {
            spec: CredentialSpec {
                name: credential.name.clone(),
                placeholder,
                hosts: credential.hosts.clone(),
                attach: credential.attach.clone(),
                uses: credential.uses.clone(),
            },
            source,
            reader: None,
            started: None,
        });
        Ok(())
    }

    /// Adds what the gateway shows the session's proxy; returns its place in [`Self::specs`].
    ///
    /// # Errors
    /// The kernel has no random bytes.
    pub(crate) fn add_login(&mut self, source: UserSource) -> io::Result<u16> {
        let place = u16::try_from(self.held.len()).map_err(io::Error::other)?;
        self.held.push(HeldCredential {
            spec: CredentialSpec {
                // No credential of a policy has a space in its name.
                name: "proxy login".to_owned(),
                placeholder: placeholder(&Shape::default())?,
                hosts: Vec::new(),
                attach: Attach::Bearer,
                uses: Vec::new(),
            },
            source,
            reader: None,
            started: None,
        });
        self.login = Some(place);
        Ok(place)
    }

    /// Whether the user has none that a host takes: then no connection is decrypted.
    pub(crate) fn is_empty(&self) -> bool {
        self.held.len() == usize::from(self.login.is_some())
    }

    /// The part that the gateway gets. A successor gets the same.
    pub fn specs(&self) -> Vec<CredentialSpec> {
        self.held.iter().map(|held| held.spec.clone()).collect()
    }

    /// The variables that a cell has in place of the user's own: a placeholder or what is sent with it, or nothing.
    pub(crate) fn variables(&self) -> &BTreeMap<String, Option<String>> {
        &self.variables
    }

    /// Files of the cells' home by which clients send a placeholder.
    pub fn files(&self) -> &BTreeMap<PathBuf, String> {
        &self.files
    }

    /// Files of agents' own state, for where there are none.
    pub(crate) fn state(&self) -> &[AgentStateFile] {
        &self.state
    }

    /// Adds to what people are told.
    pub(crate) fn add_notices(&mut self, notices: Vec<String>) {
        self.notices.extend(notices);
    }

    /// Notices for people: on credentials that the user lacks, of settings that mean nothing.
    pub fn notices(&self) -> &[String] {
        &self.notices
    }

    /// The name of a credential, if there is one at this place.
    pub fn name(&self, credential: u16) -> Option<&str> {
        let held = self.held.get(usize::from(credential))?;
        Some(&held.spec.name)
    }

    /// Lets the programs of all credentials be started at once again, for a gateway that has no values yet.
    pub fn forget_starts(&mut self) {
        for held in &mut self.held {
            held.started = None;
        }
    }

    /// Answers a gateway that wants a value; `None` if a program has been started for it: see [`Self::ready`].
    pub fn want(&mut self, credential: u16, now: Instant) -> Option<Delivery> {
        let deliver = |value| Some(Delivery { credential, value });
        let Some(held) = self.held.get_mut(usize::from(credential)) else {
            return deliver(Err("the session has no such credential".to_owned()));
        };
        if held.reader.is_some() {
            return None;
        }
        match held.start(now) {
            Ok(None) => None,
            Ok(Some(value)) => deliver(Ok(value)),
            Err(why) => deliver(Err(why.to_string())),
        }
    }

    /// The programs that run now: each descriptor can be read when its program has ended.
    pub fn running(&self) -> impl Iterator<Item = (u16, BorrowedFd<'_>)> {
        let places = (0..).zip(&self.held);
        places.filter_map(|(place, held)| Some((place, held.reader.as_ref()?.fd())))
    }

    /// Takes the result of a program that has ended.
    pub fn ready(&mut self, credential: u16) -> Option<Delivery> {
        let held = self.held.get_mut(usize::from(credential))?;
        let reader = held.reader.take()?;
        let value = reader.finish().map_err(|why| why.to_string());
        Some(Delivery { credential, value })
    }

    /// When the next program has run too long. It is stopped by its own reader before.
    pub fn deadline(&self) -> Option<Instant> {
        let readers = self.held.iter().filter_map(|held| held.reader.as_ref());
        readers.map(SourceProgram::deadline).min()
    }

    /// Ends the programs that have run too long.
    pub fn tick(&mut self, now: Instant) -> Vec<Delivery> {
        let mut ended = Vec::new();
        for (credential, held) in (0..).zip(&mut self.held) {
            if held
                .reader
                .take_if(|reader| reader.deadline() <= now)
                .is_some()
            {
                let value = Err(SourceError::TooLong.to_string());
                ended.push(Delivery { credential, value });
            }
        }
        ended
    }
}

impl HeldCredential {
    fn start(&mut self, now: Instant) -> Result<Option<OwnedFd>, SourceError> {
        match &self.source {
            UserSource::File(file) => file.open().map(Some),
            UserSource::Memory(memory) => memory.open().map(Some),
            UserSource::Command(command) => {
                if self.started.is_some_and(|started| now < started + INTERVAL) {
                    return Err(SourceError::TooSoon);
                }
                self.started = Some(now);
                self.reader = Some(SourceProgram::start(command)?);
                Ok(None)
            }
        }
    }
}

/// The beginning of the texts for tokens of a login. Programs store those, so it is the same in each session. 24 characters of base64url
/// are whole groups: with the token after it, it is the last part of a JWT that clients decode.
fn marker(name: &str) -> String {
    let digest = Digest::of(name.as_bytes()).to_string();
    format!("lzlogin-{}-", &digest[..15])
}

/// A text of this shape that nobody can guess.
fn placeholder(shape: &Shape) -> io::Result<String> {
    let mut bytes = Vec::with_capacity(shape.random());
    while bytes.len() < shape.random() {
        bytes.extend(random::bytes::<64>()?);
    }
    Ok(shape.fill(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use broker_protocol::limit;
    use executor_spec::variables::Variables;
    use policies::{Host, Policies, PolicySource, SourceKind};
    use std::fs;
    use std::os::fd::AsFd;
    use std::os::unix::fs::PermissionsExt;

    pub(super) struct World {
        pub(crate) folder: tempfile::TempDir,
        pub(crate) variables: Variables,
    }

    impl World {
        fn new() -> Self {
            let folder = tempfile::tempdir().unwrap();
            for name in ["project", "home", "bin"] {
                fs::create_dir(folder.path().join(name)).unwrap();
            }
            let path = format!("{}:/usr/bin:/bin", folder.path().join("bin").display());
            let variables = [("PATH".into(), path.into())].into();
            Self { folder, variables }
        }

        fn at(&self, name: &str) -> PathBuf {
            self.folder.path().canonicalize().unwrap().join(name)
        }

        fn resolve(&self, from: &str) -> Credentials {
            self.resolve_with(&format!(
                "[credential.one]\nfrom = {from}\nhosts = ['api.example']\nattach = 'bearer'\nenv = ['ONE_TOKEN']\n\
                 [profile.a]\ncredentials = ['one']"
            ))
        }

        fn resolve_with(&self, text: &str) -> Credentials {
            let text = format!("version = 1\n{text}");
            let source = PolicySource {
                name: "p".into(),
                kind: SourceKind::User,
                text,
            };
            let home = self.at("home");
            let host = Host {
                home: home.clone(),
                ..Host::default()
            };
            let policies = Policies::load(vec![source]).unwrap();
            let policy = policies.resolve("a", &host).unwrap();
            let owner = Owner::new(&home, &self.variables, vec![self.at("project")]);
            Credentials::resolve(&policy, &owner).unwrap()
        }

        /// A program of the user's.
        fn program(&self, name: &str, script: &str) {
            let path = self.at(name);
            fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
            fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
        }

        fn file(&self, name: &str, content: &[u8]) {
            fs::write(self.at(name), content).unwrap();
        }
    }

    fn read(fd: OwnedFd) -> Vec<u8> {
        let mut content = Vec::new();
        std::io::Read::read_to_end(&mut fs::File::from(fd), &mut content).unwrap();
        content
    }

    /// The value, or why there is none.
    fn value(credentials: &mut Credentials) -> Result<Vec<u8>, String> {
        use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
        let delivery = credentials.want(0, Instant::now()).or_else(|| {
            {
                let (_, fd) = credentials.running().next().unwrap();
                let mut fds = [PollFd::new(fd, PollFlags::POLLIN)];
                poll(&mut fds, PollTimeout::from(20_000_u16)).unwrap();
            }
            credentials.ready(0)
        });
        delivery.unwrap().value.map(read)
    }

    fn absent(credentials: &Credentials) -> String {
        assert!(credentials.is_empty() && credentials.specs().is_empty());
        assert_eq!(credentials.variables().get("ONE_TOKEN"), Some(&None));
        credentials.notices().join("\n")
    }

    #[test]
    fn a_file_of_the_users_is_a_source() {
        let world = World::new();
        world.file("home/token", b"value\n");
        let mut credentials = world.resolve("{ file = '~/token' }");
        assert_eq!(value(&mut credentials).unwrap(), b"value\n");
        let spec = credentials.specs().remove(0);
        assert_eq!(
            credentials.variables()["ONE_TOKEN"].as_ref(),
            Some(&spec.placeholder)
        );
        assert_ne!(
            world.resolve("{ file = '~/token' }").specs()[0].placeholder,
            spec.placeholder
        );
        world.file("home/token", b"");
        assert!(value(&mut credentials).unwrap_err().contains("is empty"));
    }

    /// Clients check the form of a key before they send it.
    #[test]
    fn placeholders_have_the_prefix_the_letters_and_the_length_of_their_shape() {
        let world = World::new();
        world.file("home/token", b"value\n");
        let letters = |text: &str| {
            text.bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
        };
        for (prefix, length) in [("xoxb-", 57), ("sk-ant-api03-", 108), ("", 64)] {
            let text = format!(
                "[credential.one]\nfrom = {{ file = '~/token' }}\nhosts = ['api.example']\nattach = 'bearer'\nenv = ['ONE_TOKEN']\n\
                 placeholder = {{ prefix = '{prefix}', length = {length} }}\n[profile.a]\ncredentials = ['one']"
            );
            let made = || world.resolve_with(&text).specs()[0].placeholder.clone();
            let placeholder = made();
            assert_eq!(placeholder.len(), length, "{placeholder}");
            assert!(placeholder.starts_with(prefix), "{placeholder}");
            assert!(letters(&placeholder), "{placeholder}");
            assert_ne!(placeholder, made(), "nobody can guess it");
        }
        assert_eq!(marker("one").len() % 4, 0, "whole groups of base64url");
    }

    const LOGIN: &str = "preset = 'codex-login'\n[profile.a]\ncredentials = ['one']\n";

    #[test]
    fn the_key_of_logins_is_one_for_each_session_unless_a_file_has_it() {
        let world = World::new();
        let of_session = format!("[credential.one]\n{LOGIN}");
        let mut first = world.resolve_with(&of_session);
        let key = value(&mut first).unwrap();
        assert_eq!(key.len(), 64);
        assert_eq!(value(&mut first).unwrap(), key, "for a successor");
        let mut second = world.resolve_with(&of_session);
        assert_ne!(value(&mut second).unwrap(), key);
        assert_eq!(first.specs()[0].placeholder, second.specs()[0].placeholder);
        assert!(first.notices().is_empty() && first.variables().is_empty());
        let kept = format!("[credential.one]\nfrom = {{ file = '~/key' }}\n{LOGIN}");
        let mut absent = world.resolve_with(&kept);
        assert!(absent.notices()[0].contains("for this session only"));
        assert_eq!(value(&mut absent).unwrap().len(), 64);
        world.file("home/key", &[b'k'; 40]);
        let mode = |mode| fs::Permissions::from_mode(mode);
        fs::set_permissions(world.at("home/key"), mode(0o644)).unwrap();
        assert!(world.resolve_with(&kept).notices()[0].contains("others may read it"));
        fs::set_permissions(world.at("home/key"), mode(0o600)).unwrap();
        assert_eq!(value(&mut world.resolve_with(&kept)).unwrap(), [b'k'; 40]);
    }

    #[test]
    fn clients_are_told_of_placeholders_that_the_user_has() {
        let world = World::new();
        world.file("home/token", b"value");
        let one = |name: &str, preset: &str, file: &str| {
            format!(
                "[credential.{name}]\nfrom = {{ file = '~/{file}' }}\npreset = '{preset}'\nhosts = ['{name}.example']\n"
            )
        };
        let text = [
            one("a", "npm", "token"),
            one("b", "npm", "token"),
            one("c", "npm", "absent"),
            one("d", "pypi", "token"),
        ];
        let text = text.concat() + "[profile.a]\ncredentials = ['a', 'b', 'c', 'd']\n[profile.b]\n";
        let credentials = world.resolve_with(&text);
        let specs = credentials.specs();
        let line = |place: usize| {
            let spec = &specs[place];
            format!("//{}.example/:_authToken={}\n", spec.name, spec.placeholder)
        };
        let files: Vec<_> = credentials.files().clone().into_iter().collect();
        assert_eq!(files, [(".npmrc".into(), line(0) + &line(1))]);
        let user = credentials.variables()["TWINE_USERNAME"].as_deref();
        assert_eq!(user, Some("__token__"));
        let absent = world.resolve_with(&text.replace("/token", "/absent"));
        assert!(absent.files().is_empty());
        assert!(!absent.variables().contains_key("TWINE_USERNAME"));
    }

    #[test]
    fn an_agent_is_told_of_a_key_that_its_user_has_alone() {
        let world = World::new();
        world.file("home/token", b"value");
        for (preset, login, variable) in [
            ("anthropic", "claude-login", "CLAUDE_CONFIG_DIR"),
            ("openai", "codex-login", "CODEX_HOME"),
        ] {
            let state = |file: &str, others: &str| {
                let credentials = world.resolve_with(&format!(
                    "[credential.key]\nfrom = {{ file = '~/{file}' }}\npreset = '{preset}'\n\
                     [credential.login]\npreset = '{login}'\n[profile.a]\ncredentials = ['key'{others}]\n"
                ));
                credentials.state().to_vec()
            };
            let [state_file] = &state("token", "")[..] else {
                panic!("one file");
            };
            assert_eq!(state_file.file.variable, variable);
            let text = state_file.text();
            assert!(text.contains("lazaret-stand-in-0AA"), "{text}");
            assert!(!text.contains("{placeholder}"), "{text}");
            assert_eq!(state("absent", ""), []);
            assert_eq!(state("token", ", 'login'"), []);
        }
    }

    #[test]
    fn file_that_commands_can_write_is_no_source() {
        let world = World::new();
        world.file("project/token", b"value");
        assert!(absent(&world.resolve("{ file = '~/token' }")).contains("No such file"));
        std::os::unix::fs::symlink(world.at("project/token"), world.at("home/token")).unwrap();
        let why = absent(&world.resolve("{ file = '~/token' }"));
        assert!(why.contains("where commands can write"), "{why}");
        fs::remove_file(world.at("home/token")).unwrap();
        world.file("home/token", b"value");
        fs::set_permissions(world.at("home/token"), fs::Permissions::from_mode(0o666)).unwrap();
        let why = absent(&world.resolve("{ file = '~/token' }"));
        assert!(why.contains("others may write"), "{why}");
        assert!(absent(&world.resolve("{ file = '~' }")).contains("no regular file"));
    }

    #[test]
    fn file_with_a_second_name_is_no_source() {
        let world = World::new();
        world.file("home/token", b"real value");
        let place = || world.resolve("{ file = '~/token' }");
        assert_eq!(place().specs().len(), 1);
        fs::hard_link(world.at("home/token"), world.at("project/other")).unwrap();
        let why = absent(&place());
        assert!(why.contains("a second name"), "{why}");
    }

    #[test]
    fn file_that_commands_of_another_project_wrote_is_no_source() {
        let mut world = World::new();
        let caches = "home/.local/share/lazaret/projects/other-1/caches";
        for directory in [caches, "named/lazaret/projects/other-1"] {
            fs::create_dir_all(world.at(directory)).unwrap();
        }
        world.program("home/mytok", "echo value");
        let search = |world: &mut World, directories: &[&str]| {
            let path = std::env::join_paths(directories.iter().map(|path| world.at(path)));
            world.variables.insert("PATH".into(), path.unwrap());
            value(&mut world.resolve("{ command = ['mytok'] }"))
        };
        assert_eq!(
            search(&mut world, &["home"]).unwrap(),
            b"value\n",
            "control"
        );
        world.program(&format!("{caches}/mytok"), "echo planted");
        assert_eq!(search(&mut world, &[caches, "home"]).unwrap(), b"value\n");
        let named = world.at("named").into_os_string();
        world.variables.insert("XDG_DATA_HOME".into(), named);
        world.program("named/lazaret/projects/other-1/mytok", "echo planted");
        let directories = ["named/lazaret/projects/other-1", caches, "home"];
        assert_eq!(search(&mut world, &directories).unwrap(), b"value\n");
        world.file(&format!("{caches}/token"), b"planted");
        let file = "{ file = '~/.local/share/lazaret/projects/other-1/caches/token' }";
        assert!(absent(&world.resolve(file)).contains("where commands can write"));
    }

    #[test]
    fn no_word_of_a_program_names_where_commands_can_write() {
        let world = World::new();
        world.program("home/run", "echo value");
        let (program, project) = (world.at("home/run"), world.at("project"));
        let of = |word: String| {
            let words = format!("{{ command = ['{}', \"{word}\"] }}", program.display());
            world.resolve(&words)
        };
        for word in ["--file={}/x", "-f{}/x", "exec {}/x", "cd {}; ./x", "{}"] {
            let word = word.replace("{}", &project.display().to_string());
            let why = absent(&of(word.clone()));
            assert!(why.contains("where commands can write"), "{word}: {why}");
        }
        let beside = format!("-f{}-of-mine/x", project.display());
        assert_eq!(value(&mut of(beside)).unwrap(), b"value\n");
    }

    #[test]
    fn a_file_that_became_a_link_into_the_project_gives_no_value() {
        let world = World::new();
        world.file("home/token", b"value");
        world.file("project/token", b"planted");
        let mut credentials = world.resolve("{ file = '~/token' }");
        fs::remove_file(world.at("home/token")).unwrap();
        std::os::unix::fs::symlink(world.at("project/token"), world.at("home/token")).unwrap();
        assert!(
            value(&mut credentials)
                .unwrap_err()
                .contains("where commands can write")
        );
    }

    #[test]
    fn a_file_has_a_maximum_size() {
        let world = World::new();
        let mut largest = vec![b'x'; broker_protocol::limit::CREDENTIAL];
        world.file("home/token", &largest);
        let mut credentials = world.resolve("{ file = '~/token' }");
        assert_eq!(value(&mut credentials).unwrap(), largest);
        largest.push(b'\n');
        world.file("home/token", &largest);
        assert!(
            value(&mut credentials)
                .unwrap_err()
                .contains("more than 64 KiB")
        );
    }

    #[test]
    fn a_systemd_credential_is_a_file_of_its_directory() {
        let mut world = World::new();
        world.file("home/token", b"value");
        assert!(absent(&world.resolve("{ systemd = 'token' }")).contains("CREDENTIALS_DIRECTORY"));
        let directory = world.at("home").into_os_string();
        world
            .variables
            .insert("CREDENTIALS_DIRECTORY".into(), directory);
        assert_eq!(
            value(&mut world.resolve("{ systemd = 'token' }")).unwrap(),
            b"value"
        );
    }

    #[test]
    fn a_variable_of_the_user_is_a_value_and_in_no_cell() {
        let mut world = World::new();
        assert!(absent(&world.resolve("{ env = 'MINE_KEY' }")).contains("MINE_KEY is not set"));
        world.variables.insert("MINE_KEY".into(), "".into());
        assert!(absent(&world.resolve("{ env = 'MINE_KEY' }")).contains("is empty"));
        let long = |bytes: usize| "x".repeat(bytes);
        world
            .variables
            .insert("MINE_KEY".into(), long(limit::CREDENTIAL + 1).into());
        assert!(absent(&world.resolve("{ env = 'MINE_KEY' }")).contains("KiB"));
        world
            .variables
            .insert("MINE_KEY".into(), long(limit::CREDENTIAL).into());
        let mut credentials = world.resolve("{ env = 'MINE_KEY' }");
        assert_eq!(value(&mut credentials).unwrap().len(), limit::CREDENTIAL);
        assert_eq!(credentials.variables()["MINE_KEY"], None);
        // Where its own variable is the one with the placeholder, cells have that.
        world.variables.insert("ONE_TOKEN".into(), "mine".into());
        let mut credentials = world.resolve("{ env = 'ONE_TOKEN' }");
        assert_eq!(value(&mut credentials).unwrap(), b"mine");
        let shown = credentials.variables()["ONE_TOKEN"].clone();
        assert!(shown.is_some_and(|shown| shown != "mine"));
    }

    #[test]
    fn an_item_of_the_keyring_is_read_by_its_program() {
        let world = World::new();
        world.program("bin/secret-tool", "echo \"$@\"");
        let mut credentials = world.resolve("{ keyring = { service = 'one', user = 'me' } }");
        assert_eq!(
            value(&mut credentials).unwrap(),
            b"lookup service one user me\n"
        );
    }

    #[test]
    fn a_programs_output_is_the_value() {
        let mut world = World::new();
        world.variables.insert("SOME_TOKEN".into(), "s".into());
        world.variables.insert("LANG".into(), "C".into());
        world.program(
            "bin/source",
            "echo \"$1:$PWD:$LANG:${SOME_TOKEN-}:$HOME\"; cat; echo no >&2",
        );
        let mut credentials = world.resolve("{ command = ['source', 'a b'] }");
        let want = format!("a b:/:C::{}\n", world.at("home").display());
        assert_eq!(value(&mut credentials).unwrap(), want.into_bytes());
        // The next comes at once only for a new gateway.
        let again = value(&mut credentials).unwrap_err();
        assert!(again.contains("30 seconds"), "{again}");
        credentials.forget_starts();
        assert!(value(&mut credentials).is_ok());
    }

    #[test]
    fn a_program_of_the_project_is_refused() {
        let mut world = World::new();
        world.program("project/source", "echo planted");
        let project = world.at("project");
        let by_path = format!("{{ command = ['{}/source'] }}", project.display());
        assert!(absent(&world.resolve(&by_path)).contains("where commands can write"));
        std::os::unix::fs::symlink(world.at("project/source"), world.at("bin/source")).unwrap();
        let linked = absent(&world.resolve("{ command = ['source'] }"));
        assert!(linked.contains("no program"), "{linked}");
        world.variables.insert("PATH".into(), project.into());
        let found = absent(&world.resolve("{ command = ['source'] }"));
        assert!(found.contains("no program"), "{found}");
    }

    #[test]
    fn nothing_of_the_project_is_run_by_a_word_or_by_a_scripts_first_line() {
        let world = World::new();
        world.program("project/script", "echo planted");
        std::os::unix::fs::symlink(world.at("project"), world.at("link")).unwrap();
        let folder = world.at("").display().to_string();
        for word in [
            "project/script",
            "link/script",
            "link/absent",
            "bin/../project/script",
        ] {
            for word in [format!("{folder}{word}"), format!("--file={folder}{word}")] {
                let absent = absent(&world.resolve(&format!("{{ command = ['sh', '{word}'] }}")));
                assert!(
                    absent.contains("where commands can write"),
                    "{word}: {absent}"
                );
            }
        }
        fs::write(
            world.at("bin/source"),
            format!("#! {folder}link/script x\n"),
        )
        .unwrap();
        fs::set_permissions(world.at("bin/source"), fs::Permissions::from_mode(0o755)).unwrap();
        let named = absent(&world.resolve("{ command = ['source'] }"));
        assert!(named.contains("no program"), "{named}");
        let mut control = world.resolve("{ command = ['sh', '-c', 'echo x=/y'] }");
        assert_eq!(value(&mut control).unwrap(), b"x=/y\n");
        world.file("home/token", b"real value");
        let mut of_home = world.resolve("{ command = ['cat', '~/token'] }");
        assert_eq!(value(&mut of_home).unwrap(), b"real value");
    }

    /// Who can change a link leads what uses it wherever they want, whatever it leads to now.
    #[test]
    fn a_link_of_the_projects_is_on_the_way_of_no_source() {
        use std::os::unix::fs::symlink;
        let world = World::new();
        fs::create_dir_all(world.at("home/venv/bin")).unwrap();
        world.file("home/token", b"real value");
        world.program("home/venv/bin/tool", "echo of a program");
        let all = ["token", "venv"].map(|name| (name, world.at("home").join(name)));
        for (name, to) in all {
            symlink(to, world.at("project").join(name)).unwrap();
            symlink(
                world.at("project").join(name),
                world.at("home").join(name.to_owned() + "-"),
            )
            .unwrap();
        }
        let link = |path: &str| world.at(path).display().to_string();
        for path in ["project/token", "home/token-"] {
            let why = absent(&world.resolve(&format!("{{ file = '{}' }}", link(path))));
            assert!(why.contains("where commands can write"), "{path}: {why}");
        }
        for path in ["project/venv/bin/tool", "home/venv-/bin/tool"] {
            for words in [
                format!("'{}'", link(path)),
                format!("'sh', '{}'", link(path)),
            ] {
                let why = absent(&world.resolve(&format!("{{ command = [{words}] }}")));
                assert!(why.contains("where commands can write"), "{words}: {why}");
            }
        }
        let mut world = world;
        for path in ["project/venv/bin", "home/venv-/bin", "home/venv/bin"] {
            let list = format!("{}:/usr/bin:/bin", world.at(path).display());
            world.variables.insert("PATH".into(), list.into());
            let mut found = world.resolve("{ command = ['sh', '-c', 'tool || echo none'] }");
            let want = match path {
                "home/venv/bin" => b"of a program\n".to_vec(),
                _ => b"none\n".to_vec(),
            };
            assert_eq!(value(&mut found).unwrap(), want, "{path}");
        }
    }

    /// As `npm link` leaves one among the user's own programs.
    #[test]
    fn no_program_that_leads_into_the_project_is_looked_up() {
        let world = World::new();
        world.program("project/helper", "echo planted");
        std::os::unix::fs::symlink(world.at("project/helper"), world.at("bin/helper")).unwrap();
        let script = |name: &str, line: &str| {
            world.program(&format!("bin/{name}"), "");
            fs::write(world.at("bin").join(name), format!("#!{line}\necho\n")).unwrap();
        };
        script("by-name", "/usr/bin/env helper");
        script("by-words", "/usr/bin/env -S FOO=1 helper -x");
        script("by-path", &world.at("project/helper").display().to_string());
        script("by-script", &world.at("bin/by-path").display().to_string());
        script("plain", "/bin/sh");
        for words in [
            "'helper'",
            "'by-name'",
            "'by-words'",
            "'by-path'",
            "'by-script'",
            "'env', 'helper'",
            "'env', '-S', 'X=1 helper'",
            "'sh', '-c', 'cd /; helper|cat'",
            "'sh', '-c', '$HOME/../project/helper'",
            "'sh', '-c', '~/../project/helper'",
        ] {
            let why = absent(&world.resolve(&format!("{{ command = [{words}] }}")));
            let is_refused = why.contains("where commands can write") || why.contains("no program");
            assert!(is_refused, "{words}: {why}");
        }
        for words in [
            "'plain'",
            "'env', 'echo', 'auth token'",
            "'sh', '-c', 'echo helpers'",
        ] {
            let mut control = world.resolve(&format!("{{ command = [{words}] }}"));
            assert!(value(&mut control).is_ok(), "{words}");
        }
    }

    #[test]
    fn a_variable_that_leads_into_the_project_is_not_passed() {
        let mut world = World::new();
        std::os::unix::fs::symlink(world.at("project"), world.at("link")).unwrap();
        world.program(
            "bin/source",
            "echo \"$DBUS_SESSION_BUS_ADDRESS,$XDG_DATA_DIRS\"",
        );
        let folder = world.at("").display().to_string();
        let escaped = folder.replace("/tmp", "/%74mp");
        let mut printed = |bus: String, data: String| {
            let variables = &mut world.variables;
            variables.insert("DBUS_SESSION_BUS_ADDRESS".into(), bus.into());
            variables.insert("XDG_DATA_DIRS".into(), data.into());
            value(&mut world.resolve("{ command = ['source'] }")).unwrap()
        };
        for bus in [
            format!("unix:path={folder}project/bus"),
            format!("unix:path={folder}link/bus"),
            format!("unix:path={escaped}project/bus"),
            format!("unixexec:path={escaped}project/run"),
            format!("unix:path=/run/bus;unixexec:path={folder}home/run"),
            "unixexec:path=/bin/sh,argv1=-c,argv2=x".to_owned(),
            "autolaunch:".to_owned(),
            "tcp:host=127.0.0.1,port=1".to_owned(),
        ] {
            let data = format!("/usr/share:{folder}link/share");
            assert_eq!(printed(bus.clone(), data), b",\n", "{bus}");
        }
        let kept = printed(
            "unix:path=/run/user/1/bus,guid=0".into(),
            "/usr/share".into(),
        );
        assert_eq!(
            kept, b"unix:path=/run/user/1/bus,guid=0,/usr/share\n",
            "the control"
        );
    }

    #[test]
    fn a_program_that_fails_gives_no_value() {
        let world = World::new();
        for (script, want) in [
            ("echo error; exit 1", "has ended with the exit code 1"),
            ("echo x; kill -9 $$", "was killed by the signal 9"),
            (":", "has printed nothing"),
            ("head -c 65537 /dev/zero", "more than 64 KiB"),
            ("head -c 70000 /dev/zero", "more than 64 KiB"),
            ("head -c 9000000 /dev/zero; exit 0", "more than 64 KiB"),
        ] {
            world.program("bin/source", script);
            let mut credentials = world.resolve("{ command = ['source'] }");
            let why = value(&mut credentials).unwrap_err();
            assert!(why.contains(want), "{script}: {why}");
        }
        world.program("bin/source", "head -c 65536 /dev/zero");
        let largest = value(&mut world.resolve("{ command = ['source'] }")).unwrap();
        assert_eq!(largest.len(), broker_protocol::limit::CREDENTIAL);
        let mut credentials = world.resolve("{ command = ['source'] }");
        fs::remove_file(world.at("bin/source")).unwrap();
        let why = value(&mut credentials).unwrap_err();
        assert!(why.contains("No such file"), "{why}");
    }

    #[test]
    fn a_program_that_hangs_is_ended_with_what_it_has_started() {
        let world = World::new();
        let mark = world.at("home/alive");
        let script = format!(
            "(setsid sh -c 'while :; do date > {0}; sleep 0.2; done') & echo x; sleep 1000",
            mark.display()
        );
        world.program("bin/source", &script);
        let mut credentials = world.resolve("{ command = ['source'] }");
        let begun = Instant::now();
        let why = value(&mut credentials).unwrap_err();
        assert!(why.contains("10 seconds"), "{why}");
        // Long before it would end by itself.
        assert!(begun.elapsed() < Duration::from_secs(100));
        assert!(mark.exists());
        fs::remove_file(&mark).unwrap();
        std::thread::sleep(Duration::from_millis(600));
        assert!(!mark.exists());
    }

    #[test]
    fn a_program_whose_reader_is_stuck_is_given_up() {
        let world = World::new();
        world.program("bin/source", "sleep 1000");
        let mut credentials = world.resolve("{ command = ['source'] }");
        assert!(credentials.want(0, Instant::now()).is_none());
        assert!(credentials.want(0, Instant::now()).is_none());
        assert_eq!(credentials.running().count(), 1);
        let reader = credentials.held[0].reader.as_ref().unwrap().child.pid;
        let due = credentials.deadline().unwrap();
        assert!(credentials.tick(Instant::now()).is_empty());
        let ended = credentials.tick(due);
        assert!(ended[0].value.is_err() && ended[0].credential == 0);
        assert_eq!(credentials.running().count(), 0);
        let proc = PathBuf::from(format!("/proc/{reader}"));
        assert!(!proc.exists(), "a zombie stays");
    }

    #[test]
    fn unusable_source_has_no_value() {
        let world = World::new();
        world.file("home/token", b"value");
        let mut credentials = world.resolve("{ file = '~/token' }");
        assert_eq!(credentials.name(0), Some("one"));
        assert_eq!(credentials.name(1), None);
        assert!(credentials.want(1, Instant::now()).unwrap().value.is_err());
        assert!(credentials.ready(1).is_none() && credentials.ready(0).is_none());
        let fd = credentials.want(0, Instant::now()).unwrap().value.unwrap();
        let mode = nix::sys::stat::fstat(fd.as_fd()).unwrap().st_mode;
        assert_eq!(mode & libc::S_IFMT, libc::S_IFIFO);
    }
}
