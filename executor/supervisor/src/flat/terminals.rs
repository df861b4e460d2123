//! The cell's own terminals, where the session uses the machine's devpts: the warden makes them, and a program that opens
//! `/dev/ptmx`, or the name of a terminal that this cell has been given, receives an end of it. Those of others stay closed.

use crate::caller::CallerThread;
use crate::flat::pty::PtyClient;
use crate::object::errno;
use nix::Result;
use nix::errno::Errno;
use nix::sys::stat::fstat;
use std::cell::{Cell, RefCell};
use std::os::fd::OwnedFd;

/// `/dev/ptmx`.
const MULTIPLEXER: libc::dev_t = libc::makedev(5, 2);

/// The terminals of a cell that the supervisor knows.
#[derive(Default)]
pub(crate) struct Terminals {
    /// Whether a process of the cell may have a controlling terminal.
    pub(crate) any: Cell<bool>,
    /// The slaves' device numbers, with the warden's number for each. Of several with one device number, the last counts.
    own: RefCell<Vec<(libc::dev_t, u32)>>,
}

impl Terminals {
    /// Opens an end of a terminal of the cell's own, if the device is one or creates one.
    pub(crate) fn open(
        &self,
        client: Option<&PtyClient>,
        device: libc::dev_t,
    ) -> Result<Option<OwnedFd>> {
        let Some(client) = client else {
            return Ok(None);
        };
        let mut own = self.own.borrow_mut();
        if device == MULTIPLEXER {
            let (id, master, slave) = client.make().map_err(errno)?;
            let device = fstat(&slave)?.st_rdev;
            own.retain(|(other, _)| *other != device);
            own.push((device, id));
            self.any.set(true);
            return Ok(Some(master));
        }
        let id = own
            .iter()
            .find(|(own, _)| *own == device)
            .map(|(_, id)| *id);
        id.map(|id| client.slave(id).map_err(errno)).transpose()
    }

    /// The caller's controlling terminal.
    pub(crate) fn controlling(
        &self,
        client: Option<&PtyClient>,
        caller: CallerThread,
    ) -> Result<OwnedFd> {
        // The query costs more than all the rest.
        if !self.any.get() {
            return Err(Errno::ENXIO);
        }
        caller.terminal(|device| self.open(client, device).ok().flatten())
    }
}
