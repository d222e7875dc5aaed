# Sums, groups and string work over a table.
BEGIN { FS = "," }
NR > 1 {
    sum[$2] += $3
    days[$4 % 7]++
    if (length($2) > longest) longest = length($2)
    text = $2
    gsub(/[aeiou]+/, "_", text)
    shape[text]++
    for (i = 1; i <= 20; i++) mix = (mix * 31 + $1 + i) % 1000003
}
END {
    for (name in sum) { names++; total += sum[name] }
    for (s in shape) shapes++
    for (d = 0; d < 7; d++) printf "%d:%d ", d, days[d]
    printf "\n%d names, %d shapes, total %.2f, longest %d, mix %d\n", names, shapes, total, longest, mix
}
