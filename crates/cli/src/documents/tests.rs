//! Documents of a small program.

use clap::Arg;

use super::*;
use crate::program::{FilePage, List};

const PROGRAM: Program = Program {
    name: "barrier",
    section: "8",
    exit_codes: &[("0", "open"), ("1", "shut")],
    environment: &[("BARRIER_HEIGHT", "In metres.")],
    lists: &[List {
        heading: "SIGNALS",
        entries: &[("HUP", "Open.")],
    }],
    see_also: &[("gate", "1")],
    file_pages: &[FilePage {
        name: "barrier.toml",
        about: "configuration of the barrier",
        description: "All keys.",
        text: ".dot = 1\n'quote = 2\n\npath = 'C:\\new-folder' # see `gate`\n",
        files: &[],
        see_also: &[("barrier", "8")],
    }],
};

fn command() -> Command {
    let address = Arg::new("address").long("address").global(true);
    Command::new("debug-name")
        .about("A barrier")
        .arg(
            address
                .env("BARRIER_ADDRESS")
                .help("Address of the barrier"),
        )
        .subcommand(Command::new("open").about("Open it"))
        .subcommand(Command::new("shut").about("Shut it"))
        .subcommand(Command::new("fell").about("Fell it").hide(true))
}

fn text(name: &str) -> String {
    let documents = documents(&PROGRAM, command()).unwrap().into_iter();
    let found = documents.filter(|(file, _)| file.as_path() == name);
    found.map(|(_, text)| text).next().unwrap()
}

#[test]
fn a_page_for_each_visible_subcommand_and_a_script_for_each_shell() {
    let documents = documents(&PROGRAM, command()).unwrap();
    let files: Vec<&Path> = documents.iter().map(|(file, _)| file.as_path()).collect();
    let expected = [
        "man/barrier.8",
        "man/barrier-open.8",
        "man/barrier-shut.8",
        "man/barrier.toml.5",
        "bash/barrier",
        "zsh/_barrier",
        "fish/barrier.fish",
    ];
    assert_eq!(files, expected.map(Path::new));
    for (file, text) in &documents {
        assert!(!text.contains("debug-name"), "{}: {text}", file.display());
        assert!(text.contains("barrier"), "{}: {text}", file.display());
    }
    for (file, text) in &documents[4..] {
        assert!(text.contains("shut"), "{}: {text}", file.display());
    }
}

#[test]
fn the_same_definition_has_the_same_documents() {
    let made = || documents(&PROGRAM, command()).unwrap();
    assert_eq!(made(), made());
}

#[test]
fn a_page_has_sections_that_clap_knows_nothing_of() {
    let page = text("man/barrier.8");
    for part in [
        ".TH BARRIER 8 \"\" \"Turnpike ",
        ".SH NAME\nbarrier \\- A barrier\n",
        ".SH SYNOPSIS\n\\fBbarrier\\fR [OPTIONS] [COMMAND]\n",
        ".SH \"EXIT STATUS\"\n.TP\n\\fB0\\fR\nopen\n.TP\n\\fB1\\fR\nshut\n",
        ".SH ENVIRONMENT\n.TP\n\\fBBARRIER_ADDRESS\\fR\nAddress of the barrier\n.TP\n\\fBBARRIER_HEIGHT\\fR\n",
        ".SH SIGNALS\n.TP\n\\fBHUP\\fR\nOpen.\n",
        ".SH \"SEE ALSO\"\n\\fBgate\\fR(1)\n",
    ] {
        assert!(page.contains(part), "{part}\nis not in\n{page}");
    }
    assert_eq!(page.matches(".ds Aq \\(aq").count(), 1, "{page}");
    let below = text("man/barrier-open.8");
    for part in [
        ".SH NAME\nbarrier\\-open \\- Open it\n",
        ".SH SYNOPSIS\n\\fBbarrier open\\fR [OPTIONS]\n",
        ".SH ENVIRONMENT\n.TP\n\\fBBARRIER_ADDRESS\\fR\n",
        ".SH \"SEE ALSO\"\n\\fBbarrier\\fR(8), \\fBgate\\fR(1)\n",
    ] {
        assert!(below.contains(part), "{part}\nis not in\n{below}");
    }
    assert!(!below.contains("SIGNALS"), "{below}");
}

#[test]
fn a_file_is_shown_as_it_is() {
    let page = text("man/barrier.toml.5");
    let shown = ".nf\n\\&.dot = 1\n\\*(Aqquote = 2\n\npath = \\*(AqC:\\\\new\\-folder\\*(Aq # see \\(gagate\\(ga\n.fi\n";
    assert!(page.contains(shown), "{page}");
}
