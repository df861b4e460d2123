//! How policy files make one policy, and that later ones only narrow.

use broker_protocol::{Layer, Trust};
use policies::{
    Access, Channel, EffectivePolicy, Host, HostPathError, Policies, PolicyError, PolicySource,
    SourceKind,
};
use policies_guard::Protection;
use std::path::Path;

fn source(kind: SourceKind, text: &str) -> PolicySource {
    let name = match kind {
        SourceKind::Shipped => "shipped",
        SourceKind::System => "/etc/lazaret/policy.toml",
        SourceKind::User => "policy.toml",
    };
    PolicySource {
        name: name.into(),
        kind,
        text: format!("version = 1\n{text}"),
    }
}

fn system(text: &str) -> PolicySource {
    source(SourceKind::System, text)
}

fn user(text: &str) -> PolicySource {
    source(SourceKind::User, text)
}

fn host() -> Host {
    Host {
        home: "/home/u".into(),
        ..Host::default()
    }
}

fn resolve(sources: &[PolicySource], profile: &str) -> Result<EffectivePolicy, PolicyError> {
    Policies::load(sources.to_vec())?.resolve(profile, &host())
}

fn granted(policy: &EffectivePolicy, path: &str) -> Option<bool> {
    policy
        .grants
        .iter()
        .find(|grant| grant.path == Path::new(path))
        .map(|grant| grant.optional)
}

#[test]
fn the_empty_name_is_the_default_profile() {
    let policy = resolve(&[], "").unwrap();
    assert_eq!(
        (policy.profile.as_str(), policy.project, policy.central),
        ("default", Access::Write, Access::Write)
    );
    assert_eq!(policy.digest, resolve(&[], "default").unwrap().digest);
}

#[test]
fn profile_extends_default_unless_it_names_another() {
    let mine = user(
        "[profile.mine]\nproject = 'read'\ngrants = [{ path = '~/tool//bin/' }]\n[profile.mine.limits]\ntimeout_s = 5",
    );
    let policy = resolve(&[mine], "mine").unwrap();
    assert_eq!(
        (policy.project, policy.central),
        (Access::Read, Access::Write)
    );
    assert_eq!(
        (policy.limits.timeout_s, policy.limits.timeout_max_s),
        (Some(5), Some(600))
    );
    assert_eq!(granted(&policy, "/home/u/tool/bin"), Some(false));
    assert_eq!(granted(&policy, "/usr"), Some(false));
    assert!(policy.expected.contains(&Layer::Seccomp) && policy.required.is_empty());
}

/// A layer that a tier cannot have forbids the tier where it is required, in a profile or in any file.
#[test]
fn required_layers_of_all_files_add_up() {
    let etc = || system("required = ['mount-namespace']\n[profile.site]\nrequired = ['seccomp']");
    let own = "required = ['cgroup', 'mount-namespace']\n[profile.mine]\nextends = 'site'\nrequired = []\nexpected = []";
    let policy = resolve(&[etc(), user(own)], "mine").unwrap();
    assert_eq!(
        policy.required,
        [Layer::Cgroup, Layer::MountNamespace, Layer::Seccomp]
    );
    let control = resolve(&[], "default").unwrap();
    assert!(control.required.is_empty());
    // A profile that starts from `site` and one that does not.
    let bare = "extends = []\n[profile.mine.limits]\ntimeout_s = 1\ntimeout_max_s = 1\ncapture = 1\nspill = 1\nscratch = 1";
    let policy = resolve(&[etc(), user(&format!("[profile.mine]\n{bare}"))], "mine").unwrap();
    assert_eq!(
        (policy.required, policy.expected),
        (vec![Layer::MountNamespace], vec![])
    );
    let error = resolve(&[user("required = ['mount-namespaces']")], "default").unwrap_err();
    assert!(
        error
            .to_string()
            .contains("there is no layer of this name; there are: environment, "),
        "{error}"
    );
}

