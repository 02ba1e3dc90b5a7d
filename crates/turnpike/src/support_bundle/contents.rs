//! The first file: which files there are, and what is hidden.

use std::fmt::Write;

use serde_json::{Value, json};

use super::member::Member;

pub(super) const NAME: &str = "CONTENTS.md";

const HIDDEN: &str = "\
Names such as `ue-0123456789abcdef` stand for users: for each IPv4 address, IPv6 /64, IMSI, IMEI, MSISDN and NAI one name, the same in all
files of this bundle and different in any other. They are made with a random key that was thrown away, so that nobody can tell from a name
who it is.

- `ue-…`: addresses in pools and framed routes of the configuration, those of sessions, and what is labelled as a subscriber's or a device's
  identity. In logs also numbers of 15 and 16 digits, and names with a realm (`user@realm`).
- `ip-…`: addresses of which nobody knows whose they are: users of the past that no pool has, correspondents of users, strangers.

**Not hidden**: addresses of this machine and of hosts on its links, of SMFs, gNBs, other UPFs and name servers that the configuration or turnpiked
names; pools and prefixes of networks; SEIDs, TEIDs, names of network instances, times, volumes, rates; addresses of Ethernet. A number of a
subscriber that is neither labelled nor 15 or 16 digits long is not recognized, nor is an address that is not written as one
(hexadecimal octets). Somebody who knows when a user was active may recognize it by volumes and times.

Secrets are cut out: values of keys named like token, secret, password or key, and turnpiked's token. Packets are in no file.
";

const SHOWN: &str = "\
**This bundle was made with --with-identities: addresses and numbers of users are in it as they are.**

Secrets are cut out: values of keys named like token, secret, password or key, and turnpiked's token. Packets are in no file.
";

/// As Markdown.
pub(super) fn text(made: &str, with_identities: bool, members: &[Member]) -> String {
    let mut out = format!("# Support bundle of Turnpike\n\n{made}\n\n## Files\n\n");
    out += "| File | Content | From | Octets | |\n|---|---|---|---|---|\n";
    for member in members {
        if let Ok(content) = &member.content {
            let note = member.note.as_deref().unwrap_or_default();
            // Writing to a string never fails.
            let _ = writeln!(
                out,
                "| {} | {} | `{}` | {} | {} |",
                cell(&member.name),
                member.about,
                cell(&member.source),
                content.len(),
                cell(note)
            );
        }
    }
    out += "\n## Could not be had\n\n";
    let mut missing = members
        .iter()
        .filter_map(|member| Some((member, member.content.as_ref().err()?)))
        .peekable();
    if missing.peek().is_none() {
        out += "Nothing is missing.\n";
    }
    for (member, why) in missing {
        let _ = writeln!(
            out,
            "- {} ({}; `{}`): {}",
            cell(&member.name),
            member.about,
            cell(&member.source),
            cell(why)
        );
    }
    let hidden = if with_identities { SHOWN } else { HIDDEN };
    out + "\n## Identities and secrets\n\n" + hidden
}

/// For programs.
pub(super) fn json(file: &str, members: &[Member]) -> Value {
    let members = members.iter().map(|member| {
        json!({
            "name": member.name,
            "about": member.about,
            "source": member.source,
            "bytes": member.content.as_ref().ok().map(Vec::len),
            "missing": member.content.as_ref().err(),
            "note": member.note,
        })
    });
    json!({"file": file, "members": members.collect::<Vec<_>>()})
}

/// For people, with the path at the end.
pub(super) fn list(file: &str, members: &[Member]) -> String {
    let mut out = String::new();
    for member in members {
        let (size, note) = match &member.content {
            Ok(content) => (content.len().to_string(), member.note.clone()),
            Err(why) => ("-".to_owned(), Some(why.clone())),
        };
        let note = note.map_or(String::new(), |note| format!(": {}", cell(&note)));
        let _ = writeln!(out, "{size:>10}  {}  ({}){note}", member.name, member.about);
    }
    let _ = writeln!(out, "{file}");
    out
}

fn cell(text: &str) -> String {
    text.replace(['\n', '\r'], " ").replace('|', "\\|")
}
