//! Keys of the settings: each is put into one header, or the path, of the requests to one host, for one use, in place of a text that `lazaret` sends. Elsewhere that text
//! is text.

use crate::serve::GatewayError;
use hyper::header::{HeaderName, HeaderValue};
use hyper::http::uri::PathAndQuery;
use hyper::{Request, Uri};
use orchestrator_http::ask::{By, HeldKey, HostOrigin, KEYS_MAX, KeyPlace, KeyUse, KeyValue};
use orchestrator_logins::ServerLogins;
use orchestrator_reach::target::Target;
use std::io::Read;
use std::os::unix::net::UnixStream;
use std::time::Duration;
use zeroize::Zeroizing;

/// How long they may take: who has them sends them when `lazaret` confines itself.
const TIME: Duration = Duration::from_secs(60);

/// Keys with the headers in which they are put.
#[derive(Default)]
pub(super) struct AttachedKeys {
    attached: Vec<AttachedKey>,
    pub(super) logins: ServerLogins,
}

struct AttachedKey {
    held: HeldKey,
    value: AttachedValue,
}

/// The template with its key, as it is sent.
enum AttachedValue {
    Header(HeaderName, HeaderValue),
    Path(PathAndQuery),
}

impl AttachedValue {
    fn of(held: &HeldKey, key: &str) -> Option<Self> {
        let value = held.template.replace(&HeldKey::text(held.number), key);
        match &held.place {
            KeyPlace::Header(name) => {
                let mut value = HeaderValue::from_str(&value).ok()?;
                value.set_sensitive(true);
                Some(Self::Header(HeaderName::try_from(name).ok()?, value))
            }
            KeyPlace::Path => PathAndQuery::try_from(value).ok().map(Self::Path),
        }
    }
}

impl AttachedKeys {
    /// Reads the values of the keys `held`, and the key of logins, from `line`, which carries questions after them.
    ///
    /// # Errors
    /// If one is missing or cannot be a header's.
    pub(super) fn read(
        held: &[HeldKey],
        login_key: Option<u32>,
        mut line: &UnixStream,
    ) -> Result<Self, GatewayError> {
        line.set_read_timeout(Some(TIME))?;
        let mut length = [0; 4];
        line.read_exact(&mut length)?;
        let length = u32::from_be_bytes(length) as usize;
        if length > KEYS_MAX {
            return Err(GatewayError::Begin);
        }
        let mut text = Zeroizing::new(vec![0; length]);
        line.read_exact(&mut text)?;
        let lines = text.split(|byte| *byte == b'\n');
        let values: Vec<KeyValue> = lines
            .filter(|line| !line.is_empty())
            .map(|line| serde_json::from_slice(line).map_err(|_| GatewayError::Begin))
            .collect::<Result<_, _>>()?;
        let attached = held.iter().map(|held| {
            let key = values.iter().find(|key| key.number == held.number)?;
            Some(AttachedKey {
                value: AttachedValue::of(held, &key.value)?,
                held: held.clone(),
            })
        });
        let attached: Option<Vec<_>> = attached.collect();
        let login = login_key.map(|number| values.iter().find(|key| key.number == number));
        let logins = match login {
            Some(key) => ServerLogins::new(&key.ok_or(GatewayError::Begin)?.value),
            None => ServerLogins::default(),
        };
        let attached = attached.ok_or(GatewayError::Begin)?;
        Ok(Self { attached, logins })
    }

    /// The secret of our client at a login of `server`, for the text in its place.
    pub(super) fn client_secret(&self, server: &HostOrigin, text: &str) -> Option<&[u8]> {
        let mut secrets = self.attached.iter().filter(|key| {
            key.held.used == KeyUse::Login
                && key.held.origin == *server
                && key.held.template == text
        });
        match &secrets.next()?.value {
            AttachedValue::Header(_, value) => Some(value.as_bytes()),
            AttachedValue::Path(_) => None,
        }
    }

