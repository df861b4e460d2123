//! A host with TLS: a server in Python with a certificate of the test's own authority.

use crate::World;
use crate::process::{LIMIT, until};
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command};

/// An authority, and a certificate of it for `$NAMES`.
const CERTIFICATES: &str = "
    new='req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes'
    openssl $new -x509 -keyout ca.key -out ca.pem -subj /CN=authority -addext keyUsage=critical,keyCertSign
    openssl $new -keyout host.key -out host.csr -subj /CN=host
    printf \"subjectAltName=$NAMES\\n\" > names
    openssl x509 -req -in host.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out host.pem -extfile names";

/// Ends the program of a server: its class is `Handler`, and `log` takes its lines, of which the port is the first.
const SERVE: &str = r"
import http.server, ssl, sys
log = open('log', 'w')
server = http.server.ThreadingHTTPServer(('127.0.0.1', 0), Handler)
context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
context.load_cert_chain('host.pem', 'host.key')
server.socket = context.wrap_socket(server.socket, server_side=True)
print(server.server_address[1], file=log, flush=True)
server.serve_forever()
";

/// A host that serves until it is dropped.
pub struct TlsHost {
    pub port: u16,
    folder: PathBuf,
    server: Child,
}

impl TlsHost {
    /// One with these names, whose requests the class `Handler` of `handler` answers.
    pub fn start(world: &World, names: &[&str], handler: &str) -> Self {
        let folder = world.outside.join("host");
        world.make_folder(&folder);
        let names: Vec<String> = names.iter().map(|name| format!("DNS:{name}")).collect();
        let (at, names) = (folder.display(), names.join(","));
        let made = format!("cd {at} && NAMES={names} && {{ {CERTIFICATES}; }} 2>&1");
        world.on_host(&made).success();
        let server = Command::new("python3")
            .args(["-c", &format!("{handler}{SERVE}")])
            .current_dir(&folder)
            .spawn()
            .expect("there is Python");
        let mut host = Self {
            port: 0,
            folder,
            server,
        };
        let is_there = || {
            let said = fs::read_to_string(host.folder.join("log")).unwrap_or_default();
            host.port = said.trim().parse().unwrap_or(0);
            host.port != 0
        };
        assert!(until(LIMIT, is_there), "the host does not start");
        host
    }

    /// The certificate of its authority.
    pub fn authority(&self) -> PathBuf {
        self.folder.join("ca.pem")
    }

    /// The lines of its log, without that of the port.
    pub fn log(&self) -> Vec<String> {
        let text = fs::read_to_string(self.folder.join("log")).expect("it has written the port");
        text.lines().skip(1).map(str::to_owned).collect()
    }
}

impl Drop for TlsHost {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}
