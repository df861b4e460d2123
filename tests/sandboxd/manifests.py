"""Checks objects of agent-sandbox against its definitions, with unknown fields refused, and what they name of each other:
manifests.py FOLDER

`crds.json` has the schemas of the stored versions, without descriptions (kubernetes-sigs/agent-sandbox 2fd412d, Apache-2.0).
"""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path

import jsonschema
import yaml

SCHEMAS = json.loads((Path(__file__).parent / "crds.json").read_text())
# What is Kubernetes' own.
KNOWN = {("v1", "ConfigMap"), ("networking.k8s.io/v1", "NetworkPolicy"), ("kustomize.config.k8s.io/v1beta1", "Kustomization")}


def strict(schema: object) -> object:
    """The schema, which then has no field that it does not name."""
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    schema = {name: strict(one) for name, one in schema.items()}
    if schema.pop("x-kubernetes-int-or-string", False):
        schema.pop("anyOf", None)
        schema["type"] = ["integer", "string"]
    open_ = schema.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in schema
    if schema.get("type") == "object" and isinstance(schema.get("properties"), dict) and not open_:
        # `metadata` is Kubernetes' own, and its schema here is empty.
        if "apiVersion" not in schema["properties"]:
            schema["additionalProperties"] = False
    return schema


def faults(thing: dict) -> list[str]:
    schema = SCHEMAS.get(f"{thing['apiVersion']} {thing['kind']}")
    if schema is None:
        return [] if (thing["apiVersion"], thing["kind"]) in KNOWN else ["nobody knows this kind"]
    found = jsonschema.Draft7Validator(strict(schema)).iter_errors(thing)
    return [f"{'/'.join(map(str, one.path))}: {one.message[:120]}" for one in found]


def main() -> int:
    folder, things, bad = Path(sys.argv[1]), {}, 0
    for file in sorted(folder.glob("*.yaml")):
        for thing in yaml.safe_load_all(file.read_text()):
            things[thing["kind"]] = thing
            found = faults(thing)
            bad += len(found)
            print(f"{file.name} {thing['kind']}: {found or 'valid'}")
    listed = set(things["Kustomization"]["resources"])
    there = {file.name for file in folder.glob("*.yaml")} - {"kustomization.yaml"}
    pod = things["SandboxTemplate"]["spec"]["podTemplate"]
    named = {
        "resources": (listed, there),
        "the pool's template": (things["SandboxWarmPool"]["spec"]["sandboxTemplateRef"]["name"], things["SandboxTemplate"]["metadata"]["name"]),
        "the claim's pool": (things["SandboxClaim"]["spec"]["warmPoolRef"]["name"], things["SandboxWarmPool"]["metadata"]["name"]),
        "the network's pods": (things["NetworkPolicy"]["spec"]["podSelector"]["matchLabels"], pod["metadata"]["labels"]),
        "mounts": ({mount["name"] for one in pod["spec"]["containers"] for mount in one["volumeMounts"]},
                   {volume["name"] for volume in pod["spec"]["volumes"]}),
        "the network's ports": ({port["port"] for port in things["NetworkPolicy"]["spec"]["ingress"][0]["ports"]},
                                {port["name"] for port in pod["spec"]["containers"][0]["ports"]}),
    }
    for name, (one, other) in named.items():
        bad += one != other
        print(f"{name}: {'as named' if one == other else f'{one} is not {other}'}")
    # The check can fail.
    planted = copy.deepcopy(things["SandboxTemplate"])
    planted["spec"]["podTemplate"]["spec"]["containers"][0]["imagePulPolicy"] = "Always"
    if not faults(planted):
        bad += 1
        print("a planted field was not seen")
    return int(bad > 0)


if __name__ == "__main__":
    sys.exit(main())
