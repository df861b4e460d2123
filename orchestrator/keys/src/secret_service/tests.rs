#![allow(clippy::disallowed_methods)]

use super::*;
use crate::bus_socket::RECEIVED_MAX;
use lazaret_fakes::bus::{BUS, FakeService, OWNER};
use nix::sys::socket::{
    AddressFamily, Backlog, SockFlag, SockType, UnixAddr, bind, listen, socket,
};
use std::io::{ErrorKind, Read, Write};
use std::os::fd::AsRawFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::thread;
use std::time::Instant;
use tempfile::TempDir;

const KEY: &str = "sk-real-keyring-0123456789";
/// The reply of a bus that accepts a client.
const WELCOME: &[u8] = b"OK 0123456789abcdef0123456789abcdef\r\n";
/// Long enough for anything that answers at all.
const LONG: Duration = Duration::from_secs(30);
const SHORT: Duration = Duration::from_millis(300);

type Secret = Result<Option<String>, KeyringError>;

fn wanted() -> BTreeMap<&'static str, &'static str> {
    BTreeMap::from([("service", "lazaret"), ("provider", "anthropic")])
}

/// A bus that handles its one connection by `serve`.
fn ask(limit: Duration, serve: impl FnOnce(UnixStream) + Send + 'static) -> Secret {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("bus");
    let listener = UnixListener::bind(&path).unwrap();
    let served = thread::spawn(move || serve(listener.accept().unwrap().0));
    let got = secret(&[path], &wanted(), limit);
    served.join().unwrap();
    got
}

fn answered(service: FakeService) -> Secret {
    ask(LONG, move |stream| service.serve(stream))
}

fn found(key: &str) -> Secret {
    Ok(Some(key.to_owned()))
}

#[test]
fn a_service_gives_the_key_of_the_item_and_unlocks_it_where_nobody_is_asked() {
    assert_eq!(answered(FakeService::with(KEY)), found(KEY));
    assert_eq!(
        answered(FakeService {
            prompt: "/",
            ..locked_with(KEY)
        }),
        found(KEY)
    );
    let signals = FakeService {
        signals: 20,
        ..FakeService::with(KEY)
    };
    assert_eq!(
        answered(signals),
        found(KEY),
        "messages that nobody waits for are passed over"
    );
}

fn locked_with(key: &str) -> FakeService {
    FakeService {
        secret: key.as_bytes().to_vec(),
        ..FakeService::locked()
    }
}

#[test]
fn an_abstract_socket_is_reached_and_the_first_that_listens_is_taken() {
    let name = format!("lazaret-keys-{}", std::process::id());
    let listener =
        UnixListener::bind_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
    let served = thread::spawn(move || FakeService::with(KEY).serve(listener.accept().unwrap().0));
    let places = [
        PathBuf::from("/nonexistent/bus"),
        PathBuf::from(format!("\0{name}")),
    ];
    assert_eq!(secret(&places, &wanted(), LONG), found(KEY));
    served.join().unwrap();
}

#[test]
fn absent_keyring_or_item_is_no_error() {
    assert_eq!(
        answered(FakeService {
            unlocked: 0,
            ..FakeService::with(KEY)
        }),
        Ok(None),
        "no item"
    );
    assert_eq!(
        answered(FakeService {
            is_running: false,
            ..FakeService::with(KEY)
        }),
        Ok(None),
        "no service"
    );
    let folder = TempDir::new().unwrap();
    let missing = [folder.path().join("bus")];
    assert_eq!(secret(&[], &wanted(), LONG), Ok(None), "no place");
    assert_eq!(secret(&missing, &wanted(), LONG), Ok(None), "no bus");
    drop(UnixListener::bind(&missing[0]).unwrap());
    assert_eq!(secret(&missing, &wanted(), LONG), Ok(None), "no listener");
    let long = PathBuf::from(format!("/{}", "x".repeat(200)));
    assert_eq!(
        secret(&[long], &wanted(), LONG),
        Ok(None),
        "no socket has such a path"
    );
}

#[test]
fn unusable_keyring_is_a_named_error() {
    assert_eq!(answered(locked_with(KEY)), Err(KeyringError::Locked));
    let many = |unlocked, locked| FakeService {
        unlocked,
        locked,
        ..FakeService::with(KEY)
    };
    assert_eq!(answered(many(2, 0)), Err(KeyringError::Ambiguous(2)));
    assert_eq!(answered(many(1, 1)), Err(KeyringError::Ambiguous(2)));
    let largest = "k".repeat(SECRET_MAX);
    assert_eq!(answered(FakeService::with(&largest)), found(&largest));
    let too_large = KeyringError::TooLarge {
        what: "the secret",
        max: SECRET_MAX,
    };
    assert_eq!(
        answered(FakeService::with(&(largest + "k"))),
        Err(too_large)
    );
    let no_text = FakeService {
        secret: vec![0xff],
        ..FakeService::with("")
    };
    assert_eq!(
        answered(no_text),
        Err(KeyringError::Malformed("the secret is no text"))
    );
}

