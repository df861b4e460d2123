//! The agent of cells against programs that ask for more than they may have, with a user's agent that signs whatever it is asked to.

use super::*;
use crate::messages::SIGNATURE;
use ring::signature::{Ed25519KeyPair, KeyPair};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdUnixStream;
use std::rc::Weak;
use tokio::runtime::{Builder, LocalOptions};

const CALL: CallId = 7;
const PLACE: (&str, u16) = ("git.example", 22);

/// A pair of keys with its public half as ssh writes it.
struct Key {
    pair: Ed25519KeyPair,
    blob: Vec<u8>,
}

impl Key {
    fn new(seed: u8) -> Self {
        let pair = Ed25519KeyPair::from_seed_unchecked(&[seed; 32]).unwrap();
        let mut blob = Vec::new();
        put_string(&mut blob, b"ssh-ed25519");
        put_string(&mut blob, pair.public_key().as_ref());
        Self { pair, blob }
    }

    fn sign(&self, data: &[u8]) -> Vec<u8> {
        let mut signature = Vec::new();
        put_string(&mut signature, b"ssh-ed25519");
        put_string(&mut signature, self.pair.sign(data).as_ref());
        signature
    }

    fn line(&self, names: &str) -> String {
        let blob = base64::engine::general_purpose::STANDARD.encode(&self.blob);
        format!("{names} ssh-ed25519 {blob}\n")
    }
}

/// The session of a test, with both of its ends.
struct World {
    filter: Rc<AgentFilter>,
    host: Key,
    /// Questions to the broker, and the messages that the user's agent got.
    asked: Rc<RefCell<Vec<HeldSignature>>>,
    got: Rc<RefCell<Vec<Vec<u8>>>>,
    /// Refusals that were reported: the host, and why.
    refused: Rc<RefCell<Vec<(String, String)>>>,
}

/// A session whose broker answers `answer` to every question.
fn world(answer: RequestAnswer) -> World {
    let (host, other) = (Key::new(1), Key::new(2));
    let spec = SshSpec {
        name: "forge".into(),
        hosts: vec!["git.example:22".into()],
        user: "git".into(),
        keys: vec![fingerprint(&Key::new(3).blob)],
        signs: true,
    };
    let known = host.line("git.example") + &other.line("other.example");
    let asked = Rc::<RefCell<Vec<HeldSignature>>>::default();
    let got = Rc::<RefCell<Vec<Vec<u8>>>>::default();
    let refused = Rc::<RefCell<Vec<(String, String)>>>::default();
    let filter = Rc::new_cyclic(|filter: &Weak<AgentFilter>| {
        let (filter, asked, got) = (filter.clone(), asked.clone(), got.clone());
        let refused = refused.clone();
        let report = move |refusal: &AgentRefusal| {
            assert!([CALL, CALL + 1].contains(&refusal.call));
            let refusal = (refusal.host.clone(), refusal.why.to_owned());
            refused.borrow_mut().push(refusal);
        };
        let tell = move |frame| {
            let (filter, asked, got) = (filter.clone(), asked.clone(), got.clone());
            // The broker answers later.
            tokio::task::spawn_local(async move {
                let filter = filter.upgrade().unwrap();
                match frame {
                    FromGateway::AgentWanted => filter.deliver(Ok(user_agent(got))),
                    FromGateway::SignatureWanted(signature) => {
                        let question = signature.question;
                        asked.borrow_mut().push(signature);
                        filter.answer(question, answer);
                    }
                    FromGateway::Serving(_)
                    | FromGateway::Connected(_)
                    | FromGateway::Disconnected(_)
                    | FromGateway::Wanted { .. }
                    | FromGateway::Used(_)
                    | FromGateway::Asked(_)
                    | FromGateway::Claimed(_) => {}
                }
            });
        };
        AgentFilter::new(vec![spec], &known, tell, report)
    });
    World {
        filter,
        host,
        asked,
        got,
        refused,
    }
}

