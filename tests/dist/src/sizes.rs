//! Sizes of programs and packages, each beside the most that it should have: a table of the README.

use crate::check;
use crate::files;
use crate::programs::{self, COMMANDS, INTERNAL};
use crate::release::{Arch, Package, Release};
use crate::tool::DistError;
use clap::Args;
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// The lines of the README between which the table is.
const MARKS: [&str; 2] = [
    "<!-- sizes: written by the command -->\n",
    "<!-- /sizes -->\n",
];
const HEAD: &str = "| x86_64 | MB | goal |\n|---|--:|--:|\n";
const ALL_PROGRAMS: &str = "all programs";
const UNPACKED: &str = "image, unpacked";
/// In place of a figure, where no release was measured.
const PENDING: &str = "not measured";
/// Bytes that each may have.
const GOALS: [(&str, u64); 3] = [
    (ALL_PROGRAMS, 28_000_000),
    (".deb", 9_000_000),
    (UNPACKED, 60_000_000),
];

#[derive(Args)]
pub struct Sizes {
    /// Put them into the table of tests/dist/README.md
    #[arg(long)]
    write: bool,
}

#[derive(Debug, PartialEq, Eq)]
struct SizeRow {
    name: &'static str,
    /// Its size, if a release was measured.
    bytes: Option<u64>,
}

impl Sizes {
    /// Prints the table of what `all` has made.
    pub fn execute(&self, release: &Release) -> Result<(), DistError> {
        let rows = measure(release, Arch::of_host()?)?;
        print!("{}", table(&rows));
        if !self.write {
            return Ok(());
        }
        // Those of another build would be no release's.
        for name in COMMANDS.iter().chain(&INTERNAL) {
            programs::check(&release.programs(Arch::of_host()?).join(name))?;
        }
        let file = release.root.join("tests/dist/README.md");
        let page = fs::read_to_string(&file).map_err(DistError::file(&file))?;
        let (before, _, after) = split(&page)
            .ok_or_else(|| DistError::wrong(format!("{} has no {MARKS:?}", file.display())))?;
        let table = table(&rows);
        let page = format!("{before}{}{table}{}{after}", MARKS[0], MARKS[1]);
        files::write(&file, page, 0o644)
    }
}

fn measure(release: &Release, arch: Arch) -> Result<Vec<SizeRow>, DistError> {
    let programs = release.programs(arch);
    let mut rows = Vec::new();
    for name in COMMANDS.into_iter().chain(INTERNAL) {
        rows.push(SizeRow::new(name, size(&programs.join(name))?));
    }
    let all = rows.iter().filter_map(|row| row.bytes).sum();
    rows.push(SizeRow::new(ALL_PROGRAMS, all));
    for package in Package::ALL {
        let bytes = size(&release.package(package, arch))?;
        rows.push(SizeRow::new(label(package), bytes));
    }
    let unpacked = below(&check::unpack_image(release)?, &mut BTreeSet::new())?;
    rows.push(SizeRow::new(UNPACKED, unpacked));
    Ok(rows)
}

impl SizeRow {
    fn new(name: &'static str, bytes: u64) -> Self {
        let bytes = Some(bytes);
        Self { name, bytes }
    }
}

fn label(package: Package) -> &'static str {
    match package {
        Package::Tarball => ".tar.gz",
        Package::Deb => ".deb",
        Package::Rpm => ".rpm",
        Package::Wheel => "wheel",
        Package::Npm => "npm, the programs",
        Package::Image => "image",
    }
}

fn size(file: &Path) -> Result<u64, DistError> {
    let metadata = fs::metadata(file).map_err(DistError::file(file))?;
    Ok(metadata.len())
}

