//! A running process whose system calls a test makes, as if the test had compromised it. Afterwards the process continues as if
//! nothing had happened.
//!
//! Only for x86_64, whose registers it uses.

use nix::errno::Errno;
use nix::libc::user_regs_struct;
use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

/// A process that is stopped in a system call of its own.
pub struct Puppet {
    pid: Pid,
    before: user_regs_struct,
    /// The address of a `syscall` instruction.
    call: u64,
    /// Memory below the stack that the process does not use.
    free: u64,
}

/// One argument of a system call.
#[derive(Clone, Copy, Debug)]
pub enum Argument<'a> {
    Number(u64),
    /// Bytes to copy into the process's memory; changes to them are not returned.
    Bytes(&'a [u8]),
}

impl Puppet {
    /// Stops `pid`, which must have one thread. `None` if it did not wait in a system call just then; it continues.
    pub fn take(pid: i32) -> nix::Result<Option<Self>> {
        let pid = Pid::from_raw(pid);
        ptrace::seize(pid, ptrace::Options::empty())?;
        ptrace::interrupt(pid)?;
        waitpid(pid, Some(WaitPidFlag::WUNTRACED))?;
        let before = ptrace::getregs(pid)?;
        let call = before.rip - 2;
        let code = ptrace::read(pid, call as ptrace::AddressType)? as u64 & 0xffff;
        if code != 0x050f {
            return ptrace::detach(pid, None).map(|()| None);
        }
        // Below the 128 bytes that a function may use under its stack, plus a page.
        Ok(Some(Self {
            pid,
            before,
            call,
            free: (before.rsp - 8192) & !15,
        }))
    }

    /// Makes one system call; returns the kernel's result.
    pub fn call(&self, number: i64, arguments: &[Argument]) -> Result<u64, Errno> {
        let mut values = [0; 6];
        let mut free = self.free;
        for (value, argument) in values.iter_mut().zip(arguments) {
            *value = match argument {
                Argument::Number(number) => *number,
                Argument::Bytes(bytes) => {
                    self.put(free, bytes)
                        .expect("memory below the stack can be written");
                    let at = free;
                    free += (bytes.len() as u64 + 16) & !7;
                    at
                }
            };
        }
        let [rdi, rsi, rdx, r10, r8, r9] = values;
        // An interrupted call of the process must not be restarted now.
        let rax = number as u64;
        let now = user_regs_struct {
            rax,
            orig_rax: u64::MAX,
            rip: self.call,
            rdi,
            rsi,
            rdx,
            r10,
            r8,
            r9,
            ..self.before
        };
        let stepped = ptrace::setregs(self.pid, now)
            .and_then(|()| ptrace::step(self.pid, None))
            .and_then(|()| waitpid(self.pid, None))
            .and_then(|_| ptrace::getregs(self.pid));
        let result = stepped.expect("the process takes a step").rax as i64;
        if (-4095..0).contains(&result) {
            Err(Errno::from_raw(-result as i32))
        } else {
            Ok(result as u64)
        }
    }

    /// Copies `bytes` into memory that the process does not use, beyond what arguments need; returns where they are. `offset` keeps
    /// several apart.
    pub fn place(&self, offset: u64, bytes: &[u8]) -> u64 {
        let at = self.free + 1024 + offset;
        self.put(at, bytes)
            .expect("memory below the stack can be written");
        at
    }

    /// The `length` octets at `at` in the process's memory.
    pub fn read(&self, at: u64, length: usize) -> Vec<u8> {
        let words = (0..length.div_ceil(8)).flat_map(|index| {
            let address = at + 8 * index as u64;
            ptrace::read(self.pid, address as ptrace::AddressType)
                .expect("it is memory of the process")
                .to_le_bytes()
        });
        words.take(length).collect()
    }

    fn put(&self, at: u64, bytes: &[u8]) -> nix::Result<()> {
        // With a final NUL, so that an empty text is a path.
        for (index, word) in [bytes, &[0; 8]].concat().chunks(8).enumerate() {
            let mut whole = [0; 8];
            whole[..word.len()].copy_from_slice(word);
            let address = at + 8 * index as u64;
            ptrace::write(
                self.pid,
                address as ptrace::AddressType,
                i64::from_le_bytes(whole),
            )?;
        }
        Ok(())
    }
}

impl Drop for Puppet {
    fn drop(&mut self) {
        // A process that has executed another program, or is gone, cannot be restored.
        let _ = ptrace::setregs(self.pid, self.before);
        let _ = ptrace::detach(self.pid, None);
    }
}
