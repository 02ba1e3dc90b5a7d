//! Answers of other programs, within bounds of time and size.

use std::io::Read;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use super::member::{Kind, LIMIT, Member};

/// Time for one program.
const PATIENCE: Duration = Duration::from_secs(10);
const PAUSE: Duration = Duration::from_millis(5);
/// Its words, once it has ended.
const FAREWELL: Duration = Duration::from_secs(1);
/// Octets of an error that are told.
const REASON: usize = 300;

/// Programs of the administrator, which are not in everybody's PATH.
const SBIN: &str = "/usr/local/sbin:/usr/sbin:/sbin";

/// Questions may be asked until then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline(Instant);

impl Deadline {
    pub(super) fn after(time: Duration) -> Self {
        Self(Instant::now() + time)
    }

    pub(super) fn left(self) -> Duration {
        self.0.saturating_duration_since(Instant::now())
    }
}

/// The output of `command`, program and arguments, as a file.
pub(super) fn ask(
    (name, about, kind): (&str, &'static str, Kind),
    command: &[&str],
    deadline: Deadline,
) -> Member {
    let (content, note) = match run(command, kind, deadline) {
        Ok((content, note)) => (Ok(content), note),
        Err(reason) => (Err(reason), None),
    };
    Member {
        name: name.to_owned(),
        about,
        source: command.join(" "),
        kind,
        content,
        note,
    }
}

/// Output, and a reservation about it.
pub(super) fn run(
    command: &[&str],
    kind: Kind,
    deadline: Deadline,
) -> Result<(Vec<u8>, Option<String>), String> {
    let (program, arguments) = command.split_first().ok_or("no program")?;
    let patience = PATIENCE.min(deadline.left());
    if patience.is_zero() {
        return Err("not asked: time was up".to_owned());
    }
    let path = std::env::var("PATH").unwrap_or_default();
    let path = if path.is_empty() {
        SBIN.to_owned()
    } else {
        format!("{path}:{SBIN}")
    };
    let mut asked = Command::new(program);
    asked
        .args(arguments)
        .env("PATH", path)
        .env("LC_ALL", "C")
        .env("SYSTEMD_COLORS", "0");
    asked
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    // A signal from the terminal ends the bundle, and with it what it waits for.
    asked.process_group(0);
    let mut child = asked.spawn().map_err(|error| match error.kind() {
        std::io::ErrorKind::NotFound => format!("{program} is not installed"),
        _ => format!("{program}: {error}"),
    })?;
    let out = child.stdout.take().map(|from| read(from, kind));
    let err = child.stderr.take().map(|from| read(from, Kind::Log));
    let until = Instant::now() + patience;
    let status: Option<ExitStatus> = loop {
        match child.try_wait() {
            Ok(Some(status)) => break Some(status),
            Ok(None) if Instant::now() < until => thread::sleep(PAUSE),
            _ => break None,
        }
    };
    if status.is_none() {
        // It may have ended meanwhile.
        let _ = child.kill();
        let _ = child.wait();
    }
    // A program that it has started may hold the pipe still.
    let got = |from: Option<Receiver<Vec<u8>>>| {
        from.and_then(|from| from.recv_timeout(FAREWELL).ok())
            .unwrap_or_default()
    };
    let (out, err) = (got(out), got(err));
    let words = String::from_utf8_lossy(&err[..err.len().min(REASON)])
        .trim()
        .replace('\n', "; ");
    let trouble = match status {
        None => Some(format!("no answer within {} s", patience.as_secs().max(1))),
        Some(status) if !status.success() => Some(match words.is_empty() {
            true => status.to_string(),
            false => format!("{status}: {words}"),
        }),
        Some(_) if !words.is_empty() => Some(words),
        Some(_) => None,
    };
    match trouble {
        Some(trouble) if out.is_empty() => Err(trouble),
        note => Ok((out, note)),
    }
}

/// The end that counts of what is read, in a thread of its own.
fn read(mut from: impl Read + Send + 'static, kind: Kind) -> Receiver<Vec<u8>> {
    let (done, read) = sync_channel(1);
    thread::spawn(move || {
        let mut all = Vec::new();
        let mut buffer = vec![0; 64 << 10];
        while let Ok(len) = from.read(&mut buffer) {
            if len == 0 {
                break;
            }
            // Twice as much is kept while it comes, so that it is seldom moved; it is cut later.
            if kind == Kind::Log && all.len() > 2 * LIMIT {
                all.drain(..all.len() - LIMIT);
            }
            if kind == Kind::Log || all.len() <= LIMIT {
                all.extend_from_slice(&buffer[..len]);
            }
        }
        let _ = done.send(all);
    });
    read
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(command: &[&str]) -> Result<(String, Option<String>), String> {
        let answer = run(
            command,
            Kind::Text,
            Deadline::after(Duration::from_secs(60)),
        );
        answer.map(|(out, note)| (String::from_utf8(out).unwrap(), note))
    }

    #[test]
    fn a_program_that_is_missing_or_fails_says_so() {
        let missing = asked(&["turnpike-no-such-program"]);
        assert_eq!(
            missing,
            Err("turnpike-no-such-program is not installed".to_owned())
        );
        let failed = asked(&["sh", "-c", "echo why >&2; exit 3"]);
        assert_eq!(failed, Err("exit status: 3: why".to_owned()));
        let some = asked(&["sh", "-c", "echo some; echo why >&2; exit 3"]);
        assert_eq!(
            some,
            Ok(("some\n".to_owned(), Some("exit status: 3: why".to_owned())))
        );
    }

    #[test]
    fn a_program_that_does_not_end_is_ended() {
        let deadline = Deadline::after(Duration::from_millis(100));
        let answer = run(&["sleep", "1000"], Kind::Text, deadline);
        assert!(answer.unwrap_err().starts_with("no answer within"));
        let answer = run(&["true"], Kind::Text, Deadline::after(Duration::ZERO));
        assert_eq!(answer.unwrap_err(), "not asked: time was up");
    }

    #[test]
    fn a_program_that_talks_much_is_bounded() {
        let much = (4 * LIMIT).to_string();
        let command = ["sh", "-c", "yes | head -c \"$0\"", &much];
        for kind in [Kind::Log, Kind::Text] {
            let deadline = Deadline::after(Duration::from_secs(60));
            let (out, _) = run(&command, kind, deadline).unwrap();
            assert!(!out.is_empty() && out.len() <= 3 * LIMIT, "{kind:?}");
        }
    }
}
