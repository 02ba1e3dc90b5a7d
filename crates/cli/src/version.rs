//! Identity of a build.

/// Release, the same for all programs.
pub const RELEASE: &str = env!("CARGO_PKG_VERSION");

/// Commit that was built; none where nobody said it.
///
/// A variable that the Makefile and the packaging set for the compiler. A build script would have to ask git, which a source
/// tarball does not have, and would compile and link anew after each commit.
pub const COMMIT: Option<&str> = match option_env!("TURNPIKE_COMMIT") {
    Some(commit) if !commit.is_empty() => Some(commit),
    _ => None,
};

/// Release and commit for `--version`; with the data paths that were built, in the daemon.
pub fn version(datapaths: &[&str]) -> String {
    text(COMMIT, datapaths)
}

fn text(commit: Option<&str>, datapaths: &[&str]) -> String {
    let commit = commit.unwrap_or("unknown");
    let datapaths = match datapaths {
        [] => String::new(),
        names => format!(", data paths {}", names.join(", ")),
    };
    format!("{RELEASE} (commit {commit}{datapaths})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn release_commit_and_data_paths() {
        let parts = |text: String| text.replacen(RELEASE, "R", 1);
        assert_eq!(
            parts(text(Some("dfe7be88a1b2"), &["xdp", "kernel"])),
            "R (commit dfe7be88a1b2, data paths xdp, kernel)"
        );
        assert_eq!(
            parts(text(Some("dfe7be88a1b2"), &[])),
            "R (commit dfe7be88a1b2)"
        );
        assert_eq!(parts(text(None, &[])), "R (commit unknown)");
    }

    #[test]
    fn an_empty_commit_is_none() {
        assert_ne!(COMMIT, Some(""));
    }
}
