//! Requests of SMFs, each in its own way: the UPF serves all, and tshark says whose way it was.

use anyhow::{Context, Result, ensure};

use super::capture::{Capture, counts};
use super::sessions::ping_all;
use super::{Scenario, both_ways, flow_down, none_of};
use crate::flow::Shape;
use crate::smf::{Requested, Style, TunnelEnd};
use crate::world::{Family, World, smf_address};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![Scenario::new(
        "smf-styles",
        "attach, idle and back, handover and deletion as five SMFs ask for them; tshark reads what they sent",
        smf_styles,
    )
    .smfs(Style::ALL.len())
    .long()]
}

use Style::{Free5gc, Oai, Open5gs, Pfcpsim, SdCore};

const ESTABLISHMENT: u8 = 50;
const MODIFICATION: u8 = 52;
const DELETION: u8 = 54;

/// Traits that tshark finds in requests of these styles, and of no other ones.
const TRAITS: &[(u8, &str, &[Style])] = &[
    (ESTABLISHMENT, "pfcp.f_teid.choose_id == 5", &[Open5gs]),
    // CHOOSE of IPv4 with CHOOSE ID 42.
    (ESTABLISHMENT, "frame contains 00:15:00:02:0d:2a", &[Oai]),
    (ESTABLISHMENT, "pfcp.f_teid_flags.v6 == 1", &[Open5gs]),
    // CHOOSE alone, in one octet.
    (ESTABLISHMENT, "frame contains 00:15:00:01:04", &[SdCore]),
    (ESTABLISHMENT, "pfcp.f_teid.teid", &[Free5gc, Pfcpsim]),
    // Network Instance with and without lengths of labels.
    (ESTABLISHMENT, "frame contains 00:16:00:09:08", &[Open5gs]),
    (
        ESTABLISHMENT,
        "frame contains 00:16:00:08:69",
        &[Free5gc, SdCore],
    ),
    (
        ESTABLISHMENT,
        "pfcp.tgpp_interface_type == 11",
        &[Open5gs, Oai],
    ),
    (ESTABLISHMENT, "pfcp.tgpp_interface_type == 17", &[Open5gs]),
    (MODIFICATION, "pfcp.tgpp_interface_type == 0", &[Oai]),
    (ESTABLISHMENT, "pfcp.out_hdr_desc == 6", &[Open5gs]),
    (
        ESTABLISHMENT,
        "pfcp.sdf_filter.fd == 1",
        &[Open5gs, Pfcpsim],
    ),
    (
        ESTABLISHMENT,
        "pfcp.ue_ip_address_flag.sd == 1",
        &[Open5gs, Free5gc],
    ),
    (
        ESTABLISHMENT,
        "pfcp.ue_ip_address_flag.sd == 0",
        &[Free5gc, Oai, SdCore, Pfcpsim],
    ),
    (
        ESTABLISHMENT,
        "pfcp.source_interface == 1",
        &[Open5gs, Free5gc, SdCore, Pfcpsim],
    ),
    (ESTABLISHMENT, "pfcp.source_interface == 3", &[Open5gs]),
    (ESTABLISHMENT, "pfcp.dst_interface == 2", &[SdCore]),
    // Downlink until there is a tunnel: buffered, forwarded nowhere, without rules, dropped, dropped with a header.
    (ESTABLISHMENT, "pfcp.apply_action.buff == 1", &[Open5gs]),
    (
        ESTABLISHMENT,
        "pfcp.apply_action.drop == 1",
        &[SdCore, Pfcpsim],
    ),
    (
        ESTABLISHMENT,
        "pfcp.dst_interface == 0",
        &[Free5gc, Pfcpsim],
    ),
    (
        ESTABLISHMENT,
        "pfcp.outer_hdr_creation.ipv4 == 0.0.0.0",
        &[Pfcpsim],
    ),
    (ESTABLISHMENT, "pfcp.bar_id", &[Open5gs]),
    (
        ESTABLISHMENT,
        "pfcp.qer_id",
        &[Open5gs, Free5gc, SdCore, Pfcpsim],
    ),
    (ESTABLISHMENT, "pfcp.qer_id == 0", &[Pfcpsim]),
    (ESTABLISHMENT, "pfcp.qer_id == 2", &[Free5gc, Pfcpsim]),
    (ESTABLISHMENT, "pfcp.urr_id", &[Open5gs, Free5gc, Pfcpsim]),
    (
        ESTABLISHMENT,
        "pfcp.reporting_triggers_flags.perio == 1",
        &[Free5gc, Pfcpsim],
    ),
    (
        ESTABLISHMENT,
        "pfcp.reporting_triggers_flags.volqu == 1",
        &[Pfcpsim],
    ),
    // Measurement Information: MBQE and MNOP.
    (ESTABLISHMENT, "frame contains 00:64:00:01:11", &[Free5gc]),
    (
        ESTABLISHMENT,
        "pfcp.pdn_type",
        &[Open5gs, Free5gc, SdCore, Pfcpsim],
    ),
    (ESTABLISHMENT, "pfcp.user_id.flags.imsif == 1", &[Open5gs]),
    (ESTABLISHMENT, "pfcp.apn_dnn == \"internet\"", &[Open5gs]),
    (ESTABLISHMENT, "pfcp.s_nssai_sst.sst == 1", &[Open5gs]),
    (ESTABLISHMENT, "pfcp.mp_flag == 1", &[SdCore]),
    (DELETION, "pfcp.mp == 12", &[SdCore]),
    (MODIFICATION, "pfcp.f_seid.ipv4", &[Free5gc, SdCore]),
    (DELETION, "pfcp.f_seid.ipv4", &[SdCore, Pfcpsim]),
    // Create PDR, Update PDR, Update URR and Remove PDR.
    (MODIFICATION, "pfcp.ie_type == 1", &[Oai]),
    (MODIFICATION, "pfcp.ie_type == 9", &[Free5gc, Oai, SdCore]),
    (MODIFICATION, "pfcp.ie_type == 13", &[Pfcpsim]),
    (MODIFICATION, "pfcp.ie_type == 15", &[Oai]),
    (
        MODIFICATION,
        "pfcp.smreq_flags.sndem == 1",
        &[Open5gs, Free5gc, SdCore],
    ),
    (MODIFICATION, "pfcp.smreq_flags.sndem == 0", &[Free5gc]),
    // Idle: with the BAR, with the tunnel as it was, without one, with TEID 0.
    (
        MODIFICATION,
        "pfcp.apply_action.buff == 1 && pfcp.bar_id",
        &[Open5gs],
    ),
    (
        MODIFICATION,
        "pfcp.apply_action.buff == 1 && pfcp.outer_hdr_creation.teid > 0",
        &[Free5gc],
    ),
    (
        MODIFICATION,
        "pfcp.apply_action.buff == 1 && !pfcp.outer_hdr_desc",
        &[Open5gs, SdCore],
    ),
    (
        MODIFICATION,
        "pfcp.outer_hdr_creation.teid == 0",
        &[Pfcpsim],
    ),
];

