# The one door: what people type, `.ci/run` does too. `just` alone lists the targets.
# Needs Rust (rust-version in Cargo.toml), Java 17 and Maven for Apache Kafka, Go for the chart's tools. No Docker.

export CARGO_TARGET_DIR := env("CARGO_TARGET_DIR", env("HOME") / ".cache/millstream-target")

default:
    @just --list --unsorted

# What every change passes: the whole of CI.
verify:
    bash .ci/run

fmt:
    cargo fmt --all

# Formatting, clippy, documentation links; licences and crate borders where cargo-deny is installed.
lint:
    cargo fmt --all --check
    cargo clippy --workspace --all-targets -- -D warnings
    RUSTDOCFLAGS="-D warnings" cargo doc --workspace --no-deps --document-private-items
    if command -v cargo-deny >/dev/null; then cargo deny check; else echo "cargo-deny is not installed: skipped"; fi

# All tests, or those of one crate: `just test storage`.
test crate="":
    cargo test {{ if crate == "" { "--workspace" } else { "-p millstream-" + crate } }}

# End-to-end tests on a real Apache Kafka; a name picks one: `just e2e kills`.
e2e name="":
    bash e2e/kafka/kafka.sh install
    cargo test -p millstream-e2e -- {{ name }}

# The main job on screen: topic -> table -> view and derived topic, on the embedded broker.
demo:
    cargo run --release -- dev --demo

# The same on Apache Kafka.
demo-kafka:
    bash e2e/kafka/kafka.sh install
    cargo run -p millstream-e2e --example demo

# Benchmarks, each against a limit measured in the same run.
bench:
    bash e2e/kafka/kafka.sh install
    cargo bench -p millstream-e2e

# Chart: lint, render, validate against the Kubernetes schemas, refuse bad values.
helm-check:
    bash helm/check.sh

# Everything that is written by a program: config reference and schema, chart schema and README.
gen:
    cargo run -p millstream-config --bin millstream-config-gen
    python3 helm/gen.py

# Fails when something generated is stale.
gen-check:
    cargo test -p millstream-config generated
    python3 helm/gen.py --check
