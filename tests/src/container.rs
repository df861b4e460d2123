//! The seccomp profiles of container runtimes (OCI), applied as a runtime does to an ordinary user's process without capabilities.

use crate::filter::{ALLOW, answer, argument, fail, jump, load, preamble};
use nix::sys::utsname::uname;
use seccompiler::{BpfProgram, TargetArch, compile_from_json, sock_filter};
use serde::Deserialize;
use serde_json::json;
use std::collections::BTreeMap;

/// A runtime whose profile a flat place can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Runtime {
    Docker,
    Podman,
}

impl Runtime {
    pub const ALL: [Self; 2] = [Self::Docker, Self::Podman];

    pub fn name(self) -> &'static str {
        match self {
            Self::Docker => "docker",
            Self::Podman => "podman",
        }
    }

    /// The runtime of this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|runtime| runtime.name() == name)
    }

    /// The text of its default profile.
    pub fn text(self) -> &'static str {
        match self {
            Self::Docker => include_str!("../fixtures/containers/docker.json"),
            Self::Podman => include_str!("../fixtures/containers/podman.json"),
        }
    }

    /// Its default profile as a filter.
    pub fn filter(self) -> BpfProgram {
        Profile::parse(self.text()).filter()
    }
}

/// The text of the profile that we ship.
pub const SHIPPED: &str = include_str!("../../policies/containers/seccomp.json");

/// The calls that its last rule adds to Docker's profile.
pub fn added() -> Vec<String> {
    let mut rules = Profile::parse(SHIPPED).syscalls;
    rules.pop().expect("the profile has rules").names
}

/// The profile that we ship as a filter, without one of the calls that it adds.
pub fn shipped(without: Option<&str>) -> BpfProgram {
    let mut profile = Profile::parse(SHIPPED);
    let rule = profile.syscalls.last_mut().expect("the profile has rules");
    rule.names.retain(|name| Some(name.as_str()) != without);
    profile.filter()
}

impl Profile {
    fn parse(text: &str) -> Self {
        serde_json::from_str(text).expect("a profile has this form")
    }

    /// The profile as a filter. Foreign ABIs pass: what they may do is up to the product.
    fn filter(&self) -> BpfProgram {
        let otherwise = self
            .default_action
            .verdict(self.default_errno_ret.unwrap_or(libc::EPERM));
        let mut calls: BTreeMap<u32, Vec<(&[Condition], u32)>> = BTreeMap::new();
        for rule in self.syscalls.iter().filter(|rule| rule.applies()) {
            let errno = rule
                .errno_ret
                .or(self.default_errno_ret)
                .unwrap_or(libc::EPERM);
            for number in rule.names.iter().filter_map(|name| number(name)) {
                let conditions = rule.args.as_deref().unwrap_or_default();
                calls
                    .entry(number)
                    .or_default()
                    .push((conditions, rule.action.verdict(errno)));
            }
        }
        let mut program = preamble();
        for (number, mut rules) in calls {
            // What has conditions is looked at first.
            rules.sort_by_key(|(conditions, _)| std::cmp::Reverse(conditions.len()));
            let mut body: Vec<sock_filter> = rules
                .iter()
                .flat_map(|(conditions, verdict)| one(conditions, *verdict))
                .collect();
            body.push(answer(otherwise));
            let length = body.len().try_into().expect("a call has few rules");
            program.extend([load(0), jump(libc::BPF_JEQ, number, 0, length)]);
            program.extend(body);
        }
        program.push(answer(otherwise));
        program
    }
}

/// The verdict, if all conditions hold; else the next instruction after these.
fn one(conditions: &[Condition], verdict: u32) -> Vec<sock_filter> {
    let mut steps = vec![answer(verdict)];
    for condition in conditions.iter().rev() {
        let over = steps.len() as u8;
        let holds = |test, value| jump(test, value, 0, over);
        let fails = |test, value| jump(test, value, over, 0);
        // Flags and families: the upper halves of these arguments say nothing.
        let value = condition.value as u32;
        let mut test = vec![load(argument(condition.index))];
        match condition.op {
            Comparison::Equal => test.push(holds(libc::BPF_JEQ, value)),
            Comparison::NotEqual => test.push(fails(libc::BPF_JEQ, value)),
            Comparison::Less => test.push(fails(libc::BPF_JGE, value)),
            Comparison::Greater => test.push(holds(libc::BPF_JGT, value)),
            Comparison::MaskedEqual => {
                let mask = (libc::BPF_ALU | libc::BPF_AND | libc::BPF_K) as u16;
                test.push(sock_filter {
                    code: mask,
                    jt: 0,
                    jf: 0,
                    k: value,
                });
                test.push(holds(libc::BPF_JEQ, condition.value_two as u32));
            }
        }
        test.extend(steps);
        steps = test;
    }
    steps
}

