//! Events of the core as lines of the log.

use session::event::{Event, Gone, Ignored};

pub(crate) fn event(event: &Event) {
    match event {
        Event::PeerUp {
            node_id,
            address,
            by_us,
            retained,
        } => {
            tracing::info!(%node_id, %address, by_us, retained, "SMF associated");
        }
        Event::PeerGone {
            node_id,
            why,
            sessions,
        } => match why {
            Gone::Silent => {
                tracing::warn!(%node_id, sessions, "SMF given up: silent for too long");
            }
            Gone::Displaced => {
                tracing::warn!(%node_id, "silent SMF without sessions made room for another");
            }
            Gone::Released => tracing::info!(%node_id, sessions, "SMF released its association"),
            Gone::Replaced => tracing::info!(%node_id, sessions, "SMF associates anew"),
            Gone::ShutDown => {
                tracing::warn!(%node_id, sessions, "SMF did not release its association in time");
            }
        },
        Event::PeerSilent { node_id, sessions } => {
            tracing::warn!(%node_id, sessions, "SMF does not answer; its sessions keep forwarding");
        }
        Event::PeerBack { node_id } => tracing::info!(%node_id, "SMF answers again"),
        Event::PeerRestarted { node_id, sessions } => {
            tracing::warn!(%node_id, sessions, "SMF has restarted; its sessions are deleted");
        }
        Event::SessionsDeleted { sessions } => {
            tracing::info!(sessions, "sessions without an SMF deleted");
        }
        Event::PfdsWithoutRoom { sessions } => {
            tracing::warn!(
                sessions,
                "an application has more flows than these sessions have room for; they keep the former ones"
            );
        }
        Event::PathFailed { remote } => {
            tracing::warn!(%remote, "GTP-U peer answers Echo Requests no more; SMFs are told");
        }
        Event::PathRecovered { remote } => tracing::info!(%remote, "GTP-U peer answers again"),
        Event::GtpuPeerRestarted { remote } => {
            tracing::warn!(%remote, "GTP-U peer has restarted; SMFs are told");
        }
        Event::SetDeleted { from, sessions } => {
            tracing::info!(%from, sessions, "SMF deleted a set of sessions");
        }
        Event::SetupFailed {
            address,
            cause: Some(cause),
        } => {
            tracing::warn!(%address, %cause, "SMF refuses the association; trying again later");
        }
        Event::SetupFailed {
            address,
            cause: None,
        } => {
            tracing::warn!(%address, "SMF does not answer; trying again later");
        }
        Event::Refused {
            from,
            request,
            cause,
            offending_ie,
            failed_rule,
            cp_seid,
            suppressed,
        } => {
            let offending_ie = offending_ie.map(|ie| ie.to_string());
            let failed_rule = failed_rule.map(|rule| rule.to_string());
            let cp_seid = Some(cp_seid).filter(|&&seid| seid != 0);
            tracing::warn!(%from, %request, cp_seid, %cause, failed_rule, offending_ie, suppressed, "request refused");
        }
        Event::Ignored {
            from,
            why,
            suppressed,
        } => ignored(*from, *why, *suppressed),
    }
}

fn ignored(from: std::net::SocketAddr, why: Ignored, suppressed: u64) {
    let why = why.name();
    tracing::warn!(%from, why, suppressed, "message ignored");
}
