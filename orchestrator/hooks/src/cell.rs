//! Runs hooks: each run has a cell and a session of its own with the executor, which end with it.

use crate::hooks::{Hook, Hooks};
use crate::store;
use broker_protocol::{
    Command, Ended, Failed, Open, Outcome, Permission, Scope, Service, Trust, Zone, ZonePath,
};
use orchestrator_engine::executor::Dial;
use orchestrator_engine::hooks::{HookAnswer, HookAnswering, HookEvent, HookRunner, Occasion};
use orchestrator_engine::service::{RunningService, ServiceEvent, how_ended};
use orchestrator_launch::hooks::{HookSource, UserHooks};
use orchestrator_results::render::FinishedRequest;
use std::rc::Rc;
use std::time::Duration;
use tokio::time::timeout;

/// Maximum bytes of a hook's input.
const INPUT_MAX: usize = 32 << 20;
/// Maximum bytes of its answer.
const ANSWER_MAX: usize = 1 << 20;
/// Bytes of its standard error to show if it fails.
const ERRORS: usize = 500;

/// Reads the program from the beginning of standard input, so that the accepted program runs, and leaves the rest of the input to
/// it. The script contains no foreign text: length and arguments are passed as arguments.
const LAUNCH: &str = r#"set -e
umask 077
program="$TMPDIR/hook"
head -c "$1" > "$program"
chmod 700 "$program"
shift
exec "$program" "$@""#;

/// Runs the hooks of the settings, each time in a new cell.
struct CellHooks(Rc<Hooks>);

/// These hooks, each in a cell, for the sessions of front ends.
pub fn for_sessions(hooks: Rc<Hooks>) -> UserHooks {
    match hooks.are_none() {
        true => UserHooks::none(),
        false => UserHooks::new(Rc::new(CellHooks(hooks))),
    }
}

impl HookSource for CellHooks {
    fn of_session(&self, open: &Open, dial: Rc<dyn Dial>) -> Rc<dyn HookRunner> {
        Rc::new(CellRunner::new(self.0.clone(), open, dial))
    }
}

/// Runs the hooks of one session.
struct CellRunner {
    hooks: Rc<Hooks>,
    open: Open,
    directory: Option<ZonePath>,
    dial: Rc<dyn Dial>,
}

impl CellRunner {
    fn new(hooks: Rc<Hooks>, session: &Open, dial: Rc<dyn Dial>) -> Self {
        let scope = session.scope.as_ref().map(scope);
        let is_held = scope
            .as_ref()
            .is_some_and(|scope| scope.permissions.iter().any(|one| !one.paths.is_empty()));
        let open = Open {
            scope,
            // Programs in the settings were already accepted.
            trust: Trust::Autonomous,
            capture: Some(0),
            // The program belongs to the user's system, even if commands see an image.
            image: None,
            ..Open::new(session.project.clone())
        };
        // It may not see the root of the project.
        let directory = is_held.then(|| ZonePath::root(Zone::Central));
        Self {
            hooks,
            open,
            directory,
            dial,
        }
    }

    fn open(&self, hook: &Hook) -> Open {
        Open {
            central: store::central(&hook.entry.name, &self.open.project)
                .display()
                .to_string(),
            profile: hook.entry.profile.clone(),
            ..self.open.clone()
        }
    }

    async fn answer(&self, hook: &Hook, occasion: &Occasion) -> Result<HookAnswer, String> {
        let program = match (hook.problem(), &hook.program) {
            (None, Ok(program)) => program,
            (problem, _) => return Err(problem.unwrap_or_else(|| "is not run".to_owned())),
        };
        let json =
            serde_json::to_vec(occasion).map_err(|error| format!("cannot be told: {error}"))?;
        if json.len() > INPUT_MAX {
            return Err(format!("would be told more than {INPUT_MAX} bytes"));
        }
        let arguments = hook.args.iter().map(|argument| argument.expand(occasion));
        let length = program.len().to_string();
        let words = ["bash", "-c", LAUNCH, "hook", &length]
            .into_iter()
            .map(str::to_owned)
            .chain(arguments);
        let service = Service {
            name: hook.entry.name.clone(),
            command: Command::Arguments(words.map(|word| word.into_bytes().into()).collect()),
            directory: self.directory.clone(),
            environment: Vec::new(),
        };
        let limit = Duration::from_secs(hook.entry.timeout_s.into());
        // Dropping this future ends its session and everything in it.
        let answered = timeout(
            limit,
            self.exchange(self.open(hook), service, &[program, &json]),
        )
        .await;
        let bytes = answered
            .unwrap_or_else(|_| Err(format!("has not answered within {} s", limit.as_secs())))?;
        HookAnswer::parse(occasion.event, &bytes)
    }

