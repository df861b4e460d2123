//! Orders to a cell: one call's work as data, with the program's descriptors 0, 1 and 2; and what steers a running program, one byte each.

use broker_protocol::{CallId, Variable, frame, limit};
use executor_sys::idle::IdleTrim;
use executor_sys::message;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::signal::Signal;
use nix::sys::socket::{MsgFlags, recv};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

/// Maximum bytes of an order: the arguments and the variables with their lengths, and the rest.
const ORDER_MAX: usize =
    limit::COMMAND + limit::VARIABLES * (limit::VARIABLE_NAME + limit::VARIABLE + 32) + 16 * 1024;
/// Maximum bytes of an order in one message. A socket holds about 200 KiB; a longer order is in a file of its own.
const MESSAGE_MAX: usize = 64 * 1024;
/// The message sent instead of a longer order, whose descriptor follows those of the program. It is
/// not a signal number, and shorter than any order.
const LONG: [u8; 2] = [0, 0];
/// The byte that asks all processes of a cell to end. It is not a signal number.
const TERMINATE: u8 = u8::MAX;

/// Orders of the broker to a cell whose program runs.
pub enum Steering {
    /// Its program gets this signal.
    Signal(Signal),
    /// All its processes get a chance to end by themselves.
    Terminate,
    /// It kills them. Also if the broker is gone.
    End,
}

/// One call's work: everything that the session's spec leaves open.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CellPlan {
    /// The call whose end a client waits for; 0 if none does.
    pub call: CallId,
    /// The program and its arguments.
    pub arguments: Vec<ByteBuf>,
    /// `TERM` for the terminal on descriptor 0, if it is one.
    pub terminal: Option<String>,
    /// The working directory, absolute.
    pub directory: String,
    /// Variables that its environment adds to the session's, or overrides.
    pub environment: Vec<Variable>,
    /// Variables of the session's that it does not have.
    pub unset: Vec<String>,
    /// Ports of this machine that are leased to it.
    pub connect: Vec<u16>,
}

/// Sends a cell its order.
pub fn send(cell: BorrowedFd, plan: &CellPlan, stdio: [BorrowedFd; 3]) -> io::Result<()> {
    let mut bytes = Vec::new();
    frame::encode(plan, &mut bytes).map_err(io::Error::other)?;
    let order = &bytes[frame::PREFIX..];
    if order.len() <= MESSAGE_MAX {
        return message::send(cell, order, &stdio);
    }
    let mut file = File::from(memfd_create(c"order", MFdFlags::MFD_CLOEXEC)?);
    file.write_all(order)?;
    let [input, output, error] = stdio;
    message::send(cell, &LONG, &[input, output, error, file.as_fd()])
}

/// Sends a cell a signal for its program.
pub fn send_signal(cell: BorrowedFd, signal: i32) -> io::Result<()> {
    message::send(cell, &[signal as u8], &[])
}

/// Waits for an order; `None` when the session is over, or this process is not needed.
pub fn receive(
    socket: &OwnedFd,
    idle: &mut IdleTrim,
) -> io::Result<Option<(CellPlan, [OwnedFd; 3])>> {
    loop {
        idle.wait_readable(socket);
        // Most orders are some hundred bytes; a buffer for the longest would cost more than this extra call.
        let length = recv(
            socket.as_raw_fd(),
            &mut [],
            MsgFlags::MSG_PEEK | MsgFlags::MSG_TRUNC,
        )?;
        let mut order = vec![0; length.min(ORDER_MAX)];
        let (_, mut stdio) = message::receive_waiting(socket.as_fd(), &mut order)?;
        match length {
            0 => return Ok(None),
            // A signal that arrived after its program had ended.
            1 => continue,
            _ => {}
        }
        if order == LONG {
            let mut file = File::from(
                stdio
                    .pop()
                    .ok_or_else(|| io::Error::from_raw_os_error(libc::EBADF))?,
            );
            file.rewind()?;
            order.clear();
            file.take(ORDER_MAX as u64).read_to_end(&mut order)?;
        }
        let plan = frame::decode(&order).map_err(io::Error::other)?;
        let stdio = stdio
            .try_into()
            .map_err(|_| io::Error::from_raw_os_error(libc::EBADF))?;
        return Ok(Some((plan, stdio)));
    }
}

/// Asks all processes of a cell to end.
pub fn send_terminate(cell: BorrowedFd) -> io::Result<()> {
    message::send(cell, &[TERMINATE], &[])
}

/// Receives what the broker wants of a running program, if anything.
pub fn receive_steering(socket: &OwnedFd) -> Option<Steering> {
    let mut byte = [0];
    match (message::receive(socket.as_fd(), &mut byte), byte) {
        (Ok((1, _)), [TERMINATE]) => Some(Steering::Terminate),
        (Ok((1, _)), [number]) => Signal::try_from(i32::from(number))
            .ok()
            .map(Steering::Signal),
        (Err(error), _) if error.kind() == io::ErrorKind::WouldBlock => None,
        (Ok(_) | Err(_), _) => Some(Steering::End),
    }
}
