//! Rules for text that people send: what a store cannot keep, and what only looks like text.
//!
//! Text is stored as it was sent. The rules here only look: they trim and skip for counting, never for keeping.

/// Why a text is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TextFault {
    /// It contains U+0000, which PostgreSQL cannot store.
    #[error("must not contain the character U+0000")]
    Nul,
    /// Nothing of it can be seen.
    #[error("must not be empty")]
    Blank,
    /// It has more characters than allowed.
    #[error("must have at most {max} characters")]
    TooLong {
        /// The most Unicode scalar values, counted after trimming.
        max: usize,
    },
}

/// Checks a text that must say something: 1 to `max` Unicode scalar values after trimming white space, at least
/// one of them visible.
///
/// # Errors
/// The first rule that it breaks.
pub fn check(text: &str, max: usize) -> Result<(), TextFault> {
    check_optional(text, max)?;
    if text.chars().any(is_visible) { Ok(()) } else { Err(TextFault::Blank) }
}

/// Checks a text that may be empty: at most `max` Unicode scalar values after trimming white space.
///
/// # Errors
/// The first rule that it breaks.
pub fn check_optional(text: &str, max: usize) -> Result<(), TextFault> {
    if text.as_bytes().contains(&0) {
        return Err(TextFault::Nul);
    }
    // A scalar value is one byte at least: most texts need not be counted.
    if text.len() > max && text.trim().chars().count() > max {
        return Err(TextFault::TooLong { max });
    }
    Ok(())
}

/// Whether a reader could see the character: neither white space, nor control, nor one of those that Unicode
/// calls default ignorable (zero-width and formatting characters, variation selectors, tags).
fn is_visible(c: char) -> bool {
    const IGNORABLE: &[(char, char)] = &[
        ('\u{00AD}', '\u{00AD}'),
        ('\u{034F}', '\u{034F}'),
        ('\u{061C}', '\u{061C}'),
        ('\u{115F}', '\u{1160}'),
        ('\u{17B4}', '\u{17B5}'),
        ('\u{180B}', '\u{180F}'),
        ('\u{200B}', '\u{200F}'),
        ('\u{202A}', '\u{202E}'),
        ('\u{2060}', '\u{206F}'),
        ('\u{3164}', '\u{3164}'),
        ('\u{FE00}', '\u{FE0F}'),
        ('\u{FEFF}', '\u{FEFF}'),
        ('\u{FFA0}', '\u{FFA0}'),
        ('\u{FFF0}', '\u{FFF8}'),
        ('\u{1BCA0}', '\u{1BCA3}'),
        ('\u{1D173}', '\u{1D17A}'),
        ('\u{E0000}', '\u{E0FFF}'),
    ];
    let ignorable = || IGNORABLE.iter().any(|(first, last)| (*first..=*last).contains(&c));
    c.is_ascii_graphic() || !(c.is_whitespace() || c.is_control() || ignorable())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_seen_is_empty() {
        for text in ["", "  \n", "\u{200B}\u{FEFF}\u{2060}", "\u{00AD}", "\u{E0041}", "\u{3164}"] {
            assert_eq!(check(text, 10), Err(TextFault::Blank), "{text:?}");
        }
    }

    #[test]
    fn real_text_of_any_script_passes() {
        for text in ["a", "مرحبا\u{200F}", "👩\u{200D}👩\u{200D}👧", "e\u{301}", "soft\u{AD}hyphen"]
        {
            assert_eq!(check(text, 20), Ok(()), "{text:?}");
        }
    }

    #[test]
    fn length_is_counted_in_scalar_values_after_trimming() {
        let four_bytes = "🎬".repeat(4_000);
        assert_eq!(check(&four_bytes, 4_000), Ok(()));
        assert_eq!(check(&format!("  {four_bytes}\n"), 4_000), Ok(()));
        assert_eq!(check(&format!("{four_bytes}🎬"), 4_000), Err(TextFault::TooLong { max: 4_000 }));
    }

    #[test]
    fn a_nul_is_named_before_anything_else() {
        assert_eq!(check("a\0b", 1), Err(TextFault::Nul));
        assert_eq!(check_optional("", 1), Ok(()));
    }
}
