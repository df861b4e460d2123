//! What a command was denied, each denial once, and the grants that would open it.

use crate::trace::{Gap, TraceExtent};
use broker_protocol::{AttemptKind, Barrier, Denial, Denials, Layer, Leased, Remedy};
use policies::network;
use std::collections::BTreeSet;
use std::path::Path;

/// An option of `lazaret run` that opens something.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct OpeningOption {
    pub option: &'static str,
    pub value: String,
}

impl OpeningOption {
    /// Whether it opens a path of this machine.
    pub(crate) fn is_of_paths(&self) -> bool {
        self.option != HOST && self.option != CONNECT
    }
}

/// The user's files for git, below the home, whose content its git in cells gets as far as it is good for it.
const GIVEN: [&str; 4] = [
    ".gitconfig",
    ".config/git/config",
    ".config/git/ignore",
    ".config/git/attributes",
];

/// In place of what would open it.
const DID_WITHOUT: &str = "the command succeeded without it";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ExplainedDenial {
    pub(crate) denial: Denial,
    /// The option that opens it, if one does.
    pub grant: Option<OpeningOption>,
}

/// A refusal of the gateway in the run log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LoggedRefusal {
    /// The host as `HOST:PORT`, for people.
    pub place: String,
    pub why: String,
    pub advice: &'static str,
}

/// What would open a host; `None` if an ordinary run of the command reaches it.
pub(crate) type HostRemedy = Option<Remedy>;

#[derive(Debug, Default)]
pub(crate) struct ExplainedDenials {
    pub list: Vec<ExplainedDenial>,
    /// The policy profile that would show the program which was not found.
    pub profile: Option<String>,
    /// Number of denials that the executor only counted.
    pub more: u64,
    /// What the gateway refused to the command when it ran before, from the run log: this run reaches no host.
    pub(crate) logged: Vec<LoggedRefusal>,
    /// Ports of this machine that an ordinary run of the command reaches.
    pub connect: Vec<u16>,
    /// Hosts and ports that an ordinary run of the command reaches, but this one did not.
    pub(crate) only_here: BTreeSet<String>,
    /// Reasons why something may be missing.
    pub(crate) gaps: BTreeSet<Gap>,
}

impl ExplainedDenials {
    /// Adds what the executor itself has denied. A whole trace is better for paths, since it also tells which the user could not
    /// access either. `hosts` tells what would open a denied host.
    pub(crate) fn add_own(
        &mut self,
        denied: &Denials,
        extent: TraceExtent,
        hosts: &dyn Fn(&str) -> HostRemedy,
    ) {
        self.more += denied.more();
        for denial in denied.list() {
            let target = &denial.what.target;
            match denial.by {
                Barrier::Hosts(_) => match hosts(target) {
                    None => self.add_only_here(target),
                    Some(remedy) => {
                        // An option opens it, or else the policy's owner has to.
                        let lease = matches!(remedy, Remedy::Option(_))
                            .then(|| Leased::Host(target.clone()));
                        self.add(Denial {
                            remedy,
                            lease,
                            ..denial.clone()
                        });
                    }
                },
                // A program that no directory of the cell's PATH has is never tried, so the trace has nothing of it.
                Barrier::Layer(..)
                    if extent == TraceExtent::Whole
                        && is_of_paths(denial)
                        && denial.what.kind != AttemptKind::Run => {}
                Barrier::Layer(..) | Barrier::Limit(_) | Barrier::Rule(_) | Barrier::Gateway => {
                    self.add(denial.clone())
                }
            }
        }
    }

    /// Adds a denial. The trace also contains the executor's own denials; of attempts that one grant opens, each kind counts.
    pub(crate) fn add(&mut self, denial: Denial) {
        // This run reaches no port, so the option that opens it would be named although it was given.
        if own_port(&denial).is_some_and(|port| self.connect.contains(&port)) {
            return self.add_only_here(&denial.what.target);
        }
        let grant = denial.lease.as_ref().map(grant);
        if let Some(known) = self
            .list
            .iter_mut()
            .find(|known| known.denial.what == denial.what)
        {
            known.denial.count = known.denial.count.max(denial.count);
            return;
        }
        let alike = |known: &&mut ExplainedDenial| {
            grant.is_some()
                && known.grant == grant
                && known.denial.what.target == denial.what.target
        };
        match self.list.iter_mut().find(alike) {
            Some(known) => known.denial.count = known.denial.count.saturating_add(denial.count),
            None => self.list.push(ExplainedDenial { denial, grant }),
        }
    }

