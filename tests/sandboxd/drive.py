"""Drives `lazaret sandboxd` with agent-sandbox' own client for Python, on both protocols: drive.py FOLDER-OF-PROGRAMS"""

from __future__ import annotations

import io
import json
import subprocess
import sys
import tempfile
import time
from importlib import resources
from pathlib import Path

import grpc
from google.protobuf.descriptor_pb2 import FileDescriptorSet
from google.protobuf.descriptor_pool import DescriptorPool
from grpc_reflection.v1alpha.proto_reflection_descriptor_database import ProtoReflectionDescriptorDatabase
from grpc_tools import protoc
from k8s_agent_sandbox.commands._process_stubs import process_pb2 as pb
from k8s_agent_sandbox.commands._process_stubs import process_pb2_grpc as rpc
from k8s_agent_sandbox.exceptions import SandboxError
from k8s_agent_sandbox.models import (
    SandboxDirectConnectionConfig,
    SandboxdInClusterConnectionConfig,
    SandboxInClusterConnectionConfig,
)
from k8s_agent_sandbox.sandbox import Sandbox

ROOT = Path(__file__).resolve().parents[2]
# Every byte, so that nothing takes it for text.
BINARY = bytes(range(256)) * 5000


class NoCluster:
    """Stands in for the client's helper: the pod is this machine."""

    injected_api_client = None

    def get_sandbox(self, name: str, namespace: str) -> dict:
        ready = {"type": "Ready", "status": "True", "message": ""}
        return {"metadata": {"name": name},
                "status": {"podIPs": [{"ip": "127.0.0.1"}], "serviceFQDN": "localhost", "conditions": [ready]}}

    def delete_sandbox_claim(self, *_: object) -> None:
        pass


class Checks:
    def __init__(self) -> None:
        self.failed = 0

    def is_so(self, name: str, got: object, want: object) -> None:
        if got != want:
            self.failed += 1
            print(f"  FAILED {name}: {got!r}, not {want!r}")
        else:
            print(f"  ok     {name}")

    def fails(self, name: str, call, *words: str) -> None:
        try:
            got = call()
        except (SandboxError, RuntimeError, ValueError) as error:
            text = f"{getattr(error, 'status_code', '')} {type(error).__name__}: {error}"
            self.is_so(name, [word for word in words if word not in text], [])
        else:
            self.is_so(name, got, "an error")


def started(command: list, folder: Path) -> tuple[subprocess.Popen, dict]:
    ports = [word for name in ("legacy", "rest", "grpc") for word in (f"--{name}-port", "0")]
    roots = ["--project", folder / "project", "--central", folder / "central"]
    server = subprocess.Popen([*command, "sandboxd", *roots, *ports], stdout=subprocess.PIPE, text=True)
    ready = json.loads(server.stdout.readline())
    return server, {name: int(ready[name].rsplit(":", 1)[1]) for name in ("legacy", "rest", "grpc")}


def drive(checks: Checks, config: object, folder: Path) -> None:
    sandbox = Sandbox("claim", "sandbox", "default", config, k8s_helper=NoCluster())
    modern, files, commands = sandbox.connector.is_sandboxd(), sandbox.files, sandbox.commands
    project = folder / "project"
    for path in ("a b/é.txt", "plain.bin"):
        files.write(path, BINARY) if path.endswith("bin") else files.write(path, "text\n")
    checks.is_so("a file is written", (project / "a b/é.txt").read_text(), "text\n")
    files.write("stream.bin", io.BytesIO(BINARY))
    checks.is_so("a stream is written", (project / "stream.bin").read_bytes() == BINARY, True)
    checks.is_so("it is read", files.read("stream.bin") == BINARY, True)
    into = io.BytesIO()
    checks.is_so("it is read as a stream", (files.read_to("plain.bin", into), into.getvalue() == BINARY), (len(BINARY), True))
    names = sorted((entry.name, entry.type, entry.size) for entry in files.list("."))
    checks.is_so("a list", names, [("a b", "directory", 0), ("plain.bin", "file", len(BINARY)), ("stream.bin", "file", len(BINARY))])
    entry = files.list("a b")[0]
    checks.is_so("an entry's time", abs(entry.modified.timestamp() - time.time()) < 600, True)
    checks.is_so("what exists", (files.exists("a b"), files.exists("no")), (True, False))
    checks.fails("a file that is not there", lambda: files.read("no"), "404")
    checks.fails("a path that leads out", lambda: files.read("../../etc/passwd", allow_unsafe_paths=True))
    got = commands.run("echo out; echo err >&2; exit 3")
    checks.is_so("a command", (got.stdout, got.stderr, got.exit_code), ("out\n", "err\n", 3))
    late = commands.run("sleep 60", command_timeout=0.5)
    checks.is_so("its time limit", (late.exit_code, late.timed_out), (124, True))
    got = commands.run(f"touch {folder}/outside; cat {folder}/secret")
    checks.is_so("it is in a cell", (got.exit_code != 0, "hidden" in got.stdout, (folder / "outside").exists()), (True, False, False))
    if modern:
        got = commands.run("echo $A; basename \"$PWD\"", env={"A": "1 ="}, cwd="a b")
        checks.is_so("variables and a directory", got.stdout, "1 =\na b\n")
        checks.fails("a directory that leads out", lambda: commands.run("pwd", cwd="../.."), "PERMISSION_DENIED")
        checks.fails("a directory that is not empty", lambda: files.delete("a b"), "409")
        files.delete("a b", recursive=True)
        files.delete("plain.bin")
        checks.is_so("removals", [one.name for one in project.iterdir()], ["stream.bin"])
    sandbox.close_connection()


