//! Secrets are looked for by another process, so that one that hears a model has none in its memory.
//!
//! It says where whole values are, in all their forms, and the lines of values with several: whoever takes the other end over can ask
//! whether a guess is right, and learns nothing of a part of it. So it is not asked for parts at the edge of a text: the word there waits
//! for its end, or is withheld (`PatternFacts`). If it is gone, all text is withheld.

use crate::redact::Redactor;
use crate::remote_search::{ANSWER_MAX, SearchQuestion, TEXT_MAX, receive, send};
use policies::secret::Secret;
use serde_json::Value;
use std::io;
use std::os::unix::net::UnixStream;

/// Finds secrets for the process that asks, before that hears anybody.
pub trait SecretSource {
    /// An answer without the secret, which the redactor knows from then on.
    ///
    /// # Errors
    /// If the question is none.
    fn find(&mut self, query: &[u8]) -> io::Result<Value>;
    /// The secret for which `text` stands, where that is encrypted and another process can read it.
    fn open(&mut self, text: &[u8]) -> Option<Vec<u8>>;
    /// No further secret is found: it gives up what it needs for that, for ever.
    ///
    /// # Errors
    /// If it cannot.
    fn confine(&mut self) -> io::Result<()>;
}

/// Answers the process at the other end of `socket` until it is gone: searches its texts for the secrets that `redactor` knows.
///
/// # Errors
/// Those of the socket; a question that is none.
pub fn serve(
    mut socket: UnixStream,
    redactor: &Redactor,
    mut source: impl SecretSource,
) -> io::Result<()> {
    let mut finds = true;
    while let Some((number, text)) = receive(&mut socket, TEXT_MAX)? {
        let question = SearchQuestion::ALL.into_iter();
        let question = question.into_iter().find(|one| one.number() == number);
        let answer = match question.ok_or(io::ErrorKind::InvalidData)? {
            SearchQuestion::Facts => serde_json::to_vec(&redactor.facts())?,
            SearchQuestion::Find(patterns) => {
                let found = redactor.find(&text, patterns);
                serde_json::to_vec(&found.ok_or(io::ErrorKind::InvalidData)?)?
            }
            SearchQuestion::Learn => {
                learn(redactor, &text, &mut source)?;
                serde_json::to_vec(&redactor.facts())?
            }
            SearchQuestion::Hold | SearchQuestion::Confine if !finds => {
                return Err(io::ErrorKind::InvalidData.into());
            }
            SearchQuestion::Hold => {
                let found = source.find(&text)?;
                serde_json::to_vec(&(redactor.facts(), found))?
            }
            SearchQuestion::Confine => {
                finds = false;
                source.confine()?;
                serde_json::to_vec(&redactor.facts())?
            }
        };
        if answer.len() > ANSWER_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        send(&mut socket, number, &answer)?;
    }
    Ok(())
}

