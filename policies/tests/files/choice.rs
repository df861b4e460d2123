//! Choice of a project's profile, and that it gains none that nobody meant for it.

use policies::choice::{FoundKind, has_file};
use policies::{Choice, Host, Policies, PolicyError, PolicySource, SourceKind};
use std::fs;
use std::os::unix::fs::symlink;

fn source(kind: SourceKind, text: &str) -> PolicySource {
    PolicySource {
        name: kind.name().into(),
        kind,
        text: format!("version = 1\n{text}"),
    }
}

fn user(text: &str) -> Policies {
    Policies::load(vec![source(SourceKind::User, text)]).unwrap()
}

fn choose(policies: &Policies, named: &str, files: &[&str]) -> Choice {
    policies.choose(named, |name| files.contains(&name))
}

#[test]
fn profile_is_chosen_by_the_projects_files() {
    let shipped = Policies::load(vec![]).unwrap();
    for (files, profile, others) in [
        (&["Cargo.toml"][..], "rust", &[][..]),
        (&["package.json"], "node", &[]),
        (&["pyproject.toml", "requirements.txt"], "python", &[]),
        (&["requirements.txt"], "python", &[]),
        (&["setup.py"], "python", &[]),
        (&["go.mod"], "go", &[]),
        // One and never several, and the others are said.
        (
            &["package.json", "go.mod", "Cargo.toml"],
            "rust",
            &["go", "node"],
        ),
        (&["package.json", "pyproject.toml"], "python", &["node"]),
    ] {
        let choice = choose(&shipped, "auto", files);
        let found = choice.found.clone().unwrap();
        let said: Vec<&str> = found.others.iter().map(String::as_str).collect();
        assert_eq!(
            (choice.profile.as_str(), said.as_slice()),
            (profile, others),
            "{files:?}"
        );
        assert_eq!(found.files.len(), 1, "{files:?}");
        assert!(
            others
                .iter()
                .all(|other| choice.describe().unwrap().contains(other)),
            "{choice:?}"
        );
    }
    let none = Choice {
        profile: "default".into(),
        found: Some(FoundKind::default()),
    };
    assert_eq!(choose(&shipped, "auto", &["Makefile"]), none);
}

/// `lazaret policy allow` makes such a profile, and repeats the entry.
#[test]
fn base_of_the_chosen_profile_is_no_alternative() {
    let mine = user(
        "[profile.my-node]\nextends = 'node'\n[profile.mine]\nextends = 'my-node'\n\
         [[auto]]\nfiles = ['package.json']\nprofile = 'mine'\n",
    );
    let others = |files: &[&str]| choose(&mine, "auto", files).found.unwrap().others;
    assert_eq!(others(&["package.json"]), [""; 0]);
    assert_eq!(others(&["package.json", "go.mod"]), ["go"], "control");
}

/// Nobody has said `auto`: a file changes nothing. The same file does where the user has said it.
#[test]
fn a_project_chooses_nothing_unless_the_user_says_so() {
    let files = ["Cargo.toml", "package.json"];
    for (text, named, want) in [
        ("", "", "default"),
        ("", "node", "node"),
        ("profile = 'read-only'", "", "read-only"),
        ("profile = 'auto'", "default", "default"),
        (
            "[[auto]]\nfiles = ['Cargo.toml']\nprofile = 'dev'",
            "",
            "default",
        ),
    ] {
        assert_eq!(
            choose(&user(text), named, &files),
            Choice::named(want),
            "{text}"
        );
    }
    for (text, named) in [
        ("profile = 'auto'", ""),
        ("default_profile = 'auto'", ""),
        ("", "auto"),
    ] {
        assert_eq!(
            choose(&user(text), named, &files).profile,
            "rust",
            "control: {text}"
        );
    }
}

/// Files by every name that a project might try reach only what an entry names.
#[test]
fn marker_files_choose_project_profiles_only() {
    let own = "profile = 'auto'\n[[auto]]\nfiles = ['site.toml']\nprofile = 'node'\n";
    let private =
        "default_profile = 'auto'\n[profile.private]\ngrants = [{ path = '~/private' }]\n";
    for text in [own, private] {
        let policies = user(text);
        let reached = [
            "private",
            "private.toml",
            "auto",
            "auto.toml",
            ".lazaret",
            "policy.toml",
            "dev",
            "profile",
        ]
        .map(|name| choose(&policies, "", &[name]).profile);
        assert!(
            reached.iter().all(|profile| profile == "default"),
            "{reached:?}"
        );
    }
    assert_eq!(
        choose(&user(own), "", &["site.toml"]).profile,
        "node",
        "control"
    );
    let meant = format!("{private}[[auto]]\nfiles = ['private.toml']\nprofile = 'private'\n");
    assert_eq!(
        choose(&user(&meant), "", &["private.toml"]).profile,
        "private",
        "control"
    );
}

