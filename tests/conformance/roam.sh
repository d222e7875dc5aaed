#!/bin/sh
# Runs suites that are not Pando's own, moved all the time, and shows what differs. See README.md.
#   tests/conformance/roam.sh stress-ng NAME...      these stressors, one after the other
#   tests/conformance/roam.sh programs FILE...       these programs: each unmoved, then from its start at n2 and moved on
set -eu
here=$(cd "$(dirname "$0")" && pwd)
suite=${PANDO_SUITE:-$here/../../target/debug/pando-suite}
work=$(mktemp -d)
what=$1
shift

stress() {
    cc -O1 -shared -fPIC -o "$work/private.so" "$here/private.c"
    for name in "$@"; do
        mkdir -p "$work/$name"
        "$suite" tree --limit 60 --ms 80 -- env LD_PRELOAD="$work/private.so" stress-ng --"$name" 1 --timeout 3 \
            --verify --no-rand-seed --temp-path "$work/$name" >"$work/$name.out" 2>&1 || true
        echo "$name: $(grep -a '^moved ' "$work/$name.out") $(grep -ao '^[0-9]* moves of [0-9]* processes' "$work/$name.out")"
        grep -a 'fail:\|^WRONG' "$work/$name.out" | cut -c1-200 || true
    done
}

programs() {
    for program in "$@"; do
        wanted=0
        timeout 60 "$program" >"$work/unmoved" 2>&1 </dev/null || wanted=$?
        got=$("$suite" tree --limit 90 --ms 30 -- sh -c \
            '"$PANDO_BIN" run --node n2 "$0" >/dev/null 2>&1 </dev/null; echo "status $?"' "$program" | sed -n 's/^status //p')
        [ "$wanted" = "$got" ] || echo "$program: unmoved $wanted, moved ${got:-nothing}"
    done
}

case $what in
    stress-ng) stress "$@" ;;
    programs) programs "$@" ;;
    *) sed -n '2,4p' "$0"; exit 2 ;;
esac
echo "what was written is in $work"
