//! Promises of the shipped profiles: closed names, working tools, and paths that are never granted.

use policies::model::PolicyFile;
use policies::secret::looks_secret;
use policies::{EffectivePolicy, Host, Policies};
use policies_guard::repository::REPOSITORIES;
use policies_guard::{Protection, WhenNew};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

const PROFILES: [&str; 12] = [
    "default",
    "read-only",
    "rust",
    "node",
    "python",
    "go",
    "dev",
    "claude",
    "codex",
    "gemini",
    "opencode",
    "pod",
];
/// For agents that run whole in a cell. They alone have hosts and credentials.
const AGENTS: [&str; 4] = ["claude", "codex", "gemini", "opencode"];

fn policy(profile: &str) -> EffectivePolicy {
    let host = Host {
        home: "/home/u".into(),
        ..Host::default()
    };
    Policies::load(vec![])
        .unwrap()
        .resolve(profile, &host)
        .unwrap()
}

/// A file of one profile is read when that profile is asked for: what else it said would not be heard.
#[test]
fn a_file_of_a_profile_holds_nothing_else() {
    for name in PROFILES {
        let path = format!("{}/profiles/{name}.toml", env!("CARGO_MANIFEST_DIR"));
        let file: toml::Table = std::fs::read_to_string(path).unwrap().parse().unwrap();
        assert!(file.keys().eq(["profile", "version"]), "{name}: {file:?}");
        assert!(
            file["profile"].as_table().unwrap().keys().eq([name]),
            "{name}: {file:?}"
        );
    }
}

fn protection(policy: &EffectivePolicy, path: &str) -> Option<Protection> {
    policy
        .matcher
        .protection(path.as_bytes())
        .map(|name| name.protection)
}

#[test]
fn every_file_of_the_folder_is_shipped() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("profiles");
    let mut names: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    names.sort();
    assert_eq!(
        names,
        [
            "auto.toml",
            "claude.toml",
            "codex.toml",
            "default.toml",
            "dev.toml",
            "gemini.toml",
            "go.toml",
            "node.toml",
            "opencode.toml",
            "pod.toml",
            "protected.toml",
            "python.toml",
            "read-only.toml",
            "rules.toml",
            "rust.toml"
        ]
    );
    assert!(Policies::load(vec![]).unwrap().profiles().eq(PROFILES));
}

/// Names on which the host acts stay as closed as in `dev`, and so do hosts; secrets can be read, and not changed.
#[test]
fn the_profile_for_pods_hides_nothing_and_protects_as_much() {
    let (pod, dev) = (policy("pod"), policy("dev"));
    assert!(!pod.hides && dev.hides);
    for (pod, dev) in pod.protected.iter().zip(dev.protected.iter()) {
        assert_eq!(pod.protection, Protection::Write, "{}", pod.pattern);
        assert_eq!((&pod.pattern, pod.new), (&dev.pattern, dev.new));
    }
    assert_eq!(pod.protected.len(), dev.protected.len());
    assert!(pod.grants.iter().all(|grant| grant.except.is_empty()));
    let paths = |policy: &EffectivePolicy| -> Vec<PathBuf> {
        policy
            .grants
            .iter()
            .map(|grant| grant.path.clone())
            .collect()
    };
    assert_eq!(paths(&pod), paths(&dev));
    assert!(!pod.has_network() && pod.environment.credentials.is_empty());
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
        // By a third review.
        ".envrc.private",
        "sub/.envrc.local",
        "local.settings.json",
        "terraform.tfstate",
        "terraform.tfstate.backup",
        "terraform.tfstate.1700000000.backup",
        // What editors and people keep beside them.
        ".env~",
        "#.env#",
        "#.env.local#",
        "sub/.dev.vars~",
        ".netrc.swp",
        ".netrc.save",
        ".git-credentials~",
        ".pypirc.swp",
        ".pgpass~",
        ".id_rsa.swp",
        "id_rsa~",
        "id_rsa.bak",
        "id_ed25519.old",
        "credentials.json~",
        "secrets.yml.orig",
        "terraform.tfvars~",
        "prod.auto.tfvars",
        "env/prod.tfvars.json",
        ".vault_pass",
        ".vault-pass.txt",
        "vault_password",
        ".ansible_vault_password",
        ".composer/auth.json",
        ".codex/auth.json",
        "auth.json",
        "docker.env",
        "config/prod.env",
        ".aws/config",
        ".aws/cli/cache/x.json",
        "age.key",
        "apikey.txt",
        ".api_keys",
        ".token",
        "gcp-key.json",
        ".config/gh/hosts.yml",
        ".circleci/cli.yml",
        ".wrangler/config/default.toml",
        "cookies.txt",
    ] {
        assert_eq!(protection(&policy, path), Some(Protection::All), "{path}");
    }
}

