//! The configuration's file is read again while turnpiked runs: judged, refused whole or brought into force whole.

mod anew;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use report::{ConfigChange, ConfigState, ReloadReport};
use tokio::sync::Mutex;
use topology::Topology;

use crate::access::{self, Offered};
use crate::command::Asker;
use crate::config::{
    self, Change, Config, Problem, System, Takes, changes, hindrance, problem_of_memory,
    problem_of_second_tables, read_token,
};
use crate::running::Shared;
use crate::{logging, plan, recovery, system};

pub(crate) use anew::{Handed, Successor, Text};

/// Time for answers of REST to leave before the program starts anew.
const FAREWELL: Duration = Duration::from_millis(100);

/// Reads the file again. Once at a time.
#[derive(Debug)]
pub(crate) struct Reloader {
    file: PathBuf,
    running: Shared,
    control: Asker,
    /// CPUs as they were before threads had theirs.
    topology: Arc<Topology>,
    /// Text that the process runs by; `None` once another start has been asked for.
    text: Mutex<Option<Text>>,
    /// Text that another start is to run by.
    successor: std::sync::Mutex<Option<Successor>>,
}

/// A text, compared with the configuration in effect.
struct Judged {
    /// `None`: it cannot be read.
    config: Option<Config>,
    changes: Vec<Change>,
    reasons: Vec<String>,
}

impl Judged {
    fn takes_over(&self) -> bool {
        self.changes.iter().any(|of| of.takes == Takes::TakeOver)
    }

    fn outcome(&self) -> &'static str {
        match () {
            () if !self.reasons.is_empty() => ReloadReport::REFUSED,
            () if self.changes.is_empty() => ReloadReport::UNCHANGED,
            () if self.takes_over() => ReloadReport::TAKING_OVER,
            () => ReloadReport::IN_FORCE,
        }
    }

    fn report(&self) -> ReloadReport {
        ReloadReport {
            number: 0,
            at: now(),
            outcome: self.outcome().to_owned(),
            changes: self.changes.iter().map(change_report).collect(),
            reasons: self.reasons.clone(),
            warnings: Vec::new(),
        }
    }
}

fn change_report(change: &Change) -> ConfigChange {
    let (takes, reason) = match &change.takes {
        Takes::Nothing => (ConfigChange::NOTHING, None),
        Takes::TakeOver => (ConfigChange::TAKE_OVER, None),
        Takes::Restart(reason) => (ConfigChange::RESTART, Some(reason.clone())),
    };
    ConfigChange {
        key: change.key.clone(),
        before: change.before.clone(),
        after: change.after.clone(),
        takes: takes.to_owned(),
        reason,
    }
}

fn now() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.unwrap_or_default().as_secs()
}

/// Everything that speaks against it on this machine.
fn judge(text: &str, (running, packets_go_on): (&Config, bool), topology: Topology) -> Judged {
    let reasons = |problems: Vec<Problem>| problems.iter().map(ToString::to_string).collect();
    let config = match config::parse(text) {
        Ok(config) => config,
        Err(problem) => {
            return Judged {
                config: None,
                changes: Vec::new(),
                reasons: reasons(vec![problem]),
            };
        }
    };
    let changes = changes(running, &config);
    let mut problems = Vec::new();
    match System::read() {
        Ok(system) => {
            let system = System { topology, ..system };
            problems = config::check(&config, &system);
            let tables = plan::layout(&config).octets();
            problems.extend(problem_of_memory(&config, &system.memory, tables));
            if problems.is_empty() && changes.iter().any(|of| of.takes == Takes::TakeOver) {
                let both = (plan::layout(running).octets(), tables);
                problems.extend(problem_of_second_tables(&config, &system.memory, both));
            }
        }
        Err(error) => problems.push(Problem::missing(
            "",
            format!("this machine's interfaces cannot be read: {error}"),
        )),
    }
    let mut reasons: Vec<String> = reasons(problems);
    let go_on = (packets_go_on, plan::are_workers_alike(running, &config));
    for Change { key, takes, .. } in &changes {
        match (takes, hindrance(running, go_on)) {
            (Takes::Restart(reason), _) => reasons.push(format!("{key}: {reason}")),
            (Takes::TakeOver, Some(why)) => {
                reasons.push(format!("{key}: takes a start of turnpiked: {why}"));
            }
            _ => {}
        }
    }
    Judged {
        config: Some(config),
        changes,
        reasons,
    }
}

