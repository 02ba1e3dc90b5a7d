//! `turnpike support-bundle`: one archive with what somebody needs who is to find out from afar what is wrong.

mod addresses;
mod archive;
mod contents;
mod machine;
mod member;
mod programs;
mod redact;
mod rest;
mod secrets;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use report::Access;
use report::client::Client;
use serde_json::Value;

use crate::Error;
use crate::trace::Whom;
use addresses::Addresses;
use archive::Unfinished;
use member::{Kind, LIMIT, Member, TOTAL, cut};
use programs::{Deadline, ask};
use redact::Redactor;

/// Time for all questions to turnpiked.
const REST: Duration = Duration::from_secs(40);
/// Time for all other programs.
const MACHINE: Duration = Duration::from_secs(90);
/// Of the package, where turnpiked does not say another one.
const CONFIG: &str = "/etc/turnpike/turnpiked.toml";

/// Place of the archive, and its extent.
#[derive(Args)]
#[command(mut_group("whom", |whom| whom.requires("trace")))]
pub(crate) struct Options {
    /// The archive. Without it turnpike-support-DATE-TIME.tar.gz, UTC, in this folder.
    #[arg(long, value_name = "FILE.tar.gz")]
    output: Option<PathBuf>,
    /// 5 seconds of packets of one user, too: a line each, never packets themselves.
    #[arg(long, requires = "whom")]
    trace: bool,
    #[command(flatten)]
    whom: Whom,
    /// Leave addresses and numbers of users as they are.
    #[arg(long)]
    with_identities: bool,
    /// Configuration of turnpiked. Without it, the one that turnpiked runs with, or /etc/turnpike/turnpiked.toml.
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
    /// File that turnpiked's log goes to. Without it, the file that is standard error of the running turnpiked, if it is one.
    #[arg(long, value_name = "FILE")]
    log: Option<PathBuf>,
}

/// List of files, for people or as JSON. `client`: a turnpiked that cannot be asked is no reason not to make a bundle.
pub(crate) fn run(
    options: &Options,
    client: Result<Client, Error>,
    token_file: Option<&Path>,
    json: bool,
) -> Result<String, Error> {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    let made = utc(now.as_secs());
    let name = format!("turnpike-support-{made}.tar.gz");
    let target = options.output.clone().unwrap_or_else(|| name.into());
    let failed = |error: std::io::Error| Error::Bundle {
        file: target.clone(),
        reason: error.to_string(),
    };
    // A place that takes none is found before anybody is asked.
    let unfinished = Unfinished::create(&target).map_err(failed)?;
    let mut addresses = Addresses::default();
    let mut members = collect(options, client, &mut addresses);
    addresses.sort();
    let secrets = secrets(token_file, &members);
    let redactor = Redactor::new(options.with_identities, addresses, secrets).map_err(failed)?;
    seal(&redactor, &mut members);
    let made = format!("turnpike {}; made {made} UTC.", env!("CARGO_PKG_VERSION"));
    let contents = contents::text(&made, options.with_identities, &members);
    let mut files = vec![(contents::NAME, contents.as_bytes())];
    for member in &members {
        if let Ok(content) = &member.content {
            files.push((&member.name, content));
        }
    }
    let folder = target.file_name().unwrap_or_default().to_string_lossy();
    let folder = folder
        .trim_end_matches(".gz")
        .trim_end_matches(".tar")
        .trim_end_matches(".tgz");
    unfinished.finish(folder, &files).map_err(failed)?;
    let file = target.display().to_string();
    Ok(match json {
        true => format!("{:#}\n", contents::json(&file, &members)),
        false => contents::list(&file, &members),
    })
}

