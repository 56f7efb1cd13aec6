//! Query parameters, strictly: each known parameter at most once, and nothing else.

use std::{fmt::Display, str::FromStr};

use axum::extract::FromRequestParts;
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use http::request::Parts;

use crate::problem::{FieldError, Problem};

/// Items of a page unless the client says otherwise, and at most.
pub(crate) const LIMIT_DEFAULT: u16 = 20;
pub(crate) const LIMIT_MAX: u16 = 100;

/// The query string, taken apart. Routes take their parameters out by name; what is left then is unknown.
#[derive(Debug)]
pub(crate) struct Params {
    pairs: Vec<(String, String)>,
    errors: Vec<FieldError>,
}

impl Params {
    fn parse(query: &str) -> Result<Self, Problem> {
        let pairs: Vec<_> = url::form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        // The decoder replaces what isn't UTF-8; that would be a value that nobody sent.
        if pairs.iter().any(|(name, value)| name.contains('\u{FFFD}') || value.contains('\u{FFFD}')) {
            return Err(Problem::malformed("The query is not valid UTF-8."));
        }
        Ok(Self { pairs, errors: Vec::new() })
    }

    /// Takes a parameter out as text.
    pub(crate) fn text(&mut self, name: &'static str) -> Option<String> {
        let (found, rest): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.pairs).into_iter().partition(|(key, _)| key == name);
        self.pairs = rest;
        if found.len() > 1 {
            self.errors.push(FieldError::new(name, "duplicate", "may be given only once"));
        }
        found.into_iter().next().map(|(_, value)| value)
    }

    /// Takes a parameter out and parses it.
    pub(crate) fn take<T: FromStr>(&mut self, name: &'static str) -> Result<Option<T>, Problem>
    where
        T::Err: Display,
    {
        let Some(text) = self.text(name) else { return Ok(None) };
        text.parse()
            .map(Some)
            .map_err(|error: T::Err| Problem::malformed(format!("`{name}` can't be read: {error}.")))
    }

    /// Takes a whole number out that must lie in a range.
    pub(crate) fn number(
        &mut self,
        name: &'static str,
        range: std::ops::RangeInclusive<u64>,
    ) -> Result<Option<u64>, Problem> {
        let number = self.take::<u64>(name)?;
        if number.is_some_and(|number| !range.contains(&number)) {
            let message = format!("must be from {} to {}", range.start(), range.end());
            self.errors.push(FieldError::new(name, "out_of_range", message));
        }
        Ok(number)
    }

    /// Takes a list out whose items are separated by commas.
    pub(crate) fn list<T: FromStr>(&mut self, name: &'static str) -> Result<Option<Vec<T>>, Problem>
    where
        T::Err: Display,
    {
        let Some(text) = self.text(name) else { return Ok(None) };
        let items: Result<Vec<T>, _> = text.split(',').map(str::parse).collect();
        items.map(Some).map_err(|error| Problem::malformed(format!("`{name}` can't be read: {error}.")))
    }

    /// Takes the size of a page out.
    pub(crate) fn limit(&mut self, default: u16) -> Result<u16, Problem> {
        let limit = self.number("limit", 1..=u64::from(LIMIT_MAX))?;
        Ok(limit.and_then(|limit| u16::try_from(limit).ok()).unwrap_or(default))
    }

    /// Notes that a parameter's value is not acceptable.
    pub(crate) fn refuse(&mut self, name: &'static str, code: &'static str, message: impl Into<String>) {
        self.errors.push(FieldError::new(name, code, message));
    }

    fn finish(mut self) -> Result<(), Problem> {
        for (name, _) in self.pairs {
            self.errors.push(FieldError::new(name, "unknown", "is not a parameter of this route"));
        }
        if self.errors.is_empty() { Ok(()) } else { Err(Problem::invalid(self.errors)) }
    }
}

/// The parameters of one route.
pub(crate) trait QueryParams: Sized {
    /// Takes every parameter that the route knows.
    fn take(params: &mut Params) -> Result<Self, Problem>;
}

/// Extracts a route's parameters, refusing those that it doesn't know.
#[derive(Debug)]
pub(crate) struct ParamsOf<T>(pub(crate) T);

impl<T: QueryParams, S: Send + Sync> FromRequestParts<S> for ParamsOf<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Problem> {
        parse(parts.uri.query().unwrap_or_default()).map(Self)
    }
}

fn parse<T: QueryParams>(query: &str) -> Result<T, Problem> {
    let mut params = Params::parse(query)?;
    let taken = T::take(&mut params)?;
    params.finish()?;
    Ok(taken)
}

/// Where a page begins in a list that is ordered by its ids: behind this one. Opaque to clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IdCursor<T>(pub(crate) T);

/// A text that is no cursor of ours.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("not a cursor that this list has given out")]
pub(crate) struct BadCursor;

impl<T: Display> Display for IdCursor<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&URL_SAFE_NO_PAD.encode(self.0.to_string()))
    }
}

impl<T: FromStr> FromStr for IdCursor<T> {
    type Err = BadCursor;

    fn from_str(text: &str) -> Result<Self, BadCursor> {
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|_| BadCursor)?;
        let id = std::str::from_utf8(&bytes).map_err(|_| BadCursor)?;
        id.parse().map(Self).map_err(|_| BadCursor)
    }
}

/// The parameters of a list that has no filters.
#[derive(Debug)]
pub(crate) struct PageOf<T> {
    pub(crate) after: Option<T>,
    pub(crate) limit: u16,
}

impl<T: FromStr> QueryParams for PageOf<T> {
    fn take(params: &mut Params) -> Result<Self, Problem> {
        let after = params.take::<IdCursor<T>>("cursor")?.map(|cursor| cursor.0);
        Ok(Self { after, limit: params.limit(LIMIT_DEFAULT)? })
    }
}

/// A route without parameters.
#[derive(Debug)]
pub(crate) struct NoParams;

impl<S: Send + Sync> FromRequestParts<S> for NoParams {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Problem> {
        match parts.uri.query() {
            None | Some("") => Ok(Self),
            Some(query) => Params::parse(query)?.finish().map(|()| Self),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::problem::Code;

    #[derive(Debug, PartialEq)]
    struct Wait(Option<u64>);

    impl QueryParams for Wait {
        fn take(params: &mut Params) -> Result<Self, Problem> {
            params.number("wait", 0..=25).map(Self)
        }
    }

    #[test]
    fn known_once_and_in_range_or_refused() {
        assert_eq!(parse::<Wait>("").unwrap(), Wait(None));
        assert_eq!(parse::<Wait>("wait=25").unwrap(), Wait(Some(25)));
        for (query, code) in [
            ("wait=26", Code::ValidationFailed),
            ("wait=1&wait=1", Code::ValidationFailed),
            ("wait=1&Wait=1", Code::ValidationFailed),
            ("colour=red", Code::ValidationFailed),
            ("wait=soon", Code::MalformedRequest),
            ("wait=-1", Code::MalformedRequest),
            ("wait=", Code::MalformedRequest),
            ("wait=%ff", Code::MalformedRequest),
            ("%ff=1", Code::MalformedRequest),
        ] {
            assert_eq!(parse::<Wait>(query).unwrap_err().code(), code, "{query}");
        }
    }

    #[test]
    fn every_bad_parameter_is_named() {
        let problem = parse::<Wait>("wait=99&a=1&b=2").unwrap_err();
        insta::assert_json_snapshot!(problem.body("req_1", chrono::DateTime::UNIX_EPOCH));
    }
}
