//! Reading the members of a request, one by one.

use std::borrow::Cow;

use catalogue::Catalogue;
use domain::{
    Priority, ProjectId,
    model::{Misfit, Model},
    task::Inputs,
    text::{self, TextFault},
};
use serde_json::value::RawValue;

use super::{
    FieldCode, FieldError, GenerationRequest, OnLimit, ParseError,
    members::{self, Member},
};

const PROMPT_CHARS_MAX: usize = 4_000;
const TAGS_MAX: usize = 10;
const TAG_CHARS_MAX: usize = 64;
const DEADLINE_SECONDS_MAX: u64 = 86_400;

impl GenerationRequest {
    /// Reads a request body.
    ///
    /// # Errors
    /// [`ParseError`], with every problem at once.
    pub fn parse(body: &[u8], catalogue: &Catalogue) -> Result<Self, ParseError> {
        let mut problems = Problems::default();
        let Some(members) = members::read(body)? else {
            problems.add("", FieldCode::WrongType, "must be an object");
            return Err(ParseError::Invalid(problems.0));
        };
        let draft = Draft::collect(&members, &mut problems);
        match draft.finish(catalogue, &mut problems) {
            Some(request) if problems.0.is_empty() => Ok(request),
            _ => Err(ParseError::Invalid(problems.0)),
        }
    }
}

#[derive(Default)]
struct Problems(Vec<FieldError>);

impl Problems {
    fn add(&mut self, field: impl Into<String>, code: FieldCode, message: impl Into<String>) {
        self.0.push(FieldError { field: field.into(), code, message: message.into() });
    }
}

/// Raw values by member; the last of doubled ones, which are a problem anyway.
#[derive(Default)]
struct Draft<'a> {
    model: Option<&'a str>,
    prompt: Option<&'a str>,
    negative_prompt: Option<&'a str>,
    duration_seconds: Option<&'a str>,
    resolution: Option<&'a str>,
    aspect_ratio: Option<&'a str>,
    seed: Option<&'a str>,
    tags: Option<&'a str>,
    project_id: Option<&'a str>,
    deadline_seconds: Option<&'a str>,
    priority: Option<&'a str>,
    on_limit: Option<&'a str>,
}