impl Reloader {
    /// `text`: of the file, by which the process runs.
    pub(crate) fn new(
        (file, text): (PathBuf, Text),
        topology: Arc<Topology>,
        running: Shared,
        control: Asker,
    ) -> Self {
        Self {
            file,
            topology,
            running,
            control,
            text: Mutex::new(Some(text)),
            successor: std::sync::Mutex::default(),
        }
    }

    /// Judge a text as a reload does, and do nothing.
    pub(crate) async fn consider(&self, text: String) -> ReloadReport {
        self.judge(text).await.report()
    }

    async fn judge(&self, text: String) -> Judged {
        let (running, topology) = (self.running.config(), Topology::clone(&self.topology));
        let goes_on = self.running.packets_go_on();
        // It reads files and asks the kernel.
        let judged =
            tokio::task::spawn_blocking(move || judge(&text, (&running, goes_on), topology)).await;
        judged.unwrap_or_else(|error| refused(error.to_string()))
    }

    /// Read the file again, and bring into force what it says, all or nothing.
    pub(crate) async fn reload(self: &Arc<Self>) -> ReloadReport {
        let mut own_text = self.text.lock().await;
        let Some(former) = own_text.as_ref() else {
            // The report of the one that goes on stays.
            return refused("turnpiked is starting anew: try again".into()).report();
        };
        let read_at = SystemTime::now();
        let (judged, warnings) = match read(&self.file) {
            Err(reason) => (refused(reason), Vec::new()),
            Ok(text) => {
                let new = Text { text, read_at };
                let (judged, warnings) = self.bring_into_force(former, &new).await;
                let outcome = judged.outcome();
                if [ReloadReport::IN_FORCE, ReloadReport::UNCHANGED].contains(&outcome) {
                    *own_text = Some(new);
                }
                (judged, warnings)
            }
        };
        let mut report = ReloadReport {
            warnings,
            ..judged.report()
        };
        self.running.change(|running| {
            running.state.reloads += 1;
            report.number = running.state.reloads;
            running.state.last = Some(report.clone());
        });
        tell(&report);
        if report.outcome == ReloadReport::TAKING_OVER
            && let Some(to) = self.successor_config()
            && let Some(text) = own_text.take()
        {
            tokio::spawn(Arc::clone(self).hand_over(text, to));
        }
        report
    }

    /// Have the control thread end, which ends the process' present life.
    async fn hand_over(self: Arc<Self>, text: Text, to: Arc<Config>) {
        tokio::time::sleep(FAREWELL).await;
        system::notify("RELOADING=1");
        let reason = match self.control.hand_over(to).await {
            Ok(Ok(())) => return,
            Ok(Err(reason)) => reason,
            Err(error) => error.to_string(),
        };
        system::notify("READY=1");
        drop(self.take_successor());
        self.running.change(|running| {
            if let Some(last) = &mut running.state.last {
                last.outcome = ReloadReport::REFUSED.to_owned();
                last.reasons = vec![reason];
                tell(last);
            }
        });
        *self.text.lock().await = Some(text);
    }

