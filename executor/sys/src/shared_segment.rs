//! System V shared memory segments that end with the processes that have them attached.

use crate::errno::check;
use libc::{c_int, c_void, shmid_ds};
use std::io;

/// A segment that this process has made and attached. It is marked for removal: the kernel removes it when nobody has it attached any
/// more, however those processes end, and gives its number to no other segment before.
#[derive(Debug)]
pub struct SharedSegment {
    id: c_int,
    address: *mut c_void,
}

impl SharedSegment {
    /// A segment without a key, for this user alone.
    ///
    /// # Errors
    /// The kernel's (`shmget`, `shmat`).
    pub fn new(size: usize) -> io::Result<Self> {
        let flags = libc::IPC_CREAT | libc::IPC_EXCL | 0o600;
        // SAFETY: numbers.
        let id = check(unsafe { libc::shmget(libc::IPC_PRIVATE, size, flags) }.into())? as c_int;
        // SAFETY: the kernel chooses the address; nothing here reads or writes what is mapped there.
        let address = unsafe { libc::shmat(id, std::ptr::null(), libc::SHM_RDONLY) };
        let error = io::Error::last_os_error();
        // SAFETY: IPC_RMID ignores its third argument.
        unsafe { libc::shmctl(id, libc::IPC_RMID, std::ptr::null_mut()) };
        if address.addr() == usize::MAX {
            return Err(error);
        }
        Ok(Self { id, address })
    }

    pub fn id(&self) -> i32 {
        self.id
    }

    /// The kernel's description for programs that know this key: not marked, and without this process's attachment.
    ///
    /// # Errors
    /// The kernel's (`shmctl`).
    pub fn state(&self, key: i32) -> io::Result<Vec<u8>> {
        // SAFETY: a shmid_ds of zeros is valid, and lives for the call.
        let state = unsafe {
            let mut state = std::mem::zeroed::<shmid_ds>();
            check(libc::shmctl(self.id, libc::IPC_STAT, &raw mut state).into())?;
            state.shm_perm.__key = key;
            state.shm_perm.mode &= 0o777;
            state.shm_nattch = state.shm_nattch.saturating_sub(1);
            state
        };
        let (start, length) = ((&raw const state).cast::<u8>(), size_of_val(&state));
        // SAFETY: the bytes of a local value that the kernel has filled; its padding is zero.
        Ok(unsafe { std::slice::from_raw_parts(start, length) }.to_vec())
    }
}

impl Drop for SharedSegment {
    fn drop(&mut self) {
        // SAFETY: attached by `new`, and nothing refers to what is there.
        unsafe { libc::shmdt(self.address) };
    }
}
