//! What this kernel supports: probed, never guessed.

use crate::{capabilities, mounts, namespaces};
use broker_protocol::{Layer, LayerReport, LayerSet, LayerState, Tier};
use executor_spec::ablation::Ablation;
use executor_spec::caller_access::CallerAccess;
use executor_spec::host_pool;
use executor_sys::confine;
use executor_sys::process::{self, Fork};
use nix::sys::utsname::uname;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{Pid, getgid, getuid};
use std::fs;
use std::io::{self, Read, Write};

#[derive(Clone, Debug)]
pub struct Kernel {
    /// `uname -r`.
    pub release: String,
    /// The Landlock ABI; 0 if it is unsupported.
    pub landlock_abi: u32,
}

/// Queries what the kernel reports without a trial.
pub fn kernel() -> Kernel {
    let release = uname().map(|name| name.release().to_string_lossy().into_owned());
    Kernel {
        release: release.unwrap_or_default(),
        landlock_abi: confine::landlock_abi(),
    }
}

/// Tries to create a session's namespaces, and the steps in them that the machine may refuse, in a
/// child that exits at once.
///
/// # Errors
/// The refused step and the error, for people.
pub fn namespaces() -> Result<(), String> {
    let system = |error: io::Error| format!("clone: {error}");
    let (uid, gid) = (getuid(), getgid());
    let all = layers(Tier::Namespaced, 0);
    let (answer, theirs) = io::pipe().map_err(system)?;
    match process::fork(namespaces::session_flags(all)).map_err(system)? {
        Fork::Child => {
            drop(answer);
            let tried = namespaces::set_up(all, (uid, gid), Some(host_pool::OWN))
                .and_then(|()| namespaces::try_later_steps())
                .and_then(|()| mounts::try_to_mount())
                .and_then(|()| capabilities::drop_bounding());
            let written = tried.map_err(|error| {
                let mut theirs = theirs;
                theirs.write_all(format!("{}: {}", error.step, error.source).as_bytes())
            });
            std::process::exit(i32::from(written.is_err()))
        }
        Fork::Parent(child) => {
            drop(theirs);
            let mut refusal = String::new();
            answer
                .take(REFUSAL_MAX)
                .read_to_string(&mut refusal)
                .map_err(system)?;
            match waitpid(Pid::from_raw(child.pid), None).map_err(|errno| system(errno.into()))? {
                WaitStatus::Exited(_, 0) => Ok(()),
                _ => Err(refusal),
            }
        }
    }
}

/// Whether something is in force here that refuses namespaces on some machines: a filter of system calls over this process, as in
/// containers, or a setting of the kernel. The trial then costs less than a sandbox that is built for nothing; elsewhere it would cost
/// each session the making of one more set of namespaces.
pub fn may_refuse_namespaces() -> bool {
    let setting = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let is_filtered = setting("/proc/self/status")
        .lines()
        .filter_map(|line| line.strip_prefix("Seccomp:"))
        .any(|mode| mode.trim() != "0");
    // Ubuntu's, Debian's, and that of every kernel.
    is_filtered
        || setting("/proc/sys/kernel/apparmor_restrict_unprivileged_userns").trim() == "1"
        || setting("/proc/sys/kernel/unprivileged_userns_clone").trim() == "0"
        || setting("/proc/sys/user/max_user_namespaces").trim() == "0"
}

/// Maximum bytes of a refusal that are read.
const REFUSAL_MAX: u64 = 512;

/// The layers a session of `tier` has on this kernel, except the cgroup, which is tried when it is created.
pub fn layers(tier: Tier, landlock_abi: u32) -> LayerSet {
    use Layer::*;
    let always = [
        Environment,
        Descriptors,
        Rlimits,
        ProtectedNames,
        Capabilities,
        NoNewPrivileges,
        Seccomp,
    ];
    let namespaced = [
        UserNamespace,
        MountNamespace,
        PidNamespace,
        NetworkNamespace,
        IpcNamespace,
        UtsNamespace,
        CgroupNamespace,
    ];
    let mut set: LayerSet = always.into_iter().collect();
    if tier == Tier::Namespaced {
        set = namespaced.into_iter().fold(set, LayerSet::with);
    }
    if landlock_abi >= 1 {
        set = set.with(LandlockFiles);
    }
    if !LandlockNetwork.is_unused_in(tier) && landlock_abi >= 4 {
        set = set.with(LandlockNetwork);
    }
    if landlock_abi >= 6 {
        set = set.with(LandlockScopes);
    }
    set
}

/// Whether a session of `tier` could have `layer` on a kernel that supports everything.
pub fn can_have(tier: Tier, layer: Layer) -> bool {
    layer == Layer::Cgroup || layers(tier, u32::MAX).has(layer)
}

