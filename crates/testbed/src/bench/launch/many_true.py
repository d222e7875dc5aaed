# Runs so many times `true` by HyperQueue, so many at a time, and prints how many were done in how many seconds. Its server and worker run before the clock does.
import ctypes
import socket
import sys
import time

from hyperqueue import Job, LocalCluster
from hyperqueue.cluster import WorkerConfig

# Its server and worker look for each other by the name of this machine. A testbed's nodes have names that nobody knows, so this process has one of its own.
CLONE_NEWUTS = 0x04000000
if ctypes.CDLL(None).unshare(CLONE_NEWUTS) == 0:
    socket.sethostname("localhost")

tasks, at_once, where = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]


def run(client, tasks):
    looks = []
    begun = time.monotonic()
    job = Job()
    for number in range(tasks):
        job.program(["true", str(number)], stdout=None, stderr=None)
    submitted = client.submit(job)

    def look(jobs):
        looks.append((sum(j["finished"] for j in jobs.values()), time.monotonic() - begun))

    if client.connection.wait_for_jobs((submitted.id,), look):
        sys.exit("a task has failed")
    # It is asked once a second: between the last look before the end and the end it may have been idle.
    before = [done for done in looks if 0 < done[0] < tasks]
    return before[-1] if before else (tasks, time.monotonic() - begun)


with LocalCluster(server_dir=where, worker_config=WorkerConfig(cores=at_once)) as cluster:
    client = cluster.client()
    # The first ones find the worker.
    run(client, at_once)
    print("done", *run(client, tasks))
    sys.stdout.flush()
