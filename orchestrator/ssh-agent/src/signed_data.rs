//! The data that a program wants signed, as far as it may be: a login by key (RFC 4252, section 7), or a signature of git's (PROTOCOL.sshsig).
//! Everything else is none of these.

use crate::messages::{RSA_SHA256, RSA_SHA512};
use crate::wire::WireReader;

/// Number of the message that logs in (`SSH_MSG_USERAUTH_REQUEST`).
const LOGIN: u8 = 50;
/// Signatures are made in this namespace alone.
const NAMESPACE: &[u8] = b"git";
/// Kinds of keys whose one algorithm has their name.
const PLAIN_KINDS: [&[u8]; 6] = [
    b"ssh-ed25519",
    b"ecdsa-sha2-nistp256",
    b"ecdsa-sha2-nistp384",
    b"ecdsa-sha2-nistp521",
    b"sk-ssh-ed25519@openssh.com",
    b"sk-ecdsa-sha2-nistp256@openssh.com",
];

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SignedData<'a> {
    Login(LoginData<'a>),
    Git,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct LoginData<'a> {
    /// The identifier of the session: the digest of its first exchange.
    pub session: &'a [u8],
    pub user: &'a [u8],
    /// The name of the algorithm. The user's agent does not read it: it signs by the kind of the key and the flags.
    pub algorithm: &'a [u8],
    pub key: &'a [u8],
    /// The host's key, where the method names it.
    pub host_key: Option<&'a [u8]>,
}

impl<'a> SignedData<'a> {
    pub(super) fn read(data: &'a [u8]) -> Option<Self> {
        match data.strip_prefix(b"SSHSIG") {
            Some(rest) => git(rest).then_some(Self::Git),
            None => login(data).map(Self::Login),
        }
    }
}

fn login(data: &[u8]) -> Option<LoginData<'_>> {
    let mut reader = WireReader::new(data);
    let session = reader.string()?;
    let number = reader.byte()?;
    let (user, service, method) = (reader.string()?, reader.string()?, reader.string()?);
    let (has_signature, algorithm, key) = (reader.byte()?, reader.string()?, reader.string()?);
    let host_key = match method {
        b"publickey" => None,
        b"publickey-hostbound-v00@openssh.com" => Some(reader.string()?),
        _ => return None,
    };
    let is_login = number == LOGIN && service == b"ssh-connection" && has_signature == 1;
    (is_login && reader.is_at_end()).then_some(LoginData {
        session,
        user,
        algorithm,
        key,
        host_key,
    })
}

/// Namespace, a reserved text that is empty, the name of a digest, and a digest of its length.
fn git(rest: &[u8]) -> bool {
    let mut reader = WireReader::new(rest);
    let [namespace, reserved, name, digest] = [(); 4].map(|()| reader.string());
    let length = match name {
        Some(b"sha256") => 32,
        Some(b"sha512") => 64,
        Some(_) | None => return false,
    };
    reader.is_at_end()
        && namespace == Some(NAMESPACE)
        && reserved.is_some_and(<[u8]>::is_empty)
        && digest.is_some_and(|digest| digest.len() == length)
}

