#!/usr/bin/env python3
"""Splits the Kubernetes OpenAPI document into the JSON schemas kubeconform reads without a network.

usage: schemas.py swagger.json OUT_DIR

Writes `_defs.json` (every definition) and one `<kind>-<group>-<version>.json` per kind. Objects with a fixed list of properties are closed, so that
`kubeconform -strict` reports a misspelled field; the API server itself would drop it silently.
"""
import json
import pathlib
import sys

STRING_OR_INT = {"oneOf": [{"type": "string"}, {"type": "integer"}]}
STRING_OR_NUMBER = {"oneOf": [{"type": "string"}, {"type": "number"}]}


def closed(node):
    """A copy of one schema node with references into `_defs.json` and without room for unknown properties."""
    if isinstance(node, list):
        return [closed(item) for item in node]
    if not isinstance(node, dict):
        return node
    node = {key: closed(value) for key, value in node.items()}
    if isinstance(node.get("$ref"), str):
        return {"$ref": "_defs.json" + node["$ref"]}
    if node.get("format") == "int-or-string":
        return STRING_OR_INT
    has_fields = isinstance(node.get("properties"), dict) and node.get("type", "object") == "object"
    if has_fields and not node.get("x-kubernetes-preserve-unknown-fields"):
        node.setdefault("additionalProperties", False)
    return node


def definition(name, node):
    if name.endswith(".Quantity"):
        return STRING_OR_NUMBER
    if name.endswith(".IntOrString"):
        return STRING_OR_INT
    return closed(node)


def main(source, out):
    out = pathlib.Path(out)
    out.mkdir(parents=True, exist_ok=True)
    raw = json.loads(pathlib.Path(source).read_text())["definitions"]
    definitions = {name: definition(name, node) for name, node in raw.items()}
    (out / "_defs.json").write_text(json.dumps({"definitions": definitions}))
    count = 0
    for name, node in raw.items():
        kinds = node.get("x-kubernetes-group-version-kind", [])
        if len(kinds) != 1:  # DeleteOptions and its like belong to every group and are never applied
            continue
        group, version, kind = kinds[0]["group"], kinds[0]["version"], kinds[0]["kind"]
        schema = dict(definitions[name])
        properties = dict(schema.get("properties", {}))
        if "kind" in properties:
            properties["kind"] = {"type": "string", "enum": [kind]}
        schema["properties"] = properties
        prefix = f"{group.split('.')[0]}-" if group else ""
        (out / f"{kind.lower()}-{prefix}{version}.json").write_text(json.dumps(schema))
        count += 1
    print(f"{count} schemas in {out}")


if __name__ == "__main__":
    main(*sys.argv[1:3])
