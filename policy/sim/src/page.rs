// SPDX-License-Identifier: Apache-2.0
//! What pictures and pages share: their frame, and text that stays text.
//!
//! Invariant: what stands in a file ends up as text, never as markup; a page needs nothing but itself.

use std::fmt::Write as _;

/// Width of pictures in pixels.
pub(crate) const WIDTH: f64 = 640.0;

/// Text as it may stand in SVG and HTML.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

/// The beginning of a picture with its title.
pub(crate) fn open(width: f64, height: f64, title: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" font-family=\"sans-serif\" \
         font-size=\"13\">\n<text x=\"10\" y=\"18\">{}</text>\n",
        escaped(title)
    )
}

/// Pictures one below the other, each with its height, as one.
pub(crate) fn stacked(pictures: &[(f64, String)]) -> String {
    let mut text = String::new();
    let mut top = 0.0;
    for (height, picture) in pictures {
        text.push_str(&picture.replacen("<svg ", &format!("<svg y=\"{top}\" "), 1));
        top += height;
    }
    format!("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{top}\">\n{text}</svg>\n")
}

/// A page with a picture and the table that it shows, in one file without scripts or anything from elsewhere.
#[must_use]
pub fn html(title: &str, svg: &str, table: &str) -> String {
    let mut page = String::from("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
    let _ = write!(
        page,
        "<title>{0}</title>\n<style>body{{font-family:sans-serif;margin:2em}}pre{{overflow-x:auto}}</style>\n</head>\n\
         <body>\n<h1>{0}</h1>\n{svg}<pre>{1}</pre>\n</body>\n</html>\n",
        escaped(title),
        escaped(table)
    );
    page
}