#[test]
fn profile_without_base_allows_only_its_list() {
    let empty = "[profile.bare]\nextends = []\n[profile.bare.limits]\ntimeout_s = 1\ntimeout_max_s = 1\ncapture = 1\nspill = 1\n";
    let missing = resolve(&[user(empty)], "bare").unwrap_err();
    assert_eq!(
        missing,
        PolicyError::NoLimit {
            profile: "bare".into(),
            limit: "scratch"
        }
    );
    let policy = resolve(&[user(&format!("{empty}scratch = 1"))], "bare").unwrap();
    assert_eq!(
        (policy.project, policy.central),
        (Access::Read, Access::Read)
    );
    assert_eq!(policy.limits.undo, 0);
    assert!(
        policy.grants.is_empty()
            && policy.environment.pass.is_empty()
            && policy.expected.is_empty()
    );
    // But what is protected is protected everywhere.
    assert!(policy.matcher.protection(b".env").is_some());
}

#[test]
fn later_bases_override_earlier_ones_and_each_applies_once() {
    let text = "[profile.a]\nproject = 'read'\n[profile.a.environment]\nset = { X = 'a', A = '1' }\npath = ['/a']\n\
                [profile.b]\n[profile.b.environment]\nset = { X = 'b' }\npath = ['/b', '/a']\n\
                [profile.c]\nextends = ['a', 'b']\n[profile.c.environment]\npass = ['LANG', 'C']\npath = ['/c']";
    let policy = resolve(&[user(text)], "c").unwrap();
    // `default`, which `b` extends too, does not come again after `a`.
    assert_eq!(policy.project, Access::Read);
    assert_eq!(policy.environment.set["X"], "b");
    assert_eq!(policy.environment.set["A"], "1");
    assert_eq!(policy.environment.path, ["/c", "/b", "/a"].map(Path::new));
    assert_eq!(
        policy
            .environment
            .pass
            .iter()
            .filter(|name| *name == "LANG")
            .count(),
        1
    );
}

#[test]
fn grant_required_by_one_profile_is_required() {
    let text = "[profile.a]\ngrants = [{ path = '/x', optional = true }, { path = '/x' }, { path = '/y', optional = true }]";
    let policy = resolve(&[user(text)], "a").unwrap();
    assert_eq!(granted(&policy, "/x"), Some(false));
    assert_eq!(granted(&policy, "/y"), Some(true));
    assert!(policy.grants.is_sorted_by(|a, b| a.path < b.path));
}

#[test]
fn no_file_redefines_a_profile_of_an_earlier_one() {
    for kind in [SourceKind::System, SourceKind::User] {
        let error = resolve(
            &[source(kind, "[profile.default]\nproject = 'write'")],
            "default",
        )
        .unwrap_err();
        assert!(
            matches!(&error, PolicyError::Taken { profile, earlier, .. } if profile == "default" && earlier == "shipped default.toml")
        );
    }
    let error = resolve(&[user("[profile.site]"), system("[profile.site]")], "site").unwrap_err();
    let want = "policy.toml: profile `site` is already defined by /etc/lazaret/policy.toml; define a profile of another name that extends it";
    assert_eq!(error.to_string(), want);
}

#[test]
fn an_earlier_files_profile_cannot_start_from_a_later_files() {
    let sources = [
        system("[profile.site]\nextends = 'mine'"),
        user("[profile.mine]\ngrants = [{ path = '/srv' }]"),
    ];
    let want = PolicyError::NoBase {
        file: "/etc/lazaret/policy.toml".into(),
        line: 2,
        column: 10,
        profile: "site".into(),
        base: "mine".into(),
    };
    assert_eq!(resolve(&sources, "site").unwrap_err(), want);
    let sources = [
        system("[profile.site]\nproject = 'read'"),
        user("[profile.mine]\nextends = 'site'"),
    ];
    assert_eq!(resolve(&sources, "mine").unwrap().project, Access::Read);
}

#[test]
fn ceilings_only_lower_limits() {
    let limits = "[profile.mine]\n[profile.mine.limits]\ntimeout_s = 500\ntimeout_max_s = 3600\nmemory = '8 GiB'\nscratch = '8 GiB'";
    let etc = system(
        "[ceiling]\ntimeout_max_s = 300\nmemory = '4 GiB'\nscratch = '2 GiB'\ncpu_s = 100\nprocesses = 100",
    );
    let own = user(&format!(
        "{limits}\n[ceiling]\ntimeout_max_s = 3600\nmemory = 'none'\nscratch = '1 GiB'\ncapture = '1 KiB'"
    ));
    let policy = resolve(&[etc, own], "mine").unwrap();
    assert_eq!(
        (policy.limits.timeout_s, policy.limits.timeout_max_s),
        (Some(300), Some(300))
    );
    assert_eq!(policy.limits.memory, Some(4 << 30));
    assert_eq!(policy.limits.scratch, 1 << 30);
    assert_eq!(policy.limits.capture, 1 << 10);
    assert_eq!(
        (policy.limits.cpu_s, policy.limits.processes),
        (Some(100), Some(100))
    );
    assert_eq!(policy.limits.file_size, None);
}

