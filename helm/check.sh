#!/usr/bin/env bash
# Checks the chart without a cluster and, once the tools are built, without a network: generated files, strict lint, every ci values file rendered
# and validated against the Kubernetes schemas, and every bad values file refused with its message.
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
chart=$here/millstream
tools=$("$here/tools.sh")
PATH=${tools%%$'\n'*}:$PATH
schemas=${tools##*$'\n'}
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
failures=0

fail() { echo "FAILED: $*"; failures=$((failures + 1)); }
render() { helm template my-release "$chart" --namespace streaming "$@"; }
# Looks for a fixed text in a rendered file; the label says what it proves.
has() { grep -qF -- "$3" "$out/$1.yaml" || fail "$1: $2: no line with: $3"; }
has_not() { ! grep -qF -- "$3" "$out/$1.yaml" || fail "$1: $2: unexpected: $3"; }

echo "== generated files"
python3 "$here/gen.py" --check || fail "generated files"

for values in "$chart"/ci/*-values.yaml; do
  name=$(basename "$values" -values.yaml)
  echo "== $name"
  helm lint --strict --quiet "$chart" --values "$values" || fail "$name: lint"
  if ! render --values "$values" > "$out/$name.yaml"; then fail "$name: template"; continue; fi
  # ServiceMonitor is the Prometheus operator's, so the Kubernetes schemas do not know it.
  kubeconform -strict -summary -skip ServiceMonitor \
    -schema-location "$schemas/{{ .ResourceKind }}{{ .KindSuffix }}.json" "$out/$name.yaml" || fail "$name: kubeconform"
done

echo "== what the rendered files must say"
has default "probes ask the process" "path: /livez"
has default "readiness asks the dependencies" "path: /readyz"
has default "restricted security" "readOnlyRootFilesystem: true"
has default "restricted security" "runAsNonRoot: true"
has default "data may be lost with the pod" "emptyDir:"
has default "the config is there as it is" "url: s3://my-bucket/millstream"
has_not default "off unless asked for" "kind: NetworkPolicy"
has_not default "off unless asked for" "kind: ServiceMonitor"
has_not minimal "off when asked" "kind: PodDisruptionBudget"
has_not minimal "off when asked" "kind: ServiceAccount"
has existing-secret "the variable for \${KAFKA_PASSWORD}" "name: KAFKA_PASSWORD"
# shellcheck disable=SC2016 # the reference itself is looked for
has existing-secret "the config refers, it does not hold" 'sasl_password: ${KAFKA_PASSWORD}'
has existing-secret "the Secret as files" "secretName: millstream-kafka"
has existing-secret "the image by digest" "registry.example.com/millstream@sha256:"
has network-policy "closed" "kind: NetworkPolicy"
has network-policy "a volume of its own" "volumeClaimTemplates:"
has network-policy "spread finds its pods" "labelSelector:"
checksum() { grep -F checksum/config "$1"; }
render --values "$chart/ci/default-values.yaml" --set config.stream.barrier_interval=2s > "$out/changed.yaml"
[ "$(checksum "$out/default.yaml")" != "$(checksum "$out/changed.yaml")" ] || fail "a change of config does not restart the pod"
render --values "$chart/ci/default-values.yaml" --set podLabels.x=y > "$out/label.yaml"
[ "$(checksum "$out/default.yaml")" = "$(checksum "$out/label.yaml")" ] || fail "a label restarts the pod as if config had changed"

echo "== bad values are refused"
for values in "$here"/bad/*.yaml; do
  name=$(basename "$values" .yaml)
  expected=$(sed -n 's/^#! //p' "$values")
  if render --values "$values" > /dev/null 2> "$out/error"; then
    fail "$name: accepted"
  elif grep -qF -- "$expected" "$out/error"; then
    echo "refused: $name: $expected"
  else
    fail "$name: refused with another message than: $expected"
    cat "$out/error"
  fi
done
render > /dev/null 2>&1 && fail "the bare chart installs without a bucket"

[ "$failures" -eq 0 ] || { echo "helm check: $failures failures"; exit 1; }
echo "helm check: all good"
