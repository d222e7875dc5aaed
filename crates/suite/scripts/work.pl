# Hashes, regular expressions, sorting and pack over a text.
use strict;
use warnings;
my (%count, %first, $lines, $pairs);
open(my $in, '<', $ARGV[0]) or die "open: $!";
while (my $line = <$in>) {
    $lines++;
    for my $word (split ' ', $line) {
        $count{$word}++;
        $first{$word} //= $lines;
    }
    $pairs++ while $line =~ /(\w)\w*\1(?=\s)/g;
    (my $turned = $line) =~ tr/a-z/n-za-m/;
    $count{length $turned}++ if $turned =~ s/(oo|ba)(\d*)/<$2$1>/g;
}
close $in;
my @top = sort { $count{$b} <=> $count{$a} || $a cmp $b } keys %count;
print "$lines lines, $pairs pairs, ", scalar(@top), " words\n";
printf "%-12s %6d %6d\n", $_, $count{$_}, $first{$_} // 0 for @top[0 .. 40];
my $packed = join '', map { pack 'Nn', $count{$_}, $first{$_} // 0 } @top;
print unpack('%32C*', $packed), "\n";
