//! A registry of npm and an index of Python as a server of a test, behind a company's proxy that is told their names.

use crate::connect_proxy::ConnectProxy;
use crate::tls_host::TlsHost;
use crate::{Place, World};

/// Python that makes a package as each of them has it, and a handler that reads whole requests and serves git's repositories.
const PACKAGES: &str = r#"
import http.server, io, os, subprocess, tarfile, zipfile

class ReadingHandler(http.server.BaseHTTPRequestHandler):
    protocol_version = 'HTTP/1.1'
    def body(self):
        if self.headers.get('Transfer-Encoding') != 'chunked':
            return self.rfile.read(int(self.headers.get('Content-Length', 0)))
        body = b''
        while length := int(self.rfile.readline(), 16):
            body += self.rfile.read(length)
            self.rfile.readline()
        # Up to the line that ends the trailers.
        while self.rfile.readline().strip(): pass
        return body
    def git(self, path, query, sent):
        variables = dict(os.environ, GIT_PROJECT_ROOT=os.getcwd(), GIT_HTTP_EXPORT_ALL='1', REMOTE_USER='me',
            REQUEST_METHOD=self.command, PATH_INFO=path, QUERY_STRING=query, CONTENT_LENGTH=str(len(sent)),
            CONTENT_TYPE=self.headers.get('Content-Type', ''), HTTP_CONTENT_ENCODING=self.headers.get('Content-Encoding', ''))
        made = subprocess.run(['git', '-c', 'safe.directory=*', 'http-backend'], input=sent, env=variables, capture_output=True).stdout
        head, _, body = made.partition(b'\r\n\r\n')
        lines = [line.split(': ', 1) for line in head.decode().split('\r\n') if ': ' in line]
        status = next((int(value.split()[0]) for name, value in lines if name == 'Status'), 200)
        return status, body, next((value for name, value in lines if name == 'Content-Type'), 'text/plain')

def tarball(name):
    out, text = io.BytesIO(), ('{"name":"%s","version":"1.0.0"}' % name).encode()
    with tarfile.open(fileobj=out, mode='w:gz') as archive:
        entry = tarfile.TarInfo('package/package.json')
        entry.size = len(text)
        archive.addfile(entry, io.BytesIO(text))
    return out.getvalue()

def wheel(name):
    out, at = io.BytesIO(), name + '-1.0.dist-info/'
    with zipfile.ZipFile(out, 'w') as archive:
        archive.writestr(name + '.py', 'x = 1\n')
        archive.writestr(at + 'METADATA', f'Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n')
        archive.writestr(at + 'WHEEL', 'Wheel-Version: 1.0\nGenerator: t\nRoot-Is-Purelib: true\nTag: py3-none-any\n')
        archive.writestr(at + 'RECORD', '')
    return out.getvalue()

def packument(name, tarball):
    return {'name': name, 'dist-tags': {'latest': '1.0.0'}, 'versions': {'1.0.0': {
        'name': name, 'version': '1.0.0', 'dist': {'tarball': tarball}}}}
"#;

/// The hosts of registries, in a world whose user's policy reaches them.
pub struct Registries {
    pub world: World,
    pub server: TlsHost,
    _proxy: ConnectProxy,
}

impl Registries {
    /// Starts a server of these names. The policy has what `policy` says, which is told the world and the hosts as a list of TOML.
    pub fn start(
        place: Place,
        names: &[&str],
        server: &str,
        policy: impl Fn(&World, &str) -> String,
    ) -> Self {
        let world = World::new(place);
        let server = TlsHost::start(&world, names, &format!("{PACKAGES}{server}"));
        let proxy = ConnectProxy::to(server.port);
        let hosts: Vec<_> = names.iter().map(|name| format!("{name}:443")).collect();
        let text = format!(
            "version = 1\n[gateway]\nca = '{}'\n{}\nproxy_names = true\n{}",
            server.authority().display(),
            proxy.line(),
            policy(&world, &format!("{hosts:?}"))
        );
        world.set_policy(text);
        Self {
            world,
            server,
            _proxy: proxy,
        }
    }
}
