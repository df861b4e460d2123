//! Credentials of a session: presets, the files that may define them, their limits, and their effect on a profile.

use broker_protocol::gateway::{Attach, CredentialSpec, GatewaySpec};
use broker_protocol::limit;
use policies::credential_table::{
    CREDENTIAL_HOSTS_MAX, CREDENTIAL_VARIABLES_MAX, REQUEST_NAME_MAX, SOURCE_BYTES_MAX,
    SOURCE_WORDS_MAX, Shape, USE_PATH_MAX, presets,
};
use policies::model::PolicyFile;
use policies::{
    Credential, CredentialSource, EffectivePolicy, Host, Policies, PolicyError, PolicySource,
    SourceKind,
};

fn source(kind: SourceKind, text: &str) -> PolicySource {
    PolicySource {
        name: format!("{kind:?}"),
        kind,
        text: format!("version = 1\n{text}"),
    }
}

fn load(files: &[(SourceKind, &str)]) -> Result<Policies, PolicyError> {
    Policies::load(
        files
            .iter()
            .map(|(kind, text)| source(*kind, text))
            .collect(),
    )
}

fn resolve(profile: &str, text: &str) -> EffectivePolicy {
    let host = Host {
        home: "/home/u".into(),
        ..Host::default()
    };
    let policies = load(&[(SourceKind::User, text)]).unwrap();
    policies.resolve(profile, &host).unwrap()
}

fn fault(text: &str) -> String {
    let error = PolicyFile::parse("p", &format!("version = 1\n{text}")).unwrap_err();
    error.to_string()
}

const GITHUB: &str = "[credential.github]\nfrom = { file = '~/token' }\npreset = 'github'\n";
const OWN: &str = "[credential.own]\nfrom = { systemd = 'token' }\nhosts = ['api.example']\n";

fn hosts(policy: &EffectivePolicy) -> Vec<String> {
    let own = policy.network.own.allow.iter().flatten();
    own.map(|host| host.text().to_owned()).collect()
}

#[test]
fn each_preset_is_complete_and_fits_the_protocol() {
    let names: Vec<&str> = presets().map(|(name, _)| name).collect();
    let all = [
        "anthropic",
        "anthropic-oauth",
        "aws",
        "claude-login",
        "codex-login",
        "crates",
        "github",
        "npm",
        "openai",
        "pypi",
    ];
    assert_eq!(names, all);
    for (name, preset) in presets() {
        let hosts = match preset.hosts.is_empty() {
            true => "hosts = ['own.example']\n",
            false => "",
        };
        let text = format!(
            "[credential.x]\nfrom = {{ file = '/x' }}\npreset = '{name}'\n{hosts}[profile.a]\ncredentials = ['x']"
        );
        let credential = resolve("a", &text).credentials.remove(0);
        assert_eq!(credential.variables.is_empty(), preset.captures(), "{name}");
        let spec = CredentialSpec {
            name: name.into(),
            placeholder: preset.placeholder.fill(&[7; 512]),
            hosts: credential.hosts,
            attach: credential.attach,
            uses: credential.uses.clone(),
        };
        assert_eq!(spec.placeholder.len(), preset.placeholder.length, "{name}");
        // The name of a key of AWS is shorter, and no secret.
        let random = if name == "aws" { 12 } else { 30 };
        assert!(preset.placeholder.random() >= random, "{name}");
        assert!(credential.uses.iter().any(|one| one.refused), "{name}");
        let spec = GatewaySpec {
            credentials: vec![spec],
            ..GatewaySpec::default()
        };
        assert_eq!(spec.check(), Ok(()), "{name}");
    }
}

const LOGIN: &str = "[credential.x]\nhosts = ['api.example', 'auth.example']\n";

fn login(capture: &str) -> String {
    format!("{LOGIN}capture = {{ {capture} }}\n")
}

const ENDPOINT: &str = "endpoints = [{ host = 'auth.example', path = '/oauth/token' }]";

