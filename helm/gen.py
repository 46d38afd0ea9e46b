#!/usr/bin/env python3
"""Writes what follows from other files of the chart, so that nobody keeps two copies in step by hand.

usage: gen.py [--check]   (--check writes nothing and fails where a file is stale)

* millstream/values.schema.json = chart-schema.json with `config` from ../config/schema.json
* the table of values in millstream/README.md = the `# --` comments of millstream/values.yaml
"""
import json
import pathlib
import re
import sys

HERE = pathlib.Path(__file__).resolve().parent
CHART = HERE / "millstream"
BEGIN, END = "<!-- values: written by helm/gen.py -->\n", "<!-- end of values -->\n"


def values_schema():
    schema = json.loads((HERE / "chart-schema.json").read_text())
    config = json.loads((HERE.parent / "config" / "schema.json").read_text())
    del config["$schema"]
    # The templates read these: a null would take away the chart's default.
    config["type"] = "object"
    config["required"] = ["server"]
    server = config["properties"]["server"]
    server["type"] = "object"
    server["required"] = ["listen", "probe_listen", "data_dir"]
    schema["properties"]["config"] = config
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def documented_values(text):
    """(path, default, doc) of every value with a `# --` comment. The file is ours: two blanks a level, one key a line."""
    parents, doc, rows = [], None, []
    for line in text.splitlines():
        stripped = line.strip()
        if stripped.startswith("# --"):
            doc = [stripped[4:].strip()]
            continue
        if stripped.startswith("#"):
            if doc is not None:
                doc.append(stripped[1:].strip())
            continue
        match = re.match(r"^( *)([A-Za-z][A-Za-z0-9_]*):\s*(.*)$", line)
        if not match:
            doc = None
            continue
        depth, key, default = len(match[1]) // 2, match[2], match[3]
        parents = parents[:depth] + [key]
        if doc is not None:
            rows.append((".".join(parents), default, " ".join(doc)))
        doc = None
    return rows


def values_table():
    lines = ["| value | default | meaning |", "|---|---|---|"]
    for path, default, doc in documented_values((CHART / "values.yaml").read_text()):
        shown = f"`{default}`" if default else "see `values.yaml`"
        lines.append(f"| `{path}` | {shown} | {doc.replace('|', chr(92) + '|')} |")
    return "\n".join(lines) + "\n"


def readme():
    text = (CHART / "README.md").read_text()
    head, rest = text.split(BEGIN)
    return head + BEGIN + values_table() + END + rest.split(END)[1]


def main(check):
    stale = []
    for path, text in ((CHART / "values.schema.json", values_schema()), (CHART / "README.md", readme())):
        if path.exists() and path.read_text() == text:
            continue
        stale.append(str(path.relative_to(HERE.parent)))
        if not check:
            path.write_text(text)
    if check and stale:
        sys.exit(f"stale: {', '.join(stale)}; run `python3 helm/gen.py`")
    print("written: " + ", ".join(stale) if stale else "generated files are up to date")


if __name__ == "__main__":
    main("--check" in sys.argv[1:])