#[test]
fn names_that_the_host_acts_on_are_closed_to_writing() {
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
        // Found by a review, and what was found after it.
        ".git/MERGE_RR",
        ".git/rr-cache/0/postimage",
        ".git/modules/sub/rr-cache",
        ".git/worktrees/w/MERGE_RR",
        ".git/lazygit.yml",
        ".tool-versions",
        ".miserc.toml",
        ".miserc.local.toml",
        ".config/miserc.toml",
        ".sdkmanrc",
        ".java-version",
        ".java-options",
        ".versions.conf",
        ".ruby-env",
        ".rbenv-vars",
        ".prototools",
        ".gitlint",
        ".nano-staged.js",
        "gtags.conf",
        ".ctags.d/x.ctags",
        ".valgrindrc",
        ".obsidian/plugins/x/main.js",
        ".run/a.run.xml",
        ".hg/hgrc-not-shared",
        ".hg/sharedpath",
        ".sl/config",
        ".jj/workspace-config.toml",
        ".jj/repo/store/git/config",
        ".repo/projects/platform/x.git/hooks/pre-commit",
        "lefthook.json",
        "lefthook-local.yml",
        ".config/lefthook.toml",
        ".lintstagedrc.js",
        "mise.local.toml",
        "mise.production.toml",
        ".config/mise/conf.d/x.toml",
        ".direnv/flake-profile-0.rc",
        ".Rprofile",
        ".vscode/c_cpp_properties.json",
        "x.sublime-project",
        ".kilocode/mcp.json",
        ".qwen/settings.json",
        "crush.json",
        ".clinerules/hooks/PreToolUse",
        ".github/hooks/x.json",
        ".cargo/config.toml",
        ".yarn/releases/yarn-4.cjs",
        ".bashrc",
    ] {
        assert_eq!(protection(&policy, path), Some(Protection::Write), "{path}");
    }
}

/// A command makes none of these: git, an editor, an agent or the next commit acts on it by itself.
#[test]
fn names_that_the_host_acts_on_by_itself_are_closed_when_new() {
    let policy = policy("default");
    let may_be_made = |path: &str| {
        policy
            .matcher
            .closings(path.as_bytes())
            .iter()
            .all(|(_, new)| *new == WhenNew::Open)
    };
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
        "_opam/.opam-switch/environment",
        ".git/git-crypt/keys/default",
        ".git/glab-cli/config.yml",
        ".lfsconfig",
        // Siblings of names that are there, by a later review.
        ".local-overcommit.yml",
        ".hkrc.pkl",
        "captainhook.config.json",
        "grumphp.dist.yaml",
        "rusty-hook.toml",
        ".crusty-hooks.toml",
        ".trunk/user.yaml",
        ".moon/workspace.toml",
        ".config/moon/workspace.json",
        ".config/moon/hooks/pre-commit.sh",
        ".gitsecret/keys/gpg.conf",
        ".vim-lsp-settings/settings.json",
        ".shadowenv.d/500_x.lisp",
        "sub/.miserc.toml",
        "sub/.sdkmanrc",
        "sub/.java-version",
        "sub/.java-options",
        ".versions.conf",
        ".ruby-env",
        ".rbenv-vars",
        ".bash_enter",
        ".trunk/trunk.yaml",
        ".moon/hooks/pre-commit.sh",
        ".lsp/config.edn",
        ".ropeproject/config.py",
        ".nlsp-settings/pylsp.json",
        "src/usercustomize.py",
        ".github/extensions/x/extension.mjs",
        ".github/mcp.json",
        ".letta/settings.json",
        ".husky/pre-commit",
        ".pre-commit-config.yaml",
        ".vscode/tasks.json",
        ".vscode/settings.json",
        ".idea/workspace.xml",
        ".exrc",
        ".mise.toml",
        ".envrc",
        "lib/.envrc",
        ".claude/settings.json",
        ".claude/.env",
        ".mcp.json",
        ".lazaret/policy.toml",
        ".hg/hgrc-not-shared",
        ".config/lefthook.yml",
        "mise.local.toml",
        ".sl/config",
        ".Rprofile",
        ".kilocode/mcp.json",
        "crush.json",
        ".direnv/x.rc",
        // By a third review; the names of agents are in the file.
        ".git/crypt/transcrypt",
        ".envrc.private",
    ]
    .into_iter()
    .chain(include_str!("agent_names.txt").lines())
    {
        assert!(!may_be_made(path), "{path}");
    }
    for path in [
        ".env",
        ".ssh/config",
        ".envrc.example",
        ".cproject",
        ".settings/language.settings.xml",
        "NuGet.Config",
        ".gclient",
        "terraform.tfstate",
        ".github/workflows/ci.yml",
        ".git/worktrees/w/gitdir",
    ] {
        assert!(may_be_made(path), "{path}");
    }
}

