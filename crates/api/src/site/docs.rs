//! The API's document as a page that needs no script and no other host.

use std::fmt::Write as _;

use serde_json::Value;

use super::escape;

/// The whole page's content. Whatever is missing in the document is left out.
pub(crate) fn html(document: &Value) -> String {
    let mut page = String::with_capacity(64 * 1024);
    let text = |pointer: &str| document.pointer(pointer).and_then(Value::as_str).unwrap_or_default();
    push(&mut page, "h1", text("/info/title"));
    for paragraph in text("/info/description").split("\n\n") {
        push(&mut page, "p", paragraph);
    }
    page.push_str("<p><a href=\"/openapi.json\">openapi.json</a></p>\n<nav><ul>\n");
    for operation in operations(document) {
        let (id, title) = (escape(operation.id), escape(operation.text("summary")));
        let _ = writeln!(page, "<li><a href=\"#{id}\">{title}</a></li>");
    }
    page.push_str("</ul></nav>\n");
    for operation in operations(document) {
        operation.write(&mut page, document);
    }
    push(&mut page, "h2", "Shapes");
    for (name, schema) in
        document.pointer("/components/schemas").and_then(Value::as_object).into_iter().flatten()
    {
        let _ = writeln!(page, "<section id=\"shape-{0}\"><h3>{0}</h3>", escape(name));
        push(&mut page, "p", str_of(schema, "description"));
        members(&mut page, schema);
        page.push_str("</section>\n");
    }
    page
}

struct Operation<'a> {
    method: &'a str,
    path: &'a str,
    id: &'a str,
    value: &'a Value,
}

fn operations(document: &Value) -> impl Iterator<Item = Operation<'_>> {
    let paths = document.pointer("/paths").and_then(Value::as_object).into_iter().flatten();
    paths.flat_map(|(path, item)| {
        item.as_object().into_iter().flatten().filter_map(move |(method, value)| {
            Some(Operation { method, path, id: value.get("operationId")?.as_str()?, value })
        })
    })
}

impl Operation<'_> {
    fn text(&self, member: &str) -> &str {
        str_of(self.value, member)
    }

    fn write(&self, page: &mut String, document: &Value) {
        let (method, path) = (self.method.to_uppercase(), escape(self.path));
        let (id, title) = (escape(self.id), escape(self.text("summary")));
        let _ = writeln!(page, "<section id=\"{id}\"><h2>{title}</h2>\n<p><code>{method} {path}</code></p>");
        for paragraph in self.text("description").split("\n\n").filter(|text| !text.is_empty()) {
            push(page, "p", paragraph);
        }
        self.parameters(page);
        if let Some(schema) = self.value.pointer("/requestBody/content/application~1json/schema") {
            let _ = writeln!(page, "<h3>Body</h3><p>{}</p>", shape(schema));
        }
        self.answers(page, document);
        page.push_str("</section>\n");
    }

    fn parameters(&self, page: &mut String) {
        let Some(parameters) = self.value.get("parameters").and_then(Value::as_array) else { return };
        page.push_str("<h3>Parameters</h3><table><tr><th>Name<th>In<th>Type<th>\n");
        for parameter in parameters {
            let _ = writeln!(
                page,
                "<tr><td><code>{}</code><td>{}<td>{}<td>{}",
                escape(str_of(parameter, "name")),
                escape(str_of(parameter, "in")),
                parameter.get("schema").map(shape).unwrap_or_default(),
                escape(str_of(parameter, "description")),
            );
        }
        page.push_str("</table>\n");
    }

    fn answers(&self, page: &mut String, document: &Value) {
        page.push_str("<h3>Answers</h3><table><tr><th>Status<th>Body<th>\n");
        for (status, response) in self.value.get("responses").and_then(Value::as_object).into_iter().flatten()
        {
            let response = follow(response, document);
            let content = response.get("content").and_then(Value::as_object);
            let body =
                content.and_then(|content| content.values().next()).and_then(|media| media.get("schema"));
            let _ = writeln!(
                page,
                "<tr><td>{}<td>{}<td>{}",
                escape(status),
                body.map(shape).unwrap_or_default(),
                escape(str_of(response, "description")),
            );
        }
        page.push_str("</table>\n");
    }
}

/// Where a reference leads, or the value itself.
fn follow<'a>(value: &'a Value, document: &'a Value) -> &'a Value {
    let pointer = value.get("$ref").and_then(Value::as_str).and_then(|reference| reference.strip_prefix('#'));
    pointer.and_then(|pointer| document.pointer(pointer)).unwrap_or(value)
}

fn members(page: &mut String, schema: &Value) {
    let Some(properties) = schema.get("properties").and_then(Value::as_object) else { return };
    page.push_str("<table><tr><th>Member<th>Type<th>\n");
    for (name, property) in properties {
        let _ = writeln!(
            page,
            "<tr><td><code>{}</code><td>{}<td>{}",
            escape(name),
            shape(property),
            escape(str_of(property, "description")),
        );
    }
    page.push_str("</table>\n");
}

/// A schema in a few words, with a link where it has a name.
fn shape(schema: &Value) -> String {
    if let Some(name) = schema.get("$ref").and_then(Value::as_str).and_then(|path| path.rsplit('/').next()) {
        return format!("<a href=\"#shape-{0}\">{0}</a>", escape(name));
    }
    for combined in ["oneOf", "anyOf", "allOf"] {
        if let Some(parts) = schema.get(combined).and_then(Value::as_array) {
            return parts.iter().map(shape).collect::<Vec<_>>().join(" or ");
        }
    }
    if let Some(items) = schema.get("items") {
        return format!("list of {}", shape(items));
    }
    match schema.get("type") {
        Some(Value::String(kind)) => escape(kind),
        Some(Value::Array(kinds)) => {
            kinds.iter().filter_map(Value::as_str).map(escape).collect::<Vec<_>>().join(" or ")
        }
        _ => String::new(),
    }
}

fn str_of<'a>(value: &'a Value, member: &str) -> &'a str {
    value.get(member).and_then(Value::as_str).unwrap_or_default()
}

fn push(page: &mut String, tag: &str, text: &str) {
    if !text.is_empty() {
        let _ = writeln!(page, "<{tag}>{}</{tag}>", escape(text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_route_and_shape_is_on_the_page() {
        let document: Value = serde_json::from_str(&crate::openapi::document_text()).unwrap();
        let page = html(&document);
        for operation in operations(&document) {
            assert!(page.contains(&format!("id=\"{}\"", operation.id)), "{}", operation.id);
        }
        for name in document.pointer("/components/schemas").unwrap().as_object().unwrap().keys() {
            assert!(page.contains(&format!("id=\"shape-{name}\"")), "{name}");
        }
        assert!(!page.contains("<script"));
    }
}
