//! Finds the setting of this machine that denies a user namespaces, and the commands that change it.

use policies::source;
use std::path::{Path, PathBuf};

/// Maximum bytes of a setting's value.
const NUMBER_MAX: usize = 64;

/// The settings that may deny namespaces, with what the remedy has to name.
#[derive(Debug, Default)]
pub(crate) struct NamespaceSettings {
    /// `user.max_user_namespaces` is 0.
    none_allowed: bool,
    /// Debian's `kernel.unprivileged_userns_clone` is 0.
    clone_closed: bool,
    /// Ubuntu's `kernel.apparmor_restrict_unprivileged_userns` is 1.
    restricted_by_apparmor: bool,
    /// The program that creates the namespaces.
    executor: PathBuf,
}

impl NamespaceSettings {
    /// The settings of this machine.
    pub(crate) fn read(executor: PathBuf) -> Self {
        let is = |name: &str, value: &str| {
            let path = Path::new("/proc/sys").join(name);
            source::read_named(&path, NUMBER_MAX).is_ok_and(|text| text.trim() == value)
        };
        Self {
            none_allowed: is("user/max_user_namespaces", "0"),
            clone_closed: is("kernel/unprivileged_userns_clone", "0"),
            restricted_by_apparmor: is("kernel/apparmor_restrict_unprivileged_userns", "1"),
            executor,
        }
    }

    /// How to enable namespaces, as lines for a shell.
    pub(crate) fn remedy(&self) -> String {
        let mut ways = Vec::new();
        if self.none_allowed {
            ways.push(
                "`user.max_user_namespaces` is 0:\n    sudo sysctl -w user.max_user_namespaces=15000"
                    .to_owned(),
            );
        }
        if self.clone_closed {
            ways.push(
                "`kernel.unprivileged_userns_clone` is 0:\n    sudo sysctl -w kernel.unprivileged_userns_clone=1".to_owned(),
            );
        }
        if self.restricted_by_apparmor {
            ways.push(self.apparmor());
        }
        if ways.is_empty() {
            ways.push(
                "no setting in /proc/sys refuses them, so a security module or a container's filter does, or the machine's root is an\n  \
                 initramfs, as on some live systems, where there is no `pivot_root`: then `switch_root` to a tmpfs first. A container needs a\n  \
                 seccomp profile and an AppArmor profile that allow `clone` with namespaces, `mount` and `pivot_root`, and a `/proc` without\n  \
                 masks. With the profile `policies/containers/seccomp.json` of Lazaret's sources:\n    \
                 docker run --security-opt seccomp=seccomp.json --security-opt apparmor=unconfined --security-opt systempaths=unconfined"
                    .to_owned(),
            );
        }
        let ways = ways.iter().map(|way| format!("  {way}\n"));
        format!(
            "\nTo have namespaces (a flat session is confined without them):\n{}",
            ways.collect::<String>()
        )
    }

    fn apparmor(&self) -> String {
        let executor = self.executor.display();
        format!(
            "AppArmor restricts them to programs that have a profile; one for the executor alone:\n    \
             sudo tee /etc/apparmor.d/lazaret <<'END'\n    \
             abi <abi/4.0>,\n    \
             include <tunables/global>\n    \
             profile lazaret {executor} flags=(unconfined) {{\n      \
             userns,\n    \
             }}\n    \
             END\n    \
             sudo apparmor_parser -r /etc/apparmor.d/lazaret\n  \
             or for every program:\n    \
             sudo sysctl -w kernel.apparmor_restrict_unprivileged_userns=0"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_setting_that_refuses_has_its_line() {
        let executor = PathBuf::from("/opt/l/lazaret-executor");
        let of = |change: fn(&mut NamespaceSettings)| {
            let mut settings = NamespaceSettings {
                executor: executor.clone(),
                ..Default::default()
            };
            change(&mut settings);
            settings.remedy()
        };
        assert!(of(|own| own.none_allowed = true).contains("sysctl -w user.max_user_namespaces="));
        assert!(
            of(|own| own.clone_closed = true)
                .contains("sysctl -w kernel.unprivileged_userns_clone=1")
        );
        let apparmor = of(|own| own.restricted_by_apparmor = true);
        assert!(
            apparmor.contains("profile lazaret /opt/l/lazaret-executor flags=(unconfined) {\n"),
            "{apparmor}"
        );
        assert!(
            apparmor.contains("apparmor_restrict_unprivileged_userns=0"),
            "{apparmor}"
        );
        assert!(of(|_| ()).contains("--security-opt"));
    }
}
