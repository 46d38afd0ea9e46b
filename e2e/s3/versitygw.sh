#!/usr/bin/env bash
# An S3 server for tests: versitygw over a folder, loopback only. Its put-if-absent is atomic, which not every S3 double's is.
# Owns: the binary in a cache outside the clone, one server per folder, its start and its end. Not here: buckets (a folder in DIR/data is one) and objects.
set -euo pipefail

VERSION=1.8.0
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
CACHE=${MILLSTREAM_TOOLS:-$HOME/.cache/millstream-tools}
BIN=$CACHE/bin/versitygw-$VERSION

usage() {
  cat >&2 <<'TEXT'
versitygw.sh install
versitygw.sh start --dir DIR [--port N] [--access-key KEY] [--secret-key SECRET] [--region us-east-1] [--bucket NAME ...] [--parent PID] [--timeout SECONDS]
versitygw.sh stop  --dir DIR [--kill]
  --port 0       (default) takes a free port; a folder that was used before gets its old one
  --bucket       is made if it does not exist
  --parent PID   the server is killed when that process is gone
  start prints "endpoint=http://127.0.0.1:PORT pid=PID" when the server answers
  keys are test and testtesttest unless given
TEXT
  exit 2
}

say() { echo "versitygw.sh: $*" >&2; }
die() { say "$*"; exit 1; }

# Built once. Two installs at a time both succeed: each builds into its own folder, and the first rename wins.
install() {
  [ -x "$BIN" ] && return 0
  local go tmp
  go=$(bash "$HERE/go.sh")
  mkdir -p "$CACHE/bin"
  tmp=$(mktemp -d "$CACHE/bin/building.XXXXXX")
  if ! GOBIN=$tmp GOFLAGS="-mod=mod" CGO_ENABLED=0 "$go/go" install -trimpath -ldflags "-s -w" "github.com/versity/versitygw/cmd/versitygw@v$VERSION" >"$tmp/log" 2>&1; then
    cat "$tmp/log" >&2
    rm -rf "$tmp"
    die "versitygw $VERSION could not be built"
  fi
  mv -T "$tmp/versitygw" "$BIN" || die "cannot write $BIN"
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

# The pid of the server of a folder, if it runs. A pid that now belongs to something else is not ours.
running_pid() {
  local pid
  pid=$(cat "$1/pid" 2>/dev/null) || return 1
  tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -qF "posix $1/data" || return 1
  echo "$pid"
}

# Starts the server of a folder on a given port. 0 = ready, 3 = the port was taken, 1 = anything else.
launch() {
  local dir=$1 port=$2 region=$3 parent=$4 timeout=$5 pid
  setsid nohup "$BIN" --port "127.0.0.1:$port" --region "$region" --keep-alive --quiet --health /health posix "$dir/data" </dev/null >"$dir/server.log" 2>&1 &
  pid=$!
  echo "$pid" >"$dir/pid"
  if [ -n "$parent" ]; then
    setsid nohup bash -c 'while kill -0 "$1" 2>/dev/null && kill -0 "$2" 2>/dev/null; do sleep 1; done
      kill -0 "$1" 2>/dev/null || kill -9 "$2"' watch "$parent" "$pid" </dev/null >/dev/null 2>&1 &
  fi
  local deadline=$((SECONDS + timeout))
  while ! healthy "$port"; do
    if ! kill -0 "$pid" 2>/dev/null; then
      grep -qi 'address already in use' "$dir/server.log" && return 3
      tail -20 "$dir/server.log" >&2
      return 1
    fi
    if [ $SECONDS -ge $deadline ]; then
      kill -9 "$pid"
      tail -20 "$dir/server.log" >&2
      say "the server was not ready after $timeout s"
      return 1
    fi
    sleep 0.05
  done
  # Another process may have answered on this port.
  kill -0 "$pid" 2>/dev/null || return 3
  echo "endpoint=http://127.0.0.1:$port pid=$pid"
}

healthy() {
  local status
  { exec 3<>"/dev/tcp/127.0.0.1/$1" && printf 'GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n' >&3 && read -r -t 2 status <&3; } 2>/dev/null || return 1
  exec 3>&-
  [[ $status == *" 200 "* ]]
}

start() {
  local dir="" port=0 region=us-east-1 parent="" timeout=30 buckets=() access=test secret=testtesttest
  while [ $# -gt 0 ]; do
    [ $# -ge 2 ] || usage
    case $1 in
      --dir) dir=$2 ;;
      --port) port=$2 ;;
      --access-key) access=$2 ;;
      --secret-key) secret=$2 ;;
      --region) region=$2 ;;
      --bucket) buckets+=("$2") ;;
      --parent) parent=$2 ;;
      --timeout) timeout=$2 ;;
      *) usage ;;
    esac
    shift 2
  done
  [ -n "$dir" ] || usage
  install
  mkdir -p "$dir/data"
  dir=$(cd "$dir" && pwd)
  if running_pid "$dir" >/dev/null; then die "a server runs in $dir already, pid $(running_pid "$dir")"; fi
  for bucket in "${buckets[@]}"; do mkdir -p "$dir/data/$bucket"; done
  export ROOT_ACCESS_KEY=$access ROOT_SECRET_KEY=$secret
  local try code my_port
  for try in 1 2 3; do
    my_port=$port
    if [ "$my_port" = 0 ] && [ $try = 1 ]; then my_port=$(cat "$dir/port" 2>/dev/null || echo 0); fi
    [ "$my_port" != 0 ] || my_port=$(free_port)
    echo "$my_port" >"$dir/port"
    code=0
    launch "$dir" "$my_port" "$region" "$parent" "$timeout" || code=$?
    [ $code = 0 ] && return 0
    [ $code = 3 ] && [ "$port" = 0 ] || break
  done
  [ $code = 3 ] && say "port $my_port is taken"
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
    [ $waited -lt 100 ] || { say "pid $pid did not stop in 10 s, killing it"; kill -9 "$pid" 2>/dev/null || true; }
    [ $waited -lt 200 ] || die "pid $pid cannot be stopped"
    sleep 0.1
    waited=$((waited + 1))
  done
  rm -f "$dir/pid"
}

command=${1:-}
[ $# -gt 0 ] && shift
case $command in
  install) install && echo "$BIN" ;;
  start) start "$@" ;;
  stop) stop "$@" ;;
  *) usage ;;
esac
