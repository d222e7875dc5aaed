//! Lists of nodes as Slurm writes them: `n1,n[3-5,8],rack[1-2]n[01-04]`.

/// Most nodes that one list may name: no job has more.
const MOST: usize = 1 << 15;

/// All that it names, in its order, each once.
pub fn expand(text: &str) -> Result<Vec<String>, String> {
    let mut all: Vec<String> = Vec::new();
    for word in apart(text)?.into_iter().filter(|w| !w.is_empty()) {
        let some = one(word)?;
        if all.len() + some.len() > MOST {
            return Err(format!("it names more than {MOST} nodes"));
        }
        all.extend(some);
    }
    if all.is_empty() {
        return Err("it names no node".into());
    }
    for name in &all {
        pando_wire::NodeName::parse(name).map_err(|e| e.to_string())?;
    }
    let mut known = std::collections::BTreeSet::new();
    all.retain(|name| known.insert(name.clone()));
    Ok(all)
}

/// At the commas that are in no brackets.
fn apart(text: &str) -> Result<Vec<&str>, String> {
    let (mut words, mut start, mut inside) = (Vec::new(), 0, false);
    for (at, c) in text.char_indices() {
        match c {
            '[' | ']' if inside == (c == '[') => return Err("its brackets do not match".into()),
            '[' | ']' => inside = c == '[',
            ',' if !inside => {
                words.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    if inside {
        return Err("its brackets do not match".into());
    }
    words.push(&text[start..]);
    Ok(words)
}

/// What one word names: all combinations of its brackets.
fn one(word: &str) -> Result<Vec<String>, String> {
    let (mut names, mut rest) = (vec![String::new()], word);
    while let Some((before, after)) = rest.split_once('[') {
        let (inside, behind) = after.split_once(']').ok_or("its brackets do not match")?;
        let numbers = numbers(inside)?;
        if names.len().saturating_mul(numbers.len()) > MOST {
            return Err(format!("{word} names more than {MOST} nodes"));
        }
        names = names.iter().flat_map(|name| numbers.iter().map(move |n| format!("{name}{before}{n}"))).collect();
        rest = behind;
    }
    names.iter_mut().for_each(|name| name.push_str(rest));
    Ok(names)
}

/// `1-3,07`: as many digits as the first of a range has, if that begins with a zero.
fn numbers(text: &str) -> Result<Vec<String>, String> {
    let wrong = || format!("[{text}] is no list of numbers: write [1-4,7]");
    let number = |digits: &str| match digits.bytes().all(|b| b.is_ascii_digit()) {
        true => digits.parse::<u64>().map_err(|_| wrong()),
        false => Err(wrong()),
    };
    let mut all = Vec::new();
    for part in text.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (from, to) = (number(first)?, number(last)?);
        if from > to {
            return Err(wrong());
        }
        if to - from >= (MOST - all.len()) as u64 {
            return Err(format!("[{text}] names more than {MOST} nodes"));
        }
        let width = if first.starts_with('0') { first.len() } else { 0 };
        all.extend((from..=to).map(|n| format!("{n:0width$}")));
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bolero::check;

    #[test]
    fn ranges_name_what_slurm_has_them_name() {
        let all = |text: &str| expand(text).unwrap().join(" ");
        assert_eq!(all("n1"), "n1");
        assert_eq!(all("n1,n[3-5]"), "n1 n3 n4 n5");
        assert_eq!(all("n[1-3,7],x"), "n1 n2 n3 n7 x");
        assert_eq!(all("n[08-11]"), "n08 n09 n10 n11");
        assert_eq!(all("r[1-2]n[1-2]a"), "r1n1a r1n2a r2n1a r2n2a");
        assert_eq!(all("n2,n[1-2],"), "n2 n1", "each once, in its order");
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for text in ["", ",", "n[", "n]", "n[1-", "n[[1]]", "n[]", "n[a]", "n[3-1]", "n[1-+2]", "n[-1]", "n 1", "n[1]]"]
        {
            assert!(expand(text).is_err(), "{text}");
        }
        for text in ["n[1-99999999999]", "n[0-18446744073709551615]", "n[1-999]m[1-999]", "a[1-20000],b[1-20000]"] {
            assert!(expand(text).unwrap_err().contains("more than"), "{text}");
        }
    }

    #[test]
    fn nothing_makes_it_panic_or_fill_the_memory() {
        check!().with_type::<String>().for_each(|text| assert!(expand(text).map_or(0, |all| all.len()) <= MOST));
        check!().with_type::<Vec<u8>>().for_each(|picks| {
            let text: String = picks.iter().map(|p| char::from(b"n[]-,019"[usize::from(p % 8)])).collect();
            assert!(expand(&text).map_or(0, |all| all.len()) <= MOST);
        });
    }
}
