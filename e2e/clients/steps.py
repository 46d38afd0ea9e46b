"""Runs the steps of a client script and prints one line for each. Owns: lines, deadlines. Not here: what a step does."""

import sys
import time
import traceback

DEADLINE = 60.0
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class Unsupported(Exception):
    """The client cannot do it."""


class Script:
    def __init__(self, client):
        self.client = client
        self.failed = False

    def step(self, name, work, *args):
        try:
            outcome, detail = "ok", work(*args)
        except Unsupported as e:
            outcome, detail = "unsupported", str(e)
        except Exception as e:
            traceback.print_exc()
            outcome, detail, self.failed = "FAIL", f"{type(e).__name__}: {e}", True
        print(self.client, name, outcome, " ".join(str(detail).split()), flush=True)


def eventually(what, check, deadline=DEADLINE):
    """Asks until the answer is true."""
    end = time.monotonic() + deadline
    while True:
        got = check()
        if got:
            return got
        if time.monotonic() > end:
            raise TimeoutError(f"not in time: {what}")
        time.sleep(0.02)


def expect(condition, what):
    if not condition:
        raise AssertionError(what)


def arguments():
    if len(sys.argv) != 3:
        sys.exit(f"usage: {sys.argv[0]} BOOTSTRAP PREFIX")
    return sys.argv[1], sys.argv[2]
