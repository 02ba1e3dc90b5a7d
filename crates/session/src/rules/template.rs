//! Requests that only update FARs which lead into a tunnel, as templates: what of them differs from session to session, and what
//! each comes to. Whether it really does, a shard sees when it carries one out.

use std::net::IpAddr;

use compiled::{LENT_FARS, LentAction, LentProfile, TEMPLATE_OCTETS, Template, TemplateUpdate};
use pfcp::ie::{ApplyAction, PfcpSmReqFlags};
use pfcp::{FromIe, Ie, IeType, Ies, Message, SESSION_HEADER};
use smallvec::SmallVec;

use crate::rules::{Apply, Far, FarId, Interface};

/// Octets of type and length of an IE.
const IE_HEADER: usize = 4;

/// A request that may become a template.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    /// Its updates lack profiles.
    pub(crate) template: Template,
    pub(crate) updates: SmallVec<[Update; LENT_FARS]>,
}

/// An Update FAR, as it is to be carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Update {
    pub(crate) far: FarId,
    action: Option<LentAction>,
    tunnel: Option<(u32, IpAddr)>,
}

/// A FAR that leads into a tunnel and says nothing that few do, as the data path knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Lendable {
    pub(crate) profile: LentProfile,
    pub(crate) action: LentAction,
    pub(crate) teid: u32,
    pub(crate) peer: IpAddr,
}

impl Lendable {
    /// `None`: it is another kind of FAR.
    pub(crate) fn of(far: &Far) -> Option<Self> {
        let to = far.forwarding()?;
        let tunnel = to.tunnel?;
        let mut addresses = tunnel.addresses();
        let peer = addresses.next()?;
        let is_usual = to.destination == Interface::Access
            && to.marking.is_none()
            && !far.is_rare()
            && addresses.next().is_none();
        let action = match far.apply {
            Apply::Forward => LentAction::Forward,
            Apply::Buffer { notify: false } => LentAction::Buffer,
            Apply::Buffer { notify: true } => LentAction::Notify,
            Apply::Drop => return None,
        };
        // The last BAR ID and the last network instances have no numbers of their own.
        let bar = far.bar.map_or(Some(0), |bar| bar.0.checked_add(1))?;
        let network = to
            .ni
            .map_or(Some(0), |ni| u8::try_from(ni.0).ok()?.checked_add(1))?;
        let through = far.through.0;
        is_usual.then_some(Self {
            profile: LentProfile {
                through,
                bar,
                network,
            },
            action,
            teid: tunnel.teid(),
            peer,
        })
    }
}

impl Update {
    /// The profile of a FAR that this update has changed in no other way than it says.
    pub(crate) fn profile(&self, before: &Far, after: &Far) -> Option<LentProfile> {
        let (before, after) = (Lendable::of(before)?, Lendable::of(after)?);
        let (teid, peer) = self.tunnel.unwrap_or((before.teid, before.peer));
        let expected = Lendable {
            action: self.action.unwrap_or(before.action),
            teid,
            peer,
            ..before
        };
        (after == expected).then_some(before.profile)
    }
}

/// Octets of a message, and which of them may differ.
struct Mould(Template);

impl Mould {
    /// These octets are a hole.
    fn open(&mut self, at: usize, length: usize) -> Option<u16> {
        let holes = at..at + length;
        self.0.octets.get_mut(holes.clone())?.fill(0);
        self.0.mask.get_mut(holes)?.fill(0);
        u16::try_from(at).ok()
    }

    fn cp_f_seid(&mut self, ie: &Ie<'_>) -> Option<()> {
        // Behind its flags; what its addresses are changes nothing.
        let at = ie.offset + IE_HEADER + 1;
        (ie.value.len() > 8 && self.0.cp_seid_at.is_none()).then_some(())?;
        self.0.cp_seid_at = Some(self.open(at, 8)?);
        Some(())
    }

