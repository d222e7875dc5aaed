//! What a script says of itself: its lines of `#PANDO`, `#SBATCH` and `#PBS`.

use crate::spec::MOST_SCRIPT;
use crate::{options, pbs, words};
use std::fmt::{self, Display, Formatter};

/// Longest line that is looked at, and most directives.
const MOST_LINE: usize = 64 << 10;
const MOST_DIRECTIVES: usize = 10_000;

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directive {
    /// Its number, from 1.
    pub line: usize,
    /// What it says, as `pando submit` reads it: one word for each option, `--nodes=2`.
    pub words: Vec<String>,
}

/// What is wrong with a script.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wrong {
    /// Where, from 1.
    pub line: usize,
    /// What, and what helps.
    pub what: String,
}

impl Display for Wrong {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

impl std::error::Error for Wrong {}

/// The directives of a script, in its order: later ones count more, and the command line most of all. As with sbatch they end at the first
/// line that is no comment.
pub fn read(script: &[u8]) -> Result<Vec<Directive>, Wrong> {
    let wrong = |line: usize, what: String| Err(Wrong { line, what });
    if script.len() > MOST_SCRIPT {
        return wrong(
            1,
            format!(
                "the script has {} bytes, {MOST_SCRIPT} at most: is it a program? Then write a script that runs it",
                script.len()
            ),
        );
    }
    let line_of = |at: usize| 1 + script[..at].iter().filter(|b| **b == b'\n').count();
    if let Some(at) = script.iter().position(|b| *b == 0) {
        return wrong(
            line_of(at),
            "there is a byte 0: this is a program and no script. Write a script that runs it".into(),
        );
    }
    if !script.starts_with(b"#!") {
        return wrong(
            1,
            "a script begins with #! and its interpreter, like #!/bin/sh. A command goes with --wrap".into(),
        );
    }
    if let Some(at) = script.windows(2).position(|w| w == b"\r\n") {
        return wrong(
            line_of(at),
            "it ends as on Windows (CR LF), which no shell here reads: dos2unix makes it right".into(),
        );
    }
    let mut found = Vec::new();
    for (at, line) in script.split(|b| *b == b'\n').enumerate() {
        let (number, line) = (at + 1, line.strip_suffix(b"\r").unwrap_or(line));
        let text = line.trim_ascii_start();
        if !text.is_empty() && !text.starts_with(b"#") {
            break;
        }
        let Some((kind, rest)) = directive(line) else { continue };
        if rest.len() > MOST_LINE || found.len() >= MOST_DIRECTIVES {
            return wrong(
                number,
                format!("there are more than {MOST_DIRECTIVES} directives, or one is longer than {MOST_LINE} bytes"),
            );
        }
        let Ok(rest) = std::str::from_utf8(rest) else {
            return wrong(number, "a directive that is not UTF-8".into());
        };
        let said = |what: String| Wrong { line: number, what: format!("{kind} {what}") };
        let line = words::split(rest).map_err(|what| said(format!("has {what}")))?;
        let line = match kind {
            "#PBS" => pbs::translate(&line).map_err(said)?,
            _ => line,
        };
        let words = options::canonical(&line).map_err(said)?;
        found.push(Directive { line: number, words });
    }
    Ok(found)
}

/// Which kind a line is, and the rest of it. It begins the line, and a space follows: `##SBATCH` and `#SBATCHx` are comments.
fn directive(line: &[u8]) -> Option<(&'static str, &[u8])> {
    ["#PANDO", "#SBATCH", "#PBS"].iter().find_map(|kind| {
        let rest = line.strip_prefix(kind.as_bytes())?;
        (rest.is_empty() || rest[0] == b' ' || rest[0] == b'\t').then_some((*kind, rest))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use bolero::check;

    fn words(script: &str) -> Vec<(usize, String)> {
        read(script.as_bytes()).unwrap().into_iter().map(|d| (d.line, d.words.join(" "))).collect()
    }

    #[test]
    fn those_before_the_first_command() {
        let script = "#!/bin/sh\n#SBATCH -N 2 --job-name='a b' # two\n# note\n\n  # more\n#PANDO --time=5\n##SBATCH -n 1\n \
                      #SBATCH -n 1\n#SBATCHES -n 1\n#PBS -N x\necho\n#SBATCH --bogus\n";
        let expected = [(2, "--nodes=2 --job-name=a b"), (6, "--time=5"), (10, "--job-name=x")];
        assert_eq!(words(script), expected.map(|(line, text)| (line, text.to_owned())));
        assert_eq!(words("#!/bin/sh\n#SBATCH -H"), [(2, "--hold".to_owned())], "no newline at the end");
        assert_eq!(words("#!/bin/sh"), []);
    }

    #[test]
    fn what_is_wrong_says_where() {
        let tests: [(&[u8], &str); 9] = [
            (b"#!/bin/sh\n\n#SBATCH --nodse=2\n", "line 3: #SBATCH `--nodse=2` is no option"),
            (b"#!/bin/sh\n#PBS -Z 1\n", "line 2: #PBS `-Z`"),
            (b"#!/bin/sh\n#SBATCH -J 'a\n", "line 2: #SBATCH has a ' that is not closed"),
            (b"#!/bin/sh\r\n#SBATCH -N 1\r\n", "line 1: it ends as on Windows"),
            (b"#!/bin/sh\n#SBATCH -N 1\r\n", "line 2: it ends as on Windows"),
            (b"echo\n", "line 1: a script begins with #!"),
            (b"#!/bin/sh\n\0", "line 2: there is a byte 0"),
            (b"#!/bin/sh\n#SBATCH -J \xff\n", "line 2: a directive that is not UTF-8"),
            (b"#!/bin/sh\n#SBATCH -N\n", "line 2: #SBATCH `-N` wants a value"),
        ];
        for (script, what) in tests {
            let wrong = read(script).unwrap_err().to_string();
            assert!(wrong.starts_with(what), "{wrong}");
        }
        assert!(read(&vec![b'a'; MOST_SCRIPT + 1]).is_err());
    }

    #[test]
    fn any_bytes_are_read_or_refused() {
        check!().with_type::<(Vec<u8>, u8)>().for_each(|(bytes, kind)| {
            let head = ["", "#!/bin/sh\n#SBATCH ", "#!/bin/sh\n#PBS ", "#!/bin/sh\n#PBS -l ", "#!/bin/sh\n#PBS -W "];
            let script = [head[usize::from(*kind) % head.len()].as_bytes(), bytes].concat();
            if let Ok(found) = read(&script) {
                let all = found.iter().flat_map(|d| &d.words);
                all.for_each(|w| assert_eq!(&options::canonical(std::slice::from_ref(w)).unwrap()[0], w));
            }
        });
    }
}
