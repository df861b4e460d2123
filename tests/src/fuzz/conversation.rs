//! Fuzzes the broker's state machine: a random conversation with a real broker, first in valid frames and then in an invalid one.
//!
//! The [`Ledger`] checks the broker's messages. Everything else is checked from outside: that the broker does not hang, stays
//! small, does not crash, and that nothing it started outlives it.

use super::ledger::Ledger;
use super::mutate::{body, pick};
use crate::chance::Chance;
use crate::process::LIMIT;
use crate::process::{self, Process, figure};
use crate::wire::Broker;
use crate::wire::{framed, opening, shell};
use crate::world::World;
use broker_protocol::*;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use serde_bytes::ByteBuf;
use std::io::{ErrorKind as IoError, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// A broker never needs more memory than this, in KiB.
pub const MEMORY: u64 = 32 * 1024;
/// Maximum number of frames before the invalid one.
const FRAMES: u64 = 60;

#[derive(Clone, Copy, Debug, Default)]
pub struct Summary {
    pub frames: u64,
    pub done: u64,
    /// Whether the broker ended it with a Fault.
    pub faults: u64,
    /// The broker's largest resident memory, in KiB.
    pub peak_kib: u64,
}

/// Holds one conversation; an error describes the broker's mistake and the messages before it.
pub fn hold(world: &World, marker: &str, chance: &mut Chance) -> Result<Summary, String> {
    let script = [prefix(world, chance), frames(marker, chance)].concat();
    play(world, marker, &script, chance).map_err(|wrong| format!("{wrong}\n{}", describe(&script)))
}

fn play(
    world: &World,
    marker: &str,
    script: &[ToBroker],
    chance: &mut Chance,
) -> Result<Summary, String> {
    let mut talk = Talk::start(world)?;
    talk.say_all(script, chance)?;
    if chance.below(3) > 0 {
        talk.wait_for_answers()?;
    }
    let started = process::below(talk.broker.pid());
    if chance.below(4) > 0 {
        talk.say(&bad_frame(chance))?;
    }
    talk.disconnect()?;
    talk.check_end(started, marker)
}

fn describe(script: &[ToBroker]) -> String {
    let line = |message: &ToBroker| format!("  {:.300}\n", format!("{message:?}"));
    script.iter().map(line).collect()
}

/// The beginning of a connection: usually a correct one.
fn prefix(world: &World, chance: &mut Chance) -> Vec<ToBroker> {
    let hello = ToBroker::Hello(Hello::ours(None));
    let trust = *pick(
        &[
            Trust::Autonomous,
            Trust::Autonomous,
            Trust::Guided,
            Trust::Supervised,
        ],
        chance,
    );
    let open = ToBroker::Open(Open {
        spare: chance.below(6) as u8,
        trust,
        ..opening(world)
    });
    match chance.below(20) {
        0 => vec![open],
        1 => vec![hello],
        2 => vec![hello.clone(), hello, open],
        3 => vec![hello, open.clone(), open],
        4 => vec![hello, ToBroker::Probe, open],
        5 => vec![],
        _ => vec![hello, open],
    }
}

/// Up to 60 frames of an open session, rarely with a mistake.
fn frames(marker: &str, chance: &mut Chance) -> Vec<ToBroker> {
    let mut next = 0;
    let count = chance.below(FRAMES + 1);
    (0..count)
        .map(|_| {
            if chance.below(5) < 2 {
                // Reusing a number ends the connection, so this is rare.
                next += u64::from(chance.below(100) > 0);
                let (call, request) = (next, request(marker, chance));
                match chance.below(16) {
                    0 => ToBroker::WantingCall {
                        call,
                        request,
                        wants: Wants {
                            hosts: vec!["a.example:443".into()],
                            ..Wants::default()
                        },
                    },
                    _ => ToBroker::Call { call, request },
                }
            } else {
                let call = if chance.below(10) == 0 {
                    chance.below(u64::MAX)
                } else {
                    recent(next, chance)
                };
                word(call, chance)
            }
        })
        .collect()
}

fn recent(next: CallId, chance: &mut Chance) -> CallId {
    next.saturating_sub(chance.below(4))
}

/// A message about a call that is in progress, has ended or never existed.
fn word(call: CallId, chance: &mut Chance) -> ToBroker {
    let number = |chance: &mut Chance| *pick(&[0, 1, 80, 4096, 65_536, u32::MAX], chance);
    match chance.below(15) {
        0..3 => {
            let length = *pick(&[0, 1, 100, 5000, limit::CHUNK], chance);
            ToBroker::Input {
                call,
                bytes: vec![b'a'; length],
            }
        }
        3 => ToBroker::Input {
            call,
            bytes: b"\x03\x04\x1a\n".into(),
        },
        4..6 => ToBroker::InputEnd { call },
        6 => ToBroker::Resize {
            call,
            rows: number(chance) as u16,
            columns: number(chance) as u16,
        },
        7 => {
            let all = [
                Signal::Interrupt,
                Signal::Terminate,
                Signal::Hangup,
                Signal::Quit,
                Signal::Suspend,
                Signal::Continue,
            ];
            ToBroker::Signal {
                call,
                signal: *pick(&all, chance),
            }
        }
        8..10 => ToBroker::Credit {
            call,
            bytes: number(chance),
        },
        10 => pick(
            &[
                ToBroker::Look { call },
                ToBroker::Grants,
                ToBroker::Revoke { grant: call % 3 },
                ToBroker::Refuse { call },
                ToBroker::Grant(forged(call)),
            ],
            chance,
        )
        .clone(),
        11..13 => {
            let bytes = vec![b'k'; *pick(&[0, 1, 5000, limit::CHUNK, limit::CHUNK + 1], chance)];
            ToBroker::Keep {
                call,
                bytes,
                last: chance.below(2) == 0,
            }
        }
        _ => ToBroker::Cancel { call },
    }
}

/// A grant for a question that was never asked.
fn forged(call: CallId) -> Grant {
    Grant {
        call,
        digest: Digest([7; 32]),
        nonce: Nonce([7; 16]),
        extent: Extent::Session,
    }
}

fn request(marker: &str, chance: &mut Chance) -> Request {
    if chance.below(3) == 0 {
        file_request(chance)
    } else {
        Request::Bash(command(marker, chance))
    }
}

/// A command that costs little, or waits until it is ended.
fn command(marker: &str, chance: &mut Chance) -> Bash {
    let sleep = format!("sleep {marker}");
    let left = format!("setsid sleep {marker} & exit 0");
    let all = [
        "true",
        "exit 3",
        "echo a; echo b >&2",
        "cat",
        "head -c 300000 /dev/zero",
        "kill -9 $$",
        "read x; echo $x",
        "no-such-program",
        "trap '' INT TERM; cat >/dev/null",
        &sleep,
        &left,
    ];
    let bash = shell(pick::<&str>(&all, chance));
    let terminal = Terminal {
        rows: 24,
        columns: 80,
        term: pick(&["xterm", "x;rm"], chance).to_string(),
    };
    let words = [vec!["true"], vec!["cat"], vec!["/nowhere"], vec![]];
    let arguments = pick(&words, chance)
        .iter()
        .map(|word| ByteBuf::from(word.as_bytes()))
        .collect();
    let command = if chance.below(4) == 0 {
        Command::Arguments(arguments)
    } else {
        bash.command
    };
    let stdin = match chance.below(6) {
        0 => Stdin::Terminal(terminal),
        1 | 2 => Stdin::Stream,
        _ => Stdin::Null,
    };
    let timeout_s = *pick(
        &[None, None, Some(1), Some(600), Some(0), Some(1_000_000_000)],
        chance,
    );
    let idle_timeout_s = *pick(&[None, None, Some(1)], chance);
    let directory = *pick(
        &[None, None, None, Some("nowhere"), Some(".git/hooks")],
        chance,
    );
    let directory = directory.map(|path| zone(path, chance));
    let (live, background, split) = (
        chance.below(2) == 0,
        chance.below(6) == 0,
        chance.below(6) == 0,
    );
    Bash {
        command,
        directory,
        timeout_s,
        idle_timeout_s,
        stdin,
        live,
        background,
        split,
        attended: chance.below(6) == 0,
    }
}

fn file_request(chance: &mut Chance) -> Request {
    let path = zone(
        pick::<&str>(&["a", "b/c", "", ".env", ".git", "nowhere/x"], chance),
        chance,
    );
    let limit = *pick(&[0, 1, 100, limit::ENTRIES + 1], chance);
    let expected_sha256 = if chance.below(8) == 0 {
        Some(Digest([0; 32]))
    } else {
        None
    };
    match chance.below(15) {
        14 => {
            let name = pick(&["s", "", "a b"], chance).to_string();
            let command = Command::Shell(pick(&["cat", "true", "exit 3"], chance).to_string());
            let variable = pick(&["A", "PATH", ""], chance).to_string();
            let environment = vec![Variable {
                name: variable,
                value: "v".into(),
            }];
            Request::Service(Service {
                name,
                command,
                directory: None,
                environment,
            })
        }
        13 => {
            let tool = pick(&["mcp__a__b", "bash", ""], chance).to_string();
            Request::Effect(Effect::Added {
                tool,
                risk: Risk::High,
                input: "{}".into(),
            })
        }
        8 => Request::BackgroundList,
        9 => {
            let (id, max) = (
                chance.below(4),
                *pick(&[0, 1, limit::LOG, u32::MAX], chance),
            );
            Request::BackgroundLog(BackgroundLog {
                id,
                from: *pick(&[None, Some(0), Some(u64::MAX)], chance),
                most: max,
            })
        }
        10 => Request::BackgroundKill(BackgroundKill {
            id: chance.below(4),
        }),
        11 => Request::History(History { limit }),
        12 => Request::Undo(Undo {
            change: chance.below(9),
            path,
            force: chance.below(2) == 0,
        }),
        0 => Request::FileRead(FileRead {
            path,
            offset: *pick(&[None, Some(0), Some(2)], chance),
            limit: None,
        }),
        1 => {
            let content = vec![b'x'; *pick(&[0, 10, 70_000], chance)];
            Request::FileWrite(FileWrite {
                path,
                content,
                overwrite: chance.below(2) == 0,
                expected_sha256,
            })
        }
        2 => {
            let edit = Edit {
                old: "x".into(),
                new: "yy".into(),
                occurrence: Occurrence::All,
            };
            Request::FileEdit(FileEdit {
                path,
                edits: vec![edit; chance.below(3) as usize],
                expected_sha256,
            })
        }
        3 => Request::FileList(FileList {
            path,
            depth: chance.below(4) as u16,
            hidden: true,
            limit,
        }),
        4 => {
            let pattern = pick(&["**/*", "[", "{a,b}*", ""], chance).to_string();
            Request::Glob(Glob {
                pattern,
                path,
                hidden: true,
                ignored: true,
                limit,
            })
        }
        5 => Request::FileBytes(FileBytes {
            path,
            offset: chance.below(9),
            limit,
        }),
        6 => {
            let tool = *pick(&StateTool::ALL, chance);
            let content = vec![b'x'; *pick(&[0, 10, limit::STATE + 1], chance)];
            let change = (chance.below(2) == 0).then_some(StateChange {
                content,
                expected_sha256,
            });
            Request::State(State { tool, change })
        }
        _ => {
            let pattern = pick(&["x+", "(", "a{1000}{1000}", ""], chance).to_string();
            let (literal, ignore_case, ignored) =
                (chance.below(2) == 0, chance.below(2) == 0, true);
            Request::Grep(Grep {
                pattern,
                literal,
                ignore_case,
                path,
                include: None,
                ignored,
                context: 1,
                limit,
                sort: *pick(&[GrepSort::Path, GrepSort::Modified], chance),
            })
        }
    }
}

fn zone(path: &str, chance: &mut Chance) -> ZonePath {
    let zone = *pick(&[Zone::Project, Zone::Project, Zone::Central], chance);
    ZonePath::new(zone, path).expect("a path of ours")
}

/// A frame that is usually invalid: its length is wrong or its content is damaged.
fn bad_frame(chance: &mut Chance) -> Vec<u8> {
    let body = body(chance);
    let length = match chance.below(8) {
        0 => 0,
        1 => FRAME_MAX as u32 + 1 + chance.below(1 << 20) as u32,
        2 => body.len() as u32 / 2,
        3 => body.len() as u32 + 1,
        _ => body.len() as u32,
    };
    [&length.to_le_bytes(), body.as_slice()].concat()
}

/// A client that keeps the ledger.
struct Talk<'w> {
    broker: Broker,
    world: &'w World,
    /// Decodes what we send in the same way as the broker.
    mirror: Decoder,
    decoder: Decoder,
    ledger: Ledger,
    summary: Summary,
    /// The broker or we have closed the connection.
    closed: bool,
    left: bool,
}

