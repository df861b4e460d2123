//! Calls on System V shared memory, by which programs use the segments of their call.

use crate::answer::SyscallAnswer;
use crate::supervised_call::SupervisedCall;
use nix::Result;
use nix::errno::Errno;

impl SupervisedCall<'_> {
    pub(crate) fn get_segment(&self, key: i32, size: u64, flags: i32) -> Result<SyscallAnswer> {
        let size = usize::try_from(size).map_err(|_| Errno::ENOSPC)?;
        let id = self.segments.borrow_mut().get(key, size, flags)?;
        Ok(SyscallAnswer::Value(id.into()))
    }

    pub(crate) fn attach_segment(&self, id: i32) -> Result<SyscallAnswer> {
        self.segments.borrow().check(id)?;
        Ok(SyscallAnswer::GoOn)
    }

    /// Owner and mode cannot be changed: no other user has a part in it.
    pub(crate) fn control_segment(
        &self,
        id: i32,
        command: i32,
        buffer: u64,
    ) -> Result<SyscallAnswer> {
        let mut segments = self.segments.borrow_mut();
        segments.check(id)?;
        match command {
            libc::IPC_RMID => segments.remove(id)?,
            libc::IPC_STAT => {
                let state = segments.state(id)?;
                self.check()?;
                self.caller.write(buffer, &state)?;
            }
            _ => return Err(Errno::EPERM),
        }
        Ok(SyscallAnswer::Value(0))
    }
}