fn learn(redactor: &Redactor, text: &[u8], source: &mut impl SecretSource) -> io::Result<()> {
    let mut parts = text.splitn(2, |byte| *byte == 0);
    let (name, value) = (parts.next(), parts.next());
    let (name, value) = name.zip(value).ok_or(io::ErrorKind::InvalidData)?;
    let secret = Secret {
        name: String::from_utf8_lossy(name).into_owned(),
        value: source.open(value).unwrap_or_else(|| value.to_vec()),
    };
    redactor.learn(secret).map_err(io::Error::other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::found_secrets::Patterns;
    use crate::redact::{PageSide, RedactedPiece, RedactorError};
    use crate::sanitize::{Sanitizer, Unsafe};
    use broker_protocol::Captured;
    use std::io::Write;
    use std::thread;

    fn secret(name: &str, value: &str) -> Secret {
        Secret {
            name: name.into(),
            value: value.into(),
        }
    }

    struct NoSource;

    impl SecretSource for NoSource {
        fn find(&mut self, _: &[u8]) -> io::Result<Value> {
            Err(io::ErrorKind::Unsupported.into())
        }

        fn open(&mut self, text: &[u8]) -> Option<Vec<u8>> {
            let sealed = text.strip_prefix(b"sealed-")?;
            Some(sealed.iter().rev().copied().collect())
        }

        fn confine(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// One that asks a process, and the same that searches by itself.
    fn both(secrets: &[(&str, &str)]) -> (&'static Redactor, &'static Redactor) {
        let known = || {
            let all = secrets.iter().map(|(name, value)| secret(name, value));
            Redactor::new(all.collect()).unwrap()
        };
        let (ours, theirs) = UnixStream::pair().unwrap();
        let searching = known();
        thread::spawn(move || serve(theirs, &searching, NoSource));
        let remote = Redactor::remote(ours).unwrap();
        (Box::leak(Box::new(remote)), Box::leak(Box::new(known())))
    }

    const SECRETS: [(&str, &str); 3] = [
        ("A_KEY", "sk-a-key-of-one-word"),
        ("TWO_KEY", "two words"),
        (
            "PEM_KEY",
            "-----BEGIN-----\nfirst-line\nsecond-line\n-----END-----",
        ),
    ];

    #[test]
    fn whole_texts_are_redacted_as_by_oneself() {
        let (remote, local) = both(&SECRETS);
        for text in [
            "nothing",
            "it is sk-a-key-of-one-word, and tw\ro words.",
            "c2stYS1rZXktb2Ytb25lLXdvcmQ= sk-a-key-of-one-wor",
            "x -----BEGIN-----\nfirst-line\nsecond-line\n-----END----- y",
        ] {
            assert_eq!(remote.text(text), local.text(text), "{text}");
            let mut lines = (text.as_bytes().to_vec(), text.as_bytes().to_vec());
            let found = remote.redact(RedactedPiece::Lines(&mut lines.0));
            assert_eq!(found, local.redact(RedactedPiece::Lines(&mut lines.1)));
            assert_eq!(lines.0, lines.1, "{text}");
        }
        remote.learn(secret("NEW_KEY", "a-new-secret")).unwrap();
        assert_eq!(remote.text("a-new-secret"), "[redacted:NEW_KEY]");
    }

    #[test]
    fn streams_lose_the_same_secrets_however_they_are_split() {
        let (remote, local) = both(&SECRETS);
        let text = "a sk-a-key-of-one-word b two words c\nd sk-a-key-of-one-word";
        for size in 1..text.len() {
            for characters in [Unsafe::Keep, Unsafe::Remove] {
                let all = [remote, local].map(|redactor| {
                    let mut stream = Sanitizer::new(redactor).stream(characters);
                    let mut out = Vec::new();
                    text.as_bytes()
                        .chunks(size)
                        .for_each(|piece| out.extend(stream.push(piece)));
                    out.extend(stream.finish());
                    String::from_utf8(out).unwrap()
                });
                assert_eq!(all[0], all[1], "{size}");
            }
        }
    }

    #[test]
    fn a_page_loses_only_parts_of_secrets_where_the_text_around_it_is_known() {
        let (remote, _) = both(&SECRETS[..1]);
        let text = b"one two sk-a-key-of-one-word three four";
        let shown = |from: usize, to: usize| {
            let mut bytes = text[from..to].to_vec();
            remote.redact(RedactedPiece::Page {
                bytes: &mut bytes,
                before: PageSide {
                    known: &text[..from],
                    goes_on: false,
                },
                behind: PageSide {
                    known: &text[to..],
                    goes_on: false,
                },
            });
            String::from_utf8(bytes).unwrap()
        };
        assert_eq!((shown(0, 5), shown(5, 8)), ("one t".into(), "wo ".into()));
        assert_eq!(shown(8, 13), "[withheld]");
        assert_eq!(shown(6, 13), "o [withheld]");
        assert_eq!(shown(13, 39), "[withheld] three four");
        assert_eq!(shown(14, 16), "[withheld]");
        // All of it is found where it is shown.
        assert_eq!(shown(8, 28), "sk-a-key-of-one-word");
    }

    #[test]
    fn words_that_a_cut_may_have_split_are_withheld() {
        let (remote, _) = both(&SECRETS[..1]);
        let cut = |text: &str, before, behind| {
            let mut bytes = text.as_bytes().to_vec();
            let side = |goes_on| PageSide {
                known: &[],
                goes_on,
            };
            remote.redact(RedactedPiece::Page {
                bytes: &mut bytes,
                before: side(before),
                behind: side(behind),
            });
            String::from_utf8(bytes).unwrap()
        };
        assert_eq!(cut("one sk-a-key", false, true), "one [withheld]");
        assert_eq!(cut("e-word two", true, false), "[withheld] two");
        assert_eq!(cut("a-key", true, true), "[withheld]");
        assert_eq!(cut("one sk-a-key", false, false), "one sk-a-key");
        // A whole secret where the held end begins is not cut in two.
        let word = format!("sk-a-key-of-one-word{}", "x".repeat(105));
        assert_eq!(cut(&word, false, true), "[withheld]");
        let mut captured = Captured {
            head: b"one sk-a".to_vec(),
            tail: b"word two".to_vec(),
            omitted: 10,
        };
        remote.redact(RedactedPiece::Ends(&mut captured));
        assert_eq!(
            (&*captured.head, &*captured.tail, captured.omitted),
            (&b"one "[..], &b" two"[..], 18)
        );
    }

    #[test]
    fn no_part_of_a_secret_is_confirmed() {
        let long = "long-".repeat(300);
        let (remote, _) = both(&[("A_KEY", "sk-a-key-of-one-word"), ("LONG_KEY", &long)]);
        let is_found = |text: &str| remote.text(text) != text;
        assert!(is_found("sk-a-key-of-one-word"), "control");
        for length in 1..20 {
            for start in 0..=20 - length {
                let part = &"sk-a-key-of-one-word"[start..start + length];
                assert!(!is_found(part), "{part}");
                let mut stream = remote.stream();
                let held = |text: &[u8]| text.len();
                let other = "x".repeat(part.len());
                let passed = held(&stream.push(part.as_bytes()));
                let mut stream = remote.stream();
                assert_eq!(passed, held(&stream.push(other.as_bytes())), "{part}");
            }
        }
        // Of a value in pieces, each piece is as long as a value that nobody guesses.
        assert!(!is_found(&long[..300]) && is_found(&long));
    }

    #[test]
    fn a_text_without_a_secret_is_asked_about_once() {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let serving = thread::spawn(move || {
            let known = Redactor::new(vec![secret("A_KEY", "sk-a-key")]).unwrap();
            let mut questions = Vec::new();
            while let Some((number, text)) = receive(&mut theirs, TEXT_MAX).unwrap() {
                let answer = match number {
                    1 => serde_json::to_vec(&known.find(&text, Patterns::Whole).unwrap()).unwrap(),
                    3 => {
                        learn(&known, &text, &mut NoSource).unwrap();
                        serde_json::to_vec(&known.facts()).unwrap()
                    }
                    _ => serde_json::to_vec(&known.facts()).unwrap(),
                };
                questions.push(number);
                send(&mut theirs, number, &answer).unwrap();
            }
            questions
        });
        let remote = Redactor::remote(ours).unwrap();
        for _ in 0..3 {
            assert_eq!(remote.text("exitCode"), "exitCode");
        }
        for _ in 0..2 {
            assert_eq!(remote.text("a sk-a-key"), "a [redacted:A_KEY]");
        }
        let long = "x".repeat(300);
        for _ in 0..2 {
            assert_eq!(remote.text(&long), long);
        }
        // What was none may be one now.
        remote.learn(secret("B_KEY", "exitCode")).unwrap();
        assert_eq!(remote.text("exitCode"), "[redacted:B_KEY]");
        drop(remote);
        assert_eq!(serving.join().unwrap(), [0, 1, 1, 1, 1, 1, 3, 1]);
    }

    #[test]
    fn without_the_process_all_text_is_withheld() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let serving = thread::spawn(move || {
            let known = Redactor::new(vec![secret("A_KEY", "sk-a-key")]).unwrap();
            let mut theirs = theirs;
            let (number, _) = receive(&mut theirs, 0).unwrap().unwrap();
            send(
                &mut theirs,
                number,
                &serde_json::to_vec(&known.facts()).unwrap(),
            )
            .unwrap();
        });
        let remote: &'static Redactor = Box::leak(Box::new(Redactor::remote(ours).unwrap()));
        serving.join().unwrap();
        assert_eq!(remote.text("innocent"), "[withheld]");
        assert!(!remote.is_idle() && remote.withholds());
        let mut stream = remote.stream();
        assert_eq!(
            (&*stream.push(b"innocent "), stream.finish()),
            (&b""[..], vec![])
        );
        let (ours, _) = UnixStream::pair().unwrap();
        assert_eq!(Redactor::remote(ours).err(), Some(RedactorError::Gone));
    }

    #[test]
    fn texts_and_questions_have_a_bound() {
        let (remote, _) = both(&SECRETS[..1]);
        let longest = vec![b'x'; TEXT_MAX];
        assert_eq!(remote.bytes(&longest).len(), TEXT_MAX);
        let longer = vec![b'x'; TEXT_MAX + 1];
        assert_eq!(&*remote.bytes(&longer), b"[withheld]");
        assert_eq!(remote.text("innocent"), "innocent");
        let known = Redactor::new(vec![]).unwrap();
        for question in [
            &[9, 0, 0, 0, 0][..],
            &[1, 1, 0, 0, 1],
            &[3, 0, 0, 0, 1, b'x'],
        ] {
            let (mut ours, theirs) = UnixStream::pair().unwrap();
            ours.write_all(question).unwrap();
            assert!(serve(theirs, &known, NoSource).is_err(), "{question:?}");
        }
    }

    #[test]
    fn secrets_are_found_until_it_is_confined() {
        struct Finds(&'static Redactor);
        impl SecretSource for Finds {
            fn find(&mut self, query: &[u8]) -> io::Result<Value> {
                let value = format!("value-of-{}", String::from_utf8_lossy(query));
                self.0
                    .learn(secret("FOUND_KEY", &value))
                    .map_err(io::Error::other)?;
                Ok(Value::from(value.len()))
            }

            fn open(&mut self, _: &[u8]) -> Option<Vec<u8>> {
                None
            }

            fn confine(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let (ours, theirs) = UnixStream::pair().unwrap();
        let known: &'static Redactor = Box::leak(Box::new(Redactor::new(vec![]).unwrap()));
        thread::spawn(move || serve(theirs, known, Finds(known)));
        let remote = Redactor::remote(ours).unwrap();
        assert!(remote.is_idle());
        assert_eq!(remote.hold(b"a").unwrap(), Some(Value::from(10)));
        assert_eq!(remote.text("value-of-a"), "[redacted:FOUND_KEY]");
        remote.confine().unwrap();
        // Not asked of it any more, and what it has found stays known.
        assert_eq!(remote.hold(b"b").unwrap(), None);
        assert_eq!(remote.text("value-of-a"), "[redacted:FOUND_KEY]");
    }

    #[test]
    fn a_secret_that_is_encrypted_here_is_searched_for_as_it_is() {
        let (remote, _) = both(&[]);
        let learnt = secret("A_TOKEN", "sealed-eulav-terces");
        remote.learn(learnt).unwrap();
        let text = "a secret-value, a sealed-eulav-terces";
        let shown = "a [redacted:A_TOKEN], a sealed-eulav-terces";
        assert_eq!(remote.text(text), shown);
    }

    #[test]
    fn without_secrets_nothing_is_asked() {
        let (remote, _) = both(&[]);
        assert!(remote.is_idle());
        let mut captured = Captured {
            head: b"one".to_vec(),
            tail: b"two".to_vec(),
            omitted: 1,
        };
        remote.redact(RedactedPiece::Ends(&mut captured));
        assert_eq!(captured.head, b"one");
        assert_eq!(remote.stream().push(b"word"), &b"word"[..]);
    }
}
