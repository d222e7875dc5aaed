//! Names of output files with `%j` and the like in them, as sbatch(1) and srun(1) fill them in: a letter, and before it perhaps a width for numbers.

/// What a letter stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Filling {
    /// In decimal; zeroes come before it where a width is given.
    Number(String),
    /// As it is.
    Text(Vec<u8>),
}

impl Filling {
    /// A number.
    pub fn number(of: impl std::fmt::Display) -> Filling {
        Filling::Number(of.to_string())
    }

    /// A name, which is to be no path.
    pub fn name(of: &str) -> Filling {
        Filling::Text(of.replace('/', "_").into_bytes())
    }
}

/// Fills a pattern in. Letters that stand for nothing stay, with their `%`; `%%` is one.
pub fn filled(pattern: &[u8], what: impl Fn(u8) -> Option<Filling>) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = pattern;
    while let Some((&first, after)) = rest.split_first() {
        rest = after;
        if first != b'%' {
            out.push(first);
            continue;
        }
        let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count().min(2);
        let width = std::str::from_utf8(&rest[..digits]).ok().and_then(|d| d.parse().ok()).unwrap_or(0);
        let filling = match rest.get(digits) {
            Some(b'%') => Some(Filling::Text(b"%".to_vec())),
            letter => letter.and_then(|letter| what(*letter)),
        };
        match filling {
            Some(Filling::Number(number)) => out.extend(format!("{number:0>width$}").into_bytes()),
            Some(Filling::Text(text)) => out.extend(text),
            None => {
                out.push(b'%');
                continue;
            }
        }
        rest = &rest[digits + 1..];
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn letters_are_filled_in_and_all_else_stays() {
        let what = |letter| match letter {
            b'j' => Some(Filling::number(17)),
            b'x' => Some(Filling::name("a/b")),
            _ => None,
        };
        let of = |pattern: &str| String::from_utf8(filled(pattern.as_bytes(), what)).unwrap();
        assert_eq!(of("ä%j-%4j-%1j.%x%4x"), "ä17-0017-17.a_ba_b");
        assert_eq!(of("100%% %q %4q %ö % %"), "100% %q %4q %ö % %");
        assert_eq!((of("%"), of("%4"), of("%123j"), of("")), ("%".into(), "%4".into(), "%123j".into(), String::new()));
    }

    #[test]
    fn no_pattern_is_too_odd() {
        bolero::check!().with_type::<Vec<u8>>().for_each(|pattern| {
            assert_eq!(&filled(pattern, |_| None).len(), &pattern.len().saturating_sub(doubled(pattern)));
        });
    }

    /// Bytes that `%%`, with or without a width, is shorter by.
    fn doubled(pattern: &[u8]) -> usize {
        let (mut at, mut less) = (0, 0);
        while at < pattern.len() {
            if pattern[at] == b'%' {
                let digits = pattern[at + 1..].iter().take_while(|b| b.is_ascii_digit()).count().min(2);
                if pattern.get(at + 1 + digits) == Some(&b'%') {
                    less += digits + 1;
                    at += digits + 1;
                }
            }
            at += 1;
        }
        less
    }
}
