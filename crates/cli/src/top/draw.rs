//! How it looks.

use super::Screen;
use super::keys::HELP;
use super::state::State;
use pando_node::sys;
use pando_node::views::{Event, Liveness, Node, Process};
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Borders, Paragraph, Row, Table, TableState};

/// Columns of one bar with the space behind it.
const BAR: u16 = 5;
/// From so many columns on there is one for why processes are where they are.
const WIDE: u16 = 110;
/// A bar reaches the top when each CPU has so many threads, unless some node has more.
const FULL: f64 = 2.0;
/// What gangs hold.
const GANGS: &str = "▒";
/// Eighths of a character, from below.
const EIGHTHS: [&str; 9] = [" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"];

/// The whole screen.
pub fn draw(frame: &mut Frame, state: &State) {
    let area = frame.area();
    let foot = Constraint::Length(1);
    if state.screen == Screen::Mon {
        let [head, bars, last] = Layout::vertical([Constraint::Length(1), Constraint::Min(3), foot]).areas(area);
        frame.render_widget(Paragraph::new(state.summary()), head);
        draw_bars(frame, state, bars);
        return frame.render_widget(Paragraph::new(foot_text(state, area.width >= WIDE)), last);
    }
    // In a low terminal processes matter most.
    let high = area.height;
    let bars = Constraint::Length(if high >= 24 {
        high / 4
    } else if high >= 14 {
        5
    } else {
        0
    });
    let news = Constraint::Length(if high >= 20 { (high / 5).min(8) } else { 0 });
    let parts = [Constraint::Length(1), bars, Constraint::Min(3), news, foot];
    let [head, bars, list, news, last] = Layout::vertical(parts).areas(area);
    frame.render_widget(Paragraph::new(state.summary()), head);
    if bars.height > 0 {
        draw_bars(frame, state, bars);
    }
    draw_processes(frame, state, list);
    if news.height > 0 {
        draw_news(frame, state, news);
    }
    frame.render_widget(Paragraph::new(foot_text(state, area.width >= WIDE)), last);
}

fn foot_text(state: &State, wide: bool) -> String {
    match (&state.prompt, state.help, state.message.as_str(), state.screen) {
        (Some(text), ..) => format!("move to (a node, home, best): {text}_"),
        (None, true, ..) => HELP.into(),
        (None, false, "", Screen::Top) => match state.chosen().filter(|_| !wide) {
            // There is no column for it.
            Some(p) if !why(p).is_empty() => format!("? help   q quit   {}: {}", p.pid, why(p)),
            _ => "? help   q quit".into(),
        },
        (None, false, "", Screen::Mon) => "q quit".into(),
        (None, false, message, _) => message.into(),
    }
}

/// Threads that want to run for each CPU of usual speed, as MOSIX's mon shows it, and CPUs that gangs hold: a gang keeps each of its CPUs busy, or wants to.
fn height(n: &Node) -> f64 {
    of_each(n, n.runnable + n.held)
}

/// The gangs' part of it, which is below.
fn of_gangs(n: &Node) -> f64 {
    of_each(n, n.held)
}

fn of_each(n: &Node, wanted: f64) -> f64 {
    let power = n.cpus * if n.speed > 0.0 { n.speed } else { 1.0 };
    if n.state == Liveness::Down || power <= 0.0 { 0.0 } else { wanted / power }
}

fn colour(state: &State, n: &Node) -> Style {
    if state.mono {
        return Style::default();
    }
    let colour = match (n.state, height(n)) {
        (Liveness::Down, _) => Color::Red,
        (Liveness::Suspect, _) => Color::Yellow,
        (_, h) if h > 1.5 => Color::Magenta,
        _ => Color::Green,
    };
    Style::default().fg(colour)
}

