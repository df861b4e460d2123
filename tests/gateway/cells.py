"""Runs the clients in cells of one tier, and tries what each of them needs."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

from rows import Row
from memory import Watch
from servers import AWS, RAW, TLS, Servers

RUN_S = 300
PROXY = (
    "http_proxy https_proxy all_proxy HTTP_PROXY HTTPS_PROXY ALL_PROXY npm_config_proxy npm_config_https_proxy PIP_PROXY CARGO_HTTP_PROXY "
    "YARN_HTTP_PROXY YARN_HTTPS_PROXY"
).split()
AUTHORITY = (
    "SSL_CERT_FILE CURL_CA_BUNDLE GIT_SSL_CAINFO REQUESTS_CA_BUNDLE PIP_CERT CARGO_HTTP_CAINFO AWS_CA_BUNDLE NIX_SSL_CERT_FILE npm_config_cafile "
    "GRPC_DEFAULT_SSL_ROOTS_FILE_PATH CLOUDSDK_CORE_CUSTOM_CA_CERTS_FILE NODE_EXTRA_CA_CERTS DENO_CERT JAVA_TOOL_OPTIONS"
).split()
# Those that each client may read; of others none is tried alone.
READ = {
    "git": ("GIT_SSL_CAINFO", "SSL_CERT_FILE"),
    "git-lfs": ("GIT_SSL_CAINFO", "SSL_CERT_FILE"),
    "curl": ("CURL_CA_BUNDLE", "SSL_CERT_FILE"),
    "node: https": ("NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE"),
    "node: fetch": ("NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE"),
    **dict.fromkeys(("node 26: https", "node 26: fetch", "node 26: fetch, no NODE_USE_ENV_PROXY"), ("NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE")),
    "bun": ("NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE"),
    "deno": ("DENO_CERT", "NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE"),
    "go: net/http": ("SSL_CERT_FILE",),
    **dict.fromkeys(("java", "java, from a tarball"), ("JAVA_TOOL_OPTIONS",)),
    "npm install, publish": ("npm_config_cafile", "NODE_EXTRA_CA_CERTS"),
    "pip": ("PIP_CERT", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"),
    "twine": ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE"),
    "cargo": ("CARGO_HTTP_CAINFO", "SSL_CERT_FILE"),
    "grpcio": ("GRPC_DEFAULT_SSL_ROOTS_FILE_PATH", "SSL_CERT_FILE"),
    "ws": ("NODE_EXTRA_CA_CERTS", "SSL_CERT_FILE"),
    "aws": ("AWS_CA_BUNDLE", "REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"),
}
# A port where nobody listens.
DEAD = "http://127.0.0.1:9"
WHY = "Nothing leaves on Sundays"


@dataclass
class Result:
    works: bool = False
    # Why it is not as it should be.
    wrong: str = ""
    text: str = ""
    # Whether it honours the variables, and whether it works without them.
    by_proxy: bool = False
    by_address: bool = False
    # The variables of which one suffices; empty where none is needed.
    authority: list[str] = field(default_factory=list)
    needs_authority: bool = False
    refusal: str = ""

    def line(self) -> str:
        if not self.works:
            return "does not work" if self.wrong else "does not work by itself, as is known"
        ways = [name for name, is_so in (("proxy", self.by_proxy), ("address", self.by_address)) if is_so]
        return f"works by {' and '.join(ways)}; {' or '.join(self.authority) or 'no variable'}; a refusal: {self.refusal}"


class Cells:
    def __init__(self, programs: Path, tier: str, into: Path, folder: Path, servers: Servers):
        self.held = False
        self.tier, self.into, self.folder, self.servers = tier, into, folder / tier, servers
        before = [programs / "without-namespaces"] if tier == "flat" else []
        self.lazaret = [*before, programs / "lazaret"]
        self.shared, self.number = folder, 2000 if tier == "flat" else 1000
        self.project, self.settings = self.folder / "project", self.folder / "settings"
        for path in (self.project, self.settings / "lazaret"):
            path.mkdir(parents=True)
        (self.settings / "lazaret/policy.toml").write_text(self.policy())
        environment = {name: value for name, value in os.environ.items() if not re.search("TOKEN|SECRET|KEY|PASSWORD|_CERT|_CA_|(?i:proxy)", name)}
        self.environment = environment | {"XDG_CONFIG_HOME": str(self.settings)}

    def policy(self) -> str:
        private = [f"{name}:443" for name in TLS] + list(RAW)
        ended = list(TLS)

        def credential(name: str, token: str, lines: str) -> str:
            path = self.shared / f"token-{token}"
            path.write_text(self.servers.tokens[token] + "\n")
            return f"[credential.{name}]\nfrom = {{ file = '{path}' }}\n{lines}\n"

        def profile(name: str, *lines: str) -> str:
            return "\n".join((f"[profile.{name}.network]", f"allow = {private}", f"private = {private}", *lines, ""))

        own = "hosts = ['api.example', 'grpc.example', 'ws.example']\nattach = 'bearer'\nenv = ['OWN_TOKEN']\nuses = [{ path = '/**' }]"
        rules = [f"[[profile.ruled.network.http]]\nhost = '{host}'\naction = 'deny'\nwhy = '{WHY}'" for host in ended]
        return "\n".join((
            f"version = 1\n[gateway]\nca = '{self.servers.authority}'\nproxy = 'http://127.0.0.1:{self.servers.ports['proxy']}'\nproxy_names = true",
            credential("github", "other", "preset = 'github'"),
            credential("npm", "npm", "preset = 'npm'\nhosts = ['npm.example']"),
            credential("pypi", "other", "preset = 'pypi'\nhosts = ['pypi.example']"),
            credential("crates", "other", "preset = 'crates'\nhosts = ['crates.example']\nenv = ['CARGO_REGISTRIES_CORP_TOKEN']"),
            credential("own", "other", own),
            credential("aws", "aws", f"preset = 'aws'\nhosts = {[f'{name}.amazonaws.com' for name in AWS]}"),
            *(f"[profile.{name}]\ncredentials = ['github', 'npm', 'pypi', 'crates', 'own', 'aws']" for name in ("with", "ruled")),
            profile("with"),
            profile("plain"),
            profile("ruled", *rules),
            "[profile.other.network]\nallow = ['other.example:443']\n",
        ))

    def has_tier(self) -> bool:
        got = subprocess.run(
            [*self.lazaret, "session", "--project", self.project, "--central", self.folder / "central"], input="", capture_output=True, text=True, env=self.environment, timeout=RUN_S
        )
        return f'"tier":"{self.tier}"' in got.stdout

    def cell(self, profile: str, row: Row, before: str = "") -> tuple[int, str]:
        """The exit code and what the client has printed, in a new directory of the project."""
        self.number += 1
        at = self.project / f"run{self.number}"
        at.mkdir()
        variables = {"N": self.number, "KIT": self.into, "FOLDER": self.shared, "SSH_USER": self.servers.user}
        set_all = "".join(f"{name}={value}\n" for name, value in variables.items())
        libraries = "export LD_LIBRARY_PATH=$KIT/root/usr/lib/x86_64-linux-gnu\n" if row.server == "redis" else ""
        (at / "script").write_text(f"set -e\n{set_all}{libraries}{before}\n{row.script}\n")
        command = [*self.lazaret, "run", "--project", self.project, "--central", self.folder / "central", "--profile", profile, "--read", self.into, "--read", self.shared / "user-key", "-v"]
        command += ["--", "bash", "-c", f"cd run{self.number}; bash script > said 2>&1"]
        with Watch(self.servers.secrets) as watch:
            done = subprocess.run([str(word) for word in command], env=self.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=RUN_S)
        said = at / "said"
        text = said.read_text(errors="replace") if said.exists() else done.stderr
        seen = text + done.stdout + done.stderr
        assert not any(secret in seen for secret in self.servers.secrets), f"{row.client}: a cell has seen the value"
        assert not watch.found, f"{row.client}: in the memory of {watch.found}"
        self.held |= watch.held
        shutil.rmtree(at, ignore_errors=True)
        self.denied = done.stderr
        return done.returncode, text

    def works(self, row: Row, before: str = "", profile: str = "with") -> bool:
        code, text = self.cell(profile, row, before)
        return code == 0 and row.want in text

    def tried(self, row: Row) -> Result:
        result, self.held = Result(), False
        self.prepare(row)
        code, result.text = self.cell("with", row)
        result.text += f"--- exit {code}\n{self.denied}"
        result.works = code == 0 and row.want in result.text
        is_open = self.tier in row.open
        if result.works == is_open:
            result.wrong = "is named as open, and works" if is_open else "does not work"
        if row.server == "moto" and not os.geteuid() and not self.held:
            result.wrong = "no gateway was seen with the key: a control"
        if row.is_ended and self.works(row, profile="plain"):
            result.wrong = "works without the credential: a control"
        if not result.works:
            return result
        unset = "unset " + " ".join(PROXY)
        result.by_address = self.works(row, unset)
        result.by_proxy = not self.works(row, "export " + " ".join(f"{name}={DEAD}" for name in PROXY))
        if row.is_ended:
            self.authority(row, result)
        result.refusal = self.refused(row)
        return result

    def authority(self, row: Row, result: Result) -> None:
        result.needs_authority = not self.works(row, "unset " + " ".join(AUTHORITY))
        # Where the machine's own file is replaced, some need none; what the others need is the same in both tiers.
        if not result.needs_authority or self.tier != "flat":
            return
        for name in READ.get(row.client, ("SSL_CERT_FILE",)):
            if self.works(row, "unset " + " ".join(other for other in AUTHORITY if other != name)):
                result.authority.append(name)

    def refused(self, row: Row) -> str:
        code, text = self.cell("ruled" if row.is_ended else "other", row)
        if code == 0:
            return "NOT REFUSED"
        said = " ".join(text.split())
        if WHY in said:
            return "the rule's reason"
        if found := re.search(r"\b403\b", said):
            return f"the status {found[0]}"
        for words, meaning in (("reset|closed the connection", "a reset"), ("resol|translate host|not known|name res", "an unknown name")):
            if re.search(words, said, re.I):
                return meaning
        return "another error"

    def prepare(self, row: Row) -> None:
        """What the row reads has to be there."""
        if row.server != "pypi":
            return
        packages = self.shared / "pypi/packages"
        if list(packages.glob("seed-*")):
            return
        from rows import WHEEL
        script = WHEEL.replace("own 1.$N", "seed 1.0")
        subprocess.run(["bash", "-ec", script], cwd=packages, check=True)
        (packages / "make.py").unlink()
