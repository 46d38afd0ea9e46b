"""One Markdown table of what the clients saw, and the differences between the brokers. Input: DIR/<broker>/<client>, the lines of the scripts."""

import pathlib
import sys


def lines(path):
    found = {}
    for line in path.read_text().splitlines():
        parts = line.split(" ", 3)
        # A client's library may print, too.
        if len(parts) >= 3 and parts[0] == path.name:
            found[parts[1]] = (parts[2], parts[3] if len(parts) > 3 else "")
    return found


def differences(step, details):
    """What differs, by word (names in a list count as words of their own)."""
    words = [d.split("," if step == "config_names" else " ") for d in details]
    return [" ".join(w for w in mine if w not in other) or "nothing" for mine, other in (words, words[::-1])]


def main():
    root = pathlib.Path(sys.argv[1])
    brokers = sys.argv[2].split(",")
    clients = sys.argv[3].split(",")
    seen = {(b, c): lines(root / b / c) for b in brokers for c in clients}
    steps = list(dict.fromkeys(s for found in seen.values() for s in found))
    print(f"Cells: {' / '.join(brokers)}.\n")
    print("| step | " + " | ".join(clients) + " |")
    print("|---" * (len(clients) + 1) + "|")
    bad, notes = not steps, {}
    for step in steps:
        cells = []
        for client in clients:
            got = [seen[b, client].get(step, ("missing", "")) for b in brokers]
            bad |= any(outcome not in ("ok", "unsupported") for outcome, _ in got)
            differ = len(got) == 2 and got[0] != got[1]
            cells.append(" / ".join(outcome for outcome, _ in got) + (" *" if differ else ""))
            if differ:
                notes.setdefault((step, *differences(step, [d for _, d in got])), []).append(client)
        print(f"| `{step}` | " + " | ".join(cells) + " |")
    if notes:
        print("\n`*` differs:\n")
    for (step, first, second), who in notes.items():
        print(f"* `{step}` ({', '.join(who)}): {brokers[0]} says {first}; {brokers[1]} says {second}")
    sys.exit(bad)


main()
