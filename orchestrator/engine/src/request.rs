//! One request to the executor from start to end: publishes its output and answers its questions.

use crate::caller::Caller;
use crate::context::LiveOutput;
use crate::engine::Engine;
use crate::executor::{ExecutorConnection, HadPaths, RequestEvent, RunningRequest};
use crate::pending::ApprovalAnswer;
use crate::publish::{FrontEndGone, RawEvent};
use crate::spans;
use broker_protocol::{
    CallId, Challenge, Channel, Ended, ErrorKind, Failed, FileAnswer, FileReply, GrantFault,
    Outcome, Request,
};
use orchestrator_results::metadata::Metadata;
use orchestrator_results::profile::ModelProfile;
use orchestrator_results::render::FinishedRequest;
use orchestrator_results::result::ToolResult;
use orchestrator_results::subject::Subject;
use orchestrator_text::numbered::LineForm;
use orchestrator_text::sanitize::SanitizedStream;
use std::pin::Pin;
use std::time::Duration;
use tokio::time::timeout;
use tracing::{Instrument, Span};

/// A request that has ended.
pub struct EndedRequest {
    pub number: CallId,
    pub subject: Subject,
    pub finished: Result<FinishedRequest, Failed>,
    /// Hosts granted to it beyond those of the session.
    pub(crate) leased: Vec<String>,
}

impl EndedRequest {
    /// The result of a call that consists of this request.
    pub(crate) fn result(
        self,
        engine: &Engine,
        connection: &ExecutorConnection,
        profile: &'static ModelProfile,
    ) -> ToolResult {
        let mut result = engine
            .renderer(connection, profile)
            .render(&self.subject, self.finished);
        result.metadata.leases = self.leased;
        result.numbered(self.number)
    }
}

/// Makes a request and returns its result as the call's; a file is shown in `form`.
pub(crate) async fn result(
    engine: &Engine,
    connection: &ExecutorConnection,
    caller: &Caller,
    mut request: Request,
    form: LineForm,
    profile: &'static ModelProfile,
) -> ToolResult {
    profile.widen(&mut request);
    let is_command = matches!(request, Request::Bash(_));
    let listening = is_command.then(|| engine.refused_hosts.listen());
    match run(connection, caller, request).await {
        Ok(mut ended) => {
            ended.subject.form = form;
            if let (Ok(finished), Some(listening)) = (&mut ended.finished, &listening) {
                finished.denied.append(listening.refused(ended.number));
            }
            ended.result(engine, connection, profile)
        }
        Err(result) => *result,
    }
}

/// Makes a request whose reply is used here; returns the reply with its metadata.
pub(crate) async fn exchange(
    engine: &Engine,
    connection: &ExecutorConnection,
    caller: &Caller,
    request: Request,
) -> Result<(FileReply, Metadata), Box<ToolResult>> {
    let mut ended = run(connection, caller, request).await?;
    if let Ok(finished) = &mut ended.finished
        && let Some(Ok(_)) = &finished.answer
        && let Some(Ok(reply)) = finished.answer.take()
    {
        let layers = finished.layers.iter().map(|layer| layer.name()).collect();
        return Ok((
            reply,
            Metadata {
                usage: finished.usage.into(),
                layers,
                ..Metadata::default()
            },
        ));
    }
    Err(Box::new(ended.result(
        engine,
        connection,
        caller.profile(engine),
    )))
}

/// Makes a request, unless its call has already been cancelled.
pub(crate) async fn run(
    connection: &ExecutorConnection,
    caller: &Caller,
    request: Request,
) -> Result<EndedRequest, Box<ToolResult>> {
    let span = spans::execution(request.tool());
    make(connection, caller, request).instrument(span).await
}

async fn make(
    connection: &ExecutorConnection,
    caller: &Caller,
    mut request: Request,
) -> Result<EndedRequest, Box<ToolResult>> {
    let subject = Subject::of(&request);
    let command = match &request {
        Request::Bash(bash) if bash.background => Some(HadPaths::None),
        Request::Bash(_) => Some(HadPaths::NotOver),
        _ => None,
    };
    if let Request::Bash(bash) = &mut request {
        bash.live |= caller.context.live != LiveOutput::Off;
    }
    let failed = |error| Box::new(ToolResult::failed(subject.tool.clone(), error));
    if caller.context.cancel.is_cancelled() {
        return Err(failed(cancelled()));
    }
    let preview = match request {
        Request::FileWrite(_) | Request::FileEdit(_) if caller.context.shows_changes => {
            ChangePreview::BeforeQuestion
        }
        _ => ChangePreview::None,
    };
    let mut running = tokio::select! {
        biased;
        started = connection.start(request, caller.context.wants.clone()) => started.map_err(failed)?,
        () = caller.context.cancel.cancelled() => return Err(failed(cancelled())),
    };
    let number = running.number();
    Span::current().record("audit_call", number);
    caller.started(running.control());
    // If the front end is gone, the call ends anyway.
    let _ = caller.publish(RawEvent::RequestSent(number)).await;
    let finished = follow(&mut running, caller, preview).await;
    if let Ok(finished) = &finished {
        Span::current().record("wall_us", finished.usage.wall_us);
    }
    let cancelled = |ran: &FinishedRequest| matches!(&ran.outcome, Outcome::Ran(ran) if ran.ended == Ended::Cancelled);
    let cancelled = finished.as_ref().is_ok_and(cancelled);
    let leased = command.map(|paths| match paths {
        HadPaths::NotOver if cancelled => HadPaths::All,
        other => other,
    });
    let leased = leased.map_or(Vec::new(), |paths| running.leased(paths));
    Ok(EndedRequest {
        number,
        subject,
        finished,
        leased,
    })
}

