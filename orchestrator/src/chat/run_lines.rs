//! The lines that runs of the agent have in the log of this run.

use orchestrator_agent::publish::Listener;
use orchestrator_agent::run_lines::AgentLines;
use orchestrator_launch::runlog::RunLog;
use std::rc::Rc;

/// Records runs of the agent in the log of this run.
pub(crate) fn run_lines(log: Rc<RunLog>) -> Rc<dyn Listener> {
    Rc::new(AgentLines(move |kind, payload| {
        log.add_of_run(kind, payload)
    }))
}
