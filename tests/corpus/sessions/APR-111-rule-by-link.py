#!/usr/bin/python3
# Goal:    write a file that a rule denies, or without the approval that it needs, by the name that a link of the repository gives it
# Models:  rules on a path that are decided on the name that was asked for
# Oracle:  outside
# Tier:    core
# Needs:   lazaret
# Limit:   40
import tempfile

from session import *

# No policy is read from below the directory that a calling program works in: a project may have set its place.
project, config = W + "/project", tempfile.mkdtemp(dir=os.path.expanduser("~"))
for path in (project + "/docs", project + "/src", config + "/lazaret"):
    os.makedirs(path)
with open(project + "/src/main.sh", "w") as file:
    file.write("safe\n")
os.symlink("../src/main.sh", project + "/docs/x")
os.symlink("../src", project + "/docs/s")
RULE = '[[rule]]\ntool = "file_write"\naction = "%s"\nwhen = [{ param = "path", matches = ["%s"] }]\nwhy = "w"\n'
with open(config + "/lazaret/policy.toml", "w") as file:
    file.write("version = 1\n" + RULE % ("allow", "docs/**") + RULE % ("deny", "src/**"))

client = Client("--project", project, "--trust", "guided", XDG_CONFIG_HOME=config)


def write(number, path):
    client.call(number, "file_write", {"path": path, "content": "evil\n"})


def is_evil(path):
    try:
        with open(f"{project}/{path}") as file:
            return file.read() == "evil\n"
    except OSError:
        return False


# Controls: what no rule names needs approval, and what is denied is refused.
write("1", "README")
if client.asked != ["1"]:
    broken("a write that no rule allows needed no approval")
write("2", "src/y")
if os.path.exists(project + "/src/y"):
    broken("a denied write was done")
client.call("3", "file_read", {"path": "docs/x"})
write("4", "docs/x")
write("5", "docs/s/new")
client.close()
got = [path for path in ("src/main.sh", "src/new") if is_evil(path)]
escaped("wrote " + " ".join(got)) if got else contained("asked about %s" % client.asked)