impl<'w> Talk<'w> {
    fn start(world: &'w World) -> Result<Self, String> {
        let broker = Broker::start(world);
        broker
            .stream
            .set_nonblocking(true)
            .map_err(|error| error.to_string())?;
        let (mirror, decoder, ledger) = Default::default();
        Ok(Self {
            broker,
            world,
            mirror,
            decoder,
            ledger,
            summary: Summary::default(),
            closed: false,
            left: false,
        })
    }

    /// Sends frames one by one, and reads from time to time.
    fn say_all(&mut self, messages: &[ToBroker], chance: &mut Chance) -> Result<(), String> {
        for message in messages {
            self.say(&framed(message))?;
            match chance.below(16) {
                0 => self.listen(Duration::from_millis(15))?,
                1..5 => self.listen(Duration::ZERO)?,
                5..8 => self.answer(chance)?,
                _ => {}
            }
        }
        Ok(())
    }

    /// Answers the pending questions, usually correctly.
    fn answer(&mut self, chance: &mut Chance) -> Result<(), String> {
        self.hear()?;
        let asked: Vec<Grant> = self
            .ledger
            .questions()
            .map(|(call, asked)| Grant {
                call,
                digest: asked.digest,
                nonce: asked.nonce,
                extent: Extent::Once,
            })
            .collect();
        for grant in asked {
            let answer = match chance.below(12) {
                0 => ToBroker::Refuse { call: grant.call },
                1 => ToBroker::Grant(Grant {
                    digest: Digest([0; 32]),
                    ..grant
                }),
                2 => ToBroker::Grant(Grant {
                    nonce: Nonce([0; 16]),
                    ..grant
                }),
                3 => ToBroker::Grant(Grant {
                    extent: Extent::Session,
                    ..grant
                }),
                4 => continue,
                5 => ToBroker::Grant(Grant {
                    extent: Extent::Minutes(1),
                    ..grant
                }),
                _ => ToBroker::Grant(grant),
            };
            self.say(&framed(&answer))?;
        }
        Ok(())
    }

