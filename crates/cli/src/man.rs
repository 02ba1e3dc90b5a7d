//! Manual pages.

use std::io;

use clap::Command;
use clap_mangen::Man;
use clap_mangen::roff::{Inline, Roff, bold, roman};

use crate::program::{FilePage, Program};
use crate::version::RELEASE;

/// An empty argument of .TH: a page has no date, which would be that of its build.
const NO_DATE: &str = "\"\"";
/// Heading of all pages.
const MANUAL: &str = "Turnpike Manual";

/// File names and texts of all pages: of the program, of its visible subcommands, and of files.
pub(crate) fn pages(program: &Program, command: Command) -> io::Result<Vec<(String, String)>> {
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let mut pages = Vec::new();
    collect(program, &command, None, &mut pages)?;
    pages.extend(program.file_pages.iter().map(file_page));
    Ok(pages)
}

fn collect(
    program: &Program,
    command: &Command,
    above: Option<&str>,
    pages: &mut Vec<(String, String)>,
) -> io::Result<()> {
    let name = name_of(command);
    let page = command_page(program, command, above)?;
    pages.push((format!("{name}.{}", program.section), page));
    let below = command
        .get_subcommands()
        .filter(|below| !below.is_hide_set());
    below
        .into_iter()
        .try_for_each(|below| collect(program, below, Some(name), pages))
}

/// `turnpike-sessions` of `turnpike sessions`.
fn name_of(command: &Command) -> &str {
    let name = command.get_display_name();
    name.unwrap_or_else(|| command.get_name())
}

/// above: page of the command that this one is a subcommand of.
fn command_page(program: &Program, command: &Command, above: Option<&str>) -> io::Result<String> {
    // As `--help` has it: clap_mangen's own knows nothing of options that exclude subcommands.
    let usage = command.clone().render_usage().to_string();
    let usage = usage.trim_start_matches("Usage:").trim().to_owned();
    let man = Man::new(command.clone().override_usage(usage))
        .title(name_of(command).to_uppercase())
        .section(program.section)
        .date(NO_DATE)
        .source(source())
        .manual(MANUAL);
    let mut page = Vec::new();
    man.render_title(&mut page)?;
    man.render_name_section(&mut page)?;
    man.render_synopsis_section(&mut page)?;
    man.render_description_section(&mut page)?;
    man.render_options_section(&mut page)?;
    if command.get_subcommands().any(|below| !below.is_hide_set()) {
        man.render_subcommands_section(&mut page)?;
    }
    let mut more = Roff::new();
    list(&mut more, "EXIT STATUS", program.exit_codes);
    let is_whole = above.is_none();
    let of_program = if is_whole { program.environment } else { &[] };
    let environment = environment(command);
    let environment = environment.iter().map(|(name, text)| (&**name, &**text));
    let environment: Vec<_> = environment.chain(of_program.iter().copied()).collect();
    list(&mut more, "ENVIRONMENT", &environment);
    for section in program.lists.iter().filter(|_| is_whole) {
        list(&mut more, section.heading, section.entries);
    }
    let above = above.map(|name| (name, program.section));
    let others = above.into_iter().chain(program.see_also.iter().copied());
    see_also(&mut more, others);
    more.to_writer(&mut page)?;
    let page = with_one_preamble(&String::from_utf8_lossy(&page));
    Ok(as_typed(&page))
}

/// Environment variables that options may be given by.
fn environment(command: &Command) -> Vec<(String, String)> {
    let options = command
        .get_arguments()
        .filter(|option| !option.is_hide_set());
    let variables = options.filter_map(|option| {
        let variable = option.get_env()?.to_string_lossy().into_owned();
        let help = option.get_help().map(ToString::to_string);
        Some((variable, help.unwrap_or_default()))
    });
    variables.collect()
}

fn file_page(file: &FilePage) -> (String, String) {
    let mut page = Roff::new();
    let title = file.name.to_uppercase();
    page.control("TH", [&title, "5", NO_DATE, &source(), MANUAL]);
    page.control("SH", ["NAME"]);
    page.text([roman(format!("{} - {}", file.name, file.about))]);
    page.control("SH", ["DESCRIPTION"]);
    page.text([roman(file.description)]);
    page.control("SH", ["KEYS"]);
    page.control("nf", []);
    for line in file.text.lines() {
        page.text([roman(line)]);
    }
    page.control("fi", []);
    list(&mut page, "FILES", file.files);
    see_also(&mut page, file.see_also.iter().copied());
    (format!("{}.5", file.name), as_typed(&page.render()))
}

fn list(page: &mut Roff, heading: &str, entries: &[(&str, &str)]) {
    if entries.is_empty() {
        return;
    }
    page.control("SH", [heading]);
    for &(term, text) in entries {
        page.control("TP", []);
        page.text([bold(term)]);
        page.text([roman(text)]);
    }
}

fn see_also<'p>(page: &mut Roff, pages: impl Iterator<Item = (&'p str, &'p str)>) {
    let pages = pages.enumerate().flat_map(|(place, (name, section))| {
        let comma = if place == 0 { "" } else { ", " };
        [roman(comma), bold(name), roman(format!("({section})"))]
    });
    let pages: Vec<Inline> = pages.collect();
    if !pages.is_empty() {
        page.control("SH", ["SEE ALSO"]);
        page.text(pages);
    }
}

fn source() -> String {
    format!("Turnpike {RELEASE}")
}

/// Characters that groff would print as typographic ones, which cannot be pasted into a shell or a file. Nothing that renders pages
/// uses them as its own.
fn as_typed(page: &str) -> String {
    let page = page.replace('`', "\\(ga");
    page.replace('^', "\\(ha").replace('~', "\\(ti")
}

/// Each section that is rendered by itself brings the preamble of a page.
fn with_one_preamble(page: &str) -> String {
    let preamble = Roff::new().render();
    let sections = page.replace(&preamble, "");
    preamble + &sections
}
