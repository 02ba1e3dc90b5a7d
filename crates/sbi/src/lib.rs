//! The service-based interface of 5G cores (TS 29.500) from the UPF's end: requests over HTTP/2, and what an NRF is told.
//!
//! [`http`] carries one exchange, within bounds of time and octets that no answer can stretch. [`nrf`] says what is asked, and
//! when: a [`nrf::Registration`] has no socket and no clock, so that its tests need none. [`post`] does the same over HTTP/1.1, for
//! servers that are beside the core. [`ee`] is the other end: what consumers of events may ask for, and what they are told.

pub mod ee;
pub mod http;
pub mod nrf;
pub mod post;
mod server;
mod tls;

pub use server::{BadServer, Callback, Server};
pub use tls::{BadTls, ServerTls, Tls};
