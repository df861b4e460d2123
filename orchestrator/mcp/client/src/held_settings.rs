//! The user's settings of servers without their secrets: the process with the secrets reads the file, and its gateway gets the values.

use crate::settings::{
    self, ServerAddress, ServerKind, ServerSettings, SettingsOwner, SettingsValue, read,
};
use orchestrator_confine::Files;
use orchestrator_http::key::Key;
use orchestrator_keys::error::KeyError;
use orchestrator_keys::held::{self, HoldKey};
use orchestrator_reach::target::Target;
use orchestrator_text::secret_environment;
use orchestrator_text::variables::{self, VariableError};
use policies::secret::looks_secret;
use serde_json::Value;
use std::path::Path;

/// The servers in the file at `path`: without their secrets, if another process has these.
///
/// # Errors
/// If they cannot be read or used, as text.
pub(crate) fn of_user(files: &Files, path: &Path) -> Result<Vec<ServerSettings>, String> {
    match held::settings(path).map_err(|error| error.to_string())? {
        Some(settings) => serde_json::from_value(settings).map_err(|error| error.to_string()),
        None => here(files, path),
    }
}

fn here(files: &Files, path: &Path) -> Result<Vec<ServerSettings>, String> {
    match read(files, path)? {
        Some(text) => {
            settings::parse(&text, SettingsOwner::User).map_err(|error| error.to_string())
        }
        None => Ok(Vec::new()),
    }
}

/// Reads them in the process with the secrets: `hold` passes each to the gateway.
///
/// # Errors
/// As [`of_user`].
pub fn without_secrets(
    files: &Files,
    path: &Path,
    hold: &mut HoldKey<'_>,
) -> Result<Value, KeyError> {
    let mut servers = here(files, path).map_err(KeyError::Held)?;
    for server in &mut servers {
        match &mut server.kind {
            ServerKind::Address(address) => hide(address, hold)?,
            // Its cell has them: the executor gets them for it.
            ServerKind::Program(_) => {}
        }
    }
    serde_json::to_value(servers).map_err(|error| KeyError::Held(error.to_string()))
}

fn hide(address: &mut ServerAddress, hold: &mut HoldKey<'_>) -> Result<(), KeyError> {
    hide_path(address, hold)?;
    let client_secret = address.client_secret.iter_mut();
    let client_secret = client_secret.map(|value| ("clientSecret", value));
    let headers = address.headers.iter_mut();
    let headers = headers.map(|(name, value)| (name.as_str(), value));
    for (name, value) in headers.chain(client_secret) {
        let SettingsValue::Text(text) = &value else {
            continue;
        };
        *value = match hold_value(name, text, hold) {
            Ok(number) => SettingsValue::Held(number),
            Err(error) => SettingsValue::Unusable(error.to_string()),
        };
    }
    Ok(())
}

/// Returns the number by which the gateway has the value of a header.
fn hold_value(name: &str, text: &str, hold: &mut HoldKey<'_>) -> Result<u32, KeyError> {
    let value = replaced(text).map_err(|error| KeyError::Held(error.to_string()))?;
    let unsendable = || KeyError::Held(format!("the header `{name}` cannot be sent"));
    let key = Key::of_header(&value).ok_or_else(unsendable)?;
    if held::is_secret_header(name, text) {
        held::learn_parts(name, &value)?;
    }
    hold(&key)
}

fn replaced(text: &str) -> Result<String, VariableError> {
    variables::replace(text, &secret_environment::text)
}

/// Holds the path and query of an address with secret variables in them, or else a query with a secret.
fn hide_path(address: &mut ServerAddress, hold: &mut HoldKey<'_>) -> Result<(), KeyError> {
    // What is no address is said where it is used.
    let url = replaced(&address.url).ok();
    let Some(url) = url.and_then(|text| Target::parse(&text).ok()) else {
        return Ok(());
    };
    let url = url.url();
    let secrets: Vec<_> = url
        .query_pairs()
        .filter(|(name, value)| looks_secret(name.replace('-', "_").as_ref()) && !value.is_empty())
        .collect();
    let is_whole = has_secret_variable(&address.url);
    let held = match (is_whole, url.query()) {
        (true, query) => [Some(&url.path()[1..]), query]
            .into_iter()
            .flatten()
            .collect::<Vec<_>>()
            .join("?"),
        (false, Some(query)) if !secrets.is_empty() => query.to_owned(),
        (false, Some(_) | None) => return Ok(()),
    };
    for (name, value) in &secrets {
        held::learn_parts(name, value)?;
    }
    let Some(key) = Key::of_header(&held) else {
        return Ok(());
    };
    let number = hold(&key)?;
    let key = Key::held(number);
    let mut shown = url.clone();
    shown.set_query((!is_whole).then(|| key.expose()));
    if is_whole {
        shown.set_path(key.expose());
    }
    address.url = shown.into();
    address.held_path = Some(number);
    Ok(())
}