/// The number of a system call: what a filter for it alone compares. `None` if no table has the name.
fn number(name: &str) -> Option<u32> {
    const NUMBER: u32 = 0;
    let rules = json!({ "main": {
        "mismatch_action": "allow",
        "match_action": { "errno": 1 },
        "filter": [{ "syscall": name }],
    }});
    let arch = TargetArch::try_from(std::env::consts::ARCH).expect("a known architecture");
    let programs = compile_from_json(rules.to_string().as_bytes(), arch).ok()?;
    let program = programs.get("main")?;
    let load = program
        .iter()
        .position(|step| *step == self::load(NUMBER))?;
    program[load..]
        .iter()
        .find(|step| step.code == jump(libc::BPF_JEQ, 0, 0, 0).code)
        .map(|step| step.k)
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Profile {
    default_action: Action,
    default_errno_ret: Option<i32>,
    syscalls: Vec<Rule>,
}

#[derive(Clone, Copy, Deserialize)]
enum Action {
    #[serde(rename = "SCMP_ACT_ALLOW")]
    Allow,
    #[serde(rename = "SCMP_ACT_ERRNO")]
    Errno,
}

impl Action {
    fn verdict(self, errno: i32) -> u32 {
        match self {
            Self::Allow => ALLOW,
            Self::Errno => fail(errno),
        }
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Rule {
    names: Vec<String>,
    action: Action,
    errno_ret: Option<i32>,
    args: Option<Vec<Condition>>,
    #[serde(default)]
    includes: Filter,
    #[serde(default)]
    excludes: Filter,
}

impl Rule {
    /// Whether it is for a process without capabilities on this machine.
    fn applies(&self) -> bool {
        let arch = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            _ => "arm64",
        };
        let names = |filter: &Filter| filter.arches.iter().any(|name| name == arch);
        let Filter {
            arches,
            caps,
            min_kernel,
        } = &self.includes;
        (arches.is_empty() || names(&self.includes))
            && !names(&self.excludes)
            && caps.is_empty()
            && min_kernel
                .as_deref()
                .is_none_or(|least| version(least) <= running())
    }
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Filter {
    #[serde(default)]
    arches: Vec<String>,
    #[serde(default)]
    caps: Vec<String>,
    min_kernel: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Condition {
    index: u32,
    value: u64,
    #[serde(default)]
    value_two: u64,
    op: Comparison,
}

#[derive(Deserialize)]
enum Comparison {
    #[serde(rename = "SCMP_CMP_EQ")]
    Equal,
    #[serde(rename = "SCMP_CMP_NE")]
    NotEqual,
    #[serde(rename = "SCMP_CMP_LT")]
    Less,
    #[serde(rename = "SCMP_CMP_GT")]
    Greater,
    #[serde(rename = "SCMP_CMP_MASKED_EQ")]
    MaskedEqual,
}

/// The first two numbers of a kernel's version.
fn version(text: &str) -> [u32; 2] {
    let mut numbers = text
        .split(|c: char| !c.is_ascii_digit())
        .map(|number| number.parse().unwrap_or(0));
    [numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)]
}

fn running() -> [u32; 2] {
    version(
        &uname()
            .expect("a kernel has a name")
            .release()
            .to_string_lossy(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_has_the_number_of_this_architecture() {
        assert_eq!(number("unshare"), Some(libc::SYS_unshare as u32));
        assert_eq!(number("pidfd_getfd"), Some(libc::SYS_pidfd_getfd as u32));
        assert_eq!(number("no_such_call"), None);
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        assert!(version("4.8") < version("4.10-rc1") && version("6.18.44-x") > [6, 2]);
    }
}
