//! The settings of a repository that cannot make git run anything, and the one that names its worktree.
//!
//! Settings that git itself writes when it makes or clones a repository are a short list. A file of these and no others
//! does no harm wherever it lies. Comes from a cell's supervisor, with any bytes; understands less of the format than git,
//! and never something else.

/// Maximum bytes of a file; a larger one is refused.
pub const GIT_CONFIG_MAX: usize = 64 * 1024;

/// Settings, in lower case, that name no program, no file and no other place of the repository.
const HARMLESS: [&str; 16] = [
    "core.repositoryformatversion",
    "core.filemode",
    "core.bare",
    "core.logallrefupdates",
    "core.ignorecase",
    "core.precomposeunicode",
    "core.symlinks",
    "core.sparsecheckout",
    "user.name",
    "user.email",
    "remote.*.fetch",
    "remote.*.tagopt",
    "branch.*.merge",
    "branch.*.rebase",
    "init.defaultbranch",
    "receive.denynonfastforwards",
];

/// Settings that may have these words: how a repository stores objects and refs, and who shares it. A later git takes more than these
/// for storage, such as the path of a directory, and any mode for sharing.
/// Sources: git, Documentation/config/extensions.adoc; core.sharedRepository and what `git init --shared` writes (setup.c); Cargo,
/// src/cargo/sources/git/utils.rs (`reset`).
const WORDS: [(&str, &[&str]); 4] = [
    // It is the default.
    ("core.autocrlf", &["false"]),
    ("extensions.objectformat", &["sha1", "sha256"]),
    ("extensions.refstorage", &["files", "reftable"]),
    (
        "core.sharedrepository",
        &[
            "0",
            "1",
            "2",
            "false",
            "true",
            "umask",
            "group",
            "all",
            "world",
            "everybody",
            "0600",
            "0640",
            "0644",
            "0660",
            "0664",
        ],
    ),
];

/// Whether a `config` of a repository holds harmless settings only.
pub fn is_harmless_git_config(bytes: &[u8]) -> bool {
    let text = std::str::from_utf8(bytes)
        .ok()
        .filter(|text| text.len() <= GIT_CONFIG_MAX);
    text.is_some_and(|text| all(text, setting).is_some())
}

/// Whether what its settings say is no path: harmless ones, and single words without a sign in them that paths have, where no path is
/// meant. A program of that name is the machine's.
pub fn names_no_path(bytes: &[u8]) -> bool {
    let text = std::str::from_utf8(bytes)
        .ok()
        .filter(|text| text.len() <= GIT_CONFIG_MAX);
    text.is_some_and(|text| all(text, word).is_some())
}

fn all(text: &str, setting: impl Fn(&str, &str) -> Option<()>) -> Option<()> {
    let mut section = None;
    for line in text.split('\n') {
        let body = line.trim_matches([' ', '\t']);
        // A byte-order mark, a carriage return or a NUL means something to git, or to nobody.
        if body.chars().any(|c| c.is_control() || c == '\u{feff}') {
            return None;
        }
        if body.is_empty() {
            continue;
        }
        match body.strip_prefix('[') {
            Some(rest) => section = Some(section_of(rest.strip_suffix(']')?)?),
            None => setting(section.as_deref()?, body)?,
        }
    }
    Some(())
}

/// The value of `core.worktree`, which a submodule's settings have. A file in which anything stands for which more of the format
/// would have to be understood names none.
pub fn git_config_worktree(bytes: &[u8]) -> Option<String> {
    let mut worktree = None;
    plain_values(bytes, |section, name, value| {
        if section == "core" && name == "worktree" {
            worktree = Some(plain(value)?);
        }
        Some(())
    })?;
    worktree
}

/// Gives `take` each setting: its section, its name in lower case, and its value as it is written. `None` if `take` says so, or at a
/// line that is none of a section, a setting or a comment.
fn plain_values(bytes: &[u8], mut take: impl FnMut(&str, &str, &str) -> Option<()>) -> Option<()> {
    plain_settings(bytes, |(section, sub), name, value| {
        let section = if sub.is_some() {
            format!("{section}.*")
        } else {
            section.to_owned()
        };
        take(&section, name, value)
    })
}

/// Settings by section: its name, in lower case, and the text in quotes after that.
pub(crate) fn plain_settings(
    bytes: &[u8],
    mut take: impl FnMut((&str, Option<&str>), &str, &str) -> Option<()>,
) -> Option<()> {
    let text = std::str::from_utf8(bytes)
        .ok()
        .filter(|text| text.len() <= GIT_CONFIG_MAX)?;
    let mut section = None;
    for line in text.split('\n') {
        let body = line.trim_matches([' ', '\t']);
        if body.ends_with('\\')
            || body
                .chars()
                .any(|c| c.is_control() && c != '\t' || c == '\u{feff}')
        {
            return None;
        }
        if let Some(rest) = body.strip_prefix('[') {
            section = Some(header_of(rest.strip_suffix(']')?)?);
            continue;
        }
        let Some(((section, sub), (name, value))) = section.as_ref().zip(body.split_once('='))
        else {
            continue;
        };
        take(
            (section, *sub),
            &name.trim_matches([' ', '\t']).to_ascii_lowercase(),
            value.trim_matches([' ', '\t']),
        )?;
    }
    Some(())
}

