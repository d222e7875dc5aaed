//! The name under which `ps` and `top` show a process (comm).

/// Bytes of a name that the kernel keeps.
const LONGEST: usize = 15;

/// Names this process (its only thread, which what it forks inherits the name from).
pub fn call_this(name: &str) {
    let mut bytes = [0u8; LONGEST + 1];
    let plain = name.bytes().map(|b| if b.is_ascii_graphic() { b } else { b'?' });
    bytes.iter_mut().take(LONGEST).zip(plain).for_each(|(to, from)| *to = from);
    // SAFETY: the kernel reads at most 16 bytes, of which the last one is zero. It can't fail.
    unsafe { libc::prctl(libc::PR_SET_NAME, bytes.as_ptr()) };
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_name_is_cut_and_has_no_strange_bytes() {
        // A thread of its own: the test runner's keep their names.
        let named = |name: &'static str| {
            let thread = std::thread::spawn(move || {
                super::call_this(name);
                std::fs::read_to_string("/proc/thread-self/comm").unwrap()
            });
            thread.join().unwrap()
        };
        assert_eq!(named("pando-deputy"), "pando-deputy\n");
        assert_eq!(named("guest:a\u{1b}[31mb and a long tail"), "guest:a?[31mb?a\n");
    }
}