/// Agents start package managers by themselves: what these read is put in place if it is harmless.
#[test]
fn settings_of_package_managers_are_judged_when_new() {
    let policy = policy("default");
    for path in [
        ".npmrc",
        "a/.NPMRC",
        ".yarnrc",
        ".yarnrc.yml",
        ".pnpmfile.cjs",
        "pnpmfile.js",
    ] {
        let closings = policy.matcher.closings(path.as_bytes());
        assert!(
            closings.iter().all(|(_, new)| *new == WhenNew::Harmless),
            "{path}: {closings:?}"
        );
        assert!(
            !closings.is_empty() && protection(&policy, path) == Some(Protection::Write),
            "{path}"
        );
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
        "id_rsa.pub.bak",
        "credentials.example.json~",
        "main.rs~",
        "notes.bak",
        // Names beside protected ones.
        ".vscode/cspell.json",
        ".github/dependabot.yml",
        "config.json",
        "credentials_test.go",
        "package.json",
        "Cargo.toml",
        "Makefile",
        "AGENTS.md",
        "CLAUDE.md",
        ".envrc.example",
        ".config/app.toml",
        ".direnv/python-3.12/bin/activate",
        ".venv/bin/activate",
        ".nvmrc",
        ".node-version",
        ".python-version",
        ".go-version",
        ".ruby-version",
        "rust-toolchain.toml",
        // Beside those of hook managers.
        ".moon/tasks/node.yml",
        ".trunk/plugins/x.yaml",
        ".gitsecret/paths/mapping.cfg",
        "_MTN/revision",
        "data/hk.json",
        "rusty.toml",
        "gradle.properties",
        "pnpm-workspace.yaml",
        ".yarn/cache/x.zip",
        ".cargo/registry/x",
        ".editorconfig",
        ".eslintrc.js",
        "src/profile.rs",
        "tools/bazel/BUILD",
        "renv/activate.R",
        "target/debug/build/x",
        // Beside what a third review found.
        "locales/en/auth.json",
        "versions.env",
        "docker.env.example",
        ".flaskenv",
        "global.json",
        "devbox.json",
        "devenv.nix",
        ".clangd",
        ".aider.input.history",
        "agents.config.json",
        "main.tf",
        "tokens.txt",
        "tui.rs",
        "hosts.yml",
        "keystore.properties",
        "local.properties",
        "appsettings.Development.json",
        ".envrc.example",
        "terraform.tfvars.example",
    ] {
        assert_eq!(protection(&policy, path), None, "{path}");
    }
}

/// The shipped list as it is written.
fn list() -> PolicyFile {
    PolicyFile::parse(
        "protected.toml",
        include_str!("../../profiles/protected.toml"),
    )
    .unwrap()
}

/// The defects of a list: a line without a source or a reason, or a pattern that stands there twice.
fn faults(list: &PolicyFile) -> Vec<String> {
    let mut faults = Vec::new();
    let mut known = BTreeSet::new();
    let is_reason = |why: &str| why.len() > 20 && why.ends_with('.');
    let is_source = |source: &Option<String>| {
        source
            .as_ref()
            .is_some_and(|text| text.len() > 4 && !text.contains("://"))
    };
    for protect in &list.protect {
        for entry in protect.names.iter().map(|name| name.get_ref()) {
            let pattern = entry.pattern.as_str();
            if !is_reason(&protect.why)
                || !is_source(&entry.source)
                || !known.insert(pattern.to_lowercase())
            {
                faults.push(pattern.to_owned());
            }
        }
    }
    for form in list.transit.iter().map(|form| form.get_ref()) {
        let text = format!("{:?} {:?}", form.before, form.after);
        if !is_reason(&form.why) || !is_source(&form.source) || !known.insert(text.clone()) {
            faults.push(text);
        }
    }
    faults
}