/// A plain value, which may be in quotes.
pub(crate) fn plain(value: &str) -> Option<String> {
    let value = value
        .strip_prefix('"')
        .and_then(|value| value.strip_suffix('"'))
        .unwrap_or(value);
    is_plain(value).then(|| value.to_owned())
}

/// Whether nothing in a value would have to be read in another way than it stands.
fn is_plain(value: &str) -> bool {
    !value.contains(['"', '\\', ';', '#'])
}

/// `core`, or `remote.*` for any remote.
fn section_of(header: &str) -> Option<String> {
    let (name, sub) = header_of(header)?;
    Some(name + if sub.is_some() { ".*" } else { "" })
}

/// A section's name in lower case, and the text in quotes after it.
fn header_of(header: &str) -> Option<(String, Option<&str>)> {
    let (name, sub) = match header.split_once(' ') {
        Some((name, sub)) => (name, Some(sub.strip_prefix('"')?.strip_suffix('"')?)),
        None => (header, None),
    };
    let plain = !name.is_empty() && name.bytes().all(|c| c.is_ascii_alphanumeric() || c == b'-');
    if !plain || sub.is_some_and(|sub| sub.contains(['"', '\\'])) {
        return None;
    }
    Some((name.to_ascii_lowercase(), sub))
}

/// `name = value`, with nothing in the value that would have to be read in another way than it stands.
fn setting(section: &str, line: &str) -> Option<()> {
    let (name, value) = line.split_once('=')?;
    let (name, value) = (
        name.trim_matches([' ', '\t']).to_ascii_lowercase(),
        value.trim_matches([' ', '\t']),
    );
    if !is_plain(value) {
        return None;
    }
    let name = format!("{section}.{name}");
    // A branch's remote is the name of one, or an address.
    let address = matches!(name.as_str(), "remote.*.url" | "branch.*.remote");
    let known = WORDS
        .iter()
        .any(|(key, words)| name == *key && words.contains(&value));
    let harmless = known || HARMLESS.contains(&name.as_str()) || address && is_harmless_url(value);
    harmless.then_some(())
}

/// Accepts a [`setting`], or `name = word`.
fn word(section: &str, line: &str) -> Option<()> {
    let (name, value) = line.split_once('=')?;
    let (name, value) = (
        name.trim_matches([' ', '\t']).to_ascii_lowercase(),
        value.trim_matches([' ', '\t']),
    );
    let path = section.starts_with("include")
        || ["path", "file", "dir"]
            .iter()
            .any(|end| name.ends_with(end));
    // Other names with a dot are looked for in the project.
    let dotted = section.starts_with("credential") && name == "helper";
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_' || dotted && c == '.';
    let is_word = !path && !value.is_empty() && value.chars().all(plain);
    is_word.then_some(()).or_else(|| setting(section, line))
}

