//! The file: whole, or not there.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use flate2::Compression;
use flate2::write::GzEncoder;
use tar::{Builder, Header};

/// Under another name until it is whole; removed when dropped before.
pub(super) struct Unfinished {
    file: File,
    path: PathBuf,
    target: PathBuf,
}

impl Unfinished {
    /// For this user alone.
    pub(super) fn create(target: &Path) -> io::Result<Self> {
        // A device or a pipe would be replaced by a file.
        if fs::metadata(target).is_ok_and(|is| !is.is_file()) {
            return Err(io::Error::other("is there, and is no file"));
        }
        let Some(name) = target.file_name() else {
            return Err(io::ErrorKind::InvalidFilename.into());
        };
        let unfinished = format!(".{}.{}", name.display(), std::process::id());
        let path = target.with_file_name(unfinished);
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?;
        Ok(Self {
            file,
            path,
            target: target.to_owned(),
        })
    }

    /// Files below `folder`, in this order. The file has its name once the disk has it.
    pub(super) fn finish(mut self, folder: &str, files: &[(&str, &[u8])]) -> io::Result<()> {
        let gzip = GzEncoder::new(io::BufWriter::new(&self.file), Compression::default());
        let mut archive = Builder::new(gzip);
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        for (name, content) in files {
            let mut header = Header::new_gnu();
            header.set_size(content.len() as u64);
            header.set_mode(0o600);
            header.set_mtime(now.as_secs());
            archive.append_data(&mut header, format!("{folder}/{name}"), *content)?;
        }
        archive.into_inner()?.finish()?.flush()?;
        self.file.sync_all()?;
        fs::rename(&self.path, &self.target)?;
        // Nothing is left to be removed.
        self.path = PathBuf::new();
        let folder = self
            .target
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty());
        // Not every file system takes it for folders; the file itself is safe.
        let _ = File::open(folder.unwrap_or(Path::new("."))).and_then(|folder| folder.sync_all());
        Ok(())
    }
}

impl Drop for Unfinished {
    fn drop(&mut self) {
        if !self.path.as_os_str().is_empty() {
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_bundle_is_whole_or_not_there() {
        let folder = std::env::temp_dir().join(format!("turnpike-archive-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let names = || {
            let entries = fs::read_dir(&folder).unwrap();
            entries
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect::<Vec<_>>()
        };
        let target = folder.join("b.tar.gz");
        drop(Unfinished::create(&target).unwrap());
        assert!(names().is_empty());
        let long = format!("{}/long", "x".repeat(150));
        let files: [(&str, &[u8]); 2] = [("CONTENTS.md", b"first"), (&long, b"second")];
        Unfinished::create(&target)
            .unwrap()
            .finish("b", &files)
            .unwrap();
        assert_eq!(names(), ["b.tar.gz"]);
        assert_eq!(
            fs::metadata(&target).unwrap().permissions().mode() & 0o7777,
            0o600
        );
        let mut read = Vec::new();
        let gzip = flate2::read::GzDecoder::new(File::open(&target).unwrap());
        for entry in tar::Archive::new(gzip).entries().unwrap() {
            let mut entry = entry.unwrap();
            let mut text = String::new();
            entry.read_to_string(&mut text).unwrap();
            read.push((entry.path().unwrap().display().to_string(), text));
        }
        let expected = [
            ("b/CONTENTS.md".to_owned(), "first".to_owned()),
            (format!("b/{long}"), "second".to_owned()),
        ];
        assert_eq!(read, expected);
        assert!(Unfinished::create(&folder).is_err(), "a folder is no file");
        fs::remove_dir_all(&folder).unwrap();
    }
}