    /// Records the meaning of bytes in the ledger, then sends them.
    fn say(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.note(bytes);
        self.summary.frames += 1;
        let (mut rest, end) = (bytes, Instant::now() + LIMIT);
        while !rest.is_empty() && !self.closed {
            match self.broker.stream.write(rest) {
                Ok(length) => rest = &rest[length..],
                Err(error) if error.kind() == IoError::WouldBlock => {
                    self.wait(PollFlags::POLLOUT, end)?
                }
                // It has closed; its earlier messages are still there.
                Err(_) => return self.hear(),
            }
        }
        Ok(())
    }

    fn note(&mut self, bytes: &[u8]) {
        self.mirror.push(bytes);
        loop {
            match self.mirror.next() {
                Ok(Some(message)) => {
                    if let ToBroker::Open(open) = &message
                        && (Open {
                            spare: 0,
                            trust: Trust::Guided,
                            ..open.clone()
                        }) != (Open {
                            spare: 0,
                            trust: Trust::Guided,
                            ..opening(self.world)
                        })
                    {
                        self.ledger.sent_odd_open();
                    }
                    self.ledger.sent(&message);
                }
                Ok(None) => return,
                Err(error) => return self.ledger.sent_nonsense(&error.to_string()),
            }
        }
    }

    /// Waits for the socket and reads what has arrived; an error after `end` if the broker still owes a message.
    fn wait(&mut self, flags: PollFlags, end: Instant) -> Result<(), String> {
        if Instant::now() > end {
            return Err(format!(
                "nothing for {LIMIT:?}; under way: {:?}",
                self.ledger.outstanding()
            ));
        }
        self.pause(flags, end)
    }

