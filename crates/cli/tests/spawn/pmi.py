#!/usr/bin/env python3
# Speaks PMI-1 itself, as MPICH's library does: `pmi.py HOW`. Ranks that were started have two words.
import os, socket, sys, time

f = socket.socket(fileno=int(os.environ["PMI_FD"])).makefile("rw")
rank, size = os.environ["PMI_RANK"], os.environ["PMI_SIZE"]
how = sys.argv[1]


def ask(line):
    f.write(line + "\n")
    f.flush()
    return f.readline().strip()


def say(*words):
    print(*words, flush=True)


def value(answer):
    return answer.split("value=", 1)[1]


def get(name):
    return value(ask(f"cmd=get kvsname=x key={name}"))


def program(count, words, of, at, info=()):
    lines = ["mcmd=spawn", f"nprocs={count}", f"execname={words[0]}", f"totspawns={of}", f"spawnssofar={at}"]
    lines += [f"arg{i + 1}={word}" for i, word in enumerate(words[1:])] + [f"argcnt={len(words) - 1}"]
    lines += ["preput_num=1", "preput_key_0=PARENT_ROOT_PORT_NAME", f"preput_val_0=port of {rank}$a=b"]
    lines += [f"info_num={len(info)}"]
    lines += [f"info_{what}_{i}={word}" for i, pair in enumerate(info) for what, word in zip(("key", "val"), pair)]
    return "\n".join(lines + ["endcmd"])


me = ["python3", os.path.abspath(sys.argv[0])]


def first():
    ask("cmd=init pmi_version=1 pmi_subversion=1")
    if how == "long":
        f.write("cmd=put kvsname=x key=a value=" + "v" * 20000 + "\n")
        f.flush()
        f.readline()
    if how == "all" and rank == "0":
        both = [
            program(3, me + ["all", "x=y cmd=abort"], 2, 1),
            program(1, me + ["all", "last"], 2, 2, [("wdir", "/"), ("unknown", "x")]),
        ]
        say(ask("\n".join(both)))
    if how == "alone" and rank == "0":
        # What they run is what came with the job.
        os.unlink(os.environ["SELF"])
        say(ask(program(4, [os.environ["SELF"], how, "x"], 1, 1)))
    if how == "deep" and rank == "0":
        say(ask(program(2, me + ["deep", "1"], 1, 1)))
    if how == "bad" and rank == "0":
        say(ask(program(1, ["no-such-program"], 1, 1)))
        say(ask(program(1, me, 1, 1, [("host", "n9")])))
        say(ask(program(0, me, 1, 1)))
        say(ask(program(100000, me, 1, 1)))
        say(ask("cmd=get_universe_size").startswith("cmd=universe_size rc=0 size="))
    if how in ("wait", "early", "exit") and rank == "0":
        say(os.getpid(), ask(program(4, me + [how, "x"], 1, 1)))
    if how == "many":
        # Until something happens to one of them.
        while ask(program(2, me + ["one", "x"], 1, 1)).endswith("rc=0"):
            say(os.getpid(), "more")
    if how in ("wait", "early", "exit"):
        time.sleep(1000)
    assert ask("cmd=barrier_in").startswith("cmd=barrier_out")
    ask("cmd=finalize")


def started():
    if how == "early":
        return
    assert os.environ["PMI_SPAWNED"] == "1"
    ask("cmd=init pmi_version=1 pmi_subversion=1")
    if how == "exit" and rank == "3":
        sys.exit(5)
    if how in ("wait", "exit"):
        say(os.getpid(), "waits")
        time.sleep(1000)
    appnum = ask("cmd=get_appnum").split("appnum=")[1]
    port = get("PARENT_ROOT_PORT_NAME")
    ask(f"cmd=put kvsname=x key=of-{rank} value=said by {rank}")
    assert ask("cmd=barrier_in").startswith("cmd=barrier_out")
    last = get(f"of-{int(size) - 1}")
    if how != "one":
        say(f"{rank}/{size} program {appnum} {sys.argv[2]} in {os.getcwd()}: {port}, {last}")
    if how == "deep" and rank == "1" and sys.argv[2] != "4":
        assert ask(program(2, me + ["deep", str(int(sys.argv[2]) + 1)], 1, 1)).endswith("rc=0")
    ask("cmd=finalize")


started() if len(sys.argv) > 2 else first()
