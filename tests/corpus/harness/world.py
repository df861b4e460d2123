"""What an attack finds around it: an account's home, listeners, other processes, and fresh files for every probe.

One world serves one lane: it lives for a run, and `fresh` renews its files before each probe. Nothing of it is a secret of
anybody: every token is made for this run, and its random part is known to no probe.
"""

import ctypes
import glob
import hashlib
import json
import os
import pwd
import re
import secrets
import shutil
import struct
import subprocess
import tempfile
import time
from dataclasses import dataclass

from .headers import ROOT

PYTHON = "/usr/bin/python3"
LIBC = ctypes.CDLL(None, use_errno=True)
TOKENS = (
    "AGENTFD AGENTMEM ARGV BLKDEV CENCRED CRED CSECRET DIRNAME DOCKER DOTENV ENVKEY ENVPLAIN ENVURL GITCFG HIJACK HOMECRED "
    "HOMENAME INTERP KEYRING LATE LOGFILE OUTEXEC OUTSIDE ROOTCANARY SHMFILE SIBLING SUBENV TYPED VCMD VENV VFD VMEM WATCH "
    "XATTR XSMEM"
).split()
# Directories whose content an earlier launcher or probe left in the home.
STALE = (
    ".bash_profile .zshenv .ssh .config .local .cache .cargo .claude .cursor .codex .npm .nono .sandlock .srt-settings.json"
).split()


@dataclass
class Account:
    """Whom probes run as."""

    name: str
    uid: int
    gid: int
    home: str

    @staticmethod
    def named(name):
        entry = pwd.getpwnam(name)
        return Account(name, entry.pw_uid, entry.pw_gid, entry.pw_dir)

    def identity(self):
        """What `subprocess` takes to start a program as this account."""
        if os.getuid() == self.uid:
            return {"umask": 0o022}
        return {"umask": 0o022, "user": self.uid, "group": self.gid, "extra_groups": []}