    /// Waits until the socket is ready or readable, at most until `end`, and reads.
    fn pause(&mut self, flags: PollFlags, end: Instant) -> Result<(), String> {
        let left = end.saturating_duration_since(Instant::now());
        let timeout = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        let mut asked = [PollFd::new(
            self.broker.stream.as_fd(),
            flags | PollFlags::POLLIN,
        )];
        poll(&mut asked, timeout).map_err(|error| error.to_string())?;
        self.hear()
    }

    fn listen(&mut self, limit: Duration) -> Result<(), String> {
        let end = Instant::now() + limit;
        self.hear()?;
        while !self.closed && !self.ledger.outstanding().is_empty() && Instant::now() < end {
            self.pause(PollFlags::empty(), end)?;
        }
        Ok(())
    }

    fn hear(&mut self) -> Result<(), String> {
        self.measure()?;
        let mut buffer = [0; 64 * 1024];
        while !self.closed {
            match self.broker.stream.read(&mut buffer) {
                Ok(0) => self.closed = true,
                Ok(length) => self.decoder.push(&buffer[..length]),
                Err(error) if error.kind() == IoError::WouldBlock => break,
                Err(error) if error.kind() == IoError::Interrupted => {}
                Err(_) => self.closed = true,
            }
            while let Some(message) = self
                .decoder
                .next()
                .map_err(|error| format!("the broker sends: {error}"))?
            {
                self.summary.done += u64::from(matches!(message, FromBroker::Done { .. }));
                self.summary.faults += u64::from(matches!(message, FromBroker::Fault(_)));
                self.ledger.received(&message)?;
            }
        }
        if self.closed {
            self.ledger.closed(self.left)
        } else {
            Ok(())
        }
    }

