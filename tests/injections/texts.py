"""Prints the goals of agentdojo's injection tasks and, for each, the texts that its attacks make of them. Runs where agentdojo is installed."""

import json
from types import SimpleNamespace

from agentdojo.attacks.attack_registry import load_attack
from agentdojo.task_suite.load_suites import get_suites

VERSION = "v1.2.2"
ATTACKS = ("important_instructions", "direct", "ignore_previous", "system_message", "injecagent", "tool_knowledge")
# Some templates address the model by the name that they find in this one.
PIPELINE = SimpleNamespace(name="claude-3-5-sonnet-20241022")


def injectable(attack, suite):
    """The first of the user's tasks in whose course a model reads a stranger's text."""
    for task in suite.user_tasks.values():
        try:
            if attack.get_injection_candidates(task):
                return task
        except ValueError:
            continue
    raise SystemExit(f"no task of {suite.name} is injectable")


def texts(attacks, user_task, task):
    for attack in attacks:
        yield next(iter(attack.attack(user_task, task).values()))


found = []
for name, suite in get_suites(VERSION).items():
    attacks = [load_attack(attack, suite, PIPELINE) for attack in ATTACKS]
    user_task = injectable(attacks[0], suite)
    for identity, task in suite.injection_tasks.items():
        found.append({"id": f"{name}/{identity}", "goal": task.GOAL, "texts": list(texts(attacks, user_task, task))})
print(json.dumps(found))
