//! Several programs in one job: a file that says which ranks run what (`srun --multi-prog`), or parts with a colon between them (`mpiexec -n 1 a : -n 2 b`).
//! Every rank begins as a shell that looks which one it is and becomes its program: no node has to know of it.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Ranges and words that a file may have, more is a mistake.
const MOST: usize = 65_536;

/// One of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// First and last rank of each range.
    pub ranks: Vec<(u32, u32)>,
    /// It and its arguments.
    pub words: Vec<OsString>,
    /// Names and values that its ranks have besides.
    pub variables: Vec<(OsString, OsString)>,
    /// Where they run, if not where all do.
    pub directory: Option<OsString>,
    /// `%t` and `%o` in its words are the rank, and its place among the program's.
    pub fills: bool,
}

fn quoted(word: &[u8]) -> Vec<u8> {
    let mut out = vec![b'\''];
    for byte in word {
        match byte {
            b'\'' => out.extend(b"'\\''"),
            byte => out.push(*byte),
        }
    }
    out.push(b'\'');
    out
}

impl Program {
    /// A word, with what a shell fills in.
    fn word(&self, word: &OsStr) -> Vec<u8> {
        if !self.fills {
            return quoted(word.as_bytes());
        }
        let (mut out, mut text) = (Vec::new(), Vec::new());
        let mut rest = word.as_bytes().iter().peekable();
        while let Some(byte) = rest.next() {
            let variable: Option<&[u8]> = match (byte, rest.peek()) {
                (b'%', Some(b't')) => Some(b"\"$r\""),
                (b'%', Some(b'o')) => Some(b"\"$o\""),
                _ => None,
            };
            match variable {
                Some(variable) => {
                    rest.next();
                    out.extend(quoted(&std::mem::take(&mut text)));
                    out.extend(variable);
                }
                None => text.push(*byte),
            }
        }
        out.extend(quoted(&text));
        out
    }

    /// What the shell of one of its ranks does.
    fn run(&self) -> Vec<u8> {
        let mut out = Vec::new();
        for (name, value) in &self.variables {
            out.extend([b"export ", name.as_bytes(), b"=", &quoted(value.as_bytes()), b"; "].concat());
        }
        if let Some(directory) = &self.directory {
            out.extend([b"cd ".as_slice(), &quoted(directory.as_bytes()), b" || exit 125; "].concat());
        }
        out.extend(b"exec");
        for word in &self.words {
            out.push(b' ');
            out.extend(self.word(word));
        }
        out
    }
}

/// The command that every rank begins with.
pub fn command(programs: &[Program]) -> Vec<OsString> {
    let mut script = b"r=$PANDO_RANK\n".to_vec();
    for program in programs {
        let mut before = 0;
        for (first, last) in &program.ranks {
            let test = format!("if [ $r -ge {first} ] && [ $r -le {last} ]; then o=$((r - {first} + {before})); ");
            script.extend(test.into_bytes());
            script.extend(program.run());
            script.extend(b"; fi\n");
            before += u64::from(last - first) + 1;
        }
    }
    script.extend(b"echo \"pando: no program is said for rank $r\" >&2; exit 127\n");
    vec!["/bin/sh".into(), "-c".into(), OsString::from_vec(script)]
}

/// From which rank on it is which program, as an order has it.
pub fn parts(programs: &[Program]) -> Vec<(u32, u32)> {
    let of = |(number, program): (usize, &Program)| -> Vec<(u32, u32)> {
        program.ranks.iter().map(|(first, _)| (*first, number as u32)).collect()
    };
    let mut all: Vec<(u32, u32)> = programs.iter().enumerate().flat_map(of).collect();
    all.sort_unstable();
    all
}

/// `0,2-4`; `*` is all the others.
fn ranks(text: &str, size: u32, taken: &[(u32, u32)]) -> Option<Vec<(u32, u32)>> {
    if text == "*" {
        let is_free = |rank: &u32| !taken.iter().any(|(first, last)| (first..=last).contains(&rank));
        let mut all: Vec<(u32, u32)> = Vec::new();
        for rank in (0..size).filter(is_free) {
            match all.last_mut() {
                Some((_, last)) if *last + 1 == rank => *last = rank,
                _ => all.push((rank, rank)),
            }
        }
        return Some(all);
    }
    let one = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last) = (first.parse::<u32>().ok()?, last.parse::<u32>().ok()?);
        (first <= last).then_some((first, last))
    };
    text.split(',').map(one).collect()
}

