//! Tests of what discovery finds in zones created for the test.

use super::*;
use executor_spec::pins::{PINS_MAX, Pin};
use policies_guard::ProtectedName;
use std::os::unix::fs::{PermissionsExt, symlink};

struct Zone(tempfile::TempDir);

impl Zone {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().canonicalize().unwrap().join(name)
    }

    fn put(&self, name: &str) {
        fs::create_dir_all(self.at(name).parent().unwrap()).unwrap();
        fs::write(self.at(name), "x").unwrap();
    }

    fn discover(&self, names: &[(&str, Protection)]) -> Result<Discovery, ProtectError> {
        let protect = |(name, protection): &(&str, Protection)| ProtectedName {
            pattern: (*name).into(),
            protection: *protection,
            new: Default::default(),
            opens: false,
            except: vec![],
            why: String::new(),
            origin: Default::default(),
        };
        let names: Vec<ProtectedName> = names.iter().map(protect).collect();
        let central = tempfile::tempdir().unwrap();
        let (project, central) = (self.at(""), central.path().canonicalize().unwrap());
        let project: PathBuf = project.components().collect();
        discover(
            [&project, &central],
            None,
            None,
            &Matcher::new(&names).unwrap(),
            PINS_MAX,
        )
    }

    fn pins(&self, names: &[(&str, Protection)]) -> Vec<(String, PinMode)> {
        let short = |path: &Path| {
            path.strip_prefix(self.at(""))
                .unwrap()
                .display()
                .to_string()
        };
        let pins = self.discover(names).unwrap().pins;
        pins.iter()
            .map(|pin| (short(&pin.path), pin.mode))
            .collect()
    }
}

const HIDDEN: PinMode = PinMode::Hidden { directory: false };
const ENV: &[(&str, Protection)] = &[(".env", Protection::All)];
const GIT: &[(&str, Protection)] = &[
    (".git/config", Protection::Write),
    (".git/hooks", Protection::Write),
];

fn pin(path: &str, mode: PinMode) -> (String, PinMode) {
    (path.to_owned(), mode)
}

#[test]
fn a_protected_file_is_closed_and_its_parents_are_held() {
    let zone = Zone::new();
    zone.put("a/b/.env");
    zone.put("a/other");
    let kept = |path| pin(path, PinMode::KeepPlace);
    assert_eq!(
        zone.pins(ENV),
        [kept("a"), kept("a/b"), pin("a/b/.env", HIDDEN)]
    );
}

#[test]
fn other_names_of_a_protected_file_are_closed_and_named() {
    let zone = Zone::new();
    zone.put("zz");
    fs::hard_link(zone.at("zz"), zone.at(".env")).unwrap();
    assert_eq!(zone.pins(ENV), [pin(".env", HIDDEN), pin("zz", HIDDEN)]);
    let why = WhyClosed::OtherNameOf(zone.at(".env"));
    assert_eq!(
        zone.discover(ENV).unwrap().also_closed,
        [AlsoClosed {
            path: zone.at("zz"),
            why
        }]
    );
}

#[test]
fn link_target_is_closed_like_the_name_of_the_link() {
    let zone = Zone::new();
    zone.put("conf/real/prod");
    symlink("real", zone.at("conf/now")).unwrap();
    symlink("conf/now/prod", zone.at(".env")).unwrap();
    let link = |path| pin(path, PinMode::KeepLink);
    let kept = |path| pin(path, PinMode::KeepPlace);
    let expected = [
        link(".env"),
        kept("conf"),
        link("conf/now"),
        kept("conf/real"),
        pin("conf/real/prod", HIDDEN),
    ];
    assert_eq!(zone.pins(ENV), expected);
    let objects = zone.discover(ENV).unwrap().objects;
    assert_eq!(
        objects.protection_of_place(&zone.at("conf/real/prod")),
        Some(Protection::All)
    );
    assert_eq!(
        objects.protection_of_place(&zone.at("conf/now")),
        Some(Protection::Write)
    );
}

#[test]
fn missing_link_target_is_a_place_that_stays_empty() {
    let zone = Zone::new();
    symlink("conf/prod", zone.at(".env")).unwrap();
    symlink("/etc/passwd", zone.at("other")).unwrap();
    symlink(".", zone.at("loop")).unwrap();
    assert_eq!(zone.pins(ENV), [pin(".env", PinMode::KeepLink)]);
    let objects = zone.discover(ENV).unwrap().objects;
    assert_eq!(
        objects.places,
        [(zone.at("conf/prod"), Protection::All)].into()
    );
}

#[test]
fn a_link_that_would_close_a_root_opens_no_session() {
    let zone = Zone::new();
    symlink(".", zone.at(".env")).unwrap();
    assert!(matches!(
        zone.discover(ENV),
        Err(ProtectError::LinkToRoot { .. })
    ));
}

