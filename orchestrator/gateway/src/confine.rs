//! Rights that this program gives up before it serves anybody, for ever.
//!
//! *Guarantees*: it opens no file but those of the resolver, makes and changes none, starts no program, has no memory that is executable
//! and new, traces nothing, listens at no port, connects to no Unix socket; it signals no process where Landlock has scopes (ABI 6); it has
//! no capability, and no process of its user reads its memory. *Does not*: choose whom it connects to. *Needs*: Landlock, seccomp. *Order*:
//! after what is read of the broker's first frame, before the first byte of a cell. *Fails*: the program ends, and cells have no network.
//! *Tested by*: `a_taken_over_gateway_gets_nothing`.

use caps::CapSet;
use nix::sys::prctl;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::sys::signal::Signal;
use orchestrator_confine::Confinement;
use std::io;

/// Maximum descriptors: of 128 connections of cells and 64 of published ports, each with two sockets and two pipes, and of what few
/// threads need.
const DESCRIPTORS: u64 = 1536;
/// Maximum bytes of private memory.
const MEMORY: u64 = 512 << 20;

/// Makes this process end with the broker.
///
/// # Errors
/// The kernel's.
pub(crate) fn end_with_parent() -> io::Result<()> {
    Ok(prctl::set_pdeathsig(Signal::SIGKILL)?)
}

/// Confines this process, which has one thread.
///
/// # Errors
/// A layer that is missing.
pub(crate) fn confine() -> io::Result<()> {
    confine_by(orchestrator_confine::confine_gateway)
}

/// Confines the gateway of a client, which also reads the machine's certificates when it first needs them.
///
/// # Errors
/// A layer that is missing.
pub(crate) fn confine_of_client() -> io::Result<()> {
    confine_by(orchestrator_confine::confine_client_gateway)
}

fn confine_by(confine: fn() -> Confinement) -> io::Result<()> {
    prctl::set_dumpable(false)?;
    limit(Resource::RLIMIT_CORE, 0)?;
    limit(Resource::RLIMIT_FSIZE, 0)?;
    limit(Resource::RLIMIT_NOFILE, DESCRIPTORS)?;
    limit(Resource::RLIMIT_DATA, MEMORY)?;
    for set in [
        CapSet::Ambient,
        CapSet::Effective,
        CapSet::Inheritable,
        CapSet::Permitted,
    ] {
        caps::clear(None, set).map_err(io::Error::other)?;
    }
    let missing = confine().missing();
    if missing.is_empty() {
        Ok(())
    } else {
        Err(io::Error::other(missing.join("; ")))
    }
}

/// Never above the hard limit that is in force: raising it would fail.
fn limit(resource: Resource, most: u64) -> io::Result<()> {
    let (_, hard) = getrlimit(resource)?;
    let most = most.min(hard);
    Ok(setrlimit(resource, most, most)?)
}
