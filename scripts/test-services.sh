#!/usr/bin/env bash
# A private PostgreSQL, Redis and Kafka for the tests:  eval "$(scripts/test-services.sh start)"   scripts/test-services.sh stop
# `start` prints DATABASE_URL, REDIS_URL and AIVTEST_KAFKA_URL; what is alive already is used again. Data lies under .local/test and is
# worth nothing: fsync is off, Redis keeps nothing.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$(dirname "$0")/.."
umask 022
mkdir -p .local/test
dir=$(cd .local/test && pwd -P)

# The folder of PostgreSQL's files: here, unless PostgreSQL's user cannot come here.
postgres_home() {
  if [ "$(id -u)" != 0 ] || as_postgres test -x "$dir"; then echo "$dir"; return; fi
  echo "/tmp/aivideo-test-$(printf %s "$dir" | sha256sum | cut -c1-16)"
}
# alive PIDFILE WORD: the process runs (a zombie does not), and it is what we started.
alive() {
  local pid
  pid=$(head -n1 "$1" 2>/dev/null) && [ -n "$pid" ] || return 1
  tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -qF -- "$2"
}
wait_gone() { # wait_gone PIDFILE WORD
  for _ in $(seq 100); do alive "$1" "$2" || return 0; sleep 0.1; done
  kill -9 "$(head -n1 "$1")"
}

start_postgres() {
  local bin home data port
  home=$(postgres_home) data=$home/postgres
  if alive "$data/postmaster.pid" "$data" && [ -f "$dir/postgres.port" ]; then return; fi
  bin=$(postgres_bin) || { say "PostgreSQL is not installed: run scripts/install.sh test"; exit 1; }
  [ "$home" = "$dir" ] || say "PostgreSQL's user cannot enter $dir: its files lie in $home"
  rm -rf "$data"
  mkdir -p "$home"
  [ -O "$home" ] && [ ! -L "$home" ] || { say "$home belongs to somebody else"; exit 1; }
  mkdir -m 700 "$data"
  [ "$(id -u)" != 0 ] || chown postgres "$data"
  as_postgres "$bin/initdb" -D "$data" -U postgres -A trust --no-locale -E UTF8 --no-sync >"$dir/initdb.log" 2>&1 ||
    { cat "$dir/initdb.log" >&2; exit 1; }
  for _ in 1 2 3; do
    port=$(free_port)
    if as_postgres "$bin/pg_ctl" -D "$data" -s -w -t 30 -l "$data/log" -o "-p $port -c listen_addresses=127.0.0.1 \
      -c unix_socket_directories= -c max_connections=400 -c shared_buffers=256MB -c fsync=off -c synchronous_commit=off \
      -c full_page_writes=off" start >&2; then
      echo "$port" >"$dir/postgres.port"
      return
    fi
  done
  say "PostgreSQL did not start:"; tail -n 20 "$data/log" >&2
  exit 1
}

start_redis() {
  local port
  if alive "$dir/redis.pid" redis && [ -f "$dir/redis.port" ]; then return; fi
  local server
  server=$(redis_server) || { say "redis-server is not installed: run scripts/install.sh test"; exit 1; }
  for _ in 1 2 3; do
    port=$(free_port)
    "$server" --bind 127.0.0.1 --port "$port" --dir "$dir" --save '' --appendonly no --databases 64 \
      --maxmemory-policy noeviction --daemonize yes --pidfile "$dir/redis.pid" --logfile "$dir/redis.log" >&2
    for _ in $(seq 50); do
      if (exec 3<>"/dev/tcp/127.0.0.1/$port") 2>/dev/null && alive "$dir/redis.pid" redis; then
        echo "$port" >"$dir/redis.port"
        return
      fi
      sleep 0.1
    done
  done
  say "Redis did not start:"; tail -n 20 "$dir/redis.log" >&2
  exit 1
}

case ${1:-start} in
start)
  start_postgres
  start_redis
  kafka=$(scripts/kafka.sh start .local/test/kafka)
  echo "export DATABASE_URL=postgres://postgres@127.0.0.1:$(cat "$dir/postgres.port")/postgres"
  echo "export REDIS_URL=redis://127.0.0.1:$(cat "$dir/redis.port")"
  echo "$kafka"
  ;;
stop)
  data=$(postgres_home)/postgres
  if alive "$data/postmaster.pid" "$data"; then
    kill -QUIT "$(head -n1 "$data/postmaster.pid")" # nothing in it is worth a checkpoint
    wait_gone "$data/postmaster.pid" "$data"
  fi
  if alive "$dir/redis.pid" redis; then
    kill "$(cat "$dir/redis.pid")"
    wait_gone "$dir/redis.pid" redis
  fi
  [ ! -d "$dir/kafka" ] || scripts/kafka.sh stop .local/test/kafka
  rm -rf "$data" "$dir/kafka" "$dir/postgres.port" "$dir/redis.port" "$dir/redis.pid"
  [ "$data" = "$dir/postgres" ] || rmdir "$(dirname "$data")" 2>/dev/null || true
  ;;
*)
  say "usage: test-services.sh start | stop"
  exit 2
  ;;
esac
