//! Message types and causes: the two numbers that every answer carries.

use std::fmt;

macro_rules! numbers {
    ($type:ident { $($number:literal $constant:ident $name:literal,)* }) => {
        impl $type {
            $(#[doc = concat!("`", $name, "` (", $number, ").")]
            pub const $constant: Self = Self($number);)*

            /// Every value that has a name, in order of number.
            pub const ALL: &'static [Self] = &[$(Self::$constant,)*];

            /// The name in the specification, where the value is known.
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($number => Some($name),)*
                    _ => None,
                }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.name() {
                    Some(name) => f.write_str(name),
                    None => write!(f, concat!(stringify!($type), " {}"), self.0),
                }
            }
        }
    };
}

/// The type of a message (7.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MessageType(pub u8);

numbers! { MessageType {
    1 HEARTBEAT_REQUEST "Heartbeat Request",
    2 HEARTBEAT_RESPONSE "Heartbeat Response",
    3 PFD_MANAGEMENT_REQUEST "PFD Management Request",
    4 PFD_MANAGEMENT_RESPONSE "PFD Management Response",
    5 ASSOCIATION_SETUP_REQUEST "Association Setup Request",
    6 ASSOCIATION_SETUP_RESPONSE "Association Setup Response",
    7 ASSOCIATION_UPDATE_REQUEST "Association Update Request",
    8 ASSOCIATION_UPDATE_RESPONSE "Association Update Response",
    9 ASSOCIATION_RELEASE_REQUEST "Association Release Request",
    10 ASSOCIATION_RELEASE_RESPONSE "Association Release Response",
    11 VERSION_NOT_SUPPORTED_RESPONSE "Version Not Supported Response",
    12 NODE_REPORT_REQUEST "Node Report Request",
    13 NODE_REPORT_RESPONSE "Node Report Response",
    14 SESSION_SET_DELETION_REQUEST "Session Set Deletion Request",
    15 SESSION_SET_DELETION_RESPONSE "Session Set Deletion Response",
    16 SESSION_SET_MODIFICATION_REQUEST "Session Set Modification Request",
    17 SESSION_SET_MODIFICATION_RESPONSE "Session Set Modification Response",
    50 SESSION_ESTABLISHMENT_REQUEST "Session Establishment Request",
    51 SESSION_ESTABLISHMENT_RESPONSE "Session Establishment Response",
    52 SESSION_MODIFICATION_REQUEST "Session Modification Request",
    53 SESSION_MODIFICATION_RESPONSE "Session Modification Response",
    54 SESSION_DELETION_REQUEST "Session Deletion Request",
    55 SESSION_DELETION_RESPONSE "Session Deletion Response",
    56 SESSION_REPORT_REQUEST "Session Report Request",
    57 SESSION_REPORT_RESPONSE "Session Report Response",
}}

impl MessageType {
    /// Whether this answers a request; `None` for types without a name.
    pub const fn is_response(self) -> Option<bool> {
        match self.0 {
            1..=10 => Some(self.0 & 1 == 0),
            11 => Some(true),
            12..=17 | 50..=57 => Some(self.0 & 1 == 1),
            _ => None,
        }
    }

    /// The response to this request; `None` for responses and types without a name.
    pub const fn response(self) -> Option<Self> {
        match self.is_response() {
            Some(false) => Some(Self(self.0 + 1)),
            _ => None,
        }
    }

    /// Whether the message concerns one session and carries a SEID (7.2.2.4.1).
    pub const fn is_session(self) -> bool {
        self.0 >= 50 && self.0 < 100
    }
}

/// Whether a request was accepted, and if not why (8.2.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Cause(pub u8);

numbers! { Cause {
    1 REQUEST_ACCEPTED "Request accepted",
    2 MORE_USAGE_REPORT_TO_SEND "More Usage Report to send",
    3 REQUEST_PARTIALLY_ACCEPTED "Request partially accepted",
    64 REQUEST_REJECTED "Request rejected",
    65 SESSION_CONTEXT_NOT_FOUND "Session context not found",
    66 MANDATORY_IE_MISSING "Mandatory IE missing",
    67 CONDITIONAL_IE_MISSING "Conditional IE missing",
    68 INVALID_LENGTH "Invalid length",
    69 MANDATORY_IE_INCORRECT "Mandatory IE incorrect",
    70 INVALID_FORWARDING_POLICY "Invalid Forwarding Policy",
    71 INVALID_F_TEID_ALLOCATION_OPTION "Invalid F-TEID allocation option",
    72 NO_ESTABLISHED_PFCP_ASSOCIATION "No established PFCP Association",
    73 RULE_CREATION_MODIFICATION_FAILURE "Rule creation/modification Failure",
    74 PFCP_ENTITY_IN_CONGESTION "PFCP entity in congestion",
    75 NO_RESOURCES_AVAILABLE "No resources available",
    76 SERVICE_NOT_SUPPORTED "Service not supported",
    77 SYSTEM_FAILURE "System failure",
    78 REDIRECTION_REQUESTED "Redirection Requested",
    79 ALL_DYNAMIC_ADDRESSES_ARE_OCCUPIED "All dynamic addresses are occupied",
}}

impl Cause {
    /// Acceptance, whole or in part (8.2.1: values 1 to 63).
    pub const fn is_accepted(self) -> bool {
        self.0 >= 1 && self.0 < 64
    }
}
