#!/usr/bin/env bash
# The same script with four clients on the embedded broker and on Apache Kafka; prints one Markdown table. What the steps are: README.md.
# Owns: the clients' packages (in the cache) and the brokers of a run. Ends with 1 if a step or a client failed.
set -euo pipefail

HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
ROOT=$(cd "$HERE/../.." && pwd)
CACHE=${MILLSTREAM_TOOLS:-$HOME/.cache/millstream-tools}
# Versions are pinned, so that a difference is one of the brokers. Raise the number in the folder's name with them.
PACKAGES="confluent-kafka==2.16.1 kafka-python==3.0.12 python-snappy==0.7.3 lz4==4.4.5 zstandard==0.25.0"
SITE=$CACHE/clients-python-1
ALL=(librdkafka java franz-go kafka-python)

say() { echo "run.sh: $*" >&2; }
die() { say "$*"; exit 2; }

usage() {
  cat >&2 <<'TEXT'
run.sh [both|embedded|kafka] [CLIENT ...]     clients: librdkafka java franz-go kafka-python (all)
run.sh at HOST:PORT [CLIENT ...]              a broker that runs already
  EMBEDDED_BROKER=FILE   the binary to test (else it is built)
  CLIENTS_OUT=DIR        keeps the lines of the scripts, and what they said on stderr
TEXT
  exit 2
}

wanted() { local c; for c in "${clients[@]}"; do [ "$c" != "$1" ] || return 0; done; return 1; }

python_packages() {
  [ ! -d "$SITE" ] || return 0
  local loading
  mkdir -p "$CACHE"
  loading=$(mktemp -d "$CACHE/clients-python.loading.XXXXXX")
  # shellcheck disable=SC2086
  python3 -m pip install -q --disable-pip-version-check --root-user-action ignore --target "$loading" $PACKAGES >&2
  # Two runs at a time both succeed: the first rename wins.
  mv -T "$loading" "$SITE" 2>/dev/null || { rm -rf "$loading"; [ -d "$SITE" ] || die "cannot write $SITE"; }
}

prepare() {
  if wanted librdkafka || wanted kafka-python; then python_packages; fi
  if wanted java; then jars=$(bash "$ROOT/e2e/kafka/kafka.sh" install); fi
  if wanted franz-go; then
    local go
    go=$(bash "$ROOT/e2e/s3/go.sh")
    (cd "$HERE/franz" && PATH="$go:$PATH" GOTOOLCHAIN=local go build -o "$work/franz" .) >&2
  fi
}

script() { # client bootstrap prefix
  case $1 in
    librdkafka) PYTHONPATH=$SITE python3 "$HERE/librdkafka.py" "$2" "$3" ;;
    kafka-python) PYTHONPATH=$SITE python3 "$HERE/kafka_python.py" "$2" "$3" ;;
    java) java -Xmx256m -XX:TieredStopAtLevel=1 -Dlog4j2.level=ERROR -cp "$jars/*" "$HERE/Clients.java" "$2" "$3" ;;
    franz-go) "$work/franz" "$2" "$3" ;;
  esac
}

export -f script
run_clients() { # broker bootstrap
  local broker=$1 bootstrap=$2 client prefix
  mkdir -p "$out/$broker"
  for client in "${clients[@]}"; do
    # New names each time: a broker that runs already may have seen a run before.
    prefix=$client-$(date +%s)
    say "$client on $broker ($bootstrap)"
    HERE=$HERE SITE=$SITE jars=${jars:-} work=$work timeout 600 bash -c 'script "$@"' script "$client" "$bootstrap" "$prefix" \
      >"$out/$broker/$client" 2>"$out/$broker/$client.err" ||
      { say "$client ended with $?: $(tail -3 "$out/$broker/$client.err")"; failed=1; }
    grep "^$client [a-z_]* FAIL" "$out/$broker/$client" >&2 || true
  done
}

embedded() {
  local binary=${EMBEDDED_BROKER:-} pid
  if [ -z "$binary" ]; then
    (cd "$ROOT" && cargo build -q -p millstream-broker --bin embedded-broker) >&2
    binary=$(cd "$ROOT" && cargo metadata -q --format-version 1 --no-deps | sed 's/.*"target_directory":"\([^"]*\)".*/\1/')/debug/embedded-broker
  fi
  "$binary" --data "$work/embedded" >"$work/embedded.out" 2>"$work/embedded.err" &
  pid=$!
  pids+=("$pid")
  local deadline=$((SECONDS + 30))
  until grep -q '^bootstrap=' "$work/embedded.out"; do
    kill -0 "$pid" 2>/dev/null || die "the embedded broker ended: $(cat "$work/embedded.err")"
    [ $SECONDS -lt $deadline ] || die "the embedded broker was not ready after 30 s"
    sleep 0.05
  done
  run_clients embedded "$(sed -n 's/^bootstrap=\([^ ]*\).*/\1/p' "$work/embedded.out")"
}

kafka() {
  local started
  started=$(bash "$ROOT/e2e/kafka/kafka.sh" start --dir "$work/kafka" --parent $$)
  run_clients kafka "$(sed 's/^bootstrap=\([^ ]*\).*/\1/' <<<"$started")"
}

work=$(mktemp -d "${TMPDIR:-/tmp}/millstream-clients.XXXXXX")
out=${CLIENTS_OUT:-$work/out}
pids=()
failed=0
cleanup() {
  local pid
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null && wait "$pid" || true; done
  bash "$ROOT/e2e/kafka/kafka.sh" stop --dir "$work/kafka" --kill || true
  rm -rf "$work"
}
trap cleanup EXIT

what=${1:-both}
[ $# -eq 0 ] || shift
if [ "$what" = at ]; then bootstrap=${1:-}; [ -n "$bootstrap" ] || usage; shift; fi
clients=("$@")
[ ${#clients[@]} -gt 0 ] || clients=("${ALL[@]}")
for client in "${clients[@]}"; do case " ${ALL[*]} " in *" $client "*) ;; *) usage ;; esac; done
prepare
case $what in
  both) embedded; kafka; brokers=embedded,kafka ;;
  embedded) embedded; brokers=embedded ;;
  kafka) kafka; brokers=kafka ;;
  at) run_clients given "$bootstrap"; brokers=given ;;
  *) usage ;;
esac
python3 "$HERE/table.py" "$out" "$brokers" "$(IFS=,; echo "${clients[*]}")" || failed=1
exit "$failed"
