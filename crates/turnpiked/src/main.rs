//! turnpiked: the UPF daemon.

mod api;
mod command;
mod config;
mod n4;
mod report;

fn main() {
    let _ = (config::load, config::System::read, config::check);
}
