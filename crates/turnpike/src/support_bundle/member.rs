//! Files of a bundle, as they were had.

/// Octets of a file, at most.
pub(super) const LIMIT: usize = 16 << 20;
/// Octets of all files together, at most, before they are compressed.
pub(super) const TOTAL: usize = 64 << 20;

/// How identities and secrets are found in a file, and which end of it counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The beginning counts.
    Text,
    /// Keys with values, such as TOML or a unit of systemd: the beginning counts.
    Keys,
    /// The end counts, and long numbers are identities.
    Log,
    /// Members of objects that are named like identities or secrets are.
    Json,
}

/// A file of the bundle.
#[derive(Debug)]
pub(super) struct Member {
    /// Path within the bundle.
    pub(super) name: String,
    /// One line.
    pub(super) about: &'static str,
    /// Command, file or request that it came from.
    pub(super) source: String,
    pub(super) kind: Kind,
    /// Octets, or why there are none.
    pub(super) content: Result<Vec<u8>, String>,
    /// Reservation about the content.
    pub(super) note: Option<String>,
}

/// Keep the end that counts, of whole lines, and say how much there was. What has no line that fits is left out.
pub(super) fn cut(kind: Kind, content: &mut Vec<u8>, limit: usize) -> Option<String> {
    let len = content.len();
    if len <= limit {
        return None;
    }
    let end = if kind == Kind::Log {
        let tail = &content[len - limit..];
        // The octet before decides whether the tail begins with a line.
        let whole = content[len - limit - 1] == b'\n';
        let skip = match tail.iter().position(|&octet| octet == b'\n') {
            _ if whole => 0,
            Some(at) => at + 1,
            None => limit,
        };
        content.drain(..len - limit + skip);
        "end"
    } else {
        let whole = content[..limit].iter().rposition(|&octet| octet == b'\n');
        content.truncate(whole.map_or(0, |at| at + 1));
        "beginning"
    };
    Some(format!("cut: the {end}, of {len} octets"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_stay_whole_and_the_end_that_counts_stays() {
        let cut_to = |kind, limit| {
            let mut content = b"first\nsecond\nthird\n".to_vec();
            let note = cut(kind, &mut content, limit);
            (String::from_utf8(content).unwrap(), note.is_some())
        };
        for (kind, limit, left) in [
            (Kind::Text, 19, "first\nsecond\nthird\n"),
            (Kind::Text, 18, "first\nsecond\n"),
            (Kind::Text, 5, ""),
            (Kind::Log, 18, "second\nthird\n"),
            (Kind::Log, 13, "second\nthird\n"),
            (Kind::Log, 12, "third\n"),
            (Kind::Log, 0, ""),
        ] {
            let expected = (left.to_owned(), limit < 19);
            assert_eq!(cut_to(kind, limit), expected, "{kind:?} {limit}");
        }
    }
}
