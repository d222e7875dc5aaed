//! `pando top` and `pando mon`: the cluster as it is now, in a terminal.

mod draw;
mod keys;
mod state;

use crate::args::WatchOptions;
use crate::cluster::Done;
use pando_node::client::Client;
use ratatui::crossterm::event::{self, Event as Input, KeyEventKind};
use state::State;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Keys are looked for so often at least.
const STEP: Duration = Duration::from_millis(100);

/// Which of the two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Screen {
    /// Nodes, processes and what happens.
    Top,
    /// The bars alone.
    Mon,
}

/// Shows it until `q`; with `--json` once, as data.
pub fn watch(client: &Client, screen: Screen, options: &WatchOptions) -> Done {
    let mut state = State::new(screen, options.mono || has_no_colours(|name| std::env::var(name).ok()));
    state.look(client)?;
    if options.json {
        println!("{}", serde_json::to_string_pretty(&state.snapshot()).map_err(|e| e.to_string())?);
        return Ok(());
    }
    if !std::io::stdout().is_terminal() || !std::io::stdin().is_terminal() {
        return Err("this needs a terminal; --json prints the same as data".into());
    }
    let every = Duration::from_secs_f64(options.every.clamp(0.1, 3600.0));
    let mut terminal = ratatui::try_init().map_err(|e| format!("the terminal: {e}"))?;
    let ended = show(&mut terminal, client, &mut state, every);
    ratatui::restore();
    ended
}

fn show(terminal: &mut ratatui::DefaultTerminal, client: &Client, state: &mut State, every: Duration) -> Done {
    let said = |e: std::io::Error| format!("the terminal: {e}");
    let mut looked = Instant::now();
    loop {
        terminal.draw(|frame| draw::draw(frame, state)).map_err(said)?;
        if event::poll(STEP.min(every)).map_err(said)?
            && let Input::Key(key) = event::read().map_err(said)?
            && key.kind != KeyEventKind::Release
            && keys::press(client, state, key)
        {
            return Ok(());
        }
        state.heed();
        if looked.elapsed() >= every {
            looked = Instant::now();
            // A daemon that is started anew is found again.
            if let Err(e) = state.look(client) {
                state.say(e);
            }
        }
    }
}

/// Whether the environment says that there are none: NO_COLOR, or a terminal that is known to have none.
fn has_no_colours(variable: impl Fn(&str) -> Option<String>) -> bool {
    let terminal = variable("TERM").unwrap_or_default();
    let plain = ["vt52", "vt100", "vt102", "vt220", "vt320", "dumb", "xterm-mono"];
    variable("NO_COLOR").is_some_and(|v| !v.is_empty())
        || plain.contains(&terminal.as_str())
        || terminal.ends_with("-m")
}

#[cfg(test)]
mod tests {
    use super::has_no_colours;

    #[test]
    fn a_terminal_without_colours_gets_none() {
        let with = |terminal: &str, no: &str| {
            has_no_colours(|name| Some(if name == "TERM" { terminal } else { no }.to_owned()))
        };
        assert!(with("vt100", "") && with("screen-m", "") && with("xterm-256color", "1"));
        assert!(!with("xterm-256color", "") && !with("linux", "") && !has_no_colours(|_| None));
    }
}
