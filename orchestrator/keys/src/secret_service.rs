//! The Secret Service of freedesktop.org, as far as reading one item needs it: GNOME's keyring, KeePassXC and KWallet implement it.

use crate::bus::{BUS, BusObject, call, connect};
use crate::error::KeyringError;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;
use tokio::runtime::Builder;
use tokio::time::timeout;
use zbus::{Connection, OwnedObjectPath, OwnedVariant, Variant};

const SERVICE: &str = "org.freedesktop.secrets";
const SERVICE_PATH: &str = "/org/freedesktop/secrets";
const SERVICE_INTERFACE: &str = "org.freedesktop.Secret.Service";
const ITEM_INTERFACE: &str = "org.freedesktop.Secret.Item";
/// Maximum bytes of a secret: a header holds no longer key.
pub(crate) const SECRET_MAX: usize = 4096;
/// The path that means no object.
const NO_OBJECT: &str = "/";

/// The secret of the one item with `attributes`; `None` if there is no bus at `places`, no service or no item. The runtime uses
/// only this thread, and ends with the call.
pub(crate) fn secret(
    places: &[PathBuf],
    attributes: &BTreeMap<&str, &str>,
    limit: Duration,
) -> Result<Option<String>, KeyringError> {
    let runtime = Builder::new_current_thread()
        .enable_io()
        .enable_time()
        .build();
    let runtime = runtime.map_err(|error| KeyringError::Io(error.kind()))?;
    let found = runtime.block_on(async { timeout(limit, find(places, attributes)).await });
    found.unwrap_or(Err(KeyringError::Timeout {
        seconds: limit.as_secs(),
    }))
}

async fn find(
    places: &[PathBuf],
    attributes: &BTreeMap<&str, &str>,
) -> Result<Option<String>, KeyringError> {
    let Some(bus) = connect(places).await? else {
        return Ok(None);
    };
    let Some(owner) = owner(&bus).await? else {
        return Ok(None);
    };
    let service = SecretService { bus, owner };
    let Some(item) = service.item(attributes).await? else {
        return Ok(None);
    };
    let session = service.open_session().await?;
    service.secret(&item, &session).await.map(Some)
}

/// The owner of the service's name on the bus, which starts it if it can; `None` if there is none.
async fn owner(bus: &Connection) -> Result<Option<String>, KeyringError> {
    let on_bus = BusObject {
        owner: BUS,
        path: "/org/freedesktop/DBus",
        interface: BUS,
    };
    let started = call::<u32>(bus, &on_bus, "StartServiceByName", &(SERVICE, 0u32)).await;
    let owner = match started {
        Ok(_) => call(bus, &on_bus, "GetNameOwner", &SERVICE).await,
        Err(error) => Err(error),
    };
    match owner {
        Err(KeyringError::Refused(name)) if is_absence(&name) => Ok(None),
        owner => owner.map(Some),
    }
}

/// Whether the bus reports that the service neither runs nor can be started.
fn is_absence(error: &str) -> bool {
    let name = error
        .strip_prefix(BUS)
        .and_then(|name| name.strip_prefix(".Error."))
        .unwrap_or_default();
    name == "ServiceUnknown" || name == "NameHasNoOwner" || name.starts_with("Spawn.")
}

struct SecretService {
    bus: Connection,
    owner: String,
}

impl SecretService {
    /// The item with `attributes`, unlocked.
    async fn item(
        &self,
        attributes: &BTreeMap<&str, &str>,
    ) -> Result<Option<OwnedObjectPath>, KeyringError> {
        let found = call(&self.bus, &self.remote(), "SearchItems", attributes).await?;
        let (mut unlocked, locked): (Vec<OwnedObjectPath>, Vec<OwnedObjectPath>) = found;
        match (unlocked.len() + locked.len(), unlocked.pop()) {
            (0, _) => Ok(None),
            (1, Some(item)) => Ok(Some(item)),
            (1, None) => self.unlock(&locked).await.map(Some),
            (many, _) => Err(KeyringError::Ambiguous(many)),
        }
    }

    /// Unlocks an item if that needs no answer from the user. A prompt is never shown: nobody may be there, and we do not wait.
    async fn unlock(&self, items: &[OwnedObjectPath]) -> Result<OwnedObjectPath, KeyringError> {
        let answer = call(&self.bus, &self.remote(), "Unlock", &items).await?;
        let (unlocked, prompt): (Vec<OwnedObjectPath>, OwnedObjectPath) = answer;
        let item = unlocked.into_iter().find(|item| items.contains(item));
        item.filter(|_| prompt.as_str() == NO_OBJECT)
            .ok_or(KeyringError::Locked)
    }

    /// A session whose secrets are sent unencrypted: the bus is a local socket, and whoever could listen there could request the
    /// item as well.
    async fn open_session(&self) -> Result<OwnedObjectPath, KeyringError> {
        let plain = ("plain", Variant::from(""));
        let answer = call(&self.bus, &self.remote(), "OpenSession", &plain).await?;
        let (parameters, session): (OwnedVariant, OwnedObjectPath) = answer;
        match *parameters {
            Variant::Str(_) => Ok(session),
            _ => Err(KeyringError::Malformed("a session of another kind")),
        }
    }

    async fn secret(
        &self,
        item: &OwnedObjectPath,
        session: &OwnedObjectPath,
    ) -> Result<String, KeyringError> {
        let item = BusObject {
            owner: &self.owner,
            path: item.as_str(),
            interface: ITEM_INTERFACE,
        };
        let answer = call(&self.bus, &item, "GetSecret", session).await?;
        let ((of, parameters, secret, _content_type),): ((
            OwnedObjectPath,
            Vec<u8>,
            Vec<u8>,
            String,
        ),) = answer;
        if of != *session || !parameters.is_empty() {
            return Err(KeyringError::Malformed("a secret of another session"));
        }
        if secret.len() > SECRET_MAX {
            return Err(KeyringError::TooLarge {
                what: "the secret",
                max: SECRET_MAX,
            });
        }
        String::from_utf8(secret).map_err(|_| KeyringError::Malformed("the secret is no text"))
    }

    fn remote(&self) -> BusObject<'_> {
        BusObject {
            owner: &self.owner,
            path: SERVICE_PATH,
            interface: SERVICE_INTERFACE,
        }
    }
}

#[cfg(test)]
mod tests;
