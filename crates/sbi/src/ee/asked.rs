//! A subscription as a consumer asks for it (UpfEventSubscription), and what of it this UPF can honour.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use ipnet::Ipv6Net;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;
use uuid::Uuid;

use super::problem::Problem;
use crate::Callback;

/// Events of one subscription.
const EVENTS_MAX: usize = 8;
/// Letters of a correlation ID, and of a DNN.
const TEXT_MAX: usize = 256;
/// Letters of a URI.
const URI_MAX: usize = 2048;
/// Levels of a subscription, one within the other.
const LEVELS_MAX: usize = 32;
/// Longest period.
const PERIOD_MAX_S: u64 = 30 * 86_400;

/// A subscription that can be honoured.
#[derive(Clone, Debug, PartialEq)]
pub struct Asked {
    /// Without the same twice.
    pub events: Vec<Event>,
    /// Address of notifications.
    pub notify: Callback,
    /// By which the consumer knows them.
    pub correlation: String,
    /// NF instance of the consumer, as it says.
    pub consumer: Uuid,
    /// Target: its traffic is told.
    pub whom: Whom,
    /// UEs of this DNN alone.
    pub dnn: Option<String>,
    /// UEs of this slice alone.
    pub slice: Option<Slice>,
    /// The UE's names, as the consumer gives them: notifications have them, too.
    pub names: Names,
    /// Whether what has been counted so far is told at once.
    pub at_once: bool,
    /// When reports come, and how many.
    pub mode: Mode,
}

/// Target of a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whom {
    /// The PDU session with this address.
    Ue(IpAddr),
    /// All of them.
    Any,
}

/// An event, and its measurements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// USER_DATA_USAGE_MEASURES: what passed in a period.
    Measures {
        /// VOLUME_MEASUREMENT.
        volume: bool,
        /// THROUGHPUT_MEASUREMENT.
        throughput: bool,
    },
    /// USER_DATA_USAGE_TRENDS: mean and peak throughput of a period.
    Trends,
}

/// UpfEventMode.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mode {
    /// A report for each of these.
    pub period: Duration,
    /// The last report ends it; `None`: there is none.
    pub reports: Option<u32>,
    /// It ends then, at the latest.
    pub expiry: Option<OffsetDateTime>,
    /// So many UEs of a hundred.
    pub percent: Option<u8>,
}

/// S-NSSAI (TS 29.571, 5.4.4.2).
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub struct Slice {
    /// Slice/Service Type.
    pub sst: u8,
    /// Slice Differentiator, six hexadecimal digits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sd: Option<String>,
}

/// A UE's names in the core.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub struct Names {
    /// SUPI.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub supi: Option<String>,
    /// GPSI.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpsi: Option<String>,
}

