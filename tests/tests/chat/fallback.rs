//! Another model goes on where the first one's answers are too poor, and only where the user has said so.

use super::chats::{Printed, chat, configure, play, script};
use super::vendors::Vendor;
use lazaret_tests::model_server::{ModelServer, Reply};
use lazaret_tests::{Place, World, once_test};
use serde_json::json;
use std::process::Command;

fn world() -> World {
    World::new(Place::any())
}

fn falling_back(world: &World, command: &mut Command, when: &str, to: &ModelServer) -> Printed {
    let config = format!(
        "cloud_fallback = {{ when = \"{when}\", provider = \"claude\", model = \"big\" }}\n\
         [providers.claude]\nbase_url = \"{}\"\n",
        to.url()
    );
    configure(world, command, &config);
    Printed::of(command.args(["--trust", "autonomous", "the very question"]))
}

fn notices(printed: &Printed) -> Vec<String> {
    let all = printed
        .all("notice")
        .into_iter()
        .filter(|notice| notice["kind"] == "cloud_fallback");
    all.map(|notice| notice["message"].as_str().unwrap().to_owned())
        .collect()
}

once_test!(an_answer_without_calls_is_made_again_by_another_model);
fn an_answer_without_calls_is_made_again_by_another_model() {
    let world = world();
    let small = script(&[("I cannot.", &[])]);
    let (vendor, call) = (
        Vendor::Claude,
        ("c1", "bash", json!({"command": "touch made"})),
    );
    let big = ModelServer::start(vec![
        vendor.answer("I can.", &[call]),
        vendor.answer("Done.", &[]),
    ]);
    // The control: nobody has said that anybody else may hear it, or only for another case.
    assert_eq!(
        Printed::of(play(&world, &small).arg("the very question")).text(),
        "I cannot."
    );
    let other = falling_back(&world, &mut play(&world, &small), "malformed_args", &big);
    assert!(notices(&other).is_empty() && big.asked().is_empty());
    let printed = falling_back(&world, &mut play(&world, &small), "no_tool_calls", &big);
    printed.finished.success();
    assert_eq!(printed.text(), "I cannot.I can.Done.");
    assert_eq!(
        notices(&printed),
        ["script: it has used no tool; big of claude goes on"]
    );
    assert!(world.project.join("made").exists());
    let heard = big.asked()[0].body.to_string();
    assert!(
        heard.contains("the very question") && heard.contains("I cannot."),
        "{heard}"
    );
}

once_test!(malformed_calls_are_put_right_once_and_then_another_model_goes_on);
fn malformed_calls_are_put_right_once_and_then_another_model_goes_on() {
    let world = world();
    let vendor = Vendor::OpenAiChat;
    let broken = |id: &str| {
        let mut reply = vendor.answer("", &[(id, "bash", json!({"command": "touch made"}))]);
        reply.body = reply.body.replace("touch made", "touch made\\\\");
        reply
    };
    let small = || {
        ModelServer::start(vec![
            broken("c1"),
            broken("c2"),
            vendor.answer("sorry", &[]),
        ])
    };
    let done = || Vendor::Claude.answer("Done.", &[]);
    let big = ModelServer::start(vec![done(), done()]);
    // The control: for the other case, the small one goes on until it ends without having used a tool.
    let first = small();
    let printed = falling_back(
        &world,
        &mut chat(&world, vendor, &first),
        "no_tool_calls",
        &big,
    );
    assert_eq!(
        (printed.text(), first.asked().len()),
        ("sorryDone.".to_owned(), 3)
    );
    assert_eq!(
        notices(&printed),
        ["a-model: it has used no tool; big of claude goes on"]
    );
    let second = small();
    let printed = falling_back(
        &world,
        &mut chat(&world, vendor, &second),
        "malformed_args",
        &big,
    );
    assert_eq!(
        (printed.text(), second.asked().len()),
        ("Done.".to_owned(), 2)
    );
    assert_eq!(
        notices(&printed),
        ["a-model: its calls are malformed; big of claude goes on"]
    );
    let (text, is_error) = Vendor::Claude
        .result_of(&big.asked()[1].body, "c2")
        .unwrap();
    assert!(
        text.contains("no JSON") && is_error,
        "every call has its answer: {text}"
    );
}

once_test!(a_run_that_uses_its_tools_stays_where_it_is);
fn a_run_that_uses_its_tools_stays_where_it_is() {
    let world = world();
    let small = script(&[
        ("One.", &[("bash", json!({"command": "true"}))]),
        ("Two.", &[]),
    ]);
    let big = ModelServer::start(vec![]);
    let printed = falling_back(&world, &mut play(&world, &small), "always", &big);
    assert_eq!(printed.text(), "One.Two.");
    assert!(notices(&printed).is_empty() && big.asked().is_empty());
}

once_test!(a_fallback_that_cannot_be_asked_ends_the_run_with_its_error);
fn a_fallback_that_cannot_be_asked_ends_the_run_with_its_error() {
    let world = world();
    let small = script(&[("I cannot.", &[])]);
    let refused =
        json!({"type": "error", "error": {"type": "authentication_error", "message": "no"}});
    let big = ModelServer::start(vec![Reply::status(401, &refused)]);
    let printed = falling_back(&world, &mut play(&world, &small), "always", &big);
    printed.finished.expect(1);
    assert_eq!(printed.one("error")["code"], "auth_error");
}

once_test!(fallback_without_a_key_is_reported_and_the_run_keeps_its_model);
fn fallback_without_a_key_is_reported_and_the_run_keeps_its_model() {
    let world = world();
    let mut command = play(&world, &script(&[("I cannot.", &[])]));
    configure(
        &world,
        &mut command,
        "cloud_fallback = { when = \"always\", provider = \"claude\", model = \"big\" }\n",
    );
    let printed = Printed::of(command.env_remove("ANTHROPIC_API_KEY").arg("x"));
    assert_eq!(
        (printed.text().as_str(), printed.reason()),
        ("I cannot.", "done")
    );
    assert!(
        notices(&printed)[0].contains("cannot go on: no key for claude"),
        "{:?}",
        notices(&printed)
    );
}
