//! The Range header, as far as a video player uses it: one range of bytes.

use std::ops::Range;

use http::{HeaderMap, HeaderValue, header};

/// What part of a file is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Asked {
    /// All of it: no range, one that we don't serve (several, other units), or one whose condition doesn't hold.
    Whole,
    /// These bytes.
    Part(Range<u64>),
    /// Bytes that the file doesn't have.
    Outside,
}

/// Reads Range, and If-Range against the file's (strong) tag.
pub(super) fn asked(headers: &HeaderMap, size: u64, etag: &HeaderValue) -> Asked {
    let mut ranges = headers.get_all(header::RANGE).iter();
    let (Some(range), None) = (ranges.next(), ranges.next()) else { return Asked::Whole };
    // A date here would need a modification time, and a weak tag can't be compared: both mean "send it whole".
    if headers.get(header::IF_RANGE).is_some_and(|tag| tag != etag) {
        return Asked::Whole;
    }
    let spec = range.to_str().ok().and_then(|text| text.trim().strip_prefix("bytes="));
    let Some((first, last)) = spec.and_then(|spec| spec.trim().split_once('-')) else { return Asked::Whole };
    let (first, last) = (first.trim(), last.trim());
    if first.is_empty() {
        return suffix(last, size);
    }
    let Some(first) = number(first) else { return Asked::Whole };
    let end = match last {
        "" => size,
        _ => match number(last) {
            Some(last) if last >= first => last.saturating_add(1).min(size),
            _ => return Asked::Whole,
        },
    };
    if first >= size { Asked::Outside } else { Asked::Part(first..end) }
}

/// `-n`: the last n bytes.
fn suffix(length: &str, size: u64) -> Asked {
    match number(length) {
        None => Asked::Whole,
        Some(0) => Asked::Outside,
        Some(length) => Asked::Part(size.saturating_sub(length)..size),
    }
}

/// Digits only; a number too large for us lies behind every file.
fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ETAG: HeaderValue = HeaderValue::from_static("\"abc\"");

    fn part(range: &str) -> Asked {
        let headers = HeaderMap::from_iter([(header::RANGE, HeaderValue::from_str(range).unwrap())]);
        asked(&headers, 100, &ETAG)
    }

    #[test]
    fn one_range_of_bytes() {
        assert_eq!(part("bytes=0-"), Asked::Part(0..100));
        assert_eq!(part("bytes=0-0"), Asked::Part(0..1));
        assert_eq!(part("bytes=10-19"), Asked::Part(10..20));
        assert_eq!(part("bytes=90-1000"), Asked::Part(90..100));
        assert_eq!(part("bytes=-5"), Asked::Part(95..100));
        assert_eq!(part("bytes=-500"), Asked::Part(0..100));
        assert_eq!(part("bytes=99-99999999999999999999999"), Asked::Part(99..100));
    }

    #[test]
    fn bytes_that_are_not_there() {
        for range in ["bytes=100-", "bytes=100-200", "bytes=-0", "bytes=99999999999999999999999-"] {
            assert_eq!(part(range), Asked::Outside, "{range}");
        }
    }

    #[test]
    fn anything_else_is_ignored() {
        for range in [
            "bytes=",
            "bytes=5",
            "bytes=a-b",
            "bytes=+1-2",
            "bytes=9-1",
            "bytes=0-1,5-6",
            "items=0-1",
            "bytes=-",
        ] {
            assert_eq!(part(range), Asked::Whole, "{range}");
        }
        assert_eq!(asked(&HeaderMap::new(), 100, &ETAG), Asked::Whole);
    }

    #[test]
    fn a_part_of_another_version_is_never_sent() {
        let with = |tag: &'static str| {
            let headers = HeaderMap::from_iter([
                (header::RANGE, HeaderValue::from_static("bytes=1-2")),
                (header::IF_RANGE, HeaderValue::from_static(tag)),
            ]);
            asked(&headers, 100, &ETAG)
        };
        assert_eq!(with("\"abc\""), Asked::Part(1..3));
        assert_eq!(with("\"abd\""), Asked::Whole);
        assert_eq!(with("W/\"abc\""), Asked::Whole);
        assert_eq!(with("Wed, 21 Oct 2015 07:28:00 GMT"), Asked::Whole);
    }
}