#[test]
fn a_login_needs_no_source_and_names_its_endpoints() {
    let text = login(ENDPOINT) + "[profile.a]\ncredentials = ['x']";
    let credential = resolve("a", &text).credentials.remove(0);
    assert_eq!(credential.from, CredentialSource::Session);
    let Attach::Login(spec) = credential.attach else {
        panic!("it captures logins");
    };
    assert_eq!(spec.endpoints[0].host, "auth.example:443");
    let file = format!(
        "{LOGIN}from = {{ file = '/k' }}\ncapture = {{ {ENDPOINT} }}\n[profile.a]\ncredentials = ['x']"
    );
    let kept = resolve("a", &file).credentials.remove(0);
    assert_eq!(kept.from, CredentialSource::File("/k".into()));
}

#[test]
fn a_login_that_cannot_be_served_is_refused() {
    let no_source = "[credential.x]\nhosts = ['a.example']\nattach = 'bearer'\n";
    assert!(fault(no_source).contains("where its value comes from"));
    for (text, part) in [
        (login("endpoints = []"), "1 to 8 `endpoints`"),
        (
            login("endpoints = [{ host = 'other.example', path = '/t' }]"),
            "at one of the credential's hosts",
        ),
        (
            login(&format!("{ENDPOINT}, claims = ['']")),
            "visible characters",
        ),
        (
            login(&format!("{ENDPOINT}, members = ['x_token']")),
            "none of them is a token's",
        ),
        (
            login(&format!("{ENDPOINT}, access_prefix = 'a.b'")),
            "letters, digits",
        ),
        (login(ENDPOINT) + "attach = 'bearer'\n", "has no `attach`"),
        (login(ENDPOINT) + "env = ['X_TOKEN']\n", "no `env`"),
        (
            login(ENDPOINT) + "uses = [{ path = '/x', unasked = true }]\n",
            "`unasked`",
        ),
        (login(&format!("{ENDPOINT}, other = 1")), "unknown field"),
    ] {
        let fault = fault(&text);
        assert!(fault.contains(part), "{text}: {fault}");
    }
}

#[test]
fn names_and_endpoints_of_a_login_have_limits() {
    let endpoints = |count: usize| {
        let one = "{ host = 'auth.example', path = '/t' }";
        login(&format!("endpoints = [{}]", vec![one; count].join(", ")))
    };
    let names = |count: usize, length: usize| {
        let name = format!("'{}'", "n".repeat(length));
        login(&format!(
            "{ENDPOINT}, claims = [{}]",
            vec![name; count].join(", ")
        ))
    };
    let parses = |text: &str| PolicyFile::parse("p", &format!("version = 1\n{text}")).is_ok();
    assert!(parses(&endpoints(limit::LOGIN_ENDPOINTS)));
    assert!(!parses(&endpoints(limit::LOGIN_ENDPOINTS + 1)));
    assert!(parses(&names(limit::LOGIN_NAMES, limit::LOGIN_NAME)));
    assert!(!parses(&names(limit::LOGIN_NAMES + 1, 1)));
    assert!(!parses(&names(1, limit::LOGIN_NAME + 1)));
}

#[test]
fn no_placeholder_of_github_or_npm_has_a_valid_checksum() {
    for of in ["github", "npm"] {
        let (_, preset) = presets().find(|(name, _)| *name == of).unwrap();
        let placeholder = preset.placeholder.fill(&[1; 64]);
        let alphabet = &preset.placeholder.alphabet;
        let digit = |c: char| alphabet.find(c).unwrap() as u64;
        let checksum = placeholder[34..]
            .chars()
            .fold(0, |sum, c| sum * 62 + digit(c));
        assert!(checksum > u64::from(u32::MAX), "{checksum}");
    }
}