#[test]
fn the_default_time_is_not_over_the_longest() {
    let at = |seconds: &str| {
        resolve(
            &[user(&format!("[profile.a.limits]\ntimeout_s = {seconds}"))],
            "a",
        )
    };
    assert_eq!(at("600").unwrap().limits.timeout_s, Some(600));
    for (seconds, text) in [("601", "601"), ("'none'", "\"none\"")] {
        let error = PolicyError::Timeout {
            profile: "a".into(),
            timeout_s: text.into(),
            max_s: 600,
        };
        assert_eq!(at(seconds).unwrap_err(), error);
    }
}

#[test]
fn time_limit_for_all_commands_covers_a_persons_too() {
    let limit = |text: &str| {
        let profile = format!("[profile.a]\nextends = 'default'\n{text}");
        resolve(&[user(&profile)], "a")
            .unwrap()
            .limits
            .attended_timeout_s
    };
    assert_eq!(limit(""), None);
    assert_eq!(limit("limits = { timeout_max_s = 900 }"), None);
    assert_eq!(limit("limits = { timeout_s = 30 }"), Some(30));
    assert_eq!(
        limit("limits = { timeout_s = 30, attended_timeout_s = 'none' }"),
        None
    );
    assert_eq!(limit("[ceiling]\ntimeout_max_s = 300"), Some(300));
}

#[test]
fn a_profile_may_have_no_time_limit_and_a_ceiling_sets_one() {
    let endless = "[profile.a.limits]\ntimeout_s = 'none'\ntimeout_max_s = 'none'\n";
    let times = |files: &[PolicySource]| {
        let limits = resolve(files, "a").unwrap().limits;
        (limits.timeout_s, limits.timeout_max_s)
    };
    assert_eq!(times(&[user(endless)]), (None, None));
    assert_eq!(
        times(&[user(&format!("{endless}[ceiling]\ntimeout_max_s = 900"))]),
        (Some(900), Some(900))
    );
    assert_eq!(
        times(&[system("[ceiling]\ntimeout_s = 30"), user(endless)]),
        (Some(30), None)
    );
    let forgotten = "[profile.a]\nextends = []\n[profile.a.limits]\ntimeout_max_s = 1\ncapture = 1\nspill = 1\nscratch = 1\n";
    let missing = PolicyError::NoLimit {
        profile: "a".into(),
        limit: "timeout_s",
    };
    assert_eq!(resolve(&[user(forgotten)], "a").unwrap_err(), missing);
}

#[test]
fn under_a_lock_users_only_narrow() {
    let etc = || system("lock = true\n[profile.site]\nproject = 'read'");
    let error = resolve(&[etc(), user("[profile.mine]")], "site").unwrap_err();
    assert!(
        matches!(&error, PolicyError::Locked { profile, by, .. } if profile == "mine" && by == "/etc/lazaret/policy.toml")
    );
    let own = user(
        "required = ['cgroup']\n[ceiling]\ncpu_s = 1\n[[protect]]\nnames = ['x']\nprotection = 'all'\nwhy = ''",
    );
    let policy = resolve(&[etc(), own], "site").unwrap();
    assert_eq!(policy.limits.cpu_s, Some(1));
    assert!(policy.matcher.protection(b"x").is_some() && policy.required.contains(&Layer::Cgroup));
    let error = resolve(&[user("lock = true")], "default").unwrap_err();
    assert_eq!(
        error,
        PolicyError::LockMisplaced {
            file: "policy.toml".into()
        }
    );
}

