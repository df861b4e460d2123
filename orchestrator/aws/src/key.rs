//! A key of AWS as its source prints it.

use crate::time;
use serde::Deserialize;
use thiserror::Error;
use zeroize::Zeroizing;

/// Bytes of a key's name, as AWS bounds them.
const ID: std::ops::RangeInclusive<usize> = 16..=128;

/// What belongs to a secret key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyParts {
    pub id: String,
    /// Of a key that is good for some hours.
    pub token: Option<Zeroizing<Vec<u8>>>,
    /// In seconds since 1970.
    pub expires: Option<u64>,
}

/// The form of `credential_process` in the settings of AWS' programs.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct PrintedKey {
    access_key_id: String,
    secret_access_key: String,
    session_token: Option<String>,
    expiration: Option<String>,
}

/// Why a source's output is no key of AWS. Nothing of it is quoted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum AwsKeyError {
    #[error("its source gave no text")]
    NoText,
    #[error(
        "its source gave JSON without AccessKeyId and SecretAccessKey; `aws configure export-credentials` prints it"
    )]
    OtherJson,
    #[error(
        "its source gave neither the JSON of `aws configure export-credentials` nor the lines of one section of a `credentials` file"
    )]
    OtherText,
    #[error("its source gave no name of an access key")]
    NoId,
    #[error("its source gave no secret access key")]
    NoSecret,
    #[error("its source gave a session token that no header may contain")]
    BadToken,
    #[error("its source gave an Expiration that is no time")]
    BadExpiration,
}

/// The secret key and its parts: from the JSON that `aws configure export-credentials` prints, or the lines of a `credentials` file with
/// one section.
///
/// The secret and a session token have at least `least` bytes.
///
/// # Errors
/// [`AwsKeyError`].
pub fn read_key(bytes: &[u8], least: usize) -> Result<(Zeroizing<Vec<u8>>, KeyParts), AwsKeyError> {
    let text = std::str::from_utf8(bytes).map_err(|_| AwsKeyError::NoText)?;
    let printed = match text.trim_start().starts_with('{') {
        true => serde_json::from_str(text).map_err(|_| AwsKeyError::OtherJson)?,
        false => of_lines(text)?,
    };
    let PrintedKey {
        access_key_id: id,
        secret_access_key: secret,
        session_token: token,
        expiration,
    } = printed;
    let secret = Zeroizing::new(secret.into_bytes());
    let token = token.filter(|token| !token.is_empty());
    let token = token.map(|token| Zeroizing::new(token.into_bytes()));
    let is_visible = |bytes: &[u8]| bytes.iter().all(u8::is_ascii_graphic);
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    if !ID.contains(&id.len()) || !id.bytes().all(is_word) {
        return Err(AwsKeyError::NoId);
    }
    if secret.len() < least || !is_visible(&secret) {
        return Err(AwsKeyError::NoSecret);
    }
    let is_token = |token: &Zeroizing<Vec<u8>>| token.len() >= least && is_visible(token);
    if !token.as_ref().is_none_or(is_token) {
        return Err(AwsKeyError::BadToken);
    }
    let expires = expiration.map(|text| time::read(&text).ok_or(AwsKeyError::BadExpiration));
    let expires = expires.transpose()?;
    Ok((secret, KeyParts { id, token, expires }))
}

fn of_lines(text: &str) -> Result<PrintedKey, AwsKeyError> {
    let (mut sections, mut id, mut secret, mut session_token) = (0, None, None, None);
    for line in text.lines().map(str::trim) {
        if line.starts_with('[') {
            sections += 1;
        }
        let Some((name, value)) = line.split_once('=') else {
            continue;
        };
        let slot = match name.trim() {
            "aws_access_key_id" => &mut id,
            "aws_secret_access_key" => &mut secret,
            "aws_session_token" => &mut session_token,
            _ => continue,
        };
        if slot.replace(value.trim().to_owned()).is_some() {
            return Err(AwsKeyError::OtherText);
        }
    }
    match (sections, id, secret) {
        (0..=1, Some(access_key_id), Some(secret_access_key)) => Ok(PrintedKey {
            access_key_id,
            secret_access_key,
            session_token,
            expiration: None,
        }),
        (_, _, _) => Err(AwsKeyError::OtherText),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "AKIAIOSFODNN7EXAMPLE";
    const SECRET: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";

    #[test]
    fn a_key_is_read_from_json_and_from_lines() {
        let json = format!(
            "{{\n \"Version\": 1, \"AccessKeyId\": \"{ID}\", \"SecretAccessKey\": \"{SECRET}\",\n \"SessionToken\": \"token/of+it==\", \
             \"Expiration\": \"2015-08-30T12:36:00+00:00\"\n}}"
        );
        let (secret, parts) = read_key(json.as_bytes(), 8).unwrap();
        assert_eq!((secret.as_slice(), &*parts.id), (SECRET.as_bytes(), ID));
        assert_eq!(parts.token.unwrap().as_slice(), b"token/of+it==");
        assert_eq!(parts.expires, Some(1_440_938_160));
        let lines = format!(
            "# mine\n[default]\naws_access_key_id = {ID}\naws_secret_access_key={SECRET}\nregion = x\n"
        );
        let (secret, parts) = read_key(lines.as_bytes(), 8).unwrap();
        assert_eq!((secret.as_slice(), &*parts.id), (SECRET.as_bytes(), ID));
        assert_eq!((parts.token, parts.expires), (None, None));
        assert!(read_key(lines.replacen("# mine\n[default]\n", "", 1).as_bytes(), 8).is_ok());
    }

    #[test]
    fn invalid_key_fails_with_a_reason_that_quotes_nothing() {
        let lines = format!("aws_access_key_id={ID}\naws_secret_access_key={SECRET}\n");
        let json = |more: &str| {
            format!("{{\"AccessKeyId\":\"{ID}\",\"SecretAccessKey\":\"{SECRET}\"{more}}}")
        };
        assert!(read_key(json("").as_bytes(), 8).is_ok(), "the control");
        for (text, want) in [
            (SECRET.to_owned(), "neither"),
            (format!("[a]\n{lines}[b]\n"), "neither"),
            (format!("{lines}{lines}"), "neither"),
            (json("").replace("Secret", "secret"), "JSON without"),
            (json(",\"Expiration\":\"soon\""), "no time"),
            (json(",\"SessionToken\":\"two words\""), "no header"),
            (json("").replace(ID, "AKIA"), "no name"),
            (json("").replace(SECRET, "short"), "no secret"),
        ] {
            let why = read_key(text.as_bytes(), 8).unwrap_err().to_string();
            assert!(
                why.contains(want) && !why.contains("wJalr"),
                "{text}: {why}"
            );
        }
    }
}