/// An agent with two keys, which signs with any.
fn user_agent(got: Rc<RefCell<Vec<Vec<u8>>>>) -> OwnedFd {
    let (ours, theirs) = StdUnixStream::pair().unwrap();
    theirs.set_nonblocking(true).unwrap();
    tokio::task::spawn_local(async move {
        let mut socket = UnixStream::from_std(theirs).unwrap();
        while let Ok(message) = read_message(&mut socket, MESSAGE_MAX).await {
            let mut answer = vec![SUCCESS];
            if message == [IDENTITIES_WANTED] {
                answer = vec![IDENTITIES, 0, 0, 0, 2];
                for key in [Key::new(3), Key::new(4)] {
                    put_string(&mut answer, &key.blob);
                    put_string(&mut answer, b"somebody@home");
                }
            } else if message[0] == SIGN {
                answer = vec![SIGNATURE];
                put_string(&mut answer, b"signature");
            }
            got.borrow_mut().push(message);
            write_message(&mut socket, &answer).await.unwrap();
        }
    });
    ours.into()
}

/// The program's connection to its agent.
struct Program(UnixStream);

impl World {
    fn connect(&self, call: CallId) -> Program {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let filter = self.filter.clone();
        tokio::task::spawn_local(async move { filter.serve(theirs, call).await });
        Program(ours)
    }

    /// A connection of the call to a host that has ended its exchange with this signature.
    fn carried(&self, place: (&str, u16), key: &Key, session: &[u8]) -> WatchedConnection {
        let mut payload = vec![31];
        [&key.blob, &b"half".to_vec(), &key.sign(session)]
            .iter()
            .for_each(|part| put_string(&mut payload, part));
        let padding = 4 + (8 - (payload.len() + 1) % 8) % 8;
        let length = u32::try_from(1 + payload.len() + padding).unwrap();
        let mut watched = self.filter.seen.watch(place.0, place.1, CALL);
        watched.push(b"SSH-2.0-x\r\n");
        watched.push(&length.to_be_bytes());
        watched.push(&[padding as u8]);
        watched.push(&payload);
        watched.push(&vec![0; padding]);
        watched
    }
}

impl Program {
    async fn ask(&mut self, message: &[u8]) -> Vec<u8> {
        write_message(&mut self.0, message).await.unwrap();
        read_message(&mut self.0, MESSAGE_MAX).await.unwrap()
    }

    async fn bind(&mut self, key: &Key, session: &[u8], signature: &[u8], forwards: u8) -> u8 {
        let mut message = vec![EXTENSION];
        for part in [BIND, &key.blob, session, signature] {
            put_string(&mut message, part);
        }
        message.push(forwards);
        self.ask(&message).await[0]
    }

    async fn login(&mut self, session: &[u8], user: &str, key: &Key) -> u8 {
        self.login_by(b"ssh-ed25519", session, user, key).await
    }

    async fn login_by(&mut self, algorithm: &[u8], session: &[u8], user: &str, key: &Key) -> u8 {
        let mut data = Vec::new();
        put_string(&mut data, session);
        data.push(50);
        for part in [user, "ssh-connection", "publickey"] {
            put_string(&mut data, part.as_bytes());
        }
        data.push(1);
        put_string(&mut data, algorithm);
        put_string(&mut data, &key.blob);
        self.sign(key, &data).await
    }

    async fn git(&mut self, namespace: &str, key: &Key) -> u8 {
        let mut data = b"SSHSIG".to_vec();
        for part in [namespace.as_bytes(), b"", b"sha512", &[9; 64]] {
            put_string(&mut data, part);
        }
        self.sign(key, &data).await
    }

    async fn sign(&mut self, key: &Key, data: &[u8]) -> u8 {
        let mut message = vec![SIGN];
        put_string(&mut message, &key.blob);
        put_string(&mut message, data);
        message.extend([0; 4]);
        self.ask(&message).await[0]
    }
}

fn run(work: impl Future<Output = ()>) {
    let runtime = Builder::new_current_thread()
        .enable_all()
        .build_local(LocalOptions::default())
        .unwrap();
    runtime.block_on(work);
}

#[test]
fn a_login_in_a_session_that_is_carried_here_is_signed_once_allowed() {
    for (answer, result) in [
        (RequestAnswer::Granted, SIGNATURE),
        (RequestAnswer::Refused, FAILURE),
        (RequestAnswer::Expired, FAILURE),
        (RequestAnswer::NoCall, FAILURE),
    ] {
        run(async {
            let world = world(answer);
            let _carried = world.carried(PLACE, &world.host, b"sid");
            let mut program = world.connect(CALL);
            let signature = world.host.sign(b"sid");
            let bound = program.bind(&world.host, b"sid", &signature, 0).await;
            assert_eq!(bound, SUCCESS);
            assert_eq!(program.login(b"sid", "git", &Key::new(3)).await, result);
            let asked = world.asked.borrow();
            let purpose = SignaturePurpose::Login {
                host: "git.example".into(),
                port: 22,
            };
            assert_eq!(asked.len(), 1);
            assert_eq!((asked[0].call, &asked[0].purpose), (CALL, &purpose));
        });
    }
}