#[test]
fn clients_start_gateways_where_a_file_permits_it_and_none_forbids_it() {
    let [yes, no] = ["true", "false"].map(|said| format!("[gateway]\nfrom_client = {said}"));
    let from_client_of = |sources: &[PolicySource], profile: &str| {
        let policy = resolve(sources, profile).unwrap();
        assert!(!policy.gateway.has_company());
        policy.gateway.from_client
    };
    let from_client = |sources: &[PolicySource]| from_client_of(sources, "default");
    assert!(!from_client(&[]));
    assert!(from_client(&[user(&yes)]) && from_client(&[system(&yes)]));
    assert!(!from_client(&[system(&no), user(&yes)]));
    assert!(!from_client(&[system(&yes), user(&no)]));
    let locked = |said: &str| system(&format!("lock = true\n[profile.site]\n{said}"));
    assert!(!from_client_of(&[locked(""), user(&yes)], "site"));
    assert!(from_client_of(&[locked(&yes), user("")], "site"));
}

#[test]
fn protected_names_of_all_files_hold_together() {
    let weaker = user(
        "[[protect]]\nnames = ['.env', 'notes']\nexcept = ['.env']\nprotection = 'write'\nwhy = 'mine'",
    );
    let etc = system("[[protect]]\nnames = ['*.licence']\nprotection = 'all'\nwhy = 'site'");
    let policy = resolve(&[weaker, etc], "default").unwrap();
    for (name, protection) in [
        (".env", Protection::All),
        ("notes", Protection::Write),
        ("a.licence", Protection::All),
    ] {
        assert_eq!(
            policy
                .matcher
                .protection(name.as_bytes())
                .unwrap()
                .protection,
            protection,
            "{name}"
        );
    }
    let order: Vec<_> = policy
        .protected
        .iter()
        .rev()
        .take(3)
        .map(|name| name.pattern.as_str())
        .collect();
    assert_eq!(order, ["notes", ".env", "*.licence"]);
}

#[test]
fn a_circle_and_a_long_line_of_profiles_are_errors() {
    let circle = user("[profile.a]\nextends = ['b', 'b']\n[profile.b]\nextends = ['a', 'a']");
    assert!(matches!(
        resolve(&[circle], "a"),
        Err(PolicyError::Levels { .. })
    ));
    let line = |levels: usize| {
        let text: String = (2..levels)
            .map(|n| format!("[profile.p{n}]\nextends = 'p{}'\n", n - 1))
            .collect();
        resolve(
            &[user(&format!("[profile.p1]\n{text}"))],
            &format!("p{}", levels - 1),
        )
        .map(drop)
    };
    assert_eq!(line(policies::resolve::LEVELS_MAX), Ok(()));
    assert!(matches!(
        line(policies::resolve::LEVELS_MAX + 1),
        Err(PolicyError::Levels { .. })
    ));
}

#[test]
fn unknown_profiles_are_named() {
    let error = resolve(&[], "nope").unwrap_err().to_string();
    assert_eq!(
        error,
        "there is no profile `nope`; there are: default, read-only, rust, node, python, go, dev, claude, codex, gemini, opencode, pod"
    );
    let error = resolve(&[user("[profile.a]\nextends = 'nope'")], "a").unwrap_err();
    assert!(
        matches!(&error, PolicyError::NoBase { profile, base, .. } if profile == "a" && base == "nope")
    );
}

#[test]
fn name_hidden_by_a_file_is_shown_by_no_profile() {
    let hidden = |sources: &[PolicySource], profile: &str| match resolve(sources, profile) {
        Err(PolicyError::Hide { why, .. }) => Some(why.to_string()),
        Ok(policy) => {
            assert!(!policy.hides);
            None
        }
        Err(other) => panic!("{other}"),
    };
    let all = "[[protect]]\nnames = ['*.license']\nprotection = 'all'\nwhy = 'w'";
    for (sources, profile, want) in [
        (vec![system(all)], "pod", Some("from being read")),
        (vec![user(all)], "pod", Some("*.license")),
        (vec![user(&all.replace("'all'", "'write'"))], "pod", None),
        (
            vec![system("[secrets]\n'.env' = 'mask'")],
            "pod",
            Some("`secrets`"),
        ),
        (vec![system("[secrets]\n'.env' = 'show'")], "pod", None),
        (vec![system("lock = true")], "pod", Some("lock = true")),
        (
            vec![system("lock = true\n[profile.own]\nextends = 'pod'")],
            "own",
            None,
        ),
        (
            vec![system("lock = true\n[profile.own]\nextends = 'pod'")],
            "pod",
            Some("lock"),
        ),
        (vec![user("[profile.own]\nhide = false")], "own", None),
        (
            vec![user(
                "[profile.own]\nhide = false\n[profile.own.secrets]\n'.env' = 'hide'",
            )],
            "own",
            Some("`secrets`"),
        ),
        (
            vec![user(
                "[profile.own]\nextends = 'pod'\ngrants = [{ path = '/srv', except = ['var'] }]",
            )],
            "own",
            Some("/srv"),
        ),
    ] {
        let got = hidden(&sources, profile);
        assert_eq!(
            got.is_some(),
            want.is_some(),
            "{sources:?} {profile}: {got:?}"
        );
        assert!(got.unwrap_or_default().contains(want.unwrap_or_default()));
    }
    // A profile may hide again, and then nothing of this counts.
    let again = user("[profile.own]\nextends = 'pod'\nhide = true");
    let policy = resolve(&[system(all), again], "own").unwrap();
    assert!(
        policy.hides && policy.matcher.protection(b".env").unwrap().protection == Protection::All
    );
}

