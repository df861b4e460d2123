//! Reads what a machine printed.

use crate::rows::{DebianKernel, KernelRow, PROBES, Processor};
use serde_json::Value;
use std::collections::BTreeMap;

/// A step of the machine: what it printed, if it ended well.
fn step<'t>(printed: &'t str, tier: &str, name: &str) -> Result<&'t str, String> {
    let start = format!("\n@@begin {tier} {name} ");
    let (_, rest) = printed
        .split_once(&start)
        .ok_or_else(|| format!("{name} did not end"))?;
    let (text, _) = rest
        .split_once("\n@@end")
        .ok_or_else(|| format!("{name} was cut off"))?;
    let (status, text) = text.split_once('\n').unwrap_or((text, ""));
    // The runner of the corpus and the doctor end with 1 if something is open, which their output says.
    let (text, errors) = text.split_once("\n@@errors\n").unwrap_or((text, ""));
    if status == "0" || !text.trim().is_empty() {
        Ok(text)
    } else {
        Err(format!("{name} ended with {status}: {}", errors.trim()))
    }
}

fn object(printed: &str, tier: &str, name: &str) -> Result<Value, String> {
    let text = step(printed, tier, name)?;
    serde_json::from_str(text.trim()).map_err(|error| format!("{name}: {error}: {text}"))
}

fn verdicts<'t>(printed: &'t str, tier: &str) -> Result<BTreeMap<&'t str, &'t str>, String> {
    let lines = step(printed, tier, "corpus")?.lines();
    Ok(lines.filter_map(|line| line.split_once(' ')).collect())
}

/// Results of the machine in a tier, read from all that it printed.
pub fn row(kernel: &DebianKernel, processor: Processor, tier: &str, printed: &str) -> KernelRow {
    let mut row = KernelRow {
        kernel: kernel.name.into(),
        processor: processor.name().into(),
        tier: tier.into(),
        ..KernelRow::default()
    };
    let filled = fill(&mut row, printed);
    row.error = filled.err();
    row
}

fn fill(row: &mut KernelRow, printed: &str) -> Result<(), String> {
    let tier = row.tier.clone();
    step(printed, "control", "release")?
        .trim()
        .clone_into(&mut row.release);
    let doctor = object(printed, &tier, "doctor")?;
    row.landlock = doctor["landlockAbi"].as_u64().unwrap_or_default();
    let session = &doctor["session"];
    row.opened = session["tier"].as_str().map(str::to_owned);
    if row.opened.is_none() {
        return Err(format!("no session opens: {session}"));
    }
    let attack = object(printed, &tier, "attack")?;
    let count = |key: &str| attack[key].as_u64().unwrap_or_default();
    row.attacks = attack["attacks"].as_array().map_or(0, Vec::len) as u64;
    (row.held, row.untested) = (count("held"), count("untested"));
    (row.known, row.open) = (count("known"), count("open"));
    row.holds = attack["holds"] == true;
    row.runs = step(printed, &tier, "run")?.trim() == "A  made";
    let control = verdicts(printed, "control")?;
    let tried = verdicts(printed, &tier)?;
    for id in PROBES {
        let list = match (control.get(id), tried.get(id)) {
            (Some(&"ESCAPED"), Some(&"CONTAINED")) => &mut row.contained,
            (_, Some(&"ESCAPED")) => &mut row.escaped,
            (Some(&("SKIP" | "CONTAINED")), Some(&("SKIP" | "CONTAINED"))) => &mut row.skipped,
            (_, Some(_) | None) => &mut row.failed,
        };
        list.push(id.to_owned());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::KERNELS;

    fn printed(tier: &str, name: &str, status: u8, text: &str) -> String {
        format!("\n@@begin {tier} {name} {status}\n{text}\n@@end\n")
    }

    fn lines(verdict: &str) -> String {
        PROBES.map(|id| format!("{id} {verdict}\n")).concat()
    }

    /// Output of a machine in which all is well, in one tier.
    fn good() -> String {
        [
            printed("control", "release", 0, "6.1.0-50-cloud-amd64"),
            printed("control", "corpus", 0, &lines("ESCAPED")),
            printed(
                "flat",
                "doctor",
                0,
                r#"{"landlockAbi":2,"session":{"ok":true,"tier":"flat"}}"#,
            ),
            printed(
                "flat",
                "attack",
                0,
                r#"{"holds":true,"held":1,"untested":1,"known":0,"open":0,"attacks":[{},{}]}"#,
            ),
            printed("flat", "run", 0, "A  made"),
            printed("flat", "corpus", 0, &lines("CONTAINED")),
        ]
        .concat()
    }

    fn complaints(text: &str) -> Vec<String> {
        row(&KERNELS[0], Processor::X86_64, "flat", text).complaints()
    }

    #[test]
    fn complete_output_gives_a_good_row() {
        assert_eq!(complaints(&good()), Vec::<String>::new());
        let row = row(&KERNELS[0], Processor::X86_64, "flat", &good());
        assert_eq!((row.landlock, row.attacks, row.held), (2, 2, 1));
        assert_eq!(row.contained, PROBES);
    }

    #[test]
    fn each_step_that_is_missing_or_fails_is_a_complaint() {
        let good = good();
        for end in good.match_indices("\n@@end").map(|(at, _)| at) {
            assert!(!complaints(&good[..end]).is_empty(), "{}", &good[..end]);
        }
        for (from, to) in [
            ("\"ok\":true,\"tier\":\"flat\"", "\"ok\":false"),
            ("\"tier\":\"flat\"", "\"tier\":\"namespaced\""),
            ("\"holds\":true", "\"holds\":false"),
            ("\"open\":0", "\"open\":1"),
            ("A  made", "?? made"),
            ("FS-007 CONTAINED", "FS-007 ESCAPED"),
            ("FS-007 CONTAINED", "FS-007 ERROR"),
            ("FS-007 CONTAINED\n", ""),
            // A refusal where the attack does not work without a cell either proves nothing; one that was tried here alone is a fault.
            ("FS-007 CONTAINED", "FS-007 SKIP"),
        ] {
            assert!(good.contains(from), "{from}");
            let planted = good.replacen(from, to, 1);
            assert!(!complaints(&planted).is_empty(), "{from} as {to}");
        }
    }

    #[test]
    fn probe_that_proves_nothing_is_skipped_and_not_held() {
        let planted = good()
            .replace("SYS-005 ESCAPED", "SYS-005 SKIP")
            .replace("SYS-005 CONTAINED", "SYS-005 SKIP");
        let row = row(&KERNELS[0], Processor::Aarch64, "flat", &planted);
        assert_eq!(row.skipped, ["SYS-005"]);
        assert_eq!(row.contained.len(), PROBES.len() - 1);
        assert_eq!(row.complaints(), Vec::<String>::new());
    }
}
