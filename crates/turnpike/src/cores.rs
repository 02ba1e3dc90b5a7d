//! CPUs of this machine, and the work that turnpiked gives each.

use report::client::{Answer, Client, Error};
use report::{CORES, CoresReport, CpuReport};
use serde::Serialize;
use topology::{Cpu, Topology};

use crate::cell::{Cell, Plain};
use crate::table::Table;

/// The machine alone, for programs: there is no data path to tell of.
#[derive(Serialize)]
struct Machine {
    cpus: Vec<CpuReport>,
}

/// turnpiked's answer; where none is running, the machine as it is, without threads and of no kind.
pub(crate) fn ask(client: &Client) -> Result<Answer<CoresReport>, Error> {
    match client.get(&CORES) {
        Err(Error::Unreachable { .. }) => {
            let report = of_machine(&Topology::read());
            let cpus = report.cpus.clone();
            let json = Answer::from(Machine { cpus }).json;
            Ok(Answer { json, report })
        }
        answer => answer,
    }
}

fn of_machine(topology: &Topology) -> CoresReport {
    let cpu = |(&number, cpu): (&u32, &Cpu)| CpuReport {
        cpu: number,
        node: cpu.node,
        socket: cpu.socket,
        core: cpu.core,
        siblings: cpu.siblings.iter().copied().collect(),
        allowed: cpu.allowed,
        threads: Vec::new(),
    };
    CoresReport {
        cpus: topology.cpus.iter().map(cpu).collect(),
        ..CoresReport::default()
    }
}

pub(crate) fn show(cores: &CoresReport) -> String {
    let mut out = match (cores.kind.as_str(), &cores.model) {
        ("", _) => "no turnpiked is running: this machine alone\n\n".to_owned(),
        (kind, None) => format!("datapath {kind}\n\n"),
        (kind, Some(model)) => format!("datapath {kind}, {model}\n\n"),
    };
    let mut table = Table::new([
        "CPU", "NODE", "SOCKET", "CORE", "SIBLINGS", "ALLOWED", "THREADS",
    ]);
    for cpu in &cores.cpus {
        let allowed = if cpu.allowed { "yes" } else { "no" };
        table.row([
            &cpu.cpu,
            &cpu.node,
            &cpu.socket,
            &cpu.core,
            &cpu.siblings,
            &Plain(allowed.to_owned()),
            &cpu.threads,
        ]);
    }
    out += &table.text();
    if !cores.anywhere.is_empty() {
        let threads = cores.anywhere.cell();
        out += &format!("\non any CPU that is allowed: {threads}\n");
    }
    for doubt in &cores.doubts {
        out += &format!("\nwarning: {doubt}\n");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_turnpiked_the_machine_is_shown() {
        let cpu = Cpu {
            node: Some(1),
            siblings: [5].into(),
            allowed: true,
            ..Cpu::default()
        };
        let topology = Topology {
            cpus: [(4, cpu)].into(),
            ..Topology::default()
        };
        let shown = show(&of_machine(&topology));
        assert!(
            shown.starts_with("no turnpiked is running: this machine alone"),
            "{shown}"
        );
        assert!(
            shown.ends_with("4     1       -     -         5  yes            -\n"),
            "{shown}"
        );
    }

    #[test]
    fn nobody_who_answers_is_no_error() {
        // Nobody listens on the port of a service that is no more.
        let client = Client::new("127.0.0.1:9", None).ok();
        let answer = client.and_then(|client| ask(&client).ok());
        assert!(answer.is_some_and(|answer| answer.json.get("kind").is_none()));
    }
}
