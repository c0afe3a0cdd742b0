#!/usr/bin/env bash
# usage: tests/deploy/run.sh [pytest arguments]
#
# The deployment, run for real on this machine: gets a container engine if there is none, builds both images (CPU profile)
# on a base made by debootstrap, then runs the tests beside this file. Debian or Ubuntu, root. What it starts, it stops.
#
#   DEPLOY_CACHE   where the engine's data, the base and the tools stay for the next run (.cache/deploy, 20 GB)
#   DOCKER_HOST    an engine to use instead of one of our own
#   SKIP_BUILD=1   the images are there already
set -euo pipefail
cd "$(dirname "$0")/../.."

cache=$(realpath -m "${DEPLOY_CACHE:-.cache/deploy}")
certificates=/etc/ssl/certs/ca-certificates.crt
mkdir -p "$cache"

say() { printf 'test-deploy: %s\n' "$*" >&2; }
die() { say "$@"; exit 2; }

((EUID == 0)) || die "it starts a container engine and makes network namespaces: run it as root"
command -v apt-get >/dev/null || die "it installs its tools with apt-get: run it on Debian or Ubuntu"

packages=()
for pair in dockerd:docker.io docker-compose:docker-compose debootstrap:debootstrap iptables:iptables ip:iproute2; do
	command -v "${pair%:*}" >/dev/null || packages+=("${pair#*:}")
done
if ((${#packages[@]})); then
	say "installing ${packages[*]}"
	apt-get update -qq >"$cache/apt.log" 2>&1 || die "apt-get update failed: $cache/apt.log"
	DEBIAN_FRONTEND=noninteractive apt-get install -qq --no-install-recommends "${packages[@]}" >>"$cache/apt.log" 2>&1 ||
		die "apt-get could not install ${packages[*]}: $cache/apt.log"
fi
if [[ ! -x $cache/prometheus/usr/bin/promtool ]]; then # unpacked, not installed: the package would start a service
	say "unpacking prometheus and promtool"
	(cd "$cache" && apt-get download -qq prometheus >>apt.log 2>&1 && dpkg -x prometheus_*.deb prometheus && rm prometheus_*.deb) ||
		die "no prometheus: $cache/apt.log"
fi
if [[ ! -x $cache/tools/bin/kubernetes-validate ]]; then
	say "installing the schema checkers"
	python3 -m venv "$cache/tools"
	"$cache/tools/bin/pip" install --quiet kubernetes-validate==1.37.0 check-jsonschema==0.39.0 2>>"$cache/pip.log" ||
		die "pip could not install the schema checkers: $cache/pip.log"
fi

engine=
stop_engine() {
	[[ -n $engine ]] || return 0
	kill -TERM "$engine" 2>/dev/null || true
	wait "$engine" 2>/dev/null || true
}
trap stop_engine EXIT
trap 'exit 130' INT TERM
if [[ -z ${DOCKER_HOST:-} ]] && ! docker info >/dev/null 2>&1; then
	say "starting a container engine with its data in $cache/docker"
	export DOCKER_HOST=unix://$cache/docker.sock
	dockerd --data-root "$cache/docker" --exec-root "$cache/docker-exec" --pidfile "$cache/docker.pid" -H "$DOCKER_HOST" >"$cache/dockerd.log" 2>&1 &
	engine=$!
	until docker info >/dev/null 2>&1; do
		kill -0 "$engine" 2>/dev/null || die "the container engine did not start: $cache/dockerd.log"
		sleep 0.2
	done
fi
# A client without its buildx plugin cannot build; the one from docker.io can.
if ! docker buildx version >/dev/null 2>&1; then export DOCKER=/usr/bin/docker; fi

if ! docker image inspect diptych-base:bookworm >/dev/null 2>&1; then
	say "making a base image"
	rm -rf "$cache/root"
	debootstrap --variant=minbase --include=python3,python3-venv,ca-certificates bookworm "$cache/root" >"$cache/debootstrap.log" 2>&1 ||
		die "debootstrap failed: $cache/debootstrap.log"
	rm -rf "$cache"/root/var/cache/apt/archives/*.deb "$cache"/root/var/lib/apt/lists/* "$cache"/root/usr/share/{doc,man,locale,info}/*
	tar -C "$cache/root" -c . | docker import - diptych-base:bookworm >/dev/null
	rm -rf "$cache/root"
fi
if [[ -z ${SKIP_BUILD:-} ]]; then
	# pip in the build sees what pip sees here: the same index, and this machine's certificates.
	{
		printf '[global]\ncert = /run/secrets/ca_bundle\ndisable-pip-version-check = true\ntimeout = 180\n'
		index=$(python3 -m pip config get global.index-url 2>/dev/null) && printf 'index-url = %s\n' "$index"
	} >"$cache/pip.conf" || true
	say "building the images (the engine's takes minutes, once): $cache/build.log"
	PROFILE=cpu ENGINE_BASE=diptych-base:bookworm GATEWAY_BASE=diptych-base:bookworm BUILD_NETWORK=host PIP_CONF=$cache/pip.conf CA_BUNDLE=$certificates \
		docker/build.sh all >"$cache/build.log" 2>&1 || { tail -n 20 "$cache/build.log" >&2; die "the build failed"; }
fi

DIPTYCH_TEST_DEPLOY=$cache .venv/bin/pytest tests/deploy -m deploy "$@"
