#!/usr/bin/env bash
# A real Apache Kafka without Docker:  eval "$(scripts/kafka.sh start [FOLDER])"   scripts/kafka.sh stop [FOLDER]
# One broker in KRaft mode on free loopback ports. `start` prints AIVTEST_KAFKA_URL; a living broker of the folder is
# used again, a dead one comes back on its old port with its data. `stop` keeps the data. The programs come from Maven
# Central, once, into .local/kafka; FOLDER is .local/kafka/broker unless it is named.
# A member of a group that died is missed after ten seconds, and everybody hears of a change within one, as in
# docker-compose.yml; Kafka's own defaults are 45 and 5.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
cd "$(dirname "$0")/.."
umask 022
version=4.1.0
what=${1:-start}
mkdir -p .local/kafka "${2:-.local/kafka/broker}"
home=$(cd .local/kafka && pwd -P)
dir=$(cd "${2:-.local/kafka/broker}" && pwd -P)
libs=$home/libs-$version

# The broker runs (a zombie does not), and it is the one that we started for this folder.
alive() {
  local pid
  pid=$(cat "$dir/pid" 2>/dev/null) && [ -n "$pid" ] || return 1
  tr '\0' ' ' <"/proc/$pid/cmdline" 2>/dev/null | grep -qF -- "$dir/server.properties"
}

fetch_programs() {
  [ -d "$libs" ] && return
  have mvn || { say "Maven is not installed: run scripts/install.sh test"; exit 1; }
  say "fetching Apache Kafka $version from Maven Central"
  rm -rf "$home/new"
  mkdir -p "$home/new"
  cat >"$home/new/pom.xml" <<POM
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>local.aivideo</groupId>
  <artifactId>kafka</artifactId>
  <version>1</version>
  <dependencies>
    <dependency><groupId>org.apache.kafka</groupId><artifactId>kafka_2.13</artifactId><version>$version</version></dependency>
    <dependency><groupId>org.slf4j</groupId><artifactId>slf4j-simple</artifactId><version>1.7.36</version></dependency>
  </dependencies>
</project>
POM
  (cd "$home/new" && mvn -q -B dependency:copy-dependencies -DincludeScope=runtime -DoutputDirectory="$home/new/libs") >&2 ||
    { say "Apache Kafka could not be fetched"; exit 1; }
  mv "$home/new/libs" "$libs" # in one step, so that half a download is never taken for a whole one
  rm -rf "$home/new"
}

# Little memory and a quick start matter more here than throughput.
java=(java -Xms64m -Xmx384m -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData
  -Dorg.slf4j.simpleLogger.defaultLogLevel=warn -Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info
  -cp "$libs/*")

# How groups work; given at each start, so that a broker with data has it too.
groups=()
for setting in group.initial.rebalance.delay.ms=0 group.min.session.timeout.ms=1000 \
  group.consumer.{min.,}session.timeout.ms=10000 group.consumer.{min.,}heartbeat.interval.ms=1000; do
  groups+=(--override "$setting")
done

configure() { # configure PORT PORT_OF_CONTROLLER
  cat >"$dir/server.properties" <<CONF
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://127.0.0.1:$1,CONTROLLER://127.0.0.1:$2
advertised.listeners=PLAINTEXT://127.0.0.1:$1
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
controller.quorum.voters=1@127.0.0.1:$2
log.dirs=$dir/data
log.index.size.max.bytes=65536
log.segment.delete.delay.ms=1000
num.io.threads=4
num.network.threads=2
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
CONF
}

start() {
  local port controller
  exec 9>"$dir/lock"
  flock 9
  if alive && [ -f "$dir/port" ] && grep -q 'Kafka Server started' "$dir/log"; then return; fi
  if alive; then stop; fi
  java_17 || { say "Java 17 is not installed: run scripts/install.sh test"; exit 1; }
  fetch_programs
  for _ in 1 2 3; do
    # What was formatted before comes back where its clients look for it.
    if [ ! -f "$dir/data/meta.properties" ] || [ ! -f "$dir/port" ]; then
      rm -rf "$dir/data"
      port=$(free_port) controller=$(free_port)
      while [ "$controller" = "$port" ]; do controller=$(free_port); done
      configure "$port" "$controller"
      # An id is 16 bytes in URL-safe Base64; the first letter keeps it from looking like an option.
      "${java[@]}" kafka.tools.StorageTool format -t "A$(head -c 16 /dev/urandom | base64 | tr '+/' '-_' | cut -c 2-22)" \
        -c "$dir/server.properties" >"$dir/format.log" 2>&1 || { cat "$dir/format.log" >&2; exit 1; }
      echo "$port" >"$dir/port"
    fi
    : >"$dir/log"
    # A session of its own: a Ctrl-C at the terminal is not for the broker.
    setsid "${java[@]}" kafka.Kafka "$dir/server.properties" "${groups[@]}" </dev/null >>"$dir/log" 2>&1 9>&- &
    echo $! >"$dir/pid"
    for _ in $(seq 600); do
      if grep -q 'Kafka Server started' "$dir/log"; then return; fi
      kill -0 $! 2>/dev/null || break
      sleep 0.1
    done
    if alive; then stop; fi
    # A new broker tries other ports; one with data keeps its port, and waits for whoever has it.
    [ -n "${port:-}" ] && rm -rf "$dir/data" || sleep 1
  done
  say "Kafka did not start:"; tail -n 20 "$dir/log" >&2
  exit 1
}

stop() {
  alive || { rm -f "$dir/pid"; return; }
  local pid
  pid=$(cat "$dir/pid")
  kill -CONT "$pid" && kill "$pid"
  for _ in $(seq 100); do alive || break; sleep 0.1; done
  if alive; then kill -9 "$pid"; fi
  rm -f "$dir/pid"
}

case $what in
start)
  start
  echo "export AIVTEST_KAFKA_URL=kafka://127.0.0.1:$(cat "$dir/port")"
  ;;
stop) stop ;;
*)
  say "usage: kafka.sh start | stop [FOLDER]"
  exit 2
  ;;
esac
