//! Answers as they are written, for the description.

use utoipa::openapi::schema::{AllOf, Object, OneOf, Schema, SchemaType, Type};
use utoipa::openapi::{OpenApi, RefOr};

/// Fields that turnpiked leaves out while they are false or empty, by type.
const LEFT_OUT: [(&str, &str); 3] = [
    ("PdrReport", "dormant"),
    ("PdrReport", "predefined_rules"),
    ("QerReport", "rqi"),
];

/// Has the description say which fields every answer has: all but those that may be null or are left out. The derived schemas
/// require none and give each a default, which is for readers of other releases alone.
#[derive(Debug)]
pub struct AsWritten;

impl utoipa::Modify for AsWritten {
    fn modify(&self, document: &mut OpenApi) {
        let components = document.components.iter_mut();
        for (name, schema) in components.flat_map(|components| &mut components.schemas) {
            written(name, schema);
        }
    }
}

/// name: of the type.
fn written(name: &str, schema: &mut RefOr<Schema>) {
    match schema {
        RefOr::T(Schema::Object(Object {
            properties,
            required,
            ..
        })) => {
            properties.values_mut().for_each(without_default);
            let present = properties.iter().filter(|&(field, schema)| {
                !may_be_null(schema) && !LEFT_OUT.contains(&(name, field.as_str()))
            });
            *required = present.map(|(field, _)| field.clone()).collect();
        }
        // Flattened: a reference, and the type's own fields.
        RefOr::T(Schema::AllOf(AllOf { items, .. })) => {
            for part in items {
                without_default(part);
                written(name, part);
            }
        }
        _ => {}
    }
}

fn without_default(schema: &mut RefOr<Schema>) {
    match schema {
        RefOr::T(Schema::Object(object)) => object.default = None,
        RefOr::T(Schema::Array(array)) => array.default = None,
        RefOr::T(Schema::OneOf(OneOf { items, default, .. })) => {
            *default = None;
            // A reference is wrapped to stand beside its default.
            if let [RefOr::Ref(_)] = items.as_slice() {
                *schema = items.remove(0);
            }
        }
        _ => {}
    }
}

fn may_be_null(schema: &RefOr<Schema>) -> bool {
    match schema {
        RefOr::T(Schema::Object(object)) => has_null(&object.schema_type),
        RefOr::T(Schema::Array(array)) => has_null(&array.schema_type),
        RefOr::T(Schema::OneOf(one)) => one.items.iter().any(may_be_null),
        _ => false,
    }
}

fn has_null(schema_type: &SchemaType) -> bool {
    match schema_type {
        SchemaType::Type(one) => *one == Type::Null,
        SchemaType::Array(types) => types.contains(&Type::Null),
        SchemaType::AnyValue => false,
    }
}

#[cfg(test)]
mod tests {
    use serde::Serialize;
    use utoipa::{Modify, OpenApi, PartialSchema, ToSchema};

    use super::*;
    use crate::trace::{Following, Packet};
    use crate::*;

    /// Fields that the description requires, and those that the emptiest answer has.
    fn fields<T: Default + Serialize + ToSchema + PartialSchema>() -> (String, [Vec<String>; 2]) {
        #[derive(OpenApi)]
        struct Empty;
        let mut document = Empty::openapi();
        let name = T::name().into_owned();
        let components = document.components.get_or_insert_default();
        components.schemas.insert(name.clone(), T::schema());
        AsWritten.modify(&mut document);
        let described = serde_json::to_value(&document).unwrap();
        let schema = &described["components"]["schemas"][&name];
        // Of a flattened type: the part that is its own.
        let parts = schema["allOf"].as_array().into_iter().flatten();
        let of = |schema: &serde_json::Value, key: &str| schema.get(key).cloned();
        let own = parts
            .chain([schema])
            .find(|schema| schema.get("properties").is_some());
        let own = own.unwrap();
        let required: Vec<String> = match of(own, "required") {
            Some(required) => serde_json::from_value(required).unwrap(),
            None => Vec::new(),
        };
        let written = serde_json::to_value(T::default()).unwrap();
        let written = written.as_object().unwrap().iter();
        let present = written.filter(|(field, value)| {
            !value.is_null() && own["properties"].get(field.as_str()).is_some()
        });
        let mut present: Vec<String> = present.map(|(field, _)| field.clone()).collect();
        present.sort();
        assert!(!schema.to_string().contains("\"default\":"), "{schema}");
        (name, [required, present])
    }

    #[test]
    fn what_is_required_is_always_there() {
        macro_rules! check {
            ($($of:ty),*) => {$(
                let (name, [mut required, present]) = fields::<$of>();
                required.sort();
                assert_eq!(required, present, "{name}");
            )*};
        }
        check!(
            ApplicationReport,
            BufferReport,
            BufferTotals,
            BuffersBody,
            CapacityReport,
            CoresReport,
            CpuReport,
            DatapathBody,
            DatapathReport,
            DirectionReport,
            DropReport,
            ErrorBody,
            FarReport,
            Fill,
            Following,
            GtpuPeerReport,
            HistoryDrop,
            HistoryEvent,
            HistoryPort,
            HistoryReport,
            HistorySample,
            HugePages,
            LogTotals,
            Packet,
            PartReport,
            PdrReport,
            PeerReport,
            PfdReport,
            PolicyReport,
            PolicyUse,
            PortReport,
            PredefinedReport,
            ProgramReport,
            QerReport,
            ReplacementReport,
            SessionDetail,
            SessionPage,
            SessionSummary,
            SessionUsage,
            ShaperReport,
            SmfReport,
            StateReport,
            DiskReport,
            Status,
            TableFill,
            TopRate,
            TopReport,
            TopUser,
            TrafficReport,
            TriggerCount,
            UrrReport,
            UsagePage,
            UsageTotals,
            VolumeReport,
            VolumeUsed,
            WorkerReport
        );
    }
}
