"""One probe through one launcher: starts it as an agent would, waits, looks from outside, and cleans up."""

import glob
import os
import secrets
import stat
import subprocess
import threading
import time

from . import launchers, verdict
from .headers import ROOT
from .launch import HEAD, Launch, Terminal
from .outside import file_handle, is_mounted, remove_directory, snapshot
from .processes import Bystander, kill_all, processes_with
from .world import PYTHON

# What a probe leaves under its nonce in places of the machine, should it get there.
TRACES = (
    "/tmp/ctk-m- /var/tmp/ctk-m- /dev/shm/ctk-m- /dev/shm/ctk-fill- /run/lock/ctk-m- /etc/cron.d/ctk- "
    "/var/spool/cron/crontabs/ctk- /sys/fs/cgroup/ctk- /sys/fs/cgroup/pids/ctk- /sys/fs/cgroup/unified/ctk-"
).split()


class Attempt:
    """What is known about one probe through one launcher; `verdict.judge` reads it."""

    def __init__(self, world, launcher, probe):
        self.world, self.launcher, self.probe = world, launcher, probe
        self.nonce = secrets.token_hex(8)
        self.launch = self.bystander = self.peer = self.helper = None
        self.reader, self.hits, self.survived, self.failure = Reader(), [], False, ""
        self.text, self.data, self.before = "", b"", {}

    def run(self):
        try:
            self.prepare()
            self.attack()
            self.observe()
            return verdict.judge(self)
        finally:
            self.clean()

    # ---- before

    def prepare(self):
        world, fixtures = self.world, self.probe.fixtures
        world.fresh("btrfs" in fixtures)
        if "store-link" in fixtures:
            os.link(world.outside + "/store.js", world.project + "/package.js")
        self.bystander = Bystander(world)
        self.values = dict(
            project=world.project, central=world.central, home=world.home, outside=world.outside, uid=world.account.uid,
            gid=world.account.gid, user=world.account.name, timeout=self.probe.limit, corpus=ROOT, **launchers.LIMITS,
            **self.launcher.values(),
        )  # fmt: skip
        self.write_files(self.values)
        for path in launchers.fill(self.launcher.make, self.values):
            # For everybody: other lanes have other accounts.
            world.mkdir(path)
            os.chmod(path, 0o1777)
        self.policy = launchers.fill([*self.launcher.files, *self.launcher.policy], self.values)
        if not self.policy:
            self.policy = [world.home + "/.config/ctk-policy/policy.toml"]
            world.put(self.policy[0], "# policy\n")
        self.env = self.environment()
        for oracle in self.probe.oracles:
            if oracle[0] in verdict.COMPARES:
                path = world.place(oracle[1].replace("{NONCE}", self.nonce))
                self.before[path] = snapshot(path)

    def write_files(self, values):
        """The launcher's own policy files."""
        for path, text in self.launcher.files.items():
            path, text = launchers.fill([path, text], values)
            self.world.put(path, text)

    def environment(self):
        """That of an agent: with secrets under telling names, and one under a harmless one."""
        world, tokens, fixtures = self.world, self.world.tokens, self.probe.fixtures
        env = dict(
            HOME=world.home, USER=world.account.name, LOGNAME=world.account.name, SHELL="/bin/bash", PATH=self.launcher.path,
            LANG="C.UTF-8", TERM="xterm", ACME_DEPLOY_CFG=tokens["ENVPLAIN"], SSH_AUTH_SOCK=world.run + "/ssh-agent.sock",
            DATABASE_URL=f"postgres://u:{tokens['ENVURL']}@db.invalid/x", XDG_RUNTIME_DIR=world.run,
        )  # fmt: skip
        for name in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "NPM_TOKEN"):
            env[name] = tokens["ENVKEY"]
        for name, value in self.launcher.env.items():
            env[name] = launchers.fill([value], self.values)[0]
        if "env-preload" in fixtures:
            env["LD_PRELOAD"] = f"{world.outside}/{world.preload}.so"
            world.copy(f"{world.scratch}/{world.preload}.so", env["LD_PRELOAD"], 0o755)
        if "env-interpreter" in fixtures:
            for name in ("PYTHONPATH", "GIT_SSH_COMMAND", "PROMPT_COMMAND"):
                env[name] = tokens["INTERP"]
            env["PERL5OPT"] = env["RUBYOPT"] = "-I/nonexistent/" + tokens["INTERP"]
        return env

    def config(self, agent_pid):
        """The content of fixture.conf: paths, ports and numbers, and never a token."""
        world, info, ports = self.world, self.world.server_info, self.world.server_info["ports"]
        victim = self.bystander
        return dict(
            ID=self.probe.id, H=world.home, OUT=world.outside, CENTRAL=world.central, RUN=world.run, TAG=world.tag,
            VPID=victim.pid, VADDR=victim.secret, VFD=victim.descriptor, VTARGET=victim.target, AGENTPID=agent_pid,
            TCP4=ports["tcp4"], TCP6=ports["tcp6"], TCPRE=ports["tcpre"], UDP4=ports["udp4"], UDP6=ports["udp6"],
            UDPLITE=ports["udplite"], DNS=ports["dns"], CB_TCP=self.callbacks["tcp"], CB_UDP=self.callbacks["udp"],
            ABSSTREAM="ctk-absstream-" + world.tag, ABSDGRAM="ctk-absdgram-" + world.tag, ABSSCM="ctk-scm-" + world.tag,
            VPTY=info["vpty"], IPCKEY=world.ipc_key, SUIDBIN=world.suid_bin + "/suidbin", CAPBIN=world.suid_bin + "/capbin",
            ROOTFILE=world.suid_lib + "/root-canary.txt", BLKPATH=world.block_device[1], OUT_HANDLE=file_handle(world.outside),
            ENV_HANDLE=file_handle(world.project + "/.env"), POLICY=" ".join(self.policy), PHASE=1, **self.peer_config(),
        )  # fmt: skip

    def install(self, project, config):
        """Copies the probe into the project under a neutral name, since its own may look like that of a secret."""
        world, probe, folder = self.world, self.probe, project + "/probe"
        world.mkdir(folder)
        for name in ("ctk.py", "ctk.sh"):
            world.copy(ROOT / "lib" / name, f"{folder}/{name}", 0o644)
        world.put(project + "/fixture.conf", "".join(f"{name}={value}\n" for name, value in config.items()))
        program = f"{folder}/{probe.id}" + ("" if probe.path.suffix == ".c" else probe.path.suffix)
        if probe.path.suffix == ".c":
            world.compile(probe.path, program)
        else:
            world.copy(probe.path, program, 0o755)
        start = {".c": [], ".sh": ["/bin/bash"], ".py": [PYTHON, "-B", "-s"]}[probe.path.suffix]
        return [*start, program, self.nonce, project]

    # ---- during

    @property
    def kill_after(self):
        """Seconds until the agent ends the launcher. One that has a time limit of its own gets time to show it."""
        return self.probe.limit + (6 if self.launcher.own_timeout else 0)

    def attack(self):
        world, fixtures = self.world, self.probe.fixtures
        self.callbacks = dict(tcp=20000 + secrets.randbelow(20000), udp=20000 + secrets.randbelow(20000))
        world.ask_server(
            op="begin", nonce=self.nonce, fixtures=list(fixtures), callbacks=self.callbacks, seconds=self.probe.limit + 8,
            project=world.project,
        )  # fmt: skip
        if "argv-secret" in fixtures:
            token = "--token=" + world.tokens["ARGV"]
            self.helper = subprocess.Popen(
                [PYTHON, "-c", "import time; time.sleep(60)", token], **world.account.identity()
            )
        if "peer-session" in fixtures:
            self.start_peer()
        terminal = Terminal(world) if "tty" in fixtures else None
        self.launch = Launch(world, self.env, terminal)
        self.job = self.make_job()
        config = self.config(self.launch.agent.pid)
        values = launchers.for_command(self.values, self.install(world.project, config))
        argv = launchers.fill(self.launcher.argv, values)
        if "stub" in fixtures:
            argv = [world.outside + "/bin/agentstub", *argv]
        beside = [self.read_beside] * ("reader-concurrent" in fixtures) + [self.host_git] * ("git" in fixtures)
        threads = [threading.Thread(target=work, daemon=True) for work in beside]
        for thread in threads:
            thread.start()
        typed = world.tokens["TYPED"] + "\n" if "typed" in fixtures else None
        self.launch.start(self.job, argv, self.kill_after, typed)
        for thread in threads:
            thread.join(20)
        self.second_call(config)

    def host_git(self):
        """The user's own `git status`, while the call runs and once after it."""
        world, last = self.world, False
        directory = self.probe.fixtures["git"].replace("{PROJ}", world.project)
        env = {"HOME": world.home, "PATH": launchers.SYSTEM_PATH}
        while not last:
            last = self.launch.is_over
            if os.path.isdir(directory):
                subprocess.run(
                    ["git", "status"], cwd=directory, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL, timeout=10, **world.account.identity(),
                )  # fmt: skip
            time.sleep(0.3)

    def make_job(self):
        world, fixtures = self.world, self.probe.fixtures
        job = dict(
            cwd=world.project, out=world.outside, memory_token=world.tokens["AGENTMEM"], file_token=world.tokens["AGENTFD"],
            leak=[name[5:] for name in fixtures if name.startswith("leak-")], tcp4=world.server_info["ports"]["tcp4"],
            tag=world.tag, nonce=self.nonce,
        )  # fmt: skip
        if "tty" in fixtures:
            job["tty"] = self.launch.terminal.path
        if "stdout-file" in fixtures:
            job["stdout_file"] = world.outside + "/run.log"
        return job

    def start_peer(self):
        """Another session of the same launcher, in a second project, with a secret in its memory."""
        world, second = self.world, self.world.second
        world.mkdir(second + "/probe")
        world.copy(world.scratch + "/peer.py", second + "/probe/peer.py", 0o644)
        world.put(second + "/peer-token.txt", world.tokens["XSMEM"] + "\n")
        self.peer_tag = "ctk-peer-" + self.nonce
        command = [PYTHON, "-B", "-s", second + "/probe/peer.py", self.peer_tag, second]
        values = launchers.for_command({**self.values, "project": second, "central": world.second_central, "timeout": 30}, command)
        self.write_files(values)
        self.peer = Launch(world, self.env)
        job = {**self.make_job(), "cwd": second, "nonce": self.peer_tag, "leak": []}
        argv = launchers.fill(self.launcher.argv, values)
        self.peer_thread = threading.Thread(target=self.peer.start, args=(job, argv, 30), daemon=True)
        self.peer_thread.start()
        end = time.time() + 8
        while time.time() < end and not os.path.exists(second + "/probe/ready"):
            time.sleep(0.02)
        self.write_files(self.values)

    def peer_config(self):
        if not self.peer:
            return {}
        try:
            with open(self.world.second + "/probe/ready") as file:
                _, address, descriptor = file.read().split()
        except (OSError, ValueError):
            self.failure = "the other session did not start"
            address = descriptor = "0"
        return dict(XSTAG=self.peer_tag, XSADDR=address, XSFD=descriptor)

    def second_call(self, config):
        """The probe once more, in the same project or in another one; what is judged is that call."""
        fixtures, project, central = self.probe.fixtures, self.world.project, self.world.central
        if "second-project" in fixtures:
            project, central = self.world.second, self.world.second_central
        elif "second-call" not in fixtures:
            return
        self.launch.wait_for_pipes(1.5)
        self.launch.close()
        values = {**self.values, "project": project, "central": central}
        self.write_files(values)
        values = launchers.for_command(values, self.install(project, {**config, "PHASE": 2}))
        self.launch = Launch(self.world, self.env)
        self.launch.start({**self.job, "cwd": project}, launchers.fill(self.launcher.argv, values), self.kill_after)

    # ---- after

    def observe(self):
        """The launcher has ended; what happened is looked at from outside."""
        launch, kinds = self.launch, [oracle[0] for oracle in self.probe.oracles]
        launch.wait_for_pipes(launch.started + 7 - time.time() if "pipe-held" in kinds else 1.5)
        if "survivor" in kinds:
            self.survived = self.look_for_survivors()
        if "stub" in self.probe.fixtures:
            time.sleep(1.2)
        if "reader" in self.probe.fixtures and "reader-concurrent" not in self.probe.fixtures:
            self.reader.add(self.read_once())
        self.data = launch.data() + self.logged_output()
        self.text = self.data.decode("utf-8", "replace")
        self.hits = self.world.ask_server(op="hits")["hits"]

    def logged_output(self):
        path = self.job.get("stdout_file")
        if not path:
            return b""
        with open(path, "rb") as file:
            return file.read()

    def look_for_survivors(self):
        ended = self.launch.ended.get("at", time.time())
        time.sleep(max(0, ended + 1.0 - time.time()))
        first = self.heartbeats()
        time.sleep(1.0)
        second = self.heartbeats()
        return bool(processes_with(self.nonce)) or any(second[path] > first.get(path, 0) for path in second)

    def heartbeats(self):
        return {path: os.path.getsize(path) for path in glob.glob(self.world.project + "/probe/hb-*")}

    def read_once(self):
        """Asks the launcher's own reader for the path that the probe planted."""
        world = self.world
        path = self.probe.fixtures["reader"].replace("{PROJ}", world.project).replace("{OUT}", world.outside)
        values = launchers.for_path({**self.values, "timeout": 4}, path)
        launch = Launch(world, self.env)
        job = {**self.make_job(), "nonce": path, "leak": []}
        launch.start(
            job,
            launchers.fill(self.launcher.reader or self.launcher.argv, values),
            8 if self.launcher.own_timeout else 4,
        )
        launch.wait_for_pipes(1.5)
        launch.close()
        return launch

    def read_beside(self):
        time.sleep(1.5)
        end = time.time() + 7
        while time.time() < end and self.reader.reads < 60:
            self.reader.add(self.read_once())

    def left_running(self):
        return len(processes_with(self.nonce))

    def clean(self):
        world = self.world
        kill_all(self.nonce)
        if self.peer:
            kill_all(self.peer_tag)
            self.peer_thread.join(5)
        for each in (self.launch, self.peer, self.bystander):
            if each:
                each.close()
        if self.helper:
            self.helper.kill()
            self.helper.wait()
        world.ask_server(op="end")
        if is_mounted(world.outside + "/mnt"):
            subprocess.run(["umount", "-l", world.outside + "/mnt"])
        for prefix in (*TRACES, world.run + "/m-"):
            world.remove(prefix + self.nonce) if not prefix.startswith("/sys") else remove_directory(
                prefix + self.nonce
            )
        for place in ("/tmp", "/var/tmp", "/dev/shm", world.home + "/.cache", world.home, world.run):
            world.remove(f"{place}/.ctkx-{self.nonce}")
        for path, state in self.before.items():
            if path.startswith("/dev/") and state and snapshot(path) != state:
                os.chmod(path, stat.S_IMODE(state[1]))


class Reader:
    """What came of all calls of the launcher's file reader."""

    def __init__(self):
        self.data, self.size, self.reads, self.timed_out, self.code = b"", 0, 0, False, None

    def add(self, launch):
        self.reads += 1
        self.size += launch.size
        self.data += launch.data()[:HEAD]
        self.timed_out = self.timed_out or launch.timed_out
        self.code = launch.ended.get("exit")

    def __str__(self):
        late = ", timed out" if self.timed_out else ""
        return f"reader: {self.size} bytes in {self.reads} calls, exit {self.code}{late}"
