//! `[gateway]` of the policy for one `lazaret`, whose own requests go by a gateway too: `lazaret-executor company`. That gateway is told what
//! gateways of sessions are, and gets the proxy's login by the same way, so that `lazaret` has it at no time.
//!
//! Comes from `lazaret` before it confines itself, which reads one answer: `+` and notices, or `-` and why nothing of it can be used. Then
//! serves the gateway until that is gone. Believes of its frames that it wants a login, at most once in 30 seconds.

use crate::roots;
use crate::sandbox::read_policies;
use crate::user::User;
use broker_protocol::gateway::{FromGateway, GatewaySpec, ToGateway};
use executor_credentials::{ClientCompany, Credentials, Delivery, Owner};
use executor_layers::descriptors;
use executor_peers::connection::{Connection, unless_ended};
use executor_peers::gateway::send_value;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use std::io::{self, Write};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::PathBuf;
use std::time::Instant;

/// Serves the gateway at the other end of `socket`. Commands can write below `written`.
///
/// # Errors
/// The kernel's, and frames that are none.
pub(crate) fn serve(socket: OwnedFd, user: &User, written: &[PathBuf]) -> io::Result<()> {
    let found = find(user, written);
    let answer = match &found {
        Ok(found) => format!("+{}", found.held.notices().join("\n")),
        Err(why) => format!("-{why}"),
    };
    // Who has asked may be gone.
    let _ = io::stdout().write_all(answer.as_bytes());
    let _ = io::stdout().flush();
    descriptors::null_stdio(1).map_err(|error| io::Error::other(error.to_string()))?;
    let Ok(ClientCompany { mut held, company }) = found else {
        return Ok(());
    };
    let mut gateway = Connection::new(socket)?;
    let serve = ToGateway::Serve(GatewaySpec {
        credentials: held.specs(),
        authorities: company.authorities,
        proxy: company.proxy,
        ..GatewaySpec::default()
    });
    gateway.send(&serve).map_err(io::Error::other)?;
    while answer_once(&mut gateway, &mut held).or_else(unless_ended)? {}
    Ok(())
}

fn find(user: &User, written: &[PathBuf]) -> Result<ClientCompany, String> {
    let policies = read_policies(user).map_err(|error| error.to_string())?;
    let settings = policies.gateway(&user.host());
    let settings = settings.map_err(|error| error.to_string())?;
    // A path that does not lead anywhere is where nothing can be written.
    let written = written.iter().filter_map(|path| path.canonicalize().ok());
    let written = written.chain(roots::earlier_projects(user));
    let owner = Owner::new(&user.home, &user.variables, written.collect());
    ClientCompany::find(&settings, &owner).map_err(|error| error.to_string())
}

/// Sends what the gateway takes, waits for what there is to do, and does it. False if the gateway is gone.
fn answer_once(gateway: &mut Connection, held: &mut Credentials) -> io::Result<bool> {
    gateway.flush()?;
    wait(gateway, held)?;
    let now = Instant::now();
    let has_ended = |(place, fd)| has_input(fd).then_some(place);
    let ended: Vec<u16> = held.running().filter_map(has_ended).collect();
    let mut values: Vec<Delivery> = Vec::new();
    values.extend(ended.into_iter().filter_map(|one| held.ready(one)));
    values.extend(held.tick(now));
    if !gateway.read()? {
        return Ok(false);
    }
    while let Some(frame) = gateway.next_frame().map_err(io::Error::other)? {
        match frame {
            FromGateway::Wanted { credential } => values.extend(held.want(credential, now)),
            // Those are of sessions, and this gateway has no rules that ask.
            FromGateway::Serving(_)
            | FromGateway::Connected(_)
            | FromGateway::Disconnected(_)
            | FromGateway::Used(_)
            | FromGateway::Asked(_)
            | FromGateway::AgentWanted
            | FromGateway::Claimed(_)
            | FromGateway::SignatureWanted(_) => {}
        }
    }
    values
        .into_iter()
        .try_for_each(|one| send_value(gateway, one.credential, one.value))
        .map_err(io::Error::other)?;
    // It asks for one value at a time, and reads what it has asked for.
    Ok(!gateway.is_full())
}

fn wait(gateway: &Connection, held: &Credentials) -> io::Result<()> {
    let mut flags = PollFlags::POLLIN;
    flags.set(PollFlags::POLLOUT, gateway.has_output());
    let readers = held
        .running()
        .map(|(_, fd)| PollFd::new(fd, PollFlags::POLLIN));
    let gateway = PollFd::new(gateway.fd(), flags);
    let mut waited: Vec<PollFd> = readers.chain([gateway]).collect();
    let timeout = held.deadline().map_or(PollTimeout::NONE, |due| {
        let left = due.saturating_duration_since(Instant::now());
        PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
    });
    match poll(&mut waited, timeout) {
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn has_input(fd: BorrowedFd<'_>) -> bool {
    let mut one = [PollFd::new(fd, PollFlags::POLLIN)];
    poll(&mut one, PollTimeout::ZERO).is_ok_and(|ready| ready > 0)
}
