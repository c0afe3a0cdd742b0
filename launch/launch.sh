#!/usr/bin/env bash
# Starts Diptych's services and keeps them together: when one ends, all end. Ctrl-C lets running jobs finish; twice does not.
#
#   ROLE=all launch/launch.sh                             the three services on this machine
#   ROLE=ar  ADVERTISE_HOST=10.0.0.1 launch/launch.sh     one service a node: nothing of another node's role is needed
#   ROLE=dit ADVERTISE_HOST=10.0.0.2 launch/launch.sh
#   ROLE=gateway AR_URLS=http://10.0.0.1:8101 DIT_URLS=http://10.0.0.2:8102 launch/launch.sh
#
#   ADVERTISE_HOST       this node's address, as the other nodes reach it
#   AR_URLS, DIT_URLS    where the replicas are: comma-separated URLs, or dns://name:port
#   AR_TP, DIT_TP, AR_DEVICES, DIT_DEVICES, MODEL         what the stage configuration reads (docs/stage-configs.md)
#   DIPTYCH_*            every other setting (docs/settings.md); UCX_*, NIXL_*, HF_*, VLLM_*, CUDA_* pass through as they are
#   DIPTYCH_BIN          the `diptych` command, if it is not .venv/bin/diptych
set -euo pipefail
cd "$(dirname "$0")/.."

say() { printf 'launch: %s\n' "$*" >&2; }
die() { say "$@"; exit 2; }

ROLE=${ROLE:-all}
diptych=${DIPTYCH_BIN:-.venv/bin/diptych}
command -v "$diptych" >/dev/null || die "there is no $diptych: run 'make install' first, or set DIPTYCH_BIN"
: "${DIPTYCH_GATEWAY_PORT:=8000}" "${DIPTYCH_AR_PORT:=8101}" "${DIPTYCH_DIT_PORT:=8102}"
export DIPTYCH_GATEWAY_PORT DIPTYCH_AR_PORT DIPTYCH_DIT_PORT

# An empty variable counts as unset everywhere: compose files and systemd units pass empty strings.
set_default() { # set_default NAME VALUE
	[[ -n ${!1:-} ]] || printf -v "$1" '%s' "$2"
	export "${1?}"
}
has_address() { # true if a network device of this node carries the address
	[[ $1 == 127.* || " $(hostname -I) ::1 " == *" $1 "* ]]
}
open_to_other_nodes() { # open_to_other_nodes AR|DIT
	local host="DIPTYCH_$1_HOST"
	[[ -n ${ADVERTISE_HOST:-}${!host:-} ]] ||
		die "ROLE=$ROLE needs ADVERTISE_HOST, this node's address as the other nodes reach it, such as ADVERTISE_HOST=10.0.0.1" \
			"(127.0.0.1 if they are all on this machine)"
	[[ ${ADVERTISE_HOST:-} =~ ^(0\.0\.0\.0|::|\*)$ ]] &&
		die "ADVERTISE_HOST is $ADVERTISE_HOST: that is every address, and nobody can dial it; give the one that the other nodes use"
	[[ -n ${ADVERTISE_HOST:-} ]] || return 0
	if [[ ! $ADVERTISE_HOST =~ ^[0-9.]+$|: ]]; then # a name: UCX deals in addresses only, and finds its own
		set_default "$host" 0.0.0.0
		return 0
	fi
	# The hand-off dials the devices' own addresses, so an address that only a NAT knows would fail at the first image.
	has_address "$ADVERTISE_HOST" || die "ADVERTISE_HOST is $ADVERTISE_HOST, which no network device of this node has"
	set_default "$host" "$ADVERTISE_HOST"
	set_default DIPTYCH_HANDOFF_ADVERTISE_HOST "$ADVERTISE_HOST"
	# UCX then offers the device with this address and no other, unless RDMA devices are there to choose from.
	compgen -G '/sys/class/infiniband/*' >/dev/null || set_default DIPTYCH_HANDOFF_BIND_HOST "$ADVERTISE_HOST"
}

case $ROLE in
all)
	services=(ar dit gateway)
	set_default AR_URLS "http://127.0.0.1:$DIPTYCH_AR_PORT"
	set_default DIT_URLS "http://127.0.0.1:$DIPTYCH_DIT_PORT"
	;;
ar | dit)
	services=("$ROLE")
	open_to_other_nodes "${ROLE^^}"
	;;
gateway)
	services=(gateway)
	: "${AR_URLS:=${DIPTYCH_AR_URLS:-}}" "${DIT_URLS:=${DIPTYCH_DIT_URLS:-}}"
	[[ -n $AR_URLS ]] || die "ROLE=gateway needs AR_URLS, such as AR_URLS=http://10.0.0.1:8101"
	[[ -n $DIT_URLS ]] || die "ROLE=gateway needs DIT_URLS, such as DIT_URLS=http://10.0.0.2:8102"
	[[ -n ${ADVERTISE_HOST:-} ]] && set_default DIPTYCH_GATEWAY_HOST 0.0.0.0
	;;
