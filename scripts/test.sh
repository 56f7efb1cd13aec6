#!/usr/bin/env bash
# Every test there is: formatting, lints, unit and integration tests against real servers of their own, and the
# browser. `make test` and CI call this. What fails does not keep the rest from running; the last line counts.
set -uo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh
export SQLX_OFFLINE=true CARGO_TERM_COLOR=${CARGO_TERM_COLOR:-never}
# Most tests wait for servers and not for a CPU, so one more than there are cores runs at a time.
export RUST_TEST_THREADS=${RUST_TEST_THREADS:-$(($(nproc) + 1))}
# A developer's settings must not reach the tests.
unset DATABASE_URL REDIS_URL QUEUE_URL RUST_LOG
for name in $(compgen -e AIVIDEO_); do unset "$name"; done

scripts/install.sh test || exit 1
mkdir -p .local/test
log=.local/test/test.log passed=0 failed=0

step() { # step NAME COMMAND...: one check that passes or fails as a whole
  local name=$1 from=$SECONDS; shift
  echo "== $name"
  if "$@"; then passed=$((passed + 1)); else failed=$((failed + 1)); echo "FAILED: $name"; fi
  echo "== $name: $((SECONDS - from)) s"
}

count() { # adds the closing lines of cargo's test binaries; a run that ended without any has failed as a whole
  local lines
  lines=$(grep -E '^test result: ' "$log") || { failed=$((failed + 1)); return; }
  passed=$((passed + $(sed -E 's/.* ([0-9]+) passed.*/\1/' <<<"$lines" | paste -sd+ | bc_)))
  failed=$((failed + $(sed -E 's/.* ([0-9]+) failed.*/\1/' <<<"$lines" | paste -sd+ | bc_)))
}
bc_() { echo $(($(cat))); }

step "formatting" cargo fmt --all --check
step "lints" cargo clippy --workspace --all-targets --locked --quiet -- -D warnings
step "documentation" env RUSTDOCFLAGS="-D warnings" \
  cargo doc --workspace --no-deps --document-private-items --locked --quiet

echo "== build"
if ! cargo build --workspace --all-targets --locked; then
  echo "$passed passed, $((failed + 1)) failed"
  exit 1
fi

stop() { scripts/test-services.sh stop; }
trap stop EXIT
trap 'exit 130' INT TERM
services=$(scripts/test-services.sh start) || { echo "$passed passed, $((failed + 1)) failed"; exit 1; }
eval "$services"

from=$SECONDS
echo "== cargo test"
cargo test --workspace --locked --no-fail-fast 2>&1 | tee "$log"
status=${PIPESTATUS[0]} before=$failed
count
# A binary that died without its closing line fails the run although no line counts it.
if [ "$status" != 0 ] && [ "$failed" = "$before" ]; then failed=$((failed + 1)); fi
echo "== cargo test: $((SECONDS - from)) s"

target=$(cargo metadata --format-version 1 --no-deps --offline | jq -r .target_directory)
step "browser" env AIVIDEO_BIN="$target/debug/aivideo" bash e2e/run.sh

echo
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
