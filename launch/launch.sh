#!/usr/bin/env bash
# Starts Diptych's services and keeps them together: when one ends, all end.
#
#   ROLE=all launch/launch.sh        the three services on this machine
#   ROLE=ar|dit|gateway launch/...   one service, for a deployment on several nodes (docs/two-nodes.md)
#
# Settings are environment variables (docs/settings.md); nothing of another node's role is needed.
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'launch: %s\n' "$*" >&2; }
die() { say "$@"; exit 2; }

ROLE=${ROLE:-all}
diptych=${DIPTYCH_BIN:-.venv/bin/diptych}
command -v "$diptych" >/dev/null || die "there is no $diptych: run 'make install' first, or set DIPTYCH_BIN"
: "${DIPTYCH_GATEWAY_PORT:=8000}" "${DIPTYCH_AR_PORT:=8101}" "${DIPTYCH_DIT_PORT:=8102}"
export DIPTYCH_GATEWAY_PORT DIPTYCH_AR_PORT DIPTYCH_DIT_PORT
case $ROLE in
all)
	services=(ar dit gateway)
	: "${AR_URLS:=http://127.0.0.1:$DIPTYCH_AR_PORT}" "${DIT_URLS:=http://127.0.0.1:$DIPTYCH_DIT_PORT}"
	export AR_URLS DIT_URLS
	;;
ar | dit) services=("$ROLE") ;;
gateway)
	services=(gateway)
	[[ -n ${AR_URLS:-} ]] || die "ROLE=gateway needs AR_URLS, such as AR_URLS=http://ar-node:8101"
	[[ -n ${DIT_URLS:-} ]] || die "ROLE=gateway needs DIT_URLS, such as DIT_URLS=http://dit-node:8102"
	;;
*) die "ROLE is '$ROLE': it must be all, ar, dit or gateway" ;;
esac

declare -A names # pid -> service
stop_timeout=${DIPTYCH_STOP_TIMEOUT:-150} # seconds: the drain (120) and the engine's own stop (30)

# shellcheck disable=SC2329 # called by the trap
stop_all() {
	local pid deadline=$((SECONDS + stop_timeout))
	trap '' INT TERM
	for pid in "${!names[@]}"; do kill -TERM "$pid" 2>/dev/null || true; done
	for pid in "${!names[@]}"; do
		while kill -0 "$pid" 2>/dev/null && ((SECONDS < deadline)); do sleep 0.1; done
		if kill -0 "$pid" 2>/dev/null; then
			say "${names[$pid]} did not stop within $stop_timeout s: killing it"
			kill -KILL -- "-$pid" 2>/dev/null || true
		fi
	done
}
trap stop_all EXIT
trap 'say "stopping"; exit 130' INT
trap 'say "stopping"; exit 143' TERM

for service in "${services[@]}"; do
	# setsid: Ctrl-C reaches this script only, which then stops each service once, in order.
	setsid "$diptych" "$service" &
	names[$!]=$service
done

urls=()
for service in "${services[@]}"; do
	port="DIPTYCH_${service^^}_PORT"
	urls+=("$service=http://127.0.0.1:${!port}")
done
# The wait ends early when a service ends, so that its own message is the last word.
"$diptych" wait --timeout "${DIPTYCH_START_TIMEOUT:-900}" "${urls[@]}" &
names[$!]="wait"
await_end() { # waits for the next child to end; leaves its name in $ended
	local pid status=0
	wait -n -p pid || status=$?
	ended=${names[$pid]}
	unset "names[$pid]"
	return "$status"
}
await_end || { [[ $ended == wait ]] && exit 1; }
[[ $ended == wait ]] || die "the $ended service ended before it was ready: its message is above"

if [[ $ROLE == all || $ROLE == gateway ]]; then
	cat >&2 <<-BANNER

		Diptych is ready on http://127.0.0.1:$DIPTYCH_GATEWAY_PORT

		  curl -s http://127.0.0.1:$DIPTYCH_GATEWAY_PORT/v1/images/generations \\
		    -H 'content-type: application/json' \\
		    -d '{"prompt": "a red apple", "size": "256x256"}' | python3 -c \\
		    'import base64, json, sys; sys.stdout.buffer.write(base64.b64decode(json.load(sys.stdin)["data"][0]["b64_json"]))' > apple.png

	BANNER
fi
if [[ -n ${DEMO:-} ]]; then
	"$diptych" demo "http://127.0.0.1:$DIPTYCH_GATEWAY_PORT" --out out/demo.png
	[[ -n ${ONCE:-} ]] && exit 0
	say "the services stay up: Ctrl-C stops them"
fi
await_end || true
say "the $ended service ended: stopping the others"
exit 1
