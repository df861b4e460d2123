//! Clients that nobody here wrote: curl, git, node and python3.

use crate::certificates::{Folder, run};
use crate::world::*;
use broker_protocol::gateway::CredentialVerdict::{Attached, Used};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::{Request, Response};
use std::path::{Path, PathBuf};
use std::process::Output;
use tokio::task::spawn_blocking;

/// Runs a client behind the session's relay, with what a cell has: the proxy, the authority, placeholders.
async fn client(world: &World, folder: &Folder, command: &[&str]) -> Output {
    let authority = folder.file("ca.pem", &world.ended.authority().unwrap().certificate);
    let authority = authority.to_str().unwrap().to_owned();
    let proxy = format!("http://{}", world.proxy);
    let command: Vec<String> = command.iter().map(|&word| word.into()).collect();
    let at: PathBuf = folder.0.clone();
    let running = spawn_blocking(move || {
        let arguments: Vec<&str> = command[1..].iter().map(|word| &**word).collect();
        let variables = [
            ("HTTPS_PROXY", &*proxy),
            ("https_proxy", &proxy),
            ("SSL_CERT_FILE", &authority),
            ("CURL_CA_BUNDLE", &authority),
            ("GIT_SSL_CAINFO", &authority),
            ("NODE_EXTRA_CA_CERTS", &authority),
            ("GIT_CONFIG_NOSYSTEM", "1"),
            ("GIT_TERMINAL_PROMPT", "0"),
            ("GIT_AUTHOR_NAME", "a"),
            ("GIT_AUTHOR_EMAIL", "a@a.example"),
            ("GIT_COMMITTER_NAME", "a"),
            ("GIT_COMMITTER_EMAIL", "a@a.example"),
            ("TOKEN", PLACEHOLDER),
        ];
        run(&command[0], &arguments, &variables, &at)
    });
    running.await.unwrap()
}

fn is_sent(world: &World) -> bool {
    let value = world.last().header("authorization");
    value == Some(format!("Bearer {VALUE}"))
}

#[test]
fn curl_uses_a_credential_by_http1_and_http2() {
    local(async {
        for version in ["--http1.1", "--http2", "--http2-prior-knowledge"] {
            for host in [vec![HTTP1], vec![HTTP2], vec![HTTP2, HTTP1]] {
                let world = World::new(Setup {
                    protocols: host.clone(),
                    ..Setup::default()
                })
                .await;
                let folder = Folder::new("curl");
                let bearer = format!("Authorization: Bearer {PLACEHOLDER}");
                let url = "https://a.example/api/x";
                let command = ["curl", "-sS", "--fail", version, "-H", &bearer, url, url];
                let output = client(&world, &folder, &command).await;
                assert!(output.status.success(), "{version} {host:?} {output:?}");
                assert_eq!(output.stdout, b"okok");
                assert!(is_sent(&world));
                assert_eq!(world.count(Used), 2);
            }
        }
    });
}

#[test]
fn curl_uploads_a_large_file_that_arrives_whole() {
    local(async {
        for version in ["--http1.1", "--http2"] {
            let world = World::new(Setup {
                handler: handler(|request| async move {
                    let (mut length, mut sum, mut body) = (0, 0u64, request.into_body());
                    while let Some(Ok(frame)) = body.frame().await {
                        for byte in frame.into_data().unwrap() {
                            sum = sum.wrapping_mul(31).wrapping_add(byte.into());
                            length += 1;
                        }
                    }
                    text(format!("{length} {sum}"))
                }),
                ..Setup::default()
            })
            .await;
            let folder = Folder::new("upload");
            let text: String = (0..1_000_000).map(|n| format!("{n}\n")).collect();
            folder.file("large", &text);
            let sum = text
                .bytes()
                .fold(0u64, |sum, b| sum.wrapping_mul(31).wrapping_add(b.into()));
            let url = "https://a.example/api/x";
            let command = ["curl", "-sS", version, "-T", "large", url];
            let output = client(&world, &folder, &command).await;
            let got = String::from_utf8(output.stdout).unwrap();
            assert_eq!(got, format!("{} {sum}", text.len()), "{version}");
        }
    });
}

