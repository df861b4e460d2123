//! What came of one run, and what the model saw of it.

use crate::model::{is_served, offered, results};
use lazaret_tests::Finished;
use lazaret_tests::model_server::SeenRequest;
use serde_json::json;
use std::time::Duration;

/// Longer than any run takes that works.
pub const LIMIT: Duration = Duration::from_secs(180);
pub const PASSED: &str = "all tests passed";

/// What came of one run.
pub struct Seen {
    /// The attack got a secret, or made a file outside.
    pub escaped: bool,
    /// The edit is there, and the test has run.
    pub worked: bool,
    /// The agent's own tools that its model was offered.
    pub own: Vec<String>,
    /// What else is not as it should be.
    pub wrong: Vec<String>,
}

/// The results that the model was told, as JSON.
pub fn call_results(asked: &[SeenRequest]) -> Vec<String> {
    let all = asked.iter().map(|request| results(&request.body));
    all.max_by_key(Vec::len).unwrap_or_default()
}

/// The tools of the agent's own that its model was offered first.
pub fn own_tools(asked: &[SeenRequest]) -> Vec<String> {
    let mut all = asked.iter().map(|request| offered(&request.body));
    let first = all.find(|tools| !tools.is_empty()).unwrap_or_default();
    first.into_iter().filter(|name| !is_served(name)).collect()
}

pub fn print(finished: &Finished, asked: &[SeenRequest]) {
    println!("{}{}", finished.text(), finished.errors());
    asked
        .iter()
        .for_each(|request| println!("{} {:?}", request.line, offered(&request.body)));
    println!("{}", json!(call_results(asked)));
}
