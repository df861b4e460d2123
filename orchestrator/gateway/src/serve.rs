//! The life of a gateway: the broker's first frame, confinement, then connections of cells until the broker is gone.

use crate::confine;
use crate::control::{ControlError, ControlSocket, ReceivedFrame};
use crate::decrypted::{AuthorityError, CertificateRoots, Times, TlsTerminator, UseReports};
use crate::relay::{ProxyError, Relay, RelaySockets, Unannounced, UpstreamProxy};
use crate::reports::ReportSender;
use broker_protocol::gateway::{FromGateway, GatewaySpec, SIGNATURE_QUESTION, SshSpec, ToGateway};
use broker_protocol::{ConnectionVerdict, Lease, Network, VERSION, VERSION_VARIABLE, limit};
use nix::sys::prctl;
use orchestrator_ssh_agent::{AgentFilter, AgentRefusal};
use policies::network;
use rustix::stdio::{dup2_stderr, dup2_stdin, dup2_stdout};
use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use thiserror::Error;
use tokio::io::Interest;
use tokio::runtime::{Builder, LocalOptions, LocalRuntime};
use tokio::sync::watch;

/// Maximum threads that resolve names.
const RESOLVERS: usize = 16;

/// Why the gateway does not serve.
#[derive(Debug, Error)]
pub enum GatewayError {
    #[error("standard input is not a socket of who starts it")]
    NotStarted,
    #[error(
        "lazaret-gateway speaks protocol {VERSION}, and who starts it {}: install all programs from one release",
        .0.as_deref().unwrap_or("an older one")
    )]
    Version(Option<String>),
    #[error("{0}")]
    Control(#[from] ControlError),
    #[error("it cannot be confined: {0}")]
    Confine(io::Error),
    #[error("its first frame cannot be read")]
    Begin,
    #[error("the hosts of the session cannot be read")]
    Hosts,
    #[error("the authorities of the policy cannot be read")]
    Roots,
    #[error("what `[gateway]` of the policy says was not told")]
    NoCompany,
    #[error("the proxy of the policy cannot be used: {0}")]
    Proxy(#[from] ProxyError),
    #[error("{0}")]
    Authority(#[from] AuthorityError),
    #[error("{0}")]
    Io(#[from] io::Error),
}

/// Serves the session whose broker is at the other end of standard input, until it is gone.
///
/// # Errors
/// Why it does not serve.
pub fn serve() -> Result<(), GatewayError> {
    let socket = control_socket()?;
    confine::end_with_parent()?;
    std::env::set_current_dir("/")?;
    prctl::set_name(c"lazaret-gateway").map_err(io::Error::from)?;
    let mut control = ControlSocket::new(socket);
    let Some((spec, sockets)) = first_frame(&mut control)? else {
        return Ok(());
    };
    let hosts = Network {
        lists: spec.lists.clone(),
    };
    let policy = network::from_lists(&hosts).map_err(|_| GatewayError::Hosts)?;
    let roots = roots_of(&spec)?;
    let proxy = spec.proxy.as_ref().map(UpstreamProxy::try_from);
    let proxy = proxy.transpose()?;
    confined_runtime(confine::confine)?.block_on(async {
        let reports = ReportSender::new(control.socket().try_clone()?)?;
        let (leases, in_force) = watch::channel(Vec::new());
        let tell = reports.clone();
        let terminator =
            roots.map(|roots| TlsTerminator::new(&spec, roots, move |frame| tell.send(&frame)));
        let terminator = terminator.transpose()?.map(Rc::new);
        let authority = terminator.as_deref().and_then(TlsTerminator::authority);
        let tell = reports.clone();
        let refusals = UseReports::new(Times::default(), Rc::new(move |frame| tell.send(&frame)));
        let agent = agent_filter(spec.ssh, &spec.known_hosts, &refusals);
        let relay = Relay::new(policy, in_force, reports.clone(), terminator.clone(), proxy)
            .with_ports(spec.connect)
            .with_agent(agent.clone());
        let ends = relay.ends();
        reports.send(&FromGateway::Serving(authority));
        tokio::select! {
            served = relay.serve(sockets) => Ok(served?),
            () = reports.write() => Ok(()),
            heard = async {
                let heard = hear(control, &leases, (terminator.as_deref(), agent.as_deref())).await;
                // The broker sends nothing more, and still reads: what was only counted until now is told too.
                refusals.flush();
                terminator.iter().for_each(|one| one.flush());
                ends.finish();
                reports.sent().await;
                heard
            } => heard,
        }
    })
}

/// The authorities by which hosts are verified, if a connection may be decrypted.
fn roots_of(spec: &GatewaySpec) -> Result<Option<CertificateRoots>, GatewayError> {
    let decrypts = !spec.credentials.is_empty() || !spec.rules.is_empty();
    let roots = decrypts.then(CertificateRoots::of_machine);
    let roots = roots.map(|roots| roots.with_company(&spec.authorities));
    roots.transpose().map_err(|_| GatewayError::Roots)
}

/// The user's ssh agent as cells have it, if the policy names some of its keys.
fn agent_filter(keys: Vec<SshSpec>, hosts: &str, told: &Rc<UseReports>) -> Option<Rc<AgentFilter>> {
    (!keys.is_empty()).then(|| {
        let (tell, told) = (told.tell.clone(), told.clone());
        let send = move |frame| tell(frame);
        let report = move |refusal: &AgentRefusal| {
            let place = (&*refusal.host, refusal.port);
            let verdict = ConnectionVerdict::RequestRefused;
            told.refuse(Some(refusal.call), place, verdict, refusal.why);
        };
        Rc::new(AgentFilter::new(keys, hosts, send, report))
    })
}

/// Gives up the standard streams and, by `confine`, all rights that serving does not need; returns what runs it then.
pub(crate) fn confined_runtime(
    confine: impl FnOnce() -> io::Result<()>,
) -> Result<LocalRuntime, GatewayError> {
    // Standard error stays until nothing can fail any more.
    let null = null_device()?;
    dup2_stdin(&null).map_err(io::Error::from)?;
    dup2_stdout(&null).map_err(io::Error::from)?;
    confine().map_err(GatewayError::Confine)?;
    dup2_stderr(&null).map_err(io::Error::from)?;
    drop(null);
    let runtime = Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .max_blocking_threads(RESOLVERS)
        .build_local(LocalOptions::default())?;
    Ok(runtime)
}

#[expect(
    clippy::disallowed_methods,
    reason = "before this process is confined, and no file of anybody's"
)]
fn null_device() -> io::Result<File> {
    OpenOptions::new().read(true).write(true).open("/dev/null")
}

/// Takes the socket over from standard input.
pub(crate) fn control_socket() -> Result<UnixStream, GatewayError> {
    let socket = UnixStream::from(io::stdin().as_fd().try_clone_to_owned()?);
    // Whoever starts this program by hand has no broker there.
    socket.peer_addr().map_err(|_| GatewayError::NotStarted)?;
    check_version(std::env::var(VERSION_VARIABLE).ok())?;
    socket.set_nonblocking(false)?;
    Ok(socket)
}

/// Whether who starts this program speaks the same protocol: of another one, no frame says what it means.
fn check_version(theirs: Option<String>) -> Result<(), GatewayError> {
    match theirs {
        Some(version) if version == VERSION.to_string() => Ok(()),
        theirs => Err(GatewayError::Version(theirs)),
    }
}

/// Waits for the broker's first frame; `None` if the broker is gone before it.
fn first_frame(
    control: &mut ControlSocket,
) -> Result<Option<(GatewaySpec, RelaySockets)>, GatewayError> {
    let ReceivedFrame { frame, descriptors } = loop {
        match control.frame()? {
            Some(received) => break received,
            None if control.receive()? => {}
            None => return Ok(None),
        }
    };
    let ToGateway::Serve(spec) = frame else {
        return Err(ControlError::OutOfTurn("another first frame than Serve").into());
    };
    let too_large = |_| ControlError::OutOfTurn("more than a session may have");
    spec.check().map_err(too_large)?;
    let sockets = RelaySockets::new(
        descriptors,
        Unannounced::refused_if(spec.announced),
        &spec.publish,
    )?;
    let sockets = sockets.ok_or(ControlError::OutOfTurn("other sockets than a relay has"))?;
    Ok(Some((spec, sockets)))
}

/// Reads the value of a credential: the pipe holds all of it, and has no writer.
fn read_value(descriptors: Vec<OwnedFd>) -> io::Result<Vec<u8>> {
    let pipe = descriptors.into_iter().next();
    let pipe = File::from(pipe.ok_or(io::ErrorKind::InvalidData)?);
    let mut value = Vec::with_capacity(limit::CREDENTIAL);
    pipe.take(limit::CREDENTIAL as u64)
        .read_to_end(&mut value)?;
    if value.ends_with(b"\n") {
        value.pop();
    }
    if value.is_empty() {
        return Err(io::Error::other("its source gave an empty value"));
    }
    Ok(value)
}

/// Handles the broker's frames until it is gone.
pub(crate) async fn hear(
    mut control: ControlSocket,
    leases: &watch::Sender<Vec<Lease>>,
    (terminator, agent): (Option<&TlsTerminator>, Option<&AgentFilter>),
) -> Result<(), GatewayError> {
    let no_agent = || ControlError::OutOfTurn("an agent that nobody wants");
    let deliver = |credential, value| {
        let terminator = terminator.ok_or(ControlError::OutOfTurn("a value that nobody wants"))?;
        terminator.value(credential, value);
        Ok::<_, GatewayError>(())
    };
    let socket = tokio::net::UnixStream::from_std(control.socket().try_clone()?)?;
    loop {
        while let Some(ReceivedFrame { frame, descriptors }) = control.frame()? {
            match frame {
                ToGateway::Leases(in_force) => drop(leases.send_replace(in_force)),
                ToGateway::Serve(_) => {
                    return Err(ControlError::OutOfTurn("a second Serve").into());
                }
                ToGateway::Value { credential } => {
                    let value = read_value(descriptors);
                    deliver(credential, value.map_err(|error| error.to_string()))?;
                }
                ToGateway::NoValue { credential, why } => deliver(credential, Err(why))?,
                ToGateway::Agent => {
                    let agent = agent.ok_or_else(no_agent)?;
                    let socket = descriptors.into_iter().next();
                    agent.deliver(socket.ok_or_else(|| "it came without its socket".to_owned()));
                }
                ToGateway::NoAgent(why) => agent.ok_or_else(no_agent)?.deliver(Err(why)),
                ToGateway::Answered { question, answer } if question & SIGNATURE_QUESTION != 0 => {
                    agent.ok_or_else(no_agent)?.answer(question, answer);
                }
                ToGateway::Answered { question, answer } => {
                    let terminator =
                        terminator.ok_or(ControlError::OutOfTurn("an answer to nobody"))?;
                    terminator.answer(question, answer);
                }
                ToGateway::Recorded => {
                    let terminator =
                        terminator.ok_or(ControlError::OutOfTurn("a record of nothing"))?;
                    terminator.recorded();
                }
            }
        }
        socket.readable().await?;
        match socket.try_io(Interest::READABLE, || control.receive()) {
            Ok(true) => {}
            Ok(false) => return Ok(()),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn program_of_another_protocol_is_named() {
        assert!(check_version(Some(VERSION.to_string())).is_ok());
        let older = (VERSION - 1).to_string();
        for (theirs, part) in [(Some(older.clone()), &*older), (None, "an older one")] {
            let error = check_version(theirs).unwrap_err().to_string();
            assert!(error.contains(&format!("protocol {VERSION}, ")), "{error}");
            assert!(error.contains(&format!("starts it {part}: install all programs")));
        }
    }
}
