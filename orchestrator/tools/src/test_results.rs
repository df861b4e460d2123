//! The result of a test suite.

use broker_protocol::Framework;
use orchestrator_results::metadata::Details;
use orchestrator_results::result::ToolResult;
use orchestrator_results::test_report::Counts;
use orchestrator_text::clean::Cleaner;

/// The result of a test suite, made from the result of its command.
pub(crate) fn suite_result(framework: Framework, mut result: ToolResult) -> ToolResult {
    result.metadata.tool = Framework::TOOL.into();
    let Details::Command { timeout, spill, .. } = std::mem::take(&mut result.metadata.details)
    else {
        return result;
    };
    let clean = Cleaner::default().clean(&result.text).into_owned();
    let tests = Counts::read(&String::from_utf8_lossy(&clean));
    // If the suite never ran, there is only the error.
    if !result.text.is_empty() || result.error.is_none() {
        result.text.splice(..0, headline(tests).into_bytes());
    }
    let (framework, partial) = (framework.name(), result.metadata.truncated.is_some());
    result.metadata.details = Details::Tests {
        framework,
        tests,
        partial,
        timeout,
        spill,
    };
    result
}

fn headline(counts: Option<Counts>) -> String {
    match counts {
        Some(Counts {
            passed,
            failed,
            skipped,
        }) => {
            format!("{passed} passed, {failed} failed, {skipped} skipped\n")
        }
        None => "there are no counts of tests in this output\n".to_owned(),
    }
}