    fn update_far(&mut self, ie: &Ie<'_>) -> Option<Update> {
        let mut far = None;
        let mut update = Update {
            far: FarId(0),
            action: None,
            tunnel: None,
        };
        let mut holes = TemplateUpdate {
            id_at: 0,
            tunnel: None,
            action: None,
            profile: LentProfile::default(),
            ends_tunnel: false,
        };
        for_each(ie.ies(), |ie| {
            match ie.ie_type {
                IeType::FAR_ID if far.is_none() => {
                    far = Some(FarId(u32::from_be_bytes(ie.value.try_into().ok()?)));
                    holes.id_at = self.open(ie.offset + IE_HEADER, 4)?;
                }
                IeType::APPLY_ACTION if update.action.is_none() => {
                    let action = ApplyAction::from_ie(ie).ok()?;
                    let notify = ApplyAction::BUFF | ApplyAction::NOCP;
                    update.action = Some(match action {
                        ApplyAction::FORW => LentAction::Forward,
                        ApplyAction::BUFF => LentAction::Buffer,
                        action if action == notify => LentAction::Notify,
                        _ => return None,
                    });
                }
                IeType::BAR_ID => {}
                IeType::UPDATE_FORWARDING_PARAMETERS => {
                    for_each(ie.ies(), |ie| self.forwarding(ie, &mut update, &mut holes))?;
                }
                _ => return None,
            }
            Some(())
        })?;
        update.far = far?;
        holes.action = update.action;
        self.0.updates.push(holes);
        Some(update)
    }

    fn forwarding(
        &mut self,
        ie: &Ie<'_>,
        update: &mut Update,
        holes: &mut TemplateUpdate,
    ) -> Option<()> {
        match ie.ie_type {
            IeType::DESTINATION_INTERFACE
            | IeType::NETWORK_INSTANCE
            | IeType::TGPP_INTERFACE_TYPE => {}
            IeType::PFCPSMREQ_FLAGS => {
                let flags = PfcpSmReqFlags::from_ie(ie).ok()?;
                holes.ends_tunnel = flags == PfcpSmReqFlags::SNDEM;
                (flags.is_empty() || holes.ends_tunnel).then_some(())?;
            }
            IeType::OUTER_HEADER_CREATION if update.tunnel.is_none() => {
                let (description, rest) = ie.value.split_first_chunk::<2>()?;
                let (teid, address) = rest.split_first_chunk::<4>()?;
                let peer = match description {
                    [1, 0] => IpAddr::from(<[u8; 4]>::try_from(address).ok()?),
                    [2, 0] => IpAddr::from(<[u8; 16]>::try_from(address).ok()?),
                    _ => return None,
                };
                update.tunnel = Some((u32::from_be_bytes(*teid), peer));
                let at = ie.offset + IE_HEADER + description.len();
                let teid_at = self.open(at, teid.len())?;
                let address_at = self.open(at + teid.len(), address.len())?;
                holes.tunnel = Some((teid_at, address_at, address.len() as u8));
            }
            _ => return None,
        }
        Some(())
    }
}

/// Of IEs that come twice the first counts (7.6.10), which octets do not say: but for those that may be repeated, none does here.
fn for_each(ies: Ies<'_>, mut each: impl FnMut(&Ie<'_>) -> Option<()>) -> Option<()> {
    let mut seen: SmallVec<[IeType; 8]> = SmallVec::new();
    for ie in &ies {
        let ie = ie.ok()?;
        if ie.ie_type != IeType::UPDATE_FAR && seen.contains(&ie.ie_type) {
            return None;
        }
        seen.push(ie.ie_type);
        each(&ie)?;
    }
    Some(())
}

/// A Session Modification Request, if it only updates FARs in a way that a template can say.
pub(crate) fn read(message: &Message<'_>) -> Option<Reading> {
    let (header, ies) = (&message.header, message.ies.as_bytes());
    let is_plain = header.priority.is_none() && !header.follow_on && message.rest.is_empty();
    if !is_plain || ies.len() > TEMPLATE_OCTETS - SESSION_HEADER {
        return None;
    }
    let mut mould = Mould(Template {
        octets: [&[0; SESSION_HEADER], ies].concat(),
        mask: [vec![0; SESSION_HEADER], vec![0xff; ies.len()]].concat(),
        cp_seid_at: None,
        updates: SmallVec::new(),
    });
    let mut updates: SmallVec<[Update; LENT_FARS]> = SmallVec::new();
    for_each(message.ies, |ie| {
        match ie.ie_type {
            IeType::F_SEID => mould.cp_f_seid(ie)?,
            IeType::UPDATE_FAR if updates.len() < LENT_FARS => updates.push(mould.update_far(ie)?),
            _ => return None,
        }
        Some(())
    })?;
    let template = mould.0;
    (!updates.is_empty()).then_some(Reading { template, updates })
}