/// Whether an address has a variable behind its host whose name is that of a secret.
fn has_secret_variable(text: &str) -> bool {
    let behind = text.split_once("://").map_or(text, |(_, rest)| rest);
    let path = behind.find(['/', '?']).map_or("", |at| &behind[at..]);
    let mut names = variables::names(path).into_iter();
    names.any(|name| looks_secret(name.as_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// The address of an entry without its secrets, and these.
    fn hidden(entry: &Value) -> (ServerAddress, Vec<String>) {
        let text = json!({ "mcpServers": { "there": entry } }).to_string();
        let mut all = settings::parse(&text, SettingsOwner::User).unwrap();
        let ServerKind::Address(mut address) = all.remove(0).kind else {
            panic!("{entry}");
        };
        let mut held = Vec::new();
        let mut hold = |key: &Key| {
            held.push(key.expose().to_owned());
            Ok(u32::try_from(held.len()).unwrap() - 1)
        };
        hide(&mut address, &mut hold).unwrap();
        (address, held)
    }

    #[test]
    fn values_of_headers_and_secrets_of_clients_have_numbers() {
        let (address, held) = hidden(&json!({
            "url": "https://a.example/mcp?project=p#x",
            "headers": { "Authorization": "Bearer a-token", "X-Any": "b", "X-Bad": "a\nb", "X-Unset": "${LAZARET_NOT_SET}" },
            "oauth": { "clientId": "me", "clientSecret": "of-a-client" },
        }));
        assert_eq!(held, ["Bearer a-token", "b", "of-a-client"]);
        let unusable = |text: &str| SettingsValue::Unusable(text.to_owned());
        let headers: Vec<_> = address.headers.into_values().collect();
        let expected = [
            SettingsValue::Held(0),
            SettingsValue::Held(1),
            unusable("the header `X-Bad` cannot be sent"),
            unusable("the variable LAZARET_NOT_SET is not set"),
        ];
        assert_eq!(headers, expected);
        assert_eq!(address.client_secret, Some(SettingsValue::Held(2)));
        // An address without a secret is as it was: a login names it.
        assert_eq!(address.url, "https://a.example/mcp?project=p#x");
        assert_eq!(address.held_path, None);
    }

    #[test]
    fn a_key_in_an_address_has_a_number() {
        for (url, shown, expected) in [
            (
                "https://a.example/mcp?api_key=a%20b&x=1",
                "https://a.example/mcp?lazaret-key-0",
                "api_key=a%20b&x=1",
            ),
            (
                "https://a.example/s/${LAZARET_NO_TOKEN:-of-nobody}/mcp?x=1",
                "https://a.example/lazaret-key-0",
                "s/of-nobody/mcp?x=1",
            ),
            (
                "https://a.example?k=${LAZARET_NO_TOKEN:-of-nobody}",
                "https://a.example/lazaret-key-0",
                "?k=of-nobody",
            ),
        ] {
            let (address, held) = hidden(&json!({ "url": url }));
            assert_eq!(
                (address.url.as_str(), held),
                (shown, vec![expected.to_owned()])
            );
            assert_eq!(address.held_path, Some(0));
        }
        for plain in [
            "https://a.example/mcp",
            "https://a.example/mcp?api_key=",
            "https://${LAZARET_TENANT:-t}/mcp",
            "https://a.example/${LAZARET_TENANT:-t}",
            "no address?token=x",
        ] {
            let (address, held) = hidden(&json!({ "url": plain }));
            assert_eq!((address.url.as_str(), held), (plain, Vec::new()));
        }
    }
}
