//! Answers of a real turnpiked under traffic, completed by fields that it had no occasion for, each beside its text.

use std::fmt::Debug;

use report::trace::Line;
use report::{
    ApplicationReport, BuffersBody, CapacityReport, CoresReport, DatapathBody, DropReport, N4Body,
    PeerReport, PolicyReport, SessionDetail, SessionPage, SmfReport, Status, TopReport, UsagePage,
    WorkerReport,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::{cores, n4, show, usage};

pub(crate) fn answer<T: DeserializeOwned>(name: &str) -> T {
    serde_json::from_str(&read(name, "json")).unwrap()
}

pub(crate) fn text(name: &str) -> String {
    read(name, "txt")
}

fn read(name: &str, ending: &str) -> String {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/samples");
    std::fs::read_to_string(format!("{folder}/{name}.{ending}")).unwrap()
}

/// All ways to leave out one member of an object, however deep.
fn without_one(value: &Value) -> Vec<Value> {
    let mut all = Vec::new();
    match value {
        Value::Object(members) => {
            for (name, member) in members {
                let mut rest = members.clone();
                rest.remove(name);
                all.push(rest.into());
                all.extend(without_one(member).into_iter().map(|less| {
                    let mut members = members.clone();
                    members.insert(name.clone(), less);
                    members.into()
                }));
            }
        }
        Value::Array(items) => {
            for (at, item) in items.iter().enumerate() {
                all.extend(without_one(item).into_iter().map(|less| {
                    let mut items = items.clone();
                    items[at] = less;
                    items.into()
                }));
            }
        }
        _ => {}
    }
    all
}

/// With a member more in each object.
fn with_more(value: &mut Value) {
    match value {
        Value::Object(members) => {
            members.values_mut().for_each(with_more);
            members.insert(
                "of_a_later_release".into(),
                serde_json::json!({"is": [1, null]}),
            );
        }
        Value::Array(items) => items.iter_mut().for_each(with_more),
        _ => {}
    }
}

/// A sample is read whole, and so are those of an older and of a newer turnpiked.
fn check<T>(name: &str, show: impl Fn(&T) -> String)
where
    T: DeserializeOwned + Serialize + PartialEq + Debug,
{
    let sample: Value = answer(name);
    let report: T = answer(name);
    assert_eq!(
        serde_json::to_value(&report).unwrap(),
        sample,
        "{name}: nothing is passed over"
    );
    let older = without_one(&sample);
    assert!(!older.is_empty(), "{name}");
    for older in older {
        show(&serde_json::from_value(older).expect(name));
    }
    let mut newer = sample;
    with_more(&mut newer);
    assert_eq!(
        serde_json::from_value::<T>(newer).expect(name),
        report,
        "{name}"
    );
}

#[test]
fn answers_have_their_text_and_those_of_other_releases_are_read() {
    fn check_text<T>(name: &str, show: fn(&T) -> String)
    where
        T: DeserializeOwned + Serialize + PartialEq + Debug,
    {
        assert_eq!(show(&answer(name)), text(name), "{name}");
        check(name, show);
    }
    check_text::<Status>("status", show::status);
    check_text::<SessionPage>("sessions", show::sessions);
    check_text::<SessionDetail>("session", show::session);
    check_text::<UsagePage>("usage", usage::show);
    check_text::<Vec<PeerReport>>("peers", show::peers);
    check_text::<Vec<SmfReport>>("smfs", show::smfs);
    check_text::<Vec<ApplicationReport>>("pfds", show::pfds);
    check_text::<BuffersBody>("buffers", show::buffers);
    check_text::<Vec<CapacityReport>>("capacities", show::capacities);
    check_text::<N4Body>("n4", n4::show);
    check_text::<Vec<PolicyReport>>("policies", show::policies);
    check_text::<Vec<DropReport>>("drops", show::drops);
    check_text::<DatapathBody>("datapath", show::datapath);
    check_text::<DatapathBody>("datapath-workers", show::datapath);
    check_text::<CoresReport>("cores", cores::show);
    check::<Vec<WorkerReport>>("workers", |_| String::new());
    check::<TopReport>("top", |_| String::new());
}

/// A line that is of no known kind is shown as it came.
#[test]
fn lines_of_other_releases_are_read() {
    let lines: Vec<Value> = answer("trace");
    for line in lines {
        let read: Line = serde_json::from_value(line.clone()).unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), line);
        let has_defaults = matches!(read, Line::Following(_) | Line::Packet(_));
        for older in without_one(&line) {
            if has_defaults && older.get("event").is_some() {
                serde_json::from_value::<Line>(older).unwrap();
            }
        }
        let mut newer = line;
        with_more(&mut newer);
        assert_eq!(serde_json::from_value::<Line>(newer).unwrap(), read);
    }
}
