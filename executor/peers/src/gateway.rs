//! The broker's side of a session's gateway: starts it, says what it serves, and takes what it reports. The broker never waits for it.
//! A gateway that ends, talks nonsense or takes nothing is replaced, so many times; then cells have no network any more.

use crate::connection::Connection;
use crate::outgoing::ProgramQuestion;
use broker_protocol::gateway::{
    Authority, ConnectionEnds, CredentialReport, FromGateway, GatewaySpec, HeldRequest,
    HeldSignature, RequestAnswer, RuleAction, SshSpec, ToGateway,
};
use broker_protocol::{
    ConnectionReport, Finding, FindingKind, FrameError, Lease, VERSION, VERSION_VARIABLE,
};
use executor_spec::variables::Variables;
use executor_sys::process::{self, Child};
use executor_sys::{message, spawn};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{AddressFamily, SockFlag, SockType, socketpair};
use std::ffi::{CString, OsStr, OsString};
use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::{Duration, Instant};

/// How many gateways of a session may be followed by another.
const SUCCESSORS_MAX: u32 = 8;
/// How long a gateway may take nothing of what is sent to it.
const STUCK: Duration = Duration::from_secs(10);
/// Most reads of its socket at a time: its reports come one by one, and others wait too.
const READS: usize = 16;
/// Maximum number of reports that are taken from a gateway that ends, beside those of one reception.
const LAST_EVENTS: usize = 1024;

/// Variables of the user's that a gateway gets: which certificates hosts may have.
pub const VARIABLES: [&str; 2] = ["SSL_CERT_FILE", "SSL_CERT_DIR"];

/// The environment of a gateway. A path that leads to one of `roots`, or past a link there, is left out: a command could choose what it
/// leads to.
pub fn environment(variables: &Variables, roots: &[&Path]) -> Vec<CString> {
    let is_outside = |value: &&OsString| policies::are_outside(value, roots);
    let named = VARIABLES.iter().filter_map(|name| {
        let value = variables.get(OsStr::new(name)).filter(is_outside)?;
        CString::new([name.as_bytes(), b"=", value.as_bytes()].concat()).ok()
    });
    named.collect()
}

/// Makes the processes of a session's gateways.
#[derive(Debug)]
pub enum GatewayMaker {
    Broker {
        /// The file of the program.
        program: OwnedFd,
        /// All variables of its environment.
        environment: Vec<CString>,
    },
    /// The client, who gets one end of each gateway's socket over this one.
    Client(OwnedFd),
}

/// The parts that every gateway of a session starts with.
#[derive(Debug)]
pub struct GatewayStart {
    pub maker: GatewayMaker,
    pub spec: GatewaySpec,
    /// The sockets of the session's relay, and the listeners of published ports. They stay here for successors, and nobody accepts on
    /// them here.
    pub sockets: Vec<OwnedFd>,
}

/// A report or question of a gateway, within its limits.
#[derive(Debug, PartialEq, Eq)]
pub enum GatewayEvent {
    Connected(ConnectionReport),
    Disconnected(ConnectionEnds),
    /// Uses of a credential: answered by [`Gateway::recorded`] when they are in the audit.
    Used(CredentialReport),
    /// The authority of the session's certificates: once, from the first gateway.
    Authority(Authority),
    /// Answered by [`Gateway::deliver`].
    Wanted {
        credential: u16,
    },
    /// Answered by [`Gateway::answer`]: a question about a request.
    Asked(Box<ProgramQuestion>),
    /// Answered by [`Gateway::answer`]: a request that uses the grant kept for it.
    Claimed(Box<ProgramQuestion>),
    /// A connection to the user's ssh agent is wanted: answered by [`Gateway::deliver_agent`].
    AgentWanted,
    /// Answered by [`Gateway::answer`]: a signature, and the keys that it is of.
    SignatureWanted(HeldSignature, Box<SshSpec>),
}

