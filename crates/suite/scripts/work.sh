# A shell script: loops, functions, arrays, substitutions, pipelines, redirections, traps, background jobs.
set -u
count=0
trap 'count=$((count + 1))' USR1
declare -A seen
hash() { local h=7 i; for ((i = 0; i < ${#1}; i++)); do printf -v c %d "'${1:i:1}"; h=$(((h * 31 + c) % 1000003)); done; echo $h; }
for ((round = 0; round < 12; round++)); do
    word=$(sed -n "$((round * 37 + 1))p" input/text | cut -d' ' -f1)
    seen[$word]=$(hash "$word")
    (exit $round); echo "round $round: $word ${seen[$word]} status $?"
    head -c 20000 input/text | tr a-z b-za | sort | uniq -c | tail -1 >> collected
    kill -USR1 $$
    sleep 0.02 & wait $!
    sum=0; for ((i = 0; i < 3000; i++)); do sum=$(((sum * 17 + i) % 65521)); done; echo "sum $sum"
done
while read -r a b _; do echo "${b:-none} $a"; done < collected
printf '%s\n' "${!seen[@]}" | sort
cat <<END
traps $count
END
exit 0
