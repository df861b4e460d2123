//! The kernels and processors that the programs are tried on in emulation, and the table of what came of it in `SECURITY.md`.

use lazaret_tests::programs;
use serde::Serialize;
use std::fmt::Write as _;
use std::fs;

#[derive(Debug)]
pub struct DebianKernel {
    pub name: &'static str,
    /// The suite of the archive whose packages have it.
    pub suite: &'static str,
    /// The Landlock ABI that it has at least. The newest may have a later one.
    pub landlock: u32,
}

pub const KERNELS: [DebianKernel; 3] = [
    DebianKernel {
        name: "6.1",
        suite: "bookworm",
        landlock: 2,
    },
    DebianKernel {
        name: "6.12",
        suite: "trixie",
        landlock: 6,
    },
    DebianKernel {
        name: NEWEST,
        suite: "trixie-backports",
        landlock: 7,
    },
];
const NEWEST: &str = "newest";

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Processor {
    #[value(name = "x86_64")]
    X86_64,
    Aarch64,
}

impl Processor {
    pub const ALL: [Self; 2] = [Self::X86_64, Self::Aarch64];

    /// The kernel's and the compiler's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::X86_64 => "x86_64",
            Self::Aarch64 => "aarch64",
        }
    }

    pub fn debian(self) -> &'static str {
        match self {
            Self::X86_64 => "amd64",
            Self::Aarch64 => "arm64",
        }
    }
}

pub const TIERS: [&str; 2] = ["namespaced", "flat"];

/// The probes of the corpus that are run, in all three languages: few, since emulation is slow. A kernel or a processor could change each:
/// a file by path, a socket by name, a signal, a rename in place of a secret, and system calls by ring and by the 32-bit table.
pub const PROBES: [&str; 6] = [
    "FS-007", "NET-013", "PROC-013", "SEC-027", "SYS-001", "SYS-005",
];

/// Probes that get out of the flat tier below a Landlock ABI, as the section on older kernels says.
const KNOWN: [(&str, u32); 1] = [("PROC-013", 6)];

/// Results of a kernel in a tier.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct KernelRow {
    pub kernel: String,
    pub processor: String,
    /// The tier that was asked for.
    pub tier: String,
    /// By `uname -r`; empty if the machine did not come so far.
    pub release: String,
    /// The ABI that `lazaret doctor` reports.
    pub landlock: u64,
    /// The tier of the session that opened, or nothing.
    pub opened: Option<String>,
    /// `lazaret run` printed what its command should.
    pub runs: bool,
    /// Of the self-attack: all attacks, and those held, not possible there without a cell, known, and open.
    pub attacks: u64,
    pub held: u64,
    pub untested: u64,
    pub known: u64,
    pub open: u64,
    /// The verdict that the self-attack itself gives.
    pub holds: bool,
    /// Probes by verdict, of those that get out of plain `bash` there.
    pub contained: Vec<String>,
    pub escaped: Vec<String>,
    pub failed: Vec<String>,
    /// Probes that are not for that processor or that kernel, or contained by plain `bash` there: they prove nothing.
    pub skipped: Vec<String>,
    /// Why there is no more in it.
    pub error: Option<String>,
}

impl KernelRow {
    /// Whether a probe may get out of this tier with this kernel.
    fn may_escape(&self, probe: &str) -> bool {
        let is_known = |(id, abi): &(&str, u32)| *id == probe && self.landlock < u64::from(*abi);
        self.tier == "flat" && KNOWN.iter().any(is_known)
    }

    /// Faults of the row. There are none, if the tier held what it should.
    pub fn complaints(&self) -> Vec<String> {
        let mut wrong: Vec<String> = self.error.iter().cloned().collect();
        if self.opened.as_deref() != Some(self.tier.as_str()) {
            let opened = self.opened.as_deref().unwrap_or("no");
            wrong.push(format!("{opened} session instead of a {} one", self.tier));
        }
        if !self.runs {
            wrong.push("`lazaret run` did not do its work".into());
        }
        if !self.holds || self.open > 0 || self.attacks == 0 {
            wrong.push(format!("{} attacks of the doctor work", self.open));
        }
        wrong.extend(self.failed.iter().map(|id| format!("{id} was not run")));
        let out = self.escaped.iter().filter(|id| !self.may_escape(id));
        wrong.extend(out.map(|id| format!("{id} escaped")));
        // A part of which most is skipped is none.
        if self.contained.len() < PROBES.len() / 2 {
            wrong.push(format!(
                "only {} probes were contained",
                self.contained.len()
            ));
        }
        let of = format!("{} {} {}", self.kernel, self.processor, self.tier);
        wrong.iter().map(|what| format!("{of}: {what}")).collect()
    }

