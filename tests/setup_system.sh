#!/bin/sh
# What the tests on real parts need, on Debian and Ubuntu as root: a C compiler, Java and Maven (Kafka), redis-server,
# kcat, Prometheus with its promtool, and a browser.
# Installs only what is missing. Elsewhere it does nothing: the tests then say what did not run and how to get it.
set -eu

[ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 || exit 0

missing=""
need() { # program, package
  command -v "$1" >/dev/null 2>&1 || missing="$missing $2"
}

java_package() { # the first of the two that this release has
  for package in openjdk-17-jre-headless openjdk-21-jre-headless; do
    if apt-cache show "$package" >/dev/null 2>&1; then echo "$package"; return; fi
  done
  echo default-jre-headless
}

# A broker elsewhere, or jars of an earlier run, need no Maven; a Docker engine needs neither.
if [ -z "${KAFKA_BOOTSTRAP:-}" ] && ! docker version >/dev/null 2>&1; then
  need java JAVA
  need mvn maven
fi
command -v valkey-server >/dev/null 2>&1 || [ -n "${REDIS_URL:-}" ] || need redis-server redis-server
# For the native tier. Python's headers come with a Python that was built here; Debian keeps them apart.
need cc "gcc libc6-dev"
"${PYTHON:-python3}" -c 'import pathlib, sysconfig as s, sys
sys.exit(not (pathlib.Path(s.get_path("include")) / "Python.h").exists())' || missing="$missing python3-dev"
need kcat kcat
need promtool prometheus
need prometheus prometheus
command -v chromium-browser >/dev/null 2>&1 || command -v google-chrome >/dev/null 2>&1 || need chromium "chromium fonts-dejavu-core"
[ -n "$missing" ] || exit 0

export DEBIAN_FRONTEND=noninteractive
# Runlevel 1: Debian would start servers of its own (Redis on port 6379, Prometheus), and the tests start theirs.
export RUNLEVEL=1
log=$(mktemp)
# A machine without network goes on: the tests say what did not run, and with CI set they fail.
quietly() { "$@" >"$log" 2>&1 || { echo "$* failed:" >&2; tail -n 20 "$log" >&2; rm -f "$log"; exit 0; }; }
# Where nothing forbids it (policy-rc.d), systemd would start them all the same: forbid it while we install.
policy=/usr/sbin/policy-rc.d
if [ ! -e "$policy" ]; then
  printf '#!/bin/sh\nexit 101\n' >"$policy" && chmod +x "$policy"
  trap 'rm -f "$policy"' EXIT
fi
quietly apt-get update -qq
case "$missing" in *JAVA*) missing=$(echo "$missing" | sed "s/JAVA/$(java_package)/") ;; esac
echo "installing for the tests:$missing"
# shellcheck disable=SC2086
quietly apt-get install -y -qq --no-install-recommends $missing
rm -f "$log"
