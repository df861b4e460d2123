//! Gives git in cells what it needs of the account's settings: the name and the email of commits, and which filters files go through.
//!
//! Most repositories have none of their own, and without them `git commit` fails. The rest of the account's settings stays where it is:
//! it may hold tokens and names of programs. Where those settings include others, which may be for some repositories only, cells get
//! no name: a commit under the wrong name would be worse than none.
//!
//! A filter that git does not know it leaves out without a word, and commits what should have been filtered: the content of large files,
//! or of files that are to be encrypted. So git-lfs is set up as `git lfs install` does it, and git stops at any other filter of the account.

use crate::git_settings::text;
use crate::spec::SandboxSpec;
use policies::{GitIdentity, git_filter_drivers, git_identity};
use std::collections::BTreeSet;
use std::path::PathBuf;

/// Below a home. The account's `.gitconfig` comes after it, where a policy shows that.
const FILE: &str = ".config/git/config";
/// As `git lfs install` writes them.
const LFS: &str = "\tclean = git-lfs clean -- %f\n\tsmudge = git-lfs smudge -- %f\n\tprocess = git-lfs filter-process\n";

impl SandboxSpec {
    /// Gives git in cells the identity that these settings have, and their filters, unless the policy shows the file itself.
    pub fn give_git_settings(&mut self, settings: &[PathBuf]) {
        let place = self.scratch.home.join(FILE);
        let content = [of(settings).unwrap_or_default(), filters(settings)].concat();
        if !self.shows(&place) && !content.is_empty() {
            self.home_files.push((FILE, content));
        }
    }
}

/// The filters in these files: git-lfs as it is, and all others without a command, but required.
fn filters(files: &[PathBuf]) -> Vec<u8> {
    let texts = files.iter().filter_map(|file| text(file).ok()?);
    let drivers: BTreeSet<String> = texts.flat_map(|text| git_filter_drivers(&text)).collect();
    let lines = drivers.iter().map(|name| {
        let commands = if name == "lfs" { LFS } else { "" };
        format!("[filter \"{name}\"]\n{commands}\trequired = true\n")
    });
    lines.collect::<String>().into_bytes()
}

/// The identity, from the settings in these files, of which later ones are stronger; `None` if they say nothing, or not plainly.
fn of(files: &[PathBuf]) -> Option<Vec<u8>> {
    let mut all = GitIdentity::default();
    for file in files {
        let Some(text) = text(file).ok()? else {
            continue;
        };
        let GitIdentity { name, email } = git_identity(&text)?;
        (all.name, all.email) = (name.or(all.name), email.or(all.email));
    }
    let lines = [("name", all.name), ("email", all.email)];
    let lines: String = lines
        .into_iter()
        .filter_map(|(key, value)| Some(format!("\t{key} = \"{}\"\n", value?)))
        .collect();
    (!lines.is_empty()).then(|| format!("[user]\n{lines}").into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn a_filter_that_cells_do_not_have_stops_git() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("c");
        fs::write(
            &file,
            "[filter \"lfs\"]\n\tclean = x\n[filter \"crypt\"]\n\tclean = y\n",
        )
        .unwrap();
        let lfs = format!("[filter \"lfs\"]\n{LFS}\trequired = true\n");
        let want = format!("[filter \"crypt\"]\n\trequired = true\n{lfs}");
        assert_eq!(String::from_utf8(filters(&[file])).unwrap(), want);
        assert!(filters(&["/none".into()]).is_empty());
    }

    #[test]
    fn later_files_are_stronger_and_an_unclear_one_ends_it() {
        let folder = tempfile::tempdir().unwrap();
        let file = |name: &str, text: &str| {
            fs::write(folder.path().join(name), text).unwrap();
            folder.path().join(name)
        };
        let files = [
            file("a", "[user]\nname = A\nemail = a\n"),
            file("b", "[user]\nemail = b\n"),
            "/none".into(),
        ];
        assert_eq!(
            of(&files).unwrap(),
            b"[user]\n\tname = \"A\"\n\temail = \"b\"\n"
        );
        assert_eq!(of(&[file("c", "[core]\nbare = false\n")]), None);
        assert_eq!(
            of(&[files[0].clone(), file("d", "[include]\npath = x\n")]),
            None
        );
    }
}
