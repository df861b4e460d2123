//! Where a test runs: a tier of the sandbox and a user, in every combination that the machine supports.

use crate::container::Runtime;
use crate::process::{self, LIMIT};
use crate::programs;
use broker_protocol::Tier;
use nix::unistd::{Gid, Uid, geteuid};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// The ordinary user that a run as root creates.
const ORDINARY: &str = "lazaret-test";

/// Names the container runtime that flat places simulate.
pub const CONTAINER_VARIABLE: &str = "LAZARET_CONTAINER";

/// What some container's profile closes to all, and a test depends on: `unshare`, even of what is no namespace, and `pidfd_getfd`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Privilege {
    Unshare,
    OthersDescriptors,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum User {
    /// The user who runs the tests; for root, a user created for this.
    Ordinary,
    Root,
}

/// One combination of tier and user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// The tier that the session must have.
    pub tier: Tier,
    pub user: User,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let user = match self.user {
            User::Ordinary => "ordinary",
            User::Root => "root",
        };
        write!(f, "{}/{user}", self.tier.name())
    }
}

impl std::str::FromStr for Place {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let places = Place::all();
        let names: Vec<String> = places.iter().map(Place::to_string).collect();
        let found = places.into_iter().find(|place| place.to_string() == name);
        found.ok_or_else(|| format!("this machine has {}", names.join(", ")))
    }
}

/// A user of this machine.
#[derive(Clone, Debug)]
pub struct Account {
    pub uid: Uid,
    pub gid: Gid,
    pub name: String,
    /// The home directory of the real account; worlds have their own.
    pub home: PathBuf,
}

impl Place {
    /// Every place that this machine supports.
    pub fn all() -> Vec<Place> {
        let users = if geteuid().is_root() {
            vec![User::Ordinary, User::Root]
        } else {
            vec![User::Ordinary]
        };
        let tiers = [Tier::Namespaced, Tier::Flat];
        let places = users
            .iter()
            .flat_map(|&user| tiers.map(|tier| Place { tier, user }));
        places.filter(|place| place.exists()).collect()
    }

    /// The places of the ordinary user.
    pub fn ordinary() -> Vec<Place> {
        Place::all()
            .into_iter()
            .filter(|place| place.user == User::Ordinary)
            .collect()
    }

    /// The first place of [`Place::all`], for tests that do not depend on the place.
    pub fn any() -> Place {
        *Place::all()
            .first()
            .expect("every machine has the flat tier")
    }

    /// Whether the machine supports this place. The flat tier works anywhere, because a filter simulates it.
    fn exists(&self) -> bool {
        self.tier == Tier::Flat || self.user == User::Root || namespaces_for_ordinary()
    }

    pub fn account(&self) -> &'static Account {
        match self.user {
            User::Ordinary => ordinary(),
            User::Root => root(),
        }
    }

    /// A command that starts `program` (a name of [`programs`]) in this place: as its user, and without namespaces in the flat
    /// tier. No wrapper process remains in between: the PID is the program's own.
    pub fn command(&self, program: &str) -> Command {
        let mut command = match self.tier {
            Tier::Namespaced => Command::new(programs::path(program)),
            Tier::Flat => {
                let mut command = Command::new(programs::path("without-namespaces"));
                command.args(
                    container()
                        .iter()
                        .flat_map(|runtime| ["--profile", runtime.name()]),
                );
                command.arg(programs::path(program));
                command
            }
        };
        self.as_user(&mut command);
        command
    }

    /// Whether programs in this place have it outside a cell. It is tried: whoever runs the tests in a container does not say which
    /// profile that has.
    pub fn permits(&self, privilege: Privilege) -> bool {
        let attempt = match privilege {
            Privilege::Unshare => "unshare-directory",
            Privilege::OthersDescriptors => "take-own-descriptor",
        };
        let mut command = self.command("attacker");
        let finished = process::run(command.arg(attempt), LIMIT);
        finished.success().starts_with("GOT")
    }

    /// Makes `command` run as the place's user. It also loses its supplementary groups: the standard library drops them along with
    /// root's user ID.
    pub fn as_user(&self, command: &mut Command) {
        let account = self.account();
        if account.uid != geteuid() {
            command.uid(account.uid.as_raw()).gid(account.gid.as_raw());
        }
    }
}

/// The container runtime whose profile flat places have (`LAZARET_CONTAINER`); a simpler filter if there is none.
fn container() -> Option<Runtime> {
    static CONTAINER: OnceLock<Option<Runtime>> = OnceLock::new();
    *CONTAINER.get_or_init(|| {
        let name = std::env::var(CONTAINER_VARIABLE).ok()?;
        Some(
            Runtime::named(&name)
                .unwrap_or_else(|| panic!("{CONTAINER_VARIABLE}: no profile {name:?}")),
        )
    })
}

/// Accounts are looked up once; a run as root creates the ordinary user if necessary.
fn ordinary() -> &'static Account {
    static ACCOUNT: OnceLock<Account> = OnceLock::new();
    ACCOUNT.get_or_init(|| {
        if !geteuid().is_root() {
            return account_of(geteuid())
                .expect("the current user has no entry in the user database");
        }
        if named(ORDINARY).is_none() {
            let made = Command::new("useradd")
                .args(["--create-home", "--shell", "/bin/bash", ORDINARY])
                .status();
            assert!(
                made.is_ok_and(|status| status.success()),
                "useradd could not make the user {ORDINARY}"
            );
        }
        named(ORDINARY).expect("useradd made no entry")
    })
}

fn root() -> &'static Account {
    static ACCOUNT: OnceLock<Account> = OnceLock::new();
    ACCOUNT.get_or_init(|| {
        account_of(Uid::from_raw(0)).expect("root has no entry in the user database")
    })
}

fn named(name: &str) -> Option<Account> {
    nix::unistd::User::from_name(name)
        .ok()
        .flatten()
        .map(Account::from)
}

fn account_of(uid: Uid) -> Option<Account> {
    nix::unistd::User::from_uid(uid)
        .ok()
        .flatten()
        .map(Account::from)
}

impl From<nix::unistd::User> for Account {
    fn from(user: nix::unistd::User) -> Self {
        Self {
            uid: user.uid,
            gid: user.gid,
            name: user.name,
            home: user.dir,
        }
    }
}

/// Tries it instead of reading a setting: some systems have namespaces and a rule that makes them useless.
fn namespaces_for_ordinary() -> bool {
    static ANSWER: OnceLock<bool> = OnceLock::new();
    *ANSWER.get_or_init(|| {
        let place = Place {
            tier: Tier::Flat,
            user: User::Ordinary,
        };
        let mut command = Command::new(programs::path("attacker"));
        place.as_user(command.arg("namespaces").arg("/"));
        let finished = process::run(&mut command, LIMIT);
        let answer = finished.text().starts_with("GOT");
        if !answer {
            println!(
                "no namespaces for an ordinary user here: the namespaced tier is not tested for one"
            );
        }
        answer
    })
}
