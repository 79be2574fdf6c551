//! Recordings of callers' requests, cheap enough for a million a second, that survive a killed process: a file mapped
//! into memory, which the kernel keeps.
//!
//! A caller counts a request as admitted by recording it, with one aligned store of one word. So there are no torn
//! records, and no admitted request is lost with a killed process.
//!
//! The file has one track of equal length per caller. A track: its start time, how many answers did not come from the
//! store, then a word per request up to the first zero.

#![allow(dead_code, unreachable_pub)] // Each user takes a part.

use std::fs::OpenOptions;
use std::io;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::auditor::Request;

/// A word, from the top: microseconds from the start of the track until sending (more than two hours), from there to
/// the answer (four seconds), the cost (never 0), and whether it was admitted.
const COST_BITS: u32 = 8;
const TOOK_BITS: u32 = 22;
const HEADER: usize = 2;

/// A file of tracks, mapped.
pub struct Recording {
    words: *const AtomicU64,
    tracks: usize,
    track_words: usize,
}

// SAFETY: the words are atomics, and the mapping stays until the drop.
unsafe impl Send for Recording {}
// SAFETY: as above.
unsafe impl Sync for Recording {}

impl Recording {
    /// Creates a file. It is sparse: room for requests that never come costs nothing.
    pub fn create(path: &Path, tracks: usize, requests_per_track: usize) -> io::Result<Recording> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path)?;
        let track_words = HEADER + requests_per_track;
        file.set_len((tracks * track_words * size_of::<u64>()) as u64)?;
        Recording::map(&file, tracks, track_words)
    }

    /// Opens a file, possibly of a process that is gone.
    pub fn open(path: &Path, tracks: usize) -> io::Result<Recording> {
        let file = OpenOptions::new().read(true).write(true).open(path)?;
        let words = file.metadata()?.len() as usize / size_of::<u64>();
        Recording::map(&file, tracks, words / tracks)
    }

    fn map(file: &std::fs::File, tracks: usize, track_words: usize) -> io::Result<Recording> {
        let bytes = tracks * track_words * size_of::<u64>();
        // SAFETY: a fresh mapping of a file of that length, at an address that the kernel chooses.
        let start = unsafe {
            let access = libc::PROT_READ | libc::PROT_WRITE;
            libc::mmap(std::ptr::null_mut(), bytes, access, libc::MAP_SHARED, file.as_raw_fd(), 0)
        };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Recording { words: start.cast(), tracks, track_words })
    }

    fn track(&self, track: usize) -> &[AtomicU64] {
        assert!(track < self.tracks, "track {track} of {}", self.tracks);
        // SAFETY: within the mapping, page-aligned, and every bit pattern is a valid number.
        unsafe { std::slice::from_raw_parts(self.words.add(track * self.track_words), self.track_words) }
    }

    /// The writer of one caller, the only one for this track.
    pub fn pen(&self, track: usize, begins_us: u64) -> Pen<'_> {
        let words = self.track(track);
        words[0].store(begins_us, Relaxed);
        Pen { words, begins_us, next: HEADER }
    }

    /// Appends all requests of all tracks, and returns how many answers did not come from the store.
    pub fn read(&self, requests: &mut Vec<Request>) -> u64 {
        let mut unavailable = 0;
        for track in 0..self.tracks {
            let words = self.track(track);
            let begins_us = words[0].load(Relaxed);
            unavailable += words[1].load(Relaxed);
            let written = words[HEADER..].iter().map(|word| word.load(Relaxed)).take_while(|word| *word != 0);
            requests.extend(written.map(|word| unpack(word, begins_us)));
        }
        unavailable
    }
}

impl Drop for Recording {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length, and no reference outlives self.
        unsafe { libc::munmap(self.words.cast_mut().cast(), self.tracks * self.track_words * size_of::<u64>()) };
    }
}

pub struct Pen<'r> {
    words: &'r [AtomicU64],
    begins_us: u64,
    next: usize,
}

impl Pen<'_> {
    pub fn write(&mut self, request: Request) {
        assert!(self.next < self.words.len(), "the recording is full; give the tracks more room");
        self.words[self.next].store(pack(request, self.begins_us), Relaxed);
        self.next += 1;
    }

    pub fn count_unavailable(&mut self) {
        self.words[1].fetch_add(1, Relaxed);
    }
}

fn pack(request: Request, begins_us: u64) -> u64 {
    let Request { asked_us, answered_us, cost, admitted } = request;
    let took_us = answered_us.checked_sub(asked_us).expect("the clock was set back meanwhile; try again");
    let since_us = asked_us.checked_sub(begins_us).expect("asked before the track begins");
    assert!(took_us < 1 << TOOK_BITS, "an answer took {took_us} us, more than a record can tell");
    assert!(since_us < 1 << (63 - TOOK_BITS - COST_BITS), "{since_us} us is longer than a track can be");
    assert!((1..1 << COST_BITS).contains(&cost), "a record has no room for a cost of {cost}");
    (((since_us << TOOK_BITS | took_us) << COST_BITS) | u64::from(cost)) << 1 | u64::from(admitted)
}

fn unpack(word: u64, begins_us: u64) -> Request {
    let cost = (word >> 1) & ((1 << COST_BITS) - 1);
    let took_us = (word >> (1 + COST_BITS)) & ((1 << TOOK_BITS) - 1);
    let asked_us = begins_us + (word >> (1 + COST_BITS + TOOK_BITS));
    Request { asked_us, answered_us: asked_us + took_us, cost: cost as u32, admitted: word & 1 == 1 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_shows_what_was_written() {
        let begins_us = 1_700_000_000_000_000;
        for (since_us, took_us, cost, admitted) in
            [(0, 0, 1, true), ((1 << 33) - 1, (1 << 22) - 1, 255, false), (7, 3, 2, true)]
        {
            let asked_us = begins_us + since_us;
            let request = Request { asked_us, answered_us: asked_us + took_us, cost, admitted };
            assert_eq!(unpack(pack(request, begins_us), begins_us), request);
        }
    }
}
