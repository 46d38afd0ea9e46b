#!/usr/bin/env bash
# Prints the folder of a Go that is new enough for the tools of tests and chart. An older Go (1.19 of Debian 12, say) fetches the newer one from the Go
# module proxy, once, into the cache. With --install a missing Go is installed from Debian first.
set -euo pipefail

needed=1.26
fetched=1.26.8
cache=${MILLSTREAM_TOOLS:-$HOME/.cache/millstream-tools}

die() { echo "go.sh: $*" >&2; exit 1; }

new_enough() { # binary
  local version
  version=$(GOTOOLCHAIN=local "$1" env GOVERSION 2>/dev/null) || return 1
  [ "$(printf '%s\n' "$needed" "${version#go}" | sort -V | head -1)" = "$needed" ]
}

found=$(command -v go || true)
for go in "$found" /usr/local/go/bin/go "$cache/go-$fetched/bin/go"; do
  if [ -x "$go" ] && new_enough "$go"; then dirname "$go"; exit 0; fi
done
[ -n "$found" ] || { [ ! -x /usr/local/go/bin/go ] || found=/usr/local/go/bin/go; }
if [ -z "$found" ] && [ "${1:-}" = --install ]; then
  command -v apt-get >/dev/null || die "Go is missing: install Go $needed or newer, https://go.dev/dl"
  { apt-get update -q && apt-get install -y -q --no-install-recommends golang-go; } >&2
  found=$(command -v go)
fi
[ -n "$found" ] || die "Go is missing: apt-get install golang-go (an old one fetches the newer by itself), or https://go.dev/dl"

# Not by GOTOOLCHAIN=auto: before 1.21 Go does not know it.
module=golang.org/toolchain@v0.0.1-go$fetched.linux-$("$found" env GOHOSTARCH)
echo "go.sh: $("$found" env GOVERSION) is older than $needed, fetching $module" >&2
mkdir -p "$cache"
work=$(mktemp -d "$cache/go.loading.XXXXXX")
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
echo 'module tools' >"$work/go.mod"
dir=$(cd "$work" && GOTOOLCHAIN=local GOFLAGS=-mod=mod "$found" mod download -json "$module" | sed -n 's/^\t*"Dir": "\(.*\)",*$/\1/p')
[ -d "$dir" ] || die "the Go module proxy did not give $module"
cp -r "$dir" "$work/go"
chmod -R u+w "$work/go"
# Module archives carry no permissions.
chmod +x "$work"/go/bin/* "$work"/go/pkg/tool/*/*
new_enough "$work/go/bin/go" || die "$module does not run here"
mv -T "$work/go" "$cache/go-$fetched" 2>/dev/null || [ -x "$cache/go-$fetched/bin/go" ] || die "cannot write $cache/go-$fetched"
echo "$cache/go-$fetched/bin"
