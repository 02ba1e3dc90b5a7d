//! Values of keys that are named like secrets.

/// Stands where a secret was.
pub(super) const CUT: &str = "(cut out)";

const WORDS: [&str; 8] = [
    "token",
    "secret",
    "passw",
    "passphrase",
    "credential",
    "key",
    "psk",
    "auth",
];

/// Whether the value of this key is not to be told. Paths of files with secrets are.
pub(super) fn is_secret(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    let is_path = ["_file", "-file", "_path", "-path"]
        .iter()
        .any(|end| key.ends_with(end));
    !is_path && WORDS.iter().any(|word| key.contains(word))
}

/// The text without such values, whatever else is wrong with it: what follows the sign `=` of such a key goes, to the end of the
/// line, or of the value where it is one of several lines. So does all of a table that is named so.
pub(super) fn cut_out(text: &str) -> String {
    split(text).0
}

/// Words of these values, which others may quote: whoever says what is wrong with a line shows it.
pub(super) fn values(text: &str) -> Vec<String> {
    let cut = split(text).1;
    let words = cut.split(|c: char| c.is_whitespace() || "\"',[]{}".contains(c));
    let words = words.filter(|word| !word.is_empty() && *word != "#");
    words.map(str::to_owned).collect()
}

/// The text without the values, and these.
fn split(text: &str) -> (String, String) {
    let mut cut = String::new();
    let mut out = String::with_capacity(text.len());
    let mut rest: Option<Rest> = None;
    let mut secret_table = false;
    for line in text.split_inclusive('\n') {
        if let Some(of) = rest {
            rest = of.after(line);
            cut.push_str(line);
            continue;
        }
        let bare = line.trim_start().trim_start_matches(['#', ' ']);
        if let Some(name) = bare.strip_prefix('[') {
            secret_table = !name.contains('=') && is_secret(name.trim_end().trim_end_matches(']'));
        }
        match secret_at(line, secret_table) {
            None => out.push_str(line),
            Some(at) => {
                rest = goes_on(line[at..].trim());
                cut.push_str(&line[at..]);
                out.push_str(&line[..at]);
                out.push(' ');
                out.push_str(CUT);
                out.push('\n');
            }
        }
    }
    (out, cut)
}

/// Place behind the first `=` whose key is named so, or that stands in a table that is.
fn secret_at(line: &str, all: bool) -> Option<usize> {
    let signs = line.match_indices('=').map(|(at, _)| at);
    let mut signs = signs.filter(|&at| {
        let before = line[..at].trim_end();
        let is_key = |c: char| c.is_alphanumeric() || "_-.\"'\\".contains(c);
        let key = before.rsplit(|c| !is_key(c)).next().unwrap_or_default();
        let is_switch = ["true", "false"].contains(&word_of(&line[at + 1..]));
        all || is_secret(key.trim_matches(['"', '\''])) && !is_switch
    });
    signs.next().map(|at| at + 1)
}

/// The first word of a value.
fn word_of(value: &str) -> &str {
    let word = value.trim_start();
    let end = word.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    &word[..end.unwrap_or(word.len())]
}

/// Rest of a value that does not end in its line.
#[derive(Clone, Copy)]
enum Rest {
    /// Until these quotes.
    Text(&'static str),
    /// Until so many brackets are closed.
    Brackets(i32),
}

impl Rest {
    fn after(self, line: &str) -> Option<Self> {
        match self {
            Self::Text(quotes) => (!line.contains(quotes)).then_some(self),
            Self::Brackets(open) => Some(open + opened(line))
                .filter(|&open| open > 0)
                .map(Self::Brackets),
        }
    }
}

fn goes_on(value: &str) -> Option<Rest> {
    for quotes in ["\"\"\"", "'''"] {
        if let Some(rest) = value.strip_prefix(quotes) {
            return (!rest.contains(quotes)).then_some(Rest::Text(quotes));
        }
    }
    let is_list = value.starts_with(['[', '{']);
    is_list.then_some(Rest::Brackets(0))?.after(value)
}

fn opened(line: &str) -> i32 {
    line.chars().fold(0, |open, c| match c {
        '[' | '{' => open + 1,
        ']' | '}' => open - 1,
        _ => open,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_go_and_paths_of_files_stay() {
        let text = r#"
[api]
listen = "127.0.0.1:8806"
token_file = "/etc/turnpike/token"
token = "s3cr3t" # s3cr3t
oauth2 = true # of all servers
 "api-key"= 's3cr3t'
a.password="s3cr3t"
x = { user = "me", secret = "s3cr3t" }
# token = "s3cr3t"
Environment=TURNPIKE_TOKEN=s3cr3t
key = """
s3cr3t
"""
keys = [
  ["s3cr3t"],
  "s3cr3t",
]
broken token = s3cr3t "
[secrets]
one = "s3cr3t"
[log]
level = "info"
"#;
        let left = cut_out(text);
        assert!(!left.contains("s3cr3t"), "{left}");
        for stays in [
            "listen = \"127.0.0.1:8806\"",
            "token_file = \"/etc/turnpike/token\"",
            "level = \"info\"",
            "token = (cut out)",
            "oauth2 = true # of all servers",
        ] {
            assert!(left.contains(stays), "{stays}: {left}");
        }
        let values = values(text);
        assert!(values.iter().filter(|value| *value == "s3cr3t").count() > 9);
    }
}
