//! The options of `pando submit` (which are sbatch's), as the directives of a script may have them.

/// What an option has after its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Takes {
    /// Nothing.
    Nothing,
    /// A value.
    Value,
    /// A value or nothing: `--nice`, `--nice=10`.
    Maybe,
}

/// An option: its long name, its letter, what it takes.
pub type Known = (&'static str, Option<char>, Takes);

/// What a script may say.
pub const OPTIONS: [Known; 104] = {
    use Takes::{Maybe, Nothing, Value};
    [
        ("account", Some('A'), Value),
        ("acctg-freq", None, Value),
        ("array", Some('a'), Value),
        ("batch", None, Value),
        ("bb", None, Value),
        ("bbf", None, Value),
        ("begin", Some('b'), Value),
        ("bell", None, Nothing),
        ("chdir", Some('D'), Value),
        ("cluster-constraint", None, Value),
        ("clusters", Some('M'), Value),
        ("comment", None, Value),
        ("constraint", Some('C'), Value),
        ("container", None, Value),
        ("contiguous", None, Nothing),
        ("core-spec", Some('S'), Value),
        ("cores-per-socket", None, Value),
        ("cpu-bind", None, Value),
        ("cpu-freq", None, Value),
        ("cpus-per-gpu", None, Value),
        ("cpus-per-task", Some('c'), Value),
        ("deadline", None, Value),
        ("delay-boot", None, Value),
        ("dependency", Some('d'), Value),
        ("distribution", Some('m'), Value),
        ("error", Some('e'), Value),
        ("exclude", Some('x'), Value),
        ("exclusive", None, Maybe),
        ("export", None, Value),
        ("export-file", None, Value),
        ("extra-node-info", Some('B'), Value),
        ("get-user-env", None, Maybe),
        ("gid", None, Value),
        ("gpu-bind", None, Value),
        ("gpu-freq", None, Value),
        ("gpus", Some('G'), Value),
        ("gpus-per-node", None, Value),
        ("gpus-per-socket", None, Value),
        ("gpus-per-task", None, Value),
        ("gres", None, Value),
        ("gres-flags", None, Value),
        ("hint", None, Value),
        ("hold", Some('H'), Nothing),
        ("ignore-pbs", None, Nothing),
        ("immediate", Some('I'), Maybe),
        ("input", Some('i'), Value),
        ("job-name", Some('J'), Value),
        ("kill-on-invalid-dep", None, Value),
        ("licenses", Some('L'), Value),
        ("mail-type", None, Value),
        ("mail-user", None, Value),
        ("mcs-label", None, Value),
        ("mem", None, Value),
        ("mem-bind", None, Value),
        ("mem-per-cpu", None, Value),
        ("mem-per-gpu", None, Value),
        ("mincpus", None, Value),
        ("network", None, Value),
        ("nice", None, Maybe),
        ("no-bell", None, Nothing),
        ("no-kill", Some('k'), Maybe),
        ("no-requeue", None, Nothing),
        ("nodefile", Some('F'), Value),
        ("nodelist", Some('w'), Value),
        ("nodes", Some('N'), Value),
        ("ntasks", Some('n'), Value),
        ("ntasks-per-core", None, Value),
        ("ntasks-per-gpu", None, Value),
        ("ntasks-per-node", None, Value),
        ("ntasks-per-socket", None, Value),
        ("open-mode", None, Value),
        ("output", Some('o'), Value),
        ("overcommit", Some('O'), Nothing),
        ("oversubscribe", Some('s'), Nothing),
        ("parsable", None, Nothing),
        ("partition", Some('p'), Value),
        ("power", None, Value),
        ("prefer", None, Value),
        ("priority", None, Value),
        ("profile", None, Value),
        ("propagate", None, Maybe),
        ("qos", Some('q'), Value),
        ("quiet", Some('Q'), Nothing),
        ("reboot", None, Nothing),
        ("requeue", None, Nothing),
        ("reservation", None, Value),
        ("scratch", None, Value),
        ("signal", None, Value),
        ("sockets-per-node", None, Value),
        ("spread-job", None, Nothing),
        ("switches", None, Value),
        ("test-only", None, Nothing),
        ("thread-spec", None, Value),
        ("threads-per-core", None, Value),
        ("time", Some('t'), Value),
        ("time-min", None, Value),
        ("tmp", None, Value),
        ("uid", None, Value),
        ("use-min-nodes", None, Nothing),
        ("verbose", Some('v'), Nothing),
        ("wait", Some('W'), Nothing),
        ("wait-all-nodes", None, Value),
        ("wckey", None, Value),
        ("webhook", None, Value),
    ]
};

fn by_letter(letter: char) -> Option<&'static Known> {
    OPTIONS.iter().find(|o| o.1 == Some(letter))
}

/// Makes words that a user wrote one word for each option, with its long name: `-N 2 -H` is `--nodes=2 --hold`. The error names the word.
pub fn canonical(words: &[String]) -> Result<Vec<String>, String> {
    let mut all = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        let unknown = || format!("`{word}` is no option of `pando submit`");
        let mut need = |value: Option<&str>| match value {
            Some(value) => Ok(value.to_owned()),
            None => words.next().cloned().ok_or_else(|| format!("`{word}` wants a value")),
        };
        if let Some(long) = word.strip_prefix("--") {
            let (name, value) = long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
            let known = OPTIONS.iter().find(|o| o.0 == name).ok_or_else(unknown)?;
            all.push(match (known.2, value) {
                (Takes::Nothing, Some(_)) => return Err(format!("`{word}`: --{name} takes no value")),
                (Takes::Nothing | Takes::Maybe, None) => format!("--{name}"),
                (_, value) => format!("--{name}={}", need(value)?),
            });
            continue;
        }
        let mut letters = word.strip_prefix('-').filter(|l| !l.is_empty()).ok_or_else(unknown)?;
        while let Some(letter) = letters.chars().next() {
            let known = by_letter(letter).ok_or_else(unknown)?;
            letters = &letters[letter.len_utf8()..];
            if known.2 == Takes::Nothing {
                all.push(format!("--{}", known.0));
                continue;
            }
            let value = (!letters.is_empty()).then(|| letters.strip_prefix('=').unwrap_or(letters));
            all.push(format!("--{}={}", known.0, need(value)?));
            break;
        }
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_word_for_each() {
        let words = |text: &str| crate::words::split(text).unwrap();
        let made = |text: &str| canonical(&words(text)).unwrap().join(" ");
        assert_eq!(
            made("-N 2 -Hn4 --time 5 --mem=2G --nice -J=x"),
            "--nodes=2 --hold --ntasks=4 --time=5 --mem=2G --nice --job-name=x"
        );
        assert_eq!(made("--nice=5 --exclusive=user -p a,b"), "--nice=5 --exclusive=user --partition=a,b");
        for (wrong, word) in
            [("-N", "-N"), ("--hold=1", "--hold"), ("x", "`x`"), ("--bogus=1", "--bogus"), ("-", "`-`"), ("-HZ", "-HZ")]
        {
            assert!(canonical(&words(wrong)).unwrap_err().contains(word), "{wrong}");
        }
        assert!(OPTIONS.is_sorted_by_key(|o| o.0));
    }
}
