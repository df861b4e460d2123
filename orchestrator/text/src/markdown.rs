//! Text of strangers in a document of Markdown.

/// `text` as a block of code: nothing in it is a link, an image, a comment or the end of the block.
///
/// The fence is longer than any run of backticks in `text` (CommonMark 0.31, 4.5).
pub fn code_block(text: &str) -> String {
    let longest = text.split(|c| c != '`').map(str::len).max().unwrap_or(0);
    let fence = "`".repeat(3.max(longest + 1));
    format!("{fence}\n{text}\n{fence}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fence_is_longer_than_any_run_inside() {
        assert_eq!(code_block("ls"), "```\nls\n```");
        assert_eq!(code_block("a `b` <!--"), "```\na `b` <!--\n```");
        assert_eq!(code_block("x\n```\n<!--"), "````\nx\n```\n<!--\n````");
        assert_eq!(
            code_block(&"`".repeat(9)),
            format!("{0}\n{1}\n{0}", "`".repeat(10), "`".repeat(9))
        );
    }
}
