//! Pages of the documentation that are part of the program.

/// A page under the name that it is asked for by.
pub(crate) struct Topic {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    /// Markdown.
    pub(crate) text: &'static str,
}

pub(crate) const DROPS: Topic = Topic {
    name: "drops",
    about: "reasons of lost packets, and what to do about each",
    text: include_str!("../../../../docs/drops.md"),
};

pub(crate) const TOPICS: [Topic; 6] = [
    DROPS,
    Topic {
        name: "symptoms",
        about: "what goes wrong in other UPFs, and what shows that it does not here",
        text: include_str!("../../../../docs/symptoms.md"),
    },
    Topic {
        name: "nothing-passes",
        about: "where to look when no packet passes, step by step",
        text: include_str!("../../../../docs/howto/nothing-passes.md"),
    },
    Topic {
        name: "limits",
        about: "what is refused, what is bounded, and what is done in another way than expected",
        text: include_str!("../../../../docs/limits.md"),
    },
    Topic {
        name: "metrics",
        about: "metrics, events on N4 and the log of usage, and what to do when they move",
        text: include_str!("../../../../docs/metrics.md"),
    },
    Topic {
        name: "features",
        about: "UP Function Features that SMFs are offered",
        text: include_str!("../../../../docs/features.md"),
    },
];
