//! CPUs of this machine, and what turnpiked has each do.

use serde_json::{Value, json};
use topology::{Cpu, Topology};

use crate::client::{Client, Error};
use crate::fields::{items, text};
use crate::table::Table;

/// What turnpiked says; where none is running, what the machine is, without threads.
pub(crate) fn ask(client: &Client) -> Result<Value, Error> {
    match client.get("cores") {
        Err(Error::Unreachable { .. }) => Ok(of_machine(&Topology::read())),
        answer => answer,
    }
}

/// In the form of turnpiked's answer.
fn of_machine(topology: &Topology) -> Value {
    let core = |(number, cpu): (&u32, &Cpu)| {
        let mut core = json!({"cpu": number, "siblings": cpu.siblings, "allowed": cpu.allowed});
        for (name, value) in [
            ("node", cpu.node),
            ("socket", cpu.socket),
            ("core", cpu.core),
        ] {
            if let Some(value) = value {
                core[name] = value.into();
            }
        }
        core
    };
    json!({"cpus": topology.cpus.iter().map(core).collect::<Vec<_>>()})
}

pub(crate) fn show(answer: &Value) -> String {
    let mut out = match answer.get("kind") {
        None => "no turnpiked is running: this machine alone\n\n".to_owned(),
        Some(_) => match text(answer, "/model").as_str() {
            "-" => format!("datapath {}\n\n", text(answer, "/kind")),
            model => format!("datapath {}, {model}\n\n", text(answer, "/kind")),
        },
    };
    let mut table = Table::new([
        "CPU", "NODE", "SOCKET", "CORE", "SIBLINGS", "ALLOWED", "THREADS",
    ]);
    for cpu in items(answer, "/cpus") {
        let cells = [
            "/cpu",
            "/node",
            "/socket",
            "/core",
            "/siblings",
            "/allowed",
            "/threads",
        ];
        table.row(cells.map(|field| match (field, text(cpu, field).as_str()) {
            ("/allowed", "true") => "yes".to_owned(),
            ("/allowed", "false") => "no".to_owned(),
            (_, text) => text.to_owned(),
        }));
    }
    out += &table.text();
    if items(answer, "/anywhere").next().is_some() {
        let threads = text(answer, "/anywhere");
        out += &format!("\non any CPU that is allowed: {threads}\n");
    }
    for doubt in items(answer, "/doubts") {
        out += &format!("\nwarning: {}\n", text(doubt, ""));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_each_cpu_has_to_do_is_shown() {
        let answer = json!({
            "kind": "dpdk", "model": "pipeline",
            "cpus": [
                {"cpu": 0, "node": 0, "socket": 0, "core": 0, "siblings": [2], "allowed": true,
                    "threads": ["receiver-0"]},
                {"cpu": 2, "node": 0, "socket": 0, "core": 0, "siblings": [0], "allowed": false,
                    "threads": []},
            ],
            "anywhere": ["worker-0", "control"], "doubts": ["they share a core"],
        });
        assert_eq!(
            show(&answer),
            "datapath dpdk, pipeline\n\n\
             CPU  NODE  SOCKET  CORE  SIBLINGS  ALLOWED  THREADS\n  \
             0     0       0     0         2  yes      receiver-0\n  \
             2     0       0     0         0  no       -\n\n\
             on any CPU that is allowed: worker-0, control\n\n\
             warning: they share a core\n"
        );
    }

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
        let answer = of_machine(&topology);
        let core = json!({"cpu": 4, "node": 1, "siblings": [5], "allowed": true});
        assert_eq!(answer, json!({"cpus": [core]}));
        let shown = show(&answer);
        assert!(
            shown.starts_with("no turnpiked is running: this machine alone"),
            "{shown}"
        );
        assert!(
            shown.ends_with("4     1       -     -         5  yes            -\n"),
            "{shown}"
        );
        show(&Value::Null);
    }

    #[test]
    fn nobody_who_answers_is_no_error() {
        // Nobody listens on the port of a service that is no more.
        let client = Client::new("127.0.0.1:9", None).ok();
        let answer = client.and_then(|client| ask(&client).ok());
        assert!(answer.is_some_and(|answer| answer.get("kind").is_none()));
    }
}
