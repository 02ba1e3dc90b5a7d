#!/usr/bin/python3
"""Schemas that the chart's output is judged by, from those that their authors publish: only of the kinds that the chart makes, without
descriptions, and with no key allowed that they do not name.

usage: tests/helm/schemas.py KUBERNETES PROMETHEUS-OPERATOR NETWORK-ATTACHMENT-DEFINITION-CLIENT COMPOSE-GO
Folders of their sources, as `go mod download` leaves them; which versions: schemas/README.md.
"""

import json
import os
import sys

import yaml

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "schemas")
KINDS = [
    ("apps", "v1", "StatefulSet"),
    ("", "v1", "Service"),
    ("", "v1", "ConfigMap"),
    ("", "v1", "Secret"),
    ("policy", "v1", "PodDisruptionBudget"),
    ("networking.k8s.io", "v1", "NetworkPolicy"),
]
OPERATOR = "example/prometheus-operator-crd/monitoring.coreos.com_{}.yaml"
NETWORKS = "artifacts/networks-crd.yaml"
REFERENCE = "#/definitions/"


def strict(schema):
    """The same, where an object has the keys that it names and no others."""
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    if schema.get("x-kubernetes-int-or-string") or schema.get("format") == "int-or-string":
        return {"type": ["string", "integer"]}
    kept = {}
    for key, value in schema.items():
        # In a list of properties these are names of properties.
        if key == "properties":
            kept[key] = {name: strict(one) for name, one in value.items()}
        elif key not in ("description", "default", "example", "externalDocs") and not key.startswith("x-"):
            kept[key] = strict(value)
    open_to_all = schema.get("x-kubernetes-preserve-unknown-fields") or "additionalProperties" in schema
    if "properties" in schema and not open_to_all:
        kept["additionalProperties"] = False
    return kept


def references(schema):
    """Names of definitions that it refers to."""
    if isinstance(schema, list):
        for one in schema:
            yield from references(one)
    elif isinstance(schema, dict):
        if isinstance(schema.get("$ref"), str):
            yield schema["$ref"].removeprefix(REFERENCE)
        for one in schema.values():
            yield from references(one)


def is_kind(definition, group, version, kind):
    """Whether it is that of a kind."""
    wanted = {"group": group, "version": version, "kind": kind}
    return wanted in definition.get("x-kubernetes-group-version-kind", [])


def of_kubernetes(definitions, group, version, kind):
    """One kind with all that it refers to."""
    (root,) = [definition for definition in definitions.values() if is_kind(definition, group, version, kind)]
    root, needed = strict(root), {}
    open_ones = list(references(root))
    while open_ones:
        name = open_ones.pop()
        if name not in needed:
            needed[name] = strict(definitions[name])
            # Numbers are quantities, too, though the schema says string.
            if name.endswith(".resource.Quantity"):
                needed[name]["type"] = ["string", "number"]
            open_ones.extend(references(needed[name]))
    return named(root, group, version, kind) | {"definitions": needed}


def named(schema, group, version, kind):
    """The same, of this kind alone."""
    schema["properties"]["apiVersion"] = {"enum": [f"{group}/{version}".strip("/")]}
    schema["properties"]["kind"] = {"enum": [kind]}
    # Definitions of custom resources may leave it out.
    schema["properties"].setdefault("metadata", {"type": "object"})
    schema["required"] = sorted({*schema.get("required", []), "apiVersion", "kind", "metadata"})
    return schema


def of_crd(path, version):
    """The kind of a custom resource definition."""
    with open(path, encoding="utf-8") as file:
        spec = yaml.safe_load(file)["spec"]
    (schema,) = [one["schema"]["openAPIV3Schema"] for one in spec["versions"] if one["name"] == version]
    return named(strict(schema), spec["group"], version, spec["names"]["kind"]), spec["group"], spec["names"]["kind"]


def write(name, schema):
    """As small as it can be with a line for each definition, so that changes can be read."""
    definitions = schema.pop("definitions", {})
    lines = json.dumps(schema, sort_keys=True, separators=(",", ":"))
    if definitions:
        each = [f"{json.dumps(name)}:{json.dumps(one, sort_keys=True, separators=(',', ':'))}" for name, one in sorted(definitions.items())]
        lines = lines[:-1] + ',"definitions":{\n' + ",\n".join(each) + "\n}}"
    with open(os.path.join(HERE, name), "w", encoding="ascii") as file:
        file.write(lines + "\n")


def main():
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    kubernetes, operator, networks, compose = sys.argv[1:]
    with open(f"{kubernetes}/api/openapi-spec/swagger.json", encoding="utf-8") as file:
        definitions = json.load(file)["definitions"]
    # As kubeconform calls them.
    for group, version, kind in KINDS:
        parts = [kind, group.split(".")[0], version]
        write("-".join(part for part in parts if part).lower() + ".json", of_kubernetes(definitions, group, version, kind))
    monitoring = [f"{operator}/{OPERATOR.format(kinds)}" for kinds in ("servicemonitors", "prometheusrules")]
    for path in [*monitoring, f"{networks}/{NETWORKS}"]:
        schema, group, kind = of_crd(path, "v1")
        write(f"{kind}-{group.split('.')[0]}-v1.json".lower(), schema)
    with open(f"{compose}/schema/compose-spec.json", encoding="utf-8") as file:
        write("compose-spec.json", json.load(file))


main()
