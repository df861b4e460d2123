//! What the gateway of cells costs: connections through it beside direct ones, sessions with hosts beside those without, its memory.

use crate::clients::spawn;
use crate::figures::{Row, Times, time};
use lazaret_tests::process::{self, LIMIT, figure, until};
use lazaret_tests::tls_host::TlsHost;
use lazaret_tests::{Place, World};
use serde_json::json;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

const BYTES: usize = 100_000_000;
const CONNECTIONS: usize = 100;
/// Requests of one connection. The first ones open it.
const REQUESTS: usize = 300;
const FIRST: usize = 10;

/// A server of HTTP/1.1 and HTTP/2: `/N` has N bytes. It writes its port.
const SERVER: &str = "
const fs = require('fs'), block = Buffer.alloc(1 << 20, 'x')
const files = { key: fs.readFileSync('host.key'), cert: fs.readFileSync('host.pem'), allowHTTP1: true }
const server = require('http2').createSecureServer(files, (request, answer) => {
  let left = parseInt(request.url.slice(1))
  answer.setHeader('Content-Length', left)
  const more = () => {
    while (left > 0) {
      const part = block.subarray(0, Math.min(left, block.length))
      left -= part.length
      if (!answer.write(part)) return answer.once('drain', more)
    }
    answer.end()
  }
  more()
})
server.listen(0, '127.0.0.1', () => { fs.writeFileSync('port.new', `${server.address().port}`); fs.renameSync('port.new', 'port') })
";
/// Opens connections by way of the gateway, sends a request on each, and holds them.
const HOLD: &str = "
import os, signal, socket, ssl, sys
port, count = sys.argv[1:]
context = ssl.create_default_context(cafile=os.environ['SSL_CERT_FILE'])
held = []
for _ in range(int(count)):
    tcp = socket.create_connection(('127.0.0.1', 61080))
    tcp.sendall(f'CONNECT localhost:{port} HTTP/1.1\\r\\nHost: localhost:{port}\\r\\n\\r\\n'.encode())
    assert b' 200 ' in tcp.recv(4096)
    tls = context.wrap_socket(tcp, server_hostname='localhost')
    tls.sendall(f'GET /10 HTTP/1.1\\r\\nHost: localhost:{port}\\r\\n\\r\\n'.encode())
    assert b' 200 ' in tls.recv(4096)
    held.append(tls)
print('held', flush=True)
signal.pause()
";
const ANYTHING: &str =
    "import http.server\nclass Handler(http.server.BaseHTTPRequestHandler): pass\n";

/// A host, and a user whose profiles reach it: `tunnel` as it is, `ended` with a rule. `none` has no network.
struct MeasuredHost {
    world: World,
    port: u16,
    server: Child,
    /// It has made the certificates.
    _host: TlsHost,
}

impl MeasuredHost {
    fn start(place: Place) -> Self {
        let world = World::new(place);
        let host = TlsHost::start(&world, &["localhost"], ANYTHING);
        let authority = host.authority();
        let folder = authority.parent().expect("a file is in a folder");
        let mut node = Command::new("node");
        let server = node.args(["-e", SERVER]).current_dir(folder);
        let server = server.spawn().expect("there is node");
        let port = || {
            fs::read_to_string(folder.join("port"))
                .ok()?
                .parse::<u16>()
                .ok()
        };
        assert!(until(LIMIT, || port().is_some()), "the server starts");
        let port = port().expect("it has written it");
        let network = format!("allow = ['localhost:{port}']\nprivate = ['localhost:{port}']\n");
        world.set_policy(format!(
            "version = 1\n[gateway]\nca = '{}'\n[profile.none]\n[profile.tunnel.network]\n{network}\
             [profile.ended.network]\n{network}[[profile.ended.network.http]]\nhost = 'localhost'\naction = 'allow'\n",
            authority.display()
        ));
        world.put(
            "authority",
            fs::read(&authority).expect("it was made before"),
        );
        Self {
            world,
            port,
            server,
            _host: host,
        }
    }

    fn authority(&self) -> PathBuf {
        self.world.project.join("authority")
    }

    fn run(&self, profile: &str, words: &[&str]) -> Command {
        let mut run = self.world.configured("run");
        run.args(["--profile", profile, "--"]).args(words);
        run
    }

    /// A client that prints seconds for each request.
    fn curl(&self, profile: Option<&str>, protocol: &str, path: &str) -> Command {
        let url = format!("https://localhost:{}/{path}", self.port);
        let authority = self.authority();
        let authority = authority.to_str().expect("a name of ours");
        let mut words = vec!["-sS", protocol, "-o", "/dev/null", "-w", "%{time_total}\\n"];
        words.extend(["--noproxy", if profile.is_none() { "*" } else { "" }]);
        if profile != Some("ended") {
            words.extend(["--cacert", authority]);
        }
        words.push(&url);
        match profile {
            Some(profile) => self.run(profile, &[&["curl"][..], &words[..]].concat()),
            None => {
                let mut curl = self.world.host("curl");
                curl.args(words);
                curl
            }
        }
    }
}

impl Drop for MeasuredHost {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
    }
}

/// The times that a client has printed, in microseconds.
fn times(command: &mut Command) -> Vec<f64> {
    let run = command.stdin(Stdio::null()).stderr(Stdio::inherit());
    let output = run.output().expect("curl starts");
    assert!(output.status.success(), "{command:?} failed");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let seconds = text
        .lines()
        .map(|line| line.parse::<f64>().expect("seconds"));
    seconds.map(|seconds| seconds * 1e6).collect()
}

