"""The servers that nobody here wrote, each on a port of this machine's loopback, and TLS and a company's proxy in front of them."""

from __future__ import annotations

import base64
import getpass
import hashlib
import io
import json
import os
import pwd
import shutil
import socket
import subprocess
import tarfile
import time
import urllib.request
from pathlib import Path

HERE = Path(__file__).resolve().parent
START_S = 120
VALUE = "the-real-value-of-the-token-0123456789"
REGION = "eu-central-1"
# Of AWS, the names that its client makes by itself from service, region and bucket.
AWS = (f"work.s3.{REGION}", f"s3.{REGION}", f"sts.{REGION}", f"dynamodb.{REGION}", "iam")
# Hosts with TLS, by the server that each of them is, and what it offers.
TLS = {
    "github.com": ("web", ["http/1.1"]),
    "api.github.com": ("api", ["http/1.1"]),
    "api.example": ("api", ["http/1.1"]),
    "crates.example": ("web", ["http/1.1"]),
    "npm.example": ("npm", ["http/1.1"]),
    "pypi.example": ("pypi", ["http/1.1"]),
    "grpc.example": ("grpc", ["h2"]),
    "ws.example": ("ws", ["http/1.1"]),
    **{f"{name}.amazonaws.com": ("moto", ["http/1.1"]) for name in AWS},
}
# Hosts without.
RAW = {"ssh.example:22": "ssh", "redis.example:6379": "redis", "db.example:5432": "postgres"}
CERTIFICATES = """
new='req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes'
openssl $new -x509 -keyout ca.key -out ca.pem -subj /CN=authority -addext keyUsage=critical,keyCertSign
openssl $new -keyout host.key -out host.csr -subj /CN=host
printf "subjectAltName=$NAMES\\n" > names
openssl x509 -req -in host.csr -CA ca.pem -CAkey ca.key -CAcreateserial -out host.pem -extfile names
"""