#[test]
fn client_needs_of_a_preset_follow_its_hosts_and_attachment() {
    let own = |preset: &str, lines: &str| {
        let text = format!(
            "[credential.x]\nfrom = {{ file = '/x' }}\npreset = '{preset}'\n{lines}\n[profile.a]\ncredentials = ['x']"
        );
        resolve("a", &text).credentials.remove(0)
    };
    let files = |credential: &Credential| -> Vec<(String, String)> {
        let files = credential.files.iter();
        files
            .map(|file| (file.path.clone(), file.text(&credential.hosts, "npm_x")))
            .collect()
    };
    let shipped = own("npm", "");
    let host = shipped.hosts[0].strip_suffix(":443").unwrap();
    let line = format!("//{host}/:_authToken=npm_x\n");
    assert_eq!(files(&shipped), [(".npmrc".to_owned(), line)]);
    let text = "//a.example/:_authToken=npm_x\n//b.example:81/:_authToken=npm_x\n";
    let two = own("npm", "hosts = ['a.example', 'b.example:81']");
    assert_eq!(files(&two), [(".npmrc".to_owned(), text.to_owned())]);
    let (pypi, crates) = (files(&own("pypi", "")), files(&own("crates", "")));
    let text =
        "[distutils]\nindex-servers = pypi\n\n[pypi]\nusername = __token__\npassword = npm_x\n";
    assert_eq!(pypi, [(".pypirc".to_owned(), text.to_owned())]);
    let text = "[registry]\ntoken = \"npm_x\"\n";
    assert_eq!(
        crates,
        [(".cargo/credentials.toml".to_owned(), text.to_owned())]
    );
    for preset in ["pypi", "crates"] {
        // The name of such a registry in the file is not known.
        let elsewhere = files(&own(preset, "hosts = ['a.example']"));
        assert!(elsewhere[0].1.is_empty(), "{elsewhere:?}");
    }
    assert_eq!(own("pypi", "").set["TWINE_USERNAME"], "__token__");
    let named = own("pypi", "attach = 'basic:me'");
    assert_eq!(named.set["TWINE_USERNAME"], "me");
    assert!(own("pypi", "attach = 'bearer'").set.is_empty());
    assert_eq!(own("crates", "").set.len(), 1);
    assert!(own("github", "").set.is_empty() && own("github", "").files.is_empty());
}

/// A file is written below the cells' home, where nothing else may be reached.
#[test]
fn files_of_presets_stay_in_the_home() {
    for (name, preset) in presets() {
        for file in &preset.files {
            let parts: Vec<&str> = file.path.split('/').collect();
            let is_plain = !parts.iter().any(|part| ["", ".", ".."].contains(part));
            // Lines for several hosts stand one after the other.
            let is_whole = file.host.is_some() || !file.line.contains('\n');
            assert!(is_plain && is_whole, "{name}: {file:?}");
        }
    }
}

#[test]
fn a_credential_has_the_parts_of_its_preset_but_those_beside_it() {
    let text = format!("{GITHUB}env = ['MY_TOKEN']\n[profile.a]\ncredentials = ['github']");
    let credential = resolve("a", &text).credentials.remove(0);
    assert_eq!(credential.variables, ["MY_TOKEN"]);
    assert_eq!(credential.hosts[0], "github.com:443");
    assert_eq!(
        credential.from,
        CredentialSource::File("/home/u/token".into())
    );
    assert_eq!(credential.origin.to_string(), "User:2");
    assert_eq!(credential.preset.as_deref(), Some("github"));
}

#[test]
fn attachments_are_read() {
    let user = || "x-access-token".to_owned();
    for (text, want) in [
        ("'bearer'", Attach::Bearer),
        ("'basic:x-access-token'", Attach::Basic { user: user() }),
        ("'any:x-access-token'", Attach::Any { user: user() }),
        ("'aws'", Attach::Aws),
        (
            "{ header = 'X-Api-Key' }",
            Attach::Header {
                name: "x-api-key".into(),
            },
        ),
    ] {
        let text = format!("{OWN}attach = {text}\n[profile.a]\ncredentials = ['own']");
        let Credential { attach, uses, .. } = resolve("a", &text).credentials.remove(0);
        assert_eq!(attach, want);
        let any: Vec<_> = uses.iter().map(|one| (&*one.path, one.unasked)).collect();
        assert_eq!(any, [("/**", false)]);
    }
}