/// Words of a line, some with quotes around them.
fn words(line: &str) -> Option<Vec<OsString>> {
    let (mut all, mut word, mut quote) = (Vec::new(), None::<String>, None);
    for c in line.chars() {
        match (quote, c) {
            (Some(q), c) if q == c => quote = None,
            (None, '\'' | '"') => (quote, word) = (Some(c), Some(word.unwrap_or_default())),
            (None, c) if c.is_whitespace() => all.extend(word.take().map(OsString::from)),
            (_, c) => word.get_or_insert_default().push(c),
        }
    }
    all.extend(word.map(OsString::from));
    quote.is_none().then_some(all)
}

/// Reads a file of `srun --multi-prog`: ranks, a program and its arguments in each line. `size`: how many ranks there are. The error is for people.
pub fn read(text: &str, size: u32) -> Result<Vec<Program>, String> {
    let mut programs: Vec<Program> = Vec::new();
    let mut taken: Vec<(u32, u32)> = Vec::new();
    // A line may go on in the next one.
    for (number, line) in text.replace("\\\n", " ").lines().enumerate().map(|(i, line)| (i + 1, line.trim())) {
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let wrong = |why: &str| {
            format!("line {number}: {why}: say which ranks, a program and its arguments, like `0-2 ./worker %t`")
        };
        let mut all = words(line).ok_or_else(|| wrong("a quote has no end"))?;
        let of = all.remove(0);
        let mine = of.to_str().and_then(|of| ranks(of, size, &taken)).ok_or_else(|| wrong("its ranks"))?;
        if all.is_empty() {
            return Err(wrong("there is no program"));
        }
        if let Some((_, last)) = mine.iter().find(|(_, last)| *last >= size) {
            return Err(format!(
                "line {number}: rank {last} is none of this job's, which are 0 to {}",
                size.saturating_sub(1)
            ));
        }
        let is_twice = |(first, last): &&(u32, u32)| taken.iter().any(|(f, l)| first <= l && f <= last);
        if let Some((first, _)) = mine.iter().find(is_twice) {
            return Err(format!("line {number}: rank {first} has a program already"));
        }
        taken.extend(&mine);
        if taken.len() > MOST {
            return Err(format!("it says more than {MOST} ranges of ranks"));
        }
        programs.push(Program { ranks: mine, words: all, fills: true, ..Program::default() });
    }
    let said: u64 = taken.iter().map(|(first, last)| u64::from(last - first) + 1).sum();
    match said == u64::from(size) {
        true => Ok(programs),
        false => Err(format!("it says what {said} ranks run, and the job has {size} (-n)")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bolero::check;

    fn runs(command: &[OsString], rank: u32) -> String {
        let out =
            std::process::Command::new(&command[0]).args(&command[1..]).env("PANDO_RANK", rank.to_string()).output();
        String::from_utf8(out.unwrap().stdout).unwrap().trim().to_owned()
    }

    #[test]
    fn each_rank_becomes_its_own() {
        let text = "# a comment\n0 echo first '%t a' it\"'\"s\n1,3 \\\n echo %t:%o\n* printf '%%s|' rest $HOME\n";
        let command = command(&read(text, 5).unwrap());
        let said: Vec<String> = (0..5).map(|rank| runs(&command, rank)).collect();
        assert_eq!(said[..4], ["first 0 a it's", "1:0", "%s|", "3:1"]);
        assert_eq!(parts(&read(text, 5).unwrap()), [(0, 0), (1, 1), (2, 2), (3, 1), (4, 2)]);
        let other = Program {
            ranks: vec![(0, 0)],
            words: vec!["sh".into(), "-c".into(), "echo $A %t $PWD".into()],
            variables: vec![("A".into(), "it's".into())],
            directory: Some("/".into()),
            fills: false,
        };
        assert_eq!(runs(&super::command(&[other]), 0), "it's %t /");
    }

    #[test]
    fn what_is_no_such_file_is_refused_in_words() {
        for (text, word) in [
            ("0 a\n0 b", "already"),
            ("0-1", "no program"),
            ("0-5 a", "rank 5"),
            ("0 a", "1 ranks run"),
            ("x a", "its ranks"),
            ("0-1 'a", "no end"),
            ("3-1 a", "its ranks"),
        ] {
            let why = read(text, 2).unwrap_err();
            assert!(why.contains(word), "{why}");
        }
        check!().with_type::<(String, u8)>().for_each(|(text, size)| _ = read(text, (*size).into()));
    }
}