class Servers:
    def __init__(self, into: Path, folder: Path):
        self.into, self.folder = into, folder
        self.ports: dict[str, int] = {}
        self.running: list[subprocess.Popen] = []
        self.missing: dict[str, str] = {}
        self.tokens = dict.fromkeys(("npm", "other"), VALUE)
        # What no cell may see.
        self.secrets = [VALUE]
        # Some refuse to be root.
        self.user = getpass.getuser() if os.geteuid() else "lazaret-test"

    def __enter__(self) -> Servers:
        try:
            self.start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_) -> None:
        for server in self.running:
            server.terminate()
        for server in self.running:
            server.wait(START_S)

    def lacks(self, server: str) -> list[str]:
        return [self.missing[server]] if server in self.missing else []

    def path(self, name: str) -> Path:
        """A folder of one server."""
        path = self.folder / name
        path.mkdir(exist_ok=True)
        return path

    def run(self, name: str, command: list, cwd: Path | None = None, port: int = 0, **environment: str) -> None:
        port = port or self.ports[name]
        libraries = self.into / "root/usr/lib/x86_64-linux-gnu"
        variables = os.environ | {"LD_LIBRARY_PATH": str(libraries)} | environment
        with open(self.folder / f"{name}.log", "wb") as log:
            server = subprocess.Popen(
                [str(word) for word in command], cwd=cwd or self.path(name), env=variables, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self.running.append(server)
        end = time.monotonic() + START_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 5).close()
                return
            except OSError:
                if server.poll() is not None or time.monotonic() > end:
                    raise SystemExit(f"{name} does not start:\n{(self.folder / f'{name}.log').read_text()}")
                time.sleep(0.1)

    def start(self) -> None:
        names = [*dict.fromkeys(server for server, _ in TLS.values()), *RAW.values(), "lfs"]
        # Held together, so that none is given twice.
        held = [socket.create_server(("127.0.0.1", 0)) for _ in names]
        self.ports = {name: one.getsockname()[1] for name, one in zip(names, held)}
        for one in held:
            one.close()
        if not os.geteuid():
            subprocess.run(["sh", "-c", f"id {self.user} >/dev/null 2>&1 || useradd {self.user}"], check=True)
        python = self.into / "venv/bin/python"
        for name, program in (("grpc", "grpc_server"), ("ws", "ws_server"), ("api", "github")):
            self.run(name, [python, HERE / f"peers/{program}.py", self.ports[name], VALUE])
        self.web()
        self.npm()
        self.pypi(python)
        self.moto()
        self.run("redis", [self.into / "root/usr/bin/redis-server", "--port", self.ports["redis"], "--bind", "127.0.0.1", "--save", ""])
        self.ssh()
        self.postgres()
        self.front()

    def front(self) -> None:
        names = ",".join(f"DNS:{name}" for name in TLS)
        made = subprocess.run(["sh", "-ec", CERTIFICATES], cwd=self.path("front"), env=os.environ | {"NAMES": names}, capture_output=True, text=True)
        assert made.returncode == 0, made.stderr
        table = {f"{name}:443": (self.ports[server], alpn) for name, (server, alpn) in TLS.items()}
        table |= {place: (self.ports[server], None) for place, server in RAW.items()}
        front = subprocess.Popen(
            [self.into / "venv/bin/python", HERE / "peers/front.py"], cwd=self.path("front"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self.running.append(front)
        front.stdin.write(json.dumps(table))
        front.stdin.close()
        self.ports["proxy"] = int(front.stdout.readline())
        self.authority = self.folder / "front/ca.pem"

    def web(self) -> None:
        """lighttpd: git's own server with Basic in front of it, LFS, and the files of a registry of Cargo."""
        at = self.path("web")
        (at / "users").write_text(f"x-access-token:{VALUE}\n")
        subprocess.run(["git", "init", "-q", "--bare", "-b", "main", at / "git/o/r.git"], check=True)
        subprocess.run(["git", "-C", at / "git/o/r.git", "config", "http.receivepack", "true"], check=True)
        self.crates(at / "crates")
        backend = subprocess.run(["git", "--exec-path"], capture_output=True, text=True, check=True).stdout.strip() + "/git-http-backend"
        (at / "conf").write_text(f"""
server.document-root = "{at}/crates"
server.bind = "127.0.0.1"
server.port = {self.ports["web"]}
server.modules = ("mod_access", "mod_alias", "mod_setenv", "mod_auth", "mod_authn_file", "mod_cgi", "mod_proxy")
auth.backend = "plain"
auth.backend.plain.userfile = "{at}/users"
$HTTP["host"] =~ "^crates" {{
  $REQUEST_HEADER["Authorization"] != "{VALUE}" {{ auth.require = ("" => ("method" => "basic", "realm" => "crates", "require" => "valid-user")) }}
}}
else $HTTP["host"] =~ "^github" {{
  $HTTP["url"] !~ "/info/lfs/objects/storage/" {{
    auth.require = ("" => ("method" => "basic", "realm" => "git", "require" => "valid-user"))
  }}
  $HTTP["url"] =~ "/info/lfs/" {{
    proxy.server = ("" => (("host" => "127.0.0.1", "port" => {self.ports["lfs"]})))
  }}
  else $HTTP["url"] =~ "^/" {{
    alias.url = ("/" => "{backend}/")
    cgi.assign = ("" => "")
    setenv.set-environment = ("GIT_PROJECT_ROOT" => "{at}/git", "GIT_HTTP_EXPORT_ALL" => "1")
  }}
}}
""")
        root = self.into / "root/usr"
        self.run("web", [root / "sbin/lighttpd", "-D", "-m", root / "lib/lighttpd", "-f", at / "conf"])
        config = {
            "AUTH_PROVIDERS": ["giftless.auth.allow_anon:read_write"],
            "LEGACY_ENDPOINTS": False,
            "TRANSFER_ADAPTERS": {"basic": {
                "factory": "giftless.transfer.basic_streaming:factory",
                "options": {
                    "storage_class": "giftless.storage.local_storage:LocalStorage",
                    "storage_options": {"path": str(self.path("lfs") / "objects")},
                },
            }},
        }
        serve = [self.into / "venv/bin/waitress-serve", f"--listen=127.0.0.1:{self.ports['lfs']}", "--url-scheme=https"]
        self.run("lfs", [*serve, "giftless.wsgi_entrypoint:app"], GIFTLESS_CONFIG_STR=json.dumps(config))

    def crates(self, at: Path) -> None:
        """A registry with one crate, of files alone, for whoever has the token."""
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as archive:
            manifest = b'[package]\nname = "own"\nversion = "0.1.0"\nedition = "2021"\n'
            for name, text in (("Cargo.toml", manifest), ("src/lib.rs", b"")):
                entry = tarfile.TarInfo(f"own-0.1.0/{name}")
                entry.size = len(text)
                archive.addfile(entry, io.BytesIO(text))
        entry = {"name": "own", "vers": "0.1.0", "deps": [], "cksum": hashlib.sha256(packed.getvalue()).hexdigest(), "features": {}, "yanked": False}
        config = {"dl": "https://crates.example/api/v1/crates", "api": "https://crates.example", "auth-required": True}
        for name, data in (
            ("index/config.json", json.dumps(config).encode()),
            ("index/3/o/own", json.dumps(entry).encode()),
            ("api/v1/crates/own/0.1.0/download", packed.getvalue()),
        ):
            (at / name).parent.mkdir(parents=True, exist_ok=True)
            (at / name).write_bytes(data)

    def npm(self) -> None:
        at = self.path("npm")
        (at / "config.yaml").write_text(f"""
storage: {at}/storage
auth: {{htpasswd: {{file: {at}/users, max_users: 9}}}}
packages: {{"**": {{access: $authenticated, publish: $authenticated}}}}
log: {{type: stdout, format: pretty, level: warn}}
web: {{enable: false}}
""")
        command = ["node", self.into / "node/node_modules/verdaccio/bin/verdaccio", "-c", at / "config.yaml", "-l", f"127.0.0.1:{self.ports['npm']}"]
        self.run("npm", command, VERDACCIO_PUBLIC_URL="https://npm.example", HOME=str(at))
        user = json.dumps({"name": "me", "password": "its-password"}).encode()
        url = f"http://127.0.0.1:{self.ports['npm']}/-/user/org.couchdb.user:me"
        request = urllib.request.Request(url, user, {"Content-Type": "application/json"}, method="PUT")
        with urllib.request.urlopen(request, timeout=START_S) as answer:
            self.tokens["npm"] = json.load(answer)["token"]
            self.secrets.append(self.tokens["npm"])

    def pypi(self, python: Path) -> None:
        at = self.path("pypi")
        (at / "packages").mkdir()
        digest = base64.b64encode(hashlib.sha1(VALUE.encode()).digest()).decode()
        (at / "users").write_text(f"__token__:{{SHA}}{digest}\n")
        options = ["--port", self.ports["pypi"], "--interface", "127.0.0.1", "--passwords", at / "users", "--authenticate", "update,download,list"]
        self.run("pypi", [python, "-m", "pypiserver", "run", *options, "--overwrite", "--disable-fallback", at / "packages"])

    def moto(self) -> None:
        """AWS: it checks signatures once a user with a key and a policy is there, which takes three requests."""
        programs, at = self.into / "aws/bin", self.path("moto")
        self.run("moto", [programs / "moto_server", "-H", "127.0.0.1", "-p", self.ports["moto"]], INITIAL_NO_AUTH_ACTION_COUNT="3")
        known = {"AWS_ACCESS_KEY_ID": "none", "AWS_SECRET_ACCESS_KEY": "none", "AWS_CONFIG_FILE": str(at / "config"), "AWS_DEFAULT_REGION": REGION}

        def aws(*words: str) -> str:
            command = [programs / "aws", "--endpoint-url", f"http://127.0.0.1:{self.ports['moto']}", "--output", "json", *words]
            return subprocess.run(command, cwd=at, env=os.environ | known, capture_output=True, text=True, check=True).stdout

        aws("iam", "create-user", "--user-name", "me")
        key = json.loads(aws("iam", "create-access-key", "--user-name", "me"))["AccessKey"]
        every = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "*", "Resource": "*"}]}
        aws("iam", "put-user-policy", "--user-name", "me", "--policy-name", "every", "--policy-document", json.dumps(every))
        known |= {"AWS_ACCESS_KEY_ID": key["AccessKeyId"], "AWS_SECRET_ACCESS_KEY": key["SecretAccessKey"]}
        aws("s3", "mb", "s3://work")
        table = ["--attribute-definitions", "AttributeName=k,AttributeType=S", "--key-schema", "AttributeName=k,KeyType=HASH"]
        aws("dynamodb", "create-table", "--table-name", "t", "--billing-mode", "PAY_PER_REQUEST", *table)
        self.tokens["aws"] = f"aws_access_key_id = {key['AccessKeyId']}\naws_secret_access_key = {key['SecretAccessKey']}"
        self.secrets.append(key["SecretAccessKey"])

    def as_user(self, command: list) -> list:
        if os.geteuid():
            return command
        return ["setpriv", "--reuid", self.user, "--regid", self.user, "--clear-groups", *command]

    def ssh(self) -> None:
        at = self.path("ssh")
        for name in ("host", "user"):
            subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", at / name], check=True)
        shutil.copy(at / "user.pub", at / "authorized")
        # A copy, as the user may not read what is below root's folders.
        shutil.copy(self.into / "root/usr/sbin/sshd", at / "sshd")
        shutil.copytree(self.into / "root/usr/lib/x86_64-linux-gnu", at / "lib", ignore=lambda _, names: [n for n in names if "libwrap" not in n])
        (at / "conf").write_text(f"""
ListenAddress 127.0.0.1
Port {self.ports["ssh"]}
HostKey {at}/host
AuthorizedKeysFile {at}/authorized
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
""")
        if not os.geteuid():
            entry = pwd.getpwnam(self.user)
            for path in (at, at / "host"):
                os.chown(path, entry.pw_uid, entry.pw_gid)
        (self.folder / "user-key").write_bytes((at / "user").read_bytes())
        self.run("ssh", self.as_user([at / "sshd", "-D", "-e", "-f", at / "conf"]), LD_LIBRARY_PATH=str(at / "lib"))

    def postgres(self) -> None:
        binaries = [*Path("/usr/lib/postgresql").glob("*/bin/initdb"), *filter(None, [shutil.which("initdb")])]
        if not binaries:
            self.missing["postgres"] = "PostgreSQL"
            return
        programs = Path(binaries[0]).resolve().parent
        at = self.path("postgres")
        if not os.geteuid():
            entry = pwd.getpwnam(self.user)
            os.chown(at, entry.pw_uid, entry.pw_gid)
        initdb = self.as_user([programs / "initdb", "-A", "trust", "-U", "me", "-N", "-D", at / "data"])
        subprocess.run(initdb, check=True, capture_output=True, cwd=at)
        options = ["-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-p", self.ports["postgres"], "-D", at / "data"]
        self.run("postgres", self.as_user([programs / "postgres", *options]), LD_LIBRARY_PATH="")