/// The gateway that serves a session, if one is left.
#[derive(Debug)]
pub struct Gateway {
    start: GatewayStart,
    process: Option<GatewayProcess>,
    /// How many of this session have ended.
    ended: u32,
    leases: Vec<Lease>,
    /// Findings about those that ended.
    found: Vec<Finding>,
}

#[derive(Debug)]
struct GatewayProcess {
    connection: Connection,
    /// Of one that the client has made, there is none: it ends with its connection.
    pidfd: Option<OwnedFd>,
    /// Reports of uses that were taken from it and are not in the audit yet.
    unrecorded: usize,
    /// When it counts as stuck, while there is something that it has not taken.
    stuck: Option<Instant>,
}

/// Why a gateway is not used any more.
#[derive(Debug)]
enum GatewayLoss {
    Ended,
    Nonsense,
    Stuck,
    NotStarted(io::Error),
}

impl Gateway {
    /// Starts the first one of a session, which says later whether it serves.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn start(start: GatewayStart) -> io::Result<Self> {
        let process = start.process(&[])?;
        Ok(Self {
            start,
            process: Some(process),
            ended: 0,
            leases: Vec::new(),
            found: Vec::new(),
        })
    }

    /// All leases in force from now on. It hears of hosts and ports alone.
    pub fn set_leases(&mut self, leases: impl Iterator<Item = Lease>) {
        self.leases = leases.filter(|lease| lease.opens.is_place()).collect();
        if let Some(process) = &mut self.process {
            let sent = process.send(&ToGateway::Leases(self.leases.clone()));
            self.or_replace(sent);
        }
    }

    /// Sends a credential's value, as the descriptor to read it from, or why there is none.
    pub fn deliver(&mut self, credential: u16, value: Result<OwnedFd, String>) {
        if let Some(process) = &mut self.process {
            let sent = process.deliver(credential, value);
            self.or_replace(sent);
        }
    }

    /// Sends a connection to the user's ssh agent, or why there is none.
    pub fn deliver_agent(&mut self, agent: Result<OwnedFd, String>) {
        if let Some(process) = &mut self.process {
            let sent = process.deliver_agent(agent);
            self.or_replace(sent);
        }
    }

    /// Sends the answer to a question about a request or a signature.
    pub fn answer(&mut self, question: u32, answer: RequestAnswer) {
        if let Some(process) = &mut self.process {
            let sent = process.send(&ToGateway::Answered { question, answer });
            self.or_replace(sent);
        }
    }

    /// Tells it that a report of uses is in the audit. A successor has not sent those of before.
    pub fn recorded(&mut self) {
        let awaits = |process: &&mut GatewayProcess| process.unrecorded > 0;
        if let Some(process) = self.process.as_mut().filter(awaits) {
            process.unrecorded -= 1;
            let sent = process.send(&ToGateway::Recorded);
            self.or_replace(sent);
        }
    }

    /// Its socket and what to wait for there: to read, and to write while something is unsent.
    pub fn waits_for(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        let (socket, flags) = self.waits_to_send()?;
        Some((socket, flags | PollFlags::POLLIN))
    }

    /// Its socket while nothing is read from it, to write what is unsent.
    pub fn waits_to_send(&self) -> Option<(BorrowedFd<'_>, PollFlags)> {
        let connection = &self.process.as_ref()?.connection;
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::POLLOUT, connection.has_output());
        Some((connection.fd(), flags))
    }

    /// When it counts as stuck, if it takes nothing.
    pub fn deadline(&self) -> Option<Instant> {
        self.process.as_ref().and_then(|process| process.stuck)
    }

    /// Replaces it if that time has come.
    pub fn tick(&mut self, now: Instant) {
        if self.deadline().is_some_and(|stuck| stuck <= now) {
            self.replace(&GatewayLoss::Stuck);
        }
    }

    /// Sends what it takes, and receives what it has sent so far.
    pub fn receive(&mut self) -> Vec<GatewayEvent> {
        let mut events = Vec::new();
        if let Some(process) = &mut self.process {
            let received = process.receive(&mut self.start, &mut events);
            self.or_replace(received);
        }
        events
    }

    /// Waits until it has sent something.
    ///
    /// # Errors
    /// It has not by `until`, or none is left.
    pub fn wait(&self, until: Instant) -> io::Result<()> {
        let process = self.process.as_ref().ok_or(io::ErrorKind::BrokenPipe)?;
        wait(process.connection.fd(), until)
    }

    /// Ends it, and takes what it reports until then: what it has only counted comes last. Questions are of no use any more. Starts no
    /// other; what it has not said by `until` is lost.
    pub fn finish(&mut self, until: Instant) -> Vec<GatewayEvent> {
        let mut events = Vec::new();
        let Some(mut process) = self.process.take() else {
            return events;
        };
        let mut ended = process.connection.shut_output().is_err();
        while !ended && events.len() < LAST_EVENTS && wait(process.connection.fd(), until).is_ok() {
            ended = process.receive(&mut self.start, &mut events).is_err();
        }
        events
    }

    /// Findings about gateways that have ended.
    pub fn take_found(&mut self) -> Vec<Finding> {
        std::mem::take(&mut self.found)
    }

    /// Kills it, and starts no other. Its sockets are closed: a port that was published is free for a next session.
    pub fn kill(&mut self) {
        self.process = None;
        self.start.sockets.clear();
    }

    fn or_replace(&mut self, result: Result<(), GatewayLoss>) {
        if let Err(lost) = result {
            self.replace(&lost);
        }
    }

    /// Kills it, and starts a successor with the same leases, if there may be one more.
    fn replace(&mut self, lost: &GatewayLoss) {
        self.process = None;
        // Reaps those that have exited by now.
        while let Ok(Some(_)) = process::reap_any() {}
        self.ended += 1;
        if self.ended <= SUCCESSORS_MAX {
            match self.start.process(&self.leases) {
                Ok(successor) => {
                    self.process = Some(successor);
                    return self.report(lost, "Another one serves now.");
                }
                Err(error) => return self.close(&GatewayLoss::NotStarted(error)),
            }
        }
        self.close(lost);
    }

    /// Ends the network of the session: programs see their connections refused.
    fn close(&mut self, lost: &GatewayLoss) {
        self.start.sockets.clear();
        let why = format!(
            "It was gateway {} of this session, and no other is started: commands have no network any more.",
            self.ended
        );
        self.report(lost, &why);
    }

    fn report(&mut self, lost: &GatewayLoss, then: &str) {
        let why =
            format!("The gateway of this session {lost}. Connections of commands were cut. {then}");
        let finding = Finding::new(FindingKind::Gateway, "lazaret-gateway", why);
        self.found.push(finding);
    }
}

