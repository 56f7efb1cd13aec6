# Shared by the scripts beside it: where programs are, and who runs PostgreSQL. Sourced, never run.

say() { echo "$*" >&2; }
have() { command -v "$1" >/dev/null 2>&1; }

# The folder with PostgreSQL's server programs, whatever version the release has; fails when there is none.
postgres_bin() {
  local dir
  for dir in "$(dirname "$(command -v initdb 2>/dev/null || echo /nonexistent/initdb)")" \
    "$(pg_config --bindir 2>/dev/null || true)" \
    $(ls -d /usr/lib/postgresql/*/bin /usr/pgsql-*/bin /usr/local/pgsql/bin 2>/dev/null | sort -Vr); do
    # pg_config alone may come from the client library; the server's programs are what counts.
    if [ -x "$dir/initdb" ] && [ -x "$dir/postgres" ]; then echo "$dir"; return 0; fi
  done
  return 1
}

redis_server() { command -v redis-server || command -v valkey-server; }

# Whether a C program may include zlib.h, wherever the compiler looks for it.
zlib_headers() { have cc && echo '#include <zlib.h>' | cc -E -xc - >/dev/null 2>&1; }

# Kafka's broker needs Java 17.
java_17() {
  local version
  version=$(java -version 2>&1 | sed -nE 's/.* version "([0-9]+).*/\1/p' | head -n1)
  [ "${version:-0}" -ge 17 ]
}

# The library that gives a process another clock, wherever the release puts it.
faketime_library() {
  local file
  for file in /usr/lib/*/faketime/libfaketimeMT.so.1 /usr/lib/faketime/libfaketimeMT.so.1; do
    if [ -e "$file" ]; then echo "$file"; return 0; fi
  done
  return 1
}

# A browser that Playwright can drive. Ubuntu's /usr/bin/chromium-browser may be a stub that only asks for a snap.
find_browser() {
  local name
  if [ -n "${CHROMIUM:-}" ]; then echo "$CHROMIUM"; return 0; fi
  for name in chromium chromium-browser google-chrome google-chrome-stable; do
    if have "$name" && "$name" --version >/dev/null 2>&1; then command -v "$name"; return 0; fi
  done
  return 1
}

# PostgreSQL refuses to run as root, so root runs it as the package's own user.
as_postgres() {
  if [ "$(id -u)" != 0 ]; then (cd / && "$@"); else (cd / && setpriv --reuid=postgres --regid=postgres --clear-groups -- "$@"); fi
}

free_port() {
  local port
  for _ in $(seq 100); do
    port=$((20000 + RANDOM % 12000))
    if ! (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null; then echo "$port"; return 0; fi
  done
  return 1
}
