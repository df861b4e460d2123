//! Verifies a host's signature of a key exchange by its public key. Kinds of keys that are not here verify nothing: keys of hardware
//! tokens, certificates, ECDSA on the curve P-521, DSA, and RSA with SHA-1.

use crate::wire::WireReader;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P384_SHA384_FIXED, ED25519, RSA_PKCS1_2048_8192_SHA256,
    RSA_PKCS1_2048_8192_SHA512, RsaParameters, RsaPublicKeyComponents, UnparsedPublicKey,
    VerificationAlgorithm,
};

/// Verifies that the owner of `key` has signed `signed`.
pub(super) fn is_by(key: &[u8], signature: &[u8], signed: &[u8]) -> bool {
    verify(key, signature, signed).is_some()
}

fn verify(key: &[u8], signature: &[u8], signed: &[u8]) -> Option<()> {
    let (mut key, mut signature) = (WireReader::new(key), WireReader::new(signature));
    let (kind, algorithm, made) = (key.string()?, signature.string()?, signature.string()?);
    if !signature.is_at_end() {
        return None;
    }
    match (kind, algorithm) {
        (b"ssh-ed25519", b"ssh-ed25519") => {
            let point = key.string()?;
            by_point(&ED25519, (key, point), made, signed)
        }
        (b"ecdsa-sha2-nistp256", b"ecdsa-sha2-nistp256") => {
            let point = curve_point(&mut key, b"nistp256")?;
            let made = halves::<32>(made)?;
            by_point(&ECDSA_P256_SHA256_FIXED, (key, point), &made, signed)
        }
        (b"ecdsa-sha2-nistp384", b"ecdsa-sha2-nistp384") => {
            let point = curve_point(&mut key, b"nistp384")?;
            let made = halves::<48>(made)?;
            by_point(&ECDSA_P384_SHA384_FIXED, (key, point), &made, signed)
        }
        (b"ssh-rsa", b"rsa-sha2-256") => by_rsa(&RSA_PKCS1_2048_8192_SHA256, key, made, signed),
        (b"ssh-rsa", b"rsa-sha2-512") => by_rsa(&RSA_PKCS1_2048_8192_SHA512, key, made, signed),
        _ => None,
    }
}

fn by_point(
    algorithm: &'static dyn VerificationAlgorithm,
    (rest, point): (WireReader, &[u8]),
    made: &[u8],
    signed: &[u8],
) -> Option<()> {
    let key = UnparsedPublicKey::new(algorithm, point);
    let verified = rest.is_at_end().then(|| key.verify(signed, made))?;
    verified.ok()
}

fn curve_point<'a>(key: &mut WireReader<'a>, curve: &[u8]) -> Option<&'a [u8]> {
    (key.string()? == curve).then(|| key.string())?
}

/// The two numbers of an ECDSA signature, each of this many bytes.
fn halves<const SIZE: usize>(made: &[u8]) -> Option<Vec<u8>> {
    let mut reader = WireReader::new(made);
    let mut both = padded(reader.positive()?, SIZE)?;
    both.extend(padded(reader.positive()?, SIZE)?);
    reader.is_at_end().then_some(both)
}

fn by_rsa(
    parameters: &'static RsaParameters,
    mut key: WireReader,
    made: &[u8],
    signed: &[u8],
) -> Option<()> {
    let (e, n) = (key.positive()?, key.positive()?);
    let made = padded(made, n.len()).filter(|_| key.is_at_end())?;
    let verified = RsaPublicKeyComponents { n, e }.verify(parameters, signed, &made);
    verified.ok()
}

/// A number with zeros before it.
fn padded(number: &[u8], size: usize) -> Option<Vec<u8>> {
    let zeros = size.checked_sub(number.len())?;
    let mut whole = vec![0; zeros];
    whole.extend(number);
    Some(whole)
}
