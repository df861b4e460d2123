//! Tools for the to-do list, the memory and the goals.

use crate::accept::KEY;
use crate::input::ToolInput;
use crate::input_error::{FieldError, InputError, excerpt};
use crate::plan::{Plan, PlanContext};
use crate::state::memory::{Category, MemoryStep, VALUE_MAX};
use crate::state::todo::{MAX, Priority, Todo, TodoChange};
use crate::state::{StateCommand, goal};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Value, json};

/// Maximum characters of a list item.
const ITEM: usize = 2000;
/// Maximum number of list items.
const LIST: usize = 100;

fn required<T>(name: &str, value: Option<T>) -> Result<T, FieldError> {
    value.ok_or_else(|| FieldError::Missing(name.to_owned()))
}

/// Returns the list of things to do for this project.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TodoRead {}

impl ToolInput for TodoRead {
    fn plan(self, _: &PlanContext<'_>) -> Result<Plan, InputError> {
        Ok(Plan::State(StateCommand::TodoRead))
    }
}

/// Replaces the list of things to do for this project, or changes one entry of it.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TodoWrite {
    /// The whole new list; may be empty.
    #[schemars(length(max = MAX))]
    todos: Option<Vec<Todo>>,
    /// Instead of a list: change one entry.
    action: Option<TodoAction>,
    /// The entry to add.
    #[schemars(length(min = 1, max = 1000))]
    task: Option<String>,
    /// The entry to complete or remove: its id, or its place counted from 1.
    #[schemars(regex(pattern = KEY))]
    id: Option<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum TodoAction {
    Add,
    Complete,
    Remove,
    List,
}

impl ToolInput for TodoWrite {
    fn plan(self, _: &PlanContext<'_>) -> Result<Plan, InputError> {
        let change = match (self.todos, self.action) {
            (Some(list), None) => TodoChange::Replace(list),
            (None, Some(TodoAction::Add)) => TodoChange::Add(required("task", self.task)?),
            (None, Some(TodoAction::Complete)) => TodoChange::Complete(required("id", self.id)?),
            (None, Some(TodoAction::Remove)) => TodoChange::Remove(required("id", self.id)?),
            (None, Some(TodoAction::List)) => return Ok(Plan::State(StateCommand::TodoRead)),
            (None, None) => return Err(FieldError::Missing("todos".into()).into()),
            (Some(list), Some(_)) => {
                let expected = "either `todos` or `action`, not both";
                return Err(FieldError::expected("todos", expected, &json!(list)).into());
            }
        };
        Ok(Plan::State(StateCommand::TodoWrite(change)))
    }
}

/// Keeps values by name for this project, from session to session.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct Memory {
    /// What to do.
    action: MemoryAction,
    /// The name; not for `list`.
    #[schemars(regex(pattern = KEY))]
    key: Option<String>,
    /// The value, for `set`: a string, or any JSON of at most 16 KiB.
    value: Option<Value>,
    /// For `set`: what kind it is.
    category: Option<Category>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum MemoryAction {
    Get,
    Set,
    Delete,
    List,
}

impl ToolInput for Memory {
    fn plan(self, _: &PlanContext<'_>) -> Result<Plan, InputError> {
        let key = || required("key", self.key.clone());
        let action = match self.action {
            MemoryAction::List => MemoryStep::List,
            MemoryAction::Get => MemoryStep::Get(key()?),
            MemoryAction::Delete => MemoryStep::Delete(key()?),
            MemoryAction::Set => {
                let (key, mut value) = (key()?, required("value", self.value)?);
                value.sort_all_objects();
                if value.to_string().len() > VALUE_MAX {
                    let (name, found) = ("value".into(), excerpt(&value));
                    let rule = format!("expected at most {VALUE_MAX} bytes of JSON");
                    return Err(FieldError::Rule { name, rule, found }.into());
                }
                MemoryStep::Set {
                    key,
                    value,
                    category: self.category,
                }
            }
        };
        Ok(Plan::State(StateCommand::Memory(action)))
    }
}

/// Adds a goal for this project. It becomes the active one if none is.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GoalCreate {
    /// The result to reach.
    #[schemars(length(min = 1, max = 1000))]
    description: String,
    /// medium if absent.
    priority: Option<Priority>,
    /// Steps on the way.
    #[schemars(length(max = LIST), inner(length(min = 1, max = ITEM)))]
    #[serde(default)]
    subtasks: Vec<String>,
}

impl ToolInput for GoalCreate {
    fn plan(self, _: &PlanContext<'_>) -> Result<Plan, InputError> {
        let Self {
            description,
            priority,
            subtasks,
        } = self;
        Ok(Plan::State(StateCommand::Goals(goal::GoalChange::Create {
            description,
            priority,
            subtasks,
        })))
    }
}

/// Pauses the active goal, resumes another one, or begins a new one.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GoalSwitch {
    /// What to do.
    action: GoalAction,
    /// The goal to resume.
    #[schemars(regex(pattern = KEY))]
    goal_id: Option<String>,
    /// What the new goal is.
    #[schemars(length(min = 1, max = 1000))]
    description: Option<String>,
    /// That of the new goal.
    priority: Option<Priority>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum GoalAction {
    Pause,
    Resume,
    New,
}

impl ToolInput for GoalSwitch {
    fn plan(self, _: &PlanContext<'_>) -> Result<Plan, InputError> {
        let change = match self.action {
            GoalAction::Pause => goal::GoalChange::Pause,
            GoalAction::Resume => goal::GoalChange::Resume(required("goal_id", self.goal_id)?),
            GoalAction::New => goal::GoalChange::New {
                description: required("description", self.description)?,
                priority: self.priority,
            },
        };
        Ok(Plan::State(StateCommand::Goals(change)))
    }
}

/// Says that the active goal is reached.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GoalComplete {
    /// What was done.
    #[schemars(length(min = 1, max = 8000))]
    summary: String,
    /// Files or other things that came of it.
    #[schemars(length(max = LIST), inner(length(min = 1, max = ITEM)))]
    #[serde(default)]
    artifacts: Vec<String>,
}

impl ToolInput for GoalComplete {
    fn plan(self, _: &PlanContext<'_>) -> Result<Plan, InputError> {
        let Self { summary, artifacts } = self;
        Ok(Plan::State(StateCommand::Goals(
            goal::GoalChange::Complete { summary, artifacts },
        )))
    }
}

/// Returns the goals of this project and their checkpoints.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GoalList {}

impl ToolInput for GoalList {
    fn plan(self, _: &PlanContext<'_>) -> Result<Plan, InputError> {
        Ok(Plan::State(StateCommand::GoalList))
    }
}

pub(crate) use goal::Checkpoint;

impl ToolInput for Checkpoint {
    fn plan(self, _: &PlanContext<'_>) -> Result<Plan, InputError> {
        Ok(Plan::State(StateCommand::Checkpoint(self)))
    }
}
