//! turnpiked: the UPF daemon.
//!
//! Exit codes: 0 ended as asked, or the configuration is right; 1 could not start or go on; 2 the
//! configuration or the command line is wrong.
#![forbid(unsafe_code)]
// They panic where nobody takes what they print.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod access;
mod api;
mod clock;
mod command;
mod config;
mod control;
mod daemon;
mod follow;
mod kept;
mod line_limit;
mod lines;
mod logging;
mod n4;
mod nrf;
mod nupf;
mod packet_info;
mod plan;
mod port_reports;
mod recovery;
mod reload;
mod running;
mod snapshot;
mod system;
mod telemetry;
mod text;
mod usage_log;
mod whole_file;
#[cfg(feature = "dpdk")]
mod workers;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Instant, SystemTime};

use clap::{Parser, Subcommand};
use cli::{FilePage, List, Program};

use config::{Config, DatapathKind, Problem, System};
use daemon::Process;
use reload::{Handed, Text};

/// A 5G User Plane Function.
#[derive(Parser)]
#[command(version, long_version = cli::version(&DatapathKind::built()), after_help = afterwards(), arg_required_else_help = true)]
#[command(args_conflicts_with_subcommands = true)]
struct Arguments {
    /// Configuration file; turnpiked.toml(5) or deploy/turnpiked.example.toml explains each key.
    #[arg(long, value_name = "FILE", required = true)]
    config: Option<PathBuf>,
    #[command(subcommand)]
    command: Option<Command>,
}

const SIGNALS: &str = "\
Signals: TERM, INT and QUIT release associations and end it, a second one at once; HUP reads the configuration again and opens \
log files anew, USR1 opens log files anew.";

fn afterwards() -> String {
    format!("{}\n{SIGNALS}", PROGRAM.exit_codes_line())
}

const CONFIGURATION: (&str, &str) = (
    "/etc/turnpike/turnpiked.toml",
    "The configuration: turnpiked.toml(5).",
);

const PROGRAM: Program = Program {
    name: "turnpiked",
    section: "8",
    exit_codes: &[
        ("0", "ended as asked"),
        ("1", "could not start or go on"),
        ("2", "configuration or command line is wrong"),
    ],
    environment: &[
        (
            "RUNTIME_DIRECTORY",
            "Folder for the time of the last start, instead of /run/turnpike; set by systemd.",
        ),
        (
            "NOTIFY_SOCKET",
            "Socket that is told when packets and requests are served; set by systemd.",
        ),
        (
            "LISTEN_FDS",
            "Sockets of N4 that systemd has opened before, and hands over.",
        ),
        (
            "GLIBC_TUNABLES",
            "Settings of the heap. Without it turnpiked starts itself anew with huge pages for the heap.",
        ),
    ],
    lists: &[
        List {
            heading: "SIGNALS",
            entries: &[
                (
                    "TERM, INT, QUIT",
                    "Release associations and end; a second one ends at once.",
                ),
                (
                    "HUP",
                    "Read the configuration again (turnpike reload says what came of it), and open log files anew.",
                ),
                ("USR1", "Open log files anew."),
            ],
        },
        List {
            heading: "FILES",
            entries: &[
                CONFIGURATION,
                (
                    "/run/turnpike",
                    "Time of the last start, so that no two starts have the same Recovery Time Stamp.",
                ),
                (
                    "/run/turnpike/api.json",
                    "Address and token by which turnpike, run by root or this user, finds it.",
                ),
            ],
        },
    ],
    see_also: &[("turnpiked.toml", "5"), ("turnpike", "1")],
    file_pages: &[FilePage {
        name: "turnpiked.toml",
        about: "configuration file of turnpiked",
        description: "The configuration is a file in TOML. Below are all keys, each with its unit and default. A key that is not listed is \
            an error. After a change, check-config says whether turnpiked would start with it, and turnpike config diff what a reload \
            would bring into force; it takes effect at the next start or reload.",
        text: include_str!("../../../deploy/turnpiked.example.toml"),
        files: &[(
            "/etc/turnpike/turnpiked.toml",
            "Path by which the service of the package reads it.",
        )],
        see_also: &[
            ("turnpiked", "8"),
            ("turnpiked-check-config", "8"),
            ("turnpike-reload", "1"),
        ],
    }],
};

