//! turnpiked: the UPF daemon.

mod config;
mod n4;

fn main() {
    let _ = (config::load, config::System::read, config::check);
}