    /// The judgement, which says whether it is in force, and consequences.
    async fn bring_into_force(&self, former: &Text, new: &Text) -> (Judged, Vec<String>) {
        let mut judged = self.judge(new.text.clone()).await;
        let mut warnings = Vec::new();
        let outcome = judged.outcome();
        let Some(config) = judged
            .config
            .take()
            .filter(|_| outcome != ReloadReport::REFUSED)
        else {
            return (judged, warnings);
        };
        // It may have another text in it.
        let token = match config.api.token_file.as_deref().map(read_token).transpose() {
            Ok(token) => token.map(Arc::<str>::from),
            Err(reason) => {
                let path = &config.api.token_file;
                judged
                    .reasons
                    .push(format!("api.token_file = {path:?}: {reason}"));
                return (judged, warnings);
            }
        };
        let config = Arc::new(config);
        let done = match outcome {
            ReloadReport::TAKING_OVER => {
                match self.control.may_hand_over(Arc::clone(&config)).await {
                    Ok(Ok(())) => {
                        let mut place = self.successor.lock().unwrap_or_else(|e| e.into_inner());
                        *place = Some(Successor {
                            former: former.clone(),
                            new: new.clone(),
                            state: ConfigState::default(),
                            config,
                        });
                        return (judged, warnings);
                    }
                    Ok(Err(reason)) => Err(reason),
                    Err(error) => Err(error.to_string()),
                }
            }
            _ => match self.control.reconfigure(Arc::clone(&config)).await {
                Ok(done) => done,
                Err(error) => Err(error.to_string()),
            },
        };
        match done {
            Err(reason) => judged.reasons.push(reason),
            Ok(told) => {
                warnings = told;
                logging::set_level(config.log.level);
                self.running.change(|running| {
                    if token.is_some() {
                        running.token_to_change = token.clone();
                    }
                    running.token = token;
                    running.config = config;
                });
                if let Some(offered) = self.offer_access(new.read_at) {
                    offered.leave();
                }
            }
        }
        (judged, warnings)
    }

    /// Of a take-over that was begun.
    pub(crate) fn successor_config(&self) -> Option<Arc<Config>> {
        let place = self.successor.lock().unwrap_or_else(|e| e.into_inner());
        place.as_ref().map(|of| Arc::clone(&of.config))
    }

    /// Programs of this host find REST from now on. `None`: there is no folder for that, and nobody can change anything by REST
    /// without `api.token_file`. `read_at`: before the configuration was.
    pub(crate) fn offer_access(&self, read_at: SystemTime) -> Option<Offered> {
        let running = self.running.now();
        let token = running.token_to_change?;
        let listen = running.config.api.listen;
        let offered = access::offer(&recovery::folder(), (listen, &token), read_at);
        let warn = |error: &std::io::Error| {
            let folder = recovery::folder();
            tracing::warn!(%error, "{folder:?}: turnpike does not find this turnpiked by itself");
        };
        offered.inspect_err(warn).ok()
    }

    /// Of a take-over that was begun.
    pub(crate) fn take_successor(&self) -> Option<Successor> {
        let mut place = self.successor.lock().unwrap_or_else(|e| e.into_inner());
        let mut successor = place.take()?;
        successor.state = self.running.now().state;
        Some(successor)
    }
}

fn refused(reason: String) -> Judged {
    Judged {
        config: None,
        changes: Vec::new(),
        reasons: vec![reason],
    }
}

fn read(file: &Path) -> Result<String, String> {
    std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))
}

fn tell(report: &ReloadReport) {
    let keys: Vec<&str> = report.changes.iter().map(|of| of.key.as_str()).collect();
    let changed = keys.join(", ");
    match report.outcome.as_str() {
        ReloadReport::UNCHANGED => tracing::info!("configuration: as before"),
        ReloadReport::IN_FORCE => tracing::info!(changed, "configuration: in force"),
        ReloadReport::TAKING_OVER => {
            tracing::info!(
                changed,
                "configuration: turnpiked starts anew, and takes over"
            );
        }
        _ => {
            for reason in &report.reasons {
                tracing::error!("configuration: refused, nothing has changed: {reason}");
            }
        }
    }
    for warning in &report.warnings {
        tracing::warn!("configuration: {warning}");
    }
}
