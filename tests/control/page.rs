// SPDX-License-Identifier: Apache-2.0
//! One page of the browser: what it shows, and what somebody does with mouse and keyboard.

use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::chromium::Chromium;

/// How long something may take to be seen.
const LONG: Duration = Duration::from_secs(60);

pub(crate) struct Page<'a> {
    browser: &'a Chromium,
    session: String,
}

impl<'a> Page<'a> {
    pub(crate) fn open(browser: &'a Chromium, url: &str) -> Self {
        let target = browser.call(None, "Target.createTarget", json!({"url": "about:blank"}));
        let attach = json!({"targetId": target["targetId"], "flatten": true});
        let attached = browser.call(None, "Target.attachToTarget", attach);
        let page = Self { browser, session: attached["sessionId"].as_str().unwrap().to_owned() };
        for domain in ["Page", "Runtime", "Log"] {
            page.call(&format!("{domain}.enable"), json!({}));
        }
        page.size(1440, 1000);
        page.call("Page.navigate", json!({"url": url}));
        page
    }

    fn call(&self, method: &str, parameters: Value) -> Value {
        self.browser.call(Some(&self.session), method, parameters)
    }

    /// The value of an expression; null where the page is not there yet.
    pub(crate) fn value(&self, expression: &str) -> Value {
        let asked = json!({"expression": expression, "returnByValue": true, "awaitPromise": true});
        let told = self.call("Runtime.evaluate", asked);
        if told["exceptionDetails"].is_null() { told["result"]["value"].clone() } else { Value::Null }
    }

    /// Waits until an expression is true.
    pub(crate) fn until(&self, expression: &str) {
        let began = Instant::now();
        while self.value(expression) != true {
            let body = self.value("document.body.innerText.slice(0, 1500)");
            assert!(
                began.elapsed() < LONG,
                "{expression}: not within {LONG:?}; the page: {body}; {:?}",
                self.complaints()
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Clicks in the middle of what a selector finds, as a mouse does, once nothing lies above it.
    pub(crate) fn click(&self, selector: &str) {
        let middle = format!(
            "(() => {{ const found = document.querySelector({selector:?}); \
             found.scrollIntoView({{block: 'center', behavior: 'instant'}}); \
             const box = found.getBoundingClientRect(); \
             const at = [box.x + box.width / 2, box.y + box.height / 2]; \
             window.middle = found.contains(document.elementFromPoint(...at)) ? at : undefined; \
             return window.middle !== undefined; }})()"
        );
        self.until(&middle);
        // What was just shown is clickable once it was painted.
        self.value("new Promise((painted) => requestAnimationFrame(() => requestAnimationFrame(() => painted())))");
        self.until(&middle);
        let at = self.value("window.middle");
        for kind in ["mouseMoved", "mousePressed", "mouseReleased"] {
            let event = json!({"type": kind, "x": at[0], "y": at[1], "button": "left", "clickCount": 1});
            self.call("Input.dispatchMouseEvent", event);
        }
    }

    /// Types into what has the focus.
    pub(crate) fn write(&self, text: &str) {
        self.call("Input.insertText", json!({"text": text}));
    }

    /// Presses a key that is no character.
    pub(crate) fn press(&self, key: &str, code: u32) {
        for kind in ["keyDown", "keyUp"] {
            let event = json!({"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": code, "text": if key == "Enter" { "\r" } else { "" }});
            self.call("Input.dispatchKeyEvent", event);
        }
    }

    pub(crate) fn size(&self, width: u32, height: u32) {
        let metrics = json!({"width": width, "height": height, "deviceScaleFactor": 1, "mobile": false});
        self.call("Emulation.setDeviceMetricsOverride", metrics);
    }

    pub(crate) fn scheme(&self, scheme: &str) {
        let features = json!({"features": [{"name": "prefers-color-scheme", "value": scheme}]});
        self.call("Emulation.setEmulatedMedia", features);
    }

    /// What is seen of the page, as a picture.
    pub(crate) fn picture(&self, path: &Path) {
        let shot = self.call("Page.captureScreenshot", json!({"format": "png"}));
        std::fs::write(path, decoded(shot["data"].as_str().unwrap())).unwrap();
    }

    /// Roles and names of what a keyboard or a screen reader reaches.
    pub(crate) fn accessible(&self) -> Vec<(String, String)> {
        let tree = self.call("Accessibility.getFullAXTree", json!({}));
        let text = |node: &Value, key: &str| node[key]["value"].as_str().unwrap_or_default().to_owned();
        let nodes = tree["nodes"].as_array().unwrap();
        nodes
            .iter()
            .filter(|node| node["ignored"] != true)
            .map(|node| (text(node, "role"), text(node, "name")))
            .collect()
    }

    /// Errors and warnings of the console, and exceptions that nobody caught.
    pub(crate) fn complaints(&self) -> Vec<String> {
        let serious = |level: &Value| level == "error" || level == "warning" || level == "assert";
        let logged = self.browser.told(&["Log.entryAdded"]).into_iter().map(|told| told["entry"].clone());
        let said = self.browser.told(&["Runtime.consoleAPICalled"]).into_iter();
        let thrown = self.browser.told(&["Runtime.exceptionThrown"]).into_iter();
        logged
            .filter(|entry| serious(&entry["level"]))
            .chain(said.filter(|call| serious(&call["type"])))
            .chain(thrown)
            .map(|complaint| complaint.to_string())
            .collect()
    }
}

/// Base64 (RFC 4648, section 4) to bytes.
fn decoded(text: &str) -> Vec<u8> {
    let digit = |byte: u8| match byte {
        b'A'..=b'Z' => Some(byte - b'A'),
        b'a'..=b'z' => Some(byte - b'a' + 26),
        b'0'..=b'9' => Some(byte - b'0' + 52),
        b'+' => Some(62),
        b'/' => Some(63),
        _ => None,
    };
    let digits: Vec<u8> = text.bytes().filter_map(digit).collect();
    let three = |four: &[u8]| {
        let bits = four.iter().fold(0_u32, |bits, digit| bits << 6 | u32::from(*digit)) << (6 * (4 - four.len()));
        bits.to_be_bytes()[1..four.len()].to_vec()
    };
    digits.chunks(4).flat_map(three).collect()
}
