//! A long-lived program in a cell. It has a session of its own with the executor, with its own profile, network and zones, so that
//! one such program sees nothing of another.

use crate::executor::{
    Dial, ExecutorConnection, Greeting, RequestControl, RequestEvent, RunningRequest,
};
use crate::pending::ApprovalAnswer;
use broker_protocol::{
    Channel, ConnectionReport, Ended, Extent, Failed, Findings, Open, Opened, Outcome, Request,
    Service, Wants,
};
use orchestrator_results::render::FinishedRequest;

/// A long-lived program. Dropping it ends it and its session.
pub struct RunningService {
    running: RunningRequest,
    connection: ExecutorConnection,
}

/// An event of a long-lived program.
#[derive(Debug)]
pub enum ServiceEvent {
    Output {
        /// True for standard error, false for standard output.
        stderr: bool,
        /// Output cut anywhere, also within a character.
        bytes: Vec<u8>,
    },
    /// The policy requires approval from another channel (`lazaret approve`); the program has not started.
    WaitsForApproval,
    /// It has ended or could not start: the last event.
    Ended(Box<Result<FinishedRequest, Failed>>),
}

#[derive(Clone)]
pub struct ServiceInput(RequestControl);

impl ServiceInput {
    /// Feeds it as fast as the program reads: waits for ever if it reads nothing. Only one task at a time.
    pub async fn feed(&self, bytes: &[u8]) {
        self.0.feed(bytes).await;
    }

    pub fn end(&self) {
        self.0.end_input();
    }
}

impl RunningService {
    /// Opens a session and starts the program that `service` derives from it. Its connections are reported to `observe`. Needs a
    /// local runtime.
    ///
    /// # Errors
    /// If no session opens.
    pub async fn start(
        executor: &dyn Dial,
        open: Open,
        service: impl FnOnce(&Opened) -> Result<Service, Failed>,
        observe: impl Fn(&ConnectionReport) + 'static,
    ) -> Result<Self, Failed> {
        let connection = Greeting::open(executor, open)?.opened().await?;
        connection.hear_connections(observe);
        let service = service(connection.opened())?;
        let running = connection
            .start(Request::Service(service), Wants::default())
            .await?;
        Ok(Self {
            running,
            connection,
        })
    }

    /// The executor's report of its session.
    pub fn opened(&self) -> &Opened {
        self.connection.opened()
    }

    pub fn input(&self) -> ServiceInput {
        ServiceInput(self.running.control())
    }

    /// The next event. Approves questions that can be answered here, since the user has configured which programs are long-lived.
    /// Cancel-safe.
    pub async fn next(&mut self) -> ServiceEvent {
        loop {
            match self.running.next().await {
                RequestEvent::Output { stderr, bytes } => {
                    return ServiceEvent::Output { stderr, bytes };
                }
                RequestEvent::Asked(challenge) if challenge.channel == Channel::Separate => {
                    return ServiceEvent::WaitsForApproval;
                }
                // Whoever has configured the program has not asked for this.
                RequestEvent::Asked(challenge) if challenge.covers.is_of_program() => {
                    self.running.answer(&challenge, ApprovalAnswer::No);
                }
                RequestEvent::Asked(challenge) => {
                    self.running
                        .answer(&challenge, ApprovalAnswer::Yes(Extent::Once));
                }
                // It keeps waiting until its time is over.
                RequestEvent::Rejected(_)
                | RequestEvent::Suspended
                | RequestEvent::Seen(_)
                // They are observed.
                | RequestEvent::Connection(_) => {}
                RequestEvent::Ended(ended) => return ServiceEvent::Ended(ended),
            }
        }
    }

    /// Findings in the project since the last time they were taken.
    pub fn take_found(&self) -> Findings {
        self.connection.found().take()
    }

    /// Reports that `bytes` of its output were consumed, so that as many more may come.
    pub fn taken(&mut self, bytes: usize) {
        self.running.taken(bytes);
    }
}

/// How a program ended, as words to follow its name.
pub fn how_ended(ended: &Result<FinishedRequest, Failed>) -> String {
    let finished = match ended {
        Ok(finished) => finished,
        Err(failed) => return format!("is lost: {}", failed.message),
    };
    match &finished.outcome {
        Outcome::Ran(ran) => match ran.ended {
            Ended::Exited(code) => format!("has ended with code {code}"),
            Ended::Signalled(number) => format!("was ended by signal {number}"),
            Ended::TimedOut => "was ended at the time limit of the scope".to_owned(),
            Ended::Idle => "was ended because it printed nothing".to_owned(),
            Ended::Cancelled => "was ended".to_owned(),
            Ended::Limited(limit) => format!("was ended by the limit `{}`", limit.name()),
            Ended::NotStarted(errno) => {
                let error = std::io::Error::from_raw_os_error(errno);
                format!(
                    "could not be started: {error}; its program must be one that its profile shows"
                )
            }
            Ended::NoDirectory(errno) => {
                let error = std::io::Error::from_raw_os_error(errno);
                format!("could not be started in its directory: {error}")
            }
        },
        Outcome::Refused(refused) => format!("may not be started: {refused}"),
        Outcome::Failed(failed) => format!("could not be started: {}", failed.message),
        Outcome::Broken(broken) => broken.to_string(),
        Outcome::Answered | Outcome::Granted => "was answered as something else".to_owned(),
    }
}
