//! What the demo shows while it runs: lines that are drawn again in a terminal, plain lines elsewhere.

use super::live::{Act, Piece};
use std::collections::VecDeque;
use std::io::Write;
use std::time::{Duration, Instant};

/// Events that stay visible.
const EVENTS: usize = 6;
const REDRAW: Duration = Duration::from_millis(100);

/// Where to show it.
pub struct Display {
    terminal: bool,
    to_stderr: bool,
    events: VecDeque<String>,
    lines: usize,
    drawn: Option<Instant>,
}

impl Display {
    /// With `json`, standard output is for the result alone.
    pub fn new(json: bool) -> Display {
        let fd = if json { 2 } else { 1 };
        let terminal = crate::sys::is_terminal(fd) && std::env::var_os("TERM").is_none_or(|t| t != "dumb");
        Display { terminal, to_stderr: json, events: VecDeque::new(), lines: 0, drawn: None }
    }

    /// One line that stays.
    pub fn line(&mut self, text: &str) {
        self.write(&format!("{text}\n"));
    }

    /// Something happened.
    pub fn event(&mut self, at: Duration, text: String) {
        let line = format!("{:5.1} s  {text}", at.as_secs_f64());
        if !self.terminal {
            return self.line(&line);
        }
        self.events.push_back(line);
        if self.events.len() > EVENTS {
            self.events.pop_front();
        }
        self.drawn = None;
    }

    /// Draws who is where.
    pub fn draw(&mut self, at: Duration, act: Act, nodes: &[String], pieces: &[Piece]) {
        if !self.terminal || self.drawn.is_some_and(|d| d.elapsed() < REDRAW) {
            return;
        }
        self.drawn = Some(Instant::now());
        let what = match act {
            Act::Spread => "the nodes spread the programs",
            Act::Drain => "n2 is being drained",
            Act::Again => "n2 is used again",
        };
        let mut lines = vec![format!("{:5.1} s  {what}", at.as_secs_f64()), String::new()];
        lines.extend(picture(nodes, &pieces.iter().map(|p| (p.name, p.state())).collect::<Vec<_>>()));
        lines.push(String::new());
        lines.extend(self.events.iter().cloned());
        let width = terminal_width();
        let back = if self.lines > 0 { format!("\x1b[{}A", self.lines) } else { String::new() };
        let body: String = lines.iter().map(|l| format!("\x1b[2K{}\n", cut(l, width))).collect();
        self.lines = lines.len();
        self.write(&(back + &body + "\x1b[J"));
    }

    /// Leaves what is drawn where it is.
    pub fn close(&mut self) {
        self.lines = 0;
    }

    fn write(&self, text: &str) {
        let done = if self.to_stderr {
            std::io::stderr().write_all(text.as_bytes())
        } else {
            let mut out = std::io::stdout();
            out.write_all(text.as_bytes()).and_then(|()| out.flush())
        };
        // Nobody looks: no reason to stop.
        drop(done);
    }
}

/// Where a program is; whether it is being moved; whether it has ended.
pub type State = (usize, bool, bool);

/// One line per node with the programs there; one that is being moved has an arrow.
fn picture(nodes: &[String], pieces: &[(&str, State)]) -> Vec<String> {
    let line = |(i, name): (usize, &String)| {
        let here = pieces.iter().filter(|(_, (place, _, ended))| *place == i && !ended);
        let words: Vec<String> =
            here.map(|(name, (_, moving, _))| if *moving { format!("{name}->") } else { name.to_string() }).collect();
        format!("  {name:<5} {:<5} {}", "#".repeat(words.len().min(5)), words.join("  "))
    };
    nodes.iter().enumerate().map(line).collect()
}

/// Names are plain letters, so bytes are columns; an error message may not be.
fn cut(line: &str, width: usize) -> String {
    line.chars().filter(|c| !c.is_control()).take(width.saturating_sub(1)).collect()
}

fn terminal_width() -> usize {
    // SAFETY: winsize is plain data that the ioctl fills.
    let size = unsafe {
        let mut size = std::mem::zeroed::<libc::winsize>();
        if libc::ioctl(1, libc::TIOCGWINSZ, &mut size) < 0 {
            return 80;
        }
        size
    };
    if size.ws_col == 0 { 80 } else { size.ws_col as usize }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_picture() {
        let nodes = ["n1".to_string(), "n2".to_string()];
        let pieces = [("gzip", (0, true, false)), ("awk", (1, false, false)), ("bc", (1, false, true))];
        let lines = picture(&nodes, &pieces);
        assert_eq!(lines[0].trim_end(), "  n1    #     gzip->");
        assert_eq!(lines[1].trim_end(), "  n2    #     awk");
        assert_eq!(cut("a\u{1b}bcd", 4), "abc");
    }
}