/// The algorithm by which a key signs with these flags. There is none for RSA by SHA-1, which no flag chooses, for certificates, and for flags
/// of another kind of key.
pub(super) fn algorithm(key: &[u8], flags: u32) -> Option<&[u8]> {
    match (WireReader::new(key).string()?, flags) {
        (b"ssh-rsa", RSA_SHA256) => Some(b"rsa-sha2-256"),
        (b"ssh-rsa", RSA_SHA512) => Some(b"rsa-sha2-512"),
        (kind, 0) => PLAIN_KINDS.contains(&kind).then_some(kind),
        (_, 1..) => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::put_string;

    fn login_data(number: u8, strings: [&[u8]; 6], more: &[&[u8]]) -> Vec<u8> {
        let [session, user, service, method, algorithm, key] = strings;
        let mut data = Vec::new();
        put_string(&mut data, session);
        data.push(number);
        put_string(&mut data, user);
        put_string(&mut data, service);
        put_string(&mut data, method);
        data.push(1);
        put_string(&mut data, algorithm);
        put_string(&mut data, key);
        more.iter().for_each(|part| put_string(&mut data, part));
        data
    }

    #[test]
    fn a_login_is_read_in_both_forms_and_no_other() {
        let strings = |service: &'static [u8], method: &'static [u8]| {
            [b"sid", b"git", service, method, b"alg", b"key"].map(|part: &[u8]| part)
        };
        let both = strings(b"ssh-connection", b"publickey");
        let plain = login_data(50, both, &[]);
        let read = SignedData::read(&plain);
        let mut expected = LoginData {
            session: b"sid",
            user: b"git",
            algorithm: b"alg",
            key: b"key",
            host_key: None,
        };
        assert_eq!(read, Some(SignedData::Login(expected.clone())));
        let bound = strings(b"ssh-connection", b"publickey-hostbound-v00@openssh.com");
        let with_key = login_data(50, bound, &[b"host"]);
        expected.host_key = Some(b"host");
        let read = SignedData::read(&with_key);
        assert_eq!(read, Some(SignedData::Login(expected)));
        for wrong in [
            login_data(51, both, &[]),
            login_data(50, both, &[b"more"]),
            login_data(50, bound, &[]),
            login_data(50, strings(b"ssh-userauth", b"publickey"), &[]),
            login_data(50, strings(b"ssh-connection", b"hostbased"), &[]),
            plain[..plain.len() - 1].to_vec(),
            vec![],
        ] {
            assert_eq!(SignedData::read(&wrong), None);
        }
    }

    #[test]
    fn only_signatures_of_git_are_read() {
        let data = |namespace: &[u8], parts: &[&[u8]]| {
            let mut data = b"SSHSIG".to_vec();
            put_string(&mut data, namespace);
            parts.iter().for_each(|part| put_string(&mut data, part));
            data
        };
        let rest: [&[u8]; 3] = [b"", b"sha512", &[7; 64]];
        assert_eq!(
            SignedData::read(&data(b"git", &rest)),
            Some(SignedData::Git)
        );
        for wrong in [
            data(b"file", &rest),
            data(b"git2", &rest),
            data(b"", &rest),
            data(b"git", &rest[..2]),
            data(b"git", &[b"", b"sha512", &[7; 64], b"more"]),
            data(b"git", &[b"x", b"sha512", &[7; 64]]),
            data(b"git", &[b"", b"sha512", &[7; 32]]),
            data(b"git", &[b"", b"sha512", &[7; 65]]),
            data(b"git", &[b"", b"sha256", &[7; 64]]),
            data(b"git", &[b"", b"sha1", &[7; 20]]),
            data(b"git", &[b"", b"", b""]),
        ] {
            assert_eq!(SignedData::read(&wrong), None);
        }
        let shorter = data(b"git", &[b"", b"sha256", &[7; 32]]);
        assert_eq!(SignedData::read(&shorter), Some(SignedData::Git));
    }

    #[test]
    fn a_key_signs_by_its_own_algorithms_and_rsa_never_by_sha1() {
        let by = |kind: &[u8], flags| {
            let mut key = Vec::new();
            put_string(&mut key, kind);
            algorithm(&key, flags).map(<[u8]>::to_vec)
        };
        for kind in PLAIN_KINDS {
            assert_eq!(by(kind, 0), Some(kind.to_vec()));
            for flags in [1, RSA_SHA256, RSA_SHA512] {
                assert_eq!(by(kind, flags), None);
            }
        }
        assert_eq!(by(b"ssh-rsa", RSA_SHA256), Some(b"rsa-sha2-256".to_vec()));
        assert_eq!(by(b"ssh-rsa", RSA_SHA512), Some(b"rsa-sha2-512".to_vec()));
        for flags in [0, 1, RSA_SHA256 | RSA_SHA512, 8] {
            assert_eq!(by(b"ssh-rsa", flags), None);
        }
        for kind in [&b"ssh-ed25519-cert-v01@openssh.com"[..], b"ssh-dss", b""] {
            assert_eq!(by(kind, 0), None);
        }
        assert_eq!(algorithm(b"", 0), None);
    }
}
