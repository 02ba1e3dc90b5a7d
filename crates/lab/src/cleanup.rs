//! Namespaces, processes and files of the lab on the machine, and their removal: on drop, on panic, on a signal, by a guardian
//! when the process was killed, and by `lab clean` where even that was.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{ChildStdin, Command, Stdio};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Directories of running labs: configuration, logs and captures, one folder per world.
pub const RUN_DIR: &str = "/run/turnpike-lab";
/// What a world's folder may have mounted in it: under which name, of which type, with which options.
const MOUNTS: [(&str, &str, &str); 3] = [
    ("bpffs", "bpf", ""),
    // As most hosts have /run.
    ("small-pages", "tmpfs", "huge=never"),
    // As the package has `state.dir`.
    ("huge-pages", "tmpfs", "huge=within_size"),
];
/// Time within which a process that was killed is gone, and between two looks.
const ENDED: Duration = Duration::from_secs(5);
const LOOK: Duration = Duration::from_millis(2);
/// In the environment of all processes that a lab starts: its process id.
pub const OWNER: &str = "TURNPIKE_LAB_OWNER";

/// Things that one world has made. Names that are not a world's belong to the world of no name.
#[derive(Default)]
struct Made {
    namespaces: BTreeSet<String>,
    children: BTreeSet<u32>,
    folders: BTreeSet<PathBuf>,
}

static REGISTRY: Mutex<BTreeMap<String, Made>> = Mutex::new(BTreeMap::new());

fn registry() -> MutexGuard<'static, BTreeMap<String, Made>> {
    guard();
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The world in a name that this lab gave, such as `tp4711w0` of `tp4711w0-upf`.
fn world_of(name: &str) -> &str {
    owner_of(name)
        .and_then(|_| name.split('-').next())
        .unwrap_or_default()
}

fn in_world<T>(name: &str, work: impl FnOnce(&mut Made) -> T) -> T {
    work(registry().entry(world_of(name).to_owned()).or_default())
}

/// Remembers a namespace until [`forget_namespace`].
pub fn add_namespace(name: &str) {
    in_world(name, |made| made.namespaces.insert(name.to_owned()));
}

/// The namespace is gone.
pub fn forget_namespace(name: &str) {
    in_world(name, |made| made.namespaces.remove(name));
}

/// Remembers a child process, in a namespace of a world or in none, until [`forget_child`].
pub fn add_child(namespace: &str, pid: u32) {
    in_world(namespace, |made| made.children.insert(pid));
}

/// The child was waited for.
pub fn forget_child(namespace: &str, pid: u32) {
    in_world(namespace, |made| made.children.remove(&pid));
}

/// Remembers a folder to remove.
pub fn add_folder(path: &Path) {
    in_world(&name_of(path), |made| made.folders.insert(path.to_owned()));
    if let Some(mut guardian) = guard() {
        let _ = writeln!(guardian, "{}", path.display());
    }
}

/// The folder was removed.
pub fn forget_folder(path: &Path) {
    in_world(&name_of(path), |made| made.folders.remove(path));
}

fn name_of(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// Removes all that this process made.
pub fn sweep() {
    for (_, made) in std::mem::take(&mut *registry()) {
        remove(made);
    }
}

/// Removes all that one world has made so far; `name` is that of anything in it.
pub fn sweep_world(name: &str) {
    let made = registry().remove(world_of(name));
    made.into_iter().for_each(remove);
}

/// Children first, because a process keeps its namespace alive.
fn remove(made: Made) {
    for pid in made.children {
        let _ = kill(Pid::from_raw(pid.cast_signed()), Signal::SIGKILL);
    }
    for name in made.namespaces {
        kill_inside(&name);
        remove_namespace(&name);
    }
    for folder in made.folders {
        remove_folder(&folder);
    }
}

/// Mounts what a configuration wants in a world's folder, unless it is there: it says `{folder}/bpffs`. It goes with the folder.
pub fn mount_wanted(folder: &Path, toml: &str) -> Result<()> {
    for (name, of_type, options) in MOUNTS {
        let at = folder.join(name);
        if !toml.contains(&format!("{{folder}}/{name}")) || at.is_dir() {
            continue;
        }
        fs::create_dir(&at)?;
        let mut mount = Command::new("mount");
        mount.args(["-t", of_type, "-o", options, of_type]).arg(&at);
        let mounted = mount.output()?;
        ensure!(mounted.status.success(), "mount -t {of_type}: {mounted:?}");
    }
    Ok(())
}

/// Removes a folder, and what is mounted in it.
pub fn remove_folder(folder: &Path) {
    for (name, ..) in MOUNTS {
        let at = folder.join(name);
        if at.is_dir() {
            let _ = Command::new("umount").arg("-l").arg(at).output();
        }
    }
    let _ = fs::remove_dir_all(folder);
}

/// The process that removes what this one has made, should it be killed: started when first there is something. It is
/// no child of the lab's to wait for; it ends when this process has ended.
fn guard() -> Option<&'static ChildStdin> {
    static GUARDIAN: OnceLock<Option<ChildStdin>> = OnceLock::new();
    let start = || {
        let pid = std::process::id().to_string();
        // In a session of its own: what is killed with our group or terminal is not the guardian.
        let mut command = Command::new("setsid");
        command.args(["sh", "-c", include_str!("guardian.sh"), "guardian", &pid]);
        command.env_remove(OWNER).current_dir("/");
        command
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        // Our end of the pipe is closed in all other children.
        command.spawn().ok()?.stdin.take()
    };
    GUARDIAN.get_or_init(start).as_ref()
}

