//! An interactive shell with job control at a terminal of its own, as a user has it.

use super::{Daemon, PATIENCE};
use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

/// Without line editing: what is typed goes to the terminal's own line, and is echoed once.
pub const BASH: &str = "bash --norc --noprofile --noediting -i";

#[derive(Default)]
struct Screen {
    text: Mutex<String>,
    grew: Condvar,
}

/// The terminal, and the shell at it.
pub struct Terminal {
    child: Child,
    input: ChildStdin,
    screen: Arc<Screen>,
    /// How far it has been read.
    seen: usize,
}

impl Terminal {
    /// With `node` for the local node. None, said aloud, where there is no program for it.
    pub fn open(test: &str, node: &Daemon) -> Option<Terminal> {
        for (program, package) in [("script", "bsdutils"), ("bash", "bash")] {
            if Command::new(program).arg("--version").output().is_err() {
                eprintln!("SKIPPED {test}: it needs {program} (Debian: {package})");
                return None;
            }
        }
        // In the background a shell has us ignore some, and all that we start.
        let mut command = Command::new("env");
        command.args(["--default-signal", "script", "-q", "-f", "-c", BASH, "/dev/null"]).env("TERM", "dumb");
        command.env("pando", env!("CARGO_BIN_EXE_pando")).env("PANDO_SOCKET", &node.socket).env("inner", BASH);
        command.env_remove("HISTFILE").env_remove("PROMPT_COMMAND").env("LC_ALL", "C");
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (input, mut output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let screen: Arc<Screen> = Arc::default();
        let shown = screen.clone();
        std::thread::spawn(move || {
            let mut piece = [0; 4096];
            while let Ok(n @ 1..) = output.read(&mut piece) {
                shown.text.lock().unwrap().push_str(&String::from_utf8_lossy(&piece[..n]));
                shown.grew.notify_all();
            }
        });
        let mut terminal = Terminal { child, input, screen, seen: 0 };
        terminal.type_line("PS1='or'ders\\>\\ ");
        terminal.shows("orders> ");
        Some(terminal)
    }

    /// Keys; `\x1a` is Ctrl-Z.
    pub fn press(&mut self, keys: &str) {
        self.input.write_all(keys.as_bytes()).unwrap();
        self.input.flush().unwrap();
    }

    /// A line for whoever reads the terminal. What `shows` is to find must look different here, for it is echoed.
    pub fn type_line(&mut self, line: &str) {
        self.press(&format!("{line}\n"));
    }

    /// Waits for `text` on the screen, behind what was found last.
    pub fn shows(&mut self, text: &str) {
        let found = self.shows_within(text, PATIENCE);
        assert!(found, "{text:?} is not on the screen behind {:?}", &self.screen.text.lock().unwrap()[..self.seen]);
    }

    fn shows_within(&mut self, text: &str, limit: Duration) -> bool {
        let begun = Instant::now();
        let mut all = self.screen.text.lock().unwrap();
        loop {
            if let Some(at) = all[self.seen..].find(text) {
                self.seen += at + text.len();
                return true;
            }
            let left = limit.saturating_sub(begun.elapsed());
            if left.is_zero() {
                return false;
            }
            all = self.screen.grew.wait_timeout(all, left).unwrap().0;
        }
    }

    /// The shell answers: it has the terminal. What is typed the moment a job has stopped may be lost on the way, without Pando, too.
    pub fn answers(&mut self) {
        let begun = Instant::now();
        loop {
            self.type_line("echo he'r'e $((6 * 7))");
            if self.shows_within("here 42", Duration::from_secs(2)) {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "nobody answers");
        }
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- the screen\n{}", self.screen.text.lock().unwrap_or_else(|e| e.into_inner()));
        }
        // The shell's own end is a hangup, which ends its jobs.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
