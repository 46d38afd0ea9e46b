# syntax=docker/dockerfile:1
# One binary in an image without shell, package manager and root. Build: docker build -t millstream:0.1.0 .

FROM rust:1.95-bookworm AS build
# librdkafka is built from source: make and a C++ compiler are in the base image, OpenSSL headers too; the rest comes with its crate.
# Without the default features: the embedded broker of `millstream dev` has no place in production.
WORKDIR /src
COPY . .
RUN --mount=type=cache,target=/usr/local/cargo/registry \
    --mount=type=cache,target=/target \
    CARGO_TARGET_DIR=/target cargo build --release --locked -p millstream-server --no-default-features \
    && install -D /target/release/millstream /out/millstream \
    && mkdir /out/data

# glibc, libstdc++, OpenSSL 3 and CA certificates of Debian 12, the release the binary was built on; user 65532.
FROM gcr.io/distroless/cc-debian12:nonroot
LABEL org.opencontainers.image.title="Millstream" \
      org.opencontainers.image.description="Stream processing on Kafka: tables, materialized views and derived topics, exactly once" \
      org.opencontainers.image.licenses="Apache-2.0"
COPY --from=build /out/millstream /usr/local/bin/millstream
COPY --from=build --chown=65532:65532 /out/data /var/lib/millstream
USER 65532:65532
WORKDIR /var/lib/millstream
# Data that may be lost; with a read-only root file system mount something writable here and on /tmp.
VOLUME /var/lib/millstream
EXPOSE 8080 8081
STOPSIGNAL SIGTERM
ENTRYPOINT ["/usr/local/bin/millstream"]
CMD ["serve", "--config", "/etc/millstream/millstream.yaml"]
