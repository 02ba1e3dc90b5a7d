//! turnpiked: the UPF daemon.
//!
//! Exit codes: 0 ended as asked, or the configuration is right; 1 could not start or go on; 2 the
//! configuration or the command line is wrong.
#![forbid(unsafe_code)]
// They panic where nobody takes what they print.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod api;
mod command;
mod config;
mod control;
mod daemon;
mod follow;
mod kept;
mod lines;
mod logging;
mod n4;
mod packet_info;
mod plan;
mod port_reports;
mod recovery;
mod snapshot;
mod system;
mod text;
mod usage_log;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::{Parser, Subcommand};
use cli::{FilePage, List, Program};

use config::{Config, DatapathKind, Problem, System};

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
Signals: TERM, INT and QUIT release associations and end it, a second one at once; HUP opens log files anew.";

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
                ("HUP", "Open log files anew."),
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
            ],
        },
    ],
    see_also: &[("turnpiked.toml", "5"), ("turnpike", "1")],
    file_pages: &[FilePage {
        name: "turnpiked.toml",
        about: "configuration file of turnpiked",
        description: "The configuration is a file in TOML. Below are all keys, each with its unit and default. A key that is not listed is \
            an error. After a change, check-config says whether turnpiked would start with it; it takes effect at the next start.",
        text: include_str!("../../../deploy/turnpiked.example.toml"),
        files: &[(
            "/etc/turnpike/turnpiked.toml",
            "Path by which the service of the package reads it.",
        )],
        see_also: &[("turnpiked", "8"), ("turnpiked-check-config", "8")],
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
}

fn main() -> ExitCode {
    system::use_huge_pages();
    let started = Instant::now();
    let arguments: Arguments = match cli::parse(&PROGRAM) {
        Ok(arguments) => arguments,
        Err(code) => return code,
    };
    let (file, run) = match (arguments.command, arguments.config) {
        (Some(Command::CheckConfig { file }), _) => (file, false),
        (Some(Command::Detach { file }), _) => return detach(&file),
        (None, Some(file)) => (file, true),
        // clap asks for one of them.
        (None, None) => return ExitCode::from(2),
    };
    let (config, system) = match checked(&file) {
        Ok(checked) => checked,
        Err(problems) => {
            for problem in problems {
                say(&format!("turnpiked: {}: {problem}", file.display()));
            }
            return ExitCode::from(2);
        }
    };
    if !run {
        show(&file, &config, &system);
        return ExitCode::SUCCESS;
    }
    let _logging = match logging::start(&config.log) {
        Ok(logging) => logging,
        Err(error) => {
            say(&format!("turnpiked: thread of the log: {error}"));
            return ExitCode::FAILURE;
        }
    };
    match daemon::run(config, started) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
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
fn checked(file: &Path) -> Result<(Config, System), Vec<Problem>> {
    let config = config::load(file).map_err(|problem| vec![problem])?;
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
