//! Locates the programs under test, and copies them to where every user can run them.
//!
//! `LAZARET_BIN` names a folder with `lazaret` and `lazaret-executor`. Without it they are built first, in the profile of the
//! running test, so that a test never uses an old program. All are copied to a folder that any user can read, because a target
//! folder below a home directory often is not readable. A folder that also contains our helpers is used as it is, with the test
//! build of the executor in its `ablation`, if that is there.

pub use lazaret_laws::workspace::{cargo, workspace};
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, unshare};
use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::{SystemTime, UNIX_EPOCH};

/// All programs of the product.
pub const PRODUCT: [&str; 7] = [
    "lazaret",
    "lazaret-bash",
    EXECUTOR,
    WORKER,
    GATEWAY,
    "lazaret-attack",
    "lazaret-trace",
];
const EXECUTOR: &str = "lazaret-executor";
const WORKER: &str = "lazaret-worker";
const GATEWAY: &str = "lazaret-gateway";
/// The programs of this crate that tests start.
const HELPERS: [&str; 5] = [
    "attacker",
    "without-namespaces",
    "without-landlock",
    "without-supervision",
    "refusing",
];

/// The path of an installed program.
pub fn path(program: &str) -> PathBuf {
    let path = folder().join(program);
    assert!(
        path.exists(),
        "there is no program {program}: build it, or name its folder in LAZARET_BIN"
    );
    path
}

/// A folder that every user can read, with all programs in it.
pub fn folder() -> &'static Path {
    static FOLDER: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    // A failure is stored too, so that a workspace that does not build is reported once, not once for each test.
    FOLDER
        .get_or_init(prepare)
        .as_deref()
        .unwrap_or_else(|error| panic!("{error}"))
}

/// The executor as a test build, which disables a layer on request (`executor/spec/src/ablation.rs`). It stands in a folder of its
/// own, so that nobody mistakes it for the product.
pub fn ablation_executor() -> &'static Path {
    static EXECUTOR: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    EXECUTOR
        .get_or_init(prepare_ablation)
        .as_deref()
        .unwrap_or_else(|error| panic!("{error}"))
}

fn prepare_ablation() -> Result<PathBuf, String> {
    let given = folder().join("ablation").join(EXECUTOR);
    if given.exists() {
        return Ok(given);
    }
    let ours = built().parent().unwrap_or(built());
    let target = ours.join("ablation");
    let mut cargo = cargo();
    // With the same packages as `build`, below which all is the same, and in its folder: a few crates are built instead of all.
    // A cargo older than 1.91 does not know that folder and builds everything.
    cargo
        .current_dir(workspace())
        .args(["build", "--quiet", "--locked", "--workspace", "--bins"]);
    cargo
        .args(["--features", "executor/ablation", "--target-dir"])
        .arg(&target);
    cargo.env("CARGO_BUILD_BUILD_DIR", ours);
    match cargo.status() {
        Ok(status) if status.success() => {}
        Ok(_) => return Err("the executor does not build with the feature `ablation`".into()),
        Err(error) => return Err(format!("cargo does not start: {error}")),
    }
    let folder = scratch().join("ablation");
    make_folder(&folder);
    install(&target.join("debug"), &[EXECUTOR], &folder);
    // These have no switch: the executor tells the worker which layers to apply.
    for name in [WORKER, GATEWAY] {
        fs::copy(path(name), folder.join(name)).map_err(|error| format!("{name}: {error}"))?;
    }
    Ok(folder.join(EXECUTOR))
}

fn prepare() -> Result<PathBuf, String> {
    let given = std::env::var_os("LAZARET_BIN").map(PathBuf::from);
    if let Some(folder) = given
        .as_ref()
        .filter(|folder| HELPERS.iter().all(|helper| folder.join(helper).exists()))
    {
        return Ok(folder.clone());
    }
    build(given.is_some())?;
    let folder = scratch().join("bin");
    make_folder(&folder);
    install(given.as_deref().unwrap_or(built()), &PRODUCT, &folder);
    install(built(), &HELPERS, &folder);
    Ok(folder)
}

/// A folder of this test process that every user can enter; removed when the process ends.
pub fn scratch() -> &'static Path {
    static SCRATCH: OnceLock<PathBuf> = OnceLock::new();
    SCRATCH.get_or_init(|| {
        sweep();
        let nanos = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.subsec_nanos());
        let path = std::env::temp_dir().join(format!("{PREFIX}{}-{nanos}", std::process::id()));
        make_folder(&path);
        crate::sys::spread_directories(
            fs::File::open(&path)
                .expect("a folder we made is ours")
                .as_fd(),
        );
        crate::sys::at_exit(remove_scratch);
        path
    })
}

