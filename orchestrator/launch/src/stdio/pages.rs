//! Text that a person has to read before a question: shown page by page, so that nothing has scrolled away when the question comes.

use crate::stdio::{print, terminal};
use broker_protocol::Failed;
use orchestrator_text::escape;
use std::io::{self, BufRead, IsTerminal, Read};

/// Maximum length of an answer in bytes.
const ANSWER_MAX: u64 = 100;
/// Minimum rows of a page, however low the terminal is.
const ROWS_MIN: usize = 5;

/// Shows `text`, whose lines are already safe to show: at a terminal page by page. Returns whether it was shown to its end.
///
/// # Errors
/// If standard output cannot be written.
pub fn show(text: &str) -> Result<bool, Failed> {
    if !is_terminal() {
        print::result(text.as_bytes())?;
        return Ok(true);
    }
    let (height, columns) = terminal::size();
    let pages = pages(text, usize::from(height), usize::from(columns));
    for (at, page) in pages.iter().enumerate() {
        print::result(page.as_bytes())?;
        let left = pages.len() - at - 1;
        if left > 0 {
            let ask = format!("lazaret: {left} more pages [Enter: next, q: no] ");
            if answer(&ask)?.is_none_or(|answer| !answer.is_empty()) {
                return Ok(false);
            }
        }
    }
    Ok(true)
}

/// Asks after [`show`]. Only `y` and `yes` are a yes; what was typed before the question is no answer.
///
/// # Errors
/// If nobody can be asked, or the answer cannot be read.
pub fn confirm(question: &str) -> Result<bool, Failed> {
    if !is_terminal() {
        return Err(Failed::invalid("nobody can be asked here; --yes accepts"));
    }
    let answer = answer(&format!("{question} [y/N] "))?.unwrap_or_default();
    Ok(["y", "yes"].contains(&answer.to_ascii_lowercase().as_str()))
}

fn is_terminal() -> bool {
    io::stdin().is_terminal() && io::stdout().is_terminal()
}

/// A line of the person's; `None` at the end of the input.
fn answer(question: &str) -> Result<Option<String>, Failed> {
    terminal::discard_input();
    print::result(question.as_bytes())?;
    let mut answer = String::new();
    let read = io::stdin().lock().take(ANSWER_MAX).read_line(&mut answer);
    match read {
        Ok(0) => Ok(None),
        Ok(_) => Ok(Some(answer.trim().to_owned())),
        Err(error) => Err(Failed::internal(format!("cannot read the answer: {error}"))),
    }
}

/// `text` in pages that fit a terminal with a row to spare for the question.
fn pages(text: &str, height: usize, columns: usize) -> Vec<String> {
    let rows: Vec<String> = text
        .lines()
        .flat_map(|line| escape::wrapped(line, columns))
        .map(|row| row + "\n")
        .collect();
    let rows_max = height.saturating_sub(1).max(ROWS_MIN);
    rows.chunks(rows_max).map(<[String]>::concat).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_and_its_question_fit_the_terminal() {
        let text: String = (0..30).map(|n| format!("{n}\n")).collect();
        let shown = pages(&text, 11, 80);
        let rows: Vec<usize> = shown.iter().map(|page| page.lines().count()).collect();
        assert_eq!(rows, [10, 10, 10]);
        assert_eq!(shown.concat(), text);
    }

    #[test]
    fn a_wrapped_line_counts_as_its_rows() {
        let text = format!("{}\nend\n", "x".repeat(100));
        let rows: Vec<usize> = pages(&text, 7, 20)
            .iter()
            .map(|page| page.lines().count())
            .collect();
        assert_eq!(rows, [6, 1]);
        assert_eq!(pages("a\n", 0, 0).len(), 1);
    }
}
