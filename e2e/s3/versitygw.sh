#!/usr/bin/env bash
# An S3 server for tests: versitygw over a folder, loopback only. Its put-if-absent is atomic, which not every S3 double's is.
# Owns: the binary in a cache outside the clone, what a server is started with and when it is ready. Not here: buckets (a folder in DIR/data is one) and
# objects, processes and ports (servers.sh).
set -euo pipefail

NAME=versitygw.sh
VERSION=1.8.0
HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
. "$HERE/../servers.sh"
BIN=$CACHE/bin/versitygw-$VERSION

usage() {
  cat >&2 <<'TEXT'
versitygw.sh install      (prints the binary, as does)
versitygw.sh installed    (which fails if it is not there)
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

installed() {
  [ -x "$BIN" ] || die "versitygw $VERSION is missing: run e2e/s3/versitygw.sh install, which needs Go"
  echo "$BIN"
}

marked_as() { echo "posix $1/data"; }
logs_of() { echo "$1/server.log"; }

is_ready() {
  local status
  { exec 3<>"/dev/tcp/127.0.0.1/$2" && printf 'GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n' >&3 && read -r -t 2 status <&3; } 2>/dev/null || return 1
  exec 3>&-
  [[ $status == *" 200 "* ]]
}

# Starts the server of a folder on a given port. 0 = ready, 3 = the port was taken, 1 = anything else.
launch() {
  local dir=$1 port=$2 region=$3 parent=$4 timeout=$5
  spawn_server "$dir" "$port" "$parent" "" "$timeout" "$dir/server.log" \
    "$BIN" --port "127.0.0.1:$port" --region "$region" --keep-alive --quiet --health /health posix "$dir/data" || return $?
  echo "endpoint=http://127.0.0.1:$port pid=$(cat "$dir/pid")"
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
  refuse_second "$dir"
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

run_command "$@"
