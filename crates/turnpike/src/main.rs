//! turnpike: shows an operator what a running turnpiked does.
//!
//! Exit codes: 0 done; 1 turnpiked refused, or knows no such session, or a topic has no such row, or the output cannot be
//! written; 2 wrong usage; 3 turnpiked cannot be reached.
#![forbid(unsafe_code)]
// They panic where nobody takes what they print.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod cell;
mod cores;
mod help;
mod n4;
mod qos;
mod reload;
#[cfg(test)]
mod samples;
mod show;
mod support_bundle;
mod table;
mod top;
mod trace;
mod usage;

use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use cli::{List, Program, Shell};
use report::client::{self, Answer, Client};

/// Shows what a running turnpiked does.
#[derive(Parser)]
#[command(version, long_version = cli::version(&[]), after_help = PROGRAM.exit_codes_line())]
#[command(disable_help_subcommand = true)]
struct Arguments {
    /// Address that turnpiked listens at: api.listen of its configuration. Without it as /run/turnpike/api.json says, which root and
    /// turnpiked's user can read, or http://127.0.0.1:8806.
    #[arg(long, env = "TURNPIKE_API", global = true)]
    api: Option<String>,
    /// File with the token: api.token_file of turnpiked's configuration. Without it, of turnpiked of this host, as in
    /// /run/turnpike/api.json.
    #[arg(long, env = "TURNPIKE_TOKEN_FILE", global = true)]
    token_file: Option<PathBuf>,
    /// The answer as turnpiked gives it, for programs.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    question: Question,
}

const PROGRAM: Program = Program {
    name: "turnpike",
    section: "1",
    exit_codes: &[
        ("0", "done"),
        (
            "1",
            "refused, no such session or row of a topic, or output cannot be written",
        ),
        ("2", "wrong usage"),
        ("3", "turnpiked cannot be reached"),
    ],
    environment: &[],
    lists: &[List {
        heading: "FILES",
        entries: &[
            (
                "/run/turnpike/api.json",
                "Address and token of turnpiked of this host.",
            ),
            (
                "/etc/turnpike/turnpiked.toml",
                "Configuration of turnpiked: api.listen, the address to ask, and api.token_file. It is not read.",
            ),
        ],
    }],
    see_also: &[("turnpiked", "8"), ("turnpiked.toml", "5")],
    file_pages: &[],
};

