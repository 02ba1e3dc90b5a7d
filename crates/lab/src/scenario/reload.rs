//! The configuration changes while users are served.

use std::net::TcpListener;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::sys::signal::Signal;
use rs_pfcp::ie::reporting_triggers::ReportingTriggers;
use serde_json::Value;

use super::restart::{usage_so_far, whole};
use super::sessions::ping_all;
use super::{Scenario, eventually, flow_down, flow_up, more_of};
use crate::flow::Shape;
use crate::smf::{Requested, SessionPlan, Style, Urr};
use crate::wait::LOOK;
use crate::world::{Family, World};

pub(super) fn scenarios() -> Vec<Scenario> {
    vec![
        Scenario::new(
            "reload",
            "what sessions do not lean on changes under traffic, and anything else is refused whole",
            reload,
        ),
        Scenario::new(
            "reload-takes-over",
            "limits, capacities and network instances change, no packet is lost and SMFs notice nothing; a start that fails goes back",
            reload_takes_over,
        )
        .outlasting()
        .long(),
        Scenario::new(
            "reload-moves-rest",
            "another address and token of REST come into force, and turnpike finds them",
            reload_moves_rest,
        )
        .outlasting(),
        Scenario::new(
            "reload-and-stop",
            "SIGTERM at any time of a reload ends it, and SMFs hear of it",
            reload_and_stop,
        )
        .outlasting()
        .long(),
    ]
}

/// Edit the file, and have it read.
fn change(world: &World, change: impl FnOnce(String) -> String) -> Result<Value> {
    let upf = world.upf.as_ref().context("the UPF is down")?;
    upf.edit(change)?;
    upf.reload(&world.upf_ns)
}

/// The same, where a signal asks for it.
fn change_by_signal(world: &mut World, change: impl FnOnce(String) -> String) -> Result<Value> {
    let before = reloads(world)?;
    let upf = world.upf.as_mut().context("the UPF is down")?;
    upf.edit(change)?;
    upf.signal(Signal::SIGHUP)?;
    eventually("SIGHUP is heard", || Ok(reloads(world)? > before))?;
    let upf = world.upf.as_ref().context("the UPF is down")?;
    upf.last_reload(&world.upf_ns)
}

fn reloads(world: &World) -> Result<u64> {
    let status = world.get("/api/v1/status")?;
    let reloads = status["config"]["reloads"].as_u64();
    reloads.context("status without config.reloads")
}

fn replaced(before: &'static str, after: &'static str) -> impl Fn(String) -> String {
    move |text| text.replacen(before, after, 1)
}

fn expect(last: &Value, outcome: &str) -> Result<()> {
    ensure!(
        last["outcome"] == outcome,
        "{outcome} is expected: {last:#}"
    );
    Ok(())
}

/// Refused for a reason with these words, and nothing has changed.
fn expect_refused(world: &World, last: &Value, words: &[&str]) -> Result<()> {
    expect(last, "refused")?;
    let reasons = last["reasons"].to_string();
    for word in words {
        ensure!(reasons.contains(word), "{word} is not in {reasons}");
    }
    let level = world.get("/api/v1/config")?["log"]["level"].clone();
    ensure!(level == "debug", "the log has level {level}");
    Ok(())
}