    /// Takes back all advice: the command succeeded without what was closed to it.
    pub(crate) fn advise_nothing(&mut self) {
        for ExplainedDenial { denial, grant } in &mut self.list {
            *grant = None;
            denial.lease = None;
            denial.remedy = Remedy::Advice(DID_WITHOUT.to_owned());
        }
    }

    /// Drops the attempts to read what git in a cell gets otherwise, unless the command names it.
    pub(crate) fn drop_given(&mut self, home: &Path, words: &[String]) {
        let is_given = |finding: &ExplainedDenial| {
            let what = &finding.denial.what;
            let below = Path::new(&what.target).strip_prefix(home);
            let given = below.is_ok_and(|below| GIVEN.iter().any(|file| below == Path::new(file)));
            let is_named = || {
                let name = Path::new(&what.target).file_name().unwrap_or_default();
                words
                    .iter()
                    .any(|word| word.contains(&*name.to_string_lossy()))
            };
            what.kind == AttemptKind::Read && given && !is_named()
        };
        self.list.retain(|finding| !is_given(finding));
    }

    fn add_only_here(&mut self, target: &str) {
        self.only_here.insert(target.to_owned());
        self.gaps.insert(Gap::Network);
    }

    /// The fewest options that open everything that options can open. A path inside another granted path is included in that one.
    pub(crate) fn grants(&self) -> Vec<OpeningOption> {
        let all: BTreeSet<OpeningOption> = self
            .list
            .iter()
            .filter_map(|finding| finding.grant.clone())
            .collect();
        all.iter()
            .filter(|one| !all.iter().any(|other| covers(other, one)))
            .cloned()
            .collect()
    }
}

fn covers(outer: &OpeningOption, inner: &OpeningOption) -> bool {
    let as_much = outer.option == inner.option || outer.option == WRITE;
    outer != inner
        && outer.is_of_paths()
        && inner.is_of_paths()
        && as_much
        && Path::new(&inner.value).starts_with(&outer.value)
}

const HOST: &str = "--allow-host";
const CONNECT: &str = "--connect";
const WRITE: &str = "--write";

fn grant(lease: &Leased) -> OpeningOption {
    let option = match lease {
        Leased::Host(_) => HOST,
        Leased::Read(_) => "--read",
        Leased::Write(_) => WRITE,
        Leased::Port(_) => CONNECT,
    };
    OpeningOption {
        option,
        value: lease.parts().1.into_owned(),
    }
}

/// The port of this machine's loopback that a program tried to reach.
fn own_port(denial: &Denial) -> Option<u16> {
    let is_layer = matches!(denial.by, Barrier::Layer(..));
    let tried = denial.what.kind == AttemptKind::Connect && is_layer;
    network::own_port(denial.what.target.parse().ok().filter(|_| tried)?)
}

