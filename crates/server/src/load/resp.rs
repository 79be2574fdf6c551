//! The Redis protocol, from a client's side.

use super::answer::Answer;

/// Appends a command.
pub(super) fn command<'w>(words: impl ExactSizeIterator<Item = &'w str>, out: &mut Vec<u8>) {
    out.extend(format!("*{}\r\n", words.len()).bytes());
    for word in words {
        out.extend(format!("${}\r\n{word}\r\n", word.len()).bytes());
    }
}

/// The answer at the start of these bytes and its length; `None` while it is not complete.
pub(super) fn answer(bytes: &[u8]) -> Result<Option<(Answer, usize)>, &'static str> {
    let Some(length) = length(bytes)? else { return Ok(None) };
    let answer = match bytes.first() {
        Some(b'-') => {
            let text = String::from_utf8_lossy(&bytes[1..length]).trim().to_string();
            if text.starts_with("BUSY") { Answer::Shed } else { Answer::Failed(text) }
        }
        // The first of an array says whether it was allowed.
        Some(b'*') => match line(bytes).and_then(|(_, end)| bytes.get(end..end + 2)) {
            Some(b":1") => Answer::Allowed,
            Some(b":0") => Answer::Denied,
            _ => Answer::Failed("this is not an answer to TOLLKEEPER.CHECK".into()),
        },
        _ => Answer::Failed("this is not an answer to TOLLKEEPER.CHECK".into()),
    };
    Ok(Some((answer, length)))
}

/// How long the first reply is.
fn length(bytes: &[u8]) -> Result<Option<usize>, &'static str> {
    // How many replies are still to come, of the arrays around.
    let (mut left, mut at) = (1_usize, 0);
    while left > 0 {
        let Some((text, end)) = line(&bytes[at..]) else { return Ok(None) };
        let number = || text.get(1..).and_then(|text| text.parse::<i64>().ok()).ok_or("a length is not a number");
        left -= 1;
        at += end;
        match text.as_bytes().first() {
            Some(b'+' | b'-' | b':' | b'_' | b'#') => {}
            Some(b'$') => {
                if let Ok(bytes) = usize::try_from(number()?) {
                    at += bytes + 2;
                }
            }
            Some(b'*') => left += usize::try_from(number()?).unwrap_or(0),
            _ => return Err("this is not the Redis protocol"),
        }
        if at > bytes.len() {
            return Ok(None);
        }
    }
    Ok(Some(at))
}

/// The first line, and where the next begins.
fn line(bytes: &[u8]) -> Option<(&str, usize)> {
    let end = bytes.windows(2).position(|two| two == b"\r\n")?;
    Some((std::str::from_utf8(&bytes[..end]).unwrap_or(""), end + 2))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_found_wherever_the_bytes_are_cut() {
        let whole = b"*3\r\n:1\r\n$-1\r\n*2\r\n$3\r\nper\r\n:5\r\n-BUSY later\r\n*1\r\n:0\r\n";
        for cut in 0..30 {
            assert_eq!(answer(&whole[..cut]), Ok(None), "{cut}");
        }
        let (first, end) = answer(whole).expect("valid").expect("complete");
        assert_eq!((first, end), (Answer::Allowed, 30));
        let (second, more) = answer(&whole[end..]).expect("valid").expect("complete");
        assert_eq!(second, Answer::Shed);
        assert_eq!(answer(&whole[end + more..]), Ok(Some((Answer::Denied, 8))));
        assert!(answer(b"HTTP/1.1 400\r\n").is_err());
    }
}
