# The binary `aivideo` in a small image that runs as nobody in particular:
#
#     docker build -t aivideo .        docker run --rm aivideo --help
#
# The console's pages are committed as they are served, and queries are checked against .sqlx, so that neither Node
# nor a database is needed. The classic builder and BuildKit both take this file.

# Every manifest of the workspace over empty sources, and over empty benches, which manifests name. This changes only
# when a manifest does, and Docker compares copied files by what is in them: whatever else changes, the compiled
# dependencies below are used again.
FROM debian:bookworm-slim AS manifests
WORKDIR /src
COPY . .
RUN find . -type f ! -name Cargo.toml ! -name Cargo.lock ! -path '*/benches/*' -delete \
 && find . -mindepth 2 -name Cargo.toml -printf '%h\n' | while read -r crate; do \
      mkdir -p "$crate/src" && touch "$crate/src/lib.rs" && echo 'fn main() {}' >"$crate/src/main.rs"; \
    done \
 && find . -path '*/benches/*' -type f -exec truncate --size 0 {} + \
 && find . -type d -empty -delete

FROM rust:1.95-bookworm AS build
# Names of functions stay for traces of panics; what only a debugger reads does not go into an image.
ENV SQLX_OFFLINE=true CARGO_PROFILE_RELEASE_DEBUG=none CARGO_PROFILE_RELEASE_STRIP=debuginfo
WORKDIR /src
COPY --from=manifests /src .
RUN cargo build --release --locked --package app --bin aivideo \
 && find . -mindepth 1 -maxdepth 1 ! -name target ! -name 'Cargo.*' -exec rm -rf {} +
COPY . .
# Cargo goes by the time of files, and these are older than the empty ones that it has seen.
RUN find . -path ./target -prune -o -name '*.rs' -exec touch {} + \
 && cargo build --release --locked --package app --bin aivideo

FROM debian:bookworm-slim
# A number, so that an orchestrator can see without looking inside that this is not root.
RUN groupadd --gid 10001 aivideo \
 && useradd --uid 10001 --gid aivideo --no-create-home --home-dir /var/lib/aivideo --shell /usr/sbin/nologin aivideo \
 && install -d -m 755 -o aivideo -g aivideo /var/lib/aivideo /var/lib/aivideo/assets /var/lib/aivideo/mock-provider \
 && install -d -m 700 -o aivideo -g aivideo /var/lib/aivideo/secrets /var/lib/aivideo/database
COPY --from=build /src/target/release/aivideo /usr/local/bin/aivideo
USER 10001:10001
WORKDIR /var/lib/aivideo
ENV AIVIDEO_HTTP_ADDR=0.0.0.0:8080 AIVIDEO_STORAGE_URL=file:///var/lib/aivideo/assets
EXPOSE 8080
HEALTHCHECK --interval=5s --timeout=6s --start-period=30s --retries=3 CMD ["aivideo", "health"]
ENTRYPOINT ["aivideo"]
CMD ["serve"]
