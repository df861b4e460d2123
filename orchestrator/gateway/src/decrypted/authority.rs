//! The session's certificate authority: made once, taken over by a gateway's successor, and asked for one certificate a host.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use broker_protocol::gateway::Authority;
use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, DistinguishedName, DnType,
    ExtendedKeyUsagePurpose, GeneralSubtree, IsCa, Issuer, KeyPair, KeyUsagePurpose,
    NameConstraints, SanType, SerialNumber, date_time_ymd,
};
use rustls::crypto::ring;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::sign::CertifiedKey;
use std::cell::RefCell;
use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use thiserror::Error;
use zeroize::Zeroizing;

/// Certificates begin this long before they are made: the clock of whoever checks them may be slow.
const BACK_DATED: u64 = 24 * 3600;
/// How long they hold. Below the 398 days beyond which some programs believe no certificate.
const HOLDS: u64 = 366 * 24 * 3600;
/// The first byte of the key's form.
const FORM: u8 = 1;
const SERIAL: usize = 16;
const ID: usize = 8;

/// Why the authority cannot serve.
#[derive(Debug, Error)]
pub enum AuthorityError {
    /// The bytes are of no gateway.
    #[error("the key of the session's authority has an unknown form")]
    Form,
    #[error("cannot make a certificate: {0}")]
    Certificate(#[from] rcgen::Error),
    #[error("cannot use a certificate: {0}")]
    Key(#[from] rustls::Error),
    #[error("this machine gives no random numbers")]
    Random,
}

/// The authority and the certificates that it has made.
pub(super) struct Certifier {
    issuer: Issuer<'static, KeyPair>,
    not_before: u64,
    public: Authority,
    /// One a host: there are no more hosts than credentials name.
    made: RefCell<HashMap<String, Arc<CertifiedKey>>>,
}

impl Certifier {
    /// A new authority, good for `hosts` only.
    ///
    /// # Errors
    /// See [`AuthorityError`].
    pub(super) fn new<'a>(hosts: impl Iterator<Item = &'a str>) -> Result<Self, AuthorityError> {
        let id: [u8; ID] = random()?;
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        let not_before = now.saturating_sub(BACK_DATED);
        let key = KeyPair::generate()?;
        let mut params = issuer_params(id, not_before)?;
        params.name_constraints = Some(constraints(hosts));
        let certificate = params.self_signed(&key)?.pem();
        let mut form = vec![FORM];
        form.extend(id);
        form.extend(not_before.to_le_bytes());
        form.extend(key.serialized_der());
        let public = Authority {
            certificate,
            key: form,
        };
        Ok(Self::with(params, key, not_before, public))
    }

    /// The authority of an earlier gateway of this session.
    ///
    /// # Errors
    /// See [`AuthorityError`].
    pub(super) fn of(public: Authority) -> Result<Self, AuthorityError> {
        let bytes = Zeroizing::new(public.key.clone());
        let (form, rest) = bytes.split_first().ok_or(AuthorityError::Form)?;
        let (id, rest) = rest.split_first_chunk().ok_or(AuthorityError::Form)?;
        let (not_before, key) = rest.split_first_chunk().ok_or(AuthorityError::Form)?;
        if *form != FORM {
            return Err(AuthorityError::Form);
        }
        let not_before = u64::from_le_bytes(*not_before);
        let key = KeyPair::try_from(key)?;
        Ok(Self::with(
            issuer_params(*id, not_before)?,
            key,
            not_before,
            public,
        ))
    }

    fn with(params: CertificateParams, key: KeyPair, not_before: u64, public: Authority) -> Self {
        Self {
            issuer: Issuer::new(params, key),
            not_before,
            public,
            made: RefCell::default(),
        }
    }

    /// What cells believe, and what a successor needs.
    pub(super) fn public(&self) -> &Authority {
        &self.public
    }

    /// The certificate of `host`, which names no other.
    ///
    /// # Errors
    /// See [`AuthorityError`].
    pub(super) fn certificate(&self, host: &str) -> Result<Arc<CertifiedKey>, AuthorityError> {
        if let Some(made) = self.made.borrow().get(host) {
            return Ok(made.clone());
        }
        let key = KeyPair::generate()?;
        let certificate = leaf_params(host, self.not_before)?.signed_by(&key, &self.issuer)?;
        let private = PrivateKeyDer::Pkcs8(PrivatePkcs8KeyDer::from(key.serialize_der()));
        let made = CertifiedKey::new(
            vec![certificate.into()],
            ring::sign::any_supported_type(&private)?,
        );
        let made = Arc::new(made);
        self.made.borrow_mut().insert(host.into(), made.clone());
        Ok(made)
    }
}

fn issuer_params(id: [u8; ID], not_before: u64) -> Result<CertificateParams, AuthorityError> {
    let mut params = dated(not_before)?;
    // Two sessions' authorities, and an authority and its certificates, never have one name: programs find issuers by name.
    let id = STANDARD.encode(id);
    params.distinguished_name = name(&format!("Lazaret session {id}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    Ok(params)
}

fn leaf_params(host: &str, not_before: u64) -> Result<CertificateParams, AuthorityError> {
    let mut params = dated(not_before)?;
    params.distinguished_name = name("Lazaret session host");
    params.subject_alt_names = vec![match address(host) {
        Some(address) => SanType::IpAddress(address),
        None => SanType::DnsName(host.try_into()?),
    }];
    params.is_ca = IsCa::ExplicitNoCa;
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    Ok(params)
}

fn dated(not_before: u64) -> Result<CertificateParams, AuthorityError> {
    let mut params = CertificateParams::default();
    let epoch = date_time_ymd(1970, 1, 1);
    params.not_before = epoch + Duration::from_secs(not_before);
    params.not_after = params.not_before + Duration::from_secs(HOLDS);
    let mut serial: [u8; SERIAL] = random()?;
    // Positive, and of the same length whatever was drawn.
    serial[0] = serial[0] & 0x7f | 0x40;
    params.serial_number = Some(SerialNumber::from_slice(&serial));
    Ok(params)
}

fn name(common: &str) -> DistinguishedName {
    let mut name = DistinguishedName::new();
    name.push(DnType::OrganizationName, "Lazaret");
    name.push(DnType::CommonName, common);
    name
}

/// Certificates of this authority are worth nothing for other hosts, where a program looks at that.
fn constraints<'a>(hosts: impl Iterator<Item = &'a str>) -> NameConstraints {
    let mut permitted = Vec::new();
    for host in hosts {
        let subtree = match address(host) {
            Some(IpAddr::V4(v4)) => {
                GeneralSubtree::IpAddress(CidrSubnet::from_v4_prefix(v4.octets(), 32))
            }
            Some(IpAddr::V6(v6)) => {
                GeneralSubtree::IpAddress(CidrSubnet::from_v6_prefix(v6.octets(), 128))
            }
            None => GeneralSubtree::DnsName(host.into()),
        };
        if !permitted.contains(&subtree) {
            permitted.push(subtree);
        }
    }
    let is_address = |subtree: &GeneralSubtree| matches!(subtree, GeneralSubtree::IpAddress(_));
    let mut excluded = Vec::new();
    if !permitted.iter().any(is_address) {
        for any in [
            IpAddr::V4(Ipv4Addr::UNSPECIFIED),
            IpAddr::V6(Ipv6Addr::UNSPECIFIED),
        ] {
            excluded.push(GeneralSubtree::IpAddress(CidrSubnet::from_addr_prefix(
                any, 0,
            )));
        }
    }
    NameConstraints {
        permitted_subtrees: permitted,
        excluded_subtrees: excluded,
    }
}

/// The address that `host` is, in the notation of policies.
pub(super) fn address(host: &str) -> Option<IpAddr> {
    let inner = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    inner.unwrap_or(host).parse().ok()
}

fn random<const N: usize>() -> Result<[u8; N], AuthorityError> {
    let mut bytes = [0; N];
    ring::default_provider()
        .secure_random
        .fill(&mut bytes)
        .map_err(|_| AuthorityError::Random)?;
    Ok(bytes)
}
