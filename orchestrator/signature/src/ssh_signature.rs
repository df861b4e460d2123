//! Signatures as `ssh-keygen -Y sign` writes them: OpenSSH's `PROTOCOL.sshsig`, version 1.

use crate::packet::{self, PacketReader};
use crate::public_key::{ALGORITHM, TrustedKey};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use ed25519_compact::Signature;
use sha2::{Digest, Sha256, Sha512};
use thiserror::Error;

/// Maximum bytes of a signature's text. One by Ed25519 has 300.
pub const SIGNATURE_MAX: usize = 4096;

const BEGIN: &str = "-----BEGIN SSH SIGNATURE-----";
const END: &str = "-----END SSH SIGNATURE-----";
const MAGIC: &[u8] = b"SSHSIG";
const VERSION: u32 = 1;
pub(crate) const SHA512: &str = "sha512";
const SHA256: &str = "sha256";
/// Columns of a line, as `ssh-keygen` writes them.
const COLUMNS: usize = 70;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum SignatureError {
    #[error("it is not a signature as `ssh-keygen -Y sign` writes it, by an Ed25519 key")]
    Form,
    #[error("it is a signature for another purpose; sign with `-n {wanted}`")]
    Namespace { wanted: &'static str },
    /// The key may be genuine, but nobody has said that it counts.
    #[error("it is by the key {by}, which is not trusted here")]
    UnknownKey { by: TrustedKey },
    #[error("it is not a signature of this content: one of the two was changed")]
    Content,
}

/// Verifies that one of `trusted` has signed `message`; returns which.
///
/// # Errors
/// [`SignatureError`].
pub fn verify(
    text: &str,
    namespace: &'static str,
    message: &[u8],
    trusted: &[TrustedKey],
) -> Result<TrustedKey, SignatureError> {
    let form = SignatureError::Form;
    let blob = dearmored(text).ok_or(form)?;
    let parts = SignatureParts::of(&blob).ok_or(form)?;
    if parts.namespace != namespace.as_bytes() {
        return Err(SignatureError::Namespace { wanted: namespace });
    }
    if !trusted.contains(&parts.key) {
        return Err(SignatureError::UnknownKey { by: parts.key });
    }
    let signed = signed(namespace, parts.digest, message);
    let verified = parts.key.verifier().verify(signed, &parts.signature);
    verified.map_err(|_| SignatureError::Content)?;
    Ok(parts.key)
}

struct SignatureParts<'b> {
    key: TrustedKey,
    namespace: &'b [u8],
    digest: &'static str,
    signature: Signature,
}

impl<'b> SignatureParts<'b> {
    fn of(blob: &'b [u8]) -> Option<Self> {
        let mut reader = PacketReader(blob);
        if reader.take(MAGIC.len())? != MAGIC || reader.number()? != VERSION {
            return None;
        }
        let key = TrustedKey::of_blob(reader.string()?)?;
        let namespace = reader.string()?;
        // For later versions: what it would mean is not known.
        if !reader.string()?.is_empty() {
            return None;
        }
        let digest = match reader.string()? {
            b"sha512" => SHA512,
            b"sha256" => SHA256,
            _ => return None,
        };
        let mut inner = PacketReader(reader.string()?);
        if inner.string()? != ALGORITHM.as_bytes() {
            return None;
        }
        let bytes = inner.string()?;
        let signature = inner.end(Signature::from_slice(bytes).ok()?)?;
        reader.end(Self {
            key,
            namespace,
            digest,
            signature,
        })
    }
}

/// The bytes that a key signs.
pub(crate) fn signed(namespace: &str, digest: &str, message: &[u8]) -> Vec<u8> {
    let mut signed = MAGIC.to_vec();
    packet::put(&mut signed, namespace.as_bytes());
    packet::put(&mut signed, b"");
    packet::put(&mut signed, digest.as_bytes());
    if digest == SHA256 {
        packet::put(&mut signed, &Sha256::digest(message));
    } else {
        packet::put(&mut signed, &Sha512::digest(message));
    }
    signed
}

pub(crate) fn armored(key: &TrustedKey, namespace: &str, signature: &Signature) -> String {
    let mut inner = Vec::new();
    packet::put(&mut inner, ALGORITHM.as_bytes());
    packet::put(&mut inner, signature.as_ref());
    let mut blob = [MAGIC, &VERSION.to_be_bytes()].concat();
    packet::put(&mut blob, &key.blob());
    for part in [namespace.as_bytes(), b"", SHA512.as_bytes(), &inner] {
        packet::put(&mut blob, part);
    }
    let mut text = format!("{BEGIN}\n");
    for (at, sign) in STANDARD.encode(blob).chars().enumerate() {
        if at > 0 && at % COLUMNS == 0 {
            text.push('\n');
        }
        text.push(sign);
    }
    text + &format!("\n{END}\n")
}

