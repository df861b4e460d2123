//! Builds a message from the chunks of an answer: checked, bounded, every call with a unique ID.

use crate::chunk::{Chunk, Stop, TokenUsage};
use crate::conversation::CallIds;
use crate::error::ProviderError;
use crate::message::{MessagePart, ToolCall};
use broker_protocol::limit;
use orchestrator_text::redact::Redactor;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Maximum number of parts in an answer.
const PARTS_MAX: usize = 256;
/// Maximum number of calls in an answer.
pub(crate) const CALLS_MAX: usize = 64;
/// Maximum bytes of all texts and inputs of an answer.
const BYTES_MAX: usize = 24 << 20;
/// Maximum bytes of one call's input: a write of the largest content, escaped.
pub(crate) const INPUT_MAX: usize = 2 * limit::WRITE;
/// Maximum bytes of a call's ID.
const ID_MAX: usize = 64;

/// The part of an answer received so far.
#[derive(Debug, Default)]
pub struct Accumulator {
    parts: BTreeMap<u32, Building>,
    bytes: usize,
    usage: TokenUsage,
    stop: Option<Stop>,
}

#[derive(Debug)]
enum Building {
    Text(String),
    Thinking {
        text: String,
        signature: Option<String>,
    },
    Sealed {
        vendor: &'static str,
        data: Value,
    },
    Call {
        id: String,
        name: String,
        json: String,
        ended: bool,
    },
}

#[derive(Debug)]
pub struct ModelAnswer {
    /// Its parts, the calls among them.
    pub parts: Vec<MessagePart>,
    /// Calls whose input was no JSON object, by ID, with the reason.
    pub(crate) malformed: BTreeMap<String, String>,
    pub usage: TokenUsage,
    /// Why it ended; `None` if it was cut off.
    pub stop: Option<Stop>,
}

impl Accumulator {
    /// Adds a chunk.
    ///
    /// # Errors
    /// If it does not fit the chunks before it, or exceeds a bound.
    pub fn push(&mut self, chunk: &Chunk) -> Result<(), ProviderError> {
        match chunk {
            Chunk::Text { index, text } => {
                match self.part(*index, || Building::Text(String::new()))? {
                    Building::Text(all) => all.push_str(text),
                    _ => return Err(mixed()),
                }
            }
            Chunk::Thinking { index, text } => self.thinking(*index)?.0.push_str(text),
            Chunk::Signature { index, signature } => {
                self.thinking(*index)?
                    .1
                    .get_or_insert_default()
                    .push_str(signature);
            }
            Chunk::Sealed {
                index,
                vendor,
                data,
            } => {
                let sealed = Building::Sealed {
                    vendor,
                    data: data.clone(),
                };
                self.begin(*index, sealed)?;
            }
            Chunk::ToolStart { index, id, name } => self.begin_call(*index, id, name)?,
            Chunk::ToolDelta { index, json: piece } => match self.parts.get_mut(index) {
                Some(Building::Call {
                    json, ended: false, ..
                }) => {
                    if json.len() + piece.len() > INPUT_MAX {
                        return Err(ProviderError::TooLarge {
                            what: "bytes in an input",
                            max: INPUT_MAX,
                        });
                    }
                    json.push_str(piece);
                }
                _ => return Err(mixed()),
            },
            Chunk::ToolEnd { index } => match self.parts.get_mut(index) {
                Some(Building::Call { ended, .. }) => *ended = true,
                _ => return Err(mixed()),
            },
            Chunk::Usage(usage) => self.usage.update(*usage),
            Chunk::End(stop) => self.stop = Some(*stop),
        }
        self.count(chunk)
    }

    fn begin_call(&mut self, index: u32, id: &str, name: &str) -> Result<(), ProviderError> {
        let is_call = |part: &&Building| matches!(part, Building::Call { .. });
        if self.parts.values().filter(is_call).count() >= CALLS_MAX {
            return Err(ProviderError::TooLarge {
                what: "calls",
                max: CALLS_MAX,
            });
        }
        let call = Building::Call {
            id: id.to_owned(),
            name: name.to_owned(),
            json: String::new(),
            ended: false,
        };
        self.begin(index, call)
    }

    fn count(&mut self, chunk: &Chunk) -> Result<(), ProviderError> {
        self.bytes += match chunk {
            Chunk::Text { text, .. } | Chunk::Thinking { text, .. } => text.len(),
            Chunk::Signature { signature, .. } => signature.len(),
            Chunk::ToolStart { id, name, .. } => id.len() + name.len(),
            Chunk::ToolDelta { json, .. } => json.len(),
            Chunk::Sealed { data, .. } => data.to_string().len(),
            Chunk::ToolEnd { .. } | Chunk::Usage(_) | Chunk::End(_) => 0,
        };
        if self.bytes > BYTES_MAX {
            return Err(ProviderError::TooLarge {
                what: "bytes",
                max: BYTES_MAX,
            });
        }
        Ok(())
    }

