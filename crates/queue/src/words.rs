//! A line as words, as a shell splits it: quotes, backslashes, a comment at the end. Nothing is expanded.

/// The words of a line; the error says what is wrong with it.
pub fn split(line: &str) -> Result<Vec<String>, &'static str> {
    let (mut words, mut word) = (Vec::new(), None::<String>);
    let mut rest = line.chars();
    while let Some(c) = rest.next() {
        match c {
            ' ' | '\t' | '\x0b' | '\x0c' => words.extend(word.take()),
            '#' if word.is_none() => break,
            '\'' => loop {
                let word = word.get_or_insert_default();
                match rest.next() {
                    Some('\'') => break,
                    Some(c) => word.push(c),
                    None => return Err("a ' that is not closed"),
                }
            },
            '"' => quoted(&mut rest, word.get_or_insert_default())?,
            '\\' => word.get_or_insert_default().push(rest.next().ok_or("a \\ with nothing after it")?),
            c => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    Ok(words)
}

fn quoted(rest: &mut std::str::Chars<'_>, word: &mut String) -> Result<(), &'static str> {
    loop {
        match rest.next() {
            Some('"') => return Ok(()),
            Some('\\') => match rest.next() {
                Some(c @ ('"' | '\\' | '$' | '`')) => word.push(c),
                Some(c) => word.extend(['\\', c]),
                None => return Err("a \" that is not closed"),
            },
            Some(c) => word.push(c),
            None => return Err("a \" that is not closed"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bolero::check;

    #[test]
    fn as_a_shell_does_it() {
        let words = |line: &str| split(line).unwrap();
        assert_eq!(words("  -N 2\t--name='a b' # rest"), ["-N", "2", "--name=a b"]);
        assert_eq!(words(r#"a\ b "c \" \\ \n" d'e'"f" '' x#y"#), ["a b", r#"c " \ \n"#, "def", "", "x#y"]);
        assert_eq!(words(""), [""; 0]);
        assert_eq!(words("# all of it"), [""; 0]);
        for wrong in ["'a", "\"a", "\"a\\", "a\\"] {
            assert!(split(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_quoted_comes_back() {
        check!().with_type::<Vec<String>>().for_each(|words| {
            let quote = |w: &String| format!("'{}'", w.replace('\'', r"'\''"));
            let line = words.iter().map(quote).collect::<Vec<_>>().join(" ");
            assert_eq!(split(&line).unwrap(), *words);
        });
        check!().with_type::<String>().for_each(|line| _ = split(line));
    }
}
