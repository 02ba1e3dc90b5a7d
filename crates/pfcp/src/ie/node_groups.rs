//! Grouped IEs of messages between nodes (TS 29.244, 7.4).

use super::groups::grouped;
use super::{CpAddress, FqCsid, PfdContents, RemoteGtpUPeer, view};
use crate::{Error, FromIe, Ie};

grouped! {
    #[inline(never)]
    ApplicationPfds, PeerUpRestartReport, PfdContext, SessionChangeInfo,
}

view! {
    /// Peer UP Restart Report (7.4.5.1.7).
    pub struct PeerUpRestartReport<'a> {
        required {}
        optional {}
        repeated {
            /// Remote GTP-U Peer (8.2.70).
            peers: RemoteGtpUPeer<'a> = REMOTE_GTP_U_PEER,
        }
    }
}

view! {
    /// Application ID's PFDs (7.4.3.1).
    pub struct ApplicationPfds<'a> {
        required {
            /// Application ID (8.2.6).
            application_id: &'a [u8] = APPLICATION_ID,
        }
        optional {}
        repeated {
            /// PFD context (7.4.3.1).
            contexts: PfdContext<'a> = PFD_CONTEXT,
        }
    }
}

view! {
    /// PFD context (7.4.3.1).
    pub struct PfdContext<'a> {
        required {}
        optional {}
        repeated {
            /// PFD Contents (8.2.39).
            contents: PfdContents<'a> = PFD_CONTENTS,
        }
    }
}

view! {
    /// PFCP Session Change Info (7.4.7.1): which sessions go to which CP function.
    pub struct SessionChangeInfo<'a> {
        required {
            /// Alternative SMF/PGW-C IP Address (8.2.124).
            alternative: CpAddress = ALTERNATIVE_SMF_IP_ADDRESS,
        }
        optional {}
        repeated {
            /// FQ-CSID (8.2.45).
            fq_csids: FqCsid<'a> = FQ_CSID,
            /// Group Id (8.2.198).
            group_ids: &'a [u8] = GROUP_ID,
            /// CP IP Address (8.2.199).
            cp_addresses: CpAddress = CP_IP_ADDRESS,
        }
    }
}
