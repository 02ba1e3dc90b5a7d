//! Flows of the applications that PDRs name.

use std::collections::BTreeMap;

use crate::base::flow::FlowDescription;

/// Flows by Application ID.
pub type Flows = BTreeMap<Box<str>, Box<[FlowDescription]>>;

/// For rules that name none.
pub(crate) static NO_FLOWS: Flows = Flows::new();
