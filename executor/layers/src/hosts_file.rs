//! The `/etc/hosts` of cells: the machine's, with the name of the session's host and the addresses that stand for allowed hosts.

use executor_spec::host_pool::MACHINE_MAX;
use executor_spec::sandbox::{HOST_NAME, SandboxSpec, View, ViewKind};
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Where programs look names up before they ask anybody.
pub const PATH: &str = "/etc/hosts";

/// The text that takes the place of the machine's; `None` where no host has an address.
pub fn text(spec: &SandboxSpec) -> Option<Vec<u8>> {
    if spec.hosts.is_empty() {
        return None;
    }
    // An image's own is not read: a link of it could lead anywhere on the machine.
    let is_shown = spec.policy.image.is_none()
        && spec
            .views
            .iter()
            .any(|view| Path::new(PATH).starts_with(&view.path));
    let machine = is_shown.then(machine).flatten();
    Some(spec.hosts.file(machine.as_deref()))
}

/// Whether the session's file takes the place of this view of the machine's: what is mounted there would be another.
pub(crate) fn replaces(spec: &SandboxSpec, view: &View) -> bool {
    !spec.hosts.is_empty() && view.path == Path::new(PATH)
}

/// The view of a directory in which cells have the file, if one does.
pub(crate) fn view_with_hosts_file(spec: &SandboxSpec) -> Option<&ViewKind> {
    let views = spec.views.iter().rev().filter(|view| !replaces(spec, view));
    let mut around = views.filter(|view| Path::new(PATH).starts_with(&view.path));
    around.next().map(|view| &view.kind)
}

/// Adds the name of a session's host, which is not the machine's: programs look it up.
pub(crate) fn add_own_name(text: &mut Vec<u8>) {
    text.extend(format!("\n127.0.0.1 {HOST_NAME}\n").bytes());
}

/// The machine's file. One byte more than may be taken over shows that it is too large.
fn machine() -> Option<Vec<u8>> {
    // Without blocking for the other end, if it is a FIFO.
    let file = File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(PATH)
        .ok()?;
    let mut text = Vec::new();
    file.take(MACHINE_MAX as u64 + 1)
        .read_to_end(&mut text)
        .ok()?;
    Some(text)
}