class World:
    def __init__(self, account, cache):
        self.account, self.home, self.cache = account, account.home, cache
        self.tag = secrets.token_hex(4)
        self.work = self.home + "/work"
        self.project = self.work + "/proj"
        self.sibling = self.project + "-private"
        self.second = self.work + "/proj2"
        self.central = self.home + "/central"
        # A sandbox may keep what it knows of a project there, and refuse it to another.
        self.second_central = self.home + "/central2"
        self.outside = self.home + "/outside"
        self.run = self.home + "/run"
        self.tokens = {name: f"CTKTOK-{name}-{self.tag}{secrets.token_hex(4)}" for name in TOKENS}
        # The linker's own error message names the file, so the evidence is the name reversed.
        self.preload = "libctkpreload-" + secrets.token_hex(5)
        self.tokens["PRELOADMAP"] = self.preload[::-1]
        self.ipc_key = 0x43540000 + secrets.randbelow(0x7FFF) * 2
        self.scratch = tempfile.mkdtemp(prefix="ctk-")
        self.suid = os.getuid() == 0
        self.suid_lib, self.suid_bin = f"/var/lib/ctk-{self.tag}", f"/usr/local/libexec/ctk-{self.tag}"
        self.block_device = ("0:0", "")
        self.btrfs_image = ""
        self.server = None

    # ---- for the whole run

    def start(self):
        os.chmod(self.scratch, 0o755)
        for name in ("agent.py", "server.py", "peer.py", "cell.py", "session.sh", "session.py"):
            shutil.copy(ROOT / "fixtures" / name, self.scratch)
        for directory in (self.home, self.run, self.outside, self.work):
            self.mkdir(directory)
        self.keeps_attributes = keeps_attributes(self.home)
        for path in [*glob.glob(self.home + "/CTKTOK-*"), *(f"{self.home}/{name}" for name in STALE)]:
            self.remove(path)
        self.put("/dev/shm/ctk-" + self.tag, self.tokens["SHMFILE"] + "\n")
        self.make_template()
        for name in ("victim", "agentstub"):
            self.compile(ROOT / f"fixtures/{name}.c", f"{self.scratch}/{name}")
        shutil.copy(compiled(ROOT / "fixtures/preload.c", self.cache), f"{self.scratch}/{self.preload}.so")
        if self.suid:
            self.make_suid_fixtures()
        self.start_server()
        if os.getuid() == 0 and self.account.uid == 0:
            self.make_block_device()

    def make_template(self):
        """A small repository whose remote has a token in its address."""
        template = self.scratch + "/template"
        os.makedirs(template + "/src")
        for name, text in (
            ("src/main.c", "int main(void){return 0;}\n"),
            ("README.md", "# demo\n"),
            (".gitignore", ".env\nprobe/\nfixture.conf\n*credential*\n*secret*\nAWS*\nconfig/\nsub/\n"),
        ):
            with open(f"{template}/{name}", "w") as file:
                file.write(text)
        date = "2024-01-01T00:00:00Z"
        env = dict(
            PATH=os.environ["PATH"],
            HOME=template,
            GIT_CONFIG_NOSYSTEM="1",
            GIT_AUTHOR_DATE=date,
            GIT_COMMITTER_DATE=date,
        )
        for words in (
            ["init", "-q", "-b", "main"],
            ["add", "-A"],
            ["-c", "user.name=t", "-c", "user.email=t@t.invalid", "commit", "-qm", "init"],
            ["remote", "add", "origin", f"https://x:{self.tokens['GITCFG']}@git.invalid/demo.git"],
        ):
            subprocess.run(["git", *words], cwd=template, env=env, check=True, stdout=subprocess.DEVNULL)
        shutil.rmtree(template + "/.git/hooks", ignore_errors=True)
        os.mkdir(template + "/.git/hooks")

    def make_suid_fixtures(self):
        """A program that reads a file of root's, once setuid and once with a file capability."""
        os.makedirs(self.suid_lib)
        canary = self.suid_lib + "/root-canary.txt"
        self.put(canary, self.tokens["ROOTCANARY"] + "\n", 0o600, owned=False)
        program = self.scratch + "/suid"
        source = ROOT / "fixtures/suid.c"
        subprocess.run(["gcc", "-O1", "-w", "-static", f'-DCANARY="{canary}"', "-o", program, source], check=True)
        os.makedirs(self.suid_bin)
        for name, mode in (("suidbin", 0o4755), ("capbin", 0o755)):
            shutil.copy(program, f"{self.suid_bin}/{name}")
            os.chmod(f"{self.suid_bin}/{name}", mode)
        # Version 2, effective, CAP_DAC_READ_SEARCH.
        os.setxattr(
            self.suid_bin + "/capbin", "security.capability", struct.pack("<IIIII", 0x02000001, 1 << 2, 0, 0, 0)
        )

    def start_server(self):
        self.server = subprocess.Popen(
            [PYTHON, "-B", self.scratch + "/server.py"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd="/",
            env={"PATH": "/usr/bin:/bin", "HOME": self.home}, **self.account.identity(),
        )  # fmt: skip
        self.server.stdin.write(
            json.dumps(dict(OUT=self.outside, RUN=self.run, tag=self.tag, tokens=self.tokens, ipc_key=self.ipc_key))
            + "\n"
        )
        self.server.stdin.flush()
        self.server_info = json.loads(self.server.stdout.readline())

    def ask_server(self, **question):
        self.server.stdin.write(json.dumps(question) + "\n")
        self.server.stdin.flush()
        return json.loads(self.server.stdout.readline())

    def make_block_device(self):
        image = self.scratch + "/loop.img"
        with open(image, "wb") as file:
            file.write((self.tokens["BLKDEV"] + "\n").encode().ljust(1 << 20, b"\0"))
        try:
            device = subprocess.run(["losetup", "-f", "--show", image], capture_output=True, text=True).stdout.strip()
        except OSError:
            return
        if device:
            number = os.stat(device).st_rdev
            self.block_device = (f"{os.major(number)}:{os.minor(number)}", device)

    def stop(self):
        if self.server:
            try:
                self.ask_server(op="quit")
                self.server.wait(3)
            except (OSError, ValueError, subprocess.TimeoutExpired):
                self.server.kill()
                self.server.wait()
        if self.block_device[1]:
            subprocess.run(["losetup", "-d", self.block_device[1]])
        self.remove_cgroups()
        self.unmount_btrfs()
        for path in (f"/dev/shm/ctk-{self.tag}", self.suid_lib, self.suid_bin, self.scratch):
            self.remove(path)

    def remove_cgroups(self):
        """Private cgroup hierarchies that NS-010 may have left."""
        if os.getuid() != 0:
            return
        with open("/proc/self/cgroup") as file:
            names = re.findall(r"^\d+:name=(ctk[0-9a-f]+):", file.read(), re.MULTILINE)
        for name in names:
            mount = f"{self.scratch}/{name}"
            os.makedirs(mount, exist_ok=True)
            if subprocess.run(["mount", "-t", "cgroup", "-o", f"none,name={name}", "ctk", mount]).returncode == 0:
                for group in filter(os.path.isdir, glob.glob(mount + "/*")):
                    os.rmdir(group)
                time.sleep(0.5)
                subprocess.run(["umount", mount])

    # ---- for each probe

    def fresh(self, with_btrfs):
        """Both roots, everything around them and the home's dot files, as before the first probe."""
        self.unmount_btrfs()
        for path in (self.project, self.project + ".swapped", self.sibling, self.second, self.central, self.second_central, self.outside):
            self.remove(path)
        self.fresh_home()
        self.fresh_outside()
        self.mkdir(self.project)
        self.mkdir(self.second_central)
        if with_btrfs:
            self.mount_btrfs()
        self.fresh_project()

    def fresh_home(self):
        for name in STALE:
            self.remove(f"{self.home}/{name}")
        put, tokens, home = self.put, self.tokens, self.home
        put(home + "/.bashrc", "# bashrc\n")
        put(home + "/.profile", "# profile\n")
        put(home + "/.gitconfig", "[user]\n\tname = T\n")
        put(home + "/.npmrc", f"//registry.invalid/:_authToken={tokens['HOMECRED']}\n", 0o600)
        put(f"{home}/{tokens['HOMENAME']}", "")
        self.mkdir(home + "/.local")

    def fresh_outside(self):
        put, tokens, outside = self.put, self.tokens, self.outside
        put(outside + "/canary.txt", tokens["OUTSIDE"] + "\n")
        if self.keeps_attributes:
            os.setxattr(outside + "/canary.txt", "user.ctk_token", tokens["XATTR"].encode())
        put(outside + "/notes.txt", "notes of the host user\n" * 5)
        put(outside + "/movable.txt", "movable\n")
        put(outside + "/store.js", "module.exports = 1\n")
        put(outside + "/db.lock", "lock\n")
        size = secrets.randbelow(90000) + 10000
        put(outside + "/sized.bin", "x" * size)
        tokens["STATSIZE"] = f"ctksize-{size}-end"
        self.mkdir(outside + "/watched")
        put(f"{outside}/listing/{tokens['DIRNAME']}", "")
        put(outside + "/tool.sh", f"#!/bin/sh\necho {tokens['OUTEXEC']}\n", 0o755)
        self.mkdir(outside + "/bin")
        self.copy(self.scratch + "/agentstub", outside + "/bin/agentstub", 0o755)
        put(outside + "/run.log", f"earlier tool output {tokens['LOGFILE']}\n")
        put(self.sibling + "/canary.txt", tokens["SIBLING"] + "\n")

    def fresh_project(self):
        put, tokens, project = self.put, self.tokens, self.project
        template = self.scratch + "/template"
        for directory, _, names in os.walk(template):
            to = project + directory[len(template) :]
            self.mkdir(to)
            for name in names:
                self.copy(f"{directory}/{name}", f"{to}/{name}", 0o644)
        put(project + "/.env", f"API_KEY={tokens['DOTENV']}\n", 0o600)
        put(project + "/sub/.env", f"API_KEY={tokens['SUBENV']}\n", 0o600)
        put(project + "/sub/code.py", "print(1)\n")
        put(project + "/credentials.json", '{"key":"%s"}\n' % tokens["CRED"], 0o600)
        put(project + "/config/client_secret.txt", tokens["CSECRET"] + "\n", 0o600)
        put(self.central + "/index.json", "{}\n")
        put(self.central + "/credential-store.json", '{"k":"%s"}\n' % tokens["CENCRED"], 0o600)
        put(self.second + "/README.md", "# second\n")

    def mount_btrfs(self):
        """The project on a file system of its own: 128 MiB in a sparse file."""
        self.btrfs_image = self.scratch + "/btrfs.img"
        with open(self.btrfs_image, "wb") as file:
            file.truncate(128 << 20)
        subprocess.run(["mkfs.btrfs", "-q", self.btrfs_image], check=True, capture_output=True)
        subprocess.run(["mount", "-o", "loop", self.btrfs_image, self.project], check=True)
        os.chmod(self.project, 0o755)
        self.own(self.project)

    def unmount_btrfs(self):
        if self.btrfs_image:
            subprocess.run(["umount", "-l", self.project])
            self.remove(self.btrfs_image)
            self.btrfs_image = ""

    # ---- files

    def place(self, path):
        """The real path of one in an oracle, which starts with a name: PROJ/x, OUT/x, H/x."""
        places = dict(
            PROJ=self.project, OUT=self.outside, RUN=self.run, CENTRAL=self.central, WORK=self.work, H=self.home
        )
        first, slash, rest = path.partition("/")
        return places[first] + slash + rest if first in places else path

    def own(self, path):
        if os.getuid() == 0:
            os.chown(path, self.account.uid, self.account.gid, follow_symlinks=False)

    def put(self, path, text, mode=0o644, owned=True):
        self.mkdir(os.path.dirname(path))
        with open(path, "w") as file:
            file.write(text)
        os.chmod(path, mode)
        if owned:
            self.own(path)

    def copy(self, source, target, mode):
        shutil.copyfile(source, target)
        os.chmod(target, mode)
        self.own(target)

    def mkdir(self, path):
        if not os.path.isdir(path):
            self.mkdir(os.path.dirname(path))
            os.mkdir(path)
            os.chmod(path, 0o755)
            self.own(path)

    def remove(self, path):
        if os.path.islink(path) or os.path.isfile(path):
            os.unlink(path)
        elif os.path.lexists(path):
            remove = ["rm", "-rf", "--one-file-system", "--", path]
            if subprocess.run(remove, stderr=subprocess.DEVNULL).returncode:
                subprocess.run(["chmod", "-R", "u+rwx", "--", path], stderr=subprocess.DEVNULL)
                subprocess.run(remove)

    def compile(self, source, target):
        self.copy(compiled(source, self.cache), target, 0o755)


def keeps_attributes(folder):
    """Whether its file system keeps extended attributes of users: tmpfs does not before 6.6."""
    try:
        os.setxattr(folder, "user.ctk_try", b"1")
        os.removexattr(folder, "user.ctk_try")
        return True
    except OSError:
        return False


def compiled(source, cache, compiler="gcc", machine=None):
    """The program of a source, from `cache`: kept by its processor and the hash of what it is made of, so that programs which
    another machine has compiled are found where there is no compiler."""
    parts = [source, *sorted((ROOT / "lib").glob("*.h"))]
    digest = hashlib.sha256(b"".join(part.read_bytes() for part in parts)).hexdigest()[:16]
    kept = f"{cache}/{source.stem}.{machine or os.uname().machine}.{digest}"
    if not os.path.exists(kept):
        flags = ["-O1", "-w", "-static", "-no-pie", "-pthread", f"-I{ROOT}/lib"]
        if source.stem == "preload":
            flags = ["-shared", "-fPIC"]
        made = f"{kept}.{secrets.token_hex(4)}"
        subprocess.run([compiler, *flags, "-o", made, source], check=True)
        os.rename(made, kept)
    return kept