#[test]
fn file_with_one_invalid_profile_resolves_no_other() {
    for (wrong, want) in [
        (
            "[profile.b]\nextends = 'nope'",
            "2:10: profile `b` extends `nope`, which",
        ),
        (
            "[profile.b]\nextends = 'b'",
            "2:10: profile `b` extends itself, or",
        ),
        (
            "[profile]\nb.extends = ['go', 'c']\nc.extends = 'b'",
            "3:1: profile `b` extends itself, or",
        ),
        (
            "[profile.'b']\nextends = 'c'\n[profile.c]\nextends = 'd'",
            "4:10: profile `c` extends `d`, which",
        ),
    ] {
        let error = resolve(&[user(wrong)], "default").unwrap_err().to_string();
        assert!(error.starts_with(&format!("policy.toml:{want}")), "{error}");
    }
    let fine = user("[profile.a]\nextends = ['b', 'claude']\n[profile.b]\nextends = []");
    assert!(Policies::load(vec![fine]).is_ok());
}

#[test]
fn no_grant_opens_the_home_directory() {
    let wide = |path: &str, optional: bool| {
        resolve(
            &[user(&format!(
                "[profile.a]\ngrants = [{{ path = '{path}', optional = {optional} }}]"
            ))],
            "a",
        )
    };
    for path in ["/", "/home", "~"] {
        let want = PolicyError::Path {
            profile: "a".into(),
            path: path.into(),
            why: HostPathError::TooWide,
        };
        assert_eq!(wide(path, false).unwrap_err(), want);
        let policy = wide(path, true).unwrap();
        assert_eq!(granted(&policy, path), None);
    }
    // A home below a system path closes that path, and a variable cannot point a grant at the home directory.
    let mut odd = Host {
        home: "/opt/app".into(),
        ..Host::default()
    };
    odd.variables.insert("NVM_DIR".into(), "/opt".into());
    let policy = Policies::load(vec![])
        .unwrap()
        .resolve("node", &odd)
        .unwrap();
    assert_eq!(granted(&policy, "/opt"), None);
    odd.home = "/usr/share/app".into();
    assert!(matches!(
        Policies::load(vec![]).unwrap().resolve("default", &odd),
        Err(PolicyError::Path { .. })
    ));
}

#[test]
fn variables_move_toolchains() {
    let mut host = host();
    host.variables
        .insert("CARGO_HOME".into(), "/data/cargo".into());
    let policy = Policies::load(vec![])
        .unwrap()
        .resolve("rust", &host)
        .unwrap();
    assert_eq!(granted(&policy, "/data/cargo/registry"), Some(true));
    assert_eq!(policy.environment.offline["CARGO_HOME"], "/data/cargo");
    assert_eq!(policy.environment.path, [Path::new("/data/cargo/bin")]);
    host.variables.insert("CARGO_HOME".into(), "data".into());
    let error = Policies::load(vec![])
        .unwrap()
        .resolve("rust", &host)
        .unwrap_err();
    assert!(matches!(
        error,
        PolicyError::Path {
            why: HostPathError::Relative,
            ..
        }
    ));
}

