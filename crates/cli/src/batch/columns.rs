//! squeue's columns by name (`-O jobid:10,name,state`): the letters that they stand for.

/// How wide a column is if nothing is said, as squeue has it.
const WIDTH: usize = 20;

/// Names of `-O`, and the letters of `-o` that say the same.
const NAMES: [(&str, char); 52] = [
    ("account", 'a'),
    ("arrayjobid", 'F'),
    ("arraytaskid", 'K'),
    ("batchhost", 'B'),
    ("comment", 'k'),
    ("cpus-per-task", 'c'),
    ("dependency", 'E'),
    ("eligibletime", 'd'),
    ("endtime", 'e'),
    ("exc_nodes", 'x'),
    ("excnodes", 'x'),
    ("exec_host", 'B'),
    ("feature", 'f'),
    ("gres", 'b'),
    ("jobarrayid", 'i'),
    ("jobid", 'A'),
    ("licenses", 'W'),
    ("minmemory", 'm'),
    ("name", 'j'),
    ("nice", 'y'),
    ("nodelist", 'N'),
    ("nodes", 'N'),
    ("numcpus", 'C'),
    ("numnodes", 'D'),
    ("numtasks", 's'),
    ("oversubscribe", 'h'),
    ("partition", 'P'),
    ("priority", 'Q'),
    ("prioritylong", 'Q'),
    ("qos", 'q'),
    ("reason", 'r'),
    ("reasonlist", 'R'),
    ("reqnodes", 'n'),
    ("reservation", 'v'),
    ("restartcnt", 'G'),
    ("schednodes", 'Y'),
    ("starttime", 'S'),
    ("state", 'T'),
    ("statecompact", 't'),
    ("submittime", 'V'),
    ("tasks", 's'),
    ("timeleft", 'L'),
    ("timelimit", 'l'),
    ("timeused", 'M'),
    ("tres", 'b'),
    ("tres-alloc", 'b'),
    ("tres-per-job", 'b'),
    ("tres-per-node", 'b'),
    ("username", 'u'),
    ("userid", 'U'),
    ("wckey", 'w'),
    ("workdir", 'Z'),
];

/// The format by letters that says the same as names with widths: `jobid:10,name:.5`. The error is for people.
pub fn by_letters(text: &str) -> Result<String, String> {
    let one = |word: &str| {
        let (name, width) = word.split_once(':').map_or((word, None), |(name, width)| (name, Some(width)));
        let lower = name.to_ascii_lowercase();
        let found = NAMES.iter().find(|(known, _)| *known == lower);
        let names = || NAMES.map(|(name, _)| name).join(", ");
        let (_, letter) = found.ok_or_else(|| format!("`{name}` is no column here; there are {}", names()))?;
        let (right, digits) = match width.map(|w| (w.strip_prefix('.'), w)) {
            Some((Some(digits), _)) => (".", digits),
            Some((None, digits)) => ("", digits),
            None => ("", ""),
        };
        // What follows digits stands behind the column.
        let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
        let (digits, after) = digits.split_at(end);
        let width =
            if digits.is_empty() { WIDTH } else { digits.parse().map_err(|_| format!("`{word}`: its width"))? };
        Ok(format!("%{right}{width}{letter}{}", after.replace('%', "%%")))
    };
    text.split(',').filter(|word| !word.is_empty()).map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_stand_for_letters() {
        assert_eq!(by_letters("JobID:10,name,state:.5"), Ok("%10A%20j%.5T".into()));
        assert_eq!(by_letters("jobid:|,name:3;"), Ok("%20A|%3j;".into()));
        assert!(by_letters("bogus").unwrap_err().contains("`bogus` is no column here; there are account"));
    }
}