    fn line(&self) -> String {
        let (held, attacks) = (self.held, self.attacks);
        let mut doctor = format!("{held} of {attacks} held");
        let _ = write!(doctor, ", {} untested", self.untested);
        if self.known > 0 {
            let _ = write!(doctor, ", {} known", self.known);
        }
        let ran = self.contained.len() + self.escaped.len();
        let mut corpus = format!("{} of {ran}", self.contained.len());
        if !self.escaped.is_empty() {
            let _ = write!(corpus, "; out: {}", self.escaped.join(", "));
        }
        let release = self.release.split("-cloud").next().unwrap_or_default();
        let opened = self.opened.as_deref().unwrap_or("none");
        format!(
            "| {} | {release} | {} | {} | {} | {opened} | {doctor} | {corpus} |\n",
            self.kernel, self.processor, self.tier, self.landlock
        )
    }
}

/// The lines of `SECURITY.md` between which the table is.
const MARKS: [&str; 2] = [
    "<!-- kernels: written by the command -->\n",
    "<!-- /kernels -->\n",
];
const HEAD: &str = "| Debian's kernel | release | processor | tier | Landlock ABI | session | self-attack | corpus |\n\
                    |---|---|---|---|--:|---|---|---|\n";
const PAGE: &str = "SECURITY.md";

pub fn table(rows: &[KernelRow]) -> String {
    let lines: String = rows.iter().map(KernelRow::line).collect();
    format!("{HEAD}{lines}")
}

/// Puts rows into the table of `SECURITY.md`. What was not tried now stays as it was.
///
/// # Errors
/// If the page cannot be read or written, has no place for it, or would have rows that do not fit the kernels.
pub fn write(rows: &[KernelRow]) -> Result<(), String> {
    let file = programs::workspace().join(PAGE);
    let wrong = |error: &dyn std::fmt::Display| format!("{}: {error}", file.display());
    let text = fs::read_to_string(&file).map_err(|error| wrong(&error))?;
    let text = with_rows(&text, rows).ok_or_else(|| wrong(&format!("no {MARKS:?}")))?;
    match complaints_about_table(&text).as_slice() {
        [] => fs::write(&file, text).map_err(|error| wrong(&error)),
        complaints => Err(complaints.join("; ")),
    }
}

/// The page with these rows in its table, if it has a place for that.
fn with_rows(page: &str, rows: &[KernelRow]) -> Option<String> {
    let (before, table, after) = split(page)?;
    let mut merged = HEAD.to_owned();
    for place in places() {
        let row = rows.iter().find(|row| place.is_of(row));
        let kept = table.lines().find(|line| place.begins(line));
        merged += &match (row, kept) {
            (Some(row), _) => row.line(),
            (None, Some(kept)) => format!("{kept}\n"),
            (None, None) => place.not_tried(),
        };
    }
    Some(format!("{before}{}{merged}{}{after}", MARKS[0], MARKS[1]))
}

/// A row that the table must have.
struct KernelPlace {
    kernel: &'static DebianKernel,
    processor: Processor,
    tier: &'static str,
}

fn places() -> impl Iterator<Item = KernelPlace> {
    KERNELS.iter().flat_map(|kernel| {
        Processor::ALL.into_iter().flat_map(move |processor| {
            TIERS.map(|tier| KernelPlace {
                kernel,
                processor,
                tier,
            })
        })
    })
}

impl KernelPlace {
    fn is_of(&self, row: &KernelRow) -> bool {
        let key = [
            row.kernel.as_str(),
            row.processor.as_str(),
            row.tier.as_str(),
        ];
        key == self.key()
    }

