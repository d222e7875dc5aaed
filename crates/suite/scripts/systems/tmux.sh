#!/bin/bash
# A terminal multiplexer with an editor, a pager, top and job control, driven by keys.
# needs: tmux vim less top
S=$(mktemp -d); export HOME=$S TERM=xterm; cd $S; t() { tmux -S $S/sock -f /dev/null "$@"; }
seq 1 5000 > numbers
t new-session -d -x 80 -y 24 "bash --norc --noprofile"
w() { for i in $(seq 300); do t capture-pane -p | grep -qF -- "$1" && return; sleep 0.1; done; echo "never: $1"; t capture-pane -p; }
t send-keys 'PS1="$ "; echo be""gin' Enter; w begin
for r in 1 2 3 4; do
 t send-keys "vim -u NONE -n file$r" Enter; w 'file'; sleep 0.3
 for i in $(seq 1 12); do t send-keys "oline $i of $r" Escape; done; t send-keys ':%s/line/LINE/g' Enter; w "LINE 12 of $r"
 t send-keys ':wq' Enter; sleep 0.5; t send-keys "echo vim-done-\$?-$r" Enter; w "vim-done-0-$r"; md5sum < file$r
 t send-keys "less numbers" Enter; w 23; t send-keys '/4321' Enter; w 4321; t send-keys G; w 5000; t capture-pane -p | head -3; t send-keys q
 t send-keys "top -d 0.2 -n 5 >/dev/null; echo top-\$?-$r" Enter; w "top-0-$r"
 t send-keys "sleep 100" Enter; sleep 0.2; t send-keys C-z; w Stopped; t send-keys 'kill %1; wait; echo k''illed'$r Enter; w "killed$r"
 t resize-window -x $((70+r)) -y 24; t send-keys "clear; tput cols; echo cols$r" Enter; w "cols$r"; sleep 0.3; t capture-pane -p | grep -E '^[0-9]+$'
done
# What still ends there may write once more.
t kill-server; cd /; for i in $(seq 50); do rm -rf $S 2>/dev/null && break; sleep 0.1; done
