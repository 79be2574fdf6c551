//! Which trace a request belongs to: W3C's `traceparent`, and the sampling decision.

use http::{HeaderMap, HeaderName};
use tollkeeper::{Keyed, Quota};

pub(super) const TRACEPARENT: HeaderName = HeaderName::from_static("traceparent");

/// A span's position in a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Context {
    pub(super) trace: [u8; 16],
    pub(super) span: [u8; 8],
}

impl Context {
    /// A new span, in an existing trace or a new one.
    pub(super) fn new(trace: Option<[u8; 16]>) -> Context {
        Context { trace: trace.unwrap_or_else(random), span: random() }
    }
}

/// IDs are not secret, so a constant will do if the system has no random numbers.
fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [1; N];
    let _ = getrandom::fill(&mut bytes);
    bytes
}

/// The caller's trace context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Parent {
    context: Context,
    is_sampled: bool,
}

fn parent(headers: &HeaderMap) -> Option<Parent> {
    let mut lines = headers.get_all(TRACEPARENT).iter();
    let (line, None) = (lines.next()?.to_str().ok()?, lines.next()) else { return None };
    let bytes = line.as_bytes();
    let is_hex = |part: &str| part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    // A later version may append more.
    let fits = bytes.len() == 55 || (bytes.len() > 55 && bytes[55] == b'-' && !line.starts_with("00"));
    if !line.is_ascii() || !fits || [2, 35, 52].iter().any(|dash| bytes[*dash] != b'-') {
        return None;
    }
    let parts @ [version, trace, span, flags] = [&line[..2], &line[3..35], &line[36..52], &line[53..55]];
    if version == "ff" || !parts.into_iter().all(is_hex) {
        return None;
    }
    let trace = u128::from_str_radix(trace, 16).ok().filter(|id| *id != 0)?.to_be_bytes();
    let span = u64::from_str_radix(span, 16).ok().filter(|id| *id != 0)?.to_be_bytes();
    let is_sampled = u8::from_str_radix(flags, 16).ok()? & 1 == 1;
    Some(Parent { context: Context { trace, span }, is_sampled })
}

/// Sampling: as the caller has decided, otherwise a share of the requests.
#[derive(Debug)]
pub(super) struct Sampler {
    /// A new trace is sampled if the last eight bytes of its ID are below this.
    below: u64,
    /// The rate limit on traces that callers ask for: a client could ask for every request.
    asked: Keyed,
}

impl Sampler {
    const MOST_ASKED_PER_SECOND: u32 = 200;

    pub(super) fn new(share: f64) -> anyhow::Result<Sampler> {
        let below = if share >= 1.0 { u64::MAX } else { (share.max(0.0) * u64::MAX as f64) as u64 };
        Ok(Sampler { below, asked: tollkeeper::keyed(Quota::per_second(Self::MOST_ASKED_PER_SECOND))? })
    }

    /// The span of a request and its parent, if it is sampled.
    pub(super) fn decide(&self, headers: &HeaderMap) -> Option<(Context, Option<[u8; 8]>)> {
        match parent(headers) {
            Some(Parent { is_sampled: false, .. }) => None,
            Some(Parent { context, .. }) => {
                let may = self.asked.check(&()).is_allowed();
                may.then(|| (Context::new(Some(context.trace)), Some(context.span)))
            }
            None if self.below == 0 => None,
            None => {
                let context = Context::new(None);
                let last = u64::from_be_bytes(context.trace[8..].try_into().expect("eight bytes"));
                (last <= self.below).then_some((context, None))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn headers(value: &str) -> HeaderMap {
        HeaderMap::from_iter([(TRACEPARENT, HeaderValue::from_str(value).expect("a value"))])
    }

    #[test]
    fn a_callers_trace_is_continued() {
        let found = parent(&headers(GOOD)).expect("a parent");
        assert!(found.is_sampled);
        assert_eq!(u128::from_be_bytes(found.context.trace), 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736);
        assert!(!parent(&headers(&GOOD.replace("-01", "-00"))).expect("a parent").is_sampled);
        assert!(parent(&headers(&GOOD.replacen("00", "cc", 1))).is_some(), "a later version");
        let sampler = Sampler::new(0.0).expect("a sampler");
        let (context, above) = sampler.decide(&headers(GOOD)).expect("traced");
        assert_eq!((context.trace, above), (found.context.trace, Some(found.context.span)));
        assert_ne!(context.span, found.context.span);
    }

    #[test]
    fn what_is_no_traceparent_is_as_if_absent() {
        let zero_trace = "00-00000000000000000000000000000000-00f067aa0ba902b7-01";
        let zero_span = "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01";
        let longer = format!("{GOOD}-more");
        let upper = GOOD.to_uppercase();
        let signed = GOOD.replace("00f067aa0ba902b7", "+0f067aa0ba902b7");
        let other = GOOD.replacen("00", "ff", 1);
        for bad in ["", "00", &GOOD[..54], &longer, &upper, &signed, &other, zero_trace, zero_span] {
            assert_eq!(parent(&headers(bad)), None, "{bad}");
        }
        let mut twice = headers(GOOD);
        twice.append(TRACEPARENT, HeaderValue::from_static(GOOD));
        assert_eq!(parent(&twice), None);
    }

    #[test]
    fn a_share_of_those_who_have_not_decided_is_traced() {
        let none = HeaderMap::new();
        let traced = |share: f64| {
            let sampler = Sampler::new(share).expect("a sampler");
            (0..2_000).filter(|_| sampler.decide(&none).is_some()).count()
        };
        assert_eq!((traced(0.0), traced(1.0)), (0, 2_000));
        assert!((700..1_300).contains(&traced(0.5)), "half, with room for 13 standard deviations");
    }

    #[test]
    fn clients_who_ask_for_traces_get_a_bounded_number() {
        let sampler = Sampler::new(0.0).expect("a sampler");
        let traced = (0..100_000).filter(|_| sampler.decide(&headers(GOOD)).is_some()).count();
        assert!((200..50_000).contains(&traced), "{traced}");
    }
}