#[test]
fn entries_of_the_user_come_first_and_want_all_their_files() {
    let text = "default_profile = 'auto'\n[profile.both]\nextends = ['rust', 'node']\n\
                [[auto]]\nfiles = ['Cargo.toml', 'package.json']\nprofile = 'both'\n\
                [[auto]]\nfiles = ['go.mod']\nprofile = 'default'\n";
    let system = source(
        SourceKind::System,
        "[[auto]]\nfiles = ['go.mod']\nprofile = 'python'\n",
    );
    let policies = Policies::load(vec![source(SourceKind::User, text), system.clone()]).unwrap();
    let both = choose(&policies, "", &["Cargo.toml", "package.json"]);
    assert_eq!(both.profile, "both");
    assert_eq!(both.found.unwrap().others, [""; 0], "it extends them");
    assert_eq!(choose(&policies, "", &["Cargo.toml"]).profile, "rust");
    assert_eq!(choose(&policies, "", &["go.mod"]).profile, "default");
    assert_eq!(
        choose(&Policies::load(vec![system]).unwrap(), "auto", &["go.mod"]).profile,
        "python"
    );
}

/// Wherever it stands, an entry without files is for what no other entry fits, and it is no further profile of a project.
#[test]
fn an_entry_without_files_is_for_all_other_projects() {
    let text = "default_profile = 'auto'\n[profile.mine]\n[[auto]]\nfiles = []\nprofile = 'mine'\n";
    let policies = user(text);
    assert_eq!(
        choose(&policies, "", &["Makefile"]),
        Choice {
            profile: "mine".into(),
            found: Some(FoundKind::default())
        }
    );
    let rust = choose(&policies, "", &["Cargo.toml"]);
    assert_eq!(
        (rust.profile.as_str(), rust.found.unwrap().others),
        ("rust", vec![])
    );
    assert_eq!(
        choose(&user(&text.replace("'auto'\n[p", "'default'\n[p")), "", &[]),
        Choice::named("default")
    );
}

#[test]
fn a_later_file_names_the_default() {
    let etc = || source(SourceKind::System, "profile = 'read-only'");
    let load = |sources| Policies::load(sources).unwrap();
    assert_eq!(load(vec![etc()]).default_profile(), "read-only");
    assert_eq!(
        load(vec![etc(), source(SourceKind::User, "profile = 'auto'")]).default_profile(),
        "auto"
    );
    assert_eq!(
        load(vec![etc(), source(SourceKind::User, "")]).default_profile(),
        "read-only"
    );
}

#[test]
fn a_later_file_names_the_place_of_central_roots() {
    let host = Host {
        home: "/home/u".into(),
        ..Host::default()
    };
    let place = |sources| Policies::load(sources).unwrap().central_root(&host);
    let etc = || source(SourceKind::System, "central_root = '/srv/projects'");
    let own = |text: &str| source(SourceKind::User, text);
    assert_eq!(place(vec![own("")]), Ok(None));
    assert_eq!(
        place(vec![etc(), own("")]),
        Ok(Some("/srv/projects".into()))
    );
    assert_eq!(
        place(vec![etc(), own("central_root = '~/bmad-studio/projects'")]),
        Ok(Some("/home/u/bmad-studio/projects".into()))
    );
    for wrong in ["relative", "/a/../b", ""] {
        let text = format!("central_root = '{wrong}'");
        assert!(Policies::load(vec![own(&text)]).is_err(), "{wrong:?}");
    }
}

/// An administrator's choice is not for the user to fill in.
#[test]
fn only_known_profiles_are_chosen() {
    let mine = "[profile.mine]\n";
    for (etc, own, known) in [
        ("", "profile = 'nope'", false),
        ("", "[[auto]]\nfiles = ['x']\nprofile = 'nope'", false),
        ("profile = 'mine'", mine, false),
        ("[[auto]]\nfiles = ['x']\nprofile = 'mine'", mine, false),
        (
            "",
            &format!("default_profile = 'mine'\n{mine}[[auto]]\nfiles = ['x']\nprofile = 'mine'"),
            true,
        ),
    ] {
        let loaded = Policies::load(vec![
            source(SourceKind::System, etc),
            source(SourceKind::User, own),
        ]);
        let refused = matches!(loaded, Err(PolicyError::NoChoice { .. }));
        assert_eq!((loaded.is_ok(), refused), (known, !known), "{etc} {own}");
    }
}

#[test]
fn only_a_regular_file_in_the_root_tells_a_project() {
    let project = tempfile::tempdir().unwrap();
    let at = |name: &str| project.path().join(name);
    let has = has_file(project.path());
    fs::write(at("target"), "").unwrap();
    symlink("target", at("linked")).unwrap();
    symlink("nowhere", at("dangling")).unwrap();
    fs::create_dir_all(at("sub")).unwrap();
    fs::write(at("sub/Cargo.toml"), "").unwrap();
    assert!(has("target"), "control");
    assert!(!has("linked") && !has("dangling") && !has("sub") && !has("Cargo.toml"));
}
