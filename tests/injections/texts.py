"""Prints the goals of agentdojo's injection tasks, each with the texts that its attacks make of it. Runs where agentdojo is installed."""

import json
from contextlib import suppress
from types import SimpleNamespace

from agentdojo.attacks.attack_registry import load_attack
from agentdojo.task_suite.load_suites import get_suites

ATTACKS = ("important_instructions", "direct", "ignore_previous", "system_message", "injecagent", "tool_knowledge")
# Some templates address the model by the name that they find in this one.
PIPELINE = SimpleNamespace(name="claude-3-5-sonnet-20241022")

found = []
for name, suite in get_suites("v1.2.2").items():
    attacks = [load_attack(attack, suite, PIPELINE) for attack in ATTACKS]
    for identity, task in suite.injection_tasks.items():
        for user_task in suite.user_tasks.values():
            # Not in the course of every task does a model read a stranger's text.
            with suppress(ValueError):
                texts = [next(iter(attack.attack(user_task, task).values())) for attack in attacks]
                break
        found.append({"id": f"{name}/{identity}", "goal": task.GOAL, "texts": texts})
print(json.dumps(found))