def streams(checks: Checks, port: int) -> None:
    stub = rpc.ProcessServiceStub(grpc.insecure_channel(f"127.0.0.1:{port}"))
    events = stub.Start(pb.StartRequest(config=pb.ProcessConfig(command=["cat"])))
    number = next(events).init.process_id
    stub.WriteStdin(pb.WriteStdinRequest(process_id=number, input=BINARY))
    stub.WriteStdin(pb.WriteStdinRequest(process_id=number, eof={}))
    rest = list(events)
    checks.is_so("a stream", (b"".join(one.stdout for one in rest) == BINARY, rest[-1].exit.exit_code), (True, 0))
    request = pb.StartRequest(config=pb.ProcessConfig(command=["bash", "-c", "stty size; sleep 60"]), pty=pb.PTY(cols=90, rows=30))
    events = stub.Start(request)
    number = next(events).init.process_id
    checks.is_so("a terminal", next(events).stdout, b"30 90\r\n")
    stub.ResizeTTY(pb.ResizeTTYRequest(process_id=number, cols=80, rows=24))
    stub.SendSignal(pb.SendSignalRequest(process_id=number, signal=pb.SIGNAL_SIGKILL))
    checks.is_so("a signal", list(events)[-1].exit.exit_code, -1)
    for name, call, code in (
        ("no process", lambda: stub.SendSignal(pb.SendSignalRequest(process_id=9999, signal=2)), grpc.StatusCode.NOT_FOUND),
        ("no command", lambda: stub.Execute(pb.ExecuteRequest()), grpc.StatusCode.INVALID_ARGUMENT),
        ("no program", lambda: stub.Execute(pb.ExecuteRequest(config=pb.ProcessConfig(command=["/no"]))), grpc.StatusCode.NOT_FOUND),
    ):
        try:
            call()
        except grpc.RpcError as error:
            checks.is_so(name, error.code(), code)
        else:
            checks.is_so(name, "an answer", code)


def reflects(checks: Checks, port: int) -> None:
    """Reflection has what `protoc` makes of our description, for clients that have none: as `grpcurl list` and `describe` ask."""
    proto = ROOT / "orchestrator/sandboxd/proto"
    with tempfile.NamedTemporaryFile() as made:
        includes = ["-I" + str(proto), "-I" + str(resources.files("grpc_tools") / "_proto")]
        words = [*includes, "--include_imports", f"--descriptor_set_out={made.name}", "process/v1/process.proto"]
        checks.is_so("protoc", protoc.main(["protoc", *words]), 0)
        want = Path(made.name).read_bytes()
    checks.is_so("the description that is kept", (proto / "process.binpb").read_bytes() == want, True)
    database = ProtoReflectionDescriptorDatabase(grpc.insecure_channel(f"127.0.0.1:{port}"))
    checks.is_so("services", list(database.get_services()), ["process.v1.ProcessService"])
    service = DescriptorPool(database).FindServiceByName("process.v1.ProcessService")
    methods = [(method.name, method.input_type.full_name, method.server_streaming) for method in service.methods]
    checks.is_so("a service", methods[:2], [("Start", "process.v1.StartRequest", True), ("Execute", "process.v1.ExecuteRequest", False)])
    files = FileDescriptorSet.FromString(want).file
    got = [database.FindFileByName(file.name) == file for file in files]
    checks.is_so("files", got, [True] * 2)
    try:
        database.FindFileContainingSymbol("process.v1.No")
    except KeyError:
        checks.is_so("an unknown symbol", 5, 5)
    else:
        checks.is_so("an unknown symbol", "a file", 5)


def main() -> int:
    programs, checks = Path(sys.argv[1]), Checks()
    tiers = {"as it is here": [programs / "lazaret"]}
    if (programs / "without-namespaces").exists():
        tiers["flat"] = [programs / "without-namespaces", programs / "lazaret"]
    for tier, command in tiers.items():
        for name in ("direct", "in-cluster", "sandboxd pod", "sandboxd service"):
            with tempfile.TemporaryDirectory(prefix="lazaret-sandboxd-", dir="/var/tmp") as made:
                folder = Path(made)
                (folder / "project").mkdir()
                (folder / "secret").write_text("hidden")
                server, ports = started(command, folder)
                rest, process = ports["rest"], ports["grpc"]
                print(f"{tier}: {name}")
                try:
                    drive(checks, {
                        "direct": SandboxDirectConnectionConfig(api_url=f"http://127.0.0.1:{ports['legacy']}"),
                        "in-cluster": SandboxInClusterConnectionConfig(server_port=ports["legacy"]),
                        "sandboxd pod": SandboxdInClusterConnectionConfig(mode="in-cluster-pod-ip", rest_port=rest, grpc_port=process),
                        "sandboxd service": SandboxdInClusterConnectionConfig(mode="in-cluster-service", rest_port=rest, grpc_port=process),
                    }[name], folder)
                    if name == "sandboxd pod":
                        streams(checks, process)
                        reflects(checks, process)
                finally:
                    server.terminate()
                checks.is_so("its end", server.wait(60), 128 + 15)
    print(f"{checks.failed} failed")
    return int(checks.failed > 0)


if __name__ == "__main__":
    sys.exit(main())
