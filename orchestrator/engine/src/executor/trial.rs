//! One command that a person has just typed, in a session of its own (`doctor`), over a connection that is used for nothing else.

use crate::executor::error::ExecutorError;
use crate::executor::greeting::{Greeted, Greeting, out_of_turn};
use broker_protocol::{
    Bash, Challenge, Channel, Extent, Findings, FromBroker, Grant, Machine, Open, Opened, Outcome,
    Request, ToBroker,
};

/// A session that was opened to try it.
#[derive(Debug)]
pub struct Tried {
    pub opened: Opened,
    /// The outcome of a command in it; `None` if the policy asks a person about that first.
    pub outcome: Option<Outcome>,
    /// Findings in the project: by this command, or by earlier sessions that could not report it.
    pub found: Findings,
}

impl Greeting {
    /// Waits for the result of the probe, then tries to open a session and to run a command in it. Needs a runtime.
    ///
    /// # Errors
    /// If the executor does not answer.
    pub async fn probed(
        self,
        open: Open,
        command: Bash,
    ) -> Result<(Machine, Result<Tried, ExecutorError>), ExecutorError> {
        let mut greeted = self.greeted().await?;
        let machine = match greeted.next().await? {
            FromBroker::Probed(machine) => machine,
            other => return Err(out_of_turn(other)),
        };
        Ok((machine, greeted.tried(open, command).await))
    }

    /// Waits for the session and runs one command in it until it ends. Approves a question about it if the policy accepts that
    /// here, because a person has requested this very command. Needs a runtime.
    ///
    /// # Errors
    /// If no session opens or the connection is lost.
    pub async fn run(self, command: Bash) -> Result<(Opened, Outcome), ExecutorError> {
        let mut greeted = self.greeted().await?;
        let opened = greeted.opened().await?;
        greeted
            .send(&ToBroker::Call {
                call: 1,
                request: Request::Bash(command),
            })
            .await?;
        loop {
            match greeted.next().await? {
                FromBroker::Done {
                    call: 1, outcome, ..
                } => return Ok((opened, outcome)),
                FromBroker::Asked { call: 1, challenge }
                    if challenge.channel == Channel::Relay && !challenge.covers.is_of_program() =>
                {
                    let Challenge { digest, nonce, .. } = challenge;
                    let grant = Grant {
                        call: 1,
                        digest,
                        nonce,
                        extent: Extent::Once,
                    };
                    greeted.send(&ToBroker::Grant(grant)).await?;
                }
                FromBroker::Asked { call: 1, challenge }
                    if challenge.channel == Channel::Relay && challenge.covers.is_of_program() =>
                {
                    greeted.send(&ToBroker::Refuse { call: 1 }).await?;
                }
                // What was found is for results; a single command of ours has none.
                FromBroker::Asked { call: 1, .. } | FromBroker::Found(_) => {}
                other => return Err(out_of_turn(other)),
            }
        }
    }
}

impl Greeted {
    async fn tried(&mut self, open: Open, command: Bash) -> Result<Tried, ExecutorError> {
        self.send(&ToBroker::Open(open)).await?;
        let opened = self.opened().await?;
        self.send(&ToBroker::Call {
            call: 1,
            request: Request::Bash(command),
        })
        .await?;
        let mut found = Findings::default();
        let outcome = loop {
            match self.next().await? {
                FromBroker::Done {
                    call: 1, outcome, ..
                } => break Some(outcome),
                FromBroker::Asked { call: 1, .. } => break None,
                FromBroker::Found(more) => found.append(more),
                other => return Err(out_of_turn(other)),
            }
        };
        Ok(Tried {
            opened,
            outcome,
            found,
        })
    }
}