    /// Runs a program with `input`; returns its output if it succeeded.
    async fn exchange(
        &self,
        open: Open,
        service: Service,
        input: &[&[u8]],
    ) -> Result<Vec<u8>, String> {
        let no_cell = |failed: Failed| format!("has no cell: {}", failed.message);
        let started = RunningService::start(&*self.dial, open, |_| Ok(service), |_| ());
        let mut running = started.await.map_err(no_cell)?;
        let to = running.input();
        let feed = async {
            for bytes in input {
                to.feed(bytes).await;
            }
            to.end();
            std::future::pending::<Result<Vec<u8>, String>>().await
        };
        tokio::select! {
            heard = hear(&mut running) => heard,
            never = feed => never,
        }
    }
}

async fn hear(running: &mut RunningService) -> Result<Vec<u8>, String> {
    let (mut answer, mut errors) = (Vec::new(), Vec::new());
    loop {
        match running.next().await {
            ServiceEvent::Output { stderr, bytes } => {
                if stderr {
                    errors.extend(bytes.iter().take(ERRORS.saturating_sub(errors.len())));
                } else {
                    answer.extend_from_slice(&bytes);
                }
                if answer.len() > ANSWER_MAX {
                    return Err(format!("gave more than {ANSWER_MAX} bytes"));
                }
                running.taken(bytes.len());
            }
            // Its time limit keeps running.
            ServiceEvent::WaitsForApproval => {}
            ServiceEvent::Ended(ended) if is_good(&ended) => return Ok(answer),
            ServiceEvent::Ended(ended) => {
                let said = String::from_utf8_lossy(&errors);
                let said = said.trim();
                let colon = if said.is_empty() { "" } else { ": " };
                return Err(format!("{}{colon}{said}", how_ended(&ended)));
            }
        }
    }
}

fn is_good(ended: &Result<FinishedRequest, Failed>) -> bool {
    let outcome = ended.as_ref().map(|finished| &finished.outcome);
    matches!(outcome, Ok(Outcome::Ran(ran)) if ran.ended == Ended::Exited(0))
}

/// The scope of a hook's session: as much of the project as the session's own scope shows to its tools.
fn scope(session: &Scope) -> Scope {
    let permitted = || session.permissions.iter().filter(|one| one.allowed);
    let mut paths = Vec::new();
    if permitted().all(|one| !one.paths.is_empty()) {
        paths = permitted().flat_map(|one| one.paths.clone()).collect();
        paths.push("central:**".to_owned());
    }
    let tool = "bash".to_owned();
    Scope {
        permissions: vec![Permission {
            tool,
            allowed: true,
            paths,
            timeout_s: None,
            network: false,
        }],
    }
}

impl HookRunner for CellRunner {
    fn of(&self, event: HookEvent, tool: Option<&str>) -> Vec<usize> {
        let hearing = |(at, hook): (usize, &Hook)| hook.entry.hears(event, tool).then_some(at);
        self.hooks.iter().enumerate().filter_map(hearing).collect()
    }

    fn name(&self, hook: usize) -> &str {
        self.hooks.get(hook).map_or("", |hook| &hook.entry.name)
    }

    fn run<'a>(&'a self, hook: usize, occasion: &'a Occasion) -> HookAnswering<'a> {
        Box::pin(async move {
            match self.hooks.get(hook) {
                Some(hook) => self.answer(hook, occasion).await,
                None => Err("is none".to_owned()),
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hook_sees_no_more_of_a_project_than_a_scope_shows() {
        let permission = |allowed: bool, paths: &[&str]| Permission {
            tool: "file_read".into(),
            allowed,
            paths: paths.iter().map(ToString::to_string).collect(),
            timeout_s: None,
            network: true,
        };
        let paths = |permissions: Vec<Permission>| {
            let scope = scope(&Scope { permissions });
            assert!(!scope.permissions[0].network);
            scope.permissions[0].paths.join(" ")
        };
        assert_eq!(
            paths(vec![permission(true, &["src/**"]), permission(false, &[])]),
            "src/** central:**"
        );
        assert_eq!(
            paths(vec![permission(true, &["src/**"]), permission(true, &[])]),
            ""
        );
        assert_eq!(paths(vec![permission(false, &[])]), "central:**");
    }
}