    fn thinking(
        &mut self,
        index: u32,
    ) -> Result<(&mut String, &mut Option<String>), ProviderError> {
        let empty = || Building::Thinking {
            text: String::new(),
            signature: None,
        };
        match self.part(index, empty)? {
            Building::Thinking { text, signature } => Ok((text, signature)),
            _ => Err(mixed()),
        }
    }

    fn begin(&mut self, index: u32, part: Building) -> Result<(), ProviderError> {
        if self.parts.contains_key(&index) {
            return Err(mixed());
        }
        self.part(index, || part).map(drop)
    }

    fn part(
        &mut self,
        index: u32,
        empty: impl FnOnce() -> Building,
    ) -> Result<&mut Building, ProviderError> {
        if !self.parts.contains_key(&index) && self.parts.len() >= PARTS_MAX {
            return Err(ProviderError::TooLarge {
                what: "parts",
                max: PARTS_MAX,
            });
        }
        Ok(self.parts.entry(index).or_insert_with(empty))
    }

    /// Tokens so far, as the provider has reported them.
    pub fn usage(&self) -> TokenUsage {
        self.usage
    }

    /// The answer. No call in it has an ID of `taken`; its IDs are added there. If the answer was cut off, its calls are left out:
    /// they may be incomplete.
    pub fn finish(self, taken: &CallIds, redactor: &Redactor) -> ModelAnswer {
        let (mut parts, mut malformed) = (Vec::new(), BTreeMap::new());
        for part in self.parts.into_values() {
            match part {
                Building::Text(text) if text.is_empty() => {}
                Building::Text(text) => parts.push(MessagePart::Text { text }),
                Building::Thinking {
                    text,
                    signature: None,
                } if text.is_empty() => {}
                Building::Thinking { text, signature } => {
                    parts.push(MessagePart::Thinking { text, signature })
                }
                Building::Sealed { vendor, data } => parts.push(MessagePart::Sealed {
                    vendor: vendor.to_owned(),
                    data,
                }),
                Building::Call { id, name, json, .. } if self.stop.is_some() => {
                    let id = own_id(&redactor.text(&id), taken);
                    let input = parse(&json).unwrap_or_else(|why| {
                        malformed.insert(id.clone(), why);
                        Value::Object(Map::new())
                    });
                    parts.push(MessagePart::ToolCall(ToolCall { id, name, input }));
                }
                Building::Call { .. } => {}
            }
        }
        ModelAnswer {
            parts,
            malformed,
            usage: self.usage,
            stop: self.stop,
        }
    }
}

/// Parses an input. For a tool without arguments, some vendors send nothing at all.
fn parse(json: &str) -> Result<Value, String> {
    if json.trim().is_empty() {
        return Ok(Value::Object(Map::new()));
    }
    match serde_json::from_str(json) {
        Ok(input @ Value::Object(_)) => Ok(input),
        Ok(Value::Null) => Ok(Value::Object(Map::new())),
        Ok(_) => Err("the input is no JSON object".to_owned()),
        Err(error) => Err(format!("the input is no JSON: {error}")),
    }
}

/// An ID that every vendor accepts and that no other call has: some vendors count from one in each answer. A model may have put a
/// secret into `given`; that was already removed, since after changes it would no longer be found.
fn own_id(given: &str, taken: &CallIds) -> String {
    let fit = |c: char| {
        if c.is_ascii_alphanumeric() || "_-".contains(c) {
            c
        } else {
            '_'
        }
    };
    let given: String = given.chars().take(ID_MAX - 8).map(fit).collect();
    let given = if given.is_empty() {
        "call".to_owned()
    } else {
        given
    };
    let mut id = given.clone();
    let mut number = 1;
    while !taken.take(&id) {
        number += 1;
        id = format!("{given}-{number}");
    }
    id
}

fn mixed() -> ProviderError {
    ProviderError::malformed("two parts of the answer have the same index")
}

#[cfg(test)]
mod tests {
    use super::*;
    use policies::secret::Secret;
    use serde_json::json;

    fn start(index: u32, id: &str) -> Chunk {
        Chunk::ToolStart {
            index,
            id: id.into(),
            name: "bash".into(),
        }
    }

    fn delta(index: u32, json: &str) -> Chunk {
        Chunk::ToolDelta {
            index,
            json: json.into(),
        }
    }

    fn answer(chunks: &[Chunk], taken: &CallIds) -> ModelAnswer {
        let mut accumulator = Accumulator::default();
        chunks
            .iter()
            .for_each(|chunk| accumulator.push(chunk).unwrap());
        accumulator.finish(taken, &Redactor::new(vec![]).unwrap())
    }

