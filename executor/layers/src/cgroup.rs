//! Layer `cgroup`: limits on memory and processes for a whole session, where cgroup v2 is delegated.
//!
//! *Guarantees*: the session's processes, including warden and file worker, stay together below the policy's `memory`
//! and `processes`, and those left are killed with the session. *Does not*: limit single calls, CPU time or disks.
//! *Needs*: cgroup v2 with the controllers `memory` and `pids` in a group that the user may write, as systemd provides
//! with `Delegate=yes`. *Order*: the broker adds the warden before that creates anything, and each file worker.
//! *Fails*: the session opens without it, and reports it; it does not open if the policy requires the layer. *Tested
//! by*: `bounds_are_written_as_the_kernel_reads_them`, on a directory that looks like a group.

use policies::Limits;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// The session's own group, removed when this is dropped.
#[derive(Debug)]
pub struct Cgroup(PathBuf);

/// Creates a group below a delegated one, and sets its limits.
///
/// # Errors
/// `Unsupported` if the user owns no group with both controllers; otherwise the kernel's refusal.
pub fn make(limits: &Limits) -> io::Result<Cgroup> {
    let own = own_group(
        &fs::read_to_string("/proc/self/mountinfo")?,
        &fs::read_to_string("/proc/self/cgroup")?,
    );
    let (mount, own) = own.ok_or(io::ErrorKind::Unsupported)?;
    // Next to this process's group, as a group with processes cannot give its children controllers; or below it.
    let parents = [
        own.parent().filter(|parent| parent.starts_with(&mount)),
        Some(own.as_path()),
    ];
    for parent in parents.into_iter().flatten() {
        remove_stale(parent);
        if let Ok(group) = make_below(parent, limits) {
            return Ok(group);
        }
    }
    Err(io::ErrorKind::Unsupported.into())
}

/// Where the hierarchy is mounted, and the path of this process's group in it.
fn own_group(mountinfo: &str, cgroup: &str) -> Option<(PathBuf, PathBuf)> {
    let path = cgroup.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let mount = mountinfo.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        (right.split(' ').next()? == "cgroup2").then(|| left.split(' ').nth(4))?
    })?;
    Some((mount.into(), Path::new(mount).join(path)))
}

fn make_below(parent: &Path, limits: &Limits) -> io::Result<Cgroup> {
    let group = Cgroup(parent.join(format!("lazaret-{}", std::process::id())));
    fs::create_dir(&group.0)?;
    let controllers = fs::read_to_string(group.0.join("cgroup.controllers"))?;
    if !["memory", "pids"]
        .iter()
        .all(|wanted| controllers.split_whitespace().any(|name| name == *wanted))
    {
        return Err(io::ErrorKind::Unsupported.into());
    }
    group.bound(limits)?;
    Ok(group)
}

/// Removes groups of sessions whose broker was killed: only empty ones can be removed.
fn remove_stale(parent: &Path) {
    let entries = fs::read_dir(parent).into_iter().flatten().flatten();
    for entry in entries.filter(|entry| entry.file_name().to_string_lossy().starts_with("lazaret-"))
    {
        // Fails on a group in use.
        let _ = fs::remove_dir(entry.path());
    }
}

impl Cgroup {
    fn bound(&self, limits: &Limits) -> io::Result<()> {
        if let Some(bytes) = limits.memory {
            self.set("memory.max", &bytes.to_string())?;
            self.set("memory.swap.max", "0")
                .or_else(|error| match error.kind() {
                    // A kernel without swap accounting lacks this file, and has no swap to limit.
                    io::ErrorKind::NotFound => Ok(()),
                    _ => Err(error),
                })?;
        }
        limits
            .processes
            .map_or(Ok(()), |count| self.set("pids.max", &count.to_string()))
    }

    /// Adds a process; children it creates from now on are included.
    ///
    /// # Errors
    /// The kernel's.
    pub fn add(&self, pid: i32) -> io::Result<()> {
        self.set("cgroup.procs", &pid.to_string())
    }

    /// Writes to a control file of the group.
    fn set(&self, name: &str, value: &str) -> io::Result<()> {
        fs::OpenOptions::new()
            .write(true)
            .open(self.0.join(name))?
            .write_all(value.as_bytes())
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        // Needs Linux 5.14; before that, the namespaces and the sweep must do. A group that is not
        // empty yet stays, and the next session removes it.
        let _ = self.set("cgroup.kill", "1");
        let _ = fs::remove_dir(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str =
        "30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n";

    #[test]
    fn the_own_group_is_found_in_a_unified_hierarchy_only() {
        let found = own_group(MOUNTS, "0::/user.slice/app.scope\n");
        assert_eq!(
            found,
            Some((
                "/sys/fs/cgroup".into(),
                "/sys/fs/cgroup/user.slice/app.scope".into()
            ))
        );
        assert_eq!(
            own_group("30 24 0:26 / /x rw - cgroup cgroup rw,pids\n", "0::/a\n"),
            None
        );
        assert_eq!(own_group(MOUNTS, "4:pids:/a\n"), None);
    }

    #[test]
    fn a_group_without_both_controllers_is_not_used_and_not_left_behind() {
        let parent = tempfile::tempdir().unwrap();
        // Outside a real hierarchy a new directory contains no file `cgroup.controllers`.
        assert!(make_below(parent.path(), &limits()).is_err());
        assert_eq!(fs::read_dir(parent.path()).unwrap().count(), 0);
    }

    #[test]
    fn bounds_are_written_as_the_kernel_reads_them() {
        let parent = tempfile::tempdir().unwrap();
        for name in ["memory.max", "pids.max", "cgroup.procs"] {
            fs::write(parent.path().join(name), "").unwrap();
        }
        let group = Cgroup(parent.path().to_owned());
        group.bound(&limits()).unwrap();
        group.add(7).unwrap();
        let read = |name: &str| fs::read_to_string(parent.path().join(name)).unwrap();
        assert_eq!(
            (read("memory.max"), read("pids.max"), read("cgroup.procs")),
            ("4096".into(), "9".into(), "7".into())
        );
    }

    fn limits() -> Limits {
        Limits {
            timeout_s: Some(1),
            timeout_max_s: Some(1),
            attended_timeout_s: None,
            capture: 1,
            spill: 1,
            output: None,
            processes: Some(9),
            memory: Some(4096),
            memory_share: None,
            cpu_s: None,
            file_size: None,
            written: None,
            disk_share: None,
            open_files: None,
            scratch: 1,
            undo: 1,
        }
    }
}
