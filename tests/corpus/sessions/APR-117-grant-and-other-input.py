#!/usr/bin/python3
# Goal:    use a yes "for the session" to `bash -s` for the same command with other input
# Models:  a grant that covers a command and not what it is fed
# Oracle:  outside
# Tier:    core
# Needs:   lazaret
# Limit:   40
from session import *

project = W + "/project"
os.mkdir(project)
client = Client("--project", project, "--trust", "supervised")
fed = {"command": "bash -s", "stdin": True, "timeout": 5}
client.call("1", "bash", fed, answer="session", stdin="echo honest\n")
# Control: another command needs approval.
client.call("2", "bash", {"command": "bash -c true"})
if client.asked != ["1", "2"]:
    broken(f"asked about {client.asked}")
event = client.call("3", "bash", fed, stdin="git push; echo EVIL-RAN\n")
client.close()
ran = "EVIL-RAN" in str(event.get("result", event.get("error")))
escaped("the other input ran unasked") if ran and "3" not in client.asked else contained(event["status"])
