//! Caches of a project's package managers and compilers: in the central root, so that the next run
//! is fast. No other project uses them: a central root belongs to one project (`central_owner.rs`).

use crate::network_reach::NetworkReach;
use executor_spec::sandbox::CACHES;
use executor_spec::variables::Variables;
use executor_spec::zones::Zones;
use policies::{Access, EffectivePolicy};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::Path;

/// A cache, with the variable that locates it.
struct Cache {
    variable: &'static str,
    folder: &'static str,
    /// For a cache in which programs look for downloads: subdirectories of which one has an entry in one of its directories once
    /// something was downloaded. Without a network, a profile may show the user's cache instead, which commands cannot write.
    fetched: Option<&'static [&'static str]>,
}

const fn cache(
    variable: &'static str,
    folder: &'static str,
    fetched: Option<&'static [&'static str]>,
) -> Cache {
    Cache {
        variable,
        folder,
        fetched,
    }
}

const ALL: [Cache; 9] = [
    cache("BUN_INSTALL_CACHE_DIR", "bun", Some(&[""])),
    cache("CARGO_HOME", "cargo", Some(&["registry/cache", "git/db"])),
    cache("CCACHE_DIR", "ccache", None),
    cache("GOCACHE", "go-build", None),
    cache("GOMODCACHE", "go-mod", Some(&["cache/download"])),
    // npm writes there even to install what it finds there.
    cache("npm_config_cache", "npm", None),
    cache("PIP_CACHE_DIR", "pip", None),
    cache("UV_CACHE_DIR", "uv", None),
    // Of Yarn 2 and later.
    cache(YARN_FOLDER, "yarn", Some(&["metadata"])),
];

/// The cache variables for the environment of cells that can reach a host, or none: without those
/// that the profile sets, and empty if commands cannot write there.
pub fn variables(
    policy: &EffectivePolicy,
    reach: NetworkReach,
    ours: &Variables,
    central: &Path,
) -> Vec<(OsString, OsString)> {
    if policy.central != Access::Write || policy.paths.directories("bash").is_some() {
        return Vec::new();
    }
    let place = |cache: &Cache| central.join(CACHES).join(cache.folder);
    let own = ALL
        .iter()
        .filter(|cache| is_own(cache, (policy, reach), ours, &place(cache)));
    own.map(|cache| (cache.variable.into(), place(cache).into()))
        .collect()
}

/// Whether cells use the project's cache at `place`, and not what the profile has for this variable.
fn is_own(
    cache: &Cache,
    (policy, reach): (&EffectivePolicy, NetworkReach),
    ours: &Variables,
    place: &Path,
) -> bool {
    let (rules, variable) = (&policy.environment, cache.variable);
    if rules.set.contains_key(variable) {
        return false;
    }
    let passed = rules.passes(variable) && ours.contains_key(OsStr::new(variable));
    match cache.fetched {
        None => !passed,
        Some(_) if reach == NetworkReach::Online => true,
        // Without this variable, Go keeps modules below GOPATH.
        Some(folders) => {
            let elsewhere =
                passed || rules.offline.contains_key(variable) || rules.set.contains_key("GOPATH");
            !elsewhere
                || folders
                    .iter()
                    .any(|folder| has_fetched(&place.join(folder)))
        }
    }
}

/// The variable that locates pnpm's store.
const PNPM_STORE: &str = "npm_config_store_dir";
/// The variable that locates Yarn's cache, among other directories in which it writes.
const YARN_FOLDER: &str = "YARN_GLOBAL_FOLDER";
/// Maximum number of projects of a store that are looked at.
const PROJECTS_MAX: usize = 1024;

/// Whether a package manager can use what `value` names as the user's, in a cell whose home is `home`.
pub fn is_of_use((name, value): (&OsStr, &OsStr), home: &Path) -> bool {
    let path = Path::new(value);
    match name.to_str() {
        // For it there is a file of settings: npm warns of a variable that it does not know.
        Some(PNPM_STORE) => false,
        // In the cell's own home, all but the cache is its own.
        Some(YARN_FOLDER) => path.starts_with(home),
        Some(_) | None => true,
    }
}

