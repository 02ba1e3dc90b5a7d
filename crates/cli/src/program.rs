//! Parts of the manual that a definition of clap has no place for.

/// A program as the manual has it.
#[derive(Debug)]
pub struct Program {
    /// Name in the package, of manual pages and completions. The program in `target` may have another one.
    pub name: &'static str,
    /// Section of the manual: 1 user commands, 8 administration.
    pub section: &'static str,
    /// Exit codes, each with its meaning.
    pub exit_codes: &'static [(&'static str, &'static str)],
    /// Environment variables beside those of options.
    pub environment: &'static [(&'static str, &'static str)],
    /// Further sections, before SEE ALSO.
    pub lists: &'static [List],
    /// Other pages, each with its section.
    pub see_also: &'static [(&'static str, &'static str)],
    /// Pages of files that the program reads.
    pub file_pages: &'static [FilePage],
}

/// A section of terms and their meanings.
#[derive(Debug)]
pub struct List {
    /// In capitals.
    pub heading: &'static str,
    /// Terms and their meanings.
    pub entries: &'static [(&'static str, &'static str)],
}

/// The page of a file, in section 5: the file itself, which explains its keys by comments.
#[derive(Debug)]
pub struct FilePage {
    /// Without its folder.
    pub name: &'static str,
    /// For the NAME line.
    pub about: &'static str,
    /// A paragraph before the file.
    pub description: &'static str,
    /// The file.
    pub text: &'static str,
    /// Path where the file is, and its meaning.
    pub files: &'static [(&'static str, &'static str)],
    /// Other pages, each with its section.
    pub see_also: &'static [(&'static str, &'static str)],
}

impl Program {
    /// Exit codes in one line, for `--help`.
    pub fn exit_codes_line(&self) -> String {
        let codes = self.exit_codes.iter();
        let codes: Vec<String> = codes.map(|(code, text)| format!("{code} {text}")).collect();
        format!("Exit codes: {}.", codes.join("; "))
    }
}
