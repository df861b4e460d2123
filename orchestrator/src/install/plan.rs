//! The planned changes: each file with its text before and after.

use broker_protocol::Failed;
use orchestrator_config_edit::files;
use orchestrator_config_edit::recipes::USUAL_SERVER;
use orchestrator_config_edit::record::{ChangedFile, InstallRecord};
use orchestrator_config_edit::{
    FileRecipe, Format, InstallWay, Programs, Recipe, RecipeClient, UserDirectory, edit,
};
use orchestrator_launch::state_directory::{home, variable};
use orchestrator_serve::token::new_id;
use orchestrator_text::settings::line_hider;
use orchestrator_text::{diff, escape};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Length of the name of our server: 40 bits of it are random.
const NAME_MAX: usize = USUAL_SERVER.len() + 1 + 10;
/// How long to search for the shortest diff.
const TIME: Duration = Duration::from_millis(200);

/// A change of a file.
#[derive(Debug)]
pub(super) struct PlannedChange {
    pub path: PathBuf,
    /// `None` if the file does not exist.
    pub before: Option<String>,
    /// `None` if the file is to be removed.
    pub after: Option<String>,
}

impl PlannedChange {
    /// The change as a unified diff without the keys in the file; empty if nothing changes.
    pub(super) fn diff(&self) -> String {
        let [before, after] =
            [&self.before, &self.after].map(|text| text.as_deref().unwrap_or_default());
        if before == after {
            return String::new();
        }
        let until = Instant::now() + TIME;
        let lines = diff::lines(before, after, (1, 1), until, line_hider([before, after]));
        let path = self.path.display();
        let name = |text: &Option<String>| {
            if text.is_some() {
                path.to_string()
            } else {
                "/dev/null".to_owned()
            }
        };
        let note = files::note(&self.path).map_or(String::new(), |note| {
            format!("note: {}: {note}\n", escape::row(&path.to_string()))
        });
        format!(
            "{note}--- {}\n+++ {}\n{}\n",
            name(&self.before),
            name(&self.after),
            lines.join("\n")
        )
    }

    pub(super) fn is_none(&self) -> bool {
        self.before == self.after
    }

    pub(super) fn write(&self) -> Result<(), Failed> {
        files::replace(&self.path, self.before.as_deref(), self.after.as_deref()).map_err(|error| {
            Failed::internal(format!("cannot write {}: {error}", self.path.display()))
        })
    }

    pub(super) fn undo(&self) -> Result<(), Failed> {
        files::replace(&self.path, self.after.as_deref(), self.before.as_deref()).map_err(|error| {
            Failed::internal(format!("cannot restore {}: {error}", self.path.display()))
        })
    }
}

pub(super) fn to_install(recipe: &Recipe) -> Result<Vec<PlannedChange>, Failed> {
    let change = |file: &FileRecipe| {
        let path = place(file);
        let before = read(&path)?;
        let after = edit::apply(
            file.format,
            before.as_deref().unwrap_or_default(),
            &file.edits,
        )
        .map_err(|error| Failed::invalid(format!("{}: {error}", path.display())))?;
        Ok(PlannedChange {
            path,
            before,
            after: Some(after),
        })
    };
    recipe.files.iter().map(change).collect()
}

/// The changes that revert an installation.
pub(super) fn to_uninstall(
    recipe: &Recipe,
    record: &InstallRecord,
) -> Result<Vec<PlannedChange>, Failed> {
    let change = |(file, changed): (&FileRecipe, &ChangedFile)| {
        let ChangedFile {
            path,
            before,
            after,
        } = changed;
        let now = read(path)?;
        let text = match &now {
            None => None,
            Some(now) if now == after => before.clone(),
            Some(now) => {
                let was = before.as_deref().unwrap_or_default();
                let reverted = edit::revert(file.format, now, was, &file.edits)
                    .map_err(|error| Failed::invalid(format!("{}: {error}", path.display())))?;
                // A file that was created only for us is removed.
                let is_empty = before.is_none() && is_empty(file.format, &reverted);
                (!is_empty).then_some(reverted)
            }
        };
        Ok(PlannedChange {
            path: path.clone(),
            before: now,
            after: text,
        })
    };
    recipe.files.iter().zip(&record.files).map(change).collect()
}

