# Servers of tests, one process a folder. Sourced by kafka/kafka.sh and s3/versitygw.sh, which know what a server is and when it is ready.
# Owns: free ports, the pid file of a folder, ending a server with its parent, waiting until it is ready, stopping it.
#
# The script that sources it sets NAME, and defines
#   marked_as DIR          text that only the server of this folder has in its command line
#   is_ready DIR PORT      whether it answers
#   logs_of DIR            its log files
# shellcheck shell=bash

CACHE=${MILLSTREAM_TOOLS:-$HOME/.cache/millstream-tools}

say() { echo "$NAME: $*" >&2; }
die() { say "$*"; exit 1; }

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
  tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -qF -- "$(marked_as "$1")" || return 1
  echo "$pid"
}

refuse_second() { if running_pid "$1" >/dev/null; then die "a server runs in $1 already, pid $(running_pid "$1")"; fi; }

# Starts a command as the server of a folder; its output goes to a file. With a parent it is killed when that process is gone, and if ephemeral is not
# empty the folder is deleted then, too.
spawn_server() { # dir port parent ephemeral timeout output command..
  local dir=$1 port=$2 parent=$3 ephemeral=$4 timeout=$5 output=$6 pid
  shift 6
  setsid nohup "$@" </dev/null >"$output" 2>&1 &
  pid=$!
  echo "$pid" >"$dir/pid"
  if [ -n "$parent" ]; then
    setsid nohup bash -c 'while kill -0 "$1" 2>/dev/null && kill -0 "$2" 2>/dev/null; do sleep 1; done
      kill -0 "$1" 2>/dev/null || { kill -9 "$2" 2>/dev/null; [ -z "$3" ] || { sleep 1; rm -rf "$3"; }; }' \
      watch "$parent" "$pid" "${ephemeral:+$dir}" </dev/null >/dev/null 2>&1 &
  fi
  await_ready "$dir" "$port" "$pid" "$timeout"
}

# 0 = ready, 3 = a port was taken, 1 = anything else.
await_ready() { # dir port pid timeout
  local dir=$1 port=$2 pid=$3 deadline=$((SECONDS + $4)) logs
  mapfile -t logs < <(logs_of "$dir")
  while ! is_ready "$dir" "$port"; do
    if ! kill -0 "$pid" 2>/dev/null; then
      grep -qi 'address already in use\|failed to bind' "${logs[@]}" && return 3
      tail -20 "${logs[@]}" >&2
      return 1
    fi
    if [ $SECONDS -ge $deadline ]; then
      kill -9 "$pid"
      tail -20 "${logs[@]}" >&2
      say "the server was not ready after $4 s"
      return 1
    fi
    sleep 0.05
  done
  # Another process may have answered on this port.
  kill -0 "$pid" 2>/dev/null || return 3
}

stop() { # --dir DIR [--kill]
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
    [ $waited -lt 600 ] || { say "pid $pid did not stop in 30 s, killing it"; kill -9 "$pid" 2>/dev/null || true; }
    [ $waited -lt 800 ] || die "pid $pid cannot be stopped"
    sleep 0.05
    waited=$((waited + 1))
  done
  rm -f "$dir/pid"
}

# install | installed | start .. | stop ..; the script defines the first three.
run_command() {
  local command=${1:-}
  [ $# -gt 0 ] && shift
  case $command in
    install) install && installed ;;
    installed) installed ;;
    start) start "$@" ;;
    stop) stop "$@" ;;
    *) usage ;;
  esac
}