fn reload(world: &mut World) -> Result<String> {
    let attached = world.attach_plain("ue1", Family::V4)?;
    let shape = Shape::endless(200);
    let flows = [
        flow_up(world, &attached, shape)?,
        flow_down(world, &attached, shape)?,
    ];
    let last = change(world, |text| {
        let text = text.replacen("[n4]\n", "[n4]\nallow = [\"192.0.2.0/24\"]\n", 1);
        let text = text.replacen("heartbeat_s = ", "heartbeat_s = 1 # ", 1);
        text + "\n[log]\nlevel = \"debug\"\n"
    })?;
    expect(&last, "in force")?;
    let warned = last["warnings"].to_string();
    ensure!(warned.contains("n4.allow"), "no word of the SMF: {warned}");
    eventually("answers of the SMF are not heard", || {
        Ok(world.pfcp_events("not_allowed")? > 0)
    })?;
    let allows = replaced("allow = [\"192.0.2.0/24\"]\n", "");
    expect(&change_by_signal(world, allows)?, "in force")?;
    world.smf(0)?.heartbeat()?;
    flows.iter().try_for_each(|flow| more_of(flow, 100))?;

    // Beside something that would be in force at once.
    let shrinks = |text: String| {
        let text = text.replacen("level = \"debug\"", "level = \"warn\"", 1);
        text.replacen("/16", "/17", 1)
    };
    let last = change(world, shrinks)?;
    expect_refused(
        world,
        &last,
        &["network_instance[internet].pools", "addresses"],
    )?;
    let grows = |text: String| {
        let text = text.replacen("/17", "/16", 1);
        text.replacen("[limits]\n", "[limits]\nsmfs = 65\n", 1)
    };
    let last = change(world, grows)?;
    expect_refused(world, &last, &["limits.smfs", "takes a start"])?;
    let last = change(world, |text| text + "\n[nothing]\n")?;
    expect_refused(world, &last, &["nothing", "unknown key"])?;
    let rights = |text: String| {
        let text = text.replacen("\n[nothing]\n", "", 1);
        text.replacen("smfs = 65\n", "", 1)
    };
    expect(&change(world, rights)?, "in force")?;
    let upf = world.upf.as_ref().context("the UPF is down")?;
    expect(&upf.reload(&world.upf_ns)?, "unchanged")?;
    whole(flows, shape)?;
    ping_all(&attached)?;
    Ok(format!("{} reloads under traffic", reloads(world)?))
}

fn reload_takes_over(world: &mut World) -> Result<String> {
    const TIMES: u64 = 3;
    let mut plan = world.plan(Family::V4, Style::Open5gs);
    plan.urrs = vec![Urr::of_volume(1, ReportingTriggers::new())];
    let attached = world.attach("ue1", &plan, 0, 0)?;
    let recovery = world.smf(0)?.heartbeat()?;
    let process = world.upf()?.pid()?;
    let shape = Shape::endless(1000);
    let flows = [
        flow_up(world, &attached, shape)?,
        flow_down(world, &attached, shape)?,
    ];
    let mut heard = 0;
    for time in 1..=TIMES {
        flows.iter().try_for_each(|flow| more_of(flow, 300))?;
        let smfs = 64 + time;
        let grows = move |text: String| {
            let text = text.replace(&format!("smfs = {}\n", smfs - 1), "");
            let text = text.replacen("[limits]\n", &format!("[limits]\nsmfs = {smfs}\n"), 1);
            let another = "[[network_instance]]\nname = \"corporate\"\ninterface = \"n6\"\n\
                           pools = [\"10.69.0.0/16\"]\ncapacity_downlink_kbps = 50000\n\n[limits]\n";
            match time {
                1 => text.replacen("[limits]\n", another, 1),
                _ => text,
            }
        };
        heard += while_smfs_speak(world, recovery, |world| {
            let last = change(world, grows)?;
            expect(&last, "in force")?;
            ensure!(last["changes"][0]["takes"] == "take-over", "{last:#}");
            Ok(())
        })?;
        let status = world.get("/api/v1/status")?;
        ensure!(status["state"]["taken_over"] == 1, "{}", status["state"]);
        ensure!(status["peers"]["capacity"] == smfs, "{}", status["peers"]);
    }
    let capacities = world.get("/api/v1/capacities")?.to_string();
    ensure!(
        capacities.contains("network instance corporate downlink"),
        "{capacities}"
    );
    goes_back(world, recovery)?;
    flows.iter().try_for_each(|flow| more_of(flow, 300))?;
    ensure!(world.upf()?.pid()? == process, "another process");
    let sent = whole(flows, shape)?;
    let measured = usage_so_far(world, &attached)?;
    ensure!(
        measured == sent,
        "{measured:?} are reported, {sent:?} were sent"
    );
    let plan = SessionPlan {
        network_instance: "corporate".to_owned(),
        addresses: Requested::Choose {
            v4: true,
            v6: false,
        },
        ..world.plan(Family::V4, Style::Open5gs)
    };
    let session = world
        .smf(0)?
        .establish(&plan)
        .context("in the new network instance")?;
    let address = session.addresses.v4.context("no address")?;
    ensure!(address.octets()[1] == 69, "{address} is of another pool");
    ping_all(&attached)?;
    Ok(format!(
        "{TIMES} times, and once back; {heard} heartbeats meanwhile; {} packets up and {} down, each counted once",
        sent.packets[0], sent.packets[1]
    ))
}