impl<'a> Draft<'a> {
    fn collect(members: &'a [Member<'a>], problems: &mut Problems) -> Self {
        let mut draft = Self::default();
        for member in members {
            let Some(name) = member.name.as_deref() else {
                problems.add("", FieldCode::NotUnicode, "a member's name is not Unicode");
                continue;
            };
            let place = match name {
                "model" => &mut draft.model,
                "prompt" => &mut draft.prompt,
                "negative_prompt" => &mut draft.negative_prompt,
                "duration_seconds" => &mut draft.duration_seconds,
                "resolution" => &mut draft.resolution,
                "aspect_ratio" => &mut draft.aspect_ratio,
                "seed" => &mut draft.seed,
                "tags" => &mut draft.tags,
                "project_id" => &mut draft.project_id,
                "deadline_seconds" => &mut draft.deadline_seconds,
                "priority" => &mut draft.priority,
                "on_limit" => &mut draft.on_limit,
                unknown => {
                    // A name is repeated to its sender; 64 characters of it are enough to recognise it.
                    let shown: String = unknown.chars().take(64).collect();
                    problems.add(shown, FieldCode::Unknown, "there is no such member");
                    continue;
                }
            };
            if place.replace(member.value).is_some() {
                problems.add(name, FieldCode::Duplicate, "must be given once");
            }
        }
        draft
    }

    fn finish(self, catalogue: &Catalogue, problems: &mut Problems) -> Option<GenerationRequest> {
        let model = required("model", self.model, problems)
            .and_then(|raw| string("model", raw, problems))
            .and_then(|name| {
                let model = name.parse().ok().and_then(|name| catalogue.model(&name));
                if model.is_none() {
                    problems.add("model", FieldCode::UnknownModel, "there is no such model");
                }
                model
            });
        let prompt = required("prompt", self.prompt, problems).and_then(|raw| {
            storable("prompt", raw, problems, |prompt| text::check(prompt, PROMPT_CHARS_MAX))
        });
        let negative_prompt = optional(self.negative_prompt).and_then(|raw| {
            let within = |prompt: &str| text::check_optional(prompt, PROMPT_CHARS_MAX);
            storable("negative_prompt", raw, problems, within)
        });
        let duration_seconds = required("duration_seconds", self.duration_seconds, problems)
            .and_then(|raw| whole("duration_seconds", raw, 1..=u64::from(u32::MAX), problems));
        let resolution = optional(self.resolution).and_then(|raw| string("resolution", raw, problems));
        let aspect_ratio = optional(self.aspect_ratio).and_then(|raw| string("aspect_ratio", raw, problems));
        let seed = optional(self.seed).and_then(|raw| whole("seed", raw, 0..=u64::from(u32::MAX), problems));
        let tags = optional(self.tags).map(|raw| tags(raw, problems)).unwrap_or_default();
        let project = optional(self.project_id).and_then(|raw| project(raw, problems));
        let deadline_seconds = optional(self.deadline_seconds)
            .and_then(|raw| whole("deadline_seconds", raw, 1..=DEADLINE_SECONDS_MAX, problems));
        let priority = optional(self.priority).map(|raw| priority(raw, problems)).unwrap_or_default();
        let on_limit = optional(self.on_limit).map(|raw| on_limit(raw, problems)).unwrap_or_default();

        let model = model?;
        let resolution =
            resolution.map_or_else(|| model.default_resolution.clone(), |resolution| resolution.into_owned());
        let aspect_ratio = aspect_ratio.map(Cow::into_owned);
        fits(&model, aspect_ratio.as_deref(), negative_prompt.as_deref(), seed, problems);
        let duration_seconds = duration_seconds?;
        let price = match model.price(duration_seconds, &resolution) {
            Ok(price) => Some(price),
            Err(misfit) => {
                let (field, code) = match misfit {
                    Misfit::Duration { .. } | Misfit::Price => ("duration_seconds", FieldCode::OutOfRange),
                    Misfit::Resolution(_) => ("resolution", FieldCode::NotSupported),
                };
                problems.add(field, code, misfit.to_string());
                None
            }
        };
        Some(GenerationRequest {
            deadline_seconds: deadline_seconds.unwrap_or(model.deadline_seconds),
            priority,
            on_limit,
            price: price?,
            inputs: Inputs {
                prompt: prompt?.into_owned(),
                negative_prompt: negative_prompt.map(Cow::into_owned),
                duration_seconds,
                resolution,
                aspect_ratio,
                seed,
                tags,
            },
            project,
            model,
        })
    }
}

/// What a model may lack.
fn fits(
    model: &Model,
    aspect_ratio: Option<&str>,
    negative_prompt: Option<&str>,
    seed: Option<u32>,
    problems: &mut Problems,
) {
    if aspect_ratio.is_some_and(|ratio| !model.aspect_ratios.iter().any(|known| known == ratio)) {
        let message = if model.aspect_ratios.is_empty() {
            "is not understood by this model".to_owned()
        } else {
            format!("must be one of {}", model.aspect_ratios.join(", "))
        };
        problems.add("aspect_ratio", FieldCode::NotSupported, message);
    }
    if negative_prompt.is_some() && !model.negative_prompt {
        problems.add("negative_prompt", FieldCode::NotSupported, "is not understood by this model");
    }
    if seed.is_some() && !model.seed {
        problems.add("seed", FieldCode::NotSupported, "is not understood by this model");
    }
}

/// The value of a member that must be there.
fn required<'a>(field: &str, raw: Option<&'a str>, problems: &mut Problems) -> Option<&'a str> {
    if raw.is_none() {
        problems.add(field, FieldCode::Required, "must be given");
    }
    raw
}

/// The value of a member that need not be there; null says the same as absence.
fn optional(raw: Option<&str>) -> Option<&str> {
    raw.filter(|raw| *raw != "null")
}

fn string<'a>(field: &str, raw: &'a str, problems: &mut Problems) -> Option<Cow<'a, str>> {
    if !raw.starts_with('"') {
        problems.add(field, FieldCode::WrongType, "must be a string");
        return None;
    }
    let text = members::string(raw);
    if text.is_none() {
        problems.add(field, FieldCode::NotUnicode, "contains half of a surrogate pair");
    }
    text
}

