#!/usr/bin/env bash
# Builds helm and kubeconform from their Go modules and prepares the Kubernetes schemas, once, outside the clone.
# Everything lands in ${MILLSTREAM_TOOLS:-$HOME/.cache/millstream-tools}: bin/helm, bin/kubeconform, schemas/<version>/*.json.
# Cold: about 4 minutes on one core, most of it helm. Warm: nothing is built.
# Prints two lines: the folder with the binaries, the folder with the schemas.
set -euo pipefail

helm_version=v3.22.0
kubeconform_version=v0.8.0
kubernetes_version=v1.34.3 # schemas only; nothing of Kubernetes is built

here=$(cd "$(dirname "$0")" && pwd)
tools=${MILLSTREAM_TOOLS:-$HOME/.cache/millstream-tools}
bin=$tools/bin
schemas=$tools/schemas/$kubernetes_version
command -v go > /dev/null || { echo "helm/tools.sh needs Go 1.26 or newer: https://go.dev/dl" >&2; exit 1; }
mkdir -p "$bin"

# One package at a time and behind everything else: the machine is usually busy with cargo.
go_quietly() { GOFLAGS="-p=1 -mod=mod" CGO_ENABLED=0 nice -n 19 go "$@"; }

# A stamp names version and flags, so that a change above rebuilds and a half-written binary is never taken for a whole one.
build() { # name version package [ldflags]
  local name=$1 version=$2 package=$3 flags=${4:-} stamp="$2 ${4:-}"
  [ "$(cat "$bin/.$name.stamp" 2>/dev/null)" = "$stamp" ] && [ -x "$bin/$name" ] && return 0
  echo "building $name $version" >&2
  GOBIN=$bin go_quietly install -trimpath -ldflags "-s -w $flags" "$package@$version" >&2
  echo "$stamp" > "$bin/.$name.stamp"
}

# Without these flags helm takes every cluster for Kubernetes 1.20 and refuses the chart's kubeVersion.
minor=${kubernetes_version#v1.}
minor=${minor%%.*}
helm_flags="-X helm.sh/helm/v3/internal/version.version=$helm_version"
for package in pkg/chartutil pkg/lint/rules; do
  helm_flags+=" -X helm.sh/helm/v3/$package.k8sVersionMajor=1 -X helm.sh/helm/v3/$package.k8sVersionMinor=$minor"
done

build kubeconform "$kubeconform_version" github.com/yannh/kubeconform/cmd/kubeconform "-X main.version=$kubeconform_version"
build helm "$helm_version" helm.sh/helm/v3/cmd/helm "$helm_flags"

if [ ! -e "$schemas/_complete" ]; then
  echo "preparing the schemas of Kubernetes $kubernetes_version" >&2
  module=$(cd "$tools" && go_quietly mod download -json "k8s.io/kubernetes@$kubernetes_version" | python3 -c 'import json, sys; print(json.load(sys.stdin)["Dir"])')
  python3 "$here/schemas.py" "$module/api/openapi-spec/swagger.json" "$schemas" >&2
  touch "$schemas/_complete"
fi

printf '%s\n%s\n' "$bin" "$schemas"
