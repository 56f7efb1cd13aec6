#!/usr/bin/env bash
# Runs every browser test and prints `N passed, N failed` at the end.
#
#   e2e/run.sh [arguments of `playwright test`]
#
# The tests against a running system need one of
#   AIVIDEO_BIN=target/debug/aivideo     a demo is started from it in a folder of its own, and stopped
#   AIVIDEO_DEMO_JSON=FILE               the JSON line of a demo that runs already (`aivideo demo --json`)
# and are skipped without. No Rust is built here. CHROMIUM names another browser than Debian's.
set -euo pipefail
cd "$(dirname "$0")"
console=../crates/api/console

browser=${CHROMIUM:-$(command -v chromium || true)}
if [ -z "$browser" ]; then
  echo "Chromium is missing: apt-get install chromium (or set CHROMIUM to one)" >&2
  exit 1
fi
export CHROMIUM="$browser"
for tool in node npm; do
  if ! command -v "$tool" >/dev/null; then
    echo "$tool is missing: apt-get install nodejs npm" >&2
    exit 1
  fi
done

# npm ci only when the lock file is not the one that was installed.
install() {
  local folder=$1
  if ! cmp -s "$folder/package-lock.json" "$folder/node_modules/.installed-lock"; then
    (cd "$folder" && npm ci --no-audit --no-fund --loglevel=error)
    cp "$folder/package-lock.json" "$folder/node_modules/.installed-lock"
  fi
}

# The tools want Node 22.12; npm has it as a package where the system's is older.
node=node
if ! node -e 'const [a, b] = process.versions.node.split(".").map(Number); process.exit(a > 22 || (a === 22 && b >= 12) ? 0 : 1)'; then
  newer=node_modules/.newer-node
  install . 2> >(grep -v EBADENGINE >&2)
  if [ ! -x "$newer/node_modules/node/bin/node" ]; then
    npm install --prefix "$newer" --no-save --no-audit --no-fund --loglevel=error "node@24" >/dev/null
  fi
  node="$PWD/$newer/node_modules/node/bin/node"
  PATH="$(dirname "$node"):$PATH"
  export PATH
fi
install .
install "$console"

if [ -n "${AIVIDEO_BIN:-}" ]; then
  AIVIDEO_BIN=$(cd "$OLDPWD" && realpath "$AIVIDEO_BIN")
  export AIVIDEO_BIN
fi
if [ -n "${AIVIDEO_DEMO_JSON:-}" ]; then
  AIVIDEO_DEMO_JSON=$(cd "$OLDPWD" && realpath "$AIVIDEO_DEMO_JSON")
  export AIVIDEO_DEMO_JSON
fi

exec "$node" node_modules/@playwright/test/cli.js test "$@"
