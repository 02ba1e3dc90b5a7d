//! `turnpike help`: subcommands, and pages of the documentation, where neither turnpiked nor the documentation may be at hand.

mod page;
#[cfg(test)]
mod tests;
mod topics;

use std::io::{self, ErrorKind, IsTerminal, stdout};

use clap::Command;
use crossterm::terminal;

use page::Page;
use topics::{DROPS, TOPICS, Topic};

/// Columns where there is no terminal.
const WIDTH: usize = 80;
/// Longer lines are hard to read, however wide the terminal is.
const WIDTH_MAX: usize = 100;
const WIDTH_MIN: usize = 20;
/// Names suggested for an unknown one.
const SUGGESTIONS: usize = 3;
/// Jaro-Winkler similarity from which on a name is suggested; 1 is the same.
const SIMILAR: f64 = 0.8;

/// Why there is no help.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("no help on {0:?}{suggestions}\n{topics}", suggestions = did_you_mean(.1), topics = topics_line())]
    Unknown(String, Vec<String>),
    #[error("nothing in {topic} has {words:?}")]
    NotIn { topic: &'static str, words: String },
    #[error("standard output: {0}")]
    Output(io::Error),
}

impl Error {
    pub(crate) const fn exit_code(&self) -> u8 {
        match self {
            Self::NotIn { .. } | Self::Output(_) => 1,
            Self::Unknown(..) => 2,
        }
    }
}

/// Help of a command, and text after it.
struct Found {
    command: Option<Command>,
    text: String,
}

/// Text of the topic; help of a command is printed before, as clap does it.
pub(crate) fn run(words: &[String], command: Command) -> Result<String, Error> {
    let found = find(words, command, width())?;
    match found.command.map(|mut command| command.print_long_help()) {
        // The reader has left.
        Some(Err(error)) if error.kind() == ErrorKind::BrokenPipe => Ok(String::new()),
        Some(Err(error)) => Err(Error::Output(error)),
        Some(Ok(())) | None => Ok(found.text),
    }
}

fn width() -> usize {
    let columns = stdout().is_terminal().then(terminal::size);
    match columns {
        Some(Ok((columns, _))) => usize::from(columns).clamp(WIDTH_MIN, WIDTH_MAX),
        _ => WIDTH,
    }
}

fn find(words: &[String], mut command: Command, width: usize) -> Result<Found, Error> {
    command.build();
    let Some((first, rest)) = words.split_first() else {
        let text = overview(width);
        let command = Some(command);
        return Ok(Found { command, text });
    };
    if let Some(topic) = TOPICS.iter().find(|topic| topic.name == first) {
        let mut text = String::new();
        if rest.is_empty() && command.find_subcommand(first).is_some() {
            let pointer = format!("The subcommand of this name: turnpike {first} --help");
            text = page::wrapped(&pointer, width, "", "") + "\n";
        }
        let command = None;
        text += &of_topic(topic, rest, width)?;
        return Ok(Found { command, text });
    }
    let drops = Page::read(DROPS.text);
    let is_reason = rest.is_empty() && drops.names().contains(first);
    let reason = is_reason.then(|| drops.with(&[first]).text(width));
    match (subcommand(&command, words).cloned(), reason) {
        (None, None) => {}
        (command, None) => {
            return Ok(Found {
                command,
                text: String::new(),
            });
        }
        (None, Some(text)) => {
            return Ok(Found {
                command: None,
                text,
            });
        }
        // A subcommand and a reason of one name.
        (command, Some(reason)) => {
            return Ok(Found {
                command,
                text: format!("\n{reason}"),
            });
        }
    }
    let commands = command.get_subcommands().map(Command::get_name);
    let topics = TOPICS.iter().map(|topic| topic.name);
    let names = commands.chain(topics).map(str::to_owned);
    let words = words.join(" ");
    let similar = similar(&words, names.chain(drops.names()));
    Err(Error::Unknown(words, similar))
}

/// The command at the end of a path such as `sessions`.
fn subcommand<'c>(command: &'c Command, words: &[String]) -> Option<&'c Command> {
    let mut words = words.iter();
    words.try_fold(command, |command, word| command.find_subcommand(word))
}

fn of_topic(topic: &Topic, words: &[String], width: usize) -> Result<String, Error> {
    let page = Page::read(topic.text);
    if words.is_empty() {
        return Ok(page.text(width));
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let found = page.with(&words);
    if found.is_empty() {
        let (topic, words) = (topic.name, words.join(" "));
        return Err(Error::NotIn { topic, words });
    }
    Ok(found.text(width))
}

/// The most similar names first.
fn similar(word: &str, names: impl Iterator<Item = String>) -> Vec<String> {
    let word = word.to_lowercase();
    let rated = names.map(|name| (strsim::jaro_winkler(&word, &name), name));
    let mut rated: Vec<(f64, String)> = rated.filter(|&(rate, _)| rate >= SIMILAR).collect();
    rated.sort_by(|(one, _), (other, _)| other.total_cmp(one));
    let mut names: Vec<String> = rated.into_iter().map(|(_, name)| name).collect();
    // A topic that a subcommand is named like.
    names.dedup();
    names.truncate(SUGGESTIONS);
    names
}

fn did_you_mean(names: &[String]) -> String {
    match names {
        [] => String::new(),
        names => format!("; similar: {}", names.join(", ")),
    }
}

fn topics_line() -> String {
    let names: Vec<&str> = TOPICS.iter().map(|topic| topic.name).collect();
    format!("Topics: {}. Subcommands: turnpike help", names.join(", "))
}

/// Topics, each with its line, and how to ask for them.
fn overview(width: usize) -> String {
    let longest = TOPICS.iter().map(|topic| topic.name.len()).max();
    let column = longest.unwrap_or(0) + 4;
    let mut text = "\nTopics:\n".to_owned();
    for Topic { name, about, .. } in &TOPICS {
        let first = format!("  {name:<0$}", column - 2);
        text += &page::wrapped(about, width, &first, &" ".repeat(column));
    }
    text.push('\n');
    text += &page::wrapped(MORE, width, "", "");
    text
}

const MORE: &str = "turnpike help TOPIC is the whole topic, turnpike help TOPIC WORD... the rows that have all of the words, \
    and turnpike help REASON a reason of lost packets.";

/// For `--help` and the manual.
pub(crate) fn about() -> String {
    let topics = TOPICS.iter();
    let topics: Vec<String> = topics
        .map(|Topic { name, about, .. }| format!("{name}: {about}"))
        .collect();
    let topics = topics.join("; ");
    format!(
        "Help on a subcommand, or on a topic of the documentation. It needs no turnpiked.\n\nTopics are {topics}.\n\n{MORE}"
    )
}