const PREFIX: &str = "lazaret-tests-";

extern "C" fn remove_scratch() {
    let _ = umount2(&scratch().join(MEMORY), MntFlags::MNT_DETACH);
    let _ = fs::remove_dir_all(scratch());
}

const MEMORY: &str = "memory";
static IN_MEMORY: OnceLock<Option<PathBuf>> = OnceLock::new();

/// Mounts a folder in memory that this process and what it starts sees, if it may. To be called while this process has one thread.
pub fn mount_memory() {
    IN_MEMORY.get_or_init(|| {
        let none: Option<&str> = None;
        unshare(CloneFlags::CLONE_NEWNS).ok()?;
        let private = MsFlags::MS_REC | MsFlags::MS_PRIVATE;
        mount(none, "/", none, private, none).ok()?;
        let folder = scratch().join(MEMORY);
        make_folder(&folder);
        mount(
            none,
            &folder,
            Some("tmpfs"),
            MsFlags::empty(),
            Some("mode=755"),
        )
        .ok()?;
        Some(folder)
    });
}

/// That folder; [`scratch`] where it could not be mounted.
pub fn in_memory() -> &'static Path {
    let mounted = IN_MEMORY.get().and_then(Option::as_deref);
    mounted.unwrap_or_else(scratch)
}

/// Removes the folders of earlier test processes that were killed.
fn sweep() {
    let Ok(entries) = fs::read_dir(std::env::temp_dir()) else {
        return;
    };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(rest) = name.to_str().and_then(|name| name.strip_prefix(PREFIX)) else {
            continue;
        };
        let owner = rest.split('-').next().unwrap_or_default();
        if !Path::new("/proc").join(owner).exists() {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

fn make_folder(path: &Path) {
    fs::create_dir(path).unwrap_or_else(|error| panic!("cannot make {}: {error}", path.display()));
    // The caller's umask must not determine whether another user can enter.
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).expect("a folder we made is ours");
}

/// The target folder of the running profile: this executable's, or its parent's if this is a test.
pub fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let exe = std::env::current_exe().expect("an executable knows its path");
        let beside = exe.parent().expect("an executable is in a folder");
        let folder = if beside.ends_with("deps") {
            beside.parent().unwrap_or(beside)
        } else {
            beside
        };
        folder.to_owned()
    })
}

/// Builds what will be installed. A build with nothing to do takes a tenth of a second.
fn build(product_is_given: bool) -> Result<(), String> {
    let mut cargo = cargo();
    cargo
        .current_dir(workspace())
        .args(["build", "--quiet", "--locked", "--bins"]);
    cargo.args(if product_is_given {
        ["--package", "lazaret-tests"].as_slice()
    } else {
        &["--workspace"]
    });
    if built().ends_with("release") {
        cargo.arg("--release");
    }
    if let Some(target) = built().parent() {
        cargo.env("CARGO_TARGET_DIR", target);
    }
    match cargo.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err("the programs under test do not build".to_owned()),
        Err(error) => Err(format!("cargo does not start: {error}")),
    }
}

fn install(from: &Path, programs: &[&str], to: &Path) {
    for program in programs {
        let source = from.join(program);
        if !source.exists() {
            continue; // Said by `path`, if it is asked for.
        }
        let target = to.join(program);
        fs::copy(&source, &target)
            .unwrap_or_else(|error| panic!("cannot copy {}: {error}", source.display()));
        fs::set_permissions(&target, fs::Permissions::from_mode(0o755))
            .expect("a file we made is ours");
    }
}

/// Whether a program exists where cells have their programs. If not, prints its Debian package.
pub fn is_installed(program: &str, package: &str) -> bool {
    let found = has(program);
    if !found {
        eprintln!("{program} is not here, so it is not tried: apt-get install {package}");
    }
    found
}

/// A test that needs the program is not run where cells do not have it.
pub fn need(program: &str, package: &str) {
    if !has(program) {
        crate::not_run::not_run(format!("no {program}: apt-get install {package}"));
    }
}

fn has(program: &str) -> bool {
    ["/usr/bin", "/usr/local/bin"]
        .iter()
        .any(|folder| Path::new(folder).join(program).exists())
}