/// Bounds that the operator sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Shortest period.
    pub period: Duration,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document {
    event_list: Option<Vec<EventDocument>>,
    event_notify_uri: Option<String>,
    notify_correlation_id: Option<String>,
    event_reporting_mode: Option<ModeDocument>,
    nf_id: Option<Uuid>,
    ue_ip_address: Option<Address>,
    supi: Option<String>,
    gpsi: Option<String>,
    pei: Option<String>,
    #[serde(default)]
    any_ue: bool,
    dnn: Option<String>,
    snssai: Option<Slice>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EventDocument {
    #[serde(rename = "type")]
    kind: Option<String>,
    #[serde(default)]
    immediate_flag: bool,
    measurement_types: Option<Vec<String>>,
    app_ids: Option<Value>,
    traffic_filters: Option<Value>,
    granularity_of_measurement: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ModeDocument {
    trigger: Option<String>,
    max_reports: Option<u64>,
    expiry: Option<String>,
    rep_period: Option<u64>,
    samp_ratio: Option<u64>,
    partitioning_criteria: Option<Vec<String>>,
    notif_flag: Option<String>,
    muting_exc_instructions: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Address {
    ipv4_addr: Option<Ipv4Addr>,
    ipv6_addr: Option<Ipv6Addr>,
    ipv6_prefix: Option<Ipv6Net>,
}

/// JSON pointer of an attribute of the wrong type.
fn pointer(path: &serde_path_to_error::Path) -> String {
    use serde_path_to_error::Segment;
    let part = |segment: &Segment| match segment {
        Segment::Seq { index } => format!("/{index}"),
        Segment::Map { key } => format!("/{}", key.replace('~', "~0").replace('/', "~1")),
        Segment::Enum { variant } => format!("/{variant}"),
        Segment::Unknown => String::new(),
    };
    path.iter().map(part).collect()
}

impl Asked {
    /// Read `subscription` of a request. `now`: for expiries.
    pub fn read(
        subscription: &Value,
        bounds: Bounds,
        now: OffsetDateTime,
    ) -> Result<Self, Problem> {
        if is_deeper(subscription, LEVELS_MAX) {
            let reason = format!("more than {LEVELS_MAX} levels");
            return Err(Problem::malformed(&reason));
        }
        let document: Document =
            serde_path_to_error::deserialize(subscription).map_err(|error| {
                let at = pointer(error.path());
                Problem::mandatory(&at, error.inner().to_string())
            })?;
        let missing = |param: &'static str| move || Problem::missing(param);
        let events = document.event_list.ok_or_else(missing("/eventList"))?;
        let (events, at_once) = read_events(&events)?;
        let notify = document.event_notify_uri;
        let notify = notify.ok_or_else(missing("/eventNotifyUri"))?;
        if notify.len() > URI_MAX {
            let reason = format!("more than {URI_MAX} octets");
            return Err(Problem::mandatory("/eventNotifyUri", reason));
        }
        let notify = Callback::try_from(notify)
            .map_err(|error| Problem::mandatory("/eventNotifyUri", error.to_string()))?;
        let correlation = document.notify_correlation_id;
        let correlation = correlation.ok_or_else(missing("/notifyCorrelationId"))?;
        if correlation.len() > TEXT_MAX {
            let reason = format!("more than {TEXT_MAX} octets");
            return Err(Problem::mandatory("/notifyCorrelationId", reason));
        }
        let mode = document.event_reporting_mode;
        let mode = mode.ok_or_else(missing("/eventReportingMode"))?;
        let whom = read_whom(&document.ue_ip_address, document.any_ue)?;
        let (supi, gpsi) = (document.supi, document.gpsi);
        let names = Names { supi, gpsi };
        let dnn = document.dnn.filter(|dnn| !dnn.is_empty());
        let is_named = names != Names::default() || document.pei.is_some();
        let whom = match whom {
            Some(whom) => whom,
            None if is_named => {
                let reason = "this UPF knows UEs by their addresses: ueIpAddress is missing";
                return Err(Problem::optional("/supi", reason));
            }
            None if dnn.is_some() => Whom::Any,
            None => return Err(Problem::missing("/ueIpAddress")),
        };
        let too_long =
            |text: &Option<String>| text.as_ref().is_some_and(|text| text.len() > TEXT_MAX);
        for (param, text) in [
            ("/dnn", &dnn),
            ("/supi", &names.supi),
            ("/gpsi", &names.gpsi),
        ] {
            if too_long(text) {
                let reason = format!("more than {TEXT_MAX} octets");
                return Err(Problem::optional(param, reason));
            }
        }
        if let Some(sd) = document.snssai.as_ref().and_then(|slice| slice.sd.as_ref())
            && (sd.len() != 6 || !sd.bytes().all(|digit| digit.is_ascii_hexdigit()))
        {
            let reason = "not six hexadecimal digits";
            return Err(Problem::optional("/snssai/sd", reason));
        }
        let mode = read_mode(&mode, bounds, now)?;
        Ok(Self {
            events,
            notify,
            correlation,
            consumer: document.nf_id.ok_or_else(missing("/nfId"))?,
            whom,
            dnn,
            slice: document.snssai,
            names,
            at_once,
            mode: Mode {
                // Of one there is no share.
                percent: mode.percent.filter(|_| whom == Whom::Any),
                ..mode
            },
        })
    }
}

/// Whether values lie within each other on more levels than that.
pub(super) fn is_deeper(value: &Value, levels: usize) -> bool {
    let deeper = |value| levels == 0 || is_deeper(value, levels - 1);
    match value {
        Value::Array(values) => values.iter().any(deeper),
        Value::Object(values) => values.values().any(deeper),
        _ => false,
    }
}

fn read_events(events: &[EventDocument]) -> Result<(Vec<Event>, bool), Problem> {
    if events.is_empty() || events.len() > EVENTS_MAX {
        let reason = format!("1 to {EVENTS_MAX} events");
        return Err(Problem::mandatory("/eventList", reason));
    }
    let mut read = Vec::new();
    for (place, event) in events.iter().enumerate() {
        let event = read_event(event, &format!("/eventList/{place}"))?;
        if !read.contains(&event) {
            read.push(event);
        }
    }
    Ok((read, events.iter().any(|event| event.immediate_flag)))
}

fn read_event(event: &EventDocument, at: &str) -> Result<Event, Problem> {
    let param = |name: &str| format!("{at}/{name}");
    let kind = event.kind.as_deref();
    let kind = kind.ok_or_else(|| Problem::missing(&param("type")))?;
    let traffic = "traffic of applications and flows is not measured, but that of PDU sessions";
    for (name, given) in [
        ("appIds", event.app_ids.is_some()),
        ("trafficFilters", event.traffic_filters.is_some()),
    ] {
        if given {
            return Err(Problem::optional(&param(name), traffic));
        }
    }
    match event.granularity_of_measurement.as_deref() {
        None | Some("PER_SESSION") => {}
        Some(_) => {
            return Err(Problem::optional(
                &param("granularityOfMeasurement"),
                traffic,
            ));
        }
    }
    match kind {
        "USER_DATA_USAGE_MEASURES" => measures(
            event.measurement_types.as_deref(),
            &param("measurementTypes"),
        ),
        "USER_DATA_USAGE_TRENDS" => match event.measurement_types.as_deref() {
            None => Ok(Event::Trends),
            Some(types) if types.iter().all(|of| of == "THROUGHPUT_MEASUREMENT") => {
                Ok(Event::Trends)
            }
            Some(_) => {
                let reason = "trends are of throughput: THROUGHPUT_MEASUREMENT alone";
                Err(Problem::optional(&param("measurementTypes"), reason))
            }
        },
        _ => {
            let reason = "this UPF tells of USER_DATA_USAGE_MEASURES and USER_DATA_USAGE_TRENDS";
            Err(Problem::mandatory(&param("type"), reason))
        }
    }
}

fn measures(types: Option<&[String]>, param: &str) -> Result<Event, Problem> {
    let (mut volume, mut throughput) = (types.is_none(), types.is_none());
    for of in types.unwrap_or_default() {
        match of.as_str() {
            "VOLUME_MEASUREMENT" => volume = true,
            "THROUGHPUT_MEASUREMENT" => throughput = true,
            _ => {
                let reason = "VOLUME_MEASUREMENT and THROUGHPUT_MEASUREMENT are what is measured";
                return Err(Problem::optional(param, reason));
            }
        }
    }
    if volume || throughput {
        Ok(Event::Measures { volume, throughput })
    } else {
        Err(Problem::optional(param, "an empty list"))
    }
}

fn read_whom(address: &Option<Address>, any: bool) -> Result<Option<Whom>, Problem> {
    let Some(address) = address else {
        return Ok(any.then_some(Whom::Any));
    };
    if any {
        let reason = "beside ueIpAddress: one UE, or any";
        return Err(Problem::optional("/anyUe", reason));
    }
    let v4 = address.ipv4_addr.map(IpAddr::V4);
    let v6 = address.ipv6_addr.map(IpAddr::V6);
    if let Some(prefix) = address
        .ipv6_prefix
        .filter(|prefix| prefix.prefix_len() < 64)
    {
        let reason = format!("a UE has a /64, and not {prefix}");
        return Err(Problem::optional("/ueIpAddress/ipv6Prefix", reason));
    }
    let prefix = address.ipv6_prefix.map(|prefix| prefix.network().into());
    let mut given = [v4, v6, prefix].into_iter().flatten();
    match (given.next(), given.next()) {
        (Some(one), None) => Ok(Some(Whom::Ue(one))),
        _ => {
            let reason = "one of ipv4Addr, ipv6Addr and ipv6Prefix";
            Err(Problem::optional("/ueIpAddress", reason))
        }
    }
}

fn read_mode(mode: &ModeDocument, bounds: Bounds, now: OffsetDateTime) -> Result<Mode, Problem> {
    let param = |name: &str| format!("/eventReportingMode/{name}");
    let optional = |name: &str, reason: String| Err(Problem::optional(&param(name), reason));
    let trigger = mode.trigger.as_deref();
    let is_periodic = match trigger.ok_or_else(|| Problem::missing(&param("trigger")))? {
        "PERIODIC" => true,
        "ONE_TIME" => false,
        _ => {
            let reason = "PERIODIC or ONE_TIME";
            return Err(Problem::mandatory(&param("trigger"), reason));
        }
    };
    let shortest = bounds.period.as_secs();
    let period = match mode.rep_period {
        Some(seconds) if (shortest..=PERIOD_MAX_S).contains(&seconds) => {
            Duration::from_secs(seconds)
        }
        Some(_) => return optional("repPeriod", format!("{shortest} to {PERIOD_MAX_S} s")),
        None if is_periodic => return Err(Problem::missing(&param("repPeriod"))),
        None => bounds.period,
    };
    let reports = match mode.max_reports {
        _ if !is_periodic => Some(1),
        Some(0) => return optional("maxReports", "at least 1".into()),
        Some(most) => Some(u32::try_from(most).unwrap_or(u32::MAX)),
        None => None,
    };
    let expiry = match &mode.expiry {
        None => None,
        Some(text) => match OffsetDateTime::parse(text, &Rfc3339) {
            Ok(expiry) if expiry > now => Some(expiry),
            Ok(_) => return optional("expiry", "has passed".into()),
            Err(_) => return optional("expiry", "no date and time (RFC 3339)".into()),
        },
    };
    let percent = match mode.samp_ratio {
        None => None,
        Some(percent @ 1..=100) => Some(percent as u8),
        Some(_) => return optional("sampRatio", "1 to 100".into()),
    };
    // UEs are chosen by their sessions' numbers: as many in a hundred of each DNN and slice as of all.
    for criterion in mode.partitioning_criteria.iter().flatten() {
        if !["DNN", "SNSSAI"].contains(&criterion.as_str()) {
            let reason = "DNN and SNSSAI are what this UPF knows of UEs".into();
            return optional("partitioningCriteria", reason);
        }
    }
    if mode
        .notif_flag
        .as_ref()
        .is_some_and(|flag| flag != "ACTIVATE")
        || mode.muting_exc_instructions.is_some()
    {
        let reason = "notifications cannot be muted and stored".into();
        return optional("notifFlag", reason);
    }
    Ok(Mode {
        period,
        reports,
        expiry,
        percent,
    })
}