impl GatewayStart {
    /// The question about a request, if it is within its limits and a rule asks.
    fn question(&self, request: &HeldRequest) -> Option<ProgramQuestion> {
        request.check().ok()?;
        let mut rules = self.spec.rules.iter().flatten();
        let rule = rules.nth(request.rule.into());
        let rule = rule.filter(|rule| rule.action == RuleAction::Ask)?;
        let credential = match request.credential {
            Some(place) => Some(&*self.spec.credentials.get(usize::from(place))?.name),
            None => None,
        };
        Some(ProgramQuestion::of_request(request, rule, credential))
    }

    fn process(&self, leases: &[Lease]) -> io::Result<GatewayProcess> {
        let (socket, theirs) = socketpair(
            AddressFamily::Unix,
            SockType::Stream,
            None,
            SockFlag::SOCK_CLOEXEC,
        )?;
        let sockets = self.sockets.iter().map(OwnedFd::try_clone);
        let sockets: Vec<OwnedFd> = sockets.collect::<io::Result<_>>()?;
        // Before it exists: one that ends at once is found like one that ends later.
        let mut connection = Connection::new(socket)?;
        connection.attach(sockets);
        let too_large = |_| io::Error::from(io::ErrorKind::InvalidInput);
        let serve = ToGateway::Serve(self.spec.clone());
        connection.send(&serve).map_err(too_large)?;
        let leases = ToGateway::Leases(leases.to_vec());
        connection.send(&leases).map_err(too_large)?;
        connection.flush()?;
        Ok(GatewayProcess {
            connection,
            pidfd: self.maker.make(&theirs)?,
            unrecorded: 0,
            stuck: None,
        })
    }
}

