//! The process that workers of DPDK are in: this program, started by itself, and without a configuration.

use std::io;
use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::process::{self, Command, ExitCode, Stdio};
use std::{panic, thread};

use nix::sys::signal::{SigSet, Signal};
use tables::{StartWorkers, run_workers};

use crate::config::Log;
use crate::{logging, say};

/// Environment that is turnpiked's alone.
const OWN: [&str; 4] = [
    "LISTEN_FDNAMES",
    "LISTEN_FDS",
    "LISTEN_PID",
    "NOTIFY_SOCKET",
];

/// By turnpiked, with its log.
pub(crate) fn start(log: &Log) -> StartWorkers {
    let log = serde_json::to_string(log).unwrap_or_default();
    StartWorkers::new(move |socket| {
        let mut command = Command::new("/proc/self/exe");
        command.arg0("turnpiked").args([tables::WORKERS, &log]);
        command.stdin(socket).stdout(Stdio::null());
        OWN.iter().for_each(|name| {
            command.env_remove(name);
        });
        // A terminal's signals are for turnpiked.
        let mut workers = command.process_group(0).spawn()?;
        let wait = move || {
            if let Ok(status) = workers.wait() {
                tracing::info!(%status, "the process of workers has ended");
            }
        };
        thread::Builder::new().name("workers".into()).spawn(wait)?;
        Ok(())
    })
}

/// As that process, with a log as [`start`] writes it.
pub(crate) fn run(log: &str) -> ExitCode {
    // A worker that panics would leave its share of all packets to nobody.
    let say_why = panic::take_hook();
    panic::set_hook(Box::new(move |why| {
        say_why(why);
        process::abort();
    }));
    let turnpikeds = [
        Signal::SIGHUP,
        Signal::SIGINT,
        Signal::SIGUSR1,
        Signal::SIGUSR2,
    ];
    let held = turnpikeds.into_iter().collect::<SigSet>().thread_block();
    // A thread of turnpiked holds them all.
    let ends = [Signal::SIGQUIT, Signal::SIGTERM];
    let heard = ends.into_iter().collect::<SigSet>().thread_unblock();
    if let Err(error) = held.and(heard) {
        say(&format!("turnpiked: workers: signals: {error}"));
        return ExitCode::FAILURE;
    }
    let log: Log = serde_json::from_str(log).unwrap_or_default();
    let socket = io::stdin().as_fd().try_clone_to_owned();
    let (_logging, socket) = match logging::start(&log).and_then(|log| Ok((log, socket?))) {
        Ok(started) => started,
        Err(error) => {
            say(&format!("turnpiked: workers: {error}"));
            return ExitCode::FAILURE;
        }
    };
    match run_workers(&socket) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            tracing::error!("workers: {error}");
            ExitCode::FAILURE
        }
    }
}