/// A string that will be stored.
fn storable<'a>(
    field: &str,
    raw: &'a str,
    problems: &mut Problems,
    check: impl Fn(&str) -> Result<(), TextFault>,
) -> Option<Cow<'a, str>> {
    let text = string(field, raw, problems)?;
    match check(&text) {
        Ok(()) => Some(text),
        Err(fault) => {
            let code = match fault {
                TextFault::Nul => FieldCode::ContainsNul,
                TextFault::Blank => FieldCode::Empty,
                TextFault::TooLong { .. } => FieldCode::TooLong,
            };
            problems.add(field, code, fault.to_string());
            None
        }
    }
}

/// A whole number, written as one: no fraction, no exponent, nothing that a float would round.
fn whole(
    field: &str,
    raw: &str,
    range: std::ops::RangeInclusive<u64>,
    problems: &mut Problems,
) -> Option<u32> {
    if !raw.starts_with(|first: char| first == '-' || first.is_ascii_digit()) {
        problems.add(field, FieldCode::WrongType, "must be a number");
        return None;
    }
    let number = raw.parse().ok().filter(|number| range.contains(number));
    let number = number.and_then(|number| u32::try_from(number).ok());
    if number.is_none() {
        let message = format!("must be a whole number from {} to {}", range.start(), range.end());
        problems.add(field, FieldCode::OutOfRange, message);
    }
    number
}

fn tags(raw: &str, problems: &mut Problems) -> Vec<String> {
    let Ok(items) = serde_json::from_str::<Vec<&RawValue>>(raw) else {
        problems.add("tags", FieldCode::WrongType, "must be a list of strings");
        return Vec::new();
    };
    if items.len() > TAGS_MAX {
        problems.add("tags", FieldCode::TooLong, format!("must have at most {TAGS_MAX} items"));
        return Vec::new();
    }
    let read = |(place, item): (usize, &&RawValue)| {
        let field = format!("tags[{place}]");
        storable(&field, item.get(), problems, |tag| text::check(tag, TAG_CHARS_MAX)).map(Cow::into_owned)
    };
    items.iter().enumerate().filter_map(read).collect()
}

fn project(raw: &str, problems: &mut Problems) -> Option<ProjectId> {
    let text = string("project_id", raw, problems)?;
    let id = text.parse().ok();
    if id.is_none() {
        problems.add("project_id", FieldCode::UnknownProject, "there is no such project");
    }
    id
}

fn priority(raw: &str, problems: &mut Problems) -> Priority {
    let number = whole("priority", raw, 0..=Priority::MAX.get().into(), problems);
    number.and_then(|number| u8::try_from(number).ok()?.try_into().ok()).unwrap_or_default()
}

fn on_limit(raw: &str, problems: &mut Problems) -> OnLimit {
    match string("on_limit", raw, problems).as_deref() {
        Some("queue") | None => OnLimit::Queue,
        Some("reject") => OnLimit::Reject,
        Some(_) => {
            problems.add("on_limit", FieldCode::UnknownValue, "must be queue or reject");
            OnLimit::Queue
        }
    }
}

#[cfg(test)]
mod tests {
    use catalogue::CatalogueConfig;
    use serde_json::json;

    use super::*;

    fn catalogue() -> Catalogue {
        let pool = sqlx::postgres::PgPoolOptions::new().connect_lazy("postgres://nowhere/none").unwrap();
        let mut config = CatalogueConfig::default();
        config.models[1].seed = false;
        config.models[1].aspect_ratios.clear();
        config.models[1].negative_prompt = false;
        Catalogue::new(config, pool).unwrap()
    }

    fn parse(body: &str) -> Result<GenerationRequest, ParseError> {
        GenerationRequest::parse(body.as_bytes(), &catalogue())
    }