#[test]
fn each_line_of_the_lists_has_a_source_and_a_reason_and_stands_there_once() {
    let leases = PolicyFile::parse("leases.toml", include_str!("../../leases.toml")).unwrap();
    assert_eq!(
        [faults(&list()), faults(&leases)],
        [const { Vec::<String>::new() }; 2]
    );
    // The control: each fault planted once.
    let good = "{ name = 'x', source = 'A document' }";
    let planted = |names: &str, why: &str, transit: &str| {
        let text = format!(
            "version = 1\n[[protect]]\nnames = [{names}]\nprotection = 'all'\nwhy = '{why}'\n{transit}"
        );
        faults(&PolicyFile::parse("p", &text).unwrap()).len()
    };
    let (why, none) = ("A reason of some length.", "");
    assert_eq!(planted(good, why, none), 0);
    assert_eq!(planted("'x'", why, none), 1);
    assert_eq!(planted("{ name = 'x', source = '' }", why, none), 1);
    assert_eq!(planted(good, "short", none), 1);
    assert_eq!(planted(&format!("{good}, {good}"), why, none), 1);
    assert_eq!(
        planted(
            good,
            why,
            "[[transit]]\nafter = '~'\nwhy = 'A reason of some length.'\n"
        ),
        1
    );
}

/// A project may lie in a directory of any ordinary name: a pattern of several names that began with one would close it as a zone.
#[test]
fn patterns_of_several_names_begin_with_a_name_that_programs_own() {
    for name in policy("default").protected.iter() {
        // One that holds in a root only closes no directory above it.
        if name.pattern.starts_with('/') {
            continue;
        }
        let first = name.pattern.split_once('/').map_or(".", |(first, _)| first);
        assert!(
            first.starts_with('.') || first == "_opam",
            "{}",
            name.pattern
        );
    }
    for path in [
        "home/u/mise",
        "home/u/renv",
        "home/u/tools",
        "home/u/.local/share/x",
        "srv/git/project",
    ] {
        assert!(
            policy("default")
                .matcher
                .closed_to_zones(path.as_bytes())
                .is_none(),
            "{path}"
        );
    }
}

#[test]
fn names_on_their_way_to_protected_ones_are_known() {
    let policy = policy("default");
    for (path, pattern) in [
        (".git/config.lock", ".git/config"),
        ("sub/.git/config.worktree.lock", ".git/config.worktree"),
        (".git/modules/x/config.lock", ".git/modules/**/config"),
        (".vscode/settings.json.vsctmp", ".vscode/settings.json"),
        (".vscode/.settings.json.swp", ".vscode/settings.json"),
        (".mcp.json.tmp.4711.1a2b", ".mcp.json"),
        (".mcp.json~", ".mcp.json"),
        ("#.dir-locals.el#", ".dir-locals{,-2}.el"),
        (".#.envrc", ".envrc"),
        (".npmrc.2834719283", ".npmrc"),
        (
            "lefthook.yml___jb_tmp___",
            "{,.}lefthook{,-local}.{yml,yaml,toml,json,jsonc}",
        ),
        (".hg/.hgrc-a1B2c3~", ".hg/hgrc{,-not-shared}"),
        (".npmrc.a8Xk2P", ".npmrc"),
        (".vscode/.settings.json.Zq81mA", ".vscode/settings.json"),
    ] {
        let targets = policy.matcher.transit(path.as_bytes());
        assert!(
            targets.iter().any(|target| target.name.pattern == pattern),
            "{path}: {targets:?}"
        );
    }
    for path in [
        ".git/index.lock",
        ".git/HEAD.lock",
        ".git/refs/heads/main.lock",
        "config.lock",
        "Cargo.lock",
        "src/main.rs~",
        ".gitignore.swp",
        ".env.example.tmp",
        "package.json.123456",
        ".npmrc.backup",
        ".git/config.backup",
        ".mcp.json.sample",
    ] {
        let targets = policy.matcher.transit(path.as_bytes());
        assert!(targets.is_empty(), "{path}: {targets:?}");
    }
}

