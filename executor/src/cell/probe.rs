//! What this kernel offers: asked, never guessed.

use crate::sys::{self, Fork};
use broker_protocol::{Layer, LayerReport, LayerSet, LayerState, Tier};
use nix::sys::utsname::uname;
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{Pid, getgid, getuid};
use std::io;

use super::ablation::Ablation;
use super::namespaces;

/// The kernel as it was found.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// `uname -r`.
    pub release: String,
    /// The Landlock ABI; 0 where there is none.
    pub landlock_abi: u32,
}

/// Asks the kernel what needs no trying.
pub fn kernel() -> Kernel {
    let release = uname().map(|name| name.release().to_string_lossy().into_owned());
    Kernel { release: release.unwrap_or_default(), landlock_abi: sys::landlock_abi() }
}

/// Tries to make a session's namespaces and to settle in, in a child that ends at once.
///
/// # Errors
/// The kernel's or a security module's refusal.
pub fn namespaces() -> io::Result<()> {
    let (uid, gid) = (getuid(), getgid());
    let all = layers(Tier::Namespaced, 0);
    match sys::fork(namespaces::session(all))? {
        Fork::Child => {
            let code = match namespaces::settle(all, uid, gid) {
                Ok(()) => 0,
                Err(error) => error.source.raw_os_error().unwrap_or(libc::EPERM),
            };
            std::process::exit(code)
        }
        Fork::Parent(child) => match waitpid(Pid::from_raw(child.pid), None)? {
            WaitStatus::Exited(_, 0) => Ok(()),
            WaitStatus::Exited(_, errno) => Err(io::Error::from_raw_os_error(errno)),
            _ => Err(io::Error::from_raw_os_error(libc::EPERM)),
        },
    }
}

/// The layers a session of `tier` has on this kernel, apart from the cgroup, which is tried when it is made.
pub fn layers(tier: Tier, landlock_abi: u32) -> LayerSet {
    use Layer::*;
    let always = [Environment, Descriptors, Rlimits, ProtectedNames, Capabilities, NoNewPrivileges, Seccomp];
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
    // In the namespaced tier a cell may use its own loopback; the namespace is the wall.
    if tier == Tier::Flat && landlock_abi >= 4 {
        set = set.with(LandlockNetwork);
    }
    if landlock_abi >= 6 {
        set = set.with(LandlockScopes);
    }
    set
}

/// Whether a session of `tier` could have `layer` on the best of kernels.
pub fn can_have(tier: Tier, layer: Layer) -> bool {
    layer == Layer::Cgroup || layers(tier, u32::MAX).has(layer)
}

/// A report on every layer, for people.
pub fn report(
    set: LayerSet,
    tier: Tier,
    landlock_abi: u32,
    refusal: Option<&str>,
    ablation: &Ablation,
) -> Vec<LayerReport> {
    let state = |layer: Layer| {
        if set.has(layer) {
            return LayerState::InForce(detail(layer, tier, landlock_abi));
        }
        let why = match ablation.is_off(layer) {
            true => "it is switched off in this test build".into(),
            false => why_missing(layer, tier, landlock_abi, refusal),
        };
        LayerState::Missing { why, lost: lost(layer).into() }
    };
    Layer::ALL.into_iter().map(|layer| LayerReport { layer, state: state(layer) }).collect()
}

fn detail(layer: Layer, tier: Tier, abi: u32) -> String {
    match layer {
        Layer::LandlockFiles => format!("Landlock ABI {abi}{}", lacking(abi)),
        Layer::LandlockNetwork | Layer::LandlockScopes => format!("Landlock ABI {abi}"),
        Layer::Seccomp => "allow-list".into(),
        Layer::ProtectedNames => match tier {
            Tier::Namespaced => {
                "existing ones are pinned, new ones are made and changed as the policy says".into()
            }
            Tier::Flat => {
                "existing ones, and new ones as the policy says; metadata outside the zones is held too"
                    .into()
            }
        },
        _ => String::new(),
    }
}

/// Rights of files that came after the first ABI, and what is lost before.
const LATER: [(u32, &str); 3] = [
    (2, "files cannot be moved from one directory to another"),
    (3, "truncation is held by other layers alone"),
    (5, "calls of their own kind to devices are not held"),
];

fn lacking(abi: u32) -> String {
    let lost = LATER.iter().filter(|(since, _)| abi < *since);
    lost.map(|(since, lost)| format!("; not ABI {since}: {lost}")).collect()
}

fn why_missing(layer: Layer, tier: Tier, abi: u32, refusal: Option<&str>) -> String {
    match layer {
        Layer::LandlockFiles => {
            "the kernel has no Landlock (Linux 5.13 and later have it, if it is in `lsm=`)".into()
        }
        Layer::LandlockNetwork if tier == Tier::Namespaced => {
            "not used: a cell may talk to itself, and the network namespace is the wall".into()
        }
        Layer::LandlockNetwork => {
            format!("Landlock ABI {abi} has no network rules (Linux 6.7 and later have them)")
        }
        Layer::LandlockScopes => format!("Landlock ABI {abi} has no scopes (Linux 6.12 and later have them)"),
        Layer::ProtectedNames => {
            "the calls of a program cannot be answered in its place: another supervisor (a seccomp listener) is above, or \
             nobody may look into another process (`kernel.yama.ptrace_scope` is 2 or 3), or the kernel is older than Linux 5.14"
                .into()
        }
        Layer::Cgroup => "no cgroup v2 with memory and pids controllers is delegated to this user".into(),
        _ => match refusal {
            Some(refusal) => format!("user namespaces cannot be had: {refusal}"),
            None => "not in this tier".into(),
        },
    }
}

/// What a cell can do, or loses, without a layer.
fn lost(layer: Layer) -> &'static str {
    match layer {
        Layer::Environment => "secrets in the environment are visible",
        Layer::Descriptors => "descriptors of the host program are usable",
        Layer::Rlimits => "no bounds for a process",
        Layer::Cgroup => {
            "memory and processes are bounded for each process or user, not for a call as a whole"
        }
        Layer::UserNamespace => "no own root: the layers below rest on Landlock and seccomp",
        Layer::MountNamespace => {
            "files outside exist, though they can be neither opened nor marked; their metadata is visible"
        }
        Layer::PidNamespace => {
            "the numbers of other processes of this machine are visible, and nothing else of them"
        }
        Layer::NetworkNamespace => {
            "no loopback but one for each call, of TCP; all other sockets are closed but Unix streams by paths inside the zones"
        }
        Layer::IpcNamespace => "no own System V IPC: it is closed altogether",
        Layer::UtsNamespace => "the host's name is visible",
        Layer::CgroupNamespace => "the host's cgroup paths are visible",
        Layer::ProtectedNames => {
            "protected names inside the zones hold for file tools only, not for the shell"
        }
        Layer::Capabilities => "root's capabilities",
        Layer::NoNewPrivileges => "set-user-ID programs work",
        Layer::LandlockFiles => "nothing stands behind the mounts; there is no flat tier",
        Layer::LandlockNetwork => "TCP has one wall instead of two",
        Layer::LandlockScopes => "in the flat tier, processes of the same user outside can be signalled",
        Layer::Seccomp => "the whole kernel interface is open",
    }
}