#[test]
fn malformed_bus_answer_is_an_error() {
    let sends = |bytes: &'static [u8]| {
        ask(LONG, move |mut stream| {
            stream.write_all(bytes).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            // A client that ends before it has read everything resets the connection.
            let _ = stream.read_to_end(&mut Vec::new());
        })
    };
    for bytes in ["", "REJECTED EXTERNAL\r\n", "HTTP/1.1 400 Bad Request\r\n"] {
        assert_eq!(
            sends(bytes.as_bytes()),
            Err(KeyringError::Unauthenticated),
            "{bytes}"
        );
    }
    assert_eq!(
        sends(WELCOME),
        Err(KeyringError::Io(ErrorKind::UnexpectedEof))
    );
    let nonsense = [WELCOME, b"no message of any bus"].concat();
    assert_eq!(
        sends(nonsense.leak()),
        Err(KeyringError::Malformed("no message of the interface"))
    );
    // Input on which the library would panic.
    assert_eq!(sends(b"\n"), Err(KeyringError::Io(ErrorKind::InvalidData)));
    assert_eq!(sends(b"\r\n"), Err(KeyringError::Unauthenticated));
}

#[test]
fn a_bus_sends_no_more_than_its_bound() {
    let too_large = Err(KeyringError::TooLarge {
        what: "what the bus sends",
        max: RECEIVED_MAX,
    });
    let endless = FakeService {
        signals: usize::MAX,
        ..FakeService::with(KEY)
    };
    assert_eq!(answered(endless), too_large, "messages");
    let line = |mut stream: UnixStream| while stream.write_all(&[b'x'; 1024]).is_ok() {};
    assert_eq!(ask(LONG, line), too_large, "a line");
    // A message that declares its own length: only its head arrives with the bus's first answer.
    let with_body = |length: usize| {
        let length = u32::try_from(length).unwrap().to_le_bytes();
        let head = [&[b'l', 2, 0, 1], &length[..], &[1, 0, 0, 0], &[0; 4]].concat();
        ask(SHORT, move |mut stream| {
            stream.write_all(&[WELCOME, &head].concat()).unwrap();
            let _ = stream.read_to_end(&mut Vec::new());
        })
    };
    let largest = RECEIVED_MAX - WELCOME.len() - 16;
    assert_eq!(
        with_body(largest),
        Err(KeyringError::Timeout { seconds: 0 }),
        "waits for all of it"
    );
    assert_eq!(with_body(largest + 1), too_large);
    assert_eq!(with_body(127 << 20), too_large);
}

#[test]
fn a_secret_of_another_process_is_not_taken() {
    for sender in [":1.8", BUS] {
        let forged = FakeService {
            sender,
            ..FakeService::with(KEY)
        };
        assert_eq!(
            answered(forged),
            Err(KeyringError::Malformed("an answer of another process"))
        );
    }
    // The control: from the service itself, it is accepted.
    assert_eq!(
        answered(FakeService {
            sender: OWNER,
            ..FakeService::with(KEY)
        }),
        found(KEY)
    );
}

#[test]
fn a_bus_that_is_silent_or_slow_costs_the_time_limit() {
    let timeout = Err(KeyringError::Timeout { seconds: 0 });
    let begun = Instant::now();
    assert_eq!(
        ask(SHORT, |mut stream| drop(
            stream.read_to_end(&mut Vec::new())
        )),
        timeout
    );
    let slowly = |mut stream: UnixStream| {
        while stream.write_all(b"x").is_ok() {
            thread::sleep(SHORT / 20);
        }
    };
    assert_eq!(ask(SHORT, slowly), timeout);
    assert!(begun.elapsed() < LONG);
}

#[test]
fn a_bus_that_takes_no_more_connections_costs_the_time_limit() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("bus");
    let listener = socket(
        AddressFamily::Unix,
        SockType::Stream,
        SockFlag::SOCK_CLOEXEC,
        None,
    )
    .unwrap();
    bind(listener.as_raw_fd(), &UnixAddr::new(&path).unwrap()).unwrap();
    listen(&listener, Backlog::new(0).unwrap()).unwrap();
    // One connection waits in the queue, which nobody empties.
    let _first = UnixStream::connect(&path).unwrap();
    assert_eq!(
        secret(&[path], &wanted(), SHORT),
        Err(KeyringError::Timeout { seconds: 0 })
    );
}
