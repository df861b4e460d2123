//! Keys of the user's ssh agent: which files may define them, their limits, and their effect on a profile.

use broker_protocol::limit;
use policies::model::PolicyFile;
use policies::ssh::{LoginRule, SignRule};
use policies::{Host, Policies, PolicyError, PolicySource, SourceKind};

const KEY: &str = "SHA256:uNiVztksCsDhcc0u9e8BrqXEQfLxZIFgO0z7Nb4J4X0";

fn load(files: &[(SourceKind, String)]) -> Result<Policies, PolicyError> {
    let source = |(kind, text): &(SourceKind, String)| PolicySource {
        name: format!("{kind:?}"),
        kind: *kind,
        text: format!("version = 1\n{text}"),
    };
    Policies::load(files.iter().map(source).collect())
}

fn forge(rest: &str) -> String {
    format!(
        "[ssh.forge]\nhosts = ['git.example', 'b.example:2222']\nuser = 'git'\nkeys = ['{KEY}']\n{rest}"
    )
}

fn fault(text: &str) -> String {
    let error = PolicyFile::parse("p", &format!("version = 1\n{text}")).unwrap_err();
    error.to_string()
}

#[test]
fn a_profile_has_the_keys_that_it_names_and_reaches_their_hosts() {
    let host = Host {
        home: "/home/u".into(),
        ..Host::default()
    };
    let named = "use = 'allow'\nsign = 'ask'\n[profile.dev2]\nssh = ['forge']\n[profile.other]\n";
    let policies = load(&[(SourceKind::User, forge(named))]).unwrap();
    let with = policies.resolve("dev2", &host).unwrap();
    let keys = &with.ssh[0];
    assert_eq!(keys.hosts, ["git.example:22", "b.example:2222"]);
    assert_eq!(
        (keys.login, keys.sign),
        (LoginRule::Allow, Some(SignRule::Ask))
    );
    assert!(with.network.allows("git.example", 22));
    assert!(with.has_network());
    let without = policies.resolve("other", &host).unwrap();
    assert!(without.ssh.is_empty());
    assert!(!without.network.allows("git.example", 22));
    let named = "[profile.dev2]\nssh = ['forge']\n";
    let policies = load(&[(SourceKind::User, forge(named))]).unwrap();
    let asks = policies.resolve("dev2", &host).unwrap();
    assert_eq!(
        (asks.ssh[0].login, asks.ssh[0].sign),
        (LoginRule::Ask, None)
    );
}

#[test]
fn an_entry_that_says_more_than_it_may_is_a_fault() {
    for (key, value) in [
        ("hosts", "[]"),
        ("hosts", "['*.example']"),
        ("user", "''"),
        ("user", "'-oProxyCommand'"),
        ("user", "'a b'"),
        ("keys", "[]"),
        ("keys", "['SHA256:short']"),
        ("keys", "['MD5:aa']"),
        ("use", "'deny'"),
        ("sign", "'allow'"),
    ] {
        let mut keys = vec![
            ("hosts", "['git.example']".to_owned()),
            ("user", "'git'".to_owned()),
            ("keys", format!("['{KEY}']")),
        ];
        keys.retain(|(name, _)| *name != key);
        keys.push((key, value.to_owned()));
        let lines = keys
            .iter()
            .map(|(name, value)| format!("{name} = {value}\n"));
        let text = format!("[ssh.forge]\n{}", lines.collect::<String>());
        assert!(fault(&text).starts_with("p:"), "{text}");
    }
    let many = |count| {
        let keys = vec![format!("'{KEY}'"); count].join(", ");
        format!("[ssh.forge]\nhosts = ['a.example']\nuser = 'git'\nkeys = [{keys}]\n")
    };
    let at_limit = format!("version = 1\n{}", many(limit::SSH_KEYS));
    assert!(PolicyFile::parse("p", &at_limit).is_ok());
    assert!(fault(&many(limit::SSH_KEYS + 1)).contains("1 to 16"));
}

#[test]
fn names_are_defined_once_and_allowed_as_those_of_credentials() {
    let (system, user) = (SourceKind::System, SourceKind::User);
    let error = |files: &[(SourceKind, String)]| load(files).unwrap_err().to_string();
    let named = "[profile.dev2]\nssh = ['other']\n".to_owned();
    assert!(
        error(&[(user, named)])
            .contains("neither its file nor an earlier one defines `[ssh.other]`")
    );
    let both = [(system, forge("")), (user, forge(""))];
    assert!(error(&both).contains("already defined by System"));
    let list = |name: &str| format!("allowed_credentials = ['{name}']\n");
    let left_out = [(system, list("github")), (user, forge(""))];
    assert!(error(&left_out).contains("`allowed_credentials` of System leaves it out"));
    assert!(load(&[(system, list("forge")), (user, forge(""))]).is_ok());
}
