//! Gives git in cells the name and the email of the account's commits.
//!
//! Most repositories have none of their own, and without them `git commit` fails. The rest of the account's settings stays where it is:
//! it may hold tokens and names of programs. Where those settings include others, which may be for some repositories only, cells get
//! nothing: a commit under the wrong name would be worse than none.

use crate::git_settings::text;
use crate::spec::SandboxSpec;
use policies::{GitIdentity, git_identity};
use std::path::PathBuf;

/// Below a home. The account's `.gitconfig` comes after it, where a policy shows that.
const FILE: &str = ".config/git/config";

impl SandboxSpec {
    /// Gives git in cells the identity that these settings have, unless the policy shows the file itself.
    pub fn give_identity(&mut self, settings: &[PathBuf]) {
        let place = self.scratch.home.join(FILE);
        if !self.shows(&place)
            && let Some(content) = of(settings)
        {
            self.home_files.push((FILE, content));
        }
    }
}

/// The content of the file, from the settings in these files, of which later ones are stronger; `None` if they say nothing, or not
/// plainly.
fn of(files: &[PathBuf]) -> Option<Vec<u8>> {
    let mut all = GitIdentity::default();
    for file in files {
        let Some(text) = text(file).ok()? else { continue };
        let GitIdentity { name, email } = git_identity(&text)?;
        (all.name, all.email) = (name.or(all.name), email.or(all.email));
    }
    let lines = [("name", all.name), ("email", all.email)];
    let lines: String =
        lines.into_iter().filter_map(|(key, value)| Some(format!("\t{key} = \"{}\"\n", value?))).collect();
    (!lines.is_empty()).then(|| format!("[user]\n{lines}").into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn later_files_are_stronger_and_an_unclear_one_ends_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            fs::write(folder.path().join(name), text).unwrap();
            folder.path().join(name)
        };
        let files =
            [file("a", "[user]\nname = A\nemail = a\n"), file("b", "[user]\nemail = b\n"), "/none".into()];
        assert_eq!(of(&files).unwrap(), b"[user]\n\tname = \"A\"\n\temail = \"b\"\n");
        assert_eq!(of(&[file("c", "[core]\nbare = false\n")]), None);
        assert_eq!(of(&[files[0].clone(), file("d", "[include]\npath = x\n")]), None);
    }
}