    fn key(&self) -> [&'static str; 3] {
        [self.kernel.name, self.processor.name(), self.tier]
    }

    fn begins(&self, line: &str) -> bool {
        let cells = cells(line);
        [0, 2, 3].map(|at| cells.get(at).copied().unwrap_or_default()) == self.key()
    }

    fn not_tried(&self) -> String {
        let [kernel, processor, tier] = self.key();
        format!("| {kernel} | {NOT_TRIED} | {processor} | {tier} | | | | |\n")
    }
}

const NOT_TRIED: &str = "not tried";

fn cells(line: &str) -> Vec<&str> {
    let inner = line.strip_prefix('|').unwrap_or(line);
    let inner = inner.strip_suffix('|').unwrap_or(inner);
    inner.split('|').map(str::trim).collect()
}

/// The page before the table, the table, and the page after it.
fn split(page: &str) -> Option<(&str, &str, &str)> {
    let (before, rest) = page.split_once(MARKS[0])?;
    let (table, after) = rest.split_once(MARKS[1])?;
    Some((before, table, after))
}

/// Faults of the table of a page. Each kernel, processor and tier has its row: it was not tried, or that tier opened, the
/// Landlock ABI is the kernel's, nothing is out but what is known of it, and most was held.
fn complaints_about_table(page: &str) -> Vec<String> {
    let Some((_, table, _)) = split(page) else {
        return vec![format!("{PAGE}: no {MARKS:?}")];
    };
    let mut wrong = Vec::new();
    if !table.starts_with(HEAD) {
        wrong.push(format!("{PAGE}: the table of kernels has another head"));
    }
    let mut lines = table.lines().skip(HEAD.lines().count());
    for place in places() {
        let line = lines.next().unwrap_or_default();
        if format!("{line}\n") == place.not_tried() {
            continue;
        }
        let why = place.wrong_with(line);
        wrong.extend(why.map(|why| format!("{PAGE}: {line:?}: {why}")));
    }
    wrong.extend(lines.map(|line| format!("{PAGE}: one line too many: {line}")));
    wrong
}

impl KernelPlace {
    fn wrong_with(&self, line: &str) -> Option<String> {
        let cells = cells(line);
        let [_, release, _, _, landlock, opened, doctor, corpus] = cells[..] else {
            return Some("not eight cells".into());
        };
        if !self.begins(line) {
            return Some(format!("not that of {}", self.key().join(" ")));
        }
        let kernel = self.kernel;
        let is_newest = kernel.name == NEWEST;
        if !is_newest && !release.starts_with(&format!("{}.", kernel.name)) {
            return Some(format!("not a release of {}", kernel.name));
        }
        let abi = landlock.parse::<u32>().unwrap_or_default();
        if abi < kernel.landlock || !is_newest && abi != kernel.landlock {
            return Some(format!("Landlock ABI {} is expected", kernel.landlock));
        }
        if opened != self.tier {
            return Some(format!("no {} session", self.tier));
        }
        let held = doctor.split(' ').next().and_then(|word| word.parse().ok());
        if held < Some(HELD_MIN) {
            return Some("hardly an attack of the doctor is held".into());
        }
        let out = corpus.split_once("; out: ").map_or("", |(_, out)| out);
        let row = KernelRow {
            tier: self.tier.into(),
            landlock: u64::from(abi),
            ..KernelRow::default()
        };
        let mut ids = out.split(", ").filter(|id| !id.is_empty());
        ids.find(|id| !row.may_escape(id))
            .map(|id| format!("{id} is out, and not known"))
    }
}

