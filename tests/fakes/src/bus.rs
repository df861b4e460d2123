//! A session bus with a Secret Service on it, for one connection: what a bus and gnome-keyring answer to the calls of one who reads.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::os::unix::net::UnixStream;
use std::pin::pin;
use tokio::runtime::Builder;
use zbus::export::futures_core::Stream;
use zbus::message::Message;
use zbus::{Connection, Guid, ObjectPath, Variant, connection};

pub const BUS: &str = "org.freedesktop.DBus";
/// Who has the name of the service.
pub const OWNER: &str = ":1.7";
const SESSION: &str = "/org/freedesktop/secrets/session/s1";
const ITEM: &str = "/org/freedesktop/secrets/collection/login/";

/// A service, and what it has for `service = lazaret` and `provider = anthropic`.
#[derive(Clone)]
pub struct FakeService {
    /// False: nobody has its name, and the bus cannot start it.
    pub is_running: bool,
    pub unlocked: usize,
    pub locked: usize,
    /// What `Unlock` would show first; `/` where it unlocks at once.
    pub prompt: &'static str,
    pub secret: Vec<u8>,
    /// Who sends the secret.
    pub sender: &'static str,
    /// How many messages that nobody waits for come before each answer but the first, which is the first message
    /// of every bus.
    pub signals: usize,
}

impl FakeService {
    /// One with one unlocked item.
    pub fn with(secret: &str) -> Self {
        let secret = secret.as_bytes().to_vec();
        let (unlocked, locked, prompt, sender) = (1, 0, "/", OWNER);
        Self {
            is_running: true,
            unlocked,
            locked,
            prompt,
            secret,
            sender,
            signals: 0,
        }
    }

    /// One whose item only a prompt unlocks.
    pub fn locked() -> Self {
        let prompt = "/org/freedesktop/secrets/prompt/p1";
        Self {
            unlocked: 0,
            locked: 1,
            prompt,
            ..Self::with("")
        }
    }

    /// Answers a client until it ends.
    pub fn serve(&self, stream: UnixStream) {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        // A client that ends in the middle is what some tests are about.
        let _ = runtime.block_on(self.converse(stream));
    }

    async fn converse(&self, stream: UnixStream) -> zbus::Result<()> {
        let server = connection::Builder::unix_stream(stream)
            .server(Guid::generate())
            .p2p();
        let mut messages = pin!(server.build_message_stream().await?);
        let connection = Connection::from(&*messages);
        while let Some(call) = poll_fn(|context| messages.as_mut().poll_next(context)).await {
            let call = call?;
            let is_hello = call
                .header()
                .member()
                .is_some_and(|member| member == "Hello");
            for _ in 0..if is_hello { 0 } else { self.signals } {
                let signal =
                    Message::signal("/org/freedesktop/DBus", BUS, "NameOwnerChanged").sender(BUS);
                connection
                    .send(&signal.build(&(SESSION, "", OWNER))?)
                    .await?;
            }
            connection.send(&self.answer(&call)?).await?;
        }
        Ok(())
    }

    fn answer(&self, call: &Message) -> zbus::Result<Message> {
        let header = call.header();
        let to = header
            .destination()
            .map(|name| name.to_string())
            .unwrap_or_default();
        let member = header
            .member()
            .map(|name| name.to_string())
            .unwrap_or_default();
        let answer = |sender| Message::method_return(&header).sender(sender);
        let error = |name| Message::error(&header, name).sender(BUS).build(&"");
        match (to.as_str(), member.as_str()) {
            (BUS, "Hello") => answer(BUS).build(&":1.5"),
            (BUS, _) if !self.is_running => error("org.freedesktop.DBus.Error.ServiceUnknown"),
            (BUS, "StartServiceByName") => answer(BUS).build(&1u32),
            (BUS, "GetNameOwner") => answer(BUS).build(&OWNER),
            (OWNER, "SearchItems") => {
                let body = call.body();
                let wanted: BTreeMap<&str, &str> = body.deserialize()?;
                let known = BTreeMap::from([("service", "lazaret"), ("provider", "anthropic")]);
                let (unlocked, locked) = if wanted == known {
                    (self.unlocked, self.locked)
                } else {
                    (0, 0)
                };
                answer(OWNER).build(&(items("u", unlocked), items("l", locked)))
            }
            (OWNER, "Unlock") => {
                let unlocked = if self.prompt == "/" {
                    items("l", self.locked)
                } else {
                    Vec::new()
                };
                answer(OWNER).build(&(unlocked, ObjectPath::try_from(self.prompt)?))
            }
            (OWNER, "OpenSession") => {
                answer(OWNER).build(&(Variant::from(""), ObjectPath::try_from(SESSION)?))
            }
            (OWNER, "GetSecret") if header.path().is_some_and(|path| path.starts_with(ITEM)) => {
                let body = call.body();
                let session: ObjectPath<'_> = body.deserialize()?;
                let secret = (session, Vec::<u8>::new(), self.secret.clone(), "text/plain");
                answer(self.sender).build(&(secret,))
            }
            _ => error("org.freedesktop.DBus.Error.UnknownMethod"),
        }
    }
}

fn items(kind: &str, count: usize) -> Vec<ObjectPath<'static>> {
    (0..count)
        .map(|number| ObjectPath::try_from(format!("{ITEM}{kind}{number}")).unwrap())
        .collect()
}