/// pnpm's settings in the home of cells that can reach a host, or none, where the profile names the user's store: without a network
/// that, in a project that it knows, and else the project's own. By itself pnpm makes a store in the project, or one that ends with the
/// session.
pub fn pnpm_settings(
    policy: &EffectivePolicy,
    reach: NetworkReach,
    zones: &Zones,
) -> Option<(&'static str, Vec<u8>)> {
    let users = Path::new(policy.environment.offline.get(PNPM_STORE)?);
    let is_writable = policy.central == Access::Write && policy.paths.directories("bash").is_none();
    let store = if reach != NetworkReach::Online && is_registered(users, &zones.project) {
        users.to_owned()
    } else if is_writable {
        zones.central.join(CACHES).join("pnpm")
    } else {
        return None;
    };
    let store = store.to_str()?;
    let is_plain = |c: char| !c.is_control() && !"\"'`\\;#=${}".contains(c);
    let line = store
        .chars()
        .all(is_plain)
        .then(|| format!("store-dir={store}\n"))?;
    Some((".config/pnpm/rc", line.into_bytes()))
}

/// Whether pnpm has registered `project` in this store. It registers each project before it installs anything, which cannot be done in
/// a store that commands only read; so any other project does without.
fn is_registered(store: &Path, project: &Path) -> bool {
    let entries = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten();
    let versions = entries(store).map(|version| version.path().join("projects"));
    versions
        .flat_map(|projects| entries(&projects))
        .take(PROJECTS_MAX)
        .any(|entry| fs::canonicalize(entry.path()).is_ok_and(|real| real == project))
}

/// True if something was downloaded: tools create empty directories there whenever they run.
fn has_fetched(folder: &Path) -> bool {
    let entries = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten();
    entries(folder).any(|source| entries(&source.path()).next().is_some())
}

#[cfg(test)]
mod tests {
    use super::*;
    use broker_protocol::NetworkRequest;
    use policies::{Host, Policies};
    use std::os::unix::fs::symlink;

    #[test]
    fn a_store_of_pnpm_serves_the_projects_that_it_knows() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path().canonicalize().unwrap();
        let projects = folder.join("store/v10/projects");
        fs::create_dir_all(&projects).unwrap();
        fs::create_dir(folder.join("p")).unwrap();
        symlink("../../../p", projects.join("0a")).unwrap();
        symlink("../../../gone", projects.join("0b")).unwrap();
        let knows = |project: &str| is_registered(&folder.join("store"), &folder.join(project));
        assert!(knows("p") && !knows("gone") && !knows("store"));
        assert!(!is_registered(&folder.join("none"), &folder.join("p")));
    }

    #[test]
    fn caches_of_a_project_come_before_those_of_the_user() {
        let central = tempfile::tempdir().unwrap();
        let host = Host {
            home: "/home/u".into(),
            ..Host::default()
        };
        let network = NetworkRequest {
            presets: vec!["crates".into()],
            ..NetworkRequest::default()
        };
        let profile = |name: &str| {
            Policies::load(vec![])
                .unwrap()
                .resolve(name, &host)
                .unwrap()
        };
        let rust = profile("rust");
        let online = rust.clone().with_network(Some(&network)).unwrap();
        let own = |policy: &EffectivePolicy| {
            let variables = variables(
                policy,
                NetworkReach::of(policy),
                &Variables::default(),
                central.path(),
            );
            variables.iter().any(|(name, _)| name == "CARGO_HOME")
        };
        let modules = |policy: &EffectivePolicy| {
            let set = Variables::from([("GOMODCACHE".into(), "/home/u/modules".into())]);
            let own = |ours: &Variables| {
                let variables = variables(policy, NetworkReach::of(policy), ours, central.path());
                variables.iter().any(|(name, _)| name == "GOMODCACHE")
            };
            [own(&Variables::default()), own(&set)]
        };
        let go = profile("go");
        let go_online = go.clone().with_network(Some(&network)).unwrap();
        assert_eq!(
            (
                modules(&go_online),
                modules(&go),
                modules(&profile("default"))
            ),
            ([true; 2], [false; 2], [true; 2])
        );
        assert_eq!((own(&online), own(&rust)), (true, false));
        let registry = central
            .path()
            .join("caches/cargo/registry/cache/index.crates.io-1");
        fs::create_dir_all(&registry).unwrap();
        assert!(!own(&rust), "it is empty");
        fs::write(registry.join("itoa-1.0.9.crate"), "").unwrap();
        assert_eq!((own(&online), own(&rust)), (true, true));
    }
}
