//! What keys do.

use super::Screen;
use super::state::State;
use crate::waiting;
use pando_node::client::Client;
use pando_node::sys;
use pando_node::views::MoveRequest;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

/// What there is in `pando top`; in `pando mon` there is nobody to do anything to.
pub const HELP: &str = "up/down  m move  h home  b best  p pause  c continue  k end  K kill  q quit";

/// True: that was the last one.
pub fn press(client: &Client, state: &mut State, key: KeyEvent) -> bool {
    if key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL) {
        return true;
    }
    if state.prompt.is_some() {
        type_on(client, state, key.code);
        return false;
    }
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => return true,
        _ if state.screen == Screen::Mon => {}
        KeyCode::Down | KeyCode::Char('j') => state.step(1),
        KeyCode::Up => state.step(-1),
        KeyCode::PageDown => state.step(10),
        KeyCode::PageUp => state.step(-10),
        KeyCode::Char('?') => state.help = !state.help,
        KeyCode::Char('m') if state.chosen().is_some() => state.prompt = Some(String::new()),
        KeyCode::Char('h') => move_to(client, state, "home"),
        KeyCode::Char('b') => move_to(client, state, "best"),
        KeyCode::Char('p') => signal(state, libc::SIGSTOP, "paused"),
        KeyCode::Char('c') => signal(state, libc::SIGCONT, "told to continue"),
        KeyCode::Char('k') => signal(state, libc::SIGTERM, "asked to end"),
        KeyCode::Char('K') => signal(state, libc::SIGKILL, "killed"),
        _ => {}
    }
    false
}

fn type_on(client: &Client, state: &mut State, code: KeyCode) {
    let Some(text) = &mut state.prompt else { return };
    match code {
        KeyCode::Enter => {
            let dest = std::mem::take(text);
            state.prompt = None;
            if !dest.is_empty() {
                move_to(client, state, &dest);
            }
        }
        KeyCode::Esc => state.prompt = None,
        KeyCode::Backspace => drop(text.pop()),
        KeyCode::Char(c) if text.len() < 63 => text.push(c),
        _ => {}
    }
}

/// Beside the screen, which goes on.
fn move_to(client: &Client, state: &mut State, dest: &str) {
    let Some(p) = state.chosen() else { return };
    let (pid, home, dest) = (p.pid, p.home.clone(), dest.to_owned());
    if p.role == "guest" {
        return state.say(format!("process {pid} is a guest: move it at its home, {home}"));
    }
    state.say(format!("process {pid} goes to {dest} ..."));
    let (client, tell) = (client.clone(), state.tell.clone());
    std::thread::spawn(move || {
        let request = MoveRequest { pid, dest, reason: None, family: false };
        let text = match waiting::move_it(&client, &request) {
            Ok(answer) => format!("process {pid} is at {}", answer.place),
            Err(e) => e.to_string(),
        };
        // The screen may be gone by now.
        let _ = tell.send(text);
    });
}

fn signal(state: &mut State, number: i32, done: &str) {
    let Some(p) = state.chosen() else { return };
    let (pid, home) = (p.pid, p.home.clone());
    let text = match p.role.as_str() {
        "guest" => format!("process {pid} is a guest: do that at its home, {home}"),
        _ => match sys::send_signal(pid, number) {
            Ok(()) => format!("process {pid} was {done}"),
            Err(e) => format!("process {pid}: {e}"),
        },
    };
    state.say(text);
}