#[test]
fn a_repository_is_known_by_its_shape() {
    let zone = Zone::new();
    for name in [
        "HEAD",
        "objects/x",
        "refs/x",
        "config",
        "hooks/pre-commit",
        "other",
    ] {
        zone.put(&format!("store/{name}"));
    }
    let expected = [
        pin("store", PinMode::KeepPlace),
        pin("store/config", PinMode::ReadOnly),
        pin("store/hooks", PinMode::ReadOnly),
    ];
    assert_eq!(zone.pins(GIT), expected);
    fs::remove_file(zone.at("store/HEAD")).unwrap();
    assert_eq!(zone.pins(GIT), []);
    zone.put("store/head");
    assert_eq!(
        zone.pins(GIT),
        expected,
        "file systems compare without case"
    );
}

#[test]
fn directory_named_by_a_gitdir_file_is_a_repository() {
    let zone = Zone::new();
    zone.put("store/config");
    zone.put("common/config");
    fs::write(zone.at(".git"), "gitdir: store\n").unwrap();
    fs::write(zone.at("store/commondir"), "../common\n").unwrap();
    let expected = [
        pin(".git", PinMode::ReadOnly),
        pin("common", PinMode::KeepPlace),
        pin("common/config", PinMode::ReadOnly),
        pin("store", PinMode::KeepPlace),
        pin("store/commondir", PinMode::ReadOnly),
        pin("store/config", PinMode::ReadOnly),
    ];
    assert_eq!(zone.pins(GIT), expected);
    fs::remove_file(zone.at(".git")).unwrap();
    symlink("store", zone.at(".git")).unwrap();
    assert_eq!(zone.pins(GIT)[0], pin(".git", PinMode::KeepLink));
    assert_eq!(zone.pins(GIT)[1..], expected[1..]);
}

/// Root can list everything: there is nothing to test as root.
#[test]
fn unlistable_directory_is_closed_and_an_unlistable_root_opens_no_session() {
    if nix::unistd::geteuid().is_root() {
        return;
    }
    let zone = Zone::new();
    zone.put("sub/.env");
    for closed in [0o311, 0o600, 0] {
        fs::set_permissions(zone.at("sub"), fs::Permissions::from_mode(closed)).unwrap();
        assert_eq!(
            zone.pins(ENV),
            [pin("sub", PinMode::Hidden { directory: true })],
            "{closed:o}"
        );
        assert_eq!(
            zone.discover(ENV).unwrap().also_closed[0].why,
            WhyClosed::Unlisted
        );
    }
    fs::set_permissions(zone.at(""), fs::Permissions::from_mode(0o311)).unwrap();
    assert!(matches!(
        zone.discover(ENV),
        Err(ProtectError::Unlisted { .. })
    ));
    fs::set_permissions(zone.at(""), fs::Permissions::from_mode(0o755)).unwrap();
}

fn leased(zone: &Zone, entries_max: usize) -> Result<Discovery, ProtectError> {
    let root: PathBuf = zone.at("").components().collect();
    discover_leased(
        &root,
        &Matcher::new(&[]).unwrap(),
        (PINS_MAX, entries_max),
        |_| Ok(BTreeSet::new()),
    )
}

#[test]
fn leased_directory_has_its_own_entry_limit() {
    let zone = Zone::new();
    ["a/one", "a/two", "three"]
        .iter()
        .for_each(|name| zone.put(name));
    assert!(leased(&zone, 4).is_ok());
    let fault = leased(&zone, 3).unwrap_err();
    assert!(
        matches!(fault, ProtectError::LeaseTooLarge { max: 3 })
            && fault.to_string().contains(" 3 entries")
    );
}

#[test]
fn a_central_root_in_what_is_leased_is_closed_as_a_whole() {
    let zone = Zone::new();
    [
        "data/x/.lazaret/project",
        "data/x/keys/notes",
        "data/y/.lazaret",
        "data/y/notes",
    ]
    .iter()
    .for_each(|name| zone.put(name));
    fs::hard_link(zone.at("data/x/keys/notes"), zone.at("other")).unwrap();
    let Discovery { objects, pins, .. } = leased(&zone, 100).unwrap();
    let place = |name: &str| objects.protection_of_place(&zone.at(name));
    assert_eq!(
        [place("data/x"), place("data/x/keys/notes"), place("other")],
        [Some(Protection::All); 3]
    );
    assert_eq!(
        [place("data"), place("data/y"), place("data/y/notes")],
        [None; 3],
        "a file of its name is none"
    );
    let hidden = |path: &str, directory| Pin {
        path: zone.at(path),
        mode: PinMode::Hidden { directory },
    };
    assert!(
        pins.contains(&hidden("data/x", true)) && pins.contains(&hidden("other", false)),
        "{pins:?}"
    );
}

