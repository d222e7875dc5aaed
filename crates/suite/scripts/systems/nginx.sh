#!/bin/bash
# One process that serves files, proxies to itself and compresses.
# needs: nginx curl ab wrk openssl
P=7900; d=$(mktemp -d); chmod 755 $d; cd $d; mkdir www logs
for i in 1 2 3 4 5; do head -c $((i*70000)) /dev/zero | openssl enc -aes-128-ctr -K $(printf '%032d' $i) -iv 0 2>/dev/null > www/f$i; done
echo hello > www/index.html
cat > conf <<C
user root; pid $d/pid; error_log $d/logs/err warn; master_process off; daemon off;
events { worker_connections 200; }
http { access_log $d/logs/acc; sendfile on; client_body_temp_path $d/b; proxy_temp_path $d/p; fastcgi_temp_path $d/f; uwsgi_temp_path $d/u; scgi_temp_path $d/s; gzip on; gzip_min_length 100; gzip_types *;
 server { listen 127.0.0.1:$P; root $d/www; location /proxy/ { proxy_pass http://127.0.0.1:$P/; } } }
C
nginx -p $d -c conf & s=$!
for i in $(seq 100); do curl -s 127.0.0.1:$P/ >/dev/null && break; sleep 0.05; done
bad=0
for r in $(seq 1 12); do for i in 1 2 3 4 5; do for u in f$i proxy/f$i; do
 curl -s 127.0.0.1:$P/$u | cmp -s - www/f$i || bad=$((bad+1))
 curl -s --compressed 127.0.0.1:$P/$u | cmp -s - www/f$i || bad=$((bad+1)); done; done; done
echo bad $bad
ab -q -n 3000 -c 20 -k http://127.0.0.1:$P/f1 2>&1 | grep -E 'Complete|Failed|Non-2xx|Total tr|HTML'
wrk -t2 -c20 -d2 http://127.0.0.1:$P/index.html > $d/wrk 2>&1; echo wrk $?; grep -iE 'error|non-2' $d/wrk
kill -QUIT $s; wait $s; echo nginx $?
cut -d' ' -f9 logs/acc | sort | uniq -c | awk '{print $2}'; cat logs/err
rm -r $d
