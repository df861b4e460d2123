//! The files by which programs in cells trust the authority of a session whose connections are decrypted.

use broker_protocol::{Layer, LayerSet};
use std::path::{Path, PathBuf};

/// Where a session with its own root has these files.
pub const DIRECTORY: &str = "/.certificates";

/// Files in which machines have all authorities that they trust, of Debian, Fedora, SUSE, Alpine and Arch. Some are links to others.
pub const MACHINE: [&str; 6] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ca-certificates/extracted/tls-ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// Files in which machines have the same for Java, of Debian, Fedora and SUSE. Java's own file is a link to one.
pub const MACHINE_JAVA: [&str; 3] = [
    "/etc/ssl/certs/java/cacerts",
    "/etc/pki/java/cacerts",
    "/var/lib/ca-certificates/java-cacerts",
];

/// The files, by their paths on the host when the session's first process starts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateFiles {
    /// All authorities: the machine's, the user's, and the session's.
    pub all: PathBuf,
    /// Those beyond the machine's, for clients that add them to their own.
    pub added: PathBuf,
    /// All authorities, as a trust store for Java.
    pub java: PathBuf,
}

/// The root directory that cells see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CellRoot {
    Own,
    OfMachine,
}

impl CellRoot {
    /// That of cells with these layers.
    pub fn of(layers: LayerSet) -> Self {
        match layers.has(Layer::MountNamespace) {
            true => Self::Own,
            false => Self::OfMachine,
        }
    }
}

impl CertificateFiles {
    /// Each file with the path at which cells see it.
    pub fn seen(&self, by: CellRoot) -> [(&Path, PathBuf); 3] {
        let files = [
            (&self.all, "all.pem"),
            (&self.added, "added.pem"),
            (&self.java, "java.jks"),
        ];
        files.map(|(host, name)| {
            let seen = match by {
                CellRoot::Own => Path::new(DIRECTORY).join(name),
                CellRoot::OfMachine => host.clone(),
            };
            (host.as_path(), seen)
        })
    }
}
