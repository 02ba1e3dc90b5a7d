//! turnpike: shows an operator what a running turnpiked does.
//!
//! Exit codes: 0 done; 1 turnpiked refused, or knows no such session, or the output cannot be written; 2 wrong usage;
//! 3 turnpiked cannot be reached.
#![forbid(unsafe_code)]
// They panic where nobody takes what they print.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod client;
mod cores;
mod fields;
mod qos;
#[cfg(test)]
mod samples;
mod show;
mod table;
mod top;
mod trace;
mod usage;

use std::io::{ErrorKind, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};
use serde_json::Value;

use client::{Client, Error};

/// Shows what a running turnpiked does.
#[derive(Parser)]
#[command(version, after_help = EXIT_CODES)]
struct Arguments {
    /// Where turnpiked listens: api.listen of its configuration.
    #[arg(
        long,
        env = "TURNPIKE_API",
        default_value = "http://127.0.0.1:8806",
        global = true
    )]
    api: String,
    /// File with the token: api.token_file of turnpiked's configuration.
    #[arg(long, env = "TURNPIKE_TOKEN_FILE", global = true)]
    token_file: Option<PathBuf>,
    /// The answer as turnpiked gives it, for programs.
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    question: Question,
}

const EXIT_CODES: &str = "Exit codes: 0 done; 1 refused, no such session, or output cannot be written; 2 wrong usage; \
    3 turnpiked cannot be reached.";

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
    /// What URRs have measured since their last reports, and what is left of quotas.
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
    Qos(qos::Wish),
    /// The busiest users, load, rates and losses, each second anew; q ends it.
    Top(top::Wish),
    /// Lost packets: why, and what to do about it.
    Drops,
    /// The program that carries packets, and its interfaces.
    Datapath,
    /// CPUs of the machine, what they share, and which threads run there; without a turnpiked, the machine alone.
    Cores,
    /// The configuration in effect.
    Config,
    /// The SMFs.
    Peers,
    /// Holdings of each SMF, and how much of them others cannot take.
    Smfs,
    /// Packets of one user as they come: which rules each hit, or why it was lost.
    Trace(trace::Wish),
    /// Packets that wait for idle UEs, and for whom.
    Buffers,
    /// What interfaces, network instances and groups of users have, what is guaranteed of it, and what is lost for want of more.
    Capacity,
    /// Forwarding policies: where they lead, and whether anybody is there.
    Policies,
    /// Applications with the Packet Flow Descriptions that SMFs provisioned.
    Pfds,
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    let result = match &arguments.question {
        Question::Trace(wish) => client(&arguments)
            .and_then(|client| trace::run(&client, wish, arguments.json))
            .map(|()| String::new()),
        Question::Top(wish) => client(&arguments)
            .and_then(|client| top::run(client, wish, arguments.json))
            .map(|()| String::new()),
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

fn client(arguments: &Arguments) -> Result<Client, Error> {
    Client::new(&arguments.api, arguments.token_file.as_deref())
}

fn answer(arguments: &Arguments, question: &Question) -> Result<String, Error> {
    let client = client(arguments)?;
    let (answer, show): (Value, fn(&Value) -> String) = match question {
        Question::Status => (client.get("status")?, show::status),
        Question::Sessions { limit, after } => {
            (client.sessions(*limit, after.as_deref())?, show::sessions)
        }
        Question::Session { seid } => (client.get(&format!("sessions/{seid}"))?, show::session),
        Question::Usage { seid, limit, after } => {
            let answer = usage::ask(&client, seid.as_deref(), *limit, after.as_deref())?;
            (answer, usage::show)
        }
        Question::Qos(wish) => (qos::ask(&client, wish)?, qos::show),
        Question::Drops => (client.get("drops")?, show::drops),
        Question::Datapath => (client.get("datapath")?, show::datapath),
        Question::Cores => (cores::ask(&client)?, cores::show),
        Question::Config => (client.get("config")?, show::config),
        Question::Capacity => (client.get("capacities")?, show::capacities),
        Question::Policies => (client.get("policies")?, show::policies),
        Question::Buffers => (client.get("buffers")?, show::buffers),
        Question::Pfds => (client.get("pfds")?, show::pfds),
        Question::Peers => (client.get("peers")?, show::peers),
        Question::Smfs => (client.get("smfs")?, show::smfs),
        // Not one answer, but many lines.
        Question::Trace(_) | Question::Top(_) => return Ok(String::new()),
    };
    if arguments.json {
        Ok(format!("{answer:#}\n"))
    } else {
        Ok(show(&answer))
    }
}