/// Each with the connection, the binding and the login of the test above but for one part.
#[test]
fn a_session_that_is_not_carried_here_is_signed_nothing() {
    run(async {
        let world = world(RequestAnswer::Granted);
        let (host, other, user) = (&world.host, Key::new(2), Key::new(3));
        let carried = world.carried(PLACE, host, b"sid");
        let seen = host.sign(b"sid");
        // Each bind is of a connection of its own, and refused.
        for (what, key, session, signature, forwards) in [
            ("made elsewhere", host, &b"else"[..], host.sign(b"else"), 0),
            (
                "session of another signature",
                host,
                b"else",
                seen.clone(),
                0,
            ),
            ("another host's key", &other, b"sid", other.sign(b"sid"), 0),
            ("forwarding", host, b"sid", seen.clone(), 1),
        ] {
            let mut program = world.connect(CALL);
            let bound = program.bind(key, session, &signature, forwards).await;
            assert_eq!(bound, FAILURE, "{what}");
            assert_eq!(
                program.login(session, "git", &user).await,
                FAILURE,
                "{what}"
            );
            // It is refused for good.
            let bound = program.bind(host, b"sid", &seen, 0).await;
            assert_eq!(bound, FAILURE, "{what}");
        }
        // The exchange of another host that keys do not log in at, of a key that is not the host's, and in another call.
        let elsewhere = world.carried(("other.example", 22), &other, b"sid");
        let mut program = world.connect(CALL);
        program.bind(&other, b"sid", &other.sign(b"sid"), 0).await;
        assert_eq!(program.login(b"sid", "git", &user).await, FAILURE);
        drop(elsewhere);
        let stranger = Key::new(5);
        let _unknown = world.carried(PLACE, &stranger, b"sid");
        let mut program = world.connect(CALL);
        let signature = stranger.sign(b"sid");
        assert_eq!(
            program.bind(&stranger, b"sid", &signature, 0).await,
            FAILURE
        );
        let refused = world.refused.borrow().last().cloned();
        let expected = (PLACE.0.to_owned(), unknown_key(PLACE.0));
        assert_eq!(refused, Some(expected));
        let mut program = world.connect(CALL + 1);
        assert_eq!(program.bind(host, b"sid", &seen, 0).await, FAILURE);
        // Without a binding, bound twice, and with another session, user or key in a bound one.
        let mut program = world.connect(CALL);
        assert_eq!(program.login(b"sid", "git", &user).await, FAILURE);
        assert_eq!(program.bind(host, b"sid", &seen, 0).await, SUCCESS);
        assert_eq!(program.login(b"sid2", "git", &user).await, FAILURE);
        assert_eq!(program.login(b"sid", "root", &user).await, FAILURE);
        assert_eq!(program.login(b"sid", "git", &Key::new(4)).await, FAILURE);
        assert_eq!(program.git("git", &user).await, FAILURE);
        assert!(world.asked.borrow().is_empty());
        assert_eq!(program.login(b"sid", "git", &user).await, SIGNATURE);
        assert_eq!(program.bind(host, b"sid", &seen, 0).await, FAILURE);
        assert_eq!(program.login(b"sid", "git", &user).await, FAILURE);
        // The connection is over.
        let mut program = world.connect(CALL);
        assert_eq!(program.bind(host, b"sid", &seen, 0).await, SUCCESS);
        drop(carried);
        let _next = world.carried(PLACE, host, b"next");
        assert_eq!(program.login(b"sid", "git", &user).await, FAILURE);
        assert_eq!(world.asked.borrow().len(), 1);
    });
}

#[test]
fn the_longest_name_of_a_host_has_room_in_a_refusal() {
    let longest = known_host_name(&"a".repeat(253), u16::MAX);
    assert!(unknown_key(&longest).len() <= broker_protocol::limit::DENIAL_TEXT);
}