    /// Ends every call and waits for each end.
    fn wait_for_answers(&mut self) -> Result<(), String> {
        self.listen(Duration::from_millis(10))?;
        for call in self.ledger.outstanding() {
            self.say(&framed(&ToBroker::Cancel { call }))?;
            // A command that has ended by itself, and whose last output waits for credit, ignores a cancel.
            self.say(&framed(&ToBroker::Credit {
                call,
                bytes: limit::OUTPUT_WINDOW,
            }))?;
        }
        let end = Instant::now() + LIMIT;
        let waits = |ledger: &Ledger| ledger.must_end() || !ledger.outstanding().is_empty();
        while !self.closed && !self.ledger.has_ended() && waits(&self.ledger) {
            self.wait(PollFlags::empty(), end)?;
        }
        Ok(())
    }

    /// Closes our end; the broker must end, with a message if it owes one.
    fn disconnect(&mut self) -> Result<(), String> {
        let end = Instant::now() + LIMIT;
        while self.ledger.must_end() && !self.closed {
            self.wait(PollFlags::empty(), end)?;
        }
        self.left = true;
        let _ = self.broker.stream.shutdown(Shutdown::Write);
        while !self.closed {
            self.wait(PollFlags::empty(), end)?;
        }
        Ok(())
    }

    fn measure(&mut self) -> Result<(), String> {
        let peak = figure(self.broker.pid(), "status", "VmHWM").unwrap_or(0);
        self.summary.peak_kib = self.summary.peak_kib.max(peak);
        if peak > MEMORY {
            Err(format!("the broker has taken {peak} KiB"))
        } else {
            Ok(())
        }
    }

    /// After the end: no crash, and nothing that it started is left.
    fn check_end(mut self, started: Vec<Process>, marker: &str) -> Result<Summary, String> {
        let status =
            process::wait(&mut self.broker.child, LIMIT).ok_or("the broker is not over")?;
        if status.code() != Some(0) {
            return Err(format!("the broker ended with {status}"));
        }
        let mut left = process::left_after(&started, Duration::from_secs(2));
        left.extend(process::with_marker(&format!("sleep {marker}")));
        left.iter().for_each(Process::kill);
        if left.is_empty() {
            Ok(self.summary)
        } else {
            Err(format!("left running: {left:#?}"))
        }
    }
}
