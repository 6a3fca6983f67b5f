// SPDX-License-Identifier: Apache-2.0
//! Any answer as text: an object is a list of keys and values, a list of objects a table. Pure.
//!
//! A key that ends in `_ns` or `_bytes` gives its values, and those below it, their unit.

use serde_json::{Map, Value};

use super::figures;

/// What a number counts.
#[derive(Clone, Copy)]
enum Unit {
    None,
    Ns,
    Bytes,
}

impl Unit {
    /// Of a key below one of this unit.
    fn below(self, key: &str) -> Self {
        match key {
            _ if key.ends_with("_ns") => Self::Ns,
            _ if key.ends_with("_bytes") => Self::Bytes,
            _ => self,
        }
    }
}

/// The text of an answer.
pub(super) fn render(answer: &Value) -> String {
    let mut text = String::new();
    match answer {
        Value::Object(keys) => object(&mut text, keys, 0, Unit::None),
        Value::Array(entries) => list(&mut text, entries, 0, Unit::None),
        other => text.push_str(&(cell(other, Unit::None) + "\n")),
    }
    text
}

fn indented(text: &mut String, depth: usize, line: &str) {
    text.push_str(&" ".repeat(2 * depth));
    text.push_str(line.trim_end());
    text.push('\n');
}

fn is_nested(value: &Value) -> bool {
    match value {
        Value::Object(keys) => !keys.is_empty(),
        Value::Array(entries) => entries.iter().any(Value::is_object),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn object(text: &mut String, keys: &Map<String, Value>, depth: usize, unit: Unit) {
    let width = keys.iter().filter(|(_, value)| !is_nested(value)).map(|(key, _)| key.len()).max().unwrap_or(0);
    for (key, value) in keys {
        let unit = unit.below(key);
        match value {
            Value::Object(keys) if keys.len() > 1 && keys.values().all(Value::is_object) => {
                indented(text, depth, key);
                list(text, &named(keys), depth + 1, unit);
            }
            Value::Object(keys) if !keys.is_empty() => {
                indented(text, depth, key);
                object(text, keys, depth + 1, unit);
            }
            Value::Array(entries) if is_nested(value) => {
                indented(text, depth, key);
                list(text, entries, depth + 1, unit);
            }
            flat => indented(text, depth, &format!("{key:width$}  {}", cell(flat, unit))),
        }
    }
}

/// Objects by name as a list of them, each with its name.
fn named(objects: &Map<String, Value>) -> Vec<Value> {
    let with_name = |(name, value): (&String, &Value)| {
        let name = (String::new(), Value::String(name.clone()));
        let keys = value.as_object().into_iter().flatten().map(|(key, value)| (key.clone(), value.clone()));
        Value::Object(std::iter::once(name).chain(keys).collect())
    };
    objects.iter().map(with_name).collect()
}

/// A table, a column for every key that an entry has.
fn list(text: &mut String, entries: &[Value], depth: usize, unit: Unit) {
    let mut columns: Vec<&String> = Vec::new();
    for key in entries.iter().filter_map(Value::as_object).flat_map(Map::keys) {
        if !columns.contains(&key) {
            columns.push(key);
        }
    }
    let head = columns.iter().map(|column| (*column).clone()).collect();
    let row = |entry: &Value| {
        columns.iter().map(|key| entry.get(*key).map_or(String::new(), |value| cell(value, unit.below(key)))).collect()
    };
    let rows: Vec<Vec<String>> = std::iter::once(head).chain(entries.iter().map(row)).collect();
    for line in table(&rows) {
        indented(text, depth, &line);
    }
}

/// Rows with their columns under each other; what holds numbers only stands to the right.
pub(super) fn table(rows: &[Vec<String>]) -> Vec<String> {
    let columns = rows.first().map_or(0, Vec::len);
    let of = |column: usize| rows.iter().map(move |row| row.get(column).map_or("", String::as_str));
    let widths: Vec<usize> =
        (0..columns).map(|column| of(column).map(|cell| cell.chars().count()).max().unwrap_or(0)).collect();
    let starts_with_digit = |cell: &str| cell.is_empty() || cell.starts_with(|first: char| first.is_ascii_digit());
    let right: Vec<bool> = (0..columns).map(|column| of(column).skip(1).all(starts_with_digit)).collect();
    let line = |row: &Vec<String>| {
        let cells =
            row.iter().zip(&widths).zip(&right).map(|((cell, width), right)| {
                if *right { format!("{cell:>width$}") } else { format!("{cell:width$}") }
            });
        cells.collect::<Vec<_>>().join("  ").trim_end().to_owned()
    };
    rows.iter().map(line).collect()
}

fn cell(value: &Value, unit: Unit) -> String {
    match (value, unit) {
        (Value::Null, _) => "-".to_owned(),
        (Value::Bool(yes), _) => if *yes { "yes" } else { "no" }.to_owned(),
        (Value::Number(number), Unit::Ns) => number.as_u64().map_or_else(|| number.to_string(), figures::time),
        (Value::Number(number), Unit::Bytes) => number.as_u64().map_or_else(|| number.to_string(), figures::size),
        (Value::Number(number), Unit::None) => number.to_string(),
        // A text of the guest's or of a file must not steer the terminal.
        (Value::String(text), _) if text.is_empty() => "-".to_owned(),
        (Value::String(text), _) => text.chars().map(|one| if one.is_control() { ' ' } else { one }).collect(),
        (Value::Array(entries), _) if entries.is_empty() => "none".to_owned(),
        (Value::Array(entries), _) => entries.iter().map(|entry| cell(entry, unit)).collect::<Vec<_>>().join(", "),
        (Value::Object(keys), _) if keys.is_empty() => "none".to_owned(),
        (Value::Object(keys), _) => {
            let pairs = keys.iter().map(|(key, value)| format!("{key}={}", cell(value, unit.below(key))));
            pairs.collect::<Vec<_>>().join(" ")
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_and_values_stand_under_each_other_with_their_units() {
        let text =
            render(&json!({"state": "running", "memory_bytes": 1024, "ledger_ns": {"guest": 1500}, "rules": []}));
        assert_eq!(
            text,
            "ledger_ns\n  guest  1.5 us\nmemory_bytes  1.0 KiB\nrules         none\nstate         running\n"
        );
    }

    #[test]
    fn a_list_of_objects_is_a_table() {
        let text =
            render(&json!({"plan": [{"vcpu": 0, "rule": "numa"}, {"vcpu": 10, "runner_up": {"cpu": 1, "score": -1}}]}));
        assert_eq!(text, "plan\n  rule  vcpu  runner_up\n  numa     0\n          10  cpu=1 score=-1\n");
    }

    #[test]
    fn objects_by_name_are_a_table_too() {
        let text = render(&json!({"parameters": {"a_ns": {"granted": 5}, "b": {"granted": 70}}}));
        assert_eq!(text, "parameters\n        granted\n  a_ns        5\n  b          70\n");
    }

    #[test]
    fn a_text_does_not_steer_the_terminal() {
        assert_eq!(render(&json!("a\u{1b}[2Jb\n")), "a [2Jb \n");
    }
}
