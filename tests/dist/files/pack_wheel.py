"""Packs a directory into a wheel:  DIRECTORY WHEEL STEM SECONDS LEVEL

The same files always give the same wheel: sorted, of one time, without an owner.
"""

import base64
import hashlib
import sys
import time
import zipfile
from pathlib import Path

directory, wheel, stem, seconds, level = sys.argv[1:]
moment = time.gmtime(int(seconds))[:6]
record, lines = f"{stem}.dist-info/RECORD", []


def add(archive: zipfile.ZipFile, name: str, content: bytes, mode: int) -> None:
    entry = zipfile.ZipInfo(name, moment)
    entry.compress_type = zipfile.ZIP_DEFLATED
    # A regular file with this mode: installers make programs executable by it.
    entry.external_attr = (0o100000 | mode) << 16
    archive.writestr(entry, content, compresslevel=int(level))


with zipfile.ZipFile(wheel, "w") as archive:
    for path in sorted(Path(directory).rglob("*")):
        if path.is_file():
            name, content = path.relative_to(directory).as_posix(), path.read_bytes()
            digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            lines.append(f"{name},sha256={digest},{len(content)}\n")
            add(archive, name, content, path.stat().st_mode & 0o777)
    lines.append(f"{record},,\n")
    add(archive, record, "".join(lines).encode(), 0o644)