/// A report on every layer, for people; of a session, how supervisors get at their callers, and whether names are hidden.
pub fn report(
    set: LayerSet,
    (tier, access, hides): (Tier, CallerAccess, bool),
    landlock_abi: u32,
    refusal: Option<&str>,
    ablation: &Ablation,
) -> Vec<LayerReport> {
    let state = |layer: Layer| {
        if set.has(layer) {
            return LayerState::InForce(detail(layer, (tier, access, hides), landlock_abi));
        }
        let why = match ablation.is_off(layer) {
            true => "it is switched off in this test build".into(),
            false => why_missing(layer, tier, landlock_abi, refusal),
        };
        LayerState::Missing {
            why,
            lost: lost(layer).into(),
        }
    };
    Layer::ALL
        .into_iter()
        .map(|layer| LayerReport {
            layer,
            state: state(layer),
        })
        .collect()
}

fn detail(layer: Layer, (tier, access, hides): (Tier, CallerAccess, bool), abi: u32) -> String {
    match layer {
        Layer::LandlockFiles => format!("Landlock ABI {abi}{}", lacking(abi)),
        Layer::LandlockNetwork | Layer::LandlockScopes => format!("Landlock ABI {abi}"),
        Layer::Seccomp => "allow-list".into(),
        Layer::ProtectedNames => {
            let existing = match (hides, tier) {
                (true, Tier::Namespaced) => "existing ones are pinned",
                (true, Tier::Flat) => "existing ones are closed",
                (false, _) => "none is hidden, existing ones cannot be changed",
            };
            let metadata = match tier {
                Tier::Namespaced => "",
                Tier::Flat => "; metadata outside the zones cannot be changed",
            };
            let lacking = access.lacking();
            format!("{existing}; the policy decides on new ones{metadata}{lacking}")
        }
        _ => String::new(),
    }
}

/// File rights added after the first ABI, and what is unprotected without them.
const LATER: [(u32, &str); 3] = [
    (2, "files cannot be moved from one directory to another"),
    (3, "only other layers prevent truncation"),
    (5, "ioctl calls on devices are not restricted"),
];

fn lacking(abi: u32) -> String {
    let lost = LATER.iter().filter(|(since, _)| abi < *since);
    lost.map(|(since, lost)| format!("; not ABI {since}: {lost}"))
        .collect()
}

fn why_missing(layer: Layer, tier: Tier, abi: u32, refusal: Option<&str>) -> String {
    match layer {
        Layer::LandlockFiles => {
            "the kernel has no Landlock (Linux 5.13 and later have it, if it is in `lsm=`)".into()
        }
        Layer::LandlockNetwork if layer.is_unused_in(tier) => {
            "the network namespace isolates the cell, which needs TCP on its own loopback".into()
        }
        Layer::LandlockNetwork => {
            format!("Landlock ABI {abi} has no network rules (Linux 6.7 and later have them)")
        }
        Layer::LandlockScopes => format!("Landlock ABI {abi} has no scopes (Linux 6.12 and later have them)"),
        Layer::ProtectedNames => {
            "commands cannot be supervised: another seccomp listener is installed above, `kernel.yama.ptrace_scope` is 2 or 3, \
             or the kernel is older than Linux 5.14"
                .into()
        }
        Layer::Cgroup => "no cgroup v2 with memory and pids controllers is delegated to this user".into(),
        _ => match refusal {
            Some(refusal) => format!("this machine does not allow user namespaces: {refusal}"),
            None => "not in this tier".into(),
        },
    }
}

/// The consequence for a cell that lacks this layer.
fn lost(layer: Layer) -> &'static str {
    match layer {
        Layer::Environment => "secrets in the environment are visible",
        Layer::Descriptors => "descriptors of the host program are usable",
        Layer::Rlimits => "a single process has no limits",
        Layer::Cgroup => {
            "memory and processes are limited per process or user, not for a call as a whole"
        }
        Layer::UserNamespace => "cells have no namespaces: only Landlock and seccomp isolate them",
        Layer::MountNamespace => {
            "files outside are visible by `stat`, but cannot be opened or changed"
        }
        Layer::PidNamespace => {
            "the process ids of this machine are visible, but nothing else of its processes"
        }
        Layer::NetworkNamespace => {
            "TCP reaches the session's own servers only, on the machine's loopback; the only other sockets are Unix streams by paths inside the zones"
        }
        Layer::IpcNamespace => "of System V IPC only objects of the call's own are open",
        Layer::UtsNamespace => "the host's name is visible",
        Layer::CgroupNamespace => "the host's cgroup paths are visible",
        Layer::ProtectedNames => {
            "protected names inside the zones are closed to file tools only, not to commands"
        }
        Layer::Capabilities => "a command run as root keeps its capabilities",
        Layer::NoNewPrivileges => "set-user-ID programs work",
        Layer::LandlockFiles => "only mounts close files; the flat tier is impossible",
        Layer::LandlockNetwork => "only one layer instead of two closes TCP",
        Layer::LandlockScopes => {
            "in the flat tier, processes of the same user outside can be signalled"
        }
        Layer::Seccomp => "the whole kernel interface is open",
    }
}
