//! In the cell: adds leased paths to its own mounts and rules. The broker has opened and checked them.

use crate::cell::SessionRules;
use broker_protocol::{Layer, frame};
use executor_layers::landlock::LandlockRules;
use executor_layers::leased_mounts;
use executor_spec::error::{At, SetupError};
use executor_spec::leased_cell::{ATTACHED, CellLeases};
use executor_spec::sandbox::SandboxSpec;
use executor_sys::file::open_without_links;
use executor_sys::message;
use policies::Access;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::PathBuf;

/// Maximum bytes of one cell's order: the protected objects in its paths, and their names.
const ORDER_MAX: u64 = 16 << 20;
/// Adds what came with the request for this cell to its mounts and `rules`, in the process that will be its first.
///
/// # Errors
/// The kernel's; `ESTALE` if another object lies at a path than was granted.
pub(crate) fn receive(
    spec: &SandboxSpec,
    rules: &mut SessionRules,
    fds: Vec<OwnedFd>,
) -> Result<(), SetupError> {
    let layer = if spec.has(Layer::MountNamespace) {
        Layer::MountNamespace
    } else {
        Layer::LandlockFiles
    };
    let step = || "open what is granted for a while".to_owned();
    let missing = || io::Error::from(io::ErrorKind::UnexpectedEof);
    let [channel, order] = <[OwnedFd; 2]>::try_from(fds)
        .map_err(|_| missing())
        .at(layer, step)?;
    let CellLeases {
        paths,
        zone_files,
        objects,
        directories,
        ends,
    } = read(order).at(layer, step)?;
    let opened = match spec.has(Layer::MountNamespace) {
        true => attached(&channel, &paths),
        false => paths.iter().map(|_| received(&channel)).collect(),
    };
    let mut landlock = LandlockRules::open(spec)?;
    for (fd, (_, access)) in opened.at(layer, step)?.into_iter().zip(&paths) {
        landlock.add_leased(fd, *access)?;
    }
    rules.rulesets = landlock.rulesets(spec)?;
    if let Some(access) = &mut rules.access {
        let names = spec.policy.lease_names();
        let names = names.map_err(io::Error::other).at(layer, step)?;
        // What lies in a zone is judged as a part of it.
        let in_zone = |path: &PathBuf| zone_files.iter().any(|file| file.path == *path);
        let outside = paths.into_iter().filter(|(path, _)| !in_zone(path));
        access.add_leased(outside, names, objects, directories);
        access.open_in_zones(zone_files);
        if ends {
            access.separate_sockets().at(layer, step)?;
        }
    }
    Ok(())
}

fn read(order: OwnedFd) -> io::Result<CellLeases> {
    let mut bytes = Vec::new();
    File::from(order).take(ORDER_MAX).read_to_end(&mut bytes)?;
    frame::decode_whole(&bytes).map_err(io::Error::other)
}

/// Waits until the paths are mounted here, and opens them.
fn attached(channel: &OwnedFd, paths: &[(PathBuf, Access)]) -> io::Result<Vec<OwnedFd>> {
    let namespace = leased_mounts::own_namespace()?;
    message::send_waiting(channel.as_fd(), b"n", &[namespace.as_fd()])?;
    let mut answer = [0; 4];
    let (length, _) = message::receive_waiting(channel.as_fd(), &mut answer)?;
    match (length, answer) {
        (4, ATTACHED) => {}
        (4, errno) => return Err(io::Error::from_raw_os_error(i32::from_le_bytes(errno))),
        _ => return Err(io::ErrorKind::UnexpectedEof.into()),
    }
    paths
        .iter()
        .map(|(path, _)| Ok(open_without_links(path)?))
        .collect()
}

fn received(channel: &OwnedFd) -> io::Result<OwnedFd> {
    let (_, fds) = message::receive_waiting(channel.as_fd(), &mut [0])?;
    fds.into_iter()
        .next()
        .ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}