    /// A request whose member `field` is the given raw JSON.
    fn with(field: &str, raw: &str) -> String {
        let mut members = vec![
            ("model", r#""mock-fast""#.to_owned()),
            ("prompt", r#""a cat""#.to_owned()),
            ("duration_seconds", "5".to_owned()),
        ];
        members.retain(|(name, _)| *name != field);
        members.push((field, raw.to_owned()));
        let members: Vec<_> = members.iter().map(|(name, raw)| format!("\"{name}\":{raw}")).collect();
        format!("{{{}}}", members.join(","))
    }

    fn problems(body: &str) -> Vec<(String, &'static str)> {
        match parse(body) {
            Err(ParseError::Invalid(errors)) => {
                errors.into_iter().map(|error| (error.field, error.code.as_str())).collect()
            }
            other => panic!("{body}: {other:?}"),
        }
    }

    fn one_problem(field: &str, raw: &str) -> &'static str {
        let found = problems(&with(field, raw));
        assert_eq!(found.len(), 1, "{field}: {raw}: {found:?}");
        assert_eq!(found[0].0, field, "{raw}");
        found[0].1
    }

    #[tokio::test]
    async fn a_full_request_is_taken_as_it_stands() {
        let project = ProjectId::generate();
        let body = json!({
            "model": "mock-pro", "prompt": "  a cat\n", "negative_prompt": "dogs", "duration_seconds": 10,
            "resolution": "1080p", "aspect_ratio": "16:9", "seed": 4_294_967_295_u32, "tags": ["a", "b"],
            "project_id": project, "deadline_seconds": 86_400, "priority": 9, "on_limit": "reject",
        });
        let request = parse(&body.to_string()).unwrap();
        assert_eq!(request.inputs.prompt, "  a cat\n", "stored as sent");
        assert_eq!((request.price.get(), request.deadline_seconds), (200, 86_400));
        assert_eq!((request.inputs.seed, request.project), (Some(u32::MAX), Some(project)));
        assert_eq!(request.priority, Priority::MAX);
        assert_eq!(
            (request.inputs.tags.as_slice(), request.on_limit),
            (&["a".to_owned(), "b".to_owned()][..], OnLimit::Reject)
        );
    }

    #[tokio::test]
    async fn what_is_not_given_is_defaulted() {
        let request =
            parse(r#" {"model":"mock-fast","prompt":"x","duration_seconds":1,"seed":null} "#).unwrap();
        assert_eq!((request.inputs.resolution.as_str(), request.deadline_seconds), ("720p", 1_800));
        assert_eq!((request.inputs.seed, request.inputs.aspect_ratio), (None, None));
        assert_eq!((request.on_limit, request.priority), (OnLimit::Queue, Priority::default()));
        let missing: Vec<_> =
            problems("{}").into_iter().map(|(field, code)| format!("{field} {code}")).collect();
        assert_eq!(missing, ["model required", "prompt required", "duration_seconds required"]);
    }

    #[tokio::test]
    async fn a_price_is_never_wrapped_rounded_or_negative() {
        for raw in [
            "2386094",
            "2147483647",
            "-5",
            "0",
            "0.5",
            "1e9",
            "1e400",
            "5.0000000000000001",
            "9007199254740993",
            "5.0",
            "-0",
            "11",
            "18446744073709551621",
            "1E1",
        ] {
            assert_eq!(one_problem("duration_seconds", raw), "out_of_range", "{raw}");
        }
        for raw in [r#""8""#, "true", "[5]", "{}"] {
            assert_eq!(one_problem("duration_seconds", raw), "wrong_type", "{raw}");
        }
        assert_eq!(one_problem("duration_seconds", "null"), "wrong_type");
    }

    #[tokio::test]
    async fn other_figures_have_their_ranges() {
        for (field, raw) in [
            ("seed", "-1"),
            ("seed", "4294967296"),
            ("seed", "1.5"),
            ("seed", "1e400"),
            ("deadline_seconds", "0"),
            ("deadline_seconds", "86401"),
            ("priority", "-1"),
            ("priority", "10"),
            ("priority", "266"),
            ("priority", "1.0"),
        ] {
            assert_eq!(one_problem(field, raw), "out_of_range", "{field}: {raw}");
        }
        assert_eq!(one_problem("seed", r#""7""#), "wrong_type");
        assert_eq!(one_problem("priority", r#""high""#), "wrong_type");
    }

    #[tokio::test]
    async fn doubled_and_unknown_members_are_named() {
        let twice = r#"{"model":"mock-fast","prompt":"x","duration_seconds":5,"duration_\u0073econds":500}"#;
        let found = problems(twice);
        assert!(found.contains(&("duration_seconds".to_owned(), "duplicate")), "{found:?}");
        for field in ["image_url", "webhook_url", "metadata", "Prompt", ""] {
            assert_eq!(problems(&with(field, r#"{"a":1,"a":2}"#)), [(field.to_owned(), "unknown")]);
        }
        assert_eq!(problems(&with(r"\ud800", "1")), [(String::new(), "not_unicode")]);
    }

    #[tokio::test]
    async fn text_that_cannot_be_stored_or_seen_is_refused() {
        assert_eq!(one_problem("prompt", r#""a\u0000b""#), "contains_nul");
        assert_eq!(one_problem("prompt", r#""a\ud800""#), "not_unicode");
        assert_eq!(one_problem("prompt", r#""\udc00b""#), "not_unicode");
        for blank in [r#""""#, r#"" \n ""#, r#""\u200b\ufeff\u2060""#] {
            assert_eq!(one_problem("prompt", blank), "empty");
        }
        let longest = format!("\"{}\"", "🎬".repeat(4_000));
        assert!(parse(&with("prompt", &longest)).is_ok());
        let too_long = format!("\"{}\"", "🎬".repeat(4_001));
        assert_eq!(one_problem("prompt", &too_long), "too_long");
        assert_eq!(one_problem("prompt", "7"), "wrong_type");
        assert_eq!(one_problem("negative_prompt", r#""\u0000""#), "contains_nul");
        for fine in ["مرحبا", "👩\u{200D}👩\u{200D}👧", "soft\u{AD}hyphen", "e\u{301}"] {
            let request = parse(&with("prompt", &json!(fine).to_string())).unwrap();
            assert_eq!(request.inputs.prompt, fine);
        }
    }

    #[tokio::test]
    async fn tags_are_few_short_strings() {
        assert!(parse(&with("tags", &json!(vec!["x".repeat(64); 10]).to_string())).is_ok());
        assert_eq!(one_problem("tags", &json!(vec!["x"; 11]).to_string()), "too_long");
        assert_eq!(one_problem("tags", r#""x""#), "wrong_type");
        let found = problems(&with("tags", r#"["ok", 5, "", "\u0000", "\ud800"]"#));
        let expected = [
            ("tags[1]", "wrong_type"),
            ("tags[2]", "empty"),
            ("tags[3]", "contains_nul"),
            ("tags[4]", "not_unicode"),
        ];
        assert_eq!(found, expected.map(|(field, code)| (field.to_owned(), code)));
    }

    #[tokio::test]
    async fn what_a_model_cannot_do_is_named() {
        assert_eq!(one_problem("model", r#""gpt""#), "unknown_model");
        assert_eq!(one_problem("model", r#""no such name!""#), "unknown_model");
        assert_eq!(one_problem("resolution", r#""8k""#), "not_supported");
        assert_eq!(one_problem("aspect_ratio", r#""4:3""#), "not_supported");
        assert_eq!(one_problem("project_id", r#""proj_1""#), "unknown_project");
        assert_eq!(one_problem("on_limit", r#""Queue""#), "unknown_value");
        assert_eq!(one_problem("on_limit", "true"), "wrong_type");
        let body = json!({"model": "mock-slow", "prompt": "x", "duration_seconds": 1, "seed": 1,
            "negative_prompt": "y", "aspect_ratio": "16:9"});
        let fields: Vec<_> = problems(&body.to_string()).into_iter().map(|(field, _)| field).collect();
        assert_eq!(fields, ["aspect_ratio", "negative_prompt", "seed"]);
    }

    #[tokio::test]
    async fn what_is_not_json_is_malformed() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        let deep_member = with("prompt", &deep);
        for body in [
            "",
            "{",
            "nul",
            "{\"a\":NaN}",
            "{\"a\":01}",
            "{'a':1}",
            "\u{feff}{}",
            "{} x",
            "{}{}",
            "{\"a\":1,}",
            "{\"a\":\"\n\"}",
            &deep,
            &deep_member,
        ] {
            assert!(matches!(parse(body), Err(ParseError::Malformed(_))), "{}", &body[..body.len().min(20)]);
        }
        let invalid_utf8 = GenerationRequest::parse(b"{\"prompt\":\"\xff\"}", &catalogue());
        assert!(matches!(invalid_utf8, Err(ParseError::Malformed(_))));
        for body in ["[]", "7", "null", "\"{}\""] {
            assert_eq!(problems(body), [(String::new(), "wrong_type")]);
        }
    }
}
