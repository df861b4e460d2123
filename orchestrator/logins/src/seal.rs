//! Tokens that only the gateway can read. The cell's text for a token is the token itself, encrypted: so nothing has to be stored where it
//! is exchanged, and neither a crash nor a second process can lose one. Whoever steals the text has nothing without the key.

use crate::fault::{LoginFault, TOKEN_MAX};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, Salt};
use ring::rand::{SecureRandom, SystemRandom};
use zeroize::Zeroizing;

/// Minimum bytes of the text that a key is derived from.
pub const KEY_MIN: usize = 32;

/// A token as its authority has made it.
pub type RealToken = Zeroizing<Vec<u8>>;

/// The purpose of a token. One that was sealed for a purpose opens for no other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenRole {
    /// `access_token`, for the header of requests.
    Access,
    /// `refresh_token`, for the token endpoint alone.
    Refresh,
    /// `id_token`, which no request of ours holds.
    Identity,
}

impl TokenRole {
    pub const ALL: [Self; 3] = [Self::Access, Self::Refresh, Self::Identity];

    /// Its member of an answer.
    pub(crate) fn member(self) -> &'static str {
        match self {
            Self::Access => "access_token",
            Self::Refresh => "refresh_token",
            Self::Identity => "id_token",
        }
    }
}

/// The key of one login.
pub struct TokenKey {
    key: LessSafeKey,
    /// Begins each sealed text: it names the login.
    marker: String,
}

impl TokenKey {
    /// Derives it from a secret of at least [`KEY_MIN`] bytes; `marker` is the credential's placeholder.
    pub fn new(secret: &[u8], marker: &str) -> Option<Self> {
        if secret.len() < KEY_MIN {
            return None;
        }
        let salt = Salt::new(HKDF_SHA256, b"lazaret login tokens 1");
        let info = [marker.as_bytes()];
        let expanded = salt.extract(secret);
        let derived = expanded.expand(&info, &CHACHA20_POLY1305).ok()?;
        Some(Self {
            key: LessSafeKey::new(UnboundKey::from(derived)),
            marker: marker.to_owned(),
        })
    }

    /// The text that stands for `token`. Two of the same token differ.
    ///
    /// # Errors
    /// It is too long, or there are no random bytes.
    pub fn seal(&self, token: &[u8], role: TokenRole) -> Result<String, LoginFault> {
        let is_visible = token.iter().all(u8::is_ascii_graphic);
        if token.is_empty() || token.len() > TOKEN_MAX || !is_visible {
            return Err(LoginFault::Token(role.member()));
        }
        let mut nonce = [0; NONCE_LEN];
        let random = SystemRandom::new();
        random.fill(&mut nonce).map_err(|_| LoginFault::Random)?;
        let mut sealed = nonce.to_vec();
        let mut text = Zeroizing::new(token.to_vec());
        let nonce = Nonce::assume_unique_for_key(nonce);
        let tag = self
            .key
            .seal_in_place_separate_tag(nonce, aad(role), &mut text);
        let tag = tag.map_err(|_| LoginFault::Random)?;
        sealed.extend_from_slice(&text);
        sealed.extend_from_slice(tag.as_ref());
        Ok(format!("{}{}", self.marker, URL_SAFE_NO_PAD.encode(sealed)))
    }

    /// Whether a text has the form of a sealed token of this login, whatever its key.
    pub fn is_sealed(marker: &str, text: &[u8]) -> bool {
        part(marker, text).is_some()
    }

    /// The token that `text` ends with.
    ///
    /// # Errors
    /// It was sealed with another key or for another purpose, or was changed.
    pub fn open(&self, text: &[u8], role: TokenRole) -> Result<RealToken, LoginFault> {
        let part = part(&self.marker, text).ok_or(LoginFault::Sealed)?;
        let sealed = URL_SAFE_NO_PAD.decode(part);
        let sealed = sealed.map_err(|_| LoginFault::Sealed)?;
        let (nonce, text) = sealed
            .split_at_checked(NONCE_LEN)
            .ok_or(LoginFault::Sealed)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| LoginFault::Sealed)?;
        let mut text = Zeroizing::new(text.to_vec());
        let opened = self.key.open_in_place(nonce, aad(role), &mut text);
        let length = opened.map_err(|_| LoginFault::Sealed)?.len();
        text.truncate(length);
        Ok(text)
    }
}

fn aad(role: TokenRole) -> Aad<&'static [u8]> {
    Aad::from(role.member().as_bytes())
}

/// The part of a text behind the last marker, which is all of its rest.
fn part<'t>(marker: &str, text: &'t [u8]) -> Option<&'t [u8]> {
    let starts = text.windows(marker.len());
    let at = starts
        .into_iter()
        .rposition(|start| start == marker.as_bytes())?;
    let rest = &text[at + marker.len()..];
    let is_digit = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_".contains(byte);
    (!rest.is_empty() && rest.iter().all(is_digit)).then_some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MARKER: &str = "lzlogin-0123456789abcde-";
    const TOKEN: &[u8] = b"sk-ant-oat01-token";

    fn key(secret: &[u8]) -> TokenKey {
        TokenKey::new(secret, MARKER).unwrap()
    }

    #[test]
    fn a_sealed_token_opens_with_its_key_and_for_its_purpose_alone() {
        let own = key(&[1; KEY_MIN]);
        for role in TokenRole::ALL {
            let text = own.seal(TOKEN, role).unwrap();
            assert_ne!(text, own.seal(TOKEN, role).unwrap());
            assert!(!text.contains("token"), "{text}");
            let shown = format!("prefix.{text}");
            assert_eq!(*own.open(shown.as_bytes(), role).unwrap(), TOKEN);
            for other in TokenRole::ALL.into_iter().filter(|other| *other != role) {
                assert_eq!(own.open(text.as_bytes(), other), Err(LoginFault::Sealed));
            }
            let foreign = key(&[2; KEY_MIN]);
            assert_eq!(foreign.open(text.as_bytes(), role), Err(LoginFault::Sealed));
            let named = TokenKey::new(&[1; KEY_MIN], "lzlogin-fedcba987654321-").unwrap();
            assert_eq!(named.open(text.as_bytes(), role), Err(LoginFault::Sealed));
        }
    }

    #[test]
    fn a_changed_text_does_not_open() {
        let own = key(&[1; KEY_MIN]);
        let text = own.seal(TOKEN, TokenRole::Access).unwrap();
        for at in MARKER.len()..text.len() {
            let mut changed = text.clone().into_bytes();
            changed[at] = if changed[at] == b'A' { b'B' } else { b'A' };
            assert_eq!(
                own.open(&changed, TokenRole::Access),
                Err(LoginFault::Sealed),
                "{at}"
            );
        }
        for cut in [
            MARKER,
            "",
            "lzlogin-",
            &text[..text.len() - 1],
            &format!("{text}="),
        ] {
            assert!(
                own.open(cut.as_bytes(), TokenRole::Access).is_err(),
                "{cut}"
            );
        }
    }

    #[test]
    fn keys_and_tokens_have_limits() {
        assert!(TokenKey::new(&[1; KEY_MIN - 1], MARKER).is_none());
        let own = key(&[1; KEY_MIN]);
        let role = TokenRole::Refresh;
        assert!(own.seal(&vec![b'x'; TOKEN_MAX], role).is_ok());
        let fault = Err(LoginFault::Token("refresh_token"));
        assert_eq!(own.seal(&vec![b'x'; TOKEN_MAX + 1], role), fault);
        assert_eq!(own.seal(b"", role), fault);
        assert_eq!(own.seal(b"a b", role), fault);
    }
}
