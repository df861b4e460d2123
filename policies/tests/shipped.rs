//! What the shipped profiles promise: what is closed, what works, what is never granted.
#![allow(missing_docs, clippy::unwrap_used)]

use policies::{EffectivePolicy, Host, Policies, Protection, WhenNew};
use std::path::{Path, PathBuf};

const PROFILES: [&str; 7] = ["default", "read-only", "rust", "node", "python", "go", "dev"];

fn policy(profile: &str) -> EffectivePolicy {
    let host = Host { home: "/home/u".into(), ..Host::default() };
    Policies::load(vec![]).unwrap().resolve(profile, &host).unwrap()
}

/// A file of one profile is read when that profile is asked for: what else it said would not be heard.
#[test]
fn a_file_of_a_profile_holds_nothing_else() {
    for name in PROFILES {
        let path = format!("{}/profiles/{name}.toml", env!("CARGO_MANIFEST_DIR"));
        let file: toml::Table = std::fs::read_to_string(path).unwrap().parse().unwrap();
        assert!(file.keys().eq(["profile", "version"]), "{name}: {file:?}");
        assert!(file["profile"].as_table().unwrap().keys().eq([name]), "{name}: {file:?}");
    }
}

fn protection(policy: &EffectivePolicy, path: &str) -> Option<Protection> {
    policy.matcher.protection(path.as_bytes()).map(|name| name.protection)
}

#[test]
fn every_file_of_the_folder_is_shipped() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("profiles");
    let mut names: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(
        names,
        [
            "default.toml",
            "dev.toml",
            "go.toml",
            "node.toml",
            "protected.toml",
            "python.toml",
            "read-only.toml",
            "rules.toml",
            "rust.toml"
        ]
    );
    assert!(Policies::load(vec![]).unwrap().profiles().eq(PROFILES));
}

#[test]
fn secrets_are_closed() {
    let policy = policy("default");
    for path in [
        // The names of the escape corpus.
        ".env",
        "sub/.env",
        "late/.env",
        "credentials.json",
        "AWS_CREDENTIALS.TXT",
        "config/client_secret.txt",
        "credential-store.json",
        // Others of their kind.
        ".ENV",
        ".env.local",
        ".env.production",
        ".env-prod",
        ".env/inner",
        "client_secret_1234.apps.googleusercontent.com.json",
        "config/secrets.yml",
        "app-secrets.toml",
        "db_secret.txt",
        "my-service-account.json",
        "service-account-key.json",
        ".claude/.credentials.json",
        ".aws/credentials",
        "accessKeys.csv",
        ".kube/config",
        "deploy/kubeconfig.yaml",
        ".docker/config.json",
        "id_rsa",
        "keys/id_ed25519",
        ".ssh/known_hosts",
        "app.2024-01-01.private-key.pem",
        "privkey.pem",
        "release.p12",
        "config/master.key",
        ".netrc",
        ".git-credentials",
        ".pypirc",
        "vault.kdbx",
    ] {
        assert_eq!(protection(&policy, path), Some(Protection::All), "{path}");
    }
}

#[test]
fn what_acts_on_the_host_is_closed_to_writing() {
    let policy = policy("default");
    for path in [
        ".git/config",
        ".git/config.worktree",
        ".git/hooks",
        ".git/hooks/pre-commit",
        ".git/commondir",
        ".git/info/attributes",
        ".git/worktrees/w/config.worktree",
        ".git/worktrees/w/gitdir",
        ".git/modules/sub/hooks/post-checkout",
        ".git/modules/libs/deep/config",
        "src/.git/hooks/pre-commit",
        ".GIT/Config",
        ".husky/pre-commit",
        ".vscode/tasks.json",
        ".vscode/settings.json",
        ".devcontainer/devcontainer.json",
        ".idea/workspace.xml",
        ".envrc",
        ".npmrc",
        ".claude/settings.json",
        ".codex/AGENTS.md",
        ".cursor/mcp.json",
        ".mcp.json",
        "lazaret.toml",
        ".lazaret/policy.toml",
        ".github/workflows/ci.yml",
        ".gitlab-ci.yml",
    ] {
        assert_eq!(protection(&policy, path), Some(Protection::Write), "{path}");
    }
}