#[derive(Subcommand)]
enum Command {
    /// Name what is wrong with a configuration file on this machine, or say what it means. Opens no port.
    CheckConfig {
        /// The file.
        file: PathBuf,
    },
    /// Remove what a turnpiked that does not run has left by this configuration file: programs that packets go on by, and
    /// sessions.
    Detach {
        /// The file.
        file: PathBuf,
    },
    /// Workers of DPDK, in a process of their own, as turnpiked starts it.
    #[cfg(feature = "dpdk")]
    #[command(hide = true)]
    Workers {
        /// Settings of its log.
        log: String,
    },
}

fn main() -> ExitCode {
    system::use_huge_pages();
    system::take_name();
    let started = Instant::now();
    let arguments: Arguments = match cli::parse(&PROGRAM) {
        Ok(arguments) => arguments,
        Err(code) => return code,
    };
    let (file, run) = match (arguments.command, arguments.config) {
        (Some(Command::CheckConfig { file }), _) => (file, false),
        (Some(Command::Detach { file }), _) => return detach(&file),
        #[cfg(feature = "dpdk")]
        (Some(Command::Workers { log }), _) => return workers::run(&log),
        (None, Some(file)) => (file, true),
        // clap asks for one of them.
        (None, None) => return ExitCode::from(2),
    };
    let handed = Handed::read().filter(|_| run);
    let read_at = SystemTime::now();
    let text = match &handed {
        Some(handed) => Ok(handed.text().clone()),
        None => config::read(&file).map(|text| Text { text, read_at }),
    };
    let checked = text.map_err(|problem| vec![problem]);
    let checked = checked.and_then(|text| Ok((checked_text(&text.text)?, text)));
    let ((config, system), text) = match checked {
        Ok(checked) => checked,
        Err(problems) => {
            let lines = problems.iter();
            let lines: Vec<String> = lines
                .map(|problem| format!("turnpiked: {}: {problem}", file.display()))
                .collect();
            lines.iter().for_each(|line| say(line));
            let Some(handed) = handed else {
                return ExitCode::from(2);
            };
            // It was right when the process that handed it over looked: an interface may have gone since, and come again.
            if !handed.has_failed() {
                let error = handed.go_back(&lines.join(", "), Vec::new());
                say(&format!("turnpiked: cannot start anew: {error}"));
            }
            return ExitCode::FAILURE;
        }
    };
    if !run {
        show(&file, &config, &system);
        return ExitCode::SUCCESS;
    }
    // Before there is another thread.
    if let Err(error) = daemon::hold_signals() {
        say(&format!("turnpiked: signals: {error}"));
        return ExitCode::FAILURE;
    }
    let logging = match logging::start(&config.log) {
        Ok(logging) => logging,
        Err(error) => {
            say(&format!("turnpiked: thread of the log: {error}"));
            return ExitCode::FAILURE;
        }
    };
    let mut process = Process {
        started,
        since: handed.as_ref().map_or_else(SystemTime::now, |of| of.since),
        file,
        text,
        handed,
        sockets: Vec::new(),
        is_settled: Arc::default(),
    };
    let result = daemon::run(config, &mut process);
    let is_settled = process.is_settled.load(Ordering::Relaxed);
    let handed = process.handed.filter(|of| !is_settled && !of.has_failed());
    let failed = match result {
        Ok(None) => return ExitCode::SUCCESS,
        Ok(Some(successor)) => {
            // Its lines are written before those of the next start.
            drop(logging);
            let error = successor.start(process.sockets, process.since);
            say(&format!("turnpiked: cannot start anew: {error}"));
            return ExitCode::FAILURE;
        }
        Err(error) => error,
    };
    tracing::error!("{failed:#}");
    if let Some(handed) = handed {
        tracing::error!(
            "the former configuration goes on, as turnpiked cannot start with the new one"
        );
        drop(logging);
        let error = handed.go_back(&format!("{failed:#}"), process.sockets);
        say(&format!("turnpiked: cannot start anew: {error}"));
    }
    ExitCode::FAILURE
}