fn dearmored(text: &str) -> Option<Vec<u8>> {
    if text.len() > SIGNATURE_MAX {
        return None;
    }
    let inside = text.trim_end().strip_prefix(BEGIN)?.strip_suffix(END)?;
    let joined: String = inside.split_ascii_whitespace().collect();
    STANDARD.decode(joined).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AUDIT, AuditKey, POLICY, trusted_keys};

    const MESSAGE: &[u8] = b"format = 1\n";
    const KEY: &str =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAICltphTHjkIA4MkOdo+wwOd5gfw9Awh8n+sKOVqtlg5v admin";
    const OTHER_KEY: &str =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAID4sJGipBE519d9AHuNpAI8YOTjb/KzRUWvK1DcQ8Vz7 other";
    /// By `ssh-keygen -Y sign -n lazaret-policy`.
    const SIGNED: &str = "\
-----BEGIN SSH SIGNATURE-----\n\
U1NIU0lHAAAAAQAAADMAAAALc3NoLWVkMjU1MTkAAAAgKW2mFMeOQgDgyQ52j7DA53mB/D\n\
0DCHyf6wo5Wq2WDm8AAAAObGF6YXJldC1wb2xpY3kAAAAAAAAABnNoYTUxMgAAAFMAAAAL\n\
c3NoLWVkMjU1MTkAAABAO0vvTqudjltOSv4tPce/INPqsF2ZM9IHeifqgL/W3cliqvZu5f\n\
Nnv//4Fb41d+OBKTT5KqoCr6y4GmBTipGGDA==\n\
-----END SSH SIGNATURE-----\n\
";
    /// The same with `-O hashalg=sha256`.
    const WITH_SHA256: &str = "\
-----BEGIN SSH SIGNATURE-----\n\
U1NIU0lHAAAAAQAAADMAAAALc3NoLWVkMjU1MTkAAAAgKW2mFMeOQgDgyQ52j7DA53mB/D\n\
0DCHyf6wo5Wq2WDm8AAAAObGF6YXJldC1wb2xpY3kAAAAAAAAABnNoYTI1NgAAAFMAAAAL\n\
c3NoLWVkMjU1MTkAAABASRJfTsRtQgWbifOsb+DqLdy8ccFZohbEW31YdVEIjWMPRFFtrr\n\
TjmVEFGz9hHU4QM4wINWrsglIvKqxTyTw8Bg==\n\
-----END SSH SIGNATURE-----\n\
";
    /// The same with `-n other`.
    const OF_ANOTHER_NAMESPACE: &str = "\
-----BEGIN SSH SIGNATURE-----\n\
U1NIU0lHAAAAAQAAADMAAAALc3NoLWVkMjU1MTkAAAAgKW2mFMeOQgDgyQ52j7DA53mB/D\n\
0DCHyf6wo5Wq2WDm8AAAAFb3RoZXIAAAAAAAAABnNoYTUxMgAAAFMAAAALc3NoLWVkMjU1\n\
MTkAAABAP8l1gDm8PdnTHswGtZ/RsIKSMk5A+Zyn8/ILN7nR2gsgrh8NlfBE603QNxl8nX\n\
t1Z1LK8nARbA/CUBhFfwbsDg==\n\
-----END SSH SIGNATURE-----\n\
";
    /// The same by a key that is not supported.
    const BY_RSA: &str = "\
-----BEGIN SSH SIGNATURE-----\n\
U1NIU0lHAAAAAQAAARcAAAAHc3NoLXJzYQAAAAMBAAEAAAEBALfAe5fsuOcA8Te2sRsSyH\n\
y7i13OqgM1ucS//vosbg2tPJMo34UuzTZaffVx9lbmxUsjYgTaKnjHORKpsWnLcwY9xCZO\n\
gTNxMnDcNd8pA6KjOAQeGa+E0jHKHHxG4kkYXSqKTg4vCiPs9jV6LC0yuPI2rz04TxIVzB\n\
n3nhGp5oV2nLAazI9uxaeZTceGdRBt4FZFbOHXwxVLNXTChJQUEI4q3WFMv/nsqFlOyE/J\n\
Cg2FFha/5gN8BlH7AehYLwGU1FohIIJXM+QTMLAvTrf20jgPrdWUP+ZeV8z5l/E/PgORH5\n\
R6P9L74hUxwVBueycEoRKX+j+FpHvnbHlENmdoX20AAAAObGF6YXJldC1wb2xpY3kAAAAA\n\
AAAABnNoYTUxMgAAARQAAAAMcnNhLXNoYTItNTEyAAABAEAJ7M+IGIiJ7/k31jKQIBfDqu\n\
tZB3KS1d9tYm70SO9ysFMs9TyY8qNE5xFlQKFkWGAvDODG058ZQLbMQ7ZJaXUaAOxwYFJ9\n\
iUL1+EAMmzVaUpw9lRG/KvzrVQm0CtWQncCnKqDe6lP06BGIvAPGT7ncsmY23O5/vUWCYx\n\
U7z5EyHtXebaO/HfkCeHnxgpZidokmjrl5/9pQbLYz4be4GMObsMh2CTZW22lkOZ4UeStV\n\
L3URciew4qnFR6XPL6MybojNCSApzu8q4Y1HbZXth3xYdmnxSeovBMLPFVpJityZ1FTXav\n\
u9PCAR/wSCr7HIrfKI9XtPB/L8L/xTc6FQ/LM=\n\
-----END SSH SIGNATURE-----\n\
";

    fn verified(text: &str, message: &[u8], keys: &str) -> Result<String, SignatureError> {
        let keys = trusted_keys(keys).unwrap();
        verify(text, POLICY, message, &keys).map(|key| key.line())
    }

    #[test]
    fn signatures_of_ssh_keygen_verify() {
        for text in [SIGNED, WITH_SHA256] {
            let key = verified(text, MESSAGE, &format!("# ours\n\n{OTHER_KEY}\n{KEY}\n"));
            assert_eq!(format!("{} admin", key.unwrap()), KEY);
        }
    }

    #[test]
    fn another_content_namespace_or_key_is_refused() {
        assert_eq!(
            verified(SIGNED, b"format = 2\n", KEY),
            Err(SignatureError::Content)
        );
        let wanted = POLICY;
        assert_eq!(
            verified(OF_ANOTHER_NAMESPACE, MESSAGE, KEY),
            Err(SignatureError::Namespace { wanted })
        );
        let by = trusted_keys(KEY).unwrap()[0];
        assert_eq!(
            verified(SIGNED, MESSAGE, OTHER_KEY),
            Err(SignatureError::UnknownKey { by })
        );
        assert_eq!(verified(BY_RSA, MESSAGE, KEY), Err(SignatureError::Form));
    }

    /// Of each changed bit of the signature, none verifies.
    #[test]
    fn no_changed_bit_verifies() {
        let keys = trusted_keys(KEY).unwrap();
        let blob = dearmored(SIGNED).unwrap();
        let text = |blob: &[u8]| format!("{BEGIN}\n{}\n{END}\n", STANDARD.encode(blob));
        assert!(verify(&text(&blob), POLICY, MESSAGE, &keys).is_ok());
        for at in 0..blob.len() * 8 {
            let mut changed = blob.clone();
            changed[at / 8] ^= 1 << (at % 8);
            assert!(
                verify(&text(&changed), POLICY, MESSAGE, &keys).is_err(),
                "bit {at}"
            );
        }
        for end in 0..blob.len() {
            assert!(verify(&text(&blob[..end]), POLICY, MESSAGE, &keys).is_err());
        }
        let longer = [&blob[..], b"x"].concat();
        assert!(verify(&text(&longer), POLICY, MESSAGE, &keys).is_err());
    }

    #[test]
    fn signature_text_has_a_limit() {
        let padded = |length: usize| format!("{SIGNED}{}", "\n".repeat(length - SIGNED.len()));
        assert!(verified(&padded(SIGNATURE_MAX), MESSAGE, KEY).is_ok());
        assert_eq!(
            verified(&padded(SIGNATURE_MAX + 1), MESSAGE, KEY),
            Err(SignatureError::Form)
        );
    }

    #[test]
    fn our_signatures_have_the_form_of_ssh_keygen() {
        assert!(AuditKey::of_seed([0; 32]).is_err());
        let mut seed = [0; 32];
        (0..).zip(&mut seed).for_each(|(at, byte)| *byte = at);
        let key = AuditKey::of_seed(seed).unwrap();
        let text = key.sign(AUDIT, MESSAGE);
        let trusted = [AuditKey::of_text(&key.text()).unwrap().public()];
        assert_eq!(verify(&text, AUDIT, MESSAGE, &trusted), Ok(key.public()));
        assert!(verify(&text, POLICY, MESSAGE, &trusted).is_err());
        let form = |text: &str| text.lines().map(str::len).collect::<Vec<_>>();
        // The namespace is one byte shorter, which the last group of base64 hides or not.
        assert_eq!(form(&text)[..4], form(SIGNED)[..4]);
        for wrong in ["", "lazaret-audit-key 1 AAAA\n", &key.text()[1..]] {
            assert!(AuditKey::of_text(wrong).is_err(), "{wrong}");
        }
    }
}