/// A command makes none of these: git, an editor, an agent or the next commit acts on it by itself.
#[test]
fn what_the_host_acts_on_by_itself_is_closed_when_new() {
    let policy = policy("default");
    let may_be_made =
        |path: &str| policy.matcher.closings(path.as_bytes()).iter().all(|(_, new)| *new == WhenNew::Open);
    for path in [
        ".git/config",
        ".git/hooks/pre-commit",
        ".git/commondir",
        ".git/info/attributes",
        ".git/modules/sub/config",
        ".git/worktrees/w/config",
        ".git/worktrees/w/hooks/pre-commit",
        ".git/worktrees/w/commondir",
        ".git/worktrees/w/config.worktree",
        ".husky/pre-commit",
        ".pre-commit-config.yaml",
        ".vscode/tasks.json",
        ".vscode/settings.json",
        ".idea/workspace.xml",
        ".exrc",
        ".mise.toml",
        ".claude/settings.json",
        ".claude/.env",
        ".mcp.json",
        ".lazaret/policy.toml",
    ] {
        assert!(!may_be_made(path), "{path}");
    }
    for path in
        [".env", ".ssh/config", ".envrc", "a/.npmrc", ".github/workflows/ci.yml", ".git/worktrees/w/gitdir"]
    {
        assert!(may_be_made(path), "{path}");
    }
}

#[test]
fn ordinary_files_are_open() {
    let policy = policy("default");
    for path in [
        // What git writes itself.
        ".git",
        ".git/HEAD",
        ".git/index",
        ".git/index.lock",
        ".git/config.lock",
        ".git/objects/ab/cdef",
        ".git/refs/heads/main",
        ".git/logs/HEAD",
        ".git/COMMIT_EDITMSG",
        ".git/ORIG_HEAD",
        ".git/info/exclude",
        ".git/info/sparse-checkout",
        ".git/rebase-merge/git-rebase-todo",
        ".git/worktrees/w/HEAD",
        ".git/worktrees/w/index",
        ".git/modules/sub/HEAD",
        ".git/modules/sub/refs/heads/config-x",
        ".gitmodules",
        ".gitignore",
        ".gitattributes",
        // Examples of secrets.
        ".env.example",
        ".env.sample",
        ".env.template",
        ".env.local.example",
        "credentials.example.json",
        "secrets.sample.yml",
        "example-credentials.json",
        "charts/app/templates/external-secret.yaml",
        // Source code and data that speak of secrets.
        "secrets.py",
        "src/credentials.rs",
        "src/credentials/mod.rs",
        "vendor/google.golang.org/grpc/credentials/tls.go",
        "lib/python3.11/secrets.py",
        "node_modules/aws-sdk/apis/secretsmanager-2017-10-17.min.json",
        "botocore/data/secretsmanager/service-2.json.gz",
        "docs/secrets.md",
        "environment.yml",
        "config/credentials.yml.enc",
        // Certificates and keys of tests.
        ".venv/lib/python3.11/site-packages/certifi/cacert.pem",
        "tests/fixtures/key.pem",
        "testdata/server.key",
        "id_rsa.pub",
        // Names beside protected ones.
        ".vscode/cspell.json",
        ".github/dependabot.yml",
        "config.json",
        "credentials_test.go",
        "package.json",
        "Cargo.toml",
        "Makefile",
        "target/debug/build/x",
    ] {
        assert_eq!(protection(&policy, path), None, "{path}");
    }
}

#[test]
fn every_protected_name_says_why() {
    for name in policy("default").protected.iter() {
        assert!(name.why.len() > 20 && name.why.ends_with('.'), "{}", name.pattern);
    }
}

/// Paths that no shipped profile may open, with what lies above and below them.
const NEVER: [&str; 33] = [
    "/etc/shadow",
    "/etc/gshadow",
    "/etc/sudoers",
    "/etc/sudoers.d",
    "/etc/ssh",
    "/etc/ssl/private",
    "/etc/pki/tls/private",
    "/etc/machine-id",
    "/etc/environment",
    "/etc/ld.so.preload",
    "/etc/lazaret",
    "/root",
    "/var",
    "/run",
    "/tmp",
    "/proc",
    "/dev",
    "/home/u/.ssh",
    "/home/u/.aws",
    "/home/u/.gnupg",
    "/home/u/.netrc",
    "/home/u/.npmrc",
    "/home/u/.git-credentials",
    "/home/u/.config/git/credentials",
    "/home/u/.config/gh",
    "/home/u/.config/lazaret",
    "/home/u/.local/share/keyrings",
    "/home/u/.local/share/lazaret",
    "/home/u/.cargo/credentials.toml",
    "/home/u/.cargo/credentials",
    "/home/u/.docker",
    "/home/u/.mozilla",
    "/home/u/.bash_history",
];