fn smf_styles(world: &mut World) -> Result<String> {
    let styles = world.styles();
    let capture = Capture::start(world, &world.smf_ns, "n4", "n4.pcapng")?;
    for (smf, style) in styles.iter().enumerate() {
        life(world, *style, smf).with_context(|| format!("{style:?}"))?;
    }
    let file = capture.stop()?;
    let mut filters = vec!["_ws.malformed".to_owned()];
    for (message, filter, _) in TRAITS {
        filters.extend((0..styles.len()).map(|smf| {
            let sender = smf_address(smf);
            format!("ip.src == {sender} && pfcp.msg_type == {message} && {filter}")
        }));
    }
    let found = counts(&file, &filters)?;
    ensure!(found[0] == 0, "malformed messages");
    let of_traits = found[1..].chunks(styles.len());
    for ((_, filter, of), found) in TRAITS.iter().zip(of_traits) {
        for (style, found) in styles.iter().zip(found) {
            let has = of.contains(style);
            ensure!((*found > 0) == has, "{style:?}: {filter}: {found}");
        }
    }
    Ok(format!("{} SMFs, {} traits", styles.len(), TRAITS.len()))
}

/// A session from its establishment to its deletion.
fn life(world: &mut World, style: Style, smf: usize) -> Result<()> {
    let mut plan = world.plan(Family::V4, style);
    match style {
        // For every UE, also one that will never ask for a router.
        Open5gs => plan.solicitations_to = Some(TunnelEnd::at(smf_address(smf), 1)),
        // Of a UPF that can (UEIP) it asks for addresses, in the PDIs of both directions.
        SdCore => {
            plan.addresses = Requested::Choose {
                v4: true,
                v6: false,
            };
        }
        Free5gc | Oai | Pfcpsim => {}
    }
    let mut attached = world.attach(&format!("ue{smf}"), &plan, smf, 0)?;
    ping_all(&attached)?;
    both_ways(world, &attached)?;

    let idle = world.smf(smf)?.idle(&attached.session);
    idle.context("idle")?;
    let shape = Shape {
        rate: 500,
        count: 100,
        payload: 200,
    };
    let flow = flow_down(world, &attached, shape)?;
    none_of(flow, "downlink while idle")?;
    world.activate(&attached).context("back")?;
    both_ways(world, &attached).context("back")?;

    world.handover(&mut attached, 1).context("handover")?;
    both_ways(world, &attached).context("handover")?;
    world.detach(&attached)?;
    ensure!(world.sessions()? == 0, "a session is left");
    Ok(())
}