/// One bar for each node, its load below its name. Where they do not all fit, those that do not are counted.
fn draw_bars(frame: &mut Frame, state: &State, area: Rect) {
    let block = Block::default().borders(Borders::TOP).title(" load of each CPU, by node (▒: held by gangs) ");
    let inner = block.inner(area);
    frame.render_widget(block, area);
    let room = usize::from(inner.width / BAR).max(1);
    let nodes = &state.nodes[..state.nodes.len().min(room)];
    let rows = inner.height.saturating_sub(2);
    let top = nodes.iter().map(height).fold(FULL, f64::max);
    let mut lines: Vec<Line> = Vec::new();
    for row in (0..rows).rev() {
        let cell = |n: &Node| {
            let eighths = |of: f64| of / top * f64::from(rows) * 8.0 - f64::from(row) * 8.0;
            let part = match eighths(of_gangs(n)) >= 4.0 {
                true => GANGS,
                false => EIGHTHS[eighths(height(n)).clamp(0.0, 8.0) as usize],
            };
            Span::styled(format!("{} ", part.repeat(usize::from(BAR) - 1)), colour(state, n))
        };
        lines.push(Line::from(nodes.iter().map(cell).collect::<Vec<_>>()));
    }
    let cut = |text: &str| format!("{:<4} ", text.chars().take(usize::from(BAR) - 1).collect::<String>());
    let word = |n: &Node| match (n.state, n.standing.as_str()) {
        (Liveness::Down, _) => cut("down"),
        (Liveness::Suspect, _) => cut("?"),
        (_, "drained") => cut("drn"),
        (_, "owner") => cut("own"),
        _ => cut(&format!("{:.1}", height(n))),
    };
    lines.push(Line::from(nodes.iter().map(|n| Span::styled(word(n), colour(state, n))).collect::<Vec<_>>()));
    let mut names: String = nodes.iter().map(|n| cut(&n.name)).collect();
    let more = state.nodes.len() - nodes.len();
    if more > 0 {
        names = names.chars().take(usize::from(inner.width).saturating_sub(12)).collect();
        names += &format!("+{more} more");
    }
    lines.push(Line::from(names));
    frame.render_widget(Paragraph::new(lines), inner);
}

/// Why it is where it is.
fn why(p: &Process) -> &str {
    p.records.last().map_or("", |r| r.reason.as_str())
}

/// A command line without the directories of its program: there is little room.
fn program_first(command: &str) -> &str {
    let program = command.find(' ').map_or(command, |end| &command[..end]);
    program.rfind('/').map_or(command, |slash| &command[slash + 1..])
}

fn draw_processes(frame: &mut Frame, state: &State, area: Rect) {
    let title = format!(" {} processes ", state.processes.len());
    let header = ["PID", "USER", "HOME", "WHERE", "PHASE", "MOVES", "CPU AWAY", "COMMAND", "WHY THERE"];
    let row = |p: &Process| {
        let moves = if p.role == "guest" { "-".to_owned() } else { p.moves.to_string() };
        let cpu = format!("{:.1}s", p.cpu_abroad_ms as f64 / 1000.0);
        let at_rest = p.stopped && ["away", "home"].contains(&p.phase.as_str());
        let phase = if at_rest { "stopped" } else { &p.phase };
        let command = program_first(&p.command);
        let cells = [&p.pid.to_string(), &p.user, &p.home, &p.place, phase, &moves, &cpu, command, why(p)];
        let style = if p.place != p.home && !state.mono { Style::default().fg(Color::Cyan) } else { Style::default() };
        Row::new(cells.map(str::to_owned)).style(style)
    };
    let last = if area.width >= WIDE { Constraint::Fill(1) } else { Constraint::Length(0) };
    let widths = [
        Constraint::Length(8),
        Constraint::Length(8),
        Constraint::Length(8),
        Constraint::Length(8),
        Constraint::Length(8),
        Constraint::Length(5),
        Constraint::Length(8),
        Constraint::Fill(1),
        last,
    ];
    let table = Table::new(state.processes.iter().map(row), widths)
        .header(Row::new(header).style(Style::default().add_modifier(Modifier::BOLD)))
        .row_highlight_style(Style::default().add_modifier(Modifier::REVERSED))
        .block(Block::default().borders(Borders::TOP).title(title));
    let mut selected = TableState::default().with_selected(state.at());
    frame.render_stateful_widget(table, area, &mut selected);
}