impl GatewayMaker {
    /// Makes one that is told what to serve over `socket`; a handle to it, if it is a process of ours.
    fn make(&self, socket: &OwnedFd) -> io::Result<Option<OwnedFd>> {
        match self {
            Self::Broker {
                program,
                environment,
            } => {
                let version = format!("{VERSION_VARIABLE}={VERSION}");
                let version = CString::new(version).map_err(io::Error::other)?;
                let environment = [&environment[..], &[version]].concat();
                let Child { pidfd, .. } = spawn::image(
                    program.as_fd(),
                    c"lazaret-gateway",
                    &environment,
                    socket.as_fd(),
                )?;
                Ok(Some(pidfd))
            }
            Self::Client(line) => {
                message::send(line.as_fd(), &[0], &[socket.as_fd()])?;
                Ok(None)
            }
        }
    }
}

impl GatewayProcess {
    fn send(&mut self, frame: &ToGateway) -> Result<(), GatewayLoss> {
        self.connection
            .send(frame)
            .map_err(|_| GatewayLoss::Nonsense)?;
        self.flush()
    }

    fn deliver(
        &mut self,
        credential: u16,
        value: Result<OwnedFd, String>,
    ) -> Result<(), GatewayLoss> {
        send_value(&mut self.connection, credential, value).map_err(|_| GatewayLoss::Nonsense)?;
        self.flush()
    }

    fn deliver_agent(&mut self, agent: Result<OwnedFd, String>) -> Result<(), GatewayLoss> {
        match agent {
            Ok(agent) => {
                self.connection.attach(vec![agent]);
                self.send(&ToGateway::Agent)
            }
            Err(why) => self.send(&ToGateway::NoAgent(why)),
        }
    }

    /// Sends as much as it takes now.
    fn flush(&mut self) -> Result<(), GatewayLoss> {
        let before = self.connection.waiting();
        self.connection.flush().map_err(|_| GatewayLoss::Ended)?;
        let waiting = self.connection.waiting();
        if self.connection.is_full() {
            return Err(GatewayLoss::Stuck);
        }
        if waiting == 0 {
            self.stuck = None;
        } else if waiting < before || self.stuck.is_none() {
            self.stuck = Some(Instant::now() + STUCK);
        }
        Ok(())
    }

    fn receive(
        &mut self,
        start: &mut GatewayStart,
        events: &mut Vec<GatewayEvent>,
    ) -> Result<(), GatewayLoss> {
        self.flush()?;
        for _ in 0..READS {
            match self
                .connection
                .read_once()
                .map_err(|_| GatewayLoss::Ended)?
            {
                Some(0) => return Err(GatewayLoss::Ended),
                Some(_) => {}
                None => break,
            }
            while let Some(frame) = self.connection.next_frame().map_err(nonsense)? {
                events.extend(self.take(frame, start)?);
            }
        }
        Ok(())
    }

