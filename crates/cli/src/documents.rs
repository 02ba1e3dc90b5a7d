//! Files of the package that are made from the definition of a command line.

use std::io;
use std::path::{Path, PathBuf};

use clap::Command;
use clap_complete::Shell;

use crate::man;
use crate::program::Program;

/// A file that could not be written.
#[derive(Debug, thiserror::Error)]
#[error("{}: {reason}", file.display())]
pub(crate) struct WriteError {
    file: PathBuf,
    reason: io::Error,
}

/// Shells whose completions are installed, each with its folder and the name of its file.
type CompletionFile = (Shell, &'static str, fn(&str) -> String);
const COMPLETION_FILES: [CompletionFile; 3] = [
    (Shell::Bash, "bash", str::to_owned),
    (Shell::Zsh, "zsh", |name| format!("_{name}")),
    (Shell::Fish, "fish", |name| format!("{name}.fish")),
];

/// Completions of a command line, as a script of the shell.
pub fn completions(shell: Shell, mut command: Command, name: &str) -> String {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut script);
    String::from_utf8_lossy(&script).into_owned()
}

/// Writes the manual and the completions below a folder.
pub(crate) fn write(program: &Program, command: Command, folder: &Path) -> Result<(), WriteError> {
    let failed = |file: &Path| {
        let file = file.to_owned();
        |reason| WriteError { file, reason }
    };
    for (file, text) in documents(program, command).map_err(failed(folder))? {
        let file = folder.join(file);
        let within = file.parent().unwrap_or(folder);
        std::fs::create_dir_all(within).map_err(failed(within))?;
        std::fs::write(&file, text).map_err(failed(&file))?;
    }
    Ok(())
}

/// Paths and texts of the manual and the completions, the same for the same definition.
pub fn documents(program: &Program, command: Command) -> io::Result<Vec<(PathBuf, String)>> {
    let command = command.name(program.name).bin_name(program.name);
    let pages = man::pages(program, command.clone())?.into_iter();
    let pages = pages.map(|(name, text)| (Path::new("man").join(name), text));
    let scripts = COMPLETION_FILES.map(|(shell, folder, file_name)| {
        let file = Path::new(folder).join(file_name(program.name));
        (file, completions(shell, command.clone(), program.name))
    });
    Ok(pages.chain(scripts).collect())
}

#[cfg(test)]
mod tests;
