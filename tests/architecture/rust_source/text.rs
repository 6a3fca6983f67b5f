// SPDX-License-Identifier: Apache-2.0
//! Blanks what is not production code: comments, literals, items under `#[cfg(test)]`.
//!
//! Invariant: the result has the same line breaks as the input.

const TEST_ATTRIBUTE: &str = "#[cfg(test)]";

/// `text` with comments, strings and characters turned to spaces.
pub(super) fn without_comments_and_literals(text: &str) -> String {
    let mut code = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        let skipped = comment(rest).or_else(|| raw_string(rest)).or_else(|| string(rest)).or_else(|| character(rest));
        match skipped {
            Some(len) => {
                code.extend(rest[..len].chars().map(blank));
                rest = &rest[len..];
            }
            // A whole word at once, so that the `r` at the end of one does not start a raw string.
            None => {
                let word = rest.len() - rest.trim_start_matches(|c: char| c.is_alphanumeric() || c == '_').len();
                let len = word.max(next.len_utf8());
                code.push_str(&rest[..len]);
                rest = &rest[len..];
            }
        }
    }
    code
}

/// `code` (already without literals) with every item under `#[cfg(test)]` blanked.
pub(super) fn without_tests(code: &str) -> String {
    let mut kept = String::with_capacity(code.len());
    let mut rest = code;
    while let Some(at) = rest.find(TEST_ATTRIBUTE) {
        kept.push_str(&rest[..at]);
        let end = at + item_len(&rest[at..]);
        kept.extend(rest[at..end].chars().map(blank));
        rest = &rest[end..];
    }
    kept + rest
}

/// The 0-based line at which a module or item of tests that runs to the end of the file begins.
pub(super) fn first_test(text: &str) -> Option<usize> {
    let code = without_comments_and_literals(text);
    let production = without_tests(&code);
    let lines = production.trim_end().lines().count();
    code.contains(TEST_ATTRIBUTE).then_some(lines)
}

fn blank(character: char) -> char {
    if character == '\n' { '\n' } else { ' ' }
}

/// Length of the item at the start of `code`, attributes included: up to its `;` or its closing brace.
fn item_len(code: &str) -> usize {
    let mut depth = 0_usize;
    for (at, character) in code.char_indices() {
        match character {
            '{' | '(' | '[' => depth += 1,
            '}' | ')' | ']' => {
                depth = depth.saturating_sub(1);
                if depth == 0 && character == '}' {
                    return at + 1;
                }
            }
            ';' if depth == 0 => return at + 1,
            _ => {}
        }
    }
    code.len()
}

fn comment(text: &str) -> Option<usize> {
    if text.starts_with("//") {
        return Some(text.find('\n').unwrap_or(text.len()));
    }
    if !text.starts_with("/*") {
        return None;
    }
    let mut depth = 0_usize;
    let mut at = 0;
    while at < text.len() {
        let here = &text.as_bytes()[at..];
        if here.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if here.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return Some(at);
            }
        } else {
            at += 1;
        }
    }
    Some(text.len())
}

fn raw_string(text: &str) -> Option<usize> {
    let prefix = ["br", "cr", "r"].into_iter().find(|prefix| text.starts_with(prefix))?;
    let hashes = text[prefix.len()..].bytes().take_while(|byte| *byte == b'#').count();
    let open = prefix.len() + hashes;
    if text.as_bytes().get(open) != Some(&b'"') {
        return None;
    }
    let close = format!("\"{}", "#".repeat(hashes));
    let body = &text[open + 1..];
    Some(body.find(&close).map_or(text.len(), |at| open + 1 + at + close.len()))
}

fn string(text: &str) -> Option<usize> {
    let open = ["b\"", "c\"", "\""].into_iter().find(|open| text.starts_with(open))?.len();
    let mut escaped = false;
    for (at, byte) in text.bytes().enumerate().skip(open) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return Some(at + 1),
            _ => {}
        }
    }
    Some(text.len())
}

/// A character literal; a lifetime has no closing quote right behind its first character.
fn character(text: &str) -> Option<usize> {
    let open = ["b'", "'"].into_iter().find(|open| text.starts_with(open))?.len();
    let first = text[open..].chars().next()?;
    if first == '\\' {
        let escaped = open + 1 + text[open + 1..].chars().next()?.len_utf8();
        return text[escaped..].find('\'').map(|at| escaped + at + 1);
    }
    let close = open + first.len_utf8();
    text[close..].starts_with('\'').then_some(close + 1)
}