/// Connections, requests and sessions, each beside what is direct.
pub fn costs(place: Place, count: u32) -> Vec<Row> {
    let host = MeasuredHost::start(place);
    let mut rows = Vec::new();
    for (profile, protocol, name, goal) in [
        ("tunnel", "--http1.1", "in a tunnel", 0.9),
        ("ended", "--http1.1", "decrypted, HTTP/1.1", 0.55),
        ("ended", "--http2", "decrypted, HTTP/2", 0.45),
    ] {
        rows.extend(download(&host, count, (profile, protocol), (name, goal)));
    }
    rows.extend(small_requests(&host, count));
    rows.extend(opening(&host, count));
    rows
}

fn download(
    host: &MeasuredHost,
    count: u32,
    (profile, protocol): (&str, &str),
    (name, goal): (&str, f64),
) -> [Row; 2] {
    let path = BYTES.to_string();
    let mut direct = host.curl(None, protocol, &path);
    let mut carried = host.curl(Some(profile), protocol, &path);
    let [mut plain, mut ours] = [const { Times(Vec::new()) }; 2];
    for round in 0..count.min(15) + 2 {
        let (one, other) = (times(&mut direct), times(&mut carried));
        if round >= 2 {
            plain.0.extend(one);
            ours.0.extend(other);
        }
    }
    let speed = plain.median() / ours.median();
    let base = format!("100 MB by TLS, {}, direct", &protocol[2..]);
    [
        plain.row('g', &base, None),
        ours.row('g', &format!("100 MB {name}: {speed:.2}"), Some(&plain))
            .goal(&format!("at least {goal} of direct"), speed >= goal),
    ]
}

/// Requests of 10 bytes on a connection that is kept.
fn small_requests(host: &MeasuredHost, count: u32) -> Vec<Row> {
    let path = format!("10?[1-{REQUESTS}]");
    let ways = [None, Some("tunnel"), Some("ended")];
    let mut commands = ways.map(|profile| host.curl(profile, "--http1.1", &path));
    let mut all = [const { Times(Vec::new()) }; 3];
    for _ in 0..count.min(10) {
        for (command, all) in commands.iter_mut().zip(&mut all) {
            all.0.extend(times(command).into_iter().skip(FIRST));
        }
    }
    let [direct, tunnel, ended] = all;
    let row = |name: &str, times: &Times| {
        let more = times.median() - direct.median();
        times
            .row('g', name, Some(&direct))
            .goal("at most 200 µs more", more <= 200.0)
    };
    vec![
        direct.row('g', "a small request, kept connection, direct", None),
        row("the same in a tunnel", &tunnel),
        row("the same, decrypted", &ended),
    ]
}

/// Cold runs of `true` in sessions with hosts and without.
fn opening(host: &MeasuredHost, count: u32) -> Vec<Row> {
    let mut commands = ["none", "tunnel", "ended"].map(|profile| host.run(profile, &["true"]));
    let mut all = [const { Times(Vec::new()) }; 3];
    for round in 0..count.min(100) + 3 {
        for (command, all) in commands.iter_mut().zip(&mut all) {
            let one = time(|| spawn(command));
            if round >= 3 {
                all.0.push(one);
            }
        }
    }
    let [none, hosts, rules] = all;
    let row = |name: &str, times: &Times| {
        let more = times.median() - none.median();
        times
            .row('g', name, Some(&none))
            .goal("at most 3 ms more", more <= 3000.0)
    };
    vec![
        none.row('g', "lazaret run -- true, no network", None),
        row("the same, with a host", &hosts),
        row("the same, with a host that is decrypted", &rules),
    ]
}

/// Proportional memory of a gateway that holds decrypted connections. Root alone may inspect it.
pub fn held_memory(place: Place) -> Row {
    let host = MeasuredHost::start(place);
    let (port, count) = (host.port.to_string(), CONNECTIONS.to_string());
    let mut run = host.run("ended", &["python3", "-c", HOLD, &port, &count]);
    let run = run.stdin(Stdio::null()).stdout(Stdio::piped());
    let mut holder = run.spawn().expect("lazaret starts");
    let mut line = String::new();
    let output = holder.stdout.take().expect("it is a pipe");
    BufReader::new(output)
        .read_line(&mut line)
        .expect("it is text");
    assert_eq!(line, "held\n");
    let all = process::below(holder.id() as i32);
    let mut gateways = all.iter().filter(|one| one.name == "lazaret-gateway");
    let gateway = gateways.next().expect("a session with hosts has one");
    let mib = figure(gateway.pid, "smaps_rollup", "Pss").unwrap_or(0) as f64 / 1024.0;
    process::kill_tree(holder.id() as i32);
    let _ = holder.wait();
    let row = Row {
        part: 'e',
        name: format!("a gateway with {CONNECTIONS} decrypted connections"),
        value: format!("{mib:.1} MiB"),
        figures: json!({"mib": mib}),
        goal: None,
    };
    match mib > 0.0 {
        true => row.goal("at most 12 MiB", mib <= 12.0),
        false => Row {
            value: "hidden from an ordinary user; run as root".into(),
            ..row
        },
    }
}