    /// Puts keys into a `request` of `by` to the host of `target`, where it has the text in place of one.
    pub(super) fn attach<B>(&self, by: &By, target: &Target, request: &mut Request<B>) {
        let Some(used) = KeyUse::of(by) else { return };
        let origin = HostOrigin::of(target.url());
        for AttachedKey { held, value } in &self.attached {
            if held.used != used || held.origin != origin {
                continue;
            }
            match value {
                AttachedValue::Header(name, value) => {
                    let headers = request.headers_mut();
                    let sent = headers.get(name);
                    if sent.is_some_and(|sent| sent == held.template.as_str()) {
                        headers.insert(name, value.clone());
                    }
                }
                AttachedValue::Path(path) => {
                    if *request.uri() == held.template.as_str() {
                        *request.uri_mut() = Uri::from(path.clone());
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    fn held(number: u32, origin: &str) -> HeldKey {
        HeldKey {
            number,
            used: KeyUse::Provider,
            origin: HostOrigin::of(&origin.parse().unwrap()),
            place: KeyPlace::Header("authorization".to_owned()),
            template: format!("Bearer {}", HeldKey::text(number)),
        }
    }

    fn read(held: &[HeldKey], text: &str) -> Result<AttachedKeys, GatewayError> {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let length = u32::try_from(text.len()).unwrap().to_be_bytes();
        (&theirs).write_all(&length).unwrap();
        (&theirs).write_all(text.as_bytes()).unwrap();
        AttachedKeys::read(held, None, &ours)
    }

    #[test]
    fn a_key_is_put_into_its_header_at_its_host_alone() {
        let text = "{\"number\":0,\"value\":\"sk-0\"}\n{\"number\":1,\"value\":\"sk-1\"}\n";
        let (a, b) = ("https://a.example/v1", "https://b.example/");
        let keys = read(&[held(0, a), held(1, b)], text).unwrap();
        let sent = |by: By, url: &str, name: &'static str, value: &str| {
            let mut request = Request::builder().header(name, value).body(()).unwrap();
            keys.attach(&by, &Target::parse(url).unwrap(), &mut request);
            request.headers()[name].to_str().unwrap().to_owned()
        };
        let first = "Bearer lazaret-key-0";
        let by = || By::ProviderSettings;
        assert_eq!(sent(by(), a, "authorization", first), "Bearer sk-0");
        for (by, url, name, value) in [
            (by(), b, "authorization", first),
            (by(), "http://a.example/", "authorization", first),
            (by(), "https://a.example:444/", "authorization", first),
            (by(), a, "x-other", first),
            (by(), a, "authorization", "lazaret-key-0"),
            (by(), a, "authorization", "Bearer lazaret-key-1"),
            (by(), a, "authorization", "Bearer lazaret-key-0, x"),
            (By::ServerSettings, a, "authorization", first),
            (By::Engine, a, "authorization", first),
        ] {
            let got = sent(by.clone(), url, name, value);
            assert_eq!(got, value, "{by:?} {url} {name}");
        }
    }

    #[test]
    fn a_key_of_one_use_is_put_into_no_request_of_another() {
        let url = "https://a.example/";
        let asks = [
            By::ProviderSettings,
            By::Engine,
            By::ServerSettings,
            By::RepositorySettings,
            By::ServerOf(HostOrigin::of(&url.parse().unwrap())),
        ];
        let uses = [
            KeyUse::Provider,
            KeyUse::Engine,
            KeyUse::Server,
            KeyUse::Login,
        ];
        for (number, used) in uses.into_iter().enumerate() {
            let held = HeldKey {
                used,
                ..held(0, url)
            };
            let keys = read(&[held], "{\"number\":0,\"value\":\"sk-0\"}\n").unwrap();
            let got = asks.clone().map(|by| {
                let request = Request::builder().header("authorization", "Bearer lazaret-key-0");
                let mut request = request.body(()).unwrap();
                keys.attach(&by, &Target::parse(url).unwrap(), &mut request);
                request.headers()["authorization"] == "Bearer sk-0"
            });
            // The last is in no header: what is put into a request for tokens is decided there.
            let is_meant = |at| at == number && used != KeyUse::Login;
            assert_eq!(got, [0, 1, 2, 3, 4].map(is_meant), "{used:?}");
        }
    }

    #[test]
    fn a_key_in_a_path_is_put_into_the_whole_path_at_its_host_alone() {
        let at = |url: &str| url.parse().unwrap();
        let (first, second) = (
            at("https://a.example/mcp?lazaret-key-0"),
            at("https://a.example/lazaret-key-1"),
        );
        let held = [(0, first), (1, second)]
            .map(|(number, url)| HeldKey::in_path(number, KeyUse::Server, &url));
        let text = "{\"number\":0,\"value\":\"k=s&b=%2F\"}\n{\"number\":1,\"value\":\"p/q?r=s\"}\n";
        let keys = read(&held, text).unwrap();
        let sent = |by: By, url: &str, path: &str| {
            let mut request = Request::builder().uri(path).body(()).unwrap();
            keys.attach(&by, &Target::parse(url).unwrap(), &mut request);
            request.uri().to_string()
        };
        let (by, a) = (|| By::ServerSettings, "https://a.example/");
        assert_eq!(sent(by(), a, "/mcp?lazaret-key-0"), "/mcp?k=s&b=%2F");
        assert_eq!(sent(by(), a, "/lazaret-key-1"), "/p/q?r=s");
        for (by, url, path) in [
            (by(), "https://b.example/", "/mcp?lazaret-key-0"),
            (by(), "http://a.example/", "/mcp?lazaret-key-0"),
            (by(), a, "/mcp?lazaret-key-0&x=1"),
            (by(), a, "/other?lazaret-key-0"),
            (by(), a, "/mcp?lazaret-key-1"),
            (by(), a, "/lazaret-key-1/x"),
            (By::RepositorySettings, a, "/lazaret-key-1"),
            (By::ProviderSettings, a, "/lazaret-key-1"),
        ] {
            assert_eq!(sent(by.clone(), url, path), path, "{by:?} {url}");
        }
        let unsendable = "{\"number\":0,\"value\":\"a b\"}\n";
        assert!(read(&held[..1], unsendable).is_err());
    }

    #[test]
    fn the_secret_of_a_client_is_for_logins_of_its_server() {
        let (a, b) = ("https://a.example/", "https://b.example/");
        let template = HeldKey::text(0);
        let of = |used| HeldKey {
            used,
            template: template.clone(),
            ..held(0, a)
        };
        let secret = |used, server: &str, text: &str| {
            let keys = read(&[of(used)], "{\"number\":0,\"value\":\"s\"}\n").unwrap();
            let server = HostOrigin::of(&server.parse().unwrap());
            keys.client_secret(&server, text).map(<[u8]>::to_vec)
        };
        assert_eq!(secret(KeyUse::Login, a, &template), Some(b"s".to_vec()));
        for (used, server, text) in [
            (KeyUse::Login, b, &*template),
            (KeyUse::Server, a, &template),
            (KeyUse::Login, a, "other"),
        ] {
            assert_eq!(secret(used, server, text), None, "{used:?} {server} {text}");
        }
    }

    #[test]
    fn missing_and_other_values_are_refused() {
        let held = [held(0, "https://a.example")];
        for wrong in [
            "",
            "{\"number\":1,\"value\":\"sk-1\"}\n",
            "{\"number\":0,\"value\":\"a\\nb\"}\n",
            "sk-0\n",
        ] {
            assert!(read(&held, wrong).is_err(), "{wrong}");
        }
        assert!(
            read(&held, "{\"number\":0,\"value\":\"sk-0\"}\n").is_ok(),
            "control"
        );
    }
}
