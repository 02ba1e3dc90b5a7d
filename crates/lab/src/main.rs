//! The `lab` command.

use std::process::ExitCode;

use anyhow::Result;
use clap::{Parser, Subcommand};
use cli::{List, Program};
use lab::smf::Style;
use lab::upf::Datapath;
use lab::{bench, cleanup, demo, scenario};

/// An emulated SMF, gNBs, UEs and data network around a real turnpiked. Needs root.
#[derive(Parser)]
#[command(version, long_version = cli::version(&[]), after_help = PROGRAM.exit_codes_line())]
struct Arguments {
    /// The data path of the UPF
    #[arg(long, global = true, value_enum, default_value_t)]
    datapath: Datapath,
    #[command(subcommand)]
    command: Action,
}

const PROGRAM: Program = Program {
    name: "turnpike-lab",
    section: "1",
    exit_codes: &[
        ("0", "done"),
        ("1", "it could not be done, or a scenario failed"),
        ("2", "wrong usage"),
    ],
    environment: &[(
        "TURNPIKED",
        "Path of the turnpiked to run, instead of the one beside this program.",
    )],
    lists: &[List {
        heading: "FILES",
        entries: &[(
            cleanup::RUN_DIR,
            "Configurations, logs and captures of labs that run.",
        )],
    }],
    see_also: &[("turnpiked", "8"), ("turnpike", "1")],
    file_pages: &[],
};

#[derive(Subcommand)]
enum Action {
    /// Bring up a whole network with eight UEs and put traffic through it
    Demo {
        /// Leave it running and say what to try
        #[arg(long)]
        keep: bool,
        /// SMF whose habits its sessions follow; without: all, in turn
        #[arg(long)]
        style: Option<Style>,
    },
    /// Run scenarios and say of each whether it passed
    Scenario {
        /// Which; see --list
        names: Vec<String>,
        /// Run all
        #[arg(long, conflicts_with = "names")]
        all: bool,
        /// Keep the network of the first that fails until Ctrl-C
        #[arg(long)]
        hold: bool,
        /// How many at a time; those that measure rates run alone, after the others
        #[arg(long, default_value_t = 1, value_name = "N")]
        jobs: usize,
        /// SMF whose habits sessions follow if a scenario leaves it open; without: all, or Open5GS
        #[arg(long)]
        style: Option<Style>,
        /// Name all
        #[arg(long)]
        list: bool,
    },
    /// Measure what packets, sessions and PFCP requests cost
    Bench(bench::Options),
    /// Rates of users over time, as JSON and SVG: figures 6.7 to 6.9 of the thesis
    Rates(bench::rates::Options),
    /// Remove namespaces and files of labs that were killed
    Clean,
}

fn main() -> ExitCode {
    // Before anything is claimed: documents are written where no lab may run.
    let arguments: Arguments = match cli::parse(&PROGRAM) {
        Ok(arguments) => arguments,
        Err(code) => return code,
    };
    arguments.datapath.choose();
    let result = cleanup::claim()
        .and_then(|()| cleanup::on_signals())
        .and_then(|()| match arguments.command {
            Action::Demo { keep, style } => demo::run(keep, style).map(|()| ExitCode::SUCCESS),
            Action::Scenario {
                names,
                all,
                hold,
                jobs,
                style,
                list,
            } => scenarios(&names, all, (hold, jobs), style, list),
            Action::Bench(options) => bench::run(&options).map(|()| ExitCode::SUCCESS),
            Action::Rates(options) => bench::rates::run(&options).map(|()| ExitCode::SUCCESS),
            Action::Clean => {
                println!("{} namespaces removed", cleanup::clean());
                Ok(ExitCode::SUCCESS)
            }
        });
    cleanup::sweep();
    cleanup::disclaim();
    result.unwrap_or_else(|error| {
        eprintln!("lab: {error:#}");
        ExitCode::FAILURE
    })
}

fn scenarios(
    names: &[String],
    all: bool,
    (hold, jobs): (bool, usize),
    style: Option<Style>,
    list: bool,
) -> Result<ExitCode> {
    if list {
        for scenario in scenario::all() {
            println!("{:<28} {}", scenario.name, scenario.about);
        }
        return Ok(ExitCode::SUCCESS);
    }
    anyhow::ensure!(
        all || !names.is_empty(),
        "name scenarios, or say --all or --list"
    );
    let failed = scenario::run(names, hold, jobs, style)?;
    Ok(if failed == 0 {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
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
            .map(|below| format!("man/turnpike-lab-{}.1", below.get_name()))
            .collect();
        assert!(names.len() > 1, "{names:?}");
        for name in &names {
            let found = documents.iter().any(|(file, _)| file.as_path() == name);
            assert!(found, "{name}");
        }
    }
}