/// Bytes of all files below a directory, each once whatever its names. Links are not followed: in an image they lead where its root is.
fn below(directory: &Path, seen: &mut BTreeSet<u64>) -> Result<u64, DistError> {
    let mut bytes = 0;
    for path in files::entries(directory)? {
        let metadata = fs::symlink_metadata(&path).map_err(DistError::file(&path))?;
        if metadata.is_dir() {
            bytes += below(&path, seen)?;
        } else if metadata.is_file() && seen.insert(metadata.ino()) {
            bytes += metadata.len();
        }
    }
    Ok(bytes)
}

fn table(rows: &[SizeRow]) -> String {
    let lines: String = rows.iter().map(line).collect();
    format!("{HEAD}{lines}")
}

fn line(row: &SizeRow) -> String {
    let goal = GOALS.iter().find(|(name, _)| *name == row.name);
    let goal = goal.map(|(_, goal)| *goal);
    let mut text = goal.map(megabytes).unwrap_or_default();
    if matches!((row.bytes, goal), (Some(bytes), Some(goal)) if bytes > goal) {
        text += ", not met";
    }
    let size = row.bytes.map_or_else(|| PENDING.to_owned(), megabytes);
    format!("| {} | {size} | {text} |\n", row.name)
}

/// Rounded up: what is printed as its goal is not above it.
fn megabytes(bytes: u64) -> String {
    let hundredths = bytes.div_ceil(10_000);
    format!("{}.{:02}", hundredths / 100, hundredths % 100)
}

/// The page before the table, the table, and the page after it.
fn split(page: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = page.split_once(MARKS[0])?;
    let (table, after) = rest.split_once(MARKS[1])?;
    Some((before, table, after))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names() -> Vec<&'static str> {
        let programs = COMMANDS.into_iter().chain(INTERNAL).chain([ALL_PROGRAMS]);
        let packages = Package::ALL.map(label).into_iter().chain([UNPACKED]);
        programs.chain(packages).collect()
    }

    /// The rows of a table that this command has written.
    fn rows(page: &str) -> Option<Vec<SizeRow>> {
        let (_, table, _) = split(page)?;
        let row = |(line, name): (&str, &'static str)| {
            let rest = line.strip_prefix(&format!("| {name} | "))?;
            let bytes = match rest.split_once(" |")?.0 {
                PENDING => None,
                figure => Some(figure.replace('.', "").parse::<u64>().ok()? * 10_000),
            };
            let row = SizeRow { name, bytes };
            (super::line(&row) == format!("{line}\n")).then_some(row)
        };
        let (lines, names): (Vec<&str>, _) = (table.strip_prefix(HEAD)?.lines().collect(), names());
        if lines.len() != names.len() {
            return None;
        }
        lines.into_iter().zip(names).map(row).collect()
    }

    #[test]
    fn the_page_has_each_size_beside_its_goal() {
        let page = include_str!("../README.md");
        let seen = rows(page).expect("a row for each program and package");
        let programs = COMMANDS.len() + INTERNAL.len();
        if let Some(all) = seen[programs].bytes {
            let sum: u64 = seen[..programs].iter().filter_map(|row| row.bytes).sum();
            // Each figure is rounded up.
            assert!(all.abs_diff(sum) <= 10_000 * programs as u64);
        }
        for (from, to) in [
            ("| wheel |", "| whale |"),
            ("| .rpm | ", "| .rpm | x"),
            ("| image |", "|\n| image |"),
            (" 28.00", " 29.00"),
        ] {
            assert!(page.contains(from), "{from}");
            assert_eq!(rows(&page.replace(from, to)), None, "{from}");
        }
    }

    #[test]
    fn goal_that_is_missed_is_marked() {
        let line = |bytes| {
            line(&SizeRow {
                name: ".deb",
                bytes,
            })
        };
        assert_eq!(line(Some(9_000_000)), "| .deb | 9.00 | 9.00 |\n");
        assert_eq!(line(Some(9_000_001)), "| .deb | 9.01 | 9.00, not met |\n");
        assert_eq!(line(None), "| .deb | not measured | 9.00 |\n");
    }
}
