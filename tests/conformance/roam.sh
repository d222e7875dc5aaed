#!/bin/sh
# Runs suites that are not Pando's own, moved all the time, and shows what differs. See README.md.
#   tests/conformance/roam.sh stress-ng NAME...      these stressors, one after the other
#   tests/conformance/roam.sh programs FILE...       these programs: each unmoved, then from its start at n2 and moved on
#   tests/conformance/roam.sh python MODULE...       these of Python's own tests (test_os), unmoved, and then in the same way;
#                                                    PANDO_PYTHON has more of its options, such as `--ignore=*VSOCK*`
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

# SIGINT is ignored by what a shell starts in the background, and such a Python can't test it.
python() {
    for module in "$@"; do
        mkdir -p "$work/$module"
        cd "$work/$module"
        timeout 600 env --default-signal python3 -m test ${PANDO_PYTHON:-} --junit-xml "$PWD/unmoved.xml" "$module" \
            >unmoved 2>&1 </dev/null || true
        "$suite" tree --limit "${PANDO_LIMIT:-600}" --ms "${PANDO_MS:-100}" -- sh -c '"$PANDO_BIN" run --node n2 env --default-signal \
            python3 -m test '"${PANDO_PYTHON:-}"' --junit-xml "$0/moved.xml" "$1" </dev/null' "$PWD" "$module" >moved 2>&1 || true
        echo "$module: $(python3 "$here/compare.py" unmoved.xml moved.xml);" \
            "$(grep -ao '^[0-9]* moves of [0-9]* processes' moved)"
    done
}

case $what in
    stress-ng) stress "$@" ;;
    programs) programs "$@" ;;
    python) python "$@" ;;
    *) sed -n '2,6p' "$0"; exit 2 ;;
esac
echo "what was written is in $work"