#[derive(Subcommand)]
enum Question {
    /// The whole: sessions, tables, traffic, losses.
    Status,
    /// Sessions with their UE addresses and traffic.
    Sessions {
        /// Sessions to show, at most.
        #[arg(long, default_value_t = 100)]
        limit: usize,
        /// Begin after this SEID.
        #[arg(long)]
        after: Option<String>,
    },
    /// One session with its rules and counters.
    Session {
        /// SEID of the UPF, hexadecimal, as `turnpike sessions` shows it.
        seid: String,
    },
    /// Usage that URRs have measured since their last reports, and what is left of quotas.
    Usage {
        /// SEID of the UPF, hexadecimal; without it, of all sessions that measure.
        seid: Option<String>,
        /// Sessions to show, at most.
        #[arg(long, default_value_t = 100)]
        limit: usize,
        /// Begin after this SEID.
        #[arg(long)]
        after: Option<String>,
    },
    /// Rates of one user: asked for by QERs, and measured over an interval; packets delayed and dropped.
    Qos(qos::Options),
    /// The busiest users, load, rates and losses, each second anew; q ends it.
    Top(top::Options),
    /// Lost packets: why, and what to do about it.
    Drops,
    /// The program that carries packets, and its interfaces.
    Datapath,
    /// CPUs of the machine, what they share, and which threads run there; without a turnpiked, the machine alone.
    Cores,
    /// The configuration in effect; or what another one would change.
    #[command(args_conflicts_with_subcommands = true)]
    Config {
        #[command(subcommand)]
        question: Option<ConfigQuestion>,
    },
    /// Have turnpiked read its configuration again, and bring into force what it says: all of it or nothing.
    ///
    /// Changes that the running process cannot go on with have the program start anew in the same process, where packets go on
    /// meanwhile (state.bpffs); then this ends when it serves N4 again. Without that, and where sessions could be lost, nothing
    /// changes, and the reasons are named.
    Reload,
    /// Have the log say more or less, until the next start or reload.
    LogLevel {
        /// error, warn, info, debug or trace.
        level: String,
    },
    /// The SMFs.
    Peers,
    /// Holdings of each SMF, and how much of them others cannot take.
    Smfs,
    /// Messages and events of N4, and requests that the data path serves (n4.fast_path).
    N4,
    /// Packets of one user as they come: which rules each hit, or why it was lost.
    Trace(trace::Options),
    /// Packets that wait for idle UEs, and for whom.
    Buffers,
    /// Capacities of interfaces, network instances and groups of users: guaranteed, in use, and lost for want of more.
    Capacity,
    /// Forwarding policies: where they lead, and whether anybody is there.
    Policies,
    /// Applications with the Packet Flow Descriptions that SMFs provisioned.
    Pfds,
    /// All that somebody needs who is to find out from afar what is wrong, as one archive (.tar.gz).
    ///
    /// Configuration, versions, the machine with its interfaces, routes and firewall, programs in the kernel, the unit with its last log, and
    /// answers of turnpiked. Secrets are cut out, and names stand for users' addresses and numbers; CONTENTS.md, its first file, tells
    /// each file with its origin, what could not be had, and what is not hidden. It is made without a turnpiked, too.
    SupportBundle(support_bundle::Options),
    /// Help on a subcommand, or on a topic: drops, symptoms, limits and more; alone, the list of topics.
    #[command(long_about = help::about())]
    Help {
        /// Subcommand, topic, or reason of lost packets; behind a topic, words that its rows are to have.
        topic: Vec<String>,
    },
    /// Completions of this command line, as a script of the shell on standard output.
    ///
    /// Packages bring those of bash, zsh and fish. Without a package, for bash: turnpike completions bash >
    /// ~/.local/share/bash-completion/completions/turnpike
    Completions {
        /// Shell that reads them.
        shell: Shell,
    },
}

#[derive(Subcommand)]
enum ConfigQuestion {
    /// Keys of a file that differ from the configuration in effect, and what each takes: nothing, a start in the same process
    /// that takes over sessions and packets, or a restart.
    Diff {
        /// The file; it is read here, so that turnpiked may be elsewhere.
        file: PathBuf,
    },
}