#[test]
fn no_profile_opens_a_host_secret() {
    for profile in PROFILES {
        let policy = policy(profile);
        for grant in &policy.grants {
            let opened = NEVER
                .iter()
                .find(|never| Path::new(never).starts_with(&grant.path) || grant.path.starts_with(never));
            assert_eq!(opened, None, "{profile} grants {}", grant.path.display());
        }
    }
}

#[test]
fn only_the_toolchains_reach_into_the_home_directory() {
    for profile in ["default", "read-only"] {
        assert!(policy(profile).grants.iter().all(|grant| !grant.path.starts_with("/home")), "{profile}");
    }
}

#[test]
fn all_but_usr_may_be_missing() {
    for profile in PROFILES {
        let needed: Vec<_> = policy(profile)
            .grants
            .into_iter()
            .filter(|grant| !grant.optional)
            .map(|grant| grant.path)
            .collect();
        assert_eq!(needed, [PathBuf::from("/usr")], "{profile}");
    }
}

#[test]
fn dev_is_all_toolchains_together() {
    let dev = policy("dev");
    for profile in ["rust", "node", "python", "go"] {
        let part = policy(profile);
        assert!(part.grants.iter().all(|grant| dev.grants.contains(grant)), "{profile}");
        assert!(part.environment.path.iter().all(|path| dev.environment.path.contains(path)), "{profile}");
        assert!(
            part.environment.set.iter().all(|(name, value)| dev.environment.set.get(name) == Some(value)),
            "{profile}"
        );
    }
    assert_eq!(dev.limits.scratch, 4 << 30);
}

#[test]
fn the_environment_names_nothing_that_loads_code_or_looks_like_a_secret() {
    for profile in PROFILES {
        let rules = policy(profile).environment;
        for name in [
            "LD_PRELOAD",
            "LD_LIBRARY_PATH",
            "BASH_ENV",
            "ENV",
            "PROMPT_COMMAND",
            "PYTHONPATH",
            "PYTHONSTARTUP",
            "PYTHONHOME",
            "NODE_OPTIONS",
            "NODE_PATH",
            "PERL5OPT",
            "PERL5LIB",
            "RUBYOPT",
            "RUBYLIB",
            "JAVA_TOOL_OPTIONS",
            "GIT_SSH_COMMAND",
            "GIT_CONFIG_GLOBAL",
            "RUSTC_WRAPPER",
            "GOFLAGS",
            "SSH_AUTH_SOCK",
            "DBUS_SESSION_BUS_ADDRESS",
            "DISPLAY",
            "WAYLAND_DISPLAY",
            "XDG_RUNTIME_DIR",
            "DOCKER_HOST",
            "AWS_SECRET_ACCESS_KEY",
            "GITHUB_TOKEN",
            "ANTHROPIC_API_KEY",
            "OPENAI_API_KEY",
            "DATABASE_URL",
            "HTTP_PROXY",
            "https_proxy",
            "LANGCHAIN_API_KEY",
        ] {
            assert!(!rules.passes(name), "{profile} passes {name}");
            assert!(!rules.set.contains_key(name), "{profile} sets {name}");
        }
        for name in ["LANG", "LC_ALL", "TERM", "TZ", "USER"] {
            assert!(rules.passes(name), "{profile} does not pass {name}");
        }
    }
}

#[test]
fn the_limits_are_those_of_the_documentation() {
    let limits = policy("default").limits;
    assert_eq!((limits.timeout_s, limits.timeout_max_s), (60, 600));
    assert_eq!((limits.capture, limits.spill, limits.scratch), (102_400, 10 << 20, 1 << 30));
    assert_eq!(limits.undo, 100 << 20);
    assert_eq!((limits.processes, limits.open_files), (Some(4096), Some(16_384)));
    assert_eq!([limits.output, limits.memory, limits.cpu_s, limits.file_size], [None; 4]);
}