fn is_empty(format: Format, text: &str) -> bool {
    let text = text.trim();
    let is_json = matches!(
        format,
        Format::Json | Format::JsonWithComments | Format::Jsonc
    );
    text.is_empty() || is_json && text.chars().filter(|c| !c.is_whitespace()).eq("{}".chars())
}

/// How many of a recipe's edits are in the settings, and how many it has.
pub(super) fn present(
    recipe: &Recipe,
    record: Option<&InstallRecord>,
) -> Result<(usize, usize), Failed> {
    let mut count = (0, 0);
    for (at, file) in recipe.files.iter().enumerate() {
        let path = record
            .and_then(|record| record.files.get(at))
            .map_or_else(|| place(file), |changed| changed.path.clone());
        let text = read(&path)?.unwrap_or_default();
        let present = edit::present(file.format, &text, &file.edits);
        count.0 +=
            present.map_err(|error| Failed::invalid(format!("{}: {error}", path.display())))?;
        count.1 += file.edits.len();
    }
    Ok(count)
}

/// The programs that a client is to start, with a server's name that no repository can know: one that had the same name could take the
/// place of ours, and be called unasked.
pub(super) fn new_programs() -> Result<Programs, Failed> {
    let random = new_id(USUAL_SERVER).map_err(|error| {
        Failed::internal(format!("cannot choose a name for the server: {error}"))
    })?;
    // Clients put it before the names of tools, which may have 64 characters in all.
    let server = random.chars().take(NAME_MAX).collect();
    Ok(Programs {
        server,
        ..programs()?
    })
}

/// The programs, with the name that a person would write for the server.
pub(super) fn programs() -> Result<Programs, Failed> {
    let own = std::env::current_exe().map_err(|error| {
        Failed::internal(format!(
            "cannot determine the path of the lazaret program: {error}"
        ))
    })?;
    let text = |path: &Path| path.to_str().map(str::to_owned);
    match (text(&own), text(&own.with_file_name("lazaret-bash"))) {
        (Some(lazaret), Some(lazaret_bash)) => Ok(Programs {
            lazaret,
            lazaret_bash,
            server: USUAL_SERVER.to_owned(),
        }),
        _ => Err(Failed::invalid(format!(
            "{}: no client can be given a path that is not UTF-8",
            own.display()
        ))),
    }
}

/// Whether a client is installed on this machine, judged by its settings.
pub(super) fn is_here(client: &RecipeClient) -> bool {
    client
        .signs
        .iter()
        .any(|(root, path)| below(*root).join(path).exists())
}

/// The files by which a client is detected.
pub(super) fn signs(client: &RecipeClient) -> String {
    client
        .signs
        .iter()
        .map(|(root, path)| below(*root).join(path).display().to_string())
        .collect::<Vec<_>>()
        .join(" or ")
}

/// The way with this name.
pub(super) fn way(client: &RecipeClient, name: Option<&str>) -> Result<InstallWay, Failed> {
    let Some(name) = name else {
        return Ok(client.ways.first().copied().unwrap_or(InstallWay::Server));
    };
    let ways = || {
        client
            .ways
            .iter()
            .map(|way| way.name())
            .collect::<Vec<_>>()
            .join(", ")
    };
    let found = client.ways.iter().find(|way| way.name() == name);
    found
        .copied()
        .ok_or_else(|| Failed::invalid(format!("{} has no `{name}`: {}", client.name, ways())))
}

fn place(file: &FileRecipe) -> PathBuf {
    let paths = file.paths.iter().map(|path| below(file.root).join(path));
    let first = file
        .paths
        .first()
        .map(|path| below(file.root).join(path))
        .unwrap_or_default();
    paths
        .into_iter()
        .find(|path| path.exists())
        .unwrap_or(first)
}

/// The directory of `root` as the client sees it: from the environment variables, which its program inherits.
fn below(root: UserDirectory) -> PathBuf {
    let named = |name: &str| {
        variable(name)
            .map(PathBuf::from)
            .filter(|path| path.is_absolute())
    };
    let home = named("HOME").unwrap_or_else(home);
    match root {
        UserDirectory::Home => home,
        UserDirectory::Config => named("XDG_CONFIG_HOME").unwrap_or_else(|| home.join(".config")),
    }
}

fn read(path: &Path) -> Result<Option<String>, Failed> {
    files::read(path)
        .map_err(|error| Failed::invalid(format!("cannot read {}: {error}", path.display())))
}
