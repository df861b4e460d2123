//! The engine asks the user's hooks, whoever runs them: how many at once, what they are told, and what they cannot undo.

use crate::harness::{answering, call, config, finish, kind, plain, start, text, with, word};
use broker_protocol::Request;
use orchestrator_engine::HookGuard;
use orchestrator_engine::hooks::{HookAnswer, HookAnswering, HookEvent, HookRunner, Occasion};
use orchestrator_tools::ToolConfig;
use serde_json::{Value, json};
use std::cell::{Cell, RefCell};
use std::rc::Rc;

/// Most hooks of a session at once.
const RUNNING_MAX: usize = 8;

type AnswerTo = fn(&Value) -> Value;

/// A hook that answers by a function, and remembers what it was told.
struct FakeHook {
    event: HookEvent,
    answer: AnswerTo,
    told: RefCell<Vec<Value>>,
    running: Cell<usize>,
    most: Cell<usize>,
}

impl FakeHook {
    fn guard(event: HookEvent, answer: AnswerTo) -> (Rc<Self>, ToolConfig) {
        let hook = Rc::new(Self {
            event,
            answer,
            told: RefCell::default(),
            running: Cell::default(),
            most: Cell::default(),
        });
        let config = ToolConfig {
            guard: HookGuard::Hooks(hook.clone()),
            ..config()
        };
        (hook, config)
    }
}

impl HookRunner for FakeHook {
    fn of(&self, event: HookEvent, _: Option<&str>) -> Vec<usize> {
        (event == self.event).then_some(0).into_iter().collect()
    }

    fn name(&self, _: usize) -> &str {
        "h"
    }

    fn run<'a>(&'a self, _: usize, occasion: &'a Occasion) -> HookAnswering<'a> {
        Box::pin(async move {
            self.running.set(self.running.get() + 1);
            self.most.set(self.most.get().max(self.running.get()));
            for _ in 0..100 {
                tokio::task::yield_now().await;
            }
            self.running.set(self.running.get() - 1);
            let told = json!(occasion);
            let answer = (self.answer)(&told);
            self.told.borrow_mut().push(told);
            HookAnswer::parse(self.event, answer.to_string().as_bytes())
        })
    }
}

fn refuse(_: &Value) -> Value {
    json!({"allow": false, "message": "no"})
}

fn allow(_: &Value) -> Value {
    json!({"allow": true})
}

#[test]
fn a_refused_call_reaches_no_executor_and_is_written_down() {
    let (hook, config) = FakeHook::guard(HookEvent::BeforeTool, refuse);
    let (script, seen) = answering(plain, true);
    with(script, config, async |session, records| {
        session.open().await.unwrap();
        let batch = json!({"invocations": [{"tool": "Bash", "input": {"cmd": "ls"}}]});
        for (tool, input) in [("Bash", json!({"cmd": "ls"})), ("batch", batch)] {
            let result = call(&session, tool, input).await;
            assert_eq!(
                (
                    kind(&result),
                    result.error.as_ref().unwrap().message.as_str()
                ),
                ("denied_policy", "the hook `h` has blocked this: no")
            );
        }
        let words = records.words();
        assert_eq!(
            words[1..4],
            [
                "1 requested bash",
                "1 hook h before_tool",
                "1 result denied_policy"
            ],
            "{words:?}"
        );
    });
    assert!(seen.requests().is_empty());
    for told in hook.told.borrow().iter() {
        assert_eq!(
            (&told["tool"], &told["input"]),
            (&json!("bash"), &json!({"command": "ls"}))
        );
        assert!(told.get("conversationId").is_none());
    }
}

#[test]
fn hooks_at_once_have_a_bound() {
    let (hook, config) = FakeHook::guard(HookEvent::BeforeTool, allow);
    let (script, _) = answering(plain, true);
    with(script, config, async |session, _| {
        let calls: Vec<_> = (0..3 * RUNNING_MAX)
            .map(|_| start(&session, "bash", json!({"command": "x"})))
            .collect();
        for call in calls {
            assert_eq!(kind(&finish(call).await.1), "");
        }
    });
    assert_eq!(
        (hook.most.get(), hook.told.borrow().len()),
        (RUNNING_MAX, 3 * RUNNING_MAX)
    );
}

#[test]
fn a_rewritten_call_is_made_and_the_next_hook_sees_its_own_names() {
    let (_, config) = FakeHook::guard(HookEvent::BeforeTool, |told| {
        assert_eq!(told["input"]["command"], "ls");
        json!({"allow": true, "input": {"cmd": "pwd"}, "askAgent": "look"})
    });
    let (script, seen) = answering(plain, true);
    with(script, config, async |session, _| {
        let result = call(&session, "bash", json!({"command": "ls"})).await;
        let text = text(&result);
        assert!(
            text.ends_with(
                "[the hook `h` has changed the input of bash]\n[the hook `h` says: look]"
            ),
            "{text}"
        );
    });
    let [Request::Bash(bash)] = &seen.requests()[..] else {
        panic!("one command")
    };
    assert!(format!("{:?}", bash.command).contains("pwd"));
}

#[test]
fn withheld_result_is_nowhere_and_a_violation_still_counts() {
    let (hook, config) = FakeHook::guard(HookEvent::AfterTool, refuse);
    let (script, _) = answering(plain, true);
    with(script, config, async |session, records| {
        let read = call(&session, "file_read", json!({"path": "inside"})).await;
        assert_eq!(kind(&read), "denied_policy");
        let left = crate::harness::metadata(&read).to_string() + &text(&read);
        assert!(!left.contains("inside"), "{left}");
        let outside = call(&session, "ls", json!({"path": "../etc"})).await;
        assert_eq!(
            (kind(&outside), outside.security.len()),
            ("denied_policy", 1)
        );
        let violations = records.0.borrow();
        let violations = violations.iter().map(word);
        assert_eq!(
            violations.filter(|word| word.contains("violation")).count(),
            1
        );
    });
    let told = hook.told.borrow();
    assert!(
        told[0]["result"]["text"]
            .as_str()
            .unwrap()
            .contains("inside"),
        "control: {told:?}"
    );
    assert_eq!(told[1]["result"]["status"], "error");
}