#[test]
fn digest_of_files_covers_text_and_owner() {
    let digest = |sources: &[PolicySource]| Policies::load(sources.to_vec()).unwrap().digest();
    let (etc, own) = (system("# etc"), user("# own"));
    assert_eq!(
        digest(&[etc.clone(), own.clone()]),
        digest(&[own.clone(), etc.clone()])
    );
    let mut seen = vec![
        digest(&[]),
        digest(std::slice::from_ref(&etc)),
        digest(std::slice::from_ref(&own)),
        digest(&[etc, own]),
    ];
    seen.push(digest(&[source(SourceKind::User, "# etc")]));
    seen.sort_by_key(|digest| digest.0);
    assert!(seen.windows(2).all(|pair| pair[0] != pair[1]));
}

#[test]
fn the_most_careful_approval_of_all_files_holds() {
    let approval = |sources: &[PolicySource]| {
        let policy = resolve(sources, "").unwrap();
        (
            policy.trust,
            policy.approval.ceiling,
            policy.approval.timeout_s,
            policy.approval.channel,
        )
    };
    assert_eq!(
        approval(&[]),
        (Trust::Guided, Trust::Autonomous, None, Channel::Relay)
    );
    let careful = system("[approval]\ntrust = 'ask'\ntimeout_s = 10\nchannel = 'separate'\n");
    let careless = user("[approval]\ntrust = 'yolo'\ntimeout_s = 600\nchannel = 'relay'\n");
    let want = (
        Trust::Supervised,
        Trust::Supervised,
        Some(10),
        Channel::Separate,
    );
    assert_eq!(approval(&[careless.clone(), careful]), want);
    assert_eq!(
        approval(&[careless]),
        (Trust::Guided, Trust::Autonomous, Some(600), Channel::Relay)
    );
}

#[test]
fn the_web_is_that_of_the_profile_within_the_bounds_of_every_file() {
    let reach = |sources: &[PolicySource], profile: &str| {
        let web = resolve(sources, profile).unwrap().web;
        let host = |host| {
            (
                web.allows(host, 443),
                web.opens(host, 80, "127.0.0.1".parse().unwrap()),
            )
        };
        (web.searches(), host("docs.rs"), host("localhost"))
    };
    let open = "[profile.open.web]\nprivate = ['127.0.0.0/8']\n";
    assert_eq!(reach(&[], "default"), (true, (true, false), (true, false)));
    assert_eq!(
        reach(&[user(open)], "open"),
        (true, (true, true), (true, true))
    );
    let etc = system("[web]\nsearch = false\nallow = ['docs.rs']\nprivate = []");
    assert_eq!(
        reach(&[etc, user(open)], "open"),
        (false, (true, false), (false, false))
    );
    assert_eq!(
        reach(
            &[user("[profile.none]\nextends = 'default'\nweb.allow = []")],
            "none"
        )
        .1,
        (false, false)
    );
    let digest = |text: &str| resolve(&[user(text)], "default").unwrap().digest;
    assert_ne!(digest(""), digest("[web]\nallow = ['*']"));
}

#[test]
fn one_bad_file_is_an_error_for_all() {
    let error = Policies::load(vec![system("colour = 1"), user("")]).unwrap_err();
    assert_eq!(
        error.to_string().lines().next().unwrap(),
        "/etc/lazaret/policy.toml:2:1: unknown field `colour`, expected one of `version`, `lock`, `required`, `ceiling`, `approval`, `web`, `network`, `leases`, `secrets`, `profile`, `default_profile`, `central_root`, `audit_keep_days`, `auto`, `credential`, `ssh`, `allowed_credentials`, `gateway`, `protect`, `transit`, `rule`"
    );
}

#[test]
fn the_example_of_the_page_is_a_policy() {
    let page = include_str!("../../README.md");
    let text = page
        .split("```toml\n")
        .nth(1)
        .unwrap()
        .split("```")
        .next()
        .unwrap();
    let example = PolicySource {
        name: "README.md".into(),
        kind: SourceKind::User,
        text: text.into(),
    };
    let policy = resolve(&[example], "java").unwrap();
    assert_eq!(
        (policy.limits.timeout_s, policy.limits.memory),
        (Some(120), Some(8 << 30))
    );
    assert_eq!(granted(&policy, "/home/u/.m2/repository"), Some(true));
    assert!(policy.matcher.protection(b"deploy/eu/prod/token").is_some());
    assert!(policy.matcher.protection(b"example.license").is_none());
}