/// The search of a project and a central root, each with room for so many entries.
fn within(project: &Zone, central: &Zone, entries_max: usize) -> Result<Discovery, ProtectError> {
    let clean = |zone: &Zone| zone.at("").components().collect::<PathBuf>();
    let (project, central) = (clean(project), clean(central));
    let env = ProtectedName {
        pattern: ".env".into(),
        protection: Protection::All,
        new: Default::default(),
        opens: false,
        except: vec![],
        why: String::new(),
        origin: Default::default(),
    };
    let names = Matcher::new(&[env]).unwrap();
    let zones = [project.as_path(), central.as_path()];
    let mut search = ZoneSearch {
        entries_max,
        ..ZoneSearch::new(zones.to_vec(), zones, None, &names)
    };
    for root in zones {
        search.left.push(PendingDirectory::root(root));
        search.all_left()?;
    }
    search.choose_repositories();
    search.finish(PINS_MAX)
}

fn too_large(found: &Discovery) -> Vec<&Path> {
    let closed = found
        .also_closed
        .iter()
        .filter(|closed| closed.why == WhyClosed::TooLarge);
    closed.map(|closed| closed.path.as_path()).collect()
}

#[test]
fn largest_directory_is_closed_and_the_rest_is_searched() {
    let (project, central) = (Zone::new(), Zone::new());
    (0..30).for_each(|number| project.put(&format!("many/{number}/file")));
    ["a/.env", "z/.env", ".env"]
        .into_iter()
        .for_each(|name| project.put(name));
    central.put("caches/.env");
    let found = within(&project, &central, 40).unwrap();
    assert_eq!(too_large(&found), [project.at("many")]);
    assert!(found.pins.contains(&Pin {
        path: project.at("many"),
        mode: PinMode::Hidden { directory: true }
    }));
    for (zone, name) in [
        (&project, "a/.env"),
        (&project, "z/.env"),
        (&project, ".env"),
        (&central, "caches/.env"),
    ] {
        assert!(found.named.contains(&zone.at(name)), "{name}");
    }
    assert!(too_large(&within(&project, &central, 100).unwrap()).is_empty());
}

#[test]
fn one_root_takes_no_room_from_another() {
    let (project, central) = (Zone::new(), Zone::new());
    (0..30).for_each(|number| central.put(&format!("s/{number}")));
    (0..15).for_each(|number| project.put(&format!("src/{number}")));
    let found = within(&project, &central, 20).unwrap();
    assert_eq!(too_large(&found), [central.at("s")]);
}

#[test]
fn a_root_that_has_too_many_names_itself_is_named() {
    let (project, central) = (Zone::new(), Zone::new());
    (0..30).for_each(|number| central.put(&format!("{number}")));
    let full = within(&project, &central, 20);
    assert!(
        matches!(full, Err(ProtectError::CentralTooLarge { .. })),
        "{full:?}"
    );
    let full = within(&central, &project, 20);
    assert!(
        matches!(full, Err(ProtectError::TooLarge { .. })),
        "{full:?}"
    );
}

#[test]
fn the_projects_own_repository_is_watched_first_and_those_of_the_central_root_last() {
    let (project, central) = (Zone::new(), Zone::new());
    let repository = |zone: &Zone, at: &str| {
        ["objects/x", "refs/x", "HEAD"]
            .into_iter()
            .for_each(|part| zone.put(&format!("{at}/{part}")));
    };
    (0..3).for_each(|number| repository(&central, &format!("s/{number}.git")));
    repository(&project, "zzz/old.git");
    std::thread::sleep(std::time::Duration::from_millis(30));
    (0..crate::protected::REPOSITORIES_MAX)
        .for_each(|number| repository(&project, &format!("new/{number:04}.git")));
    repository(&project, ".git");
    let found = within(&project, &central, 100_000).unwrap();
    let watched = &found.objects.watched;
    assert_eq!(
        watched[..2],
        [project.at(".git"), project.at("zzz/old.git")]
    );
    let closed: Vec<&AlsoClosed> = found
        .also_closed
        .iter()
        .filter(|closed| closed.why == WhyClosed::NotWatched)
        .collect();
    assert_eq!((watched.len(), closed.len()), (512, 5));
    assert!(
        closed
            .iter()
            .filter(|closed| closed.path.starts_with(central.at("")))
            .count()
            == 3
    );
    assert!(closed.iter().all(|closed| {
        found
            .objects
            .protection_of_place(&closed.path.join("config"))
            == Some(Protection::Write)
    }));
}
