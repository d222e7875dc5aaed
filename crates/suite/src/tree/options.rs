//! The command line of `pando-suite tree`.

use crate::random;
use std::time::Duration;

/// What is printed for `--help`.
pub const USAGE: &str = "\
pando-suite tree [options] -- COMMAND [ARGUMENT...]
                      runs a command at n1 and moves it and all that it starts between n1, n2 and n3, at random times
  --compare           runs it unmoved first, and compares the end and the output
  --ms N              about so many milliseconds between two moves (50)
  -j N                so many moves at a time (1)
  --only NAME         moves only processes of this name (may be given again)
  --at-least N        it is wrong if fewer moves were made (0)
  --limit N           it hangs if it has not ended after so many seconds (300)
  --seed N            random numbers from this
  --name NAME         of the testbed
  --keep              leaves the testbed there at the end
It prints how the command ended, the moves, and what was refused and why; fails if anything differs, hangs or is left behind.";

/// What to do.
#[derive(Debug)]
pub struct Options {
    /// The command and its arguments.
    pub command: Vec<String>,
    /// Compare with an unmoved run.
    pub compare: bool,
    /// Milliseconds between two moves.
    pub ms: u64,
    /// Moves at a time.
    pub movers: usize,
    /// Names of processes that move; empty: all.
    pub only: Vec<String>,
    /// Fewer moves than this show nothing.
    pub at_least: usize,
    /// It must have ended after this.
    pub limit: Duration,
    /// Of the random numbers.
    pub seed: u64,
    /// Of the testbed.
    pub name: Option<String>,
    /// Leave the testbed.
    pub keep: bool,
}

/// Reads what comes after `tree`.
pub fn parse(mut args: impl Iterator<Item = String>) -> Result<Options, String> {
    let mut options = Options {
        command: Vec::new(),
        compare: false,
        ms: 50,
        movers: 1,
        only: Vec::new(),
        at_least: 0,
        limit: Duration::from_secs(300),
        seed: random::seed(),
        name: None,
        keep: false,
    };
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(format!("{arg} wants a value"));
        let number = |text: String| text.parse::<u64>().map_err(|_| format!("{arg}: `{text}` is not a number"));
        match arg.as_str() {
            "--compare" => options.compare = true,
            "--keep" => options.keep = true,
            "--ms" => options.ms = number(value()?)?.max(1),
            "-j" => options.movers = number(value()?)?.clamp(1, 64) as usize,
            "--at-least" => options.at_least = number(value()?)? as usize,
            "--limit" => options.limit = Duration::from_secs(number(value()?)?),
            "--seed" => options.seed = number(value()?)?,
            "--only" => options.only.push(value()?),
            "--name" => options.name = Some(value()?),
            "--" => options.command = args.by_ref().collect(),
            _ => return Err(format!("{arg}?\n{USAGE}")),
        }
    }
    match options.command.is_empty() {
        true => Err(format!("which command?\n{USAGE}")),
        false => Ok(options),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(text: &str) -> Result<Options, String> {
        parse(text.split(' ').map(String::from))
    }

    #[test]
    fn options_come_before_the_command() {
        let options = of("--ms 20 --only a --only b -- ls --compare").expect("read");
        assert_eq!((options.ms, options.compare), (20, false));
        assert_eq!((options.command.len(), options.only.len()), (2, 2));
        assert!(of("ls").is_err());
        assert!(of("--ms 20").is_err());
    }
}
