//! Slurm's ways to say which columns: `%.18i %9P` (squeue, sinfo) and `jobid,jobname%20` (sacct).

use super::Ended;

/// One column: what stands before it, which, how wide (0: as wide as it is), and on which side it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Field {
    before: String,
    letter: char,
    width: usize,
    right: bool,
}

/// `%.18i|%j`, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format {
    fields: Vec<Field>,
    after: String,
}

/// Fit for a terminal, and for a line of its own: what users and nodes call things may have escapes and line ends in it. As long as before.
pub fn plain(text: &str) -> String {
    let one = |c: char| match c {
        '\n' | '\r' | '\t' | '\u{2028}' | '\u{2029}' => ' ',
        // They turn the order of what follows.
        '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{61c}' => '?',
        c if c.is_control() => '?',
        c => c,
    };
    text.chars().map(one).collect()
}

/// A line for people.
pub fn say(text: &str) {
    println!("{}", plain(text));
}

fn fitted(text: &str, width: usize, right: bool) -> String {
    let text = plain(text);
    match (width, right) {
        (0, _) => text,
        (width, true) => format!("{:>width$}", text.chars().take(width).collect::<String>()),
        (width, false) => format!("{:<width$}", text.chars().take(width).collect::<String>()),
    }
}

impl Format {
    /// Reads one. `known`: the letters that there are. The error is for people.
    pub fn read(text: &str, known: &str) -> Result<Format, String> {
        let (mut fields, mut before) = (Vec::new(), String::new());
        let mut rest = text.chars().peekable();
        while let Some(c) = rest.next() {
            if c != '%' {
                before.push(c);
                continue;
            }
            if rest.next_if_eq(&'%').is_some() {
                before.push('%');
                continue;
            }
            if let Some(after) = rest.clone().collect::<String>().strip_prefix("all") {
                // As Slurm has it: all there are.
                for (number, letter) in known.chars().enumerate() {
                    before.push_str(if number > 0 { "|" } else { "" });
                    fields.push(Field { before: std::mem::take(&mut before), letter, width: 0, right: false });
                }
                return Ok(Format { fields, after: after.replace("%%", "%") });
            }
            let right = rest.next_if_eq(&'.').is_some();
            let mut digits = String::new();
            while let Some(digit) = rest.next_if(char::is_ascii_digit) {
                digits.push(digit);
            }
            let letter = rest.next().ok_or("a format ends with % and no letter")?;
            if !known.contains(letter) {
                return Err(format!("`%{letter}` is no column here; there are {known}"));
            }
            let width = if digits.is_empty() { 0 } else { digits.parse::<usize>().unwrap_or(0).min(1000) };
            fields.push(Field { before: std::mem::take(&mut before), letter, width, right });
        }
        Ok(Format { fields, after: before })
    }

    /// Is this column there?
    pub fn has(&self, letter: char) -> bool {
        self.fields.iter().any(|f| f.letter == letter)
    }

    /// A line, with what each letter stands for.
    pub fn line(&self, of: impl Fn(char) -> String) -> String {
        let one = |f: &Field| f.before.clone() + &fitted(&of(f.letter), f.width, f.right);
        let line: String = self.fields.iter().map(one).collect();
        (line + &self.after).trim_end().to_owned()
    }
}

/// Columns by name, as sacct has them.
pub struct Columns {
    /// Names, how wide, and whether on the left side.
    all: Vec<(String, Option<usize>, bool)>,
    /// Between columns, in the place of widths; and at the end, too.
    pub between: Option<(String, bool)>,
}

/// How sacct writes its columns' names, however they are asked for: scripts look for these.
const HEADS: [&str; 46] = [
    "Account",
    "AllocCPUS",
    "AllocNodes",
    "AllocTRES",
    "AveCPU",
    "AveDiskRead",
    "AveDiskWrite",
    "AveRSS",
    "Cluster",
    "Comment",
    "ConsumedEnergy",
    "CPUTime",
    "CPUTimeRAW",
    "Elapsed",
    "ElapsedRaw",
    "Eligible",
    "End",
    "ExitCode",
    "Group",
    "JobID",
    "JobIDRaw",
    "JobName",
    "MaxDiskRead",
    "MaxDiskWrite",
    "MaxRSS",
    "MaxRSSNode",
    "MaxRSSTask",
    "MinCPU",
    "NCPUS",
    "NNodes",
    "NodeList",
    "NTasks",
    "Partition",
    "Priority",
    "QOS",
    "Reason",
    "ReqCPUS",
    "ReqMem",
    "Reservation",
    "Start",
    "State",
    "Submit",
    "Timelimit",
    "TotalCPU",
    "UID",
    "User",
];

