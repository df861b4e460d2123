use super::*;
use crate::discovery::discover;
use policies::{Host, Policies};
use std::fs;
use std::os::unix::fs::symlink;

struct Zones {
    _directory: tempfile::TempDir,
    project: PathBuf,
    central: PathBuf,
}

impl Zones {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path().canonicalize().unwrap();
        let [project, central] = ["project", "central"].map(|name| root.join(name));
        [&project, &central]
            .iter()
            .for_each(|zone| fs::create_dir(zone).unwrap());
        Self {
            _directory: directory,
            project,
            central,
        }
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.project.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn find(&self) -> Discovery {
        let policy = Policies::load(vec![])
            .unwrap()
            .resolve("default", &Host::default())
            .unwrap();
        discover(
            [&self.project, &self.central],
            None,
            None,
            &policy.matcher,
            4096,
        )
        .unwrap()
    }

    fn readable(
        &self,
        tracked: &[&str],
    ) -> (Discovery, Vec<ReadableSecret>, Vec<(PathBuf, NotMasked)>) {
        let mut found = self.find();
        let files = candidates(&found, &SecretModes::default());
        let tracked = tracked
            .iter()
            .map(|name| self.project.join(name))
            .collect::<BTreeSet<_>>();
        let (readable, hidden) = make_readable(&mut found, files, |asked| {
            tracked
                .intersection(&asked.iter().cloned().collect())
                .cloned()
                .collect()
        });
        (found, readable, hidden)
    }
}

fn names(readable: &[ReadableSecret]) -> Vec<&str> {
    readable
        .iter()
        .filter_map(|file| file.path.file_name()?.to_str())
        .collect()
}

#[test]
fn files_in_dotenv_form_are_masked_and_no_others() {
    let zones = Zones::new();
    zones.write(".env", "A=secret-a\n");
    zones.write("apps/web/.env.local", "B=secret-b\n");
    zones.write("id_rsa", "A=b\n");
    zones.write("credentials.json", "A=b\n");
    zones.write(".ssh/.env", "A=b\n");
    zones.write(".env.json", "{\"secret\": 1}\n");
    fs::create_dir(zones.project.join(".env.d")).unwrap();
    let (found, readable, hidden) = zones.readable(&[]);
    assert_eq!(names(&readable), [".env", ".env.local"]);
    assert!(
        matches!(&hidden[..], [(path, NotMasked::Form(_))] if path.ends_with(".env.json")),
        "{hidden:?}"
    );
    let mode = |name: &str| {
        found
            .pins
            .iter()
            .find(|pin| pin.path == zones.project.join(name))
            .unwrap()
            .mode
    };
    assert_eq!(
        (mode(".env"), mode("apps/web")),
        (PinMode::Masked, PinMode::KeepPlace)
    );
    assert_eq!(mode(".env.json"), PinMode::Hidden { directory: false });
    assert_eq!(mode("id_rsa"), PinMode::Hidden { directory: false });
    for file in readable {
        let SecretView::Masked(text) = file.seen else {
            panic!("it is not masked")
        };
        assert!(!text.windows(6).any(|part| part == b"secret"));
    }
}

#[test]
fn a_mode_of_the_policy_hides_and_shows() {
    let zones = Zones::new();
    zones.write(".env", "A=x\n");
    zones.write(".env.hidden", "A=x\n");
    zones.write(".env.json", "{}");
    let mut found = zones.find();
    let mut files = candidates(&found, &SecretModes::default());
    for file in &mut files {
        let is_hidden = file.path.ends_with(".env.hidden");
        file.mode = if is_hidden {
            SecretMode::Hide
        } else {
            SecretMode::Show
        };
    }
    let (readable, hidden) = make_readable(&mut found, files, |_| panic!("nothing is masked"));
    assert_eq!(
        (names(&readable), hidden.len()),
        (vec![".env", ".env.json"], 0)
    );
    assert!(readable.iter().all(|file| file.seen == SecretView::Real));
    let mode = |name: &str| {
        found
            .pins
            .iter()
            .find(|pin| pin.path == zones.project.join(name))
            .unwrap()
            .mode
    };
    assert_eq!([".env", ".env.json"].map(mode), [PinMode::ReadOnly; 2]);
    assert_eq!(mode(".env.hidden"), PinMode::Hidden { directory: false });
}

#[test]
fn placeholders_of_two_files_cannot_be_compared() {
    let zones = Zones::new();
    zones.write(".env", "A=x\n");
    zones.write("sub/.env", "A=x\n");
    let (_, readable, _) = zones.readable(&[]);
    assert!(readable.len() == 2 && readable[0].seen != readable[1].seen);
}

#[test]
fn tracked_secret_stays_hidden() {
    let zones = Zones::new();
    zones.write(".env", "A=x\n");
    zones.write(".env.test", "A=x\n");
    let (_, readable, hidden) = zones.readable(&[".env.test"]);
    assert_eq!(names(&readable), [".env"]);
    assert!(matches!(&hidden[..], [(path, NotMasked::Tracked)] if path.ends_with(".env.test")));
}

#[test]
fn the_target_of_a_link_is_masked_by_the_name_of_the_link() {
    let zones = Zones::new();
    zones.write("config/settings", "A=x\n");
    symlink("config/settings", zones.project.join(".env")).unwrap();
    zones.write("key", "A=x\n");
    symlink("key", zones.project.join("id_rsa")).unwrap();
    let (_, readable, hidden) = zones.readable(&[]);
    assert_eq!((names(&readable), hidden.len()), (vec!["settings"], 0));
}

#[test]
fn a_second_name_and_what_was_replaced_stay_hidden() {
    let zones = Zones::new();
    zones.write(".env", "A=x\n");
    fs::hard_link(
        zones.project.join(".env"),
        zones.project.join("notes.env-copy"),
    )
    .unwrap();
    let mut found = zones.find();
    let files = candidates(&found, &SecretModes::default());
    assert_eq!(files.len(), 1, "only the name of a secret counts");
    fs::rename(zones.project.join(".env"), zones.project.join("moved")).unwrap();
    zones.write(".env", "A=other\n");
    let (readable, hidden) = make_readable(&mut found, files, |_| BTreeSet::new());
    assert!(
        readable.is_empty() && matches!(hidden[0].1, NotMasked::Replaced),
        "{hidden:?}"
    );
}

#[test]
fn the_number_and_the_size_are_bounded_and_those_nearest_to_the_root_come_first() {
    let zones = Zones::new();
    for number in 0..SECRETS_MAX {
        zones.write(&format!("a/{number:03}/.env"), "A=x\n");
    }
    zones.write("z/.env", "A=x\n");
    let (_, readable, hidden) = zones.readable(&[]);
    assert_eq!((readable.len(), hidden.len()), (SECRETS_MAX, 1));
    assert!(readable[0].path.ends_with("z/.env"));
    let zones = Zones::new();
    for number in 0..=MASKS_MAX / (64 << 10) {
        zones.write(
            &format!("{number}/.env"),
            &format!("A={}\n", "s".repeat((32 << 10) + 1)),
        );
    }
    let (_, readable, hidden) = zones.readable(&[]);
    let size: usize = readable
        .iter()
        .map(|file| {
            if let SecretView::Masked(text) = &file.seen {
                text.len()
            } else {
                0
            }
        })
        .sum();
    assert!(size <= MASKS_MAX && !hidden.is_empty() && !readable.is_empty());
}
