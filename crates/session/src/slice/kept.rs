//! The rules of a session between requests.
//!
//! A request reads most of a session's rules, and with many sessions none of them is in a cache. So a
//! session of the shape that most have (a PDR and a FAR for each direction, one or two QERs) keeps them
//! in one block of memory; any other keeps a list for each kind of rule.

use crate::rules::{Bar, Far, Pdr, Qer, Rules, RulesView, Urr};
use crate::slice::draft::Draft;

/// The rules of one session.
#[derive(Debug, Default)]
pub(crate) struct Kept(Layout);

/// Where they lie.
#[derive(Debug, Default)]
enum Layout {
    #[default]
    Empty,
    One(Box<Block<1>>),
    Two(Box<Block<2>>),
    Many(Box<Rules>),
}

#[derive(Debug)]
pub(crate) struct Block<const QERS: usize> {
    pub(crate) pdrs: [Pdr; 2],
    pub(crate) fars: [Far; 2],
    pub(crate) qers: [Qer; QERS],
    pub(crate) urrs: Box<[Urr]>,
    pub(crate) bars: Box<[Bar]>,
}

impl Kept {
    pub(crate) fn view(&self) -> RulesView<'_> {
        match &self.0 {
            Layout::Empty => RulesView {
                pdrs: &[],
                fars: &[],
                qers: &[],
                urrs: &[],
                bars: &[],
            },
            Layout::One(block) => block.view(),
            Layout::Two(block) => block.view(),
            Layout::Many(rules) => RulesView {
                pdrs: &rules.pdrs,
                fars: &rules.fars,
                qers: &rules.qers,
                urrs: &rules.urrs,
                bars: &rules.bars,
            },
        }
    }

    pub(crate) fn bars_mut(&mut self) -> &mut [Bar] {
        match &mut self.0 {
            Layout::Empty => &mut [],
            Layout::One(block) => &mut block.bars,
            Layout::Two(block) => &mut block.bars,
            Layout::Many(rules) => &mut rules.bars,
        }
    }

    /// Become what the draft says. Where the shape stays, so does the place in memory.
    pub(crate) fn land(&mut self, draft: &mut Draft) {
        match (&mut self.0, draft.shape()) {
            (Layout::One(block), [2, 2, 1]) => block.land(draft),
            (Layout::Two(block), [2, 2, 2]) => block.land(draft),
            (Layout::Many(rules), _) => draft.land(rules),
            _ => self.0 = Layout::of(draft),
        }
    }
}

impl Layout {
    fn of(draft: &mut Draft) -> Self {
        let block = match draft.shape() {
            [2, 2, 1] => draft.block().map(|block| Self::One(Box::new(block))),
            [2, 2, 2] => draft.block().map(|block| Self::Two(Box::new(block))),
            _ => None,
        };
        block.unwrap_or_else(|| Self::Many(Box::new(draft.all())))
    }
}

impl<const QERS: usize> Block<QERS> {
    fn view(&self) -> RulesView<'_> {
        RulesView {
            pdrs: &self.pdrs,
            fars: &self.fars,
            qers: &self.qers,
            urrs: &self.urrs,
            bars: &self.bars,
        }
    }

    fn land(&mut self, draft: &mut Draft) {
        draft.pdrs.land_over(&mut self.pdrs);
        draft.fars.land_over(&mut self.fars);
        draft.qers.land_over(&mut self.qers);
        draft.urrs.land(&mut self.urrs);
        draft.bars.land(&mut self.bars);
    }
}