    /// Handles a frame. What the gateway says is believed for records alone, and has limits there.
    fn take(
        &mut self,
        frame: FromGateway,
        start: &mut GatewayStart,
    ) -> Result<Option<GatewayEvent>, GatewayLoss> {
        let is_known = |credential: u16| usize::from(credential) < start.spec.credentials.len();
        match frame {
            FromGateway::Serving(authority) => {
                let Some(authority) = authority else {
                    return Ok(None);
                };
                authority.check().map_err(|_| GatewayLoss::Nonsense)?;
                if start.spec.authority.is_some() {
                    return Ok(None);
                }
                start.spec.authority = Some(authority.clone());
                Ok(Some(GatewayEvent::Authority(authority)))
            }
            FromGateway::Connected(report) => {
                report.check().map_err(|_| GatewayLoss::Nonsense)?;
                Ok(Some(GatewayEvent::Connected(report)))
            }
            FromGateway::Used(report) => {
                report.check().map_err(|_| GatewayLoss::Nonsense)?;
                if !is_known(report.credential) {
                    return Err(GatewayLoss::Nonsense);
                }
                self.unrecorded += 1;
                Ok(Some(GatewayEvent::Used(report)))
            }
            FromGateway::Disconnected(ends) => {
                ends.check().map_err(|_| GatewayLoss::Nonsense)?;
                Ok(Some(GatewayEvent::Disconnected(ends)))
            }
            FromGateway::Asked(request) => {
                let question = start.question(&request).ok_or(GatewayLoss::Nonsense)?;
                Ok(Some(GatewayEvent::Asked(Box::new(question))))
            }
            FromGateway::Claimed(request) => {
                let question = start.question(&request).ok_or(GatewayLoss::Nonsense)?;
                Ok(Some(GatewayEvent::Claimed(Box::new(question))))
            }
            FromGateway::Wanted { credential } => {
                if !is_known(credential) {
                    return Err(GatewayLoss::Nonsense);
                }
                Ok(Some(GatewayEvent::Wanted { credential }))
            }
            FromGateway::AgentWanted if start.spec.ssh.is_empty() => Err(GatewayLoss::Nonsense),
            FromGateway::AgentWanted => Ok(Some(GatewayEvent::AgentWanted)),
            FromGateway::SignatureWanted(signature) => {
                signature.check().map_err(|_| GatewayLoss::Nonsense)?;
                let keys = start.spec.ssh.get(usize::from(signature.ssh));
                let keys = Box::new(keys.ok_or(GatewayLoss::Nonsense)?.clone());
                Ok(Some(GatewayEvent::SignatureWanted(signature, keys)))
            }
        }
    }
}

/// Waits until there is something to read.
fn wait(socket: BorrowedFd<'_>, until: Instant) -> io::Result<()> {
    let left = until.saturating_duration_since(Instant::now());
    let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::ZERO);
    let mut fds = [PollFd::new(socket, PollFlags::POLLIN)];
    match poll(&mut fds, timeout) {
        Ok(0) => Err(io::ErrorKind::TimedOut.into()),
        Ok(_) | Err(Errno::EINTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn nonsense(_: FrameError) -> GatewayLoss {
    GatewayLoss::Nonsense
}

impl fmt::Display for GatewayLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            GatewayLoss::Ended => f.write_str("has ended"),
            GatewayLoss::Nonsense => f.write_str("broke the protocol and was ended"),
            GatewayLoss::Stuck => f.write_str("took nothing any more and was ended"),
            GatewayLoss::NotStarted(error) => {
                write!(f, "has ended, and cannot be started again: {error}")
            }
        }
    }
}

impl Drop for GatewayProcess {
    fn drop(&mut self) {
        // If this fails, it has already exited.
        let killed = self.pidfd.iter();
        killed.for_each(|one| drop(process::pidfd_signal(one.as_fd(), libc::SIGKILL)));
    }
}

