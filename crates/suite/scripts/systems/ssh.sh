#!/bin/bash
# Sessions with commands, much data both ways, and a terminal.
# needs: /usr/sbin/sshd ssh ssh-keygen
D=$(mktemp -d); cd $D; ssh-keygen -q -t ed25519 -N '' -f key; ssh-keygen -q -t ed25519 -N '' -f user; cp user.pub auth; chmod 600 auth; mkdir -p /run/sshd
/usr/sbin/sshd -D -e -p 7913 -o ListenAddress=127.0.0.1 -h $D/key -o PidFile=none -o AuthorizedKeysFile=$D/auth -o StrictModes=no -o UsePAM=no -f /dev/null 2>$D/log & s=$!
r() { ssh -p 7913 -i $D/user -o StrictHostKeyChecking=no -o UserKnownHostsFile=$D/known -o BatchMode=yes -o LogLevel=ERROR root@127.0.0.1 "$@"; }
for i in $(seq 50); do r true 2>/dev/null && break; sleep 0.1; done
for i in $(seq 1 8); do r "echo hello $i; exit $i"; echo "status $?"; done
head -c 20000000 /dev/zero | r 'sha256sum'; r 'head -c 20000000 /dev/zero' | sha256sum
r -tt 'tty >/dev/null && echo tty; sleep 0.5; stty size' </dev/null | tr -d '\r' | head -1
for i in 1 2 3; do (seq 1 20000 | r 'sort -rn | tail -1') & done; wait $(jobs -p | grep -v "^$s$"); kill $s; wait $s; echo sshd $?; rm -rf $D
