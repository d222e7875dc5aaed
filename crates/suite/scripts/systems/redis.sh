#!/bin/bash
# A server with its load: commands, pipelines, saves and rewrites by children; the data read again afterwards.
# needs: redis-server redis-cli redis-benchmark redis-check-rdb
d=$(mktemp -d); cd $d
redis-server --port 7900 --bind 127.0.0.1 --dir $d --save "" --appendonly yes --appendfsync everysec --auto-aof-rewrite-percentage 0 >$d/log 2>&1 &
s=$!
c() { redis-cli -p 7900 "$@"; }
for i in $(seq 100); do [ "$(c ping 2>/dev/null)" = PONG ] && break; sleep 0.1; done
c ping
for i in $(seq 1 300); do echo "SET k$i v$i"; echo "LPUSH l $i"; echo "INCRBY n $i"; echo "HSET h f$i $i"; done | redis-cli -p 7900 > $d/out1; sort $d/out1 | uniq -c | sort -rn | head -1 | tr -s ' '
for i in $(seq 1 20000); do printf '*3\r\n$3\r\nSET\r\n$%d\r\nx%d\r\n$3\r\nval\r\n' $((${#i}+1)) $i; done | redis-cli -p 7900 --pipe 2>&1 | tail -1
redis-benchmark -p 7900 -n 20000 -c 20 -q -t set,get,lpush,lrange_100 >$d/bench 2>&1; echo bench $? ; tr '\r' '\n' <$d/bench | grep -c 'requests per second'
redis-benchmark -p 7900 -n 50000 -c 20 -P 16 -q -t set,get >$d/bench 2>&1; echo bench $?
for k in 1 2 3; do
 c bgsave >/dev/null; for i in $(seq 300); do c info persistence | grep -q rdb_bgsave_in_progress:0 && break; sleep 0.1; done; c info persistence | grep rdb_last_bgsave_status
 c bgrewriteaof > /dev/null; for i in $(seq 300); do c info persistence | grep -q aof_rewrite_in_progress:0 && break; sleep 0.1; done; c info persistence | grep aof_last_bgrewrite_status
done
c get n; c llen l; c hlen h; c get k77
before=$(c debug digest 2>&1); c shutdown nosave; wait $s; echo server $?
redis-check-rdb $d/dump.rdb | tail -1 | sed 's/.*\[/[/;s/offset [0-9]*//'
redis-server --port 7900 --bind 127.0.0.1 --dir $d --save "" --appendonly yes >$d/log2 2>&1 & s=$!
for i in $(seq 100); do [ "$(c ping 2>/dev/null)" = PONG ] && break; sleep 0.1; done
[ "$before" = "$(c debug digest 2>&1)" ] && echo same digest || echo "digest $before $(c debug digest 2>&1)"
c get n; c shutdown nosave; wait $s; echo server $?
grep -iE "warning|crash|error|fail" $d/log $d/log2 | grep -v overcommit | sed "s|.* 20[0-9][0-9] [0-9:.]*||" | head -5
rm -r $d