/// Python 3.13 checks strictly by default, earlier ones when they are told to.
#[test]
fn python_checks_the_certificate_strictly_and_uses_a_credential() {
    local(async {
        let world = World::new(Setup::default()).await;
        let folder = Folder::new("python");
        let program = "import os, ssl, urllib.request as u\n\
             c = ssl.create_default_context()\n\
             c.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN\n\
             r = u.Request('https://a.example/api/x', headers={'Authorization': 'token ' + os.environ['TOKEN']})\n\
             print(u.build_opener(u.HTTPSHandler(context=c), u.ProxyHandler()).open(r).read())\n";
        let output = client(&world, &folder, &["python3", "-c", program]).await;
        assert_eq!(output.stdout, b"b'ok'\n", "{output:?}");
        assert_eq!(
            world.last().header("authorization").unwrap(),
            format!("token {VALUE}")
        );
    });
}

#[test]
fn node_uses_a_credential() {
    local(async {
        let world = World::new(Setup::default()).await;
        let folder = Folder::new("node");
        // Node 20 knows no proxy: the tunnel is made by hand.
        let program = "const [h, p] = process.env.HTTPS_PROXY.slice(7).split(':');\n\
             require('http').request({host: h, port: p, method: 'CONNECT', path: 'a.example:443'}).on('connect', (_, socket) => {\n\
             const tls = require('tls').connect({socket, servername: 'a.example', ALPNProtocols: ['h2', 'http/1.1']}, () => {\n\
             const s = require('http2').connect('https://a.example', {createConnection: () => tls});\n\
             const r = s.request({':path': '/api/x', authorization: 'Bearer ' + process.env.TOKEN});\n\
             r.on('data', d => console.log(String(d))); r.on('end', () => process.exit()); r.end(); }); }).end();\n";
        let output = client(&world, &folder, &["node", "-e", program]).await;
        assert_eq!(output.stdout, b"ok\n", "{output:?}");
        assert!(is_sent(&world));
    });
}

/// Serves a request by `git http-backend`, if it has the value.
async fn git(request: Request<Incoming>, root: PathBuf) -> Response<Body> {
    let (head, body) = request.into_parts();
    let basic = {
        use base64::Engine;
        let pair = format!("x-access-token:{VALUE}");
        let encoded = base64::engine::general_purpose::STANDARD.encode(pair);
        format!("Basic {encoded}")
    };
    let authorization = head.headers.get("authorization");
    if authorization.is_none_or(|value| value != basic.as_str()) {
        let mut response = status(401);
        let basic = "Basic realm=x".parse().unwrap();
        response.headers_mut().insert("www-authenticate", basic);
        return response;
    }
    let body = body.collect().await.unwrap().to_bytes();
    let header = |name: &str| {
        let value = head.headers.get(name);
        value.map_or_else(String::new, |value| value.to_str().unwrap().to_owned())
    };
    let variables = [
        ("GIT_PROJECT_ROOT", root.to_str().unwrap().to_owned()),
        ("GIT_HTTP_EXPORT_ALL", "1".into()),
        ("REMOTE_USER", "a".into()),
        ("PATH_INFO", head.uri.path().to_owned()),
        ("QUERY_STRING", head.uri.query().unwrap_or("").to_owned()),
        ("REQUEST_METHOD", head.method.to_string()),
        ("CONTENT_TYPE", header("content-type")),
        ("CONTENT_LENGTH", body.len().to_string()),
        ("HTTP_CONTENT_ENCODING", header("content-encoding")),
        ("GIT_PROTOCOL", header("git-protocol")),
    ];
    let output = spawn_blocking(move || backend(&root, &variables, &body)).await;
    let output = output.unwrap();
    let end = output
        .windows(4)
        .position(|end| end == b"\r\n\r\n")
        .unwrap();
    let mut response = text(output[end + 4..].to_vec());
    for line in std::str::from_utf8(&output[..end]).unwrap().lines() {
        let (name, value) = line.split_once(": ").unwrap();
        if name == "Status" {
            *response.status_mut() = value[..3].parse().unwrap();
        } else {
            let name = hyper::header::HeaderName::from_bytes(name.as_bytes()).unwrap();
            response.headers_mut().insert(name, value.parse().unwrap());
        }
    }
    response
}