*) die "ROLE is '$ROLE': it must be all, ar, dit or gateway" ;;
esac
if [[ $ROLE == all || $ROLE == gateway ]]; then
	set_default DIPTYCH_AR_URLS "$AR_URLS"
	set_default DIPTYCH_DIT_URLS "$DIT_URLS"
fi

# Each service checks its own half of the file at start; only here are both known, and whether they claim one device.
if [[ $ROLE == all && ${DIPTYCH_ENGINE:-} != sim ]]; then
	found=$("$diptych" check "${DIPTYCH_STAGE_CONFIG:-stage_configs/glm_image_cpu.yaml}" 2>&1) ||
		die "$(grep ' error: ' <<<"$found" || printf '%s' "$found")"
fi

with_us=() # a service must not outlive this script, not even its kill -9
if command -v setpriv >/dev/null; then with_us=(setpriv --pdeathsig TERM); fi
declare -A names # pid -> service
stop_timeout=${DIPTYCH_STOP_TIMEOUT:-190} # seconds: the drain (120), the engine's own stop (60), and a margin

# shellcheck disable=SC2329 # called by the traps
tell() { # tell PID...: SIGTERM, which starts a drain; twice means at once
	local pid
	for pid in "$@"; do kill -TERM "$pid" 2>/dev/null || true; done
}
# shellcheck disable=SC2329
gone() { # gone PID...: returns when all have ended; kills those that have not by the deadline
	local pid
	for pid in "$@"; do
		while kill -0 "$pid" 2>/dev/null && ((SECONDS < deadline)); do sleep 0.1; done
		if kill -0 "$pid" 2>/dev/null; then
			say "${names[$pid]} did not stop within $stop_timeout s: killing it"
			kill -KILL -- "-$pid" 2>/dev/null || true
		fi
	done
}
# shellcheck disable=SC2329
hurry() {
	say "again: stopping at once"
	tell "${!names[@]}"
	sleep 0.5 # two signals in one instant count as one
	tell "${!names[@]}"
}
# shellcheck disable=SC2329
stop_all() { # the gateway first: the jobs that it has begun need the stages until they are done
	local pid first=() others=() deadline=$((SECONDS + stop_timeout))
	trap hurry INT TERM
	for pid in "${!names[@]}"; do
		if [[ ${names[$pid]} == gateway || ${names[$pid]} == wait ]]; then first+=("$pid"); else others+=("$pid"); fi
	done
	tell "${first[@]}"
	gone "${first[@]}"
	tell "${others[@]}"
	gone "${others[@]}"
}
trap stop_all EXIT
trap 'say "stopping"; exit 130' INT
trap 'say "stopping"; exit 143' TERM

for service in "${services[@]}"; do
	# setsid: Ctrl-C reaches this script only, which then stops each service once, in order.
	setsid "${with_us[@]}" "$diptych" "$service" &
	names[$!]=$service
done

reach() { # the URL at which this machine reaches its own service
	local host="DIPTYCH_${1^^}_HOST" port="DIPTYCH_${1^^}_PORT" address
	address=${!host:-127.0.0.1}
	[[ $address =~ ^(0\.0\.0\.0|::)$ ]] && address=127.0.0.1
	[[ $address == *:* ]] && address="[$address]"
	printf 'http://%s:%s' "$address" "${!port}"
}
urls=()
for service in "${services[@]}"; do urls+=("$service=$(reach "$service")"); done
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

if [[ $ROLE == ar || $ROLE == dit ]]; then
	port="DIPTYCH_${ROLE^^}_PORT"
	say "the $ROLE service is ready; on the gateway's node: ${ROLE^^}_URLS=http://${ADVERTISE_HOST:-$(hostname)}:${!port}"
else
	gateway=$(reach gateway)
	cat >&2 <<-BANNER

		Diptych is ready on $gateway

		  curl -s $gateway/v1/images/generations \\
		    -H 'content-type: application/json' \\
		    -d '{"prompt": "a red apple", "size": "256x256"}' | python3 -c \\
		    'import base64, json, sys; sys.stdout.buffer.write(base64.b64decode(json.load(sys.stdin)["data"][0]["b64_json"]))' > apple.png

	BANNER
fi
if [[ -n ${DEMO:-} ]]; then
	"$diptych" demo "$gateway" --out out/demo.png
	[[ -n ${ONCE:-} ]] && exit 0
	say "the services stay up: Ctrl-C stops them"
fi
await_end || true
say "the $ended service ended: stopping the others"
exit 1
