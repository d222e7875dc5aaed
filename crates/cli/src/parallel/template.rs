//! A task's command: its words, with a line of input in the place of GNU parallel's replacement strings.

use pando_launch::Task;
use serde_bytes::ByteBuf;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

#[derive(Clone, Copy)]
enum Part {
    Line,
    NoExtension,
    Base,
    Directory,
    BaseNoExtension,
    Number,
}

const STRINGS: [(&[u8], Part); 6] = [
    (b"{}", Part::Line),
    (b"{.}", Part::NoExtension),
    (b"{/}", Part::Base),
    (b"{//}", Part::Directory),
    (b"{/.}", Part::BaseNoExtension),
    (b"{#}", Part::Number),
];

/// The command, and what follows `:::`, which is taken in place of lines. The error is for people.
pub fn split(words: &[OsString]) -> Result<(&[OsString], Option<Vec<OsString>>), String> {
    let is_more = |word: &OsString| [":::", "::::", ":::+", "::::+"].iter().any(|more| word == more);
    let Some(at) = words.iter().position(is_more) else { return Ok((words, None)) };
    if words[at] != ":::" || words[at + 1..].iter().any(is_more) {
        return Err(
            "of GNU parallel's ways to give arguments `:::` is understood, once; lines of files are `--arg-file FILE`"
                .into(),
        );
    }
    if at == 0 {
        return Err("there is no program before `:::`".into());
    }
    Ok((&words[..at], Some(words[at + 1..].to_vec())))
}

/// The words, and what stands in them.
pub struct Template {
    words: Vec<Vec<Piece>>,
    /// No string names the line: it comes at the end.
    appends: bool,
}

enum Piece {
    Text(Vec<u8>),
    Of(Part),
}

impl Template {
    /// Of a command. The error is for people.
    pub fn new(command: &[OsString]) -> Result<Template, String> {
        let words: Vec<Vec<Piece>> = command.iter().map(|word| pieces(word.as_bytes())).collect();
        if words[0].iter().any(|piece| matches!(piece, Piece::Of(_))) {
            return Err("the program itself can't be `{}`: write `sh -c '{}'`".into());
        }
        let of_line = |piece: &Piece| matches!(piece, Piece::Of(part) if !matches!(part, Part::Number));
        let appends = !words.iter().flatten().any(of_line);
        Ok(Template { words, appends })
    }

    /// The command for one line, the `number`th.
    pub fn fill(&self, line: &OsStr, number: u64) -> Vec<ByteBuf> {
        let line = line.as_bytes();
        let one = |pieces: &Vec<Piece>| {
            let mut word = Vec::new();
            for piece in pieces {
                match piece {
                    Piece::Text(text) => word.extend_from_slice(text),
                    Piece::Of(Part::Number) => word.extend_from_slice(number.to_string().as_bytes()),
                    Piece::Of(part) => word.extend_from_slice(of(line, *part)),
                }
            }
            ByteBuf::from(word)
        };
        let mut all: Vec<ByteBuf> = self.words.iter().map(one).collect();
        all.extend(self.appends.then(|| ByteBuf::from(line)));
        all
    }

    /// It for people, in one line.
    pub fn shown(&self, line: &OsStr, number: u64) -> String {
        let task = Task { words: self.fill(line, number), ..Task::default() };
        let text = task.words.iter().map(|w| String::from_utf8_lossy(w)).collect::<Vec<_>>().join(" ");
        text.chars().map(|c| if c.is_control() { '?' } else { c }).collect()
    }
}

fn pieces(word: &[u8]) -> Vec<Piece> {
    let (mut all, mut text, mut rest) = (Vec::new(), Vec::new(), word);
    while let Some((first, after)) = rest.split_first() {
        match STRINGS.iter().find(|(string, _)| rest.starts_with(string)) {
            Some((string, part)) => {
                all.extend([Piece::Text(std::mem::take(&mut text)), Piece::Of(*part)]);
                rest = &rest[string.len()..];
            }
            None => {
                text.push(*first);
                rest = after;
            }
        }
    }
    all.push(Piece::Text(text));
    all
}

fn of(line: &[u8], part: Part) -> &[u8] {
    let slash = line.iter().rposition(|b| *b == b'/');
    let base = slash.map_or(0, |at| at + 1);
    // A dot that begins the last part begins no extension.
    let end = match line[base..].iter().rposition(|b| *b == b'.') {
        Some(at) => base + at,
        None => line.len(),
    };
    match part {
        Part::Line | Part::Number => line,
        Part::NoExtension => &line[..end],
        Part::Base => &line[base..],
        Part::BaseNoExtension => &line[base..end],
        Part::Directory => match slash {
            Some(0) => b"/",
            Some(at) => &line[..at],
            None => b".",
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bolero::check;

    fn filled(command: &str, line: &str) -> String {
        let command: Vec<OsString> = command.split(' ').map(OsString::from).collect();
        let all = Template::new(&command).unwrap().fill(OsStr::new(line), 7);
        all.iter().map(|w| String::from_utf8(w.to_vec()).unwrap()).collect::<Vec<_>>().join("|")
    }

    #[test]
    fn a_line_takes_the_place_of_braces_or_the_end() {
        assert_eq!(filled("cc -c {} -o {}.o", "a b"), "cc|-c|a b|-o|a b.o");
        assert_eq!(filled("echo x", "7"), "echo|x|7");
        assert_eq!(filled("echo {}{}", "{}"), "echo|{}{}");
        assert_eq!(filled("echo {#}", "x"), "echo|7|x", "a number is not the line");
        assert!(Template::new(&["{}".into()]).is_err());
    }

    #[test]
    fn parts_of_names_are_as_gnu_parallel_has_them() {
        let parts = |line: &str| filled("x {.} {/} {//} {/.}", line);
        assert_eq!(parts("/a/b.c/d.tar.gz"), "x|/a/b.c/d.tar|d.tar.gz|/a/b.c|d.tar");
        assert_eq!(parts("d.txt"), "x|d|d.txt|.|d");
        assert_eq!(parts("a.b/d"), "x|a.b/d|d|a.b|d");
        assert_eq!(parts("/d"), "x|/d|d|/|d");
        assert_eq!(filled("x {///} {a} {", "l"), "x|{///}|{a}|{|l");
    }

    #[test]
    fn words_behind_colons_are_lines() {
        let parts = |text: &str| {
            let words: Vec<OsString> = text.split(' ').map(OsString::from).collect();
            split(&words).map(|(command, lines)| (command.len(), lines.map(|lines| lines.len())))
        };
        assert_eq!(
            (parts("echo a"), parts("echo {} ::: a b"), parts("echo :::")),
            (Ok((2, None)), Ok((2, Some(2))), Ok((1, Some(0))))
        );
        for text in ["::: a", "echo ::: a ::: b", "echo :::: file", "echo ::: a :::+ b"] {
            assert!(parts(text).is_err(), "{text}");
        }
    }

    #[test]
    fn no_line_makes_it_panic() {
        let template = Template::new(&["x".into(), "{.}{/}{//}{/.}{#}{}".into()]).unwrap();
        check!().with_type::<Vec<u8>>().for_each(|line| _ = template.shown(OsStr::from_bytes(line), 1));
    }
}