fn headed(name: &str) -> &str {
    HEADS.iter().find(|head| head.eq_ignore_ascii_case(name)).copied().unwrap_or(name)
}

impl Columns {
    /// Reads `jobid,jobname%20,state%-10`. `known`: what there is, in lower case. The error is for people.
    pub fn read(text: &str, known: &[&str]) -> Result<Columns, String> {
        let one = |word: &str| {
            let (name, width) = word.split_once('%').map_or((word, None), |(name, width)| (name, Some(width)));
            let lower = name.to_ascii_lowercase();
            let width = width.map(|w| w.trim_start_matches('-').parse::<usize>()).transpose();
            match (known.contains(&lower.as_str()), width) {
                (true, Ok(width)) => Ok((headed(name).to_owned(), width, word.contains("%-"))),
                (true, Err(_)) => Err(format!("`{word}`: a width is a number")),
                (false, _) => Err(format!("`{name}` is no column here; there are {}", known.join(", "))),
            }
        };
        let all = text.split(',').filter(|w| !w.is_empty()).map(one).collect::<Result<_, _>>()?;
        Ok(Columns { all, between: None })
    }

    /// Has nothing in it that stands between columns.
    fn cell(&self, text: &str) -> String {
        match &self.between {
            Some((between, _)) => plain(text).replace(between, " "),
            None => plain(text),
        }
    }

    /// Prints them. `of`: what the cell of this row and column is.
    pub fn print<R>(&self, rows: &[R], header: bool, of: impl Fn(&R, &str) -> String) -> Ended {
        let cells =
            |row: &R| self.all.iter().map(|(name, ..)| self.cell(&of(row, &name.to_ascii_lowercase()))).collect();
        let mut lines: Vec<Vec<String>> = Vec::new();
        if header {
            lines.push(self.all.iter().map(|(name, ..)| name.clone()).collect());
        }
        lines.extend(rows.iter().map(cells));
        if let Some((between, ends)) = &self.between {
            lines.iter().for_each(|l| println!("{}{}", l.join(between), if *ends { between } else { "" }));
            return Ok(0);
        }
        let widest = |i: usize| lines.iter().map(|l| l[i].chars().count()).max().unwrap_or(0);
        let widths: Vec<usize> =
            self.all.iter().enumerate().map(|(i, (_, w, _))| w.unwrap_or_else(|| widest(i))).collect();
        for (number, line) in lines.iter().enumerate() {
            let cells: Vec<String> = line
                .iter()
                .zip(&widths)
                .zip(&self.all)
                .map(|((cell, w), (.., left))| fitted(cell, *w, !left))
                .collect();
            println!("{}", cells.join(" "));
            if header && number == 0 {
                println!("{}", widths.iter().map(|w| "-".repeat(*w)).collect::<Vec<_>>().join(" "));
            }
        }
        Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_with_widths() {
        let of = |letter: char| if letter == 'i' { "17".into() } else { "a long name".into() };
        let line = |text: &str| Format::read(text, "ij").map(|f| f.line(of));
        assert_eq!(line("%i %j").unwrap(), "17 a long name");
        assert_eq!(line("%.5i|%5j|%%").unwrap(), "   17|a lon|%");
        assert_eq!(line("%4i%j;").unwrap(), "17  a long name;");
        assert_eq!((line("%all").unwrap(), line("%%all %i").unwrap()), ("17|a long name".into(), "%all 17".into()));
        assert!(line("%Z").unwrap_err().contains("`%Z`") && line("%").is_err());
        assert_eq!(Format::read("%5j|%j", "j").unwrap().line(|_| "a\n\u{1b}]b".into()), "a ?]b|a ?]b");
        assert!(Columns::read("JobID,name%x", &["jobid", "name"]).is_err());
        assert!(Columns::read("jobid,bogus", &["jobid"]).err().unwrap().contains("`bogus`"));
        assert_eq!(
            Columns::read("JobID,name%20", &["jobid", "name"]).unwrap().all[1],
            ("name".into(), Some(20), false)
        );
    }

    #[test]
    fn cells_of_users_make_neither_lines_nor_columns() {
        assert_eq!(plain("größe\u{9b}2J\u{1b}[2J\r\n\u{202e}x"), "größe?2J?[2J  ?x");
        let mut columns = Columns::read("jobid", &["jobid"]).unwrap();
        assert_eq!(columns.cell("/a|b\nc"), "/a|b c");
        columns.between = Some(("|".into(), false));
        assert_eq!(columns.cell("/a|b\nc"), "/a b c");
    }
}