/// Queues the value of a credential, or why there is none.
///
/// # Errors
/// The frame is over its limit.
pub fn send_value(
    gateway: &mut Connection,
    credential: u16,
    value: Result<OwnedFd, String>,
) -> Result<(), FrameError> {
    match value {
        Ok(value) => {
            gateway.attach(vec![value]);
            gateway.send(&ToGateway::Value { credential })
        }
        Err(why) => gateway.send(&ToGateway::NoValue { credential, why }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::poll::{PollFd, PollTimeout, poll};
    use std::fs::File;
    use std::path::PathBuf;

    /// A gateway whose program is this one.
    fn gateway(program: &str) -> Gateway {
        Gateway::start(GatewayStart {
            maker: GatewayMaker::Broker {
                program: File::open(program).unwrap().into(),
                environment: Vec::new(),
            },
            spec: GatewaySpec::default(),
            sockets: vec![File::open("/dev/null").unwrap().into()],
        })
        .unwrap()
    }

    /// All findings until no successor is left.
    fn to_its_end(mut gateway: Gateway) -> Vec<String> {
        let mut found = Vec::new();
        while let Some((socket, flags)) = gateway.waits_for() {
            poll(
                &mut [PollFd::new(socket, flags)],
                PollTimeout::from(10_000u16),
            )
            .unwrap();
            assert!(gateway.receive().is_empty());
            found.extend(gateway.take_found());
        }
        assert!(gateway.start.sockets.is_empty());
        found.into_iter().map(|one| one.why).collect()
    }

    #[test]
    fn a_gateway_is_replaced_so_many_times_and_then_nobody_listens() {
        let found = to_its_end(gateway("/bin/true"));
        assert_eq!(found.len(), 1 + SUCCESSORS_MAX as usize, "{found:?}");
        let (last, others) = found.split_last().unwrap();
        assert!(
            last.contains("has ended") && last.contains("no network any more"),
            "{last}"
        );
        assert!(
            others.iter().all(|one| one.contains("Another one")),
            "{others:?}"
        );
    }

    /// A gateway whose process lives until it is killed, and whose frames the test sends.
    struct Spoken {
        gateway: Gateway,
        theirs: OwnedFd,
        /// Closed, its program would read to the end, and end by itself.
        _own: Connection,
        pidfd: OwnedFd,
    }

    fn spoken() -> Spoken {
        let mut gateway = gateway("/usr/bin/wc");
        let (ours, theirs) = socketpair(
            AddressFamily::Unix,
            SockType::Stream,
            None,
            SockFlag::SOCK_CLOEXEC,
        )
        .unwrap();
        let process = gateway.process.as_mut().unwrap();
        let connection = Connection::new(ours).unwrap();
        let _own = std::mem::replace(&mut process.connection, connection);
        let pidfd = process.pidfd.as_ref().unwrap().try_clone().unwrap();
        Spoken {
            gateway,
            theirs,
            _own,
            pidfd,
        }
    }

    impl Spoken {
        /// Whether its process was killed, another one serves, and why that is reported.
        #[track_caller]
        fn assert_replaced(mut self, why: &str) {
            let mut ended = [PollFd::new(self.pidfd.as_fd(), PollFlags::POLLIN)];
            assert_eq!(
                poll(&mut ended, PollTimeout::from(10_000u16)),
                Ok(1),
                "{why}"
            );
            let found = self.gateway.take_found();
            assert_eq!(found.len(), 1, "{found:?}");
            assert!(found[0].why.contains(why), "{found:?}");
            assert!(found[0].why.contains("Another one serves now"), "{found:?}");
            assert!(self.gateway.process.is_some());
        }
    }

    fn framed(frame: &FromGateway) -> Vec<u8> {
        let mut bytes = Vec::new();
        broker_protocol::encode(frame, &mut bytes).unwrap();
        bytes
    }

    fn used() -> CredentialReport {
        CredentialReport {
            credential: 0,
            host: "a.example".into(),
            port: 443,
            method: "GET".into(),
            verdict: broker_protocol::gateway::CredentialVerdict::Used,
            count: 1,
            call: None,
        }
    }

    #[test]
    fn each_report_of_uses_is_answered_once_and_by_no_other_gateway() {
        let mut spoken = spoken();
        let credential = broker_protocol::gateway::CredentialSpec {
            name: "one".into(),
            placeholder: "placeholder".into(),
            hosts: vec!["a.example:443".into()],
            attach: broker_protocol::gateway::Attach::Bearer,
            uses: vec![],
        };
        spoken.gateway.start.spec.credentials = vec![credential];
        let report = || framed(&FromGateway::Used(used()));
        nix::unistd::write(&spoken.theirs, &report()).unwrap();
        assert_eq!(spoken.gateway.receive(), [GatewayEvent::Used(used())]);
        let mut recorded = Vec::new();
        broker_protocol::encode(&ToGateway::Recorded, &mut recorded).unwrap();
        spoken.gateway.recorded();
        // Nothing of it is left to be recorded.
        spoken.gateway.recorded();
        let mut answers = [0; 64];
        let length = nix::unistd::read(&spoken.theirs, &mut answers).unwrap();
        assert_eq!(answers[..length], recorded);
        nix::unistd::write(&spoken.theirs, &report()).unwrap();
        assert_eq!(spoken.gateway.receive().len(), 1);
        spoken.gateway.replace(&GatewayLoss::Ended);
        let waiting = |gateway: &Gateway| gateway.process.as_ref().unwrap().connection.waiting();
        let before = waiting(&spoken.gateway);
        spoken.gateway.recorded();
        assert_eq!(waiting(&spoken.gateway), before);
    }

    #[test]
    fn a_gateway_that_sends_nonsense_is_killed_and_followed_by_another() {
        let asked = HeldRequest {
            question: 1,
            call: 1,
            rule: 0,
            host: "a.example".into(),
            port: 443,
            method: "GET".into(),
            path: "/".into(),
            credential: None,
            effects: vec![],
        };
        let large = Authority {
            certificate: "x".repeat(broker_protocol::limit::CERTIFICATE + 1),
            key: vec![],
        };
        for bytes in [
            vec![0xff; 64],
            vec![4, 0, 0, 0, 0xff, 0xff, 0xff, 0xff],
            // A byte behind a frame's content.
            vec![6, 0, 0, 0, 0, 0, 0, 0, 0, 0],
            // No credential has this place.
            framed(&FromGateway::Wanted { credential: 0 }),
            framed(&FromGateway::Used(used())),
            // No rule asks.
            framed(&FromGateway::Asked(asked.clone())),
            framed(&FromGateway::Claimed(asked)),
            framed(&FromGateway::Serving(Some(large))),
        ] {
            let mut spoken = spoken();
            nix::unistd::write(&spoken.theirs, &bytes).unwrap();
            assert!(spoken.gateway.receive().is_empty());
            spoken.assert_replaced("broke the protocol");
        }
    }

    #[test]
    fn a_gateway_that_takes_nothing_is_killed_and_followed_by_another() {
        let lease = |number: u64| Lease {
            lease: number,
            opens: broker_protocol::Leased::Host("a.example:443".into()),
            call: 7,
            alone: false,
        };
        // As much as its socket holds, and then no more for too long.
        let mut waiting = spoken();
        while waiting.gateway.deadline().is_none() {
            waiting.gateway.set_leases((0..64).map(lease));
        }
        waiting.gateway.tick(Instant::now());
        assert!(waiting.gateway.take_found().is_empty());
        waiting.gateway.tick(Instant::now() + STUCK);
        waiting.assert_replaced("took nothing any more");
        // More than the broker holds for it, whatever the time.
        let mut full = spoken();
        while full.gateway.ended == 0 {
            full.gateway.set_leases((0..64).map(lease));
        }
        full.assert_replaced("took nothing any more");
    }

    #[test]
    fn certificates_in_a_root_are_not_for_the_gateway() {
        let root = PathBuf::from("/usr");
        let named = |file: &str, directory: &str| {
            let variables = [
                ("SSL_CERT_FILE", file),
                ("SSL_CERT_DIR", directory),
                ("A", "b"),
            ];
            let variables = variables.map(|(name, value)| (name.into(), value.into()));
            environment(&Variables::from(variables), &[&root])
        };
        assert_eq!(
            named("/etc/passwd", "/etc:/var"),
            [
                c"SSL_CERT_FILE=/etc/passwd".to_owned(),
                c"SSL_CERT_DIR=/etc:/var".to_owned()
            ]
        );
        assert!(named("/usr/bin/env", "/etc:/usr/lib").is_empty());
        assert!(named("/etc/is/not/there", "/etc:/bin/../usr/lib").is_empty());
        // Links on the way to elsewhere.
        assert!(named("/usr/bin/../../etc/passwd", "etc").is_empty());
    }
}
