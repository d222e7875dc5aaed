"""Threads of Python: locks, conditions, queues, pools, thread locals, timers, and commands started from several of them."""
import concurrent.futures
import hashlib
import queue
import subprocess
import sys
import threading
import zlib

sys.setswitchinterval(0.0005)
lock, local = threading.Lock(), threading.local()
count = 0


def add(number):
    global count
    local.mine = 0
    for i in range(20000):
        with lock:
            count += number
        local.mine += number
    return local.mine


def through_queues():
    work, done = queue.Queue(10), queue.Queue()

    def worker():
        while (item := work.get()) is not None:
            done.put((item, sum(i * i % 7 for i in range(item))))

    workers = [threading.Thread(target=worker) for _ in range(4)]
    for thread in workers:
        thread.start()
    for item in range(400):
        work.put(item)
    for _ in workers:
        work.put(None)
    for thread in workers:
        thread.join()
    return sorted(done.get() for _ in range(400))[-3:], done.empty()


def in_turns():
    turn, said, changed = 0, [], threading.Condition()

    def speaker(me):
        nonlocal turn
        for _ in range(100):
            with changed:
                while turn % 3 != me:
                    changed.wait(0.01)
                said.append(me)
                turn += 1
                changed.notify_all()

    speakers = [threading.Thread(target=speaker, args=(me,), daemon=True) for me in range(3)]
    for thread in speakers:
        thread.start()
    for thread in speakers:
        thread.join()
    return said == [0, 1, 2] * 100


def command(number):
    script = f"read line; echo got $line; exit {number}"
    result = subprocess.run(["/bin/sh", "-c", script], input=f"{number * 3}\n", capture_output=True, text=True)
    return result.returncode, result.stdout.strip()


with open("input/text", "rb") as file:
    text = file.read()
parts = [text[i : i + 200000] for i in range(0, len(text), 200000)]
with concurrent.futures.ThreadPoolExecutor(4) as pool:
    print(sum(pool.map(add, range(8))), count)
    # Hashes and zlib let go of the interpreter: these really run at once.
    print([hashlib.sha256(part * 5).hexdigest()[:8] for part in parts[:3]])
    print(list(pool.map(lambda part: hashlib.sha256(part * 80).hexdigest()[:8], parts)))
    print(list(pool.map(lambda part: zlib.crc32(zlib.compress(part, 9)), parts)))
    print(list(pool.map(command, range(10))))
print(through_queues(), in_turns())
event, rang = threading.Event(), []
timers = [threading.Timer(0.005 * i, lambda i=i: (rang.append(i), event.set() if i == 9 else None)) for i in range(10)]
for timer in timers:
    timer.start()
print(event.wait(600))
for timer in timers:
    timer.join()
print(sorted(rang), threading.active_count())
