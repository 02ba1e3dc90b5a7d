//! PDRs that activate predefined rules of the UPF (TS 29.244, 5.19).

use anyhow::Result;
use rs_pfcp::ie::Ie;
use rs_pfcp::ie::activate_predefined_rules::ActivatePredefinedRules;
use rs_pfcp::ie::create_pdr::CreatePdrBuilder;
use rs_pfcp::ie::deactivate_predefined_rules::DeactivatePredefinedRules;
use rs_pfcp::ie::far_id::FarId;
use rs_pfcp::ie::network_instance::NetworkInstance;
use rs_pfcp::ie::outer_header_removal::OuterHeaderRemoval;
use rs_pfcp::ie::pdi::Pdi;
use rs_pfcp::ie::pdr_id::PdrId;
use rs_pfcp::ie::precedence::Precedence;
use rs_pfcp::ie::source_interface::{SourceInterface, SourceInterfaceValue};
use rs_pfcp::ie::ue_ip_address::UeIpAddress;
use rs_pfcp::ie::update_pdr::UpdatePdr;

use super::plan::given_f_teid;
use super::{Session, Smf, TunnelEnd};
use crate::traffic::Way;

/// PDRs for predefined rules, beside those of the session and its flows.
const PDRS: [u16; 2] = [50, 51];
const PRECEDENCE: u32 = 20;

fn id(way: Way) -> PdrId {
    PdrId::new(match way {
        Way::Up => PDRS[0],
        Way::Down => PDRS[1],
    })
}

fn pdi(session: &Session, way: Way) -> Pdi {
    let source = match way {
        Way::Up => SourceInterfaceValue::Access,
        Way::Down => SourceInterfaceValue::Core,
    };
    let mut pdi = Pdi::new(SourceInterface::new(source));
    pdi.network_instance = Some(NetworkInstance::new(&session.plan.network_instance));
    let mut address = UeIpAddress::new(session.addresses.v4, session.addresses.v6);
    address.source_destination = way == Way::Down;
    pdi.ue_ip_addresses = vec![address];
    let TunnelEnd { addresses, teid } = session.uplink_end;
    pdi.f_teid = (way == Way::Up).then(|| given_f_teid(teid, addresses));
    pdi
}

impl Smf {
    /// A further PDR of the session, of this way, activates predefined rules. It has no FAR.
    pub fn activate(&self, session: &Session, way: Way, names: &[&str]) -> Result<()> {
        let mut pdr = CreatePdrBuilder::new(id(way))
            .precedence(Precedence::new(PRECEDENCE))
            .pdi(pdi(session, way));
        if way == Way::Up {
            pdr = pdr.outer_header_removal(OuterHeaderRemoval::new(0));
        }
        for name in names {
            pdr = pdr.activate_predefined_rules(ActivatePredefinedRules::new(name));
        }
        self.modify(session, &[pdr.build()?.to_ie()])
    }

    /// Have that PDR leave one predefined rule for another, with this FAR from now on.
    pub fn exchange(
        &self,
        session: &Session,
        way: Way,
        [former, next]: [&str; 2],
        far: Option<u32>,
    ) -> Result<()> {
        let mut pdr = UpdatePdr::builder(id(way))
            .deactivate_predefined_rules(DeactivatePredefinedRules::new(former))
            .activate_predefined_rules(ActivatePredefinedRules::new(next));
        if let Some(far) = far {
            pdr = pdr.far_id(FarId::new(far));
        }
        let update: Ie = pdr.build()?.to_ie();
        self.modify(session, &[update])
    }
}
