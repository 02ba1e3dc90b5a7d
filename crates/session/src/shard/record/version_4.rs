//! Records of version 4: SEID, Node ID of the SMF and context, one behind the other, with places in the configuration and
//! no names.

use serde::Deserialize;

use crate::base::octets::take;
use crate::rules::endpoints::Endpoint;
use crate::shard::context::{Context, Extra, Rare};
use crate::shard::index::deferred::Deferral;
use crate::shard::index::inactivity::Watch;
use crate::shard::index::paging::Waiting;
use crate::shard::index::sets::Membership;
use crate::shard::index::stopped::Indicated;
use crate::shard::kept::Kept;
use crate::shard::record::{Record, RecordError};
use crate::usage::measured::Usage;
use crate::usage::urr_rules::UrrRules;

pub(super) const VERSION: u16 = 4;

#[derive(Deserialize)]
struct Context4 {
    kept: Kept,
    cp_seid: u64,
    extra: Option<Extra4>,
}

#[derive(Deserialize)]
struct Extra4 {
    membership: Option<Box<Membership>>,
    urr_rules: UrrRules,
    usage: Option<Usage>,
    rare: Option<Rare4>,
}

#[derive(Deserialize)]
struct Rare4 {
    endpoints: Box<[Endpoint]>,
    watch: Option<Watch>,
    deferral: Option<Deferral>,
    waiting: Option<Waiting>,
    indicated: Indicated,
}

pub(super) fn read(mut rest: &[u8]) -> Result<Record, RecordError> {
    let malformed = |_| RecordError::Malformed;
    let seid = take(&mut rest).map_err(malformed)?;
    let smf = take(&mut rest).map_err(malformed)?;
    let context: Context4 = take(&mut rest).map_err(malformed)?;
    if !rest.is_empty() {
        return Err(RecordError::Malformed);
    }
    Ok(Record {
        seid,
        smf,
        context: Context {
            kept: context.kept,
            cp_seid: context.cp_seid,
            extra: context.extra.map(|extra| Box::new(extra.into())),
        },
        names: None,
    })
}

impl From<Extra4> for Extra {
    fn from(extra: Extra4) -> Self {
        Self {
            membership: extra.membership,
            urr_rules: extra.urr_rules,
            usage: extra.usage,
            rare: extra.rare.map(|rare| Box::new(rare.into())),
        }
    }
}

impl From<Rare4> for Rare {
    fn from(rare: Rare4) -> Self {
        Self {
            endpoints: rare.endpoints,
            watch: rare.watch,
            deferral: rare.deferral,
            waiting: rare.waiting,
            indicated: rare.indicated,
            is_emergency: false,
        }
    }
}