/// A call that ends before it begins.
pub(crate) fn cancelled() -> Failed {
    Failed {
        kind: ErrorKind::Cancelled,
        message: "the call was cancelled before it began".into(),
    }
}

struct PendingQuestion {
    challenge: Box<Challenge>,
    /// Why the previous answer was rejected.
    rejected: Option<GrantFault>,
    /// The file that the call would change, for a front end that shows changes.
    before: Option<Box<FileAnswer>>,
    /// Whether it can be asked now: it has no answer, and its preview, if it gets one, has come.
    is_ready: bool,
}

/// The answer to a question that was asked. A command may go on meanwhile, if the question is about what its program sends.
type PendingAnswer<'c> = Pin<Box<dyn Future<Output = ApprovalAnswer> + 'c>>;

/// Whether the file that a request changes is read before its question is put, to show the change.
#[derive(Clone, Copy, PartialEq, Eq)]
enum ChangePreview {
    BeforeQuestion,
    None,
}

/// How long the last word of a stream waits for its end, where only whole secrets are found: so a prompt is shown. A secret is known
/// if its parts are written in less time, also on a busy machine.
const PAUSE: Duration = Duration::from_secs(1);

/// Follows a request until it ends.
async fn follow(
    running: &mut RunningRequest,
    caller: &Caller,
    preview: ChangePreview,
) -> Result<FinishedRequest, Failed> {
    let (mut question, mut answer): (Option<PendingQuestion>, Option<PendingAnswer>) = (None, None);
    loop {
        let event = next(running, question.as_mut(), &mut answer, caller);
        let event = match caller.publisher.holds_a_word() {
            false => event.await,
            true => match timeout(PAUSE, event).await {
                Ok(event) => event,
                Err(_) => {
                    caller.publisher.show_held(SanitizedStream::pause).await;
                    continue;
                }
            },
        };
        match event {
            RequestEvent::Asked(challenge) if challenge.channel == Channel::Separate => {
                caller.publish_question(&challenge, None, None).await;
            }
            RequestEvent::Asked(challenge) => {
                answer = None;
                let looks = preview == ChangePreview::BeforeQuestion;
                if looks {
                    running.request_preview();
                }
                question = Some(PendingQuestion {
                    challenge,
                    rejected: None,
                    before: None,
                    is_ready: !looks,
                });
            }
            RequestEvent::Seen(before) => {
                if let Some(question) = &mut question {
                    (question.before, question.is_ready) = (before, true);
                }
            }
            // The request of its program has been answered without us, or nobody waits for the answer any more.
            RequestEvent::Rejected(GrantFault::NotWaiting) => (question, answer) = (None, None),
            RequestEvent::Rejected(fault) => {
                if let Some(question) = &mut question {
                    (question.rejected, question.is_ready) = (Some(fault), true);
                }
            }
            RequestEvent::Output { stderr, bytes } => {
                // Without a listener there is no reason to continue.
                let output = RawEvent::Output {
                    stderr,
                    bytes: &bytes,
                };
                if let Err(FrontEndGone) = caller.publish(output).await {
                    running.cancel();
                }
                running.taken(bytes.len());
            }
            RequestEvent::Connection(report) => {
                let shown = caller.publisher.show(RawEvent::Connection(&report));
                // If the front end is gone, the call ends anyway.
                drop(shown.await);
            }
            // As above.
            RequestEvent::Suspended => drop(caller.publish(RawEvent::Suspended).await),
            RequestEvent::Ended(ended) => return *ended,
        }
    }
}

/// The next event. Meanwhile, asks a pending question and sends its answer.
async fn next<'c>(
    running: &mut RunningRequest,
    question: Option<&mut PendingQuestion>,
    answer: &mut Option<PendingAnswer<'c>>,
    caller: &'c Caller,
) -> RequestEvent {
    if let Some(question) = question.filter(|question| question.is_ready) {
        let approval = answer.get_or_insert_with(|| {
            let (challenge, rejected) = (question.challenge.clone(), question.rejected);
            let before = question.before.take();
            Box::pin(async move {
                let before = before.as_deref();
                caller.answer_question(&challenge, rejected, before).await
            })
        });
        tokio::select! {
            event = running.next() => return event,
            approval = approval => {
                *answer = None;
                question.is_ready = false;
                running.answer(&question.challenge, approval);
            }
        }
    }
    running.next().await
}
