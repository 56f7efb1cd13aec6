#!/usr/bin/env bash
# Installs the system packages that are missing:  install.sh demo | test
# It looks for programs, not for packages, so a server built by hand or another version counts as present.
# Debian and Ubuntu only; elsewhere it says what is missing. Nothing that it installs is started as a service.
set -euo pipefail
. "$(dirname "$0")/lib.sh"
what=${1:-demo}

missing=() packages=()
need() { # need NAME PACKAGE...: unless the check before it succeeded
  missing+=("$1"); shift; packages+=("$@")
}
postgres_bin >/dev/null || need "PostgreSQL (initdb, postgres)" postgresql
redis_server >/dev/null || need redis-server redis-server
have cc || need "a C compiler and linker (cc)" gcc libc6-dev
have curl || need curl curl
# librdkafka is built from its sources.
have make || need make make
zlib_headers || need "zlib's headers" zlib1g-dev
if [ "$what" = test ]; then
  have ffprobe || need ffprobe ffmpeg
  java_17 || need "Java 17 or newer" java17-runtime-headless
  have mvn || need Maven maven
  have jq || need jq jq
  faketime_library >/dev/null || need "libfaketime" libfaketime
  have node || need node nodejs
  have npm || need npm npm
  find_browser >/dev/null || need "Chromium" chromium
fi
[ ${#missing[@]} -gt 0 ] || exit 0

say "missing: $(IFS=,; echo "${missing[*]}" | sed 's/,/, /g')"
if ! have apt-get; then
  say "Install these with this system's package manager; on Debian the packages are: ${packages[*]}"
  exit 1
fi
sudo=
if [ "$(id -u)" != 0 ]; then
  if ! have sudo; then say "Run as root: apt-get install --no-install-recommends ${packages[*]}"; exit 1; fi
  sudo=sudo
fi
apt() { $sudo env DEBIAN_FRONTEND=noninteractive apt-get -qq -o Dpkg::Use-Pty=0 "$@" >&2; }

# Packages must not start servers: ours are private, and port 5432 or 6379 may be somebody else's.
policy=/usr/sbin/policy-rc.d clusters=/etc/postgresql-common/createcluster.d undo=()
undo() { local step; for step in "${undo[@]}"; do eval "$step"; done; }
trap undo EXIT
if [ ! -e $policy ]; then
  printf '#!/bin/sh\nexit 101\n' | $sudo tee $policy >/dev/null
  $sudo chmod 755 $policy
  undo+=("$sudo rm -f $policy")
fi

say "installing: ${packages[*]}"
apt update
# That one is a promise of several packages, and the default of older releases is an older Java.
for java in openjdk-21-jre-headless openjdk-17-jre-headless default-jre-headless; do
  if [ -n "$(apt-cache madison "$java" 2>/dev/null)" ]; then break; fi
done
packages=("${packages[@]/java17-runtime-headless/$java}")
if [[ " ${packages[*]} " == *" postgresql "* ]]; then
  apt install -y --no-install-recommends postgresql-common
  if [ -d "$(dirname $clusters)" ]; then
    # Without this the package makes a cluster of its own, which the next boot would start.
    [ -d $clusters ] || { $sudo mkdir $clusters; undo+=("$sudo rmdir --ignore-fail-on-non-empty $clusters"); }
    echo 'create_main_cluster = false' | $sudo tee $clusters/aivideo.conf >/dev/null
    undo=("$sudo rm -f $clusters/aivideo.conf" "${undo[@]}")
  fi
fi
if [[ " ${packages[*]} " == *" chromium "* ]] && [ "$(. /etc/os-release; echo "$ID")" = ubuntu ]; then
  # Ubuntu's package only points to a snap, which containers cannot run.
  say "Ubuntu has no Chromium package: set CHROMIUM to a browser of yours for the browser tests."
  packages=("${packages[@]/chromium/}")
fi
# shellcheck disable=SC2068 # an emptied element must vanish
apt install -y --no-install-recommends ${packages[@]}
if [[ " ${packages[*]} " == *" redis-server "* ]] && [ -d /run/systemd/system ]; then
  $sudo systemctl disable --quiet redis-server >/dev/null 2>&1 || true # nor at the next boot
fi

[ "$what" != test ] || find_browser >/dev/null || say "No Chromium was found; the browser tests will fail without one."
postgres_bin >/dev/null || { say "PostgreSQL's server programs are still missing"; exit 1; }
redis_server >/dev/null || { say "redis-server is still missing"; exit 1; }