/// Neither an option nor a remote helper, which is a program.
fn is_harmless_url(url: &str) -> bool {
    !url.starts_with('-') && !url.contains("::") && !url.contains("://-") && !url.contains("@-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_settings_that_git_writes_are_harmless() {
        let cloned = "[core]\n\trepositoryformatversion = 0\n\tfilemode = true\n\tbare = false\n\tlogallrefupdates = true\n\
            [remote \"origin\"]\n\turl = /home/u/pro ject\n\tfetch = +refs/heads/*:refs/remotes/origin/*\n\
            [branch \"main\"]\n\tremote = origin\n\tmerge = refs/heads/main\n[extensions]\n\trefStorage = reftable\n[user]\n\tname = T. \u{c9}\n\temail = t@t.invalid\n";
        for text in [
            "",
            "\n",
            cloned,
            "[CORE]\nBare=false",
            "[core]\n\tsharedRepository = 1\n[receive]\n\tdenyNonFastforwards = true\n",
            "[core]\n\tsharedrepository = everybody\n",
            "[core]\n\tsharedrepository = 0660\n",
            "[core]\n\tbare = false\n\tautocrlf = false\n",
            "[remote \"a.b]\"]\n url = git@host.invalid:a/b.git\n",
        ] {
            assert!(is_harmless_git_config(text.as_bytes()), "{text}");
        }
    }

    #[test]
    fn a_worktree_is_named_plainly_or_not_at_all() {
        let submodule = "[core]\n\trepositoryformatversion = 0\n\tworktree = ../../../sub\n[remote \"o\"]\n\turl = \"x\"\n";
        assert_eq!(
            git_config_worktree(submodule.as_bytes()).as_deref(),
            Some("../../../sub")
        );
        for (text, want) in [
            ("[core]\nWorktree=\"/a b\"", Some("/a b")),
            ("[core]\nworktree = a\n[CORE]\nworktree = b", Some("b")),
            ("[x \"core\"]\nworktree = a", None),
            ("worktree = a", None),
            ("[core]\n#worktree = a", None),
            ("[core]\nworktree = a # b", None),
            ("[core]\nworktree = \"a\\tb\"", None),
            ("[core]\nx = \\\nworktree = a", None),
            ("[core]\nworktree = a\r", None),
            ("[core] worktree = a", None),
            ("[core]\nworktree = a\n[x", None),
        ] {
            assert_eq!(
                git_config_worktree(text.as_bytes()).as_deref(),
                want,
                "{text:?}"
            );
        }
        let long = |length: usize| "[core]\nworktree = a\n".to_owned() + &"\n".repeat(length - 20);
        assert!(git_config_worktree(long(GIT_CONFIG_MAX).as_bytes()).is_some());
        assert!(git_config_worktree(long(GIT_CONFIG_MAX + 1).as_bytes()).is_none());
    }

    #[test]
    fn no_other_setting_is_harmless() {
        for text in [
            "[extensions]\n\trefStorage = files:///home/u/other/.git",
            "[extensions]\n\tobjectFormat = sha1:x",
            "[core]\n\tsharedRepository = 0666",
            "[core]\n\tautocrlf = true",
            "[core]\n\tsharedRepository = 02777",
            "[core]\n\tsharedRepository = x",
            "[receive]\n\tprocReceiveRefs = x",
            "[core]\n\tfsmonitor = x",
            "[core]\n\thooksPath = x",
            "[core]\n\tworktree = /",
            "[include]\n\tpath = x",
            "[alias]\n\tstatus = !x",
            "[core] fsmonitor = x",
            "[core]\n\tbare = false ; x",
            "[core]\n\tbare = fa\\\nlse",
            "[core]\n\tbare = \"false\"",
            "[core]\n\tbare",
            "[core]\r\n\tbare = false",
            "\u{feff}[core]\n\tbare = false",
            "[core]\n\tbare = false\0",
            "bare = false",
            "[core.x]\n\tbare = false",
            "[core \"x\"]\n\tbare = false",
            "[remote \"o\\\"]\n\turl = x",
            "[remote \"o\"]\n\turl = ext::sh -c x",
            "[remote \"o\"]\n\turl = --upload-pack=x",
            "[branch \"m\"]\n\tremote = ext::sh -c touch% x",
            "[branch \"m\"]\n\tremote = --upload-pack=x",
            "[remote \"o\"]\n\turl = ssh://-oProxyCommand=x/y",
            "[remote \"o\"]\n\tuploadpack = x",
            "[remote \"o\"]\n\tvcs = x",
            "[core]\n\tbare = false\n]",
            "[core]]\n\tbare = false",
            "# [core]",
        ] {
            assert!(!is_harmless_git_config(text.as_bytes()), "{text}");
        }
        assert!(!is_harmless_git_config(b"[user]\n\tname = \xff"));
        let long = |length: usize| "\n".repeat(length);
        assert!(is_harmless_git_config(long(GIT_CONFIG_MAX).as_bytes()));
        assert!(!is_harmless_git_config(long(GIT_CONFIG_MAX + 1).as_bytes()));
    }

    #[test]
    fn word_that_is_no_path_names_none() {
        for text in [
            "",
            "[user]\n\tname = A B\n[core]\n\teditor = vim\n\tautocrlf = input\n[pull]\n\trebase = true\n",
            "[credential \"https://h.invalid\"]\n\thelper = gcloud.sh\n[credential]\nhelper=store\n",
            "[alias]\nst = status\n[new \"x\"]\nthing = a_b-c\n",
        ] {
            assert!(names_no_path(text.as_bytes()), "{text}");
        }
        for text in [
            "[core]\nhooksPath = hooks",
            "[core]\nattributesFile = a",
            "[init]\ntemplateDir = t",
            "[include]\npath = more",
            "[include]\nx = more",
            "[includeIf \"onbranch:m\"]\npath = more",
            "[core]\neditor = ./vim",
            "[core]\neditor = vim.sh",
            "[core]\neditor = vim -f",
            "[core]\neditor = \"vim\"",
            "[core]\neditor = !vim",
            "[core]\neditor = v\\\n",
            "[core] editor = vim",
            "[core]\neditor",
            "[core]\neditor =",
            "[alias]\nx = !./y",
            "[credential]\nhelper = ../x",
            "[credential]\nusehttppath = x",
            "editor = vim",
        ] {
            assert!(!names_no_path(text.as_bytes()), "{text}");
        }
    }
}