/// The SMF asks again and again while something happens, and hears the same Recovery Time Stamp; how often.
fn while_smfs_speak(
    world: &World,
    recovery: u32,
    work: impl FnOnce(&World) -> Result<()>,
) -> Result<u64> {
    let is_over = AtomicBool::new(false);
    let smf = world.smf(0)?;
    thread::scope(|scope| {
        let speaks = scope.spawn(|| {
            let mut heard = 0;
            while !is_over.load(Ordering::Relaxed) {
                let now = smf.heartbeat()?;
                ensure!(
                    now == recovery,
                    "Recovery Time Stamp {recovery}, then {now}"
                );
                heard += 1;
                thread::sleep(LOOK);
            }
            Ok(heard)
        });
        let done = work(world);
        is_over.store(true, Ordering::Relaxed);
        let heard = speaks
            .join()
            .map_err(|_| anyhow::anyhow!("the SMF panicked"))?;
        done?;
        heard
    })
}

/// A start whose configuration was right when it was checked fails, and the former one goes on.
fn goes_back(world: &World, recovery: u32) -> Result<()> {
    let port = "listen = \"127.0.0.1:8806\"";
    let taken = "listen = \"127.0.0.1:8807\"";
    let _listener = (world.upf_ns).enter(|| Ok(TcpListener::bind("127.0.0.1:8807")?))?;
    while_smfs_speak(world, recovery, |world| {
        let last = change(world, |text| text.replacen(port, taken, 1))?;
        expect(&last, "failed")?;
        let reasons = last["reasons"].to_string();
        ensure!(reasons.contains("api.listen"), "{reasons}");
        Ok(())
    })?;
    let last = change(world, |text| text.replacen(taken, port, 1))?;
    expect(&last, "unchanged")
}

/// By its command line, as an operator does.
fn reload_moves_rest(world: &mut World) -> Result<String> {
    let attached = world.attach_plain("ue1", Family::V4)?;
    let upf = world.upf.as_ref().context("the UPF is down")?;
    let token = world.folder.join("token");
    std::fs::write(&token, "0123456789abcdef-another-token\n")?;
    let port = "listen = \"127.0.0.1:8806\"";
    let moved = format!(
        "listen = \"127.0.0.1:8809\"\ntoken_file = \"{}\"",
        token.display()
    );
    upf.edit(|text| text.replacen(port, &moved, 1))?;
    let said = upf.turnpike(&world.upf_ns, &["reload"])?;
    ensure!(said.contains("in force"), "{said}");
    let status = upf.turnpike(&world.upf_ns, &["status", "--json"])?;
    let status: Value = serde_json::from_str(&status)?;
    ensure!(status["sessions"]["used"] == 1, "{}", status["sessions"]);
    upf.edit(|text| text.replacen(&moved, port, 1))?;
    let said = upf.turnpike(&world.upf_ns, &["reload"])?;
    ensure!(said.contains("in force"), "{said}");
    ping_all(&attached)?;
    ensure!(reloads(world)? == 2);
    Ok("there and back".to_owned())
}

fn reload_and_stop(world: &mut World) -> Result<String> {
    const TIMES: u64 = 12;
    for time in 0..TIMES {
        world.attach_plain(&format!("ue{time}"), Family::V4)?;
        let upf = world.upf.as_mut().context("the UPF is down")?;
        upf.edit(|text| text.replacen("[limits]\n", "[limits]\nsmfs = 70\n", 1))?;
        let (status, body) = upf.post(&world.upf_ns, "/api/v1/reload", "")?;
        ensure!(status == 200 && body.contains("taking over"), "{body}");
        // The program starts anew some 100 ms later.
        thread::sleep(Duration::from_millis(85 + 5 * time));
        upf.signal(Signal::SIGTERM)?;
        upf.ended()
            .with_context(|| format!("{time}: {}", upf.log_tail(20)))?;
        world.upf = None;
        world.start_upf()?;
        ensure!(world.sessions()? == 0, "{time}: sessions were left");
        world.smf(0)?.associate()?;
    }
    Ok(format!("{TIMES} times"))
}
