//! `pando run` in a shell with job control: what stops the program stops the job, and `fg` has it go on.

mod lab;

use lab::Lab;
use lab::terminal::Terminal;
use pando_kernel::{procfs, signal};
use pando_node::views::Process;

#[test]
fn a_shell_may_be_suspended_and_go_on() {
    let lab = Lab::new(1, "");
    let Some(mut terminal) = Terminal::open("a_shell_may_be_suspended_and_go_on", &lab.nodes[0]) else { return };
    terminal.type_line("$pando run $inner");
    terminal.type_line("PS1='in'ner\\>\\ ");
    terminal.shows("inner> ");
    for _ in 0..3 {
        terminal.type_line("suspend");
        terminal.shows("Stopped");
        terminal.answers();
        terminal.type_line("fg");
        terminal.shows("inner> ");
        terminal.answers();
    }
    // Its own jobs are its own.
    let sleeper = r#"$| = 1; $SIG{CONT} = sub { print "wok", "en\n" }; print "sle", "eps\n"; sleep 1 while 1"#;
    terminal.type_line(&format!("perl -e '{sleeper}'"));
    terminal.shows("sleeps");
    terminal.press("\x1a");
    terminal.shows("Stopped");
    terminal.shows("inner> ");
    terminal.type_line("fg");
    terminal.shows("woken");
    terminal.press("\x03");
    terminal.shows("inner> ");
    terminal.type_line("exit 5");
    terminal.shows("orders> ");
    terminal.type_line("echo sta'tus' $?");
    terminal.shows("status 5");
}

/// A shell that starts a job, and when that stops has it go on in the background. It never reads the terminal, so nothing depends on
/// when it does.
const SHELL: &str = r#"use POSIX; $SIG{TTOU} = "IGNORE"; $| = 1; my $job = fork;
    if (!$job) { setpgid(0, 0); tcsetpgrp(0, getpgrp); $SIG{TTOU} = "DEFAULT"; exec @ARGV }
    waitpid $job, WUNTRACED; tcsetpgrp(0, getpgrp); print "it sto", "pped\n"; kill CONT => -$job; waitpid $job, 0;
    print "the terminal is ", (tcgetpgrp(0) == getpgrp ? "still" : "no longer"), " mine\n"; sleep 1000"#;

#[test]
fn a_shell_in_the_background_takes_the_terminal_from_nobody() {
    let lab = Lab::new(1, "");
    let test = "a_shell_in_the_background_takes_the_terminal_from_nobody";
    let Some(mut terminal) = Terminal::open(test, &lab.nodes[0]) else { return };
    std::fs::write(lab.dir.join("shell"), SHELL).unwrap();
    terminal.type_line(&format!("exec perl {}/shell $pando run $inner", lab.dir.display()));
    terminal.type_line("PS1='in'ner\\>\\ ");
    terminal.shows("inner> ");
    terminal.type_line("suspend");
    terminal.shows("it stopped");
    // It may not read the terminal, which is the end of its input, and then gives it to the group that it came from.
    terminal.shows("the terminal is still mine");
}

/// A program that computes a little and says what it has heard.
const LOOP: &str = "while read line; do n=0; while [ $n -lt 999 ]; do n=$((n+1)); done; echo heard $((line * 2)); done";

/// `pando run` has the CPU again after `fg`, and minds the next Ctrl-Z: it catches the signal. Before that it stops by itself, maybe before
/// its program, which then takes what is typed for the shell. A second Ctrl-Z comes as early as that only here.
fn minds_ctrl_z(lab: &Lab) {
    lab::until("it catches the signal", || {
        let all: Vec<Process> = lab.nodes[0].client().get("/v1/processes").unwrap();
        // One that has ended may still be known.
        let run = all.iter().find_map(|p| procfs::parent(p.pid as i32))?;
        (procfs::status(run).ok()?.caught & signal::bit(20) != 0).then_some(())
    });
}

fn stops_and_goes_on(lab: &Lab, terminal: &mut Terminal) {
    terminal.type_line("21");
    terminal.shows("heard 42");
    for _ in 0..3 {
        terminal.press("\x1a");
        terminal.shows("Stopped");
        terminal.shows("orders> ");
        terminal.answers();
        terminal.type_line("fg");
        terminal.type_line("22");
        terminal.shows("heard 44");
        minds_ctrl_z(lab);
    }
    terminal.press("\x03");
    terminal.shows("orders> ");
    terminal.type_line("echo sta'tus' $?");
    terminal.shows("status 130");
}

#[test]
fn ctrl_z_stops_programs_pipelines_and_what_is_away() {
    let lab = Lab::new(2, "");
    let test = "ctrl_z_stops_programs_pipelines_and_what_is_away";
    let Some(mut terminal) = Terminal::open(test, &lab.nodes[0]) else { return };
    terminal.type_line(&format!("LOOP='{LOOP}'"));
    for line in [
        "$pando run bash -c \"$LOOP\"",
        "$pando run bash -c \"$LOOP\" | cat",
        "$pando run bash -c \"exec > >(cat); $LOOP\"",
        "$pando run --node n2 bash -c \"$LOOP\"",
        "$pando run --node n2 bash -c \"$LOOP\" | cat",
    ] {
        terminal.type_line(line);
        if line.contains("--node n2") {
            lab::until("it is away", || {
                let all: Vec<Process> = lab.nodes[0].client().get("/v1/processes").unwrap();
                all.into_iter().find(|p| p.place == "n2" && p.phase == "away")
            });
        }
        stops_and_goes_on(&lab, &mut terminal);
    }
}

#[test]
fn a_program_that_heeds_no_ctrl_z_keeps_the_terminal() {
    let lab = Lab::new(1, "");
    let Some(mut terminal) = Terminal::open("a_program_that_heeds_no_ctrl_z_keeps_the_terminal", &lab.nodes[0]) else {
        return;
    };
    terminal.type_line(
        "$pando run sh -c 'trap \"\" TSTP; echo re''ady; read a; echo $((a + 1)); kill -STOP $$; echo we''nt on'",
    );
    terminal.shows("ready");
    terminal.press("\x1a");
    terminal.type_line("41");
    terminal.shows("42");
    terminal.shows("Stopped");
    terminal.type_line("fg");
    terminal.shows("went on");
    terminal.shows("orders> ");
}

#[test]
fn without_a_terminal_somebody_may_stop_a_program_and_have_it_go_on() {
    let lab = Lab::new(1, "");
    let script = "echo $$; while [ ! -e stop ]; do sleep 0.01; done; exit 9";
    let mut command = std::process::Command::new("setsid");
    command.args(["-w"]).arg(env!("CARGO_BIN_EXE_pando")).args(["run", "sh", "-c", script]).current_dir(&lab.dir);
    let mut child = command.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(child.stdout.take().unwrap()), &mut line).unwrap();
    let pid: u32 = line.trim().parse().unwrap();
    let state = |wanted: char| {
        lab::until("a state", || {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
            (stat.contains(&format!(") {wanted} ")) == (wanted == 'T')).then_some(())
        })
    };
    for _ in 0..3 {
        lab::signal(pid, "STOP");
        state('T');
        lab::signal(pid, "CONT");
    }
    std::fs::write(lab.dir.join("stop"), "").unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(9));
}
