//! Sessions compiled anew, as PFDs of applications that they name change ([`crate::shard::index::applications`]).

use crate::base::slab::Place;
use crate::between::to_node::{Outputs, ToNode};
use crate::rules::Pdr;
use crate::shard::Shard;
use crate::shard::index::applications::Applications;
use crate::shard::sessions::Sessions;
use compiled::Tables;

/// Sessions that are looked at, and those of them that are compiled anew, before other work may go first.
const SESSIONS_PER_STEP: usize = 512;
const COMPILED_PER_STEP: usize = 64;

impl<T: Tables> Shard<T> {
    /// A step towards sessions that go by the PFDs as they are now.
    pub(super) fn fit_to_pfds(&mut self, out: &mut Outputs) {
        let sessions = self.sessions.refit(&mut self.tables);
        if let Some(sessions) = sessions.filter(|sessions| *sessions > 0) {
            out.say(ToNode::PfdsWithoutRoom(sessions));
        }
    }
}

impl<T: Tables> Sessions<T> {
    /// Some more sessions are looked at, whether what they name has changed. After the last one: how many of them keep
    /// what they had, because there is no room for what they should have.
    pub(crate) fn refit(&mut self, tables: &mut T) -> Option<usize> {
        let mut compiled = 0;
        for _ in 0..SESSIONS_PER_STEP {
            let place = self.applications.pass()?.at;
            let Applications { parties, pass, .. } = &self.applications;
            let names = &pass.as_ref()?.names;
            let session = self.slab.get(place);
            let party = session.and_then(|s| parties.get(&s.peer));
            let changed = |pdr: &Pdr| {
                let name = party.copied().zip(pdr.pdi.application());
                name.is_some_and(|(party, name)| names.contains(&(party, name.into())))
            };
            let is_concerned = session.is_some_and(|s| s.context.kept.pdrs().iter().any(changed));
            let seid = self.slab.seid(place).filter(|_| is_concerned);
            let next = self.slab.after(place);
            let fits = seid.is_none_or(|seid| self.refit_one(place, seid, tables));
            let pass = self.applications.pass()?;
            pass.failed += usize::from(!fits);
            let Some(next) = next else {
                return self.applications.pass.take().map(|pass| pass.failed);
            };
            pass.at = next;
            compiled += usize::from(is_concerned);
            if compiled == COMPILED_PER_STEP {
                break;
            }
        }
        None
    }

    fn refit_one(&mut self, place: Place, seid: u64, tables: &mut T) -> bool {
        self.publish_anew(place, seid, tables)
    }
}
