#!/usr/bin/env bash
# Tests the platform as `docker compose up` runs it; `make compose-test` calls this. It tests what is up; what is not
# is started from the images that are there, without building. It needs docker, curl and jq, and leaves everything
# running. Only numbers decide: a figure that is printed is no check.
set -euo pipefail
cd "$(dirname "$0")/.."
. scripts/lib.sh

for program in docker curl jq; do
  have "$program" || { say "$program is missing"; exit 1; }
done
work=$(mktemp -d)
trap 'kill $(jobs -p) 2>/dev/null || true; rm -rf "$work"' EXIT
passed=0 from=0
ok() { passed=$((passed + 1)); echo "ok: $*"; }
fail() { echo "FAILED: $*" >&2; echo "$passed passed, 1 failed"; exit 1; }
figure() { echo "    $*"; }

# until_ok SECONDS WHAT COMMAND...: tries until it succeeds.
until_ok() {
  local end=$((SECONDS + $1)) what=$2; shift 2
  until "$@"; do [ "$SECONDS" -lt "$end" ] || fail "$what"; sleep 0.5; done
}
seconds_between() { # seconds_between TIMESTAMP TIMESTAMP
  local ms=$((($(date -d "$2" +%s%N) - $(date -d "$1" +%s%N)) / 1000000))
  printf '%d.%03d' $((ms / 1000)) $((ms % 1000))
}
containers() { docker compose --profile '*' ps -a -q; }

# --- ready by itself -----------------------------------------------------------------------------------------------
if [ -z "$(docker compose ps --status running -q app)" ]; then
  echo "== nothing is up: docker compose up --wait"
  docker compose up -d --wait --no-build --quiet-pull || fail "docker compose up"
fi
app=$(docker compose ps -q app)
[ "$(docker inspect -f '{{.State.Health.Status}}' "$app")" = healthy ] || fail "the app is not healthy"
for service in secrets migrate seed; do
  one=$(docker compose ps -a -q "$service")
  [ "$(docker inspect -f '{{.State.ExitCode}} {{.RestartCount}}' "$one")" = "0 0" ] || fail "$service did not succeed"
done
ok "ready by itself"
created=$(containers | xargs docker inspect -f '{{.Created}}' | sort | head -n1)
ready=$(docker compose logs --no-log-prefix -t app 2>/dev/null | grep -m1 'aivideo: http' | cut -d' ' -f1) || true
[ -z "$ready" ] || figure "time to ready: $(seconds_between "$created" "$ready") s from the first container to the API"
image=$(docker inspect -f '{{.Image}}' "$app")
base=$(docker image inspect -f '{{.Size}}' debian:bookworm-slim 2>/dev/null || echo 0)
size=$(docker image inspect -f '{{.Size}}' "$image")
figure "image: $((size / 1000000)) MB, of which Debian $((base / 1000000)) MB"

[ "$(docker compose exec -T app id -u)" != 0 ] || fail "the app runs as root"
ok "not root"