    fn inputs(answer: &ModelAnswer) -> Vec<(String, Value)> {
        let call = |part: &MessagePart| match part {
            MessagePart::ToolCall(call) => Some((call.id.clone(), call.input.clone())),
            _ => None,
        };
        answer.parts.iter().filter_map(call).collect()
    }

    #[test]
    fn two_calls_interleaved_by_index_are_two_and_no_arguments_are_an_empty_object() {
        let chunks = [
            start(2, "a"),
            start(3, "b"),
            delta(3, "{\"x\":"),
            delta(2, ""),
            delta(3, "1}"),
            Chunk::End(Stop::Done),
        ];
        let got = answer(&chunks, &CallIds::default());
        assert_eq!(
            inputs(&got),
            [
                ("a".to_owned(), json!({})),
                ("b".to_owned(), json!({"x": 1}))
            ]
        );
    }

    #[test]
    fn every_call_has_an_id_of_its_own_that_all_vendors_take() {
        let taken = CallIds::default();
        for want in [
            ["call_1", "call_1-2", "x_y", "call"],
            ["call_1-3", "call_1-4", "x_y-2", "call-2"],
        ] {
            let chunks = [
                start(0, "call_1"),
                start(1, "call_1"),
                start(2, "x:y"),
                start(3, ""),
                Chunk::End(Stop::Done),
            ];
            let ids: Vec<String> = inputs(&answer(&chunks, &taken))
                .into_iter()
                .map(|(id, _)| id)
                .collect();
            assert_eq!(ids, want);
        }
        let long = answer(
            &[start(0, &"x".repeat(500)), Chunk::End(Stop::Done)],
            &taken,
        );
        assert!(inputs(&long)[0].0.len() <= ID_MAX);
    }

    #[test]
    fn an_id_has_no_secret_in_it() {
        let secret = Secret {
            name: "A_KEY".into(),
            value: b"a+secret/value".to_vec(),
        };
        let redactor = Redactor::new(vec![secret]).unwrap();
        let mut accumulator = Accumulator::default();
        for chunk in [
            start(0, "x-a+secret/value"),
            start(1, "a+secret/value"),
            Chunk::End(Stop::Done),
        ] {
            accumulator.push(&chunk).unwrap();
        }
        let got = accumulator.finish(&CallIds::default(), &redactor);
        let ids: Vec<String> = inputs(&got).into_iter().map(|(id, _)| id).collect();
        assert_eq!(ids, ["x-_redacted_A_KEY_", "_redacted_A_KEY_"]);
    }

    #[test]
    fn malformed_inputs_are_reported_and_a_cut_answer_has_no_calls() {
        let chunks = [
            start(0, "a"),
            delta(0, "{\"x\":"),
            start(1, "b"),
            delta(1, "[1]"),
            Chunk::End(Stop::Done),
        ];
        let got = answer(&chunks, &CallIds::default());
        assert_eq!(got.malformed.keys().collect::<Vec<_>>(), ["a", "b"]);
        let text = Chunk::Text {
            index: 0,
            text: "so far".into(),
        };
        let got = answer(&[text, start(1, "a"), delta(1, "{}")], &CallIds::default());
        assert_eq!(
            (got.parts, got.stop),
            (
                vec![MessagePart::Text {
                    text: "so far".into()
                }],
                None
            )
        );
    }

    #[test]
    fn chunk_that_does_not_fit_or_is_over_a_limit_is_an_error() {
        let fails = |chunks: &[Chunk]| {
            let mut accumulator = Accumulator::default();
            chunks.iter().any(|chunk| accumulator.push(chunk).is_err())
        };
        assert!(fails(&[delta(7, "{}")]));
        assert!(fails(&[start(1, "a"), start(1, "b")]));
        assert!(fails(&[
            Chunk::Text {
                index: 0,
                text: "x".into()
            },
            delta(0, "{}")
        ]));
        // A hostile index allocates nothing.
        assert!(!fails(&[start(u32::MAX, "a")]));
        let many: Vec<Chunk> = (0..=CALLS_MAX as u32)
            .map(|index| start(index, "a"))
            .collect();
        assert!(!fails(&many[..CALLS_MAX]) && fails(&many));
        let much = "x".repeat(INPUT_MAX);
        assert!(
            !fails(&[start(0, "a"), delta(0, &much)])
                && fails(&[start(0, "a"), delta(0, &much), delta(0, "x")])
        );
        let texts: Vec<Chunk> = (0..25)
            .map(|_| Chunk::Text {
                index: 0,
                text: "x".repeat(1 << 20),
            })
            .collect();
        assert!(!fails(&texts[..24]) && fails(&texts));
    }
}