/// Interfaces and addresses that the configuration names may be gone.
fn detach(file: &Path) -> ExitCode {
    let config = match config::load(file) {
        Ok(config) => config,
        Err(problem) => {
            say(&format!("turnpiked: {}: {problem}", file.display()));
            return ExitCode::from(2);
        }
    };
    match kept::detach(&config) {
        Ok(removed) => {
            let lines = match removed.as_slice() {
                [] => "nothing was left".to_owned(),
                removed => format!("removed: {}", removed.join(", ")),
            };
            let _ = writeln!(std::io::stdout(), "{lines}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            say(&format!("turnpiked: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

/// The configuration, when it can be run on this machine, and the machine.
fn checked_text(text: &str) -> Result<(Config, System), Vec<Problem>> {
    let config = config::parse(text).map_err(|problem| vec![problem])?;
    let system = System::read().map_err(|error| {
        vec![Problem::missing(
            "",
            format!("this machine's interfaces cannot be read: {error}"),
        )]
    })?;
    let mut problems = config::check(&config, &system);
    // Tables are as large as limits say that are within their ranges.
    if problems.is_empty() {
        let tables = plan::layout(&config).octets();
        problems.extend(config::problem_of_memory(&config, &system.memory, tables));
    }
    if problems.is_empty() {
        Ok((config, system))
    } else {
        Err(problems)
    }
}

/// Print the configuration as it is understood, for its author to compare with what was meant.
fn show(file: &Path, config: &Config, system: &System) {
    let tables = plan::layout(config).octets();
    let mut lines = config::understood(config, tables);
    let doubts = config::doubts(config, &system.topology).into_iter();
    let doubts = doubts.chain(config::doubt_of_memory(config, &system.memory, tables));
    lines.extend(doubts.map(|doubt| format!("warning: {doubt}")));
    let lines = lines.join("\n");
    let _ = writeln!(std::io::stdout(), "{}: ok\n{lines}", file.display());
}

fn say(line: &str) {
    // Nobody may be listening any more.
    let _ = writeln!(std::io::stderr(), "{line}");
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn each_subcommand_has_its_page() {
        let command = Arguments::command();
        let documents = cli::documents(&PROGRAM, command.clone()).unwrap();
        let names: Vec<String> = command
            .get_subcommands()
            .filter(|below| !below.is_hide_set())
            .map(|below| format!("man/turnpiked-{}.8", below.get_name()))
            .collect();
        assert!(names.len() > 1, "{names:?}");
        for name in &names {
            let found = documents.iter().any(|(file, _)| file.as_path() == name);
            assert!(found, "{name}");
        }
    }

    #[test]
    fn the_page_of_the_configuration_has_each_line_of_the_example() {
        let documents = cli::documents(&PROGRAM, Arguments::command()).unwrap();
        let mut documents = documents.iter();
        let page = documents.find(|(file, _)| file.ends_with("turnpiked.toml.5"));
        let (_, page) = page.unwrap();
        let (_, page) = page.split_once(".nf\n").unwrap();
        let (lines, _) = page.split_once(".fi\n").unwrap();
        let example = include_str!("../../../deploy/turnpiked.example.toml");
        assert_eq!(lines.lines().count(), example.lines().count());
        let request = lines.lines().find(|line| line.starts_with(['.', '\'']));
        assert_eq!(request, None, "taken for a request of roff");
    }
}