fn main() -> ExitCode {
    let arguments: Arguments = match cli::parse(&PROGRAM) {
        Ok(arguments) => arguments,
        Err(code) => return code,
    };
    let result = match &arguments.question {
        Question::Trace(options) => client(&arguments)
            .and_then(|client| trace::run(&client, options, arguments.json))
            .map(|()| String::new()),
        Question::Top(options) => client(&arguments)
            .and_then(|client| top::run(client, options, arguments.json))
            .map(|()| String::new()),
        Question::SupportBundle(options) => {
            let token_file = arguments.token_file.as_deref();
            let client = client(&arguments);
            support_bundle::run(options, client, token_file, arguments.json)
        }
        &Question::Completions { shell } => {
            Ok(cli::completions(shell, Arguments::command(), PROGRAM.name))
        }
        Question::Help { topic } => help::run(topic, Arguments::command()).map_err(Error::from),
        question => answer(&arguments, question),
    };
    match result {
        Ok(text) => match std::io::stdout().write_all(text.as_bytes()) {
            Ok(()) => ExitCode::SUCCESS,
            // A reader such as `head` may have left; nothing is lost.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
            Err(error) => {
                let _ = writeln!(std::io::stderr(), "turnpike: standard output: {error}");
                ExitCode::FAILURE
            }
        },
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "turnpike: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

/// Why a question has no answer.
#[derive(Debug, thiserror::Error)]
enum Error {
    #[error(transparent)]
    Client(#[from] client::Error),
    #[error("{}: {reason}", file.display())]
    Write { file: PathBuf, reason: String },
    #[error("{}: {reason}", file.display())]
    Read { file: PathBuf, reason: String },
    #[error("{0}")]
    Reload(String),
    #[error("no bundle: {}: {reason}", file.display())]
    Bundle { file: PathBuf, reason: String },
    #[error(transparent)]
    Help(#[from] help::Error),
}

impl Error {
    const fn exit_code(&self) -> u8 {
        use client::Error as E;
        match self {
            Self::Client(E::Refused(_) | E::NoToken | E::WrongToken(_) | E::Strange { .. }) => 1,
            Self::Reload(_) | Self::Bundle { .. } => 1,
            Self::Client(E::TokenFile { .. }) | Self::Write { .. } | Self::Read { .. } => 2,
            Self::Client(E::Unreachable { .. }) => 3,
            Self::Help(error) => error.exit_code(),
        }
    }
}

fn client(arguments: &Arguments) -> Result<Client, Error> {
    let client = Client::local(arguments.api.as_deref(), arguments.token_file.as_deref());
    Ok(client?)
}

fn answer(arguments: &Arguments, question: &Question) -> Result<String, Error> {
    let client = client(arguments)?;
    let json = arguments.json;
    Ok(match question {
        Question::Status => told(client.get(&report::STATUS)?, json, show::status),
        Question::Sessions { limit, after } => told(
            client.sessions(*limit, after.as_deref())?,
            json,
            show::sessions,
        ),
        Question::Session { seid } => told(client.session(seid)?, json, show::session),
        Question::Usage { seid, limit, after } => {
            let answer = match seid {
                Some(seid) => client.usage_of(seid)?,
                None => client.usage(*limit, after.as_deref())?,
            };
            told(answer, json, usage::show)
        }
        Question::Qos(options) => told(qos::ask(&client, options)?.into(), json, qos::show),
        Question::Drops => told(client.get(&report::DROPS)?, json, show::drops),
        Question::Datapath => told(client.get(&report::DATAPATH)?, json, show::datapath),
        Question::Cores => told(cores::ask(&client)?, json, cores::show),
        Question::Config { question: None } => {
            told(client.get(&report::CONFIG)?, json, show::config)
        }
        Question::Config {
            question: Some(ConfigQuestion::Diff { file }),
        } => told(reload::diff(&client, file)?, json, reload::show),
        Question::Reload => told(reload::run(|| self::client(arguments))?, json, reload::show),
        Question::LogLevel { level } => told(client.set_log_level(level)?, json, |body| {
            format!(
                "the log has level {} until the next start or reload\n",
                body.level
            )
        }),
        Question::Capacity => told(client.get(&report::CAPACITIES)?, json, show::capacities),
        Question::Policies => told(client.get(&report::POLICIES)?, json, show::policies),
        Question::Buffers => told(client.get(&report::BUFFERS)?, json, show::buffers),
        Question::Pfds => told(client.get(&report::PFDS)?, json, show::pfds),
        Question::Peers => told(client.get(&report::PEERS)?, json, show::peers),
        Question::Smfs => told(client.get(&report::SMFS)?, json, show::smfs),
        Question::N4 => told(client.get(&report::N4)?, json, n4::show),
        // Not one answer, but many lines; or nothing that turnpiked is asked.
        Question::Trace(_)
        | Question::Top(_)
        | Question::SupportBundle(_)
        | Question::Completions { .. }
        | Question::Help { .. } => String::new(),
    })
}

/// For programs as it came, for people as `show` writes it.
fn told<T>(answer: Answer<T>, json: bool, show: impl FnOnce(&T) -> String) -> String {
    if json {
        format!("{:#}\n", answer.json)
    } else {
        show(&answer.report)
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    /// The daemon that it speaks with has data paths.
    #[test]
    fn version_names_no_data_paths() {
        let version = Arguments::command().render_long_version();
        assert!(version.starts_with("turnpike 0."), "{version}");
        assert!(version.contains("(commit "), "{version}");
        assert!(!version.contains("data paths"), "{version}");
    }

    #[test]
    fn each_subcommand_has_its_page() {
        let command = Arguments::command();
        let documents = cli::documents(&PROGRAM, command.clone()).unwrap();
        let names: Vec<String> = command
            .get_subcommands()
            .map(|below| format!("man/turnpike-{}.1", below.get_name()))
            .collect();
        assert!(names.len() > 1, "{names:?}");
        for name in &names {
            let found = documents.iter().any(|(file, _)| file.as_path() == name);
            assert!(found, "{name}");
        }
    }
}
