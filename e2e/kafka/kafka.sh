#!/usr/bin/env bash
# Apache Kafka from Maven's jars, for tests and benchmarks: one KRaft node, loopback only, no container engine.
# Owns: jars in a cache outside the clone, one broker per folder, its start and its end. Not here: topics and data (clients make those).
set -euo pipefail

VERSION=4.4.0
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
CACHE=${MILLSTREAM_TOOLS:-$HOME/.cache/millstream-tools}
LIBS=$CACHE/kafka-$VERSION/libs

usage() {
  cat >&2 <<'TEXT'
kafka.sh install
kafka.sh start --dir DIR [--port N] [--controller-port N] [--heap 1g] [--proxied PORT:ADVERTISED] [--parent PID]
               [--ephemeral] [--timeout SECONDS] [--property KEY=VALUE ...]
kafka.sh stop  --dir DIR [--kill]
  --port 0       (default) takes free ports; a folder that was used before gets its old ones
  --proxied      a second listener on PORT that tells clients to come to ADVERTISED (put a fault proxy there)
  --parent PID   the broker is killed when that process is gone
  --ephemeral    with --parent: the folder is deleted then, too
  start prints "bootstrap=127.0.0.1:PORT pid=PID" when the broker answers
TEXT
  exit 2
}

say() { echo "kafka.sh: $*" >&2; }
die() { say "$*"; exit 1; }

# The jars, once. Two installs at a time both succeed: each loads into its own folder, and the first rename wins.
install() {
  [ -d "$LIBS" ] && return 0
  command -v mvn >/dev/null || die "mvn is missing (Debian: apt-get install maven)"
  mkdir -p "$CACHE/kafka-$VERSION"
  local tmp
  tmp=$(mktemp -d "$CACHE/kafka-$VERSION/loading.XXXXXX")
  if ! mvn -q -B -f "$HERE/pom.xml" dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$tmp/libs" >"$tmp/mvn.log" 2>&1; then
    cat "$tmp/mvn.log" >&2
    rm -rf "$tmp"
    die "the jars of kafka $VERSION could not be loaded"
  fi
  mv -T "$tmp/libs" "$LIBS" 2>/dev/null || [ -d "$LIBS" ] || die "cannot write $LIBS"
  rm -rf "$tmp"
}

port_open() { (exec 3<>"/dev/tcp/127.0.0.1/$1") 2>/dev/null; }

# Below the range from which the kernel gives ports to clients, so that no connection of a test takes it meanwhile.
free_port() {
  local port
  for _ in $(seq 100); do
    port=$((20000 + (RANDOM << 1 | RANDOM & 1) % 12000))
    port_open "$port" || { echo "$port"; return 0; }
  done
  die "no free port between 20000 and 32000"
}

# The pid of the broker of a folder, if it runs. A pid that now belongs to something else is not ours.
running_pid() {
  local pid
  pid=$(cat "$1/pid" 2>/dev/null) || return 1
  tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -qF "$1/server.properties" || return 1
  echo "$pid"
}

write_properties() {
  local dir=$1 port=$2 controller=$3 proxied=$4 listeners advertised map
  listeners="PLAINTEXT://127.0.0.1:$port,CONTROLLER://127.0.0.1:$controller"
  advertised="PLAINTEXT://127.0.0.1:$port"
  map="PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT"
  if [ -n "$proxied" ]; then
    listeners+=",PROXIED://127.0.0.1:${proxied%%:*}"
    advertised+=",PROXIED://127.0.0.1:${proxied##*:}"
    map+=",PROXIED:PLAINTEXT"
  fi
  cat <<TEXT
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$controller
listeners=$listeners
advertised.listeners=$advertised
listener.security.protocol.map=$map
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs=$dir/data
auto.create.topics.enable=false
num.network.threads=2
num.io.threads=4
num.recovery.threads.per.data.dir=1
background.threads=2
default.replication.factor=1
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
share.coordinator.state.topic.num.partitions=1
group.initial.rebalance.delay.ms=0
# Retention, compaction and expired transactions are seen within a second or two, not minutes.
log.initial.task.delay.ms=500
log.retention.check.interval.ms=1000
log.segment.delete.delay.ms=1000
log.cleaner.backoff.ms=500
log.cleaner.dedupe.buffer.size=16777216
transaction.abort.timed.out.transaction.cleanup.interval.ms=1000
TEXT
}

# A cluster id is 16 random bytes in URL-safe base64. The first letter is fixed: an id that begins with a dash reads as an option.
cluster_id() { echo "M$(head -c 16 /dev/urandom | base64 | tr '+/' '-_' | cut -c2-22)"; }

