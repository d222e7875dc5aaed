//! What `--help` says of `pando testbed`, `pando demo` and `pando bench`; the manual pages say the same.

/// Of `pando testbed`.
pub const TESTBED: &str = "\
  pando testbed up N [--cpus X] [--memory SIZE] [--delay MS] [--rate MBIT] [--config FILE]
  pando testbed exec NODE -- CMD...       run as if at that node
  pando testbed status [--json]
  pando testbed cut NODE | heal NODE      take its network away; give it back (undoes stall too)
  pando testbed stall NODE [SECONDS]      stop its daemon and helpers
  pando testbed kill [--daemon] NODE      as a crash of the machine would; or only the daemon
  pando testbed start NODE                start its daemon again
  pando testbed down                      take everything away
Each takes --name NAME; without it the testbed is the one that PANDO_TESTBED names, or `default`. CPUs, memory
(512M, 2G), delay and rate are of each node; FILE has more of every node's configuration.
Example: pando testbed up 3 --delay 2; pando testbed exec n1 -- pando nodes";

/// Of `pando demo`.
pub const DEMO: &str = "\
  pando demo [--nodes N] [--seconds S] [--json]
Runs real programs unmoved, then spread over N nodes (4) of a testbed that it makes and takes away, for about S
seconds (8) each time, and compares their output byte by byte.
Example: pando demo --nodes 3 --seconds 20";

/// Of `pando bench`.
pub const BENCH: &str = "\
  pando bench move  [--json] [--file SIZE]  freeze time, throughput, faults, calls, files, memory, a build
  pando bench files [--json] [--file SIZE]  only what has to do with files
Measures on a testbed of two nodes that it makes and takes away, beside the limits of this machine. SIZE is that
of the file that is read (1G).
Example: pando bench files --file 256M";

/// What there is to say of `command`.
pub(crate) fn of(command: &str) -> &'static str {
    match command {
        "demo" => DEMO,
        "bench" => BENCH,
        _ => TESTBED,
    }
}
