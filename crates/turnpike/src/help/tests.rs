use clap::CommandFactory;

use super::*;

fn asked(words: &[&str], width: usize) -> Result<Found, Error> {
    let words: Vec<String> = words.iter().map(|&word| word.to_owned()).collect();
    find(&words, crate::Arguments::command(), width)
}

fn text(words: &[&str]) -> String {
    asked(words, 80).map(|found| found.text).unwrap()
}

fn refused(words: &[&str]) -> Error {
    asked(words, 80).err().unwrap()
}

/// Reasons as the documentation has them, without its reader.
fn reasons() -> Vec<&'static str> {
    let lines = DROPS.text.lines();
    let names = lines.filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    names.collect()
}

#[test]
fn each_topic_fits_the_width() {
    for topic in &TOPICS {
        for width in [40, 80, 100] {
            let text = asked(&[topic.name], width).unwrap().text;
            assert!(text.lines().count() > 10, "{}", topic.name);
            assert!(!text.contains("`") && !text.contains("|--"), "{text}");
            let code = topic.text.split("```").skip(1).step_by(2);
            let code: Vec<&str> = code.flat_map(str::lines).collect();
            for line in text.lines() {
                assert_eq!(line.trim_end(), line, "{}", topic.name);
                let words = line.split_whitespace();
                // A marker is no word.
                let words = words.filter(|word| !["-", "1."].contains(word)).count();
                let is_code = code.contains(&line.trim_start());
                let fits = line.chars().count() <= width || words == 1 || is_code;
                assert!(fits, "{} at {width}: {line}", topic.name);
            }
        }
    }
}

#[test]
fn each_drop_reason_is_found_alone_and_within_its_topic() {
    let reasons = reasons();
    assert!(reasons.len() > 50, "{}", reasons.len());
    for reason in reasons {
        let text = text(&[reason]);
        let first = format!("DROP REASONS\n\n{reason}\n    What happened: ");
        let of_command = asked(&[reason], 80).unwrap().command.is_some();
        assert!(text.trim_start().starts_with(&first), "{text}");
        assert_eq!(text.starts_with('\n'), of_command, "{text}");
        assert!(text.contains("\n    What to do: "), "{text}");
        assert_eq!(text.matches("\n\n").count(), 1, "one row: {text}");
        assert_eq!(self::text(&["drops", reason]), text.trim_start());
    }
}

#[test]
fn rows_with_all_words_are_shown_in_any_case() {
    let rows = text(&["drops", "QER", "mbr"]);
    assert_eq!(
        rows,
        "DROP REASONS\n\n\
         rate\n    What happened: above the MBR of a QER\n    \
         What to do: the user exceeds its subscription; compare with turnpike\n    \
         session. One TCP flow that gets half of it: docs/howto/rates-and-tcp.md\n"
    );
    assert_eq!(text(&["drops", "Mbr", "qer"]), rows);
    // One of the names in a cell.
    let metric = text(&["metrics", "turnpike_buffered_bytes_limit"]);
    assert!(metric.contains("\n\nturnpike_buffered_bytes, turnpike_buffered_bytes_limit\n"));
    assert_eq!(metric.matches("\n\n").count(), 1, "{metric}");
    // A page without tables.
    let step = text(&["nothing-passes", "/readyz"]);
    assert!(
        step.contains("2. turnpike status: lines that begin"),
        "{step}"
    );
    assert_eq!(step.matches("turnpike check-config").count(), 0, "{step}");
}

#[test]
fn a_row_that_continues_another_is_shown_with_it() {
    let rows = text(&["symptoms", "empty", "pdi"]);
    let whole = rows.find("One datagram ends the process").unwrap();
    let row = rows.find("… a PDR with an empty PDI").unwrap();
    assert!(rows.starts_with("N4\n\n") && whole < row, "{rows}");
    assert_eq!(rows.matches("\n\n").count(), 2, "{rows}");
}

#[test]
fn words_that_no_row_has_are_told() {
    let error = refused(&["drops", "unicorn", "rate"]);
    assert_eq!(error.to_string(), "nothing in drops has \"unicorn rate\"");
    assert_eq!(error.exit_code(), 1);
}

#[test]
fn an_unknown_topic_is_refused_with_its_neighbours() {
    let error = refused(&["symptom"]);
    assert_eq!(error.exit_code(), 2);
    assert_eq!(
        error.to_string(),
        "no help on \"symptom\"; similar: symptoms\n\
         Topics: drops, symptoms, nothing-passes, limits, metrics, features. Subcommands: turnpike help"
    );
    let similar = |word: &str| refused(&[word]).to_string();
    assert!(similar("sesions").contains("; similar: session, sessions"));
    assert!(similar("unknown-teid").contains("; similar: unknown_teid"));
    assert!(similar("xyzzy").starts_with("no help on \"xyzzy\"\nTopics: "));
    assert_eq!(refused(&["sessions", "nonsense"]).exit_code(), 2);
    assert_eq!(refused(&["rate", "nonsense"]).exit_code(), 2);
}

#[test]
fn subcommands_have_their_long_help() {
    let found = asked(&["sessions"], 80).unwrap();
    let help = found.command.unwrap().render_long_help().to_string();
    assert!(
        help.contains("Usage: turnpike sessions [OPTIONS]"),
        "{help}"
    );
    assert_eq!(found.text, "");
    // A subcommand, too.
    let first = "The subcommand of this name: turnpike drops --help\n\nDROP REASONS\n";
    assert!(text(&["drops"]).starts_with(first));
}

#[test]
fn alone_it_lists_the_topics() {
    let found = asked(&[], 80).unwrap();
    assert_eq!(found.command.unwrap().get_name(), "turnpike");
    for topic in &TOPICS {
        assert!(found.text.contains(&format!("\n  {} ", topic.name)));
        assert!(about().contains(topic.about));
    }
}

#[test]
fn markdown_of_all_kinds_is_read() {
    let page = "\
# A *title*

Some `code` and a [link](elsewhere.md)
on two lines.

1. one
   - inner, which is so long that it goes on
2. two

   more of two

```
verbatim   text
```

| Name | What |
|---|---|
| `a|b` | x |
| `c\\|d`, `e` | - |
";
    assert_eq!(
        Page::read(page).text(30),
        "A TITLE\n\nSome code and a link on two\nlines.\n\n1. one\n   - inner, which is so long\n     that it goes on\n2. two\n\
         \n   more of two\n\n    verbatim   text\n\n`a\n    What: b`\n\nc|d, e\n"
    );
}
