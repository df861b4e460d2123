//! Semaphores and message queues of System V, which stay on the machine until somebody removes them.

use crate::errno::check;
use libc::{c_int, msqid_ds, semid_ds};
use std::io;

/// The kind of an object. Each kind has numbers and keys of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IpcKind {
    Semaphores,
    Queue,
}

/// An object of this user, removed when the value is dropped.
#[derive(Debug)]
pub struct IpcObject {
    kind: IpcKind,
    id: c_int,
}

const FLAGS: c_int = libc::IPC_CREAT | libc::IPC_EXCL | 0o600;

impl IpcObject {
    /// A new set without a key, for this user alone.
    ///
    /// # Errors
    /// The kernel's (`semget`).
    pub fn semaphores(count: i32) -> io::Result<Self> {
        // SAFETY: numbers.
        let id = check(unsafe { libc::semget(libc::IPC_PRIVATE, count, FLAGS) }.into())? as c_int;
        Ok(Self::left(IpcKind::Semaphores, id))
    }

    /// A new queue without a key, for this user alone.
    ///
    /// # Errors
    /// The kernel's (`msgget`).
    pub fn queue() -> io::Result<Self> {
        // SAFETY: numbers.
        let id = check(unsafe { libc::msgget(libc::IPC_PRIVATE, FLAGS) }.into())? as c_int;
        Ok(Self::left(IpcKind::Queue, id))
    }

    /// An object that a process which has ended has left.
    pub fn left(kind: IpcKind, id: i32) -> Self {
        Self { kind, id }
    }

    pub fn kind(&self) -> IpcKind {
        self.kind
    }

    pub fn id(&self) -> i32 {
        self.id
    }

    /// The kernel's description, for programs that know this key.
    ///
    /// # Errors
    /// The kernel's (`semctl`, `msgctl`).
    pub fn state(&self, key: i32) -> io::Result<Vec<u8>> {
        match self.kind {
            IpcKind::Semaphores => {
                // SAFETY: a semid_ds of zeros is valid, and lives for the call.
                let state = unsafe {
                    let mut state = std::mem::zeroed::<semid_ds>();
                    check(libc::semctl(self.id, 0, libc::IPC_STAT, &raw mut state).into())?;
                    state.sem_perm.__key = key;
                    state
                };
                Ok(bytes_of(&state))
            }
            IpcKind::Queue => {
                // SAFETY: a msqid_ds of zeros is valid, and lives for the call.
                let state = unsafe {
                    let mut state = std::mem::zeroed::<msqid_ds>();
                    check(libc::msgctl(self.id, libc::IPC_STAT, &raw mut state).into())?;
                    state.msg_perm.__key = key;
                    state
                };
                Ok(bytes_of(&state))
            }
        }
    }
}

/// The bytes of one of the kernel's structures, which began as zeros, padding included.
fn bytes_of<T>(state: &T) -> Vec<u8> {
    let start = std::ptr::from_ref(state).cast::<u8>();
    // SAFETY: the bytes of a value that lives for the call, all of them initialised.
    unsafe { std::slice::from_raw_parts(start, size_of::<T>()) }.to_vec()
}

impl Drop for IpcObject {
    fn drop(&mut self) {
        // SAFETY: IPC_RMID ignores what comes after it.
        unsafe {
            match self.kind {
                IpcKind::Semaphores => libc::semctl(self.id, 0, libc::IPC_RMID),
                IpcKind::Queue => libc::msgctl(self.id, libc::IPC_RMID, std::ptr::null_mut()),
            };
        }
    }
}
