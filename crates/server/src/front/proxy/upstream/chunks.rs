//! A chunked body (RFC 9112 7.1), read from pieces of any size.

use std::io;

use bytes::{Buf as _, Bytes};

use crate::front::plain::lines::{chunk_size, field};

/// Reads a chunked body.
#[derive(Debug, Default)]
pub(super) struct Chunks {
    place: Place,
    /// The current line so far.
    line: Vec<u8>,
    /// How long all lines were that are neither sizes nor data: extensions, and trailers, which are dropped.
    dropped: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Size,
    Data(u64),
    /// The line end after a chunk.
    DataEnd,
    Trailers,
    Over,
}

impl Chunks {
    /// The most that is dropped of a body, so that none can go on for ever without any data.
    const MOST_DROPPED: usize = 64 * 1024;

    pub(super) fn is_over(&self) -> bool {
        self.place == Place::Over
    }

    /// The next piece of data; empty if more has to arrive, or at the end. What belongs to something else stays.
    pub(super) fn take(&mut self, arrived: &mut Bytes) -> io::Result<Bytes> {
        loop {
            match self.place {
                Place::Over => return Ok(Bytes::new()),
                _ if arrived.is_empty() => return Ok(Bytes::new()),
                Place::Data(left) => {
                    let here = arrived.len().min(usize::try_from(left).unwrap_or(usize::MAX));
                    let left = left - here as u64;
                    self.place = if left == 0 { Place::DataEnd } else { Place::Data(left) };
                    return Ok(arrived.split_to(here));
                }
                Place::Size | Place::DataEnd | Place::Trailers => self.read_line(arrived)?,
            }
        }
    }

    fn read_line(&mut self, arrived: &mut Bytes) -> io::Result<()> {
        let end = arrived.iter().position(|byte| *byte == b'\n');
        let here = end.unwrap_or(arrived.len());
        self.line.extend_from_slice(&arrived[..here]);
        arrived.advance(end.map_or(here, |end| end + 1));
        self.dropped += here;
        if self.dropped > Chunks::MOST_DROPPED {
            return Err(invalid());
        }
        if end.is_some() {
            self.place = self.after_line().ok_or_else(invalid)?;
            self.line.clear();
        }
        Ok(())
    }

    fn after_line(&mut self) -> Option<Place> {
        let line = self.line.strip_suffix(b"\r")?;
        Some(match self.place {
            Place::Size => {
                let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
                self.dropped -= digits + 1;
                // Some servers fill sizes up with blanks. Requests of clients are read more strictly.
                match chunk_size(trim_end(line))? {
                    0 => Place::Trailers,
                    size => Place::Data(size),
                }
            }
            Place::DataEnd if line.is_empty() => {
                self.dropped -= 1;
                Place::Size
            }
            Place::Trailers if line.is_empty() => Place::Over,
            Place::Trailers => {
                field(line)?;
                Place::Trailers
            }
            Place::DataEnd | Place::Data(_) | Place::Over => return None,
        })
    }
}

fn trim_end(line: &[u8]) -> &[u8] {
    let end = line.iter().rposition(|byte| !matches!(byte, b' ' | b'\t')).map_or(0, |last| last + 1);
    &line[..end]
}

fn invalid() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the chunks of the response are invalid")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is read, whether that was all, and what is left.
    fn read(text: &str, at_a_time: usize) -> io::Result<(String, bool, String)> {
        let (mut chunks, mut data, mut left) = (Chunks::default(), Vec::new(), Vec::new());
        for piece in text.as_bytes().chunks(at_a_time) {
            let mut arrived = Bytes::copy_from_slice(piece);
            loop {
                let taken = chunks.take(&mut arrived)?;
                if taken.is_empty() {
                    break;
                }
                data.extend_from_slice(&taken);
            }
            left.extend_from_slice(&arrived);
        }
        let text = |bytes| String::from_utf8(bytes).expect("text");
        Ok((text(data), chunks.is_over(), text(left)))
    }

    #[test]
    fn a_body_is_the_same_however_it_arrives() {
        let body = "5;name=\"value\"\r\nhello\r\n00c \t;x\r\n world and\r\n\r\n0  \r\nexpires: never\r\n\r\nHTTP/1.1";
        for at_a_time in 1..=body.len() {
            let (data, is_over, left) = read(body, at_a_time).expect("valid");
            assert_eq!((data.as_str(), is_over, left.as_str()), ("hello world and\r\n", true, "HTTP/1.1"));
        }
    }

    #[test]
    fn what_is_not_chunked_is_an_error() {
        let long = format!("1;{}\r\n", "x".repeat(Chunks::MOST_DROPPED));
        for body in [
            "\r\n",
            "x\r\n",
            "-1\r\n",
            "1 1\r\na",
            "1\na",
            "1\r\nab\r\n",
            "1\r\na\n",
            "0\r\nno colon\r\n",
            "10000000000000000\r\n",
            &long,
        ] {
            read(body, body.len()).expect_err(body);
            read(body, 1).expect_err(body);
        }
    }

    #[test]
    fn many_small_chunks_are_no_waste() {
        let body = "1\r\na\r\n".repeat(Chunks::MOST_DROPPED) + "0\r\n\r\n";
        assert_eq!(read(&body, 1000).expect("valid").0.len(), Chunks::MOST_DROPPED);
    }
}
