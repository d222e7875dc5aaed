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
pub const OPTIONS: [Known; 69] = {
    use Takes::{Maybe, Nothing, Value};
    [
        ("account", Some('A'), Value),
        ("acctg-freq", None, Value),
        ("array", Some('a'), Value),
        ("begin", Some('b'), Value),
        ("chdir", Some('D'), Value),
        ("comment", None, Value),
        ("constraint", Some('C'), Value),
        ("contiguous", None, Nothing),
        ("cpu-bind", None, Value),
        ("cpu-freq", None, Value),
        ("cpus-per-task", Some('c'), Value),
        ("deadline", None, Value),
        ("dependency", Some('d'), Value),
        ("distribution", Some('m'), Value),
        ("error", Some('e'), Value),
        ("exclude", Some('x'), Value),
        ("exclusive", None, Maybe),
        ("export", None, Value),
        ("export-file", None, Value),
        ("get-user-env", None, Maybe),
        ("gpus-per-node", None, Value),
        ("gres", None, Value),
        ("hint", None, Value),
        ("hold", Some('H'), Nothing),
        ("input", Some('i'), Value),
        ("job-name", Some('J'), Value),
        ("kill-on-invalid-dep", None, Value),
        ("licenses", Some('L'), Value),
        ("mail-type", None, Value),
        ("mail-user", None, Value),
        ("mem", None, Value),
        ("mem-bind", None, Value),
        ("mem-per-cpu", None, Value),
        ("network", None, Value),
        ("nice", None, Maybe),
        ("no-kill", Some('k'), Maybe),
        ("no-requeue", None, Nothing),
        ("nodelist", Some('w'), Value),
        ("nodes", Some('N'), Value),
        ("ntasks", Some('n'), Value),
        ("ntasks-per-core", None, Value),
        ("ntasks-per-node", None, Value),
        ("ntasks-per-socket", None, Value),
        ("open-mode", None, Value),
        ("output", Some('o'), Value),
        ("overcommit", Some('O'), Nothing),
        ("oversubscribe", Some('s'), Nothing),
        ("parsable", None, Nothing),
        ("partition", Some('p'), Value),
        ("priority", None, Value),
        ("profile", None, Value),
        ("propagate", None, Maybe),
        ("qos", Some('q'), Value),
        ("quiet", Some('Q'), Nothing),
        ("requeue", None, Nothing),
        ("reservation", None, Value),
        ("signal", None, Value),
        ("spread-job", None, Nothing),
        ("switches", None, Value),
        ("test-only", None, Nothing),
        ("threads-per-core", None, Value),
        ("time", Some('t'), Value),
        ("time-min", None, Value),
        ("tmp", None, Value),
        ("use-min-nodes", None, Nothing),
        ("verbose", Some('v'), Nothing),
        ("wait", Some('W'), Nothing),
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