# --- the console and the key ---------------------------------------------------------------------------------------
url=http://$(docker compose port app 8080)
[[ $url = http://127.0.0.1:* ]] || fail "published at $url, which is not loopback"
curl -fsS -m 10 "$url/" | grep -i '<script' >/dev/null || fail "the console does not answer at $url/"
ok "the console answers at $url/"
key=$(docker compose exec -T app cat /var/lib/aivideo/secrets/seed/seed.json | jq -er .api_key) || fail "no key"
docker compose logs --no-log-prefix seed | grep -F "$key" >/dev/null || fail "the log of seed does not tell the key"
ok "the log of seed tells the key"

# api METHOD PATH [curl's arguments...]: the body of a successful answer
api() {
  local method=$1 path=$2; shift 2
  curl -fsS -m 40 -X "$method" "$url$path" -H "Authorization: Bearer $key" -H 'Content-Type: application/json' "$@"
}
submit() { # submit MODEL PROMPT: the task's id
  api POST /generations -d "{\"model\":\"$1\",\"prompt\":\"$2\",\"duration_seconds\":5}" | jq -er .task_id
}
status() { api GET "/tasks/$1" | jq -er .status; }
is_ended() { [[ $(api GET "/tasks/$1?wait=5" 2>/dev/null | jq -r .status) =~ ^(SUCCEEDED|FAILED|CANCELED)$ ]]; }

# --- a task over Kafka ---------------------------------------------------------------------------------------------
docker compose exec -T app aivideo check-config | grep 'kafka://' >/dev/null || fail "the queue is not Kafka"
# How many messages of the topic the scheduler's group has taken.
consumed() {
  docker compose exec -T kafka /opt/kafka/bin/kafka-consumer-groups.sh --bootstrap-server kafka:9092 --describe --all-groups 2>/dev/null |
    awk '$2 == "generation.requested" && $4 ~ /^[0-9]+$/ { sum += $4 } END { print sum + 0 }'
}
consumed_before=$(consumed)
task=$(submit mock-fast "a paper boat") || fail "a submit was refused"
until_ok 60 "$task is not over" is_ended "$task"
[ "$(status "$task")" = SUCCEEDED ] || fail "$task: $(api GET "/tasks/$task")"
has_consumed_more() { [ "$(consumed)" -gt "$consumed_before" ]; }
until_ok 30 "the task did not go over Kafka" has_consumed_more
ok "a task succeeds over Kafka"

output=$(api GET "/tasks/$task" | jq -er .output_url)
[[ $output = http* ]] || output=$url$output
code=$(curl -sS -m 20 -o "$work/part" -D "$work/head" -w '%{http_code}' -H 'Range: bytes=0-31' "$output")
[ "$code" = 206 ] || fail "the output answers $code to a range"
[ "$(stat -c %s "$work/part")" = 32 ] && [ "$(dd if="$work/part" bs=1 skip=4 count=4 2>/dev/null)" = ftyp ] ||
  fail "the output's beginning is not that of an MP4"
curl -fsS -m 20 -o "$work/video.mp4" "$output" || fail "the output cannot be fetched"
if have ffprobe; then
  ffprobe -v error -show_entries format=duration -of csv=p=0 "$work/video.mp4" >/dev/null || fail "the output does not play"
fi
ok "its output plays and is served by ranges"

# --- a restart in the middle ---------------------------------------------------------------------------------------
# The slow ones take a minute, so they are under way however long the others take to be submitted.
for n in $(seq 10); do submit mock-slow "restarted $n"; done >"$work/tasks"
for n in $(seq 30); do submit mock-pro "restarted $n"; submit mock-fast "restarted $n"; done >>"$work/tasks"
open=0
for id in $(head -n 10 "$work/tasks"); do
  [[ $(status "$id") =~ ^(SUCCEEDED|FAILED|CANCELED)$ ]] || open=$((open + 1))
done
[ "$open" -gt 0 ] || fail "nothing was under way, which proves nothing"
from=$(date +%s%N)
docker compose restart app >/dev/null 2>&1 || fail "docker compose restart app"
is_healthy() { [ "$(docker inspect -f '{{.State.Health.Status}}' "$app")" = healthy ]; }
until_ok 90 "the app is not healthy after its restart" is_healthy
figure "restart: $((($(date +%s%N) - from) / 1000000)) ms with $open slow tasks under way"
while read -r id; do
  until_ok 120 "$id is not over after the restart" is_ended "$id"
  [ "$(status "$id")" = SUCCEEDED ] || fail "$id: $(api GET "/tasks/$id")"
done <"$work/tasks"
ok "a restart loses none of $(wc -l <"$work/tasks") tasks"
twice=$(docker compose exec -T mock-provider aivideo health http://127.0.0.1:9090/_control/stats | jq -er .max_live_by_task)
[ "$twice" = 1 ] || fail "the provider had $twice jobs of one task at once"
ok "nothing was submitted twice"
audit=0; docker compose exec -T app aivideo audit 2>"$work/audit" || audit=$?
[ "$audit" = 0 ] || fail "the audit exits with $audit: $(cat "$work/audit")"
ok "the audit finds nothing"

# --- every panel has data ------------------------------------------------------------------------------------------
echo "== Prometheus"
docker compose --profile observability up -d --wait --no-build --no-deps --quiet-pull prometheus >"$work/up" 2>&1 ||
  fail "Prometheus: $(tail -n 3 "$work/up")"
prometheus=http://$(docker compose --profile observability port prometheus 9090)
# Something of everything that a panel counts.
traffic() {
  local id n=0
  while :; do
    n=$((n + 1))
    # More than the model has places for, so that some wait and are told until when.
    for _ in $(seq 8); do id=$(submit mock-pro "traffic $n") && api GET "/tasks/$id" >/dev/null; done
    id=$(submit mock-fast "traffic $n") || { sleep 1; continue; }
    curl -sN -m 10 "$url/tasks/$id/events" -H "Authorization: Bearer $key" -o /dev/null &
    curl -sN -m 10 "$url/tasks/$id/events" -H "Authorization: Bearer $key" -H 'Last-Event-ID: 1' -o /dev/null &
    api GET "/tasks/$id" >/dev/null; api GET "/tasks/$task" >/dev/null
    # Wrong keys, until they are refused for their number.
    for _ in $(seq 20); do curl -s -o /dev/null "$url/me" -H 'Authorization: Bearer avk_nobody'; done
    sleep 1
  done
}
traffic >/dev/null 2>&1 &
dashboard=config/observability/grafana/dashboards/aivideo.json
jq -r '.panels[] | .title as $title | .targets[]? | [$title, .expr] | @tsv' "$dashboard" >"$work/queries"
# has_data QUERY: at least one series has a number.
has_data() {
  curl -sS -m 10 "$prometheus/api/v1/query" --data-urlencode "query=${1//\$__rate_interval/1m}" |
    jq -e '.status == "success" and ([.data.result[].value[1] | select(. != "NaN")] | length > 0)' >/dev/null
}
while IFS=$'\t' read -r title query; do
  until_ok 120 "no data for the panel \"$title\": $query" has_data "$query"
done <"$work/queries"
[ "$(wc -l <"$work/queries")" -gt 20 ] || fail "the dashboard was not read"
ok "each of $(wc -l <"$work/queries") queries of the dashboard has data"
kill %% 2>/dev/null || true

echo
echo "$passed passed, 0 failed"
