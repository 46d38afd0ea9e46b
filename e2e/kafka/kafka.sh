#!/usr/bin/env bash
# Apache Kafka from Maven's jars, for tests and benchmarks: one KRaft node, loopback only, no container engine.
# Owns: jars in a cache outside the clone, what a broker is started with and when it is ready. Not here: topics and data (clients make those), processes and
# ports (servers.sh).
set -euo pipefail

NAME=kafka.sh
VERSION=4.4.0
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$HERE/../servers.sh"
LIBS=$CACHE/kafka-$VERSION/libs

usage() {
  cat >&2 <<'TEXT'
kafka.sh install      (prints the folder of the jars, as does)
kafka.sh installed    (which fails if there is no Java, or no jars)
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

installed() {
  command -v java >/dev/null || die "Java is missing"
  [ -d "$LIBS" ] || die "the jars of kafka $VERSION are missing: run e2e/kafka/kafka.sh install"
  echo "$LIBS"
}

marked_as() { echo "$1/server.properties"; }
is_ready() { grep -q 'Kafka Server started' "$1/broker.log" 2>/dev/null && port_open "$2"; }
logs_of() { printf '%s\n' "$1/broker.log" "$1/stdout.log"; }

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
  local dir=$1 port=$2 heap=$3 parent=$4 timeout=$5 ephemeral=$6
  if [ ! -f "$dir/data/meta.properties" ]; then
    java -Xmx128m -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Dlog4j.configurationFile="$HERE/log4j2.properties" -Dmillstream.logs="$dir" \
      -cp "$LIBS/*" kafka.tools.StorageTool format -t "$(cluster_id)" -c "$dir/server.properties" >"$dir/format.log" 2>&1 ||
      { cat "$dir/format.log" >&2; return 1; }
  fi
  : >"$dir/broker.log"
  # The serial collector: with two cores the parallel ones only take time from the system under test.
  spawn_server "$dir" "$port" "$parent" "$ephemeral" "$timeout" "$dir/stdout.log" \
    java -Xms128m -Xmx"$heap" -XX:+UseSerialGC -XX:+ExitOnOutOfMemoryError -Djava.awt.headless=true \
    -Dlog4j.configurationFile="$HERE/log4j2.properties" -Dmillstream.logs="$dir" \
    -cp "$LIBS/*" kafka.Kafka "$dir/server.properties" || return $?
  echo "bootstrap=127.0.0.1:$port pid=$(cat "$dir/pid")"
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
  refuse_second "$dir"
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

run_command "$@"