/// Attacks of the doctor that every kernel can hold: those of the flat tier, without a network.
const HELD_MIN: u64 = 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn good(tier: &str, landlock: u64) -> KernelRow {
        KernelRow {
            kernel: "6.1".into(),
            processor: "x86_64".into(),
            tier: tier.into(),
            release: "6.1.0-50-cloud-amd64".into(),
            landlock,
            opened: Some(tier.into()),
            runs: true,
            attacks: 35,
            held: 28,
            untested: 7,
            holds: true,
            contained: PROBES.iter().map(|id| (*id).into()).collect(),
            ..KernelRow::default()
        }
    }

    #[test]
    fn each_fault_of_a_row_is_named() {
        assert_eq!(good("flat", 2).complaints(), Vec::<String>::new());
        type Plant = fn(&mut KernelRow);
        let plants: [(Plant, &str); 10] = [
            (|row| row.opened = None, "no session instead of a flat one"),
            (
                |row| row.opened = Some("namespaced".into()),
                "namespaced session",
            ),
            (|row| row.runs = false, "did not do its work"),
            (|row| row.open = 1, "1 attacks of the doctor work"),
            (|row| row.holds = false, "attacks of the doctor work"),
            (|row| row.attacks = 0, "attacks of the doctor work"),
            (|row| row.failed.push("FS-001".into()), "FS-001 was not run"),
            (|row| row.escaped.push("FS-001".into()), "FS-001 escaped"),
            (|row| row.contained.truncate(2), "only 2 probes"),
            (
                |row| row.error = Some("its time is over".into()),
                "its time is over",
            ),
        ];
        for (plant, complaint) in plants {
            let mut row = good("flat", 2);
            plant(&mut row);
            let complaints = row.complaints().join("\n");
            assert!(complaints.contains(complaint), "{complaint}: {complaints}");
        }
    }

    #[test]
    fn probe_is_known_to_escape_in_one_tier_below_one_abi() {
        for (tier, landlock, count) in [("flat", 2, 0), ("flat", 6, 1), ("namespaced", 2, 1)] {
            let mut row = good(tier, landlock);
            row.escaped.push("PROC-013".into());
            assert_eq!(row.complaints().len(), count, "{tier} {landlock}");
        }
    }

    #[test]
    fn kernels_of_the_page_are_those_tried() {
        let page = fs::read_to_string(programs::workspace().join(PAGE)).unwrap();
        assert_eq!(complaints_about_table(&page), Vec::<String>::new());
        let good = with_rows(&page, &good_rows()).unwrap();
        assert_eq!(complaints_about_table(&good), Vec::<String>::new());
        let tried =
            "| 6.1 | 6.1.9 | x86_64 | flat | 2 | flat | 25 of 35 held, 0 untested | 0 of 0 |";
        assert!(good.contains(tried), "{good}");
        let untried = good.replacen(tried, "| 6.1 | not tried | x86_64 | flat | | | | |", 1);
        assert_eq!(complaints_about_table(&untried), Vec::<String>::new());
        for (from, to) in [
            ("<!-- kernels:", "<!-- "),
            ("| 6.1 | 6.1.", "| 6.1 | 6.2."),
            ("| x86_64 | flat | 2", "| aarch64 | flat | 2"),
            ("| flat | 2 | flat |", "| flat | 6 | flat |"),
            ("| flat | 2 | flat |", "| flat | 2 | none |"),
            (
                "| namespaced | 6 | namespaced |",
                "| namespaced | 6 | flat |",
            ),
            ("25 of 35 held", "9 of 35 held"),
            (
                "| 0 of 0 |\n<!-- /kernels",
                "| 0 of 1; out: FS-007 |\n<!-- /kernels",
            ),
            ("| 0 of 0 |\n<!-- /kernels", "|\n<!-- /kernels"),
            ("<!-- /kernels", "| 5.15 |\n<!-- /kernels"),
        ] {
            assert!(good.contains(from), "{from}");
            let planted = good.replacen(from, to, 1);
            assert!(
                !complaints_about_table(&planted).is_empty(),
                "{from} as {to}"
            );
        }
    }

    /// A row for each kernel, processor and tier, in which all is well.
    fn good_rows() -> Vec<KernelRow> {
        let mut rows = Vec::new();
        for kernel in &KERNELS {
            for processor in Processor::ALL {
                rows.extend(TIERS.map(|tier| KernelRow {
                    kernel: kernel.name.into(),
                    processor: processor.name().into(),
                    tier: tier.into(),
                    release: format!("{}.9-cloud", kernel.name),
                    landlock: kernel.landlock.into(),
                    opened: Some(tier.into()),
                    attacks: 35,
                    held: 25,
                    ..KernelRow::default()
                }));
            }
        }
        rows
    }
}