#[test]
fn placeholder_has_the_form_that_its_table_gives_it() {
    let of = |lines: &str| {
        let text = format!("{OWN}attach = 'bearer'\n{lines}\n[profile.a]\ncredentials = ['own']");
        resolve("a", &text).credentials.remove(0).shape
    };
    assert_eq!(of(""), Shape::default());
    let slack = of("placeholder = { prefix = 'xoxb-', length = 40 }");
    let filled = slack.fill(&[7; 64]);
    assert!(
        filled.starts_with("xoxb-hhh") && filled.len() == 40,
        "{filled}"
    );
    let hex = of("placeholder = { alphabet = '0123456789abcdef', suffix = 'ff', length = 32 }");
    assert_eq!(hex.fill(&[10; 64]), "a".repeat(30) + "ff");
    let text = format!(
        "{GITHUB}placeholder = {{ prefix = 'ghs_', length = 40 }}\n[profile.a]\ncredentials = ['github']"
    );
    let beside_a_preset = resolve("a", &text).credentials.remove(0).shape;
    assert!(beside_a_preset.fill(&[1; 64]).starts_with("ghs_bbb"));
}

#[test]
fn placeholder_that_is_guessed_or_cannot_be_sent_is_refused() {
    // The last one that is accepted, then what is one too few, one too many, or no text of a header.
    for (shape, is_valid) in [
        ("{ prefix = 'p', length = 13 }", true),
        ("{ prefix = 'p', length = 12 }", false),
        ("{ alphabet = '0123456789abcdef', length = 15 }", true),
        ("{ alphabet = '0123456789abcdef', length = 14 }", false),
        (
            "{ alphabet = 'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa', length = 1000 }",
            false,
        ),
        ("{ alphabet = '', length = 1000 }", false),
        ("{ length = 1024 }", true),
        ("{ length = 1025 }", false),
        ("{ prefix = 'a b', length = 60 }", false),
        ("{ suffix = 'ä', length = 60 }", false),
        (
            "{ alphabet = \"abcdefghijklmnopqrstuvwxyz\\n\", length = 60 }",
            false,
        ),
    ] {
        let text = format!("{OWN}attach = 'bearer'\nplaceholder = {shape}\n");
        let error = load(&[(SourceKind::User, &text)])
            .err()
            .map(|error| error.to_string());
        assert_eq!(error.is_none(), is_valid, "{shape}: {error:?}");
        let is_ours = |error: String| error.contains(":2:13: a placeholder has at most");
        assert!(error.is_none_or(is_ours), "{shape}");
    }
}

