//! The page of each code: what it means, and what to do. Written in `docs/problems`, one file per code.

use rust_embed::RustEmbed;

use super::Code;

#[derive(RustEmbed)]
#[folder = "../../docs/problems"]
struct Pages;

/// The page's text, as it stands in the file.
fn markdown(code: Code) -> Option<String> {
    let file = Pages::get(&format!("{}.md", code.as_str()))?;
    String::from_utf8(file.data.into_owned()).ok()
}

/// The page as HTML, without the frame that all pages share.
pub(crate) fn html(code: Code) -> Option<String> {
    let text = markdown(code)?;
    let mut html = String::with_capacity(text.len() * 2);
    pulldown_cmark::html::push_html(&mut html, pulldown_cmark::Parser::new(&text));
    Some(html)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_page_that_names_it_and_no_page_is_left_over() {
        for code in Code::ALL {
            let text =
                markdown(*code).unwrap_or_else(|| panic!("docs/problems/{}.md is missing", code.as_str()));
            let heading = format!("# {}\n", code.title());
            assert!(text.starts_with(&heading), "{} must start with its title", code.as_str());
            let line = format!("`{}`, status {}", code.as_str(), code.status().as_u16());
            assert!(text.contains(&line), "{} must say: {line}", code.as_str());
            let again = if code.is_retryable() { "may succeed later" } else { "will not succeed" };
            assert!(text.contains(again), "{} must say whether a repetition {again}", code.as_str());
        }
        let known: Vec<String> = Code::ALL.iter().map(|code| format!("{}.md", code.as_str())).collect();
        let stray: Vec<_> = Pages::iter().filter(|name| !known.contains(&name.to_string())).collect();
        assert!(stray.is_empty(), "{stray:?}");
    }
}