/// Whether a denial is about a path that the cell does not show or may not change.
fn is_of_paths(denial: &Denial) -> bool {
    let path = match denial.what.kind {
        AttemptKind::Read | AttemptKind::Write | AttemptKind::Metadata | AttemptKind::Run => true,
        AttemptKind::Connect
        | AttemptKind::Resolve
        | AttemptKind::SystemCall
        | AttemptKind::Use
        | AttemptKind::Call => false,
    };
    path && matches!(
        denial.by,
        Barrier::Layer(Layer::MountNamespace | Layer::LandlockFiles, _)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn denial(kind: AttemptKind, target: &str, lease: Option<Leased>) -> Denial {
        let by = Barrier::Layer(Layer::MountNamespace, None);
        Denial::new(kind, target, by, "why", Remedy::Nothing).with_lease(lease)
    }

    fn read(path: &str) -> Denial {
        denial(AttemptKind::Read, path, Some(Leased::Read(path.into())))
    }

    #[test]
    fn the_grants_are_the_fewest_that_open_all() {
        let mut findings = ExplainedDenials::default();
        let write = denial(
            AttemptKind::Write,
            "/d/e/new",
            Some(Leased::Write("/d/e".into())),
        );
        let run = denial(AttemptKind::Run, "/a", Some(Leased::Read("/a".into())));
        for one in [
            read("/a"),
            run,
            read("/b"),
            read("/b/c"),
            read("/bc"),
            write,
            read("/d/e/f"),
            read("/a"),
            denial(
                AttemptKind::Connect,
                "127.0.0.1:5432",
                Some(Leased::Port(5432)),
            ),
        ] {
            findings.add(one);
        }
        let grants: Vec<_> = findings
            .grants()
            .into_iter()
            .map(|grant| format!("{} {}", grant.option, grant.value))
            .collect();
        assert_eq!(
            grants,
            [
                "--connect 5432",
                "--read /a",
                "--read /b",
                "--read /bc",
                "--write /d/e"
            ]
        );
        assert_eq!(findings.list[0].denial.count, 2);
    }

    #[test]
    fn settings_of_git_that_cells_get_otherwise_are_no_denials() {
        let found = |words: &[&str]| {
            let mut findings = ExplainedDenials::default();
            for path in [
                "/h/.gitconfig",
                "/h/.config/git/ignore",
                "/h/x/.gitconfig",
                "/h/.npmrc",
            ] {
                findings.add(read(path));
            }
            let words: Vec<String> = words.iter().map(|word| (*word).to_owned()).collect();
            findings.drop_given(Path::new("/h"), &words);
            findings
        };
        let targets = |findings: &ExplainedDenials| -> Vec<String> {
            let all = findings.list.iter();
            all.map(|one| one.denial.what.target.clone()).collect()
        };
        let mut left = found(&["git", "log"]);
        assert_eq!(targets(&left), ["/h/x/.gitconfig", "/h/.npmrc"]);
        let named = found(&["bash", "-c", "cat ~/.gitconfig"]);
        assert_eq!(
            targets(&named),
            ["/h/.gitconfig", "/h/x/.gitconfig", "/h/.npmrc"]
        );
        left.advise_nothing();
        assert!(left.grants().is_empty());
        assert!(left.list[0].denial.to_string().contains(DID_WITHOUT));
    }

    #[test]
    fn given_ports_are_no_denials() {
        let connect = |target: &str| denial(AttemptKind::Connect, target, None);
        let mut findings = ExplainedDenials {
            connect: vec![5432],
            ..ExplainedDenials::default()
        };
        for target in ["127.0.0.1:5432", "[::1]:5432", "0.0.0.0:5432"] {
            findings.add(connect(target));
            assert!(findings.only_here.contains(target), "{target}");
        }
        assert!(findings.list.is_empty() && findings.gaps.contains(&Gap::Network));
        let others = ["127.0.0.1:5433", "10.0.0.1:5432", "/run/5432", "5432"];
        others
            .iter()
            .for_each(|target| findings.add(connect(target)));
        assert_eq!(findings.list.len(), others.len());
        findings.add(denial(AttemptKind::Use, "127.0.0.1:5432", None));
        assert_eq!(findings.list.len(), others.len() + 1, "another attempt");
    }

    #[test]
    fn host_reached_in_an_ordinary_run_is_no_denial() {
        let mut denied = Denials::default();
        for host in ["a.example:443", "b.example:443"] {
            let lease = Some(Leased::Host(host.into()));
            let by = Barrier::Hosts(None);
            denied.push(
                Denial::new(AttemptKind::Connect, host, by, "why", Remedy::Nothing)
                    .with_lease(lease),
            );
        }
        denied.push(read("/etc/shadow"));
        let mut findings = ExplainedDenials::default();
        let remedy = |host: &str| (host != "a.example:443").then(|| Remedy::Option("x".into()));
        findings.add_own(&denied, TraceExtent::Whole, &remedy);
        assert_eq!(
            findings.grants(),
            [OpeningOption {
                option: HOST,
                value: "b.example:443".into()
            }]
        );
        assert!(
            findings.only_here.contains("a.example:443") && findings.gaps.contains(&Gap::Network)
        );
        let mut cut = ExplainedDenials::default();
        cut.add_own(&denied, TraceExtent::WithGaps, &remedy);
        assert_eq!(cut.list.len(), 2);
    }
}