#[test]
fn examples_are_policies() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples");
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let text = format!("version = 1\n{}", std::fs::read_to_string(&path).unwrap());
        PolicyFile::parse(&path.display().to_string(), &text).unwrap();
    }
}

/// Paths that no shipped profile may open, with what lies above and below them.
const NEVER: [&str; 45] = [
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
    "/etc/apt",
    "/etc/debconf.conf",
    "/var/backups",
    "/var/cache/debconf",
    "/var/lib/docker",
    "/var/lib/mysql",
    "/var/lib/NetworkManager",
    "/var/lib/postgresql",
    "/var/lib/private",
    "/var/log",
    "/var/mail",
    "/var/spool",
    "/var/tmp",
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
            let opened = NEVER.iter().find(|never| {
                Path::new(never).starts_with(&grant.path) || grant.path.starts_with(never)
            });
            assert_eq!(opened, None, "{profile} grants {}", grant.path.display());
        }
    }
}

#[test]
fn agents_alone_have_hosts_credentials_and_no_time_limit() {
    for profile in PROFILES {
        let policy = policy(profile);
        let is_agent = AGENTS.contains(&profile);
        assert_eq!(policy.has_network(), is_agent, "{profile}");
        assert_eq!(
            policy.environment.credentials.is_empty(),
            !is_agent,
            "{profile}"
        );
        assert_eq!(policy.timeout(None).is_none(), is_agent, "{profile}");
        let hosts = policy.network.own.allow.iter().flatten();
        assert!(
            hosts.clone().all(|host| host.text().ends_with(":443")),
            "{profile}"
        );
        assert!(
            hosts.count() <= 4 && policy.network.own.private.is_none(),
            "{profile}"
        );
    }
}

#[test]
fn only_the_toolchains_reach_into_the_home_directory() {
    for profile in ["default", "read-only"] {
        assert!(
            policy(profile)
                .grants
                .iter()
                .all(|grant| !grant.path.starts_with("/home")),
            "{profile}"
        );
    }
}

#[test]
fn no_variable_that_a_profile_passes_is_taken_for_a_secret() {
    for profile in PROFILES {
        let rules = policy(profile).environment;
        let names = rules.pass.iter().chain(rules.set.keys());
        for name in names.chain(rules.offline.keys()) {
            assert!(
                !looks_secret(name.as_ref()),
                "{profile}: {name} reaches no cell"
            );
        }
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
        assert!(
            part.grants.iter().all(|grant| dev.grants.contains(grant)),
            "{profile}"
        );
        assert!(
            part.environment
                .path
                .iter()
                .all(|path| dev.environment.path.contains(path)),
            "{profile}"
        );
        assert!(
            part.environment
                .set
                .iter()
                .all(|(name, value)| dev.environment.set.get(name) == Some(value)),
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
    assert_eq!(
        (limits.timeout_s, limits.timeout_max_s),
        (Some(60), Some(600))
    );
    assert_eq!(
        (limits.capture, limits.spill, limits.scratch),
        (102_400, 10 << 20, 1 << 30)
    );
    assert_eq!(limits.undo, 100 << 20);
    assert_eq!(
        (limits.processes, limits.open_files),
        (Some(4096), Some(16_384))
    );
    assert_eq!(
        [
            limits.output,
            limits.memory,
            limits.file_size,
            limits.written
        ],
        [None; 4]
    );
    assert_eq!(
        [limits.memory_share, limits.disk_share, limits.cpu_s],
        [Some(90), Some(90), Some(7 * 86_400)]
    );
}

/// The settings in the table of repositories are protected below the directory's own name.
#[test]
fn settings_of_repositories_are_protected() {
    let policy = policy("default");
    let is_protected = |path: &str| {
        let path = path.as_bytes();
        policy.matcher.protection(path).is_some() || policy.matcher.leads_to(path).is_some()
    };
    for kind in &REPOSITORIES {
        for setting in kind.settings {
            assert!(
                is_protected(&format!("{}/{setting}", kind.name)),
                "{}/{setting}",
                kind.name
            );
        }
    }
    assert!(!is_protected(".git/objects/ab/cd"), "the control");
}
