//! What `--help` says of `pando testbed`, `pando demo` and `pando bench`; the manual pages say the same.

/// Of `pando testbed`.
pub const TESTBED: &str = "\
  pando testbed up N [--cpus X] [--memory SIZE] [--delay MS] [--rate MBIT] [--no-balance]
                   [--config FILE]
  pando testbed exec NODE -- CMD...       run as if at that node
  pando testbed status [--json]
  pando testbed cut NODE | heal NODE      take its network away; give it back (undoes stall too)
  pando testbed stall NODE [SECONDS]      stop its daemon and helpers
  pando testbed kill [--daemon] NODE      as a crash of the machine would; or only the daemon
  pando testbed start NODE                start its daemon again
  pando testbed down                      take everything away
Each takes --name NAME; without it the testbed is the one that PANDO_TESTBED names, or `default`. CPUs, memory
(512M, 2G), delay and rate are of each node (X may be a list: 0.5,1 are the first one's, the second one's, and so
on); with --no-balance programs move only when they are asked to; FILE has
more of every node's configuration.
Example: pando testbed up 3 --delay 2; pando testbed exec n1 -- pando nodes";

/// Of `pando demo`.
pub const DEMO: &str = "\
  pando demo [--nodes N] [--seconds S] [--json]
Runs real programs unmoved, then again at one of N nodes (4) of a testbed that it makes and takes away, for about S
seconds (8) each time. The nodes spread them by themselves, one node is drained and used again, and every output is
compared byte by byte.
Example: pando demo --nodes 3 --seconds 20";

/// Of `pando bench`.
pub const BENCH: &str = "\
  pando bench move  [--json] [--file SIZE]  freeze time, throughput, faults, calls, files, memory, a build
  pando bench files [--json] [--file SIZE]  only what has to do with files
  pando bench fabric [--json] [--nodes N,...]  Compare-And-Write, transfers and the strobe, of 2, 16 and 64 nodes
  pando bench launch [--json] [--short] [--nodes N,...]  how fast parallel jobs start, on 1, 16 and 64 nodes
  pando bench jobs [--json] [--short]       how many batch jobs a second, how soon one begins, and a long queue
  pando bench balance [--json] [--short] [--experiment N,...] [--nodes N] [--seed S] [--seeds N]
                      [--seconds S] [--set KEY=NUMBER]
move and files measure on a testbed of two nodes that is made and taken away, beside the limits of this machine.
SIZE is that of the file that is read (1G). balance has the nodes of a testbed (4) spread work by themselves, beside
the best possible and the simulator: 1 identical processes and other users, 2 random execution times, 3 memory,
4 unequal speeds, joins, leaves and a drain; rest is what daemons cost when nothing is to do, in clusters of up to 64.
Work is sized so that the best possible takes S seconds (60; short: 20; of memory half as many again); KEY is one of
[balance] in the configuration. launch starts jobs by turns with other launchers that are installed (MPICH's Hydra, and
Slurm, whose daemons it starts and ends), on the nodes of one testbed; jobs does
so with Slurm's queue.
Example: pando bench files --file 256M; pando bench balance --experiment 2 --short";

/// What there is to say of `command`.
pub(crate) fn of(command: &str) -> &'static str {
    match command {
        "demo" => DEMO,
        "bench" => BENCH,
        _ => TESTBED,
    }
}