fn draw_news(frame: &mut Frame, state: &State, area: Rect) {
    let block = Block::default().borders(Borders::TOP).title(" what happens ");
    let rows = usize::from(block.inner(area).height);
    let line = |e: &Event| {
        let [.., hour, minute, second] = sys::local_time(e.time_ms / 1000);
        let bad = matches!(e.kind.as_str(), "lost" | "failed" | "refused");
        let style = if bad && !state.mono { Style::default().fg(Color::Red) } else { Style::default() };
        Line::styled(format!("{hour:02}:{minute:02}:{second:02} {}", e.text), style)
    };
    let lines: Vec<Line> = state.events[state.events.len().saturating_sub(rows)..].iter().map(line).collect();
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

#[cfg(test)]
mod tests {
    use super::*;
    use pando_node::views::MoveRecord;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn node(name: &str, runnable: f64, state: Liveness) -> Node {
        Node {
            name: name.into(),
            addr: "10.0.0.1:7117".into(),
            state,
            here: name == "n1",
            heard_ms: Some(100),
            cpus: 2.0,
            speed: 1.0,
            runnable,
            held: 0.0,
            memory: 4 << 30,
            free: 1 << 30,
            paging: 0,
            guests: 1,
            standing: "open".into(),
        }
    }

    fn state(screen: Screen) -> State {
        let mut state = State::new(screen, true);
        state.nodes = vec![
            node("n1", 4.0, Liveness::Up),
            node("n2", 2.0, Liveness::Up),
            node("n3", 9.0, Liveness::Down),
            node("a-long-name", 0.0, Liveness::Suspect),
        ];
        let process = |pid: u32, place: &str| Process {
            pid,
            user: "ann".into(),
            home: "n1".into(),
            place: place.into(),
            phase: if place == "n1" { "home".into() } else { "away".into() },
            command: format!("./simulate --part {pid}"),
            role: "home".into(),
            run: true,
            ..Process::default()
        };
        state.processes = (1..40).map(|pid| process(pid, if pid % 2 == 0 { "n2" } else { "n1" })).collect();
        state.selected = Some(("n1".into(), 30));
        state.events = (0..9).map(|i| Event::new("move", format!("process {i} went"))).collect();
        state
    }

    fn screen(state: &State, width: u16, height: u16) -> Vec<String> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, state)).unwrap();
        let buffer = terminal.backend().buffer().clone();
        let row = |y: u16| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..height).map(row).collect()
    }

    #[test]
    fn bars_are_as_high_as_the_load_and_those_that_are_down_say_so() {
        let lines = screen(&state(Screen::Mon), 90, 12);
        assert!(lines[0].starts_with("4 nodes: 2 up, 1 suspect, 1 down; 6.0 want to run on 4.0 CPUs"), "{lines:#?}");
        let (values, names) = (&lines[9], &lines[10]);
        assert!(values.starts_with("2.0  1.0  down ?"), "{lines:#?}");
        assert!(names.starts_with("n1   n2   n3   a-lo"), "{lines:#?}");
        let filled = |column: usize| lines[2..9].iter().filter(|l| l.chars().nth(column) == Some('█')).count();
        assert_eq!((filled(0), filled(10)), (7, 0), "{lines:#?}");
        assert!((3..=4).contains(&filled(5)), "{lines:#?}");
        let mut state = state(Screen::Mon);
        (state.nodes[0].runnable, state.nodes[0].held) = (2.0, 2.0);
        let lines = screen(&state, 90, 12);
        let of = |symbol| lines[2..9].iter().filter(|l| l.starts_with(symbol)).count();
        assert!(lines[9].starts_with("2.0 ") && of(GANGS) + of("█") == 7, "{lines:#?}");
        assert!((3..=4).contains(&of(GANGS)) && lines[8].starts_with(GANGS), "{lines:#?}");
        assert!(lines[0].contains("4.0 want to run on 4.0 CPUs (2.0 held by gangs)"), "{lines:#?}");
    }

    #[test]
    fn whoever_is_selected_is_seen_in_any_terminal() {
        for (width, height) in [(200, 60), (110, 24), (80, 24), (60, 14), (40, 8), (20, 5), (5, 2), (1, 1)] {
            let lines = screen(&state(Screen::Top), width, height);
            if width >= 40 && height >= 8 {
                assert!(lines.iter().any(|l| l.starts_with("30 ")), "{width}x{height}: {lines:#?}");
            }
        }
    }

    #[test]
    fn why_the_selected_one_is_there_is_seen_in_a_narrow_terminal_too() {
        let mut state = state(Screen::Top);
        let record = MoveRecord {
            from: "n1".into(),
            to: "n2".into(),
            reason: "balance: it ends 40 % sooner".into(),
            freeze_us: 900,
            total_us: 5000,
            frozen_bytes: 4096,
        };
        state.processes.iter_mut().filter(|p| p.pid == 30).for_each(|p| p.records.push(record.clone()));
        let narrow = screen(&state, 80, 24);
        assert!(narrow[23].starts_with("? help   q quit   30: balance: it ends 40 % sooner"), "{narrow:#?}");
        let wide = screen(&state, 140, 24);
        assert_eq!(wide[23].trim_end(), "? help   q quit");
        assert!(wide.iter().any(|l| l.contains("balance: it ends 40 %")), "{wide:#?}");
    }

    #[test]
    fn nodes_that_do_not_fit_are_counted() {
        let mut state = state(Screen::Mon);
        state.nodes = (1..=100).map(|i| node(&format!("n{i}"), 1.0, Liveness::Up)).collect();
        let lines = screen(&state, 80, 12);
        assert!(lines[10].trim_end().ends_with("+84 more"), "{lines:#?}");
    }
}
