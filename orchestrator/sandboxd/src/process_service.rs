//! The process service, by gRPC on port 9090: commands that run to their end, and processes with streams, signals and terminals.

use crate::body::ReplyBody;
use crate::calls::SandboxCalls;
use crate::commands::{CommandOrder, HowEnded, arguments, request_of, run};
use crate::fault::{FaultKind, SandboxFault};
use crate::grpc::{self, encoded};
use crate::messages::{
    EmptyMessage, ExecuteRequest, ExecuteResponse, ProcessConfig, Pty, ResizeTtyRequest,
    SendSignalRequest, StartRequest, StdinPayload, WriteStdinRequest,
};
use crate::paths::ProjectRoot;
use crate::processes::SandboxProcesses;
use crate::reflection;
use broker_protocol::{Signal, Stdin, Terminal, limit};
use hyper::body::{Bytes, Incoming};
use hyper::{Method, Request, Response};
use nix::libc::{SIGINT, SIGKILL, SIGTERM};
use orchestrator_engine::{Invocation, LiveOutput};
use prost::Message;
use std::rc::Rc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// Requests whose message is in memory before it is carried out; further ones wait.
pub(crate) const MESSAGES_MAX: usize = 32;
/// A terminal whose client names no size.
const TERMINAL: (u16, u16) = (24, 80);
/// What the paths of its methods begin with.
pub(crate) const SERVICE: &str = "/process.v1.ProcessService/";
/// What a terminal is for its programs.
const TERM: &str = "xterm-256color";

/// What the requests of this protocol need.
pub(crate) struct ProcessRoutes {
    pub calls: Rc<SandboxCalls>,
    pub root: Rc<ProjectRoot>,
    pub(crate) processes: Rc<SandboxProcesses>,
    pub messages: Semaphore,
}

impl ProcessRoutes {
    pub(crate) async fn answer(&self, request: Request<Incoming>) -> Response<ReplyBody> {
        if request.method() != Method::POST || !grpc::is_grpc(request.headers()) {
            return grpc::other_protocol();
        }
        let method = request.uri().path().to_owned();
        match method.strip_prefix(SERVICE) {
            Some("Execute") => grpc::unary(self.execute(request).await),
            Some("Start") => match self.start(request).await {
                Ok(body) => grpc::streamed(body),
                Err(fault) => grpc::unary(Err(fault)),
            },
            Some("WriteStdin") => grpc::unary(self.write_stdin(request).await),
            Some("SendSignal") => grpc::unary(self.send_signal(request).await),
            Some("ResizeTTY") => grpc::unary(self.resize_tty(request).await),
            None if reflection::METHODS.contains(&method.as_str()) => {
                grpc::streamed(reflection::follow(request))
            }
            Some(_) | None => grpc::unary(Err(SandboxFault::new(
                FaultKind::Unimplemented,
                format!("{method} is not served here"),
            ))),
        }
    }

    /// The message of a request, and the time that it may take.
    async fn read<M: Message + Default>(
        &self,
        request: Request<Incoming>,
    ) -> Result<(M, Option<Duration>), SandboxFault> {
        let time = grpc::timeout(request.headers())?;
        // The semaphore is never closed, so this succeeds in the end.
        let _room = self.messages.acquire().await.ok();
        Ok((grpc::message(request).await?, time))
    }

    fn order(
        &self,
        config: Option<ProcessConfig>,
        time: Option<Duration>,
    ) -> Result<CommandOrder, SandboxFault> {
        let config = config.unwrap_or_default();
        let directory = match config.cwd.as_deref() {
            None | Some("") => None,
            Some(cwd) => Some(self.root.path(cwd)?),
        };
        Ok(CommandOrder {
            command: arguments(&config.command, &config.env_vars)?,
            directory,
            time,
        })
    }

    async fn execute(&self, request: Request<Incoming>) -> Result<Bytes, SandboxFault> {
        let (asked, time) = self.read::<ExecuteRequest>(request).await?;
        let ended = run(&self.calls, self.order(asked.config, time)?).await?;
        let exit_code = match ended.how {
            HowEnded::Exited(code) => code,
            HowEnded::Signalled(_) | HowEnded::Limited => -1,
            HowEnded::TimedOut => {
                let message = "the command ran into the time limit of the policy or the request";
                return Err(SandboxFault::new(FaultKind::DeadlineExceeded, message));
            }
        };
        let response = ExecuteResponse {
            exit_code,
            stdout: ended.stdout,
            stderr: ended.stderr,
        };
        Ok(encoded(&response))
    }

