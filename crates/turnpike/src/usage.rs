//! Measured usage as text.

use report::{UrrReport, UsagePage, VolumeReport};

use crate::cell::{Cell, Plain};
use crate::table::Table;

/// Each URR of each session.
pub(crate) fn show(page: &UsagePage) -> String {
    let mut table = heading(["SEID", "UE"]);
    for session in &page.sessions {
        for urr in &session.urrs {
            row(&mut table, [&session.seid, &session.ue], urr);
        }
    }
    if table.is_empty() {
        return "nothing is measured\n".to_owned();
    }
    let mut out = table.text();
    if let Some(next) = &page.next {
        let shown = page.sessions.len();
        out += &format!("{shown} sessions, and there are more: --after {next}, or --limit\n");
    }
    out
}

/// The URRs of one session.
pub(crate) fn urrs(urrs: &[UrrReport]) -> Table {
    let mut table = heading([]);
    for urr in urrs {
        row(&mut table, [], urr);
    }
    table
}

fn heading<const N: usize>(front: [&str; N]) -> Table {
    let own = [
        "URR",
        "TRIGGERS",
        "REPORTS",
        "SINCE s",
        "UP BYTES",
        "DOWN BYTES",
        "UP",
        "DOWN",
        "SECONDS",
        "THRESHOLD",
        "QUOTA LEFT",
        "STATE",
    ];
    Table::of(front.into_iter().chain(own))
}

fn row<const N: usize>(table: &mut Table, front: [&dyn Cell; N], urr: &UrrReport) {
    let state = match (urr.exhausted, urr.pending) {
        (true, _) => "exhausted",
        (_, true) => "to be reported",
        _ => "measures",
    };
    let own: [&dyn Cell; 12] = [
        &urr.id,
        &urr.triggers,
        &urr.reports,
        &urr.for_s,
        &urr.uplink.bytes,
        &urr.downlink.bytes,
        &urr.uplink.packets,
        &urr.downlink.packets,
        &urr.seconds,
        &volume(&urr.threshold),
        &volume(&urr.quota_left),
        &Plain(state.to_owned()),
    ];
    table.cells(front.into_iter().chain(own));
}

/// `1 000`, or with directions `1 000 up`; empty: no limit.
fn volume(volume: &VolumeReport) -> Vec<String> {
    let parts = [
        (volume.total, ""),
        (volume.uplink, " up"),
        (volume.downlink, " down"),
    ];
    let known = parts
        .into_iter()
        .filter_map(|(part, name)| Some(part?.cell() + name));
    known.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_measured_is_said_so() {
        assert_eq!(show(&UsagePage::default()), "nothing is measured\n");
    }
}
