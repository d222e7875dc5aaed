#!/bin/bash
# A server with many threads under transactions.
# needs: mariadbd mariadb mariadb-slap mariadb-install-db
D=$(mktemp -d); chmod 755 $D; chown mysql $D
mariadb-install-db --no-defaults --user=mysql --datadir=$D/db --auth-root-authentication-method=normal >/dev/null 2>&1
mariadbd --no-defaults --user=mysql --datadir=$D/db --socket=$D/sock --skip-networking --pid-file=$D/pid --innodb-use-native-aio=0 > $D/log 2>&1 & s=$!
q() { mariadb -S $D/sock -u root "$@"; }
for i in $(seq 200); do q -e 'select 1' >/dev/null 2>&1 && break; sleep 0.1; done
q -e 'create database t; create table t.a(id int auto_increment primary key, w int, s varchar(200), key(w)) engine=innodb; create table t.c(w int primary key, v int) engine=innodb; insert into t.c values(1,0),(2,0),(3,0),(4,0)'
for w in 1 2 3 4; do ( for i in $(seq 1 400); do echo "begin; insert into a(w,s) values($w,repeat('x',$i%200)); update c set v=v+$i where w=$w; commit;"; done | q t; echo w$? ) & done; wait $(jobs -p | grep -v "^$s$")
mariadb-slap -S $D/sock -u root --concurrency=8 --iterations=2 --auto-generate-sql --number-of-queries=800 2>&1 | grep -c Benchmark
q -e 'check table t.a, t.c; select w,count(*),sum(length(s)) from t.a group by w; select * from t.c'
mariadb-admin -S $D/sock -u root shutdown; wait $s; echo server $?; grep -ciE 'corrupt|assert|signal' $D/log; rm -rf $D
