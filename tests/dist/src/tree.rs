//! What every package installs below its prefix, put together once for a processor.

use crate::files;
use crate::programs::{COMMANDS, INTERNAL};
use crate::release::{Arch, Release};
use crate::tool::{self, DistError};
use std::path::Path;
use std::process::Command;

/// Where the programs that nobody starts by hand are: `lazaret` looks for them beside itself, and there.
pub const LIBEXEC: &str = "libexec/lazaret";
const PAGES: &str = "share/man/man1";
/// The shells, with the place of each one's completions.
const COMPLETIONS: [(&str, &str); 3] = [
    ("bash", "share/bash-completion/completions/lazaret"),
    ("zsh", "share/zsh/site-functions/_lazaret"),
    ("fish", "share/fish/vendor_completions.d/lazaret.fish"),
];
const DOCUMENTS: [&str; 4] = ["LICENSE-APACHE", "LICENSE-MIT", "README.md", "SECURITY.md"];

pub fn make(release: &Release, arch: Arch) -> Result<(), DistError> {
    let tree = release.tree(arch);
    files::remove_directory(&tree)?;
    let programs = release.programs(arch);
    for (names, folder) in [(&COMMANDS[..], "bin"), (&INTERNAL[..], LIBEXEC)] {
        for name in names {
            files::copy(&programs.join(name), &tree.join(folder).join(name), 0o755)?;
        }
    }
    for document in DOCUMENTS {
        let to = tree.join("share/doc/lazaret").join(document);
        files::copy(&release.root.join(document), &to, 0o644)?;
    }
    let lazaret = release.programs(Arch::of_host()?).join("lazaret");
    for (shell, place) in COMPLETIONS {
        let script = tool::text(Command::new(&lazaret).args(["completions", shell]))?;
        files::write(&tree.join(place), script + "\n", 0o644)?;
    }
    write_page(&lazaret, &tree.join(PAGES), &mut Vec::new())
}

/// Writes the page of the command of these words, and of all below it.
fn write_page(lazaret: &Path, to: &Path, words: &mut Vec<String>) -> Result<(), DistError> {
    let page = tool::text(Command::new(lazaret).arg("man").args(&*words))?;
    let name = std::iter::once("lazaret")
        .chain(words.iter().map(String::as_str))
        .collect::<Vec<_>>()
        .join("-");
    for subcommand in subcommands(&page, &name) {
        words.push(subcommand);
        write_page(lazaret, to, words)?;
        words.pop();
    }
    files::write(&to.join(format!("{name}.1")), page + "\n", 0o644)
}

/// The commands that a page refers to as those below it: lines such as `lazaret\-run(1)`.
fn subcommands(page: &str, name: &str) -> Vec<String> {
    let subcommand = |line: &str| {
        let plain = line.replace('\\', "");
        let rest = plain.strip_suffix("(1)")?.strip_prefix(name)?;
        let word = rest.strip_prefix('-')?;
        (word != "help").then(|| word.to_owned())
    };
    page.lines().filter_map(subcommand).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_names_its_subcommands() {
        let page = ".SH SUBCOMMANDS\n.TP\nlazaret\\-chat\\-hooks(1)\nHooks\n.TP\nlazaret\\-help(1)\nsee lazaret(1)\n";
        assert_eq!(subcommands(page, "lazaret"), ["chat-hooks"]);
    }
}