#[test]
fn credential_errors_name_their_position() {
    let own = |line: &str| format!("{OWN}attach = 'bearer'\n{line}");
    let aws = |line: &str| format!("{OWN}attach = 'aws'\n{line}");
    for (text, want) in [
        (
            "[credential.a]\nhosts = ['a']\n".to_owned(),
            "p:2:13: a credential without a preset has `attach`",
        ),
        (
            "[credential.'a b']\nfrom = { file = '/x' }".into(),
            "p:2:13: a credential's name",
        ),
        (
            "[credential.a]\nfrom = { env = 'X Y' }".into(),
            "p:3:16: a variable",
        ),
        (
            "[credential.a]\nfrom = { env = 'CORP_CRED_OF_OURS' }".into(),
            "p:3:8: the name of a variable with a value looks like a secret's",
        ),
        (
            "[credential.a]\nfrom = { keyring = {} }".into(),
            "p:3:20: a keyring's item",
        ),
        (
            "[credential.a]\nfrom = { file = '/x', systemd = 'y' }".into(),
            "p:3:8: `from` has one of",
        ),
        (
            "[credential.a]\nfrom = 'of-nobody'".into(),
            "p:3:8: `from` has one of",
        ),
        (
            "[credential.a]\nfrom = { command = 'echo of-nobody' }".into(),
            "p:3:20: a command is an array",
        ),
        (
            "[gateway]\nproxy_from = 'of-nobody'".into(),
            "p:3:14: `from` has one of",
        ),
        (
            "[credential.a]\nfrom = { file = 'x' }".into(),
            "p:3:17: a host path begins",
        ),
        (
            "[credential.a]\nfrom = { systemd = '../x' }".into(),
            "p:3:20: a systemd credential",
        ),
        (
            "[credential.a]\nfrom = { command = ['./x'] }".into(),
            "p:3:20: a command is",
        ),
        (
            "[credential.a]\nfrom = { command = [] }".into(),
            "p:3:20: a command is",
        ),
        (
            format!("{GITHUB}nothing = 1"),
            "p:5:1: unknown field `nothing`",
        ),
        (
            GITHUB.replace("'github'", "'gitlab'"),
            "p:4:10: there is no preset",
        ),
        (
            format!("{GITHUB}hosts = ['a.example']"),
            "p:2:13: a use names a host",
        ),
        (
            format!("{GITHUB}hosts = ['a.example', '*.b']"),
            "p:5:23: a credential's host",
        ),
        (
            format!("{GITHUB}hosts = ['10.1.1.1:443']"),
            "p:5:10: a credential's host",
        ),
        (
            OWN.into(),
            "p:2:13: a credential without a preset has `attach`",
        ),
        (
            OWN.replace("hosts = ['api.example']", "attach = 'bearer'"),
            "p:2:13: a credential has `hosts`",
        ),
        (format!("{OWN}attach = 'digest'"), "p:5:10: `attach` is"),
        (format!("{OWN}attach = 'basic:'"), "p:5:10: `attach` is"),
        (format!("{OWN}attach = 'basic:a:b'"), "p:5:10: `attach` is"),
        (
            format!("{OWN}attach = {{ header = 'a b' }}"),
            "p:5:10: a header that holds",
        ),
        (
            format!("{OWN}attach = {{ header = 'Content-Length' }}"),
            "p:5:10: this header says",
        ),
        (own("uses = [{ path = 'a' }]"), "p:6:18: a path begins"),
        (own("uses = [{ path = '/a?b' }]"), "p:6:18: a path begins"),
        (
            own("uses = [{ path = '/a/../b' }]"),
            "p:6:18: a path begins",
        ),
        (own("uses = [{ path = '/a*' }]"), "p:6:18: a path begins"),
        (own("uses = [{ path = '/**/a' }]"), "p:6:18: a path begins"),
        (
            own("uses = [{ path = '/a', methods = ['get'] }]"),
            "p:6:35: a method is",
        ),
        (
            own("uses = [{ path = '/a', methods = ['TRACE'] }]"),
            "p:6:35: a method is",
        ),
        (
            own("uses = [{ path = '/a', refused = true }]"),
            "p:2:13: a use that is `refused` has a `why`",
        ),
        (own("uses = []"), "p:2:13: a credential has 1 to 256 uses"),
        (
            GITHUB.replace("'github'", "'aws'"),
            "p:2:13: a credential has `hosts`",
        ),
        (
            own("uses = [{ path = '/a', service = 's3' }]"),
            "p:2:13: `service` of a use needs",
        ),
        (
            aws("uses = [{ path = '/a', actions = ['x'] }]"),
            "p:2:13: `service` of a use needs",
        ),
        (
            aws("uses = [{ path = '/a', service = 's3', unasked = true }]"),
            "p:2:13: no use is `unasked`",
        ),
        (
            aws("uses = [{ path = '/a', service = 'S3' }]"),
            "p:6:34: a service is",
        ),
        (
            aws("uses = [{ path = '/a', service = 's3', actions = ['a b'] }]"),
            "p:6:51: an action is",
        ),
        (own("env = ['PATH']"), "p:6:8: the executor sets"),
        (
            "[profile.a]\ncredentials = ['a/b']".into(),
            "p:3:16: a credential's name",
        ),
    ] {
        let got = fault(&text);
        assert!(got.starts_with(want), "{text}\n{got}\n{want}");
        assert!(!got.contains("of-nobody"), "a value is repeated: {got}");
    }
}

