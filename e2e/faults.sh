#!/usr/bin/env bash
# Proves what is promised for the time when a dependency is gone, with real servers, and prints a table row by row.
#
#   e2e/faults.sh [arguments of `faults`]
#   e2e/faults.sh --row control --way freeze --seconds 8
#
# Builds what it needs in the development profile; AIVIDEO_BIN names another binary of the platform. PostgreSQL, Redis and,
# for the queue's row, Java 17 have to be installed (scripts/install.sh test). Exit code 1: a promise was broken.
set -euo pipefail
binary=${AIVIDEO_BIN:+$(realpath "$AIVIDEO_BIN")}
cd "$(dirname "$0")/.."
export SQLX_OFFLINE=true
target=${CARGO_TARGET_DIR:-target}/debug

build=(--package chaos --bin faults)
if [ -z "$binary" ]; then
  build+=(--package app --bin aivideo)
  binary=$target/aivideo
fi
cargo build --locked "${build[@]}" >&2
exec "$target/faults" --aivideo "$binary" "$@"