#[test]
fn a_login_names_the_algorithm_by_which_it_is_signed() {
    run(async {
        let world = world(RequestAnswer::Granted);
        let (host, user) = (&world.host, Key::new(3));
        let _carried = world.carried(PLACE, host, b"sid");
        let mut program = world.connect(CALL);
        let bound = program.bind(host, b"sid", &host.sign(b"sid"), 0).await;
        assert_eq!(bound, SUCCESS);
        for algorithm in [
            &b""[..],
            b"rsa-sha2-512",
            b"ssh-ed25519-cert-v01@openssh.com",
            &[b'A'; 9000],
        ] {
            let answer = program.login_by(algorithm, b"sid", "git", &user).await;
            assert_eq!(answer, FAILURE);
        }
        assert!(world.asked.borrow().is_empty());
        assert_eq!(world.refused.borrow()[0].1, OTHER_ALGORITHM);
        assert_eq!(program.login(b"sid", "git", &user).await, SIGNATURE);
    });
}

#[test]
fn git_is_signed_for_and_no_other_namespace() {
    run(async {
        let world = world(RequestAnswer::Granted);
        let mut program = world.connect(CALL);
        assert_eq!(program.git("git", &Key::new(3)).await, SIGNATURE);
        assert_eq!(program.git("git", &Key::new(4)).await, FAILURE);
        assert_eq!(program.git("file", &Key::new(3)).await, FAILURE);
        let mut data = b"SSHSIG".to_vec();
        put_string(&mut data, b"git");
        assert_eq!(program.sign(&Key::new(3), &data).await, FAILURE);
        assert_eq!(program.sign(&Key::new(3), b"anything").await, FAILURE);
        assert_eq!(world.asked.borrow().len(), 1);
        assert_eq!(world.asked.borrow()[0].purpose, SignaturePurpose::Git);
    });
}

#[test]
fn only_keys_of_the_policy_are_listed_without_their_comments() {
    run(async {
        let world = world(RequestAnswer::Granted);
        let mut expected = vec![IDENTITIES, 0, 0, 0, 1];
        put_string(&mut expected, &Key::new(3).blob);
        put_string(&mut expected, b"forge");
        let listed = world.connect(CALL).ask(&[IDENTITIES_WANTED]).await;
        assert_eq!(listed, expected);
    });
}

#[test]
fn nothing_else_of_the_protocol_reaches_the_users_agent() {
    run(async {
        let world = world(RequestAnswer::Granted);
        let mut program = world.connect(CALL);
        for number in (0..=u8::MAX).filter(|number| *number != IDENTITIES_WANTED) {
            assert_eq!(
                program.ask(&[number, 0, 0, 0, 0]).await,
                [FAILURE],
                "{number}"
            );
        }
        let mut query = vec![EXTENSION];
        put_string(&mut query, b"query");
        assert_eq!(program.ask(&query).await, [FAILURE]);
        assert!(world.got.borrow().is_empty());
        // A message over the limit ends the connection; one at it does not.
        let mut longest = vec![SIGN];
        longest.resize(MESSAGE_MAX, 0);
        assert_eq!(program.ask(&longest).await, [FAILURE]);
        longest.push(0);
        // Of what is too long nothing is read.
        let _ = write_message(&mut program.0, &longest).await;
        let ended = read_message(&mut program.0, MESSAGE_MAX).await;
        assert!(ended.is_err());
        assert!(world.got.borrow().is_empty());
    });
}

#[test]
fn a_refusal_is_reported_with_its_host_if_there_is_one() {
    run(async {
        let world = world(RequestAnswer::Refused);
        let carried = world.carried(PLACE, &world.host, b"sid");
        let mut program = world.connect(CALL);
        let signature = world.host.sign(b"sid");
        assert_eq!(
            program.bind(&world.host, b"sid", &signature, 0).await,
            SUCCESS
        );
        assert_eq!(program.login(b"sid", "git", &Key::new(3)).await, FAILURE);
        assert_eq!(program.login(b"sid", "root", &Key::new(3)).await, FAILURE);
        let mut other = world.connect(CALL);
        assert_eq!(
            other.bind(&world.host, b"other", &signature, 0).await,
            FAILURE
        );
        assert_eq!(other.ask(&[19]).await, [FAILURE]);
        let host = PLACE.0.to_owned();
        let reported = [
            (host.clone(), not_granted(RequestAnswer::Refused).unwrap()),
            (host, OTHER_SIGNATURE),
            (String::new(), OTHER_SESSION),
            (String::new(), OTHER_MESSAGE),
        ];
        let reported = reported.map(|(host, why)| (host, why.to_owned()));
        assert_eq!(*world.refused.borrow(), reported);
        drop(carried);
    });
}