#[test]
fn limits_hold_at_their_bounds() {
    let list = |count: usize, one: &dyn Fn(usize) -> String| {
        let all: Vec<String> = (0..count).map(one).collect();
        format!("[{}]", all.join(", "))
    };
    let hosts = |count| {
        format!(
            "[credential.a]\nfrom = {{ file = '/x' }}\nattach = 'bearer'\nhosts = {}",
            list(count, &|n| format!("'h{n}.example'"))
        )
    };
    let own = |line: String| format!("{OWN}attach = 'bearer'\n{line}");
    let variables = |count| own(format!("env = {}", list(count, &|n| format!("'V{n}'"))));
    let uses = |count| {
        own(format!(
            "uses = {}",
            list(count, &|n| format!("{{ path = '/{n}' }}"))
        ))
    };
    let path = |bytes: usize| {
        own(format!(
            "uses = [{{ path = '/{}' }}]",
            "a".repeat(bytes - 1)
        ))
    };
    let user = |bytes: usize| format!("{OWN}attach = 'basic:{}'", "u".repeat(bytes));
    let command = |words: usize, bytes: usize| {
        let mut all = vec!["'x'".to_owned(); words - 1];
        all.push(format!("'{}'", "y".repeat(bytes - 2 * (words - 1) - 1)));
        format!(
            "[credential.a]\nfrom = {{ command = [{}] }}\npreset = 'github'",
            all.join(", ")
        )
    };
    let aws = |service: usize, actions: usize, action: usize| {
        let service = "s".repeat(service);
        let actions = list(actions, &|_| format!("'{}'", "a".repeat(action)));
        format!(
            "{OWN}attach = 'aws'\nuses = [{{ path = '/a', service = '{service}', actions = {actions} }}]"
        )
    };
    let why = |bytes: usize| {
        let why = "w".repeat(bytes);
        own(format!(
            "uses = [{{ path = '/a' }}, {{ path = '/**', refused = true, otherwise = true, why = '{why}' }}]"
        ))
    };
    for (fits, over) in [
        (why(limit::RULE_WHY), why(limit::RULE_WHY + 1)),
        (why(1), why(1).replace("refused = true, ", "")),
        (aws(limit::SERVICE, 1, 1), aws(limit::SERVICE + 1, 1, 1)),
        (aws(1, limit::ACTIONS, 1), aws(1, limit::ACTIONS + 1, 1)),
        (aws(1, 1, limit::ACTION), aws(1, 1, limit::ACTION + 1)),
        (hosts(CREDENTIAL_HOSTS_MAX), hosts(CREDENTIAL_HOSTS_MAX + 1)),
        (
            variables(CREDENTIAL_VARIABLES_MAX),
            variables(CREDENTIAL_VARIABLES_MAX + 1),
        ),
        (
            uses(limit::CREDENTIAL_USES),
            uses(limit::CREDENTIAL_USES + 1),
        ),
        (path(USE_PATH_MAX), path(USE_PATH_MAX + 1)),
        (user(REQUEST_NAME_MAX), user(REQUEST_NAME_MAX + 1)),
        (
            command(SOURCE_WORDS_MAX, 1000),
            command(SOURCE_WORDS_MAX + 1, 1000),
        ),
        (
            command(2, SOURCE_BYTES_MAX),
            command(2, SOURCE_BYTES_MAX + 1),
        ),
    ] {
        let parse = |text: &str| PolicyFile::parse("p", &format!("version = 1\n{text}"));
        assert!(parse(&fits).is_ok(), "{:?}", parse(&fits).err());
        assert!(parse(&over).is_err(), "{over}");
    }
}

