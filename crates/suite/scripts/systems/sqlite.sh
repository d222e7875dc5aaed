#!/bin/bash
# Three writers of one database, with a rollback journal and with WAL (whose index is shared memory).
# needs: sqlite3
for M in delete wal; do
d=$(mktemp -d); cd $d
sqlite3 t.db "pragma journal_mode=$M; create table a(id integer primary key, w int, n int, s text); create table c(w int primary key, v int); insert into c values(1,0),(2,0),(3,0);"
for w in 1 2 3; do ( { echo ".timeout 200000"; for i in $(seq 1 ${N:-1000}); do echo "begin immediate; insert into a(w,n,s) values($w,$i,hex(zeroblob(600))); update c set v=v+$i where w=$w; commit;"; [ $((i%40)) = 0 ] && echo "select sum(length(s))>0 from a where w=$w;"; done; } | sqlite3 t.db > o$w 2>&1; echo "w$w $?" >> o$w ) & done; wait
cat o1 o2 o3 | sort | uniq -c
sqlite3 t.db "pragma integrity_check; select w,count(*),sum(n) from a group by w; select * from c order by w;"
ls; cd /; rm -r $d
done
