//! Renders background processes as text and data.

use crate::metadata::{Details, Process};
use crate::rendered::Rendered;
use broker_protocol::{Background, Broken, Ended, Logged, Roots, Started};
use orchestrator_text::escape::file_name;
use orchestrator_text::time::utc;

/// A process that was started.
pub(crate) fn started(started: &Started, roots: &Roots) -> Rendered {
    let log = started.log.as_ref().map(|log| roots.absolute(log));
    let output = log.as_ref().map_or(String::new(), |log| {
        format!("; its output goes to {}", file_name(log))
    });
    let text = format!("started background process {}{output}", started.id);
    Rendered::new(
        text,
        Details::Started {
            background: started.id,
            log,
            timeout: started.timeout_s,
        },
    )
}

/// A list, one process a line.
pub(crate) fn listed(processes: &[Background], roots: &Roots) -> Rendered {
    let lines: Vec<String> = processes
        .iter()
        .map(|process| line(process, roots))
        .collect();
    let text = if lines.is_empty() {
        "no background process".to_owned()
    } else {
        lines.join("\n")
    };
    let processes = processes
        .iter()
        .map(|process| describe(process, roots))
        .collect();
    Rendered::new(text, Details::Background { processes })
}

/// A process that was killed or had ended by itself.
pub(crate) fn killed(process: &Background, roots: &Roots) -> Rendered {
    let text = format!("background process {}: {}", process.id, state(process));
    Rendered::new(
        text,
        Details::Background {
            processes: vec![describe(process, roots)],
        },
    )
}

/// A piece of a process's output, unchanged.
pub(crate) fn logged(logged: Logged) -> Rendered {
    let Logged {
        from,
        bytes,
        total,
        alive,
        before: _,
        behind: _,
    } = logged;
    let next = from + bytes.len() as u64;
    Rendered::new(
        bytes,
        Details::Logged {
            offset: from,
            next,
            total,
            alive,
        },
    )
}

fn line(process: &Background, roots: &Roots) -> String {
    let began = utc(process.started_ms / 1000);
    let seconds = process.usage.wall_us / 1_000_000;
    let printed = process.usage.stdout_bytes + process.usage.stderr_bytes;
    let (id, state, command) = (process.id, state(process), file_name(&process.command));
    let log = process.log.as_ref().map_or(String::new(), |log| {
        format!(" to {}", file_name(&roots.absolute(log)))
    });
    format!("{id}: {state}, started {began}, {seconds} s, {printed} bytes printed{log}: {command}")
}

fn describe(process: &Background, roots: &Roots) -> Process {
    Process {
        id: process.id,
        command: process.command.clone(),
        started_ms: process.started_ms,
        log: process.log.as_ref().map(|log| roots.absolute(log)),
        state: state(process),
        exit_code: match process.ended {
            Some(Ok(Ended::Exited(code))) => Some(code),
            _ => None,
        },
        signal: match process.ended {
            Some(Ok(Ended::Signalled(signal))) => Some(signal),
            _ => None,
        },
        usage: process.usage.into(),
    }
}

fn state(process: &Background) -> String {
    match &process.ended {
        None => "alive".to_owned(),
        Some(Err(Broken { message })) => format!("broken: {message}"),
        Some(Ok(ended)) => match ended {
            Ended::Exited(code) => format!("exited with code {code}"),
            Ended::Signalled(signal) => format!("ended by signal {signal}"),
            Ended::TimedOut => "ended by its time limit".to_owned(),
            Ended::Idle => "ended after its idle time".to_owned(),
            Ended::Cancelled => "killed".to_owned(),
            Ended::Limited(limit) => format!("ended by the policy's limit `{}`", limit.name()),
            Ended::NotStarted(errno) => {
                format!("not started: {}", std::io::Error::from_raw_os_error(*errno))
            }
            Ended::NoDirectory(errno) => {
                format!(
                    "not started in its directory: {}",
                    std::io::Error::from_raw_os_error(*errno)
                )
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use broker_protocol::{Usage, Zone, ZonePath};
    use serde_json::json;

    fn roots() -> Roots {
        Roots {
            project: "/p".into(),
            central: "/c".into(),
        }
    }

    fn process(ended: Option<Result<Ended, Broken>>) -> Background {
        let usage = Usage {
            wall_us: 2_500_000,
            stdout_bytes: 3,
            stderr_bytes: 4,
            ..Usage::default()
        };
        let log = ZonePath::new(Zone::Central, "outputs/1.log").ok();
        Background {
            id: 3,
            command: "a\nb".into(),
            started_ms: 1_795_168_954_999,
            log,
            ended,
            usage,
        }
    }

    #[test]
    fn a_process_is_one_line_however_it_ended() {
        let Rendered { text, details, .. } = listed(
            &[process(None), process(Some(Ok(Ended::Exited(2))))],
            &roots(),
        );
        let text = String::from_utf8(text).unwrap();
        let rest =
            "started 2026-11-20 10:02:34Z, 2 s, 7 bytes printed to /c/outputs/1.log: \"a\\nb\"";
        let want = format!("3: alive, {rest}\n3: exited with code 2, {rest}");
        assert_eq!(text, want);
        let details = serde_json::to_value(details).unwrap();
        assert_eq!(details["processes"][0]["state"], "alive");
        assert_eq!(details["processes"][0]["log"], "/c/outputs/1.log");
        let broken = process(Some(Err(Broken {
            message: "gone".into(),
        })));
        assert_eq!(
            killed(&broken, &roots()).text,
            b"background process 3: broken: gone".to_vec()
        );
        assert_eq!(
            listed(&[], &roots()).text,
            b"no background process".to_vec()
        );
    }

    #[test]
    fn a_start_says_its_number_and_a_log_where_to_go_on() {
        let log = ZonePath::new(Zone::Central, "outputs/1.log").ok();
        let Rendered { text, details, .. } = started(
            &Started {
                id: 3,
                log,
                timeout_s: None,
            },
            &roots(),
        );
        assert_eq!(
            text,
            b"started background process 3; its output goes to /c/outputs/1.log"
        );
        let want = json!({"background": 3, "log": "/c/outputs/1.log"});
        assert_eq!(serde_json::to_value(details).unwrap(), want);
        let Rendered { text, details, .. } = logged(Logged {
            from: 5,
            bytes: b"ab\xff".to_vec(),
            before: vec![],
            behind: vec![],
            total: 9,
            alive: true,
        });
        assert_eq!(text, b"ab\xff");
        let want = json!({"offset": 5, "next": 8, "total": 9, "alive": true});
        assert_eq!(serde_json::to_value(details).unwrap(), want);
    }
}
