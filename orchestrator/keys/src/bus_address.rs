//! Where the session bus listens.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;

/// Longest text of `DBUS_SESSION_BUS_ADDRESS`, and how many places of it are tried.
const TEXT_MAX: usize = 4096;
const PLACES_MAX: usize = 8;

/// The sockets that the environment names, in their order; none where there is no bus. One in the abstract namespace begins with a
/// zero byte. Other transports than Unix sockets are left out: over them a key would leave this machine, or a program would be started.
pub(crate) fn of_environment(variable: impl Fn(&str) -> Option<OsString>) -> Vec<PathBuf> {
    let runtime = variable("XDG_RUNTIME_DIR")
        .map(PathBuf::from)
        .filter(|folder| folder.is_absolute());
    let in_runtime = runtime.map(|folder| folder.join("bus"));
    match variable("DBUS_SESSION_BUS_ADDRESS").filter(|text| !text.is_empty()) {
        None => in_runtime.into_iter().collect(),
        Some(text) if text.len() > TEXT_MAX => Vec::new(),
        Some(text) => {
            let places = text.as_bytes().split(|byte| *byte == b';');
            places
                .filter_map(|place| parse(place, in_runtime.as_ref()))
                .take(PLACES_MAX)
                .collect()
        }
    }
}

/// One place: `unix:path=…`, `unix:abstract=…` or `unix:runtime=yes`, with further keys that do not matter here. The library's
/// own parser knows neither the third nor escaped bytes.
fn parse(place: &[u8], in_runtime: Option<&PathBuf>) -> Option<PathBuf> {
    let pairs = place.strip_prefix(b"unix:")?;
    pairs.split(|byte| *byte == b',').find_map(|pair| {
        let at = pair.iter().position(|byte| *byte == b'=')?;
        let value = unescape(&pair[at + 1..])?;
        let path = |bytes: Vec<u8>| PathBuf::from(OsString::from_vec(bytes));
        match &pair[..at] {
            b"path" => Some(path(value)).filter(|path| path.is_absolute()),
            b"abstract" if !value.is_empty() => Some(path([&[0], &value[..]].concat())),
            b"runtime" if value == b"yes" => in_runtime.cloned(),
            _ => None,
        }
    })
}

/// Bytes that are written as `%2f`.
fn unescape(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = text.iter().copied();
    let mut plain = Vec::new();
    while let Some(byte) = bytes.next() {
        plain.push(match byte {
            b'%' => {
                let digits = [bytes.next()?, bytes.next()?];
                let digits = OsStr::from_bytes(&digits).to_str()?;
                u8::from_str_radix(digits, 16).ok()?
            }
            plain => plain,
        });
    }
    Some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn places(address: Option<&str>, runtime: Option<&str>) -> Vec<PathBuf> {
        of_environment(|name| match name {
            "DBUS_SESSION_BUS_ADDRESS" => address.map(OsString::from),
            "XDG_RUNTIME_DIR" => runtime.map(OsString::from),
            _ => None,
        })
    }

    #[test]
    fn the_address_of_the_environment_holds_and_else_the_socket_of_the_runtime_directory() {
        assert!(places(None, None).is_empty());
        assert!(places(None, Some("relative")).is_empty());
        assert_eq!(
            places(None, Some("/run/user/1")),
            [PathBuf::from("/run/user/1/bus")]
        );
        assert_eq!(
            places(Some(""), Some("/run/user/1")),
            [PathBuf::from("/run/user/1/bus")]
        );
        assert_eq!(
            places(Some("unix:path=/x,guid=ab"), Some("/run/user/1")),
            [PathBuf::from("/x")]
        );
        assert_eq!(
            places(Some("unix:runtime=yes"), Some("/run/user/1")),
            [PathBuf::from("/run/user/1/bus")]
        );
        assert_eq!(
            places(Some("unix:guid=ab,path=/a%2db%20c"), None),
            [PathBuf::from("/a-b c")]
        );
        assert_eq!(
            places(
                Some("tcp:host=example.com,port=1;unix:abstract=/tmp/dbus-1"),
                None
            ),
            [PathBuf::from("\0/tmp/dbus-1")]
        );
    }

    #[test]
    fn invalid_bus_addresses_are_skipped_and_their_number_is_limited() {
        for wrong in [
            "autolaunch:",
            "unixexec:path=/bin/sh",
            "unix:path=x",
            "unix:path=/%g0",
            "unix:path=/%2",
            ";",
            "unix:",
        ] {
            assert!(places(Some(wrong), None).is_empty(), "{wrong}");
        }
        assert_eq!(
            places(Some(&"unix:path=/x;".repeat(PLACES_MAX + 1)), None).len(),
            PLACES_MAX
        );
        let long =
            |length: usize| format!("unix:path=/{}", "x".repeat(length - "unix:path=/".len()));
        assert_eq!(places(Some(&long(TEXT_MAX)), None).len(), 1);
        assert_eq!(places(Some(&long(TEXT_MAX + 1)), None).len(), 0);
    }
}
