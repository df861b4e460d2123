//! How a supervisor gets at the memory and the sockets of its callers. The filters of containers close the calls that are made for
//! that, so there are two ways to each; which one a session uses is found out once, when it opens.

use executor_sys::peer;

/// How a session's supervisors get at their callers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallerAccess {
    pub memory: MemoryAccess,
    pub sockets: SocketAccess,
}

/// How a supervisor reads and writes the memory of a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MemoryAccess {
    /// By `process_vm_readv` and `process_vm_writev`.
    Calls,
    /// By the file `mem` of its process in `/proc`, which is opened anew for each call: a program that has replaced another has
    /// other memory.
    File,
}

/// How a supervisor gets a copy of a caller's socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SocketAccess {
    /// It takes one, by `pidfd_getfd`.
    Taken,
    /// It makes the sockets of its callers, and keeps a copy of each until that is connected.
    Kept,
}

impl CallerAccess {
    /// Access that the filters above this process leave. Whether it works is tested once in every session (`SelfTest`).
    pub fn probe() -> Self {
        let memory = if peer::may_copy_memory() {
            MemoryAccess::Calls
        } else {
            MemoryAccess::File
        };
        let sockets = if peer::may_take_descriptors() {
            SocketAccess::Taken
        } else {
            SocketAccess::Kept
        };
        Self { memory, sockets }
    }

    /// Differences and missing features of such a session, for people; empty if there are none.
    pub fn lacking(self) -> String {
        let memory = match self.memory {
            MemoryAccess::Calls => "",
            MemoryAccess::File => {
                "; this machine's filter closes `process_vm_readv`, so supervised calls take longer"
            }
        };
        let sockets = match self.sockets {
            SocketAccess::Taken => "",
            SocketAccess::Kept => {
                "; this machine's filter closes `pidfd_getfd`, so `shutdown` of both directions of a connected socket \
                 closes it, `SO_LINGER` has no effect on one, and an accepted one says another name than its listener"
            }
        };
        [memory, sockets].concat()
    }
}
