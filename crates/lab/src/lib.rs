//! The lab: an emulated SMF, gNBs, UEs and a data network around a real `turnpiked`, each in a
//! network namespace of its own. It judges the UPF and therefore shares no code with it: PFCP is
//! `rs-pfcp`, GTP-U is its own.

pub mod bench;
pub mod cleanup;
pub mod course;
pub mod demo;
pub mod dn;
pub mod flow;
pub mod gnb;
pub mod gtpu;
pub mod live;
pub mod netns;
pub mod packet;
pub mod ping;
pub mod scenario;
pub mod smf;
pub mod sys;
pub mod testpmd;
pub mod traffic;
pub mod ue;
pub mod upf;
pub mod wait;
pub mod world;