/// On SIGINT, SIGTERM or SIGHUP: clean up, then end as that signal would have ended us.
pub fn on_signals() -> Result<()> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let mut signals = signal_hook::iterator::Signals::new([SIGINT, SIGTERM, SIGHUP])
        .context("signal handlers")?;
    thread::Builder::new()
        .name("signals".to_owned())
        .spawn(move || {
            if let Some(signal) = signals.forever().next() {
                eprintln!("lab: signal {signal}: cleaning up");
                sweep();
                disclaim();
                std::process::exit(128 + signal);
            }
        })?;
    Ok(())
}

fn remove_namespace(name: &str) {
    let _ = Command::new("ip").args(["netns", "del", name]).output();
}

/// When process `pid` started, in clock ticks after boot: tells it from a later process of that id.
fn start_time(pid: u32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The command name may hold spaces; fields count from the parenthesis that closes it.
    let after_name = &stat[stat.rfind(')')? + 1..];
    after_name.split_whitespace().nth(19).map(str::to_owned)
}

fn owner_file(pid: u32) -> PathBuf {
    Path::new(RUN_DIR).join(format!("{pid}.owner"))
}

/// Notes that this process owns all that carries its id, for a later `lab clean`.
pub fn claim() -> Result<()> {
    guard().context("sh and setsid, for the guardian")?;
    fs::create_dir_all(RUN_DIR).context(RUN_DIR)?;
    let pid = std::process::id();
    let started = start_time(pid).context("own start time")?;
    fs::write(owner_file(pid), started).context("owner file")
}

/// Withdraws [`claim`].
pub fn disclaim() {
    let _ = fs::remove_file(owner_file(std::process::id()));
}

/// The owner's process id in a name that this lab gave, such as `tp4711w0-upf`.
fn owner_of(name: &str) -> Option<u32> {
    let digits = name.strip_prefix("tp")?;
    let (pid, world) = digits.split_once('w')?;
    let (number, _role) = world.split_once('-')?;
    number.parse::<u32>().ok()?;
    pid.parse().ok()
}

fn owner_lives(pid: u32) -> bool {
    let claimed = fs::read_to_string(owner_file(pid)).ok();
    claimed.is_some() && claimed == start_time(pid)
}

fn names_in(directory: &str) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries
        .filter_map(|e| e.file_name().into_string().ok())
        .collect()
}

/// Removes what labs left whose process is gone. Returns how many namespaces went.
pub fn clean() -> usize {
    let mut removed = 0;
    for name in names_in("/run/netns") {
        let Some(pid) = owner_of(&name) else { continue };
        if owner_lives(pid) {
            continue;
        }
        kill_inside(&name);
        remove_namespace(&name);
        removed += 1;
    }
    for name in names_in(RUN_DIR) {
        let path = Path::new(RUN_DIR).join(&name);
        let owner = name.strip_suffix(".owner").and_then(|pid| pid.parse().ok());
        match owner.or_else(|| owner_of(&name)) {
            Some(pid) if owner_lives(pid) => {}
            Some(_) if path.is_dir() => remove_folder(&path),
            Some(_) => drop(fs::remove_file(path)),
            None => {}
        }
    }
    removed
}

/// Ends what runs in a namespace.
pub fn kill_inside(namespace: &str) {
    let Ok(output) = Command::new("ip")
        .args(["netns", "pids", namespace])
        .output()
    else {
        return;
    };
    let pids = String::from_utf8_lossy(&output.stdout);
    let pids: Vec<i32> = (pids.split_whitespace().filter_map(|pid| pid.parse().ok())).collect();
    for pid in &pids {
        let _ = kill(Pid::from_raw(*pid), Signal::SIGKILL);
    }
    // Those that are no children of the lab's, such as workers of a UPF that is gone, have memory to give back.
    let until = Instant::now() + ENDED;
    while pids.iter().any(|pid| has_memory(*pid)) && Instant::now() < until {
        thread::sleep(LOOK);
    }
}

/// Whether a process is still there, if only to end.
fn has_memory(pid: i32) -> bool {
    fs::read(format!("/proc/{pid}/environ")).is_ok_and(|environment| !environment.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owner_is_read_from_names_of_ours_only() {
        assert_eq!(owner_of("tp4711w0-upf"), Some(4711));
        assert_eq!(owner_of("tp12w3-ue1"), Some(12));
        for other in [
            "default",
            "tp",
            "tpw0-upf",
            "tp1-upf",
            "tp1wx-upf",
            "xtp1w0-upf",
        ] {
            assert_eq!(owner_of(other), None, "{other}");
        }
    }

    #[test]
    fn one_world_is_swept_and_others_stay() {
        let pid = std::process::id();
        let [one, other] = [1_000_001, 1_000_002].map(|world| {
            let folder = std::env::temp_dir().join(format!("tp{pid}w{world}-files"));
            fs::create_dir_all(&folder).ok();
            add_folder(&folder);
            folder
        });
        sweep_world(&name_of(&one));
        assert!(!one.exists() && other.exists());
        sweep_world(&name_of(&other));
        assert!(!other.exists());
    }

    #[test]
    fn our_own_start_time_is_known_and_steady() {
        let started = start_time(std::process::id());
        assert!(started.is_some());
        assert_eq!(started, start_time(std::process::id()));
    }
}
