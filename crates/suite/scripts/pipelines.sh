# A bash script of pipelines: statuses of each part, process substitution, coprocesses, jobs at once, here-strings.
set -u -o pipefail
for ((round = 0; round < 12; round++)); do
    tail -n +$((round * 300 + 1)) input/text | head -3000 | tr ' ' '\n' | grep -v '^$' | sort | uniq -c | sort -k1,1nr -k2 | head -2
    true | (exit $round) | cat > /dev/null; echo "statuses ${PIPESTATUS[*]}"
    comm -12 <(head -400 input/text | tr ' ' '\n' | sort -u) <(tail -400 input/text | tr ' ' '\n' | sort -u) | wc -l
    for n in 1 2 3 4; do
        { sum=0; for ((i = 0; i < n * 2000; i++)); do sum=$(((sum * 31 + i) % 65521)); done; echo "$sum" > "job-$n"; exit $n; } &
        pids[n]=$!
    done
    for n in 4 2 3 1; do wait "${pids[n]}"; echo "job $n: status $? $(< "job-$n")"; done
    coproc { while read -r line; do echo "<${line^^}>"; done; }
    asked=$COPROC_PID; exec {to}>&"${COPROC[1]}" {from}<&"${COPROC[0]}"
    for word in alpha beta gamma; do echo "$word $round" >&"$to"; read -r answer <&"$from"; echo "$answer"; done
    eval "exec ${COPROC[1]}>&- {to}>&-"; wait "$asked"; echo "coprocess $?"; exec {from}<&-
    tee >(wc -c > counted) < input/text | md5sum; while ! [ -s counted ]; do sleep 0.01; done; cat counted; rm counted
    yes "$round" 2> /dev/null | head -20000 | { read -r first; wc -l <<< "$first$(cat)"; } ; echo "after yes ${PIPESTATUS[1]}"
done
exit 0
