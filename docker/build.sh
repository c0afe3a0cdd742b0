#!/usr/bin/env bash
# usage: docker/build.sh [engine|gateway|all]      builds the images that the compose files and manifests name
#
#   PROFILE=cpu|cuda   what the engine image is for (cuda)
#   TAG                the tag (the profile for the engine, `latest` for the gateway)
#   ENGINE_BASE, GATEWAY_BASE   other base images
#   BUILD_NETWORK      `host` where containers have no network of their own
#   PIP_CONF, CA_BUNDLE   files for pip, for builds behind a mirror; given as build secrets, so no layer keeps them
#   DOCKER             the client (docker)
set -euo pipefail
cd "$(dirname "$0")/.."

die() { printf 'build: %s\n' "$*" >&2; exit 2; }

profile=${PROFILE:-cuda}
docker=${DOCKER:-docker}
case $profile in
cpu) base=${ENGINE_BASE:-python:3.11-slim-bookworm} ;;
cuda) base=${ENGINE_BASE:-vllm/vllm-openai:v0.30.0} ;;
*) die "PROFILE is '$profile': it must be cpu or cuda" ;;
esac
command -v "$docker" >/dev/null || die "there is no '$docker' here: install Docker, or set DOCKER to its client"

options=()
[[ -n ${BUILD_NETWORK:-} ]] && options+=(--network "$BUILD_NETWORK")
for secret in pip_conf:PIP_CONF ca_bundle:CA_BUNDLE; do
	file=${secret#*:}
	[[ -z ${!file:-} ]] && continue
	[[ -r ${!file} ]] || die "$file=${!file} cannot be read"
	options+=(--secret "id=${secret%:*},src=${!file}")
done

build() { # build IMAGE DOCKERFILE ARGS...
	local image=$1 dockerfile=$2
	shift 2
	DOCKER_BUILDKIT=1 "$docker" build "${options[@]}" --file "docker/$dockerfile" --tag "$image" "$@" .
}
engine() { build "diptych-engine:${TAG:-$profile}" engine.Dockerfile --build-arg "BASE_IMAGE=$base" --build-arg "PROFILE=$profile"; }
gateway() { build "diptych-gateway:${TAG:-latest}" gateway.Dockerfile ${GATEWAY_BASE:+--build-arg "BASE_IMAGE=$GATEWAY_BASE"}; }

case ${1:-all} in
engine) engine ;;
gateway) gateway ;;
all) engine && gateway ;;
*) die "usage: docker/build.sh [engine|gateway|all]" ;;
esac