fn collect(
    options: &Options,
    client: Result<Client, Error>,
    addresses: &mut Addresses,
) -> Vec<Member> {
    let access = access();
    let process = access.map(|access| access.process);
    let mut members = Vec::new();
    let client = client.map(|client| client.patient(rest::PATIENCE));
    let answers = match &client {
        Ok(client) => rest::collect(client, addresses, Deadline::after(REST)),
        Err(error) => vec![missing(
            "rest",
            "answers of turnpiked",
            "REST",
            error.to_string(),
        )],
    };
    let status = rest::json_of(&answers, "rest/status.json");
    let told = status
        .as_ref()
        .and_then(|status| status.pointer("/config/file")?.as_str());
    let config = options.config.clone().or_else(|| told.map(PathBuf::from));
    let config = config.unwrap_or_else(|| CONFIG.into());
    let file = machine::file(
        (
            "turnpiked.toml",
            "configuration, without secrets",
            Kind::Keys,
        ),
        &config,
    );
    let read: Option<Value> = file
        .content
        .as_ref()
        .ok()
        .and_then(|text| toml::from_slice(text).ok());
    let has_config = file.content.is_ok();
    members.push(file);
    if let Some(config) = &read {
        addresses.add_config(config);
    }
    let deadline = Deadline::after(MACHINE);
    on_links(addresses, deadline);
    members.extend(versions(&config, has_config, deadline));
    if let (Ok(client), Some(text)) = (
        &client,
        fs::read_to_string(&config)
            .ok()
            .filter(|_| status.is_some()),
    ) {
        members.push(changes(client, &text));
    }
    members.extend(answers);
    members.extend(machine::collect(&interfaces(&read, &status), deadline));
    members.push(log(options, process));
    if let Some(process) = process.filter(|&process| process != 0) {
        for (name, about, file) in [
            (
                "process/status.txt",
                "memory and threads of turnpiked",
                "status",
            ),
            ("process/limits.txt", "limits of turnpiked", "limits"),
        ] {
            let path = format!("/proc/{process}/{file}");
            members.push(machine::file((name, about, Kind::Text), Path::new(&path)));
        }
    }
    if options.trace {
        members.push(match client {
            Ok(client) => rest::trace(client, options.whom.query(), addresses),
            Err(error) => missing(
                "trace.txt",
                "packets of one user",
                "REST",
                error.to_string(),
            ),
        });
    }
    members
}

fn missing(name: &str, about: &'static str, source: &str, why: String) -> Member {
    Member {
        name: name.to_owned(),
        about,
        source: source.to_owned(),
        kind: Kind::Text,
        content: Err(why),
        note: None,
    }
}

fn access() -> Option<Access> {
    serde_json::from_slice(&fs::read(Access::file()).ok()?).ok()
}

/// Texts that are in no file: turnpiked's token, wherever it is kept, and what the configuration should not have in it.
fn secrets(token_file: Option<&Path>, members: &[Member]) -> Vec<String> {
    let config = members
        .iter()
        .find(|member| member.name == "turnpiked.toml");
    let config = config.and_then(|member| member.content.as_ref().ok());
    let config = config.map(|text| String::from_utf8_lossy(text));
    let values = config
        .as_ref()
        .map_or(Vec::new(), |text| secrets::values(text));
    let config: Option<Value> = config.and_then(|text| toml::from_str(&text).ok());
    let named = config
        .as_ref()
        .and_then(|config| config.pointer("/api/token_file")?.as_str());
    let in_effect = rest::json_of(members, "rest/config.json");
    let in_effect = in_effect
        .as_ref()
        .and_then(|config| config.pointer("/api/token_file")?.as_str());
    let named = [named, in_effect].into_iter().flatten().map(Path::new);
    let files = token_file.into_iter().chain(named);
    let tokens = files.filter_map(|file| fs::read_to_string(file).ok());
    let tokens = tokens.map(|token| token.trim().to_owned());
    tokens
        .chain(access().map(|access| access.token))
        .chain(values)
        .collect()
}

/// Hosts on links of this machine are the network's, and so is it itself.
fn on_links(addresses: &mut Addresses, deadline: Deadline) {
    let Ok((links, _)) = programs::run(&["ip", "-j", "addr"], Kind::Text, deadline) else {
        return;
    };
    let links: Value = serde_json::from_slice(&links).unwrap_or_default();
    let infos = links
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|link| link.get("addr_info")?.as_array());
    for info in infos.flatten() {
        if let (Some(local), Some(len)) = (
            info.get("local").and_then(Value::as_str),
            info.get("prefixlen"),
        ) {
            addresses.add_network(&local.into());
            addresses.add_network(&format!("{local}/{len}").into());
        }
    }
}

