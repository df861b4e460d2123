//! The authority and its certificates, as programs check them that are strict.

use crate::world::*;
use broker_protocol::gateway::GatewaySpec;
use orchestrator_gateway::decrypted::{CertificateRoots, TlsTerminator};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// A folder that is gone with the test.
pub(crate) struct Folder(pub PathBuf);

impl Folder {
    pub(crate) fn new(name: &str) -> Self {
        let path =
            std::env::temp_dir().join(format!("lazaret-ended-{}-{name}", std::process::id()));
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.join(name);
        std::fs::write(&path, text).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Runs a program, which must be installed, with nothing of this one's environment.
pub(crate) fn run(
    program: &str,
    arguments: &[&str],
    variables: &[(&str, &str)],
    at: &Path,
) -> Output {
    let output = Command::new(program)
        .args(arguments)
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap_or_default())
        .env("HOME", at)
        .envs(variables.iter().copied())
        .current_dir(at)
        .stdin(std::process::Stdio::null())
        .output();
    output.unwrap_or_else(|error| panic!("{program}: {error}"))
}

pub(crate) fn pem(der: &[u8]) -> String {
    use base64::Engine;
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    format!("-----BEGIN CERTIFICATE-----\n{text}\n-----END CERTIFICATE-----\n")
}

async fn leaf(world: &World) -> Vec<u8> {
    let stream = world.tls(&[]).await;
    stream.get_ref().1.peer_certificates().unwrap()[0].to_vec()
}

#[test]
fn openssl_verifies_the_certificates_strictly_and_only_for_the_host() {
    local(async {
        let world = World::new(Setup::default()).await;
        let folder = Folder::new("strict");
        let authority = world.ended.authority().unwrap().certificate;
        folder.file("ca.pem", &authority);
        folder.file("leaf.pem", &pem(&leaf(&world).await));
        let verify = |more: &[&str]| {
            let all = [
                &["verify", "-x509_strict", "-CAfile", "ca.pem"],
                more,
                &["leaf.pem"],
            ]
            .concat();
            run("openssl", &all, &[], &folder.0)
        };
        let output = verify(&["-verify_hostname", "a.example", "-purpose", "sslserver"]);
        assert!(output.status.success(), "{output:?}");
        // A certificate names one host.
        for other in ["b.example", "x.a.example", "a.example.com"] {
            assert!(
                !verify(&["-verify_hostname", other]).status.success(),
                "{other}"
            );
        }
        let text = |name: &str| {
            let output = run(
                "openssl",
                &["x509", "-in", name, "-noout", "-text"],
                &[],
                &folder.0,
            );
            String::from_utf8(output.stdout).unwrap()
        };
        let (ca, leaf) = (text("ca.pem"), text("leaf.pem"));
        for want in [
            "CA:TRUE, pathlen:0",
            "Certificate Sign",
            "X509v3 Subject Key Identifier",
            "X509v3 Name Constraints: critical",
        ] {
            assert!(ca.contains(want), "{want}: {ca}");
        }
        for want in [
            "CA:FALSE",
            "X509v3 Authority Key Identifier",
            "DNS:a.example\n",
        ] {
            assert!(leaf.contains(want), "{want}: {leaf}");
        }
        // Names of authority and host differ.
        assert!(!leaf.contains("Issuer: O = Lazaret, CN = Lazaret session host"));
    });
}

#[test]
fn certificates_begin_a_day_before_they_are_made() {
    local(async {
        let world = World::new(Setup::default()).await;
        let folder = Folder::new("dates");
        folder.file("ca.pem", &world.ended.authority().unwrap().certificate);
        folder.file("leaf.pem", &pem(&leaf(&world).await));
        let yesterday = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap()
            .as_secs()
            - 23 * 3600;
        for (when, want) in [(yesterday, true), (yesterday - 2 * 3600, false)] {
            let when = when.to_string();
            let arguments = [
                "verify",
                "-x509_strict",
                "-attime",
                &when,
                "-CAfile",
                "ca.pem",
                "leaf.pem",
            ];
            let output = run("openssl", &arguments, &[], &folder.0);
            assert_eq!(output.status.success(), want, "{output:?}");
        }
    });
}

#[test]
fn a_successor_has_the_same_authority() {
    local(async {
        let first = World::new(Setup::default()).await;
        let authority = first.ended.authority().unwrap();
        let second = World::new(Setup {
            authority: Some(authority.clone()),
            ..Setup::default()
        })
        .await;
        assert_eq!(second.ended.authority(), Some(authority.clone()));
        // The program believes the first one's certificate.
        let stream = second.tunnel("a.example:443").await;
        assert!(client(&authority.certificate, stream).await.is_ok());
        let root = CertificateDer::from_pem_slice(authority.certificate.as_bytes()).unwrap();
        assert!(!root.is_empty());
        let spec = GatewaySpec {
            authority: Some(broker_protocol::gateway::Authority {
                key: vec![9; 100],
                ..authority
            }),
            ..GatewaySpec::default()
        };
        assert!(TlsTerminator::new(&spec, CertificateRoots::default(), |_| {}).is_err());
    });
}

#[test]
fn two_sessions_have_two_authorities_and_one_without_credentials_none() {
    local(async {
        let (one, two) = (
            World::new(Setup::default()).await,
            World::new(Setup::default()).await,
        );
        assert_ne!(one.ended.authority(), two.ended.authority());
        let none = TlsTerminator::new(&GatewaySpec::default(), CertificateRoots::default(), |_| {})
            .unwrap();
        assert_eq!(none.authority(), None);
        assert!(!none.is_for("a.example", 443));
        assert!(one.ended.is_for("a.example", 8443) && !one.ended.is_for("a.example", 80));
    });
}

#[test]
fn no_leaf_is_older_than_its_authority() {
    local(async {
        let first = World::new(Setup::default()).await;
        let authority = first.ended.authority();
        // A successor has the authority of an earlier gateway.
        let later = World::new(Setup {
            authority,
            ..Setup::default()
        })
        .await;
        let folder = Folder::new("older");
        let begins = |text: &str| {
            let file = folder.file("one.pem", text);
            let arguments = [
                "x509",
                "-in",
                file.to_str().unwrap(),
                "-noout",
                "-startdate",
            ];
            let arguments = [&arguments[..], &["-dateopt", "iso_8601"]].concat();
            let output = run("openssl", &arguments, &[], &folder.0);
            let text = String::from_utf8(output.stdout).unwrap();
            let begins = text.trim().strip_prefix("notBefore=").map(str::to_owned);
            begins.unwrap_or_else(|| panic!("{text}"))
        };
        for world in [&first, &later] {
            let authority = begins(&world.ended.authority().unwrap().certificate);
            let leaf = begins(&pem(&leaf(world).await));
            assert!(authority <= leaf, "{authority} {leaf}");
        }
    });
}
