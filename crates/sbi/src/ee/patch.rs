//! Changes to a subscription (RFC 6902): all of them, or none.

use hyper::StatusCode;
use json_patch::{Patch, PatchOperation};
use serde_json::Value;

use super::asked::is_deeper;
use super::problem::Problem;

/// Operations of one request.
pub const OPERATIONS_MAX: usize = 64;
/// Octets of a subscription as JSON: each copy may double it.
const DOCUMENT_MAX: usize = 16 << 10;

/// Levels of it, one within the other, with what is about it.
const LEVELS_MAX: usize = 40;

/// Why nothing is changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// No list of operations.
    #[error("{0}")]
    Malformed(String),
    /// An operation that cannot be done, by its place.
    #[error("operation {0}: {1}")]
    Operation(usize, String),
}

impl From<PatchError> for Problem {
    fn from(error: PatchError) -> Self {
        match error {
            PatchError::Malformed(_) => Self::malformed(&error.to_string()),
            PatchError::Operation(..) => {
                let cause = Some("MODIFICATION_NOT_ALLOWED");
                Self::new(StatusCode::FORBIDDEN, cause, error.to_string())
            }
        }
    }
}

/// The attribute `subscription` of a resource after the operations of a PATCH. Paths begin at the resource, as RFC 6902 has it,
/// or at the subscription within.
pub fn changed(subscription: &Value, operations: &[u8]) -> Result<Value, PatchError> {
    let patch: Patch = serde_json::from_slice(operations)
        .map_err(|error| PatchError::Malformed(error.to_string()))?;
    if patch.0.is_empty() || patch.0.len() > OPERATIONS_MAX {
        let reason = format!("1 to {OPERATIONS_MAX} operations");
        return Err(PatchError::Malformed(reason));
    }
    let is_of_resource = patch.0.iter().any(|operation| {
        let mut tokens = operation.path().tokens();
        tokens
            .next()
            .is_some_and(|first| first.decoded() == "subscription")
    });
    let mut document = match is_of_resource {
        true => serde_json::json!({ "subscription": subscription }),
        false => subscription.clone(),
    };
    for (place, operation) in patch.0.iter().enumerate() {
        apply(&mut document, operation).map_err(|reason| PatchError::Operation(place, reason))?;
    }
    match (is_of_resource, document) {
        (true, Value::Object(mut resource)) => {
            Ok(resource.remove("subscription").unwrap_or(Value::Null))
        }
        (_, document) => Ok(document),
    }
}

fn apply(document: &mut Value, operation: &PatchOperation) -> Result<(), String> {
    let one = std::slice::from_ref(operation);
    json_patch::patch(document, one).map_err(|error| error.kind.to_string())?;
    if is_deeper(document, LEVELS_MAX) {
        return Err(format!("more than {LEVELS_MAX} levels"));
    }
    let octets = serde_json::to_vec(document).map_or(usize::MAX, |octets| octets.len());
    if octets > DOCUMENT_MAX {
        return Err(format!("a subscription of more than {DOCUMENT_MAX} octets"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn patch(operations: Value) -> Result<Value, PatchError> {
        let subscription = json!({"dnn": "internet", "eventReportingMode": {"repPeriod": 10}});
        changed(&subscription, operations.to_string().as_bytes())
    }

    #[test]
    fn paths_begin_at_the_resource_or_within() {
        for root in ["", "/subscription"] {
            let path = format!("{root}/eventReportingMode/repPeriod");
            let now = patch(json!([{"op": "replace", "path": path, "value": 20}])).unwrap();
            assert_eq!(now["eventReportingMode"]["repPeriod"], 20);
            assert_eq!(now["dnn"], "internet");
        }
    }

    #[test]
    fn all_or_nothing() {
        let operations = json!([
            {"op": "remove", "path": "/dnn"},
            {"op": "test", "path": "/eventReportingMode/repPeriod", "value": 11},
        ]);
        assert!(matches!(
            patch(operations),
            Err(PatchError::Operation(1, _))
        ));
        for bad in [
            json!([]),
            json!({}),
            json!([{"op": "grow", "path": "/dnn"}]),
        ] {
            assert!(matches!(patch(bad), Err(PatchError::Malformed(_))));
        }
        let many: Vec<Value> = (0..=OPERATIONS_MAX)
            .map(|_| json!({"op": "replace", "path": "/dnn", "value": "a"}))
            .collect();
        assert!(matches!(patch(many.into()), Err(PatchError::Malformed(_))));
    }

    #[test]
    fn copies_of_copies_end() {
        let copies: Vec<Value> = (0..OPERATIONS_MAX)
            .map(|place| json!({"op": "copy", "from": "", "path": format!("/x{place}")}))
            .collect();
        let refused = patch(copies.into());
        assert!(matches!(refused, Err(PatchError::Operation(place, _)) if place < 20));
    }

    #[test]
    fn levels_of_levels_end() {
        let nested = (0..100).fold(json!(1), |inner, _| json!([inner]));
        let refused = patch(json!([{"op": "add", "path": "/x", "value": nested}]));
        assert!(matches!(refused, Err(PatchError::Operation(0, _))));
        // A level more with each.
        let mut wraps = vec![json!({"op": "add", "path": "/x", "value": 1})];
        for _ in 0..20 {
            wraps.push(json!({"op": "add", "path": "/y", "value": {"x": {"x": {"x": {}}}}}));
            wraps.push(json!({"op": "move", "from": "/x", "path": "/y/x/x/x/x"}));
            wraps.push(json!({"op": "move", "from": "/y", "path": "/x"}));
        }
        let refused = patch(wraps.into());
        assert!(matches!(refused, Err(PatchError::Operation(place, _)) if place > 3));
    }

    proptest! {
        #[test]
        fn octets_are_taken_or_refused(octets in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = changed(&json!({"dnn": "a"}), &octets);
        }
    }
}