fn versions(config: &Path, has_config: bool, deadline: Deadline) -> Vec<Member> {
    let beside = std::env::current_exe()
        .ok()
        .map(|us| us.with_file_name("turnpiked"));
    let turnpiked = beside
        .filter(|path| path.is_file())
        .map_or("turnpiked".to_owned(), |path| path.display().to_string());
    let version = format!("turnpike {}\n", cli::version(&[]));
    let turnpike = Member {
        name: "version/turnpike.txt".to_owned(),
        about: "release and commit of turnpike",
        source: "turnpike --version".to_owned(),
        kind: Kind::Text,
        content: Ok(version.into_bytes()),
        note: None,
    };
    let daemon = (
        "version/turnpiked.txt",
        "release, commit and data paths of turnpiked",
        Kind::Text,
    );
    let mut members = vec![turnpike, ask(daemon, &[&turnpiked, "--version"], deadline)];
    let check = (
        "check-config.txt",
        "judgement of the configuration",
        Kind::Text,
    );
    let path = config.display().to_string();
    let source = format!("{turnpiked} check-config {path}");
    if !has_config {
        let why = format!("{path} cannot be read");
        members.push(missing(check.0, check.1, &source, why));
        return members;
    }
    // Mistakes go to standard error, and they are the answer.
    let both = "exec \"$0\" check-config \"$1\" 2>&1";
    let answer = ask(check, &["sh", "-c", both, &turnpiked, &path], deadline);
    members.push(Member { source, ..answer });
    members
}

/// Keys in which the file differs from the configuration in effect.
fn changes(client: &Client, text: &str) -> Member {
    let answer = client.config_diff(text);
    let content = answer.map(|answer| answer.json.to_string().into_bytes());
    Member {
        name: "rest/config-diff.json".to_owned(),
        about: "keys in which the file differs from the configuration in effect",
        source: format!("POST {}", report::CONFIG_DIFF.path()),
        kind: Kind::Json,
        content: content.map_err(|error| error.to_string()),
        note: None,
    }
}

/// Data interfaces, as the configuration has them.
fn interfaces(config: &Option<Value>, status: &Option<Value>) -> Vec<String> {
    let configured = config
        .as_ref()
        .and_then(|config| config.get("interface")?.as_array());
    let ports = status
        .as_ref()
        .and_then(|status| status.get("ports")?.as_array());
    let named = configured
        .into_iter()
        .flatten()
        .filter_map(|of| of.get("name"));
    let told = ports
        .into_iter()
        .flatten()
        .filter_map(|of| of.get("interface"));
    let mut names: Vec<String> = Vec::new();
    for name in named.chain(told).filter_map(Value::as_str) {
        if !names.iter().any(|known| known == name) {
            names.push(name.to_owned());
        }
    }
    names
}

/// The log, where it is a file.
fn log(options: &Options, process: Option<u32>) -> Member {
    let about = ("log/file.txt", "the log, last lines", Kind::Log);
    let stderr = process.and_then(|process| fs::read_link(format!("/proc/{process}/fd/2")).ok());
    match options.log.clone().or(stderr) {
        Some(path) => machine::file(about, &path),
        None => missing(
            about.0,
            about.1,
            "standard error of turnpiked",
            "no turnpiked that we may look into runs; --log names the file".to_owned(),
        ),
    }
}

/// Hide what is to be hidden, and keep to the bounds.
fn seal(redactor: &Redactor, members: &mut [Member]) {
    let mut room = TOTAL;
    for member in members {
        // Errors quote lines of the configuration.
        let text = |text: &mut String| {
            *text = secrets::cut_out(&redactor.text(text)).trim_end().to_owned()
        };
        text(&mut member.name);
        text(&mut member.source);
        member.note.as_mut().map(text);
        let content = match &mut member.content {
            Ok(content) => content,
            Err(why) => {
                text(why);
                continue;
            }
        };
        // Identities are found in whole lines alone.
        let before = cut(member.kind, content, LIMIT);
        *content = redactor.member(member.kind, content);
        let after = cut(member.kind, content, LIMIT.min(room));
        room -= content.len();
        let notes = [member.note.take(), before, after];
        let notes: Vec<String> = notes.into_iter().flatten().collect();
        member.note = Some(notes.join("; ")).filter(|note| !note.is_empty());
    }
}

/// `20261129-014500` of seconds since 1970.
fn utc(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let is_leap =
        |year: u64| year.is_multiple_of(4) && !year.is_multiple_of(100) || year.is_multiple_of(400);
    let (mut year, mut day) = (1970, days);
    loop {
        let length = if is_leap(year) { 366 } else { 365 };
        if day < length {
            break;
        }
        day -= length;
        year += 1;
    }
    let february = if is_leap(year) { 29 } else { 28 };
    let mut month = 1;
    for length in [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30] {
        if day < length {
            break;
        }
        day -= length;
        month += 1;
    }
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!(
        "{year}{month:02}{:02}-{hour:02}{minute:02}{second:02}",
        day + 1
    )
}

#[cfg(test)]
mod tests;