fn backend(root: &Path, variables: &[(&str, String)], body: &[u8]) -> Vec<u8> {
    let input = root.join(format!("body-{:?}", std::thread::current().id()));
    std::fs::write(&input, body).unwrap();
    let output = std::process::Command::new("git")
        .arg("http-backend")
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        .envs(variables.iter().map(|(name, value)| (name, value)))
        .stdin(std::fs::File::open(input).unwrap())
        .output()
        .unwrap();
    output.stdout
}

/// Clone, fetch and push of a private repository, without a helper and with the placeholder in
/// the address.
#[test]
fn git_clones_fetches_and_pushes() {
    local(async {
        for address in [
            "https://a.example/o/r.git".to_owned(),
            format!("https://{PLACEHOLDER}@a.example/o/r.git"),
            format!("https://me:{PLACEHOLDER}@a.example/o/r.git"),
        ] {
            let server = Folder::new("git-server");
            let root = server.0.clone();
            let world = World::new(Setup {
                handler: handler(move |request| {
                    let root = root.clone();
                    async move {
                        let user = request.headers().get("authorization").cloned();
                        let mut request = request;
                        // Git says who it is where its address does.
                        if let Some(user) = user.as_ref().and_then(as_token) {
                            request.headers_mut().insert("authorization", user);
                        }
                        git(request, root).await
                    }
                }),
                ..Setup::default()
            })
            .await;
            let folder = Folder::new("git");
            let bare = server.0.join("o/r.git");
            let bare = bare.to_str().unwrap();
            let init = ["git", "init", "-q", "--bare", "-b", "main", bare];
            client(&world, &folder, &init).await;
            let script = format!(
                "set -e\n\
                 git clone -q {address} one\n\
                 cd one && git checkout -q -b main && echo 1 > file && git add file && git commit -q -m 1 && git push -q origin main\n\
                 cd .. && git clone -q {address} two\n\
                 cd one && head -c 3000000 /dev/urandom > large && git add large && git commit -q -m 2 && git push -q origin main\n\
                 cd ../two && git pull -q && cmp large ../one/large && git log --oneline | wc -l"
            );
            let output = client(&world, &folder, &["bash", "-c", &script]).await;
            assert_eq!(
                String::from_utf8_lossy(&output.stdout).trim(),
                "2",
                "{output:?}"
            );
            let (attached, used) = (world.count(Attached), world.count(Used));
            assert!(attached > 0, "{attached} {used}");
        }
    });
}

/// `Basic me:VALUE` as `Basic x-access-token:VALUE`, which the server here wants.
fn as_token(value: &hyper::header::HeaderValue) -> Option<hyper::header::HeaderValue> {
    use base64::Engine;
    let engine = base64::engine::general_purpose::STANDARD;
    let encoded = value.to_str().ok()?.strip_prefix("Basic ")?;
    let pair = String::from_utf8(engine.decode(encoded).ok()?).ok()?;
    let (_, password) = pair.split_once(':')?;
    let pair = engine.encode(format!("x-access-token:{password}"));
    format!("Basic {pair}").parse().ok()
}

#[test]
fn curl_is_told_which_host_was_meant() {
    local(async {
        let world = World::new(Setup::default()).await;
        let folder = Folder::new("curl-421");
        let url = "https://a.example/api/x";
        let command = [
            "curl",
            "-sS",
            "-H",
            "Host: b.example",
            "-w",
            "%{http_code}",
            url,
        ];
        let output = client(&world, &folder, &command).await;
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(
            text.starts_with("lazaret: ") && text.ends_with("421"),
            "{text}"
        );
    });
}
