//! The message loop: receives requests, each with its context, and sends answers.

use crate::worker::Worker;
use broker_protocol::{ErrorKind, Failed, FileAnswer, Request, ZonePath, frame, limit};
use executor_spec::worker::{CHUNK, ELSEWHERE, LAST, MESSAGE_MAX, MORE, USAGE_LEN, WorkerContext};
use executor_sys::idle::IdleTrim;
use executor_sys::{message, process};
use nix::sys::resource::{Usage, UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use std::io;
use std::os::fd::{AsFd, OwnedFd};

/// Receives what was split into messages, with the descriptors of the first; `None` when the broker is gone.
pub(crate) fn receive_message(socket: &OwnedFd) -> io::Result<Option<(Vec<u8>, Vec<OwnedFd>)>> {
    receive(socket, &mut vec![0; MESSAGE_MAX])
}

fn receive(socket: &OwnedFd, buffer: &mut [u8]) -> io::Result<Option<(Vec<u8>, Vec<OwnedFd>)>> {
    let (mut whole, mut fds) = (Vec::new(), Vec::new());
    loop {
        let (length, came) = message::receive_waiting(socket.as_fd(), buffer)?;
        let Some((tag, bytes)) = buffer[..length].split_first() else {
            return Ok(None);
        };
        whole.extend_from_slice(bytes);
        fds.extend(came);
        if whole.len() > limit::REQUEST {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        if *tag != MORE {
            return Ok(Some((whole, fds)));
        }
    }
}

/// Answers requests until the broker is gone.
pub(crate) fn serve(worker: &Worker, socket: &OwnedFd) -> io::Result<()> {
    let mut buffer = vec![0; MESSAGE_MAX];
    let mut idle = IdleTrim::default();
    loop {
        idle.wait_readable(socket);
        match receive(socket, &mut buffer)? {
            Some((request, fds)) => answer(worker, (&request, fds), socket)?,
            None => return Ok(()),
        }
    }
}

fn answer(
    worker: &Worker,
    (request, fds): (&[u8], Vec<OwnedFd>),
    socket: &OwnedFd,
) -> io::Result<()> {
    let before = getrusage(UsageWho::RUSAGE_SELF)?;
    let request = frame::decode_request::<(WorkerContext, Request)>(request);
    let (answer, searched) = match request {
        Ok((context, request)) => {
            let answer = worker.answer(context, &request, fds.into_iter().next());
            (answer, is_search(&request))
        }
        Err(error) => (
            Ok(Err(Failed {
                kind: ErrorKind::Internal,
                message: error.to_string(),
            })),
            false,
        ),
    };
    let answer: FileAnswer = match answer {
        Ok(answer) => answer,
        Err(real) => return send_elsewhere(socket, &real),
    };
    let bytes = frame::encode_whole(&answer).map_err(io::Error::other)?;
    drop(answer);
    let large = bytes.len() > CHUNK;
    send(
        socket,
        &bytes,
        &usage(&before, &getrusage(UsageWho::RUSAGE_SELF)?),
    )?;
    // A search allocates memory that an idle worker should not keep.
    if large || searched {
        drop(bytes);
        process::trim_heap();
    }
    Ok(())
}

fn is_search(request: &Request) -> bool {
    matches!(
        request,
        Request::FileList(_) | Request::Glob(_) | Request::Grep(_) | Request::History(_)
    )
}

fn send_elsewhere(socket: &OwnedFd, real: &ZonePath) -> io::Result<()> {
    let mut message = vec![ELSEWHERE];
    message.extend(frame::encode_whole(real).map_err(io::Error::other)?);
    message::send_waiting(socket.as_fd(), &message, &[])
}

fn usage(before: &Usage, after: &Usage) -> [u8; USAGE_LEN] {
    let user = (after.user_time() - before.user_time()).num_microseconds();
    let system = (after.system_time() - before.system_time()).num_microseconds();
    let mut bytes = [0; USAGE_LEN];
    for (place, number) in bytes.chunks_mut(8).zip([user, system, after.max_rss()]) {
        place.copy_from_slice(&number.to_le_bytes());
    }
    bytes
}

/// Sends the answer to a question, without usage figures.
pub(crate) fn send_whole(socket: &OwnedFd, bytes: &[u8]) -> io::Result<()> {
    send(socket, bytes, &[])
}

fn send(socket: &OwnedFd, bytes: &[u8], usage: &[u8]) -> io::Result<()> {
    let last = bytes.len().saturating_sub(1) / CHUNK * CHUNK;
    let mut message = Vec::with_capacity(MESSAGE_MAX.min(bytes.len() + 1 + USAGE_LEN));
    for chunk in bytes[..last].chunks(CHUNK) {
        message.clear();
        message.push(MORE);
        message.extend_from_slice(chunk);
        message::send_waiting(socket.as_fd(), &message, &[])?;
    }
    message.clear();
    message.push(LAST);
    message.extend_from_slice(usage);
    message.extend_from_slice(&bytes[last..]);
    message::send_waiting(socket.as_fd(), &message, &[])
}
