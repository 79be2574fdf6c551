//! Where logs come from: files, patterns of files and standard input, plain or compressed with gzip or zstd. What a file is compressed with
//! is recognised by its first bytes, not by its name.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Cursor, Read};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

/// A log to read.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Source {
    /// Standard input.
    Stdin,
    /// A file and its size in bytes.
    File {
        /// Where it is.
        path: PathBuf,
        /// As it is on disk.
        size: u64,
    },
}

/// An argument that names no log.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// No file.
    #[error("{0}: {1}")]
    Unreadable(String, io::Error),
    /// A pattern that no file matches.
    #[error("{0}: no file matches this pattern")]
    NoMatch(String),
    /// A pattern that cannot be understood.
    #[error("{0}: {1}")]
    BadPattern(String, glob::PatternError),
    /// A folder.
    #[error("{0} is a folder; write {0}/* for the files in it")]
    Folder(String),
}

impl Source {
    /// The logs that arguments name: files, patterns (`/var/log/nginx/access.log*`), and `-` for standard input. Each file is read once.
    pub fn named(arguments: &[String]) -> Result<Vec<Source>, SourceError> {
        let mut sources = Vec::new();
        for argument in arguments {
            if argument == "-" {
                sources.push(Source::Stdin);
                continue;
            }
            let path = Path::new(argument);
            if path.exists() || !argument.contains(['*', '?', '[']) {
                sources.push(Source::file(path)?);
                continue;
            }
            let matches = glob::glob(argument).map_err(|error| SourceError::BadPattern(argument.clone(), error))?;
            let mut files: Vec<PathBuf> = matches.filter_map(Result::ok).filter(|path| path.is_file()).collect();
            if files.is_empty() {
                return Err(SourceError::NoMatch(argument.clone()));
            }
            files.sort();
            for path in files {
                sources.push(Source::file(&path)?);
            }
        }
        let mut seen = HashSet::new();
        sources.retain(|source| match source {
            Source::Stdin => seen.insert(PathBuf::from("-")),
            Source::File { path, .. } => seen.insert(path.canonicalize().unwrap_or_else(|_| path.clone())),
        });
        Ok(sources)
    }

    fn file(path: &Path) -> Result<Source, SourceError> {
        let name = path.display().to_string();
        let metadata = path.metadata().map_err(|error| SourceError::Unreadable(name.clone(), error))?;
        if metadata.is_dir() {
            return Err(SourceError::Folder(name));
        }
        Ok(Source::File { path: path.to_owned(), size: metadata.len() })
    }

    /// How it is shown to people.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Source::Stdin => "standard input".to_owned(),
            Source::File { path, .. } => path.display().to_string(),
        }
    }

    /// Its size in bytes, if it has one.
    #[must_use]
    pub fn size(&self) -> Option<u64> {
        match self {
            Source::Stdin => None,
            Source::File { size, .. } => self.can_be_read_again().then_some(*size),
        }
    }

    /// Not standard input, nor a pipe, such as `<(zcat access.log.gz)` in a shell.
    pub(crate) fn can_be_read_again(&self) -> bool {
        matches!(self, Source::File { path, .. } if path.is_file())
    }

    /// Opens it; `read` grows by the bytes that were read from it, compressed as they are.
    pub(crate) fn open(&self, read: Arc<AtomicU64>) -> io::Result<Box<dyn Read + Send>> {
        match self {
            Source::Stdin => unpacked(Counted { inner: io::stdin(), read }),
            Source::File { path, .. } => unpacked(Counted { inner: File::open(path)?, read }),
        }
    }
}

/// Counts bytes on their way.
struct Counted<R> {
    inner: R,
    read: Arc<AtomicU64>,
}

impl<R: Read> Read for Counted<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.read.fetch_add(count as u64, Ordering::Relaxed);
        Ok(count)
    }
}

const GZIP: [u8; 2] = [0x1f, 0x8b];
const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];

pub(crate) fn unpacked(mut reader: impl Read + Send + 'static) -> io::Result<Box<dyn Read + Send>> {
    let mut start = Vec::new();
    reader.by_ref().take(ZSTD.len() as u64).read_to_end(&mut start)?;
    let (gzip, zstd) = (start.starts_with(&GZIP), start.starts_with(&ZSTD));
    let whole = Cursor::new(start).chain(reader);
    Ok(match (gzip, zstd) {
        (true, _) => Box::new(flate2::bufread::MultiGzDecoder::new(BufReader::with_capacity(1 << 16, whole))),
        (_, true) => Box::new(Frames {
            reader: BufReader::with_capacity(1 << 16, whole),
            decoder: FrameDecoder::new(),
            is_within: false,
        }),
        _ => Box::new(whole),
    })
}

/// A zstd file: frames one after the other, some of which hold nothing for us.
struct Frames<R> {
    reader: R,
    decoder: FrameDecoder,
    is_within: bool,
}

impl<R: BufRead> Read for Frames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            if !self.is_within && !self.next_frame()? {
                return Ok(0);
            }
            while self.decoder.can_collect() < buffer.len() && !self.decoder.is_finished() {
                let missing = buffer.len() - self.decoder.can_collect();
                let blocks = self.decoder.decode_blocks(&mut self.reader, BlockDecodingStrategy::UptoBytes(missing));
                if let Err(error) = blocks {
                    return Err(self.damaged(&error));
                }
            }
            match self.decoder.read(buffer)? {
                0 => self.is_within = false,
                count => return Ok(count),
            }
        }
    }
}

impl<R: BufRead> Frames<R> {
    fn damaged(&mut self, error: &FrameDecoderError) -> io::Error {
        match self.reader.fill_buf() {
            Ok([]) => io::Error::new(io::ErrorKind::UnexpectedEof, "incomplete zstd stream"),
            _ => io::Error::new(io::ErrorKind::InvalidData, format!("damaged zstd stream ({error})")),
        }
    }

    fn next_frame(&mut self) -> io::Result<bool> {
        while !self.reader.fill_buf()?.is_empty() {
            match self.decoder.init(&mut self.reader) {
                Ok(()) => {
                    self.is_within = true;
                    return Ok(true);
                }
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame { length, .. })) => {
                    io::copy(&mut self.reader.by_ref().take(length.into()), &mut io::sink())?;
                }
                Err(error) => return Err(self.damaged(&error)),
            }
        }
        Ok(false)
    }
}
