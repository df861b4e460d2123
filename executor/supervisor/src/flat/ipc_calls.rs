//! Calls on System V semaphores and message queues, by which programs use those of their call.

use crate::answer::SyscallAnswer;
use crate::supervised_call::SupervisedCall;
use executor_sys::ipc_object::IpcKind::{self, Queue, Semaphores};
use executor_sys::notify::Notification;
use nix::Result;
use nix::errno::Errno;

impl SupervisedCall<'_> {
    /// Makes one of these calls; `None` for any other.
    pub(crate) fn make_ipc(&self, notification: &Notification) -> Option<Result<SyscallAnswer>> {
        let [a, b, c, d, ..] = notification.arguments;
        // Keys, numbers, counts and flags are 32 bits to the kernel.
        let number = |register: u64| register as i32;
        Some(match notification.call {
            libc::SYS_semget => self.get_object(Semaphores, number(a), number(b), number(c)),
            libc::SYS_msgget => self.get_object(Queue, number(a), 0, number(b)),
            libc::SYS_semop | libc::SYS_semtimedop => self.use_object(Semaphores, number(a)),
            libc::SYS_msgsnd | libc::SYS_msgrcv => self.use_object(Queue, number(a)),
            libc::SYS_semctl => self.control_object(Semaphores, number(a), number(c), d),
            libc::SYS_msgctl => self.control_object(Queue, number(a), number(b), c),
            _ => return None,
        })
    }

    fn get_object(&self, kind: IpcKind, key: i32, count: i32, flags: i32) -> Result<SyscallAnswer> {
        let id = self.objects.borrow_mut().get(kind, key, count, flags)?;
        Ok(SyscallAnswer::Value(id.into()))
    }

    /// The caller's memory says what is done with the object, and nothing about which it is.
    fn use_object(&self, kind: IpcKind, id: i32) -> Result<SyscallAnswer> {
        self.objects.borrow().check(kind, id)?;
        Ok(SyscallAnswer::GoOn)
    }

    /// Owner, mode and size cannot be changed. What asks for places in the machine's table, or for all of it, is not the call's.
    fn control_object(
        &self,
        kind: IpcKind,
        id: i32,
        command: i32,
        buffer: u64,
    ) -> Result<SyscallAnswer> {
        let mut objects = self.objects.borrow_mut();
        objects.check(kind, id)?;
        match (kind, command) {
            (_, libc::IPC_RMID) => objects.remove(kind, id)?,
            (_, libc::IPC_STAT) => {
                let state = objects.state(kind, id)?;
                self.check()?;
                self.caller.write(buffer, &state)?;
            }
            (
                Semaphores,
                libc::GETPID
                | libc::GETVAL
                | libc::GETALL
                | libc::GETNCNT
                | libc::GETZCNT
                | libc::SETVAL
                | libc::SETALL,
            ) => return Ok(SyscallAnswer::GoOn),
            (Semaphores | Queue, _) => return Err(Errno::EPERM),
        }
        Ok(SyscallAnswer::Value(0))
    }
}