    async fn start(&self, request: Request<Incoming>) -> Result<ReplyBody, SandboxFault> {
        let (asked, time) = self.read::<StartRequest>(request).await?;
        self.processes.check_room()?;
        let stdin = match &asked.pty {
            Some(pty) => Stdin::Terminal(terminal(pty)?),
            None => Stdin::Stream,
        };
        let has_terminal = asked.pty.is_some();
        let order = self.order(asked.config, time)?;
        let deadline = time.map(|time| Instant::now() + time);
        let time = order
            .time
            .or(Some(Duration::from_secs(limit::TIMEOUT_S.into())));
        let wanted = request_of(CommandOrder { time, ..order }, stdin);
        wanted
            .check()
            .map_err(|error| SandboxFault::invalid(error.to_string()))?;
        let call = self
            .calls
            .make(Invocation::Request(wanted), LiveOutput::Sanitized, deadline)
            .await?;
        // Others may have been started while it waited.
        self.processes.check_room()?;
        Ok(self.processes.follow(call, has_terminal))
    }

    async fn write_stdin(&self, request: Request<Incoming>) -> Result<Bytes, SandboxFault> {
        let (asked, _) = self.read::<WriteStdinRequest>(request).await?;
        let process = self.processes.find(asked.process_id)?;
        match asked.payload {
            Some(StdinPayload::Input(bytes)) => process.feed(&bytes).await?,
            Some(StdinPayload::Eof(EmptyMessage {})) => process.end_input()?,
            None => {}
        }
        Ok(encoded(&EmptyMessage {}))
    }

    async fn send_signal(&self, request: Request<Incoming>) -> Result<Bytes, SandboxFault> {
        let (asked, _) = self.read::<SendSignalRequest>(request).await?;
        let process = self.processes.find(asked.process_id)?;
        match asked.signal {
            SIGINT => process.signal(Signal::Interrupt),
            SIGTERM => process.signal(Signal::Terminate),
            SIGKILL => process.kill(),
            other => {
                let message = format!("the signal {other} is not one of SIGINT, SIGTERM, SIGKILL");
                return Err(SandboxFault::invalid(message));
            }
        }
        Ok(encoded(&EmptyMessage {}))
    }

    async fn resize_tty(&self, request: Request<Incoming>) -> Result<Bytes, SandboxFault> {
        let (asked, _) = self.read::<ResizeTtyRequest>(request).await?;
        let process = self.processes.find(asked.process_id)?;
        process.resize(side(asked.rows)?, side(asked.cols)?)?;
        Ok(encoded(&EmptyMessage {}))
    }
}

/// Rows or columns of a terminal.
fn side(count: u32) -> Result<u16, SandboxFault> {
    let count = u16::try_from(count).ok().filter(|count| *count > 0);
    count.ok_or_else(|| SandboxFault::invalid("a terminal has 1 to 65535 rows and columns"))
}

fn terminal(pty: &Pty) -> Result<Terminal, SandboxFault> {
    let (rows, columns) = match (pty.rows, pty.cols) {
        (0, _) | (_, 0) => TERMINAL,
        (rows, columns) => (side(rows)?, side(columns)?),
    };
    let term = TERM.to_owned();
    Ok(Terminal {
        rows,
        columns,
        term,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::OUTPUT_MAX;
    use crate::grpc::MESSAGE_MAX;

    #[test]
    fn the_largest_answer_fits_into_a_message() {
        let response = ExecuteResponse {
            exit_code: -1,
            stdout: vec![0; OUTPUT_MAX],
            // And what we add about it.
            stderr: vec![0; OUTPUT_MAX + 64 * 1024],
        };
        assert!(encoded(&response).len() < MESSAGE_MAX);
    }

    #[test]
    fn a_terminal_has_a_size() {
        let size = |rows, cols| {
            terminal(&Pty { cols, rows }).map(|terminal| (terminal.rows, terminal.columns))
        };
        assert_eq!(size(0, 0), Ok(TERMINAL));
        assert_eq!(size(50, 200), Ok((50, 200)));
        assert_eq!(size(65_535, 1), Ok((65_535, 1)));
        assert!(size(65_536, 1).is_err() && side(0).is_err());
    }
}
