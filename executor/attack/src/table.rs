//! The attacks, as a table. To add one: a function in its class's file and a row here.

use crate::fixture::Fixture;
use crate::targets::{AttackedSession, Targets};
use crate::{files, kernel, network, processes};
use std::io;

pub(crate) struct Attack {
    /// What it reaches for.
    pub class: &'static str,
    pub name: &'static str,
    /// `Ok` when it has got what it wanted, else the kernel's refusal.
    pub run: fn(&Targets) -> io::Result<()>,
    /// Whether it must succeed everywhere without a cell.
    pub core: bool,
    /// What shows outside that it succeeded, where something does.
    pub evidence: Option<fn(&Fixture) -> bool>,
    gap: Option<KnownGap>,
}

/// A layer without which the flat tier is known not to hold an attack, and why.
struct KnownGap {
    layer: &'static str,
    why: &'static str,
}

impl Attack {
    /// Why a session is known not to hold this attack, if it is.
    pub(crate) fn known(&self, session: &AttackedSession) -> Option<&'static str> {
        let gap = self.gap.as_ref().filter(|_| session.tier == "flat")?;
        let missing = !session.layers.iter().any(|layer| layer == gap.layer);
        missing.then_some(gap.why)
    }

    const fn new(
        class: &'static str,
        name: &'static str,
        run: fn(&Targets) -> io::Result<()>,
    ) -> Self {
        Self {
            class,
            name,
            run,
            core: false,
            evidence: None,
            gap: None,
        }
    }

    const fn core(self) -> Self {
        Self { core: true, ..self }
    }

    const fn seen_by(self, evidence: fn(&Fixture) -> bool) -> Self {
        Self {
            evidence: Some(evidence),
            ..self
        }
    }

    const fn gap(self, gap: KnownGap) -> Self {
        Self {
            gap: Some(gap),
            ..self
        }
    }
}

const SIGNALS: KnownGap = KnownGap {
    layer: "landlock-scopes",
    why: "before Linux 6.12 Landlock does not scope signals",
};

const FILES: &str = "files";
const PROCESSES: &str = "processes";
const NETWORK: &str = "network";
const KERNEL: &str = "kernel";
const INHERITED: &str = "inherited";

/// Every attack. The last ends the bystander, which others need.
pub(crate) const ATTACKS: &[Attack] = &[
    Attack::new(FILES, "read a file outside", files::read).core(),
    Attack::new(FILES, "read it through a link", files::read_through_link).core(),
    Attack::new(FILES, "list a directory outside", files::list).core(),
    Attack::new(FILES, "write to a file outside", files::write)
        .core()
        .seen_by(Fixture::is_written),
    Attack::new(FILES, "create a file outside", files::create)
        .core()
        .seen_by(Fixture::has_new_file),
    Attack::new(FILES, "move a file in", files::move_in)
        .core()
        .seen_by(Fixture::has_lost_a_file),
    Attack::new(FILES, "link a file in", files::link_in).seen_by(Fixture::has_a_linked_file),
    Attack::new(FILES, "change a mode outside", files::change_mode)
        .core()
        .seen_by(Fixture::has_another_mode),
    Attack::new(FILES, "change a time outside", files::change_time)
        .core()
        .seen_by(Fixture::has_another_time),
    Attack::new(FILES, "set a set-user-ID bit", files::set_user_id),
    Attack::new(
        PROCESSES,
        "read another's environment",
        processes::read_environment,
    ),
    Attack::new(PROCESSES, "read another's memory", processes::read_memory),
    Attack::new(PROCESSES, "trace another", processes::trace),
    Attack::new(NETWORK, "connect to a TCP port", network::tcp),
    Attack::new(NETWORK, "exchange UDP messages", network::udp),
    Attack::new(NETWORK, "make an MPTCP socket", network::mptcp),
    Attack::new(NETWORK, "make a VSOCK socket", network::vsock),
    Attack::new(
        NETWORK,
        "connect to an abstract socket",
        network::abstract_socket,
    )
    .core(),
    Attack::new(NETWORK, "connect to a socket file", network::socket_file).core(),
    Attack::new(KERNEL, "unshare a user namespace", kernel::unshare_user),
    Attack::new(KERNEL, "clone3 a user namespace", kernel::clone3_user),
    Attack::new(KERNEL, "mount a filesystem", kernel::mount_tmpfs),
    Attack::new(KERNEL, "enter a namespace", kernel::enter_namespace),
    Attack::new(KERNEL, "set up io_uring", kernel::io_uring),
    Attack::new(KERNEL, "make a BPF map", kernel::bpf),
    Attack::new(KERNEL, "add a key", kernel::add_key),
    Attack::new(KERNEL, "open userfaultfd", kernel::userfaultfd),
    Attack::new(KERNEL, "open a perf event", kernel::perf),
    Attack::new(KERNEL, "call by the x32 ABI", kernel::x32),
    Attack::new(KERNEL, "call by the i386 entry", kernel::int80),
    Attack::new(KERNEL, "type into a terminal", kernel::type_into_terminal),
    Attack::new(INHERITED, "use an open descriptor", kernel::use_descriptor).core(),
    Attack::new(INHERITED, "read a secret variable", kernel::read_variable).core(),
    Attack::new(INHERITED, "use a capability", kernel::use_capability),
    Attack::new(PROCESSES, "kill another", processes::kill)
        .core()
        .seen_by(Fixture::bystander_is_dead)
        .gap(SIGNALS),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_attack_has_a_name_of_its_own_and_some_are_core() {
        let names: std::collections::BTreeSet<&str> =
            ATTACKS.iter().map(|attack| attack.name).collect();
        assert_eq!(names.len(), ATTACKS.len());
        assert!(ATTACKS.iter().filter(|attack| attack.core).count() >= 4);
    }
}