#[test]
fn a_session_has_a_maximum_of_credentials() {
    let many = |count: usize| {
        let mut text = String::new();
        let mut names = Vec::new();
        for number in 0..count {
            text += &OWN.replace("own", &format!("own{number}"));
            text += "attach = 'bearer'\n";
            names.push(format!("'own{number}'"));
        }
        format!("{text}[profile.a]\ncredentials = [{}]", names.join(", "))
    };
    assert_eq!(
        resolve("a", &many(limit::CREDENTIALS)).credentials.len(),
        limit::CREDENTIALS
    );
    let over = load(&[(SourceKind::User, &many(limit::CREDENTIALS + 1))]).unwrap();
    let error = over.resolve(
        "a",
        &Host {
            home: "/h".into(),
            ..Host::default()
        },
    );
    assert!(matches!(error, Err(PolicyError::Credentials { .. })));
}

#[test]
fn a_later_file_neither_redefines_nor_escapes_the_list_of_an_earlier_one() {
    let (system, user) = (SourceKind::System, SourceKind::User);
    let error = |files: &[(SourceKind, &str)]| load(files).unwrap_err().to_string();
    assert!(
        load(&[
            (system, GITHUB),
            (user, "[profile.a]\ncredentials = ['github']")
        ])
        .is_ok()
    );
    assert_eq!(
        error(&[(system, GITHUB), (user, GITHUB)]),
        "User:2:13: credential `github`: it is already defined by System"
    );
    assert_eq!(
        error(&[(system, "allowed_credentials = ['gitlab']"), (user, GITHUB)]),
        "User:2:13: credential `github`: `allowed_credentials` of System leaves it out"
    );
    assert!(load(&[(system, "allowed_credentials = ['github']"), (user, GITHUB)]).is_ok());
    let named = "[profile.a]\ncredentials = ['github']";
    assert!(
        error(&[(system, named), (user, GITHUB)])
            .starts_with("System:3:16: credential `github`: profile `a` names it"),
    );
}

#[test]
fn the_hosts_of_a_credential_are_added_within_the_bounds_of_the_files() {
    let text = format!("{GITHUB}[profile.a]\ncredentials = ['github']\n[profile.b]\n");
    assert!(hosts(&resolve("a", &text)).contains(&"api.github.com:443".to_owned()));
    assert!(resolve("a", &text).network.allows("github.com", 443));
    assert!(hosts(&resolve("b", &text)).is_empty());
    let bounded = format!("network.allow = ['*.example']\n{text}");
    assert!(!resolve("a", &bounded).network.allows("github.com", 443));
}

#[test]
fn profile_inherits_credentials() {
    let text = format!(
        "{GITHUB}{OWN}attach = 'bearer'\n[profile.a]\ncredentials = ['github']\n[profile.b]\nextends = 'a'\ncredentials = ['own']"
    );
    let names: Vec<_> = resolve("b", &text)
        .credentials
        .into_iter()
        .map(|one| one.name)
        .collect();
    assert_eq!(names, ["github", "own"]);
}

#[test]
fn an_agents_profile_passes_the_real_key_only_without_a_credential() {
    let key = "ANTHROPIC_API_KEY";
    let without = resolve("claude", "");
    assert!(without.credentials.is_empty());
    assert!(without.environment.credentials.contains(key));
    let defined = "[credential.anthropic]\nfrom = { file = '~/key' }\npreset = 'anthropic'";
    let with = resolve("claude", defined);
    assert_eq!(with.credentials[0].variables, [key]);
    assert!(!with.environment.credentials.contains(key));
    assert!(
        with.environment
            .credentials
            .contains("CLAUDE_CODE_OAUTH_TOKEN")
    );
    assert!(resolve("default", defined).credentials.is_empty());
}
