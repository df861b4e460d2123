//! A registry of npm and an index of Python as a server of a test, behind a company's proxy that is told their names.

use crate::connect_proxy::ConnectProxy;
use crate::tls_host::TlsHost;
use crate::{Place, World};

/// Python that makes a package as each of them has it.
const PACKAGES: &str = r#"
import io, tarfile, zipfile

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