# Starts the broker of a folder on given ports. 0 = ready, 3 = a port was taken, 1 = anything else.
launch() {
  local dir=$1 port=$2 heap=$3 parent=$4 timeout=$5 ephemeral=$6 pid
  if [ ! -f "$dir/data/meta.properties" ]; then
    java -Xmx128m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dlog4j.configurationFile="$HERE/log4j2.properties" -Dmillstream.logs="$dir" \
      -cp "$LIBS/*" kafka.tools.StorageTool format -t "$(cluster_id)" -c "$dir/server.properties" >"$dir/format.log" 2>&1 ||
      { cat "$dir/format.log" >&2; return 1; }
  fi
  : >"$dir/broker.log"
  # The serial collector: with two cores the parallel ones only take time from the system under test.
  setsid nohup java -Xms128m -Xmx"$heap" -XX:+UseSerialGC -XX:+ExitOnOutOfMemoryError -Djava.awt.headless=true \
    -Dlog4j.configurationFile="$HERE/log4j2.properties" -Dmillstream.logs="$dir" \
    -cp "$LIBS/*" kafka.Kafka "$dir/server.properties" </dev/null >"$dir/stdout.log" 2>&1 &
  pid=$!
  echo "$pid" >"$dir/pid"
  if [ -n "$parent" ]; then
    setsid nohup bash -c 'while kill -0 "$1" 2>/dev/null && kill -0 "$2" 2>/dev/null; do sleep 1; done
      kill -0 "$1" 2>/dev/null || { kill -9 "$2"; [ -z "$3" ] || { sleep 1; rm -rf "$3"; }; }' \
      watch "$parent" "$pid" "${ephemeral:+$dir}" </dev/null >/dev/null 2>&1 &
  fi
  local deadline=$((SECONDS + timeout))
  while ! { grep -q 'Kafka Server started' "$dir/broker.log" 2>/dev/null && port_open "$port"; }; do
    if ! kill -0 "$pid" 2>/dev/null; then
      grep -qi 'address already in use\|failed to bind' "$dir/broker.log" "$dir/stdout.log" && return 3
      tail -20 "$dir/broker.log" "$dir/stdout.log" >&2
      return 1
    fi
    if [ $SECONDS -ge $deadline ]; then
      kill -9 "$pid"
      tail -20 "$dir/broker.log" >&2
      say "the broker was not ready after $timeout s"
      return 1
    fi
    sleep 0.1
  done
  echo "bootstrap=127.0.0.1:$port pid=$pid"
}

recorded_port() { sed -n "s#^listeners=.*$2://127.0.0.1:\([0-9]*\).*#\1#p" "$1/server.properties" 2>/dev/null || true; }

start() {
  local dir="" port=0 controller=0 heap=1g parent="" proxied="" timeout=90 ephemeral="" properties=()
  while [ $# -gt 0 ]; do
    if [ "$1" = --ephemeral ]; then ephemeral=1; shift; continue; fi
    [ $# -ge 2 ] || usage
    case $1 in
      --dir) dir=$2 ;;
      --port) port=$2 ;;
      --controller-port) controller=$2 ;;
      --heap) heap=$2 ;;
      --parent) parent=$2 ;;
      --proxied) proxied=$2 ;;
      --timeout) timeout=$2 ;;
      --property) properties+=("$2") ;;
      *) usage ;;
    esac
    shift 2
  done
  [ -n "$dir" ] || usage
  install
  mkdir -p "$dir"
  dir=$(cd "$dir" && pwd)
  if running_pid "$dir" >/dev/null; then die "a broker runs in $dir already, pid $(running_pid "$dir")"; fi
  local try code my_port my_controller
  for try in 1 2 3; do
    my_port=$port my_controller=$controller
    if [ "$my_port" = 0 ] && [ $try = 1 ]; then my_port=$(recorded_port "$dir" PLAINTEXT); my_port=${my_port:-0}; fi
    if [ "$my_controller" = 0 ] && [ $try = 1 ]; then my_controller=$(recorded_port "$dir" CONTROLLER); my_controller=${my_controller:-0}; fi
    [ "$my_port" != 0 ] || my_port=$(free_port)
    while [ "$my_controller" = 0 ] || [ "$my_controller" = "$my_port" ]; do my_controller=$(free_port); done
    { write_properties "$dir" "$my_port" "$my_controller" "$proxied"; printf '%s\n' "${properties[@]}"; } >"$dir/server.properties"
    code=0
    launch "$dir" "$my_port" "$heap" "$parent" "$timeout" "$ephemeral" || code=$?
    [ $code = 0 ] && return 0
    [ $code = 3 ] && { [ "$port" = 0 ] || [ "$controller" = 0 ]; } || break
  done
  [ $code = 3 ] && say "port $my_port or $my_controller is taken"
  exit 1
}

stop() {
  local dir="" kill=""
  while [ $# -gt 0 ]; do
    case $1 in
      --dir) dir=${2:-}; shift ;;
      --kill) kill=1 ;;
      *) usage ;;
    esac
    shift
  done
  [ -n "$dir" ] || usage
  [ -d "$dir" ] || return 0
  dir=$(cd "$dir" && pwd)
  local pid waited=0
  pid=$(running_pid "$dir") || { rm -f "$dir/pid"; return 0; }
  if [ -n "$kill" ]; then kill -9 "$pid"; else kill "$pid"; fi
  while running_pid "$dir" >/dev/null; do
    [ $waited -lt 300 ] || { say "pid $pid did not stop in 30 s, killing it"; kill -9 "$pid" 2>/dev/null || true; }
    [ $waited -lt 400 ] || die "pid $pid cannot be stopped"
    sleep 0.1
    waited=$((waited + 1))
  done
  rm -f "$dir/pid"
}

command=${1:-}
[ $# -gt 0 ] && shift
case $command in
  install) install && echo "$LIBS" ;;
  start) start "$@" ;;
  stop) stop "$@" ;;
  *) usage ;;
esac
