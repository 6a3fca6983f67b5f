// SPDX-License-Identifier: Apache-2.0
// Elements without a framework, and numbers as people read them.
//
// Whatever a machine says becomes text, never markup: the page's policy forbids the other way too.

/// An element with attributes and children; a child that is no element is text. `on` has listeners by name of the event.
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on") {
      for (const [event, listener] of Object.entries(value)) made.addEventListener(event, listener);
    } else if (value === true) {
      made.setAttribute(name, "");
    } else if (value !== false && value !== undefined && value !== null) {
      made.setAttribute(name, value);
    }
  }
  made.append(...children.filter((child) => child !== undefined && child !== null));
  return made;
}

/// The element of the page with this id.
export const byId = (id) => document.getElementById(id);

/// Sets a text, if it is another: whoever has selected it keeps the selection.
export function say(where, text) {
  if (where.textContent !== text) where.textContent = text;
}

const GROUPED = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/// A count: 12,345.
export const count = (number) => GROUPED.format(number);

/// A rate, short: 0, 3.2, 940, 12.3 k.
export function rate(number) {
  if (!Number.isFinite(number)) return "–";
  if (number >= 1e6) return `${(number / 1e6).toFixed(1)} M`;
  if (number >= 1e4) return `${(number / 1e3).toFixed(1)} k`;
  if (number >= 100 || number === 0) return count(number);
  return number.toFixed(1);
}

/// A share of 1 in per cent.
export function percent(share) {
  if (!Number.isFinite(share)) return "–";
  const value = share * 100;
  return value > 0 && value < 9.95 ? `${value.toFixed(1)} %` : `${Math.round(value)} %`;
}

/// Bytes with a binary unit.
export function bytes(number) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let value = number;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${Number.isInteger(value) ? value : value.toFixed(1)} ${units[unit]}`;
}

/// Nanoseconds as a duration that runs: 4 s, 3 min 20 s, 2 h 3 min.
export function duration(ns) {
  const seconds = Math.floor(ns / 1e9);
  if (seconds < 60) return `${seconds} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 60) return `${minutes} min ${seconds % 60} s`;
  return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

/// A name of the API in words: `named_owner` is "named owner".
export const words = (name) => name.replaceAll("_", " ");

const probe = element("span", { hidden: true });
document.body.append(probe);

/// The colour that the style names, as it is now: dark and light differ.
export function colour(name) {
  probe.style.color = `var(--${name})`;
  return getComputedStyle(probe).color;
}

/// A canvas made as large as it is shown, in the pixels of the screen, and empty; its context counts CSS pixels.
export function cleared(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  const [across, down] = [Math.round(width * ratio), Math.round(height * ratio)];
  if (canvas.width !== across || canvas.height !== down) {
    canvas.width = across;
    canvas.height = down;
  }
  const context = canvas.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.clearRect(0, 0, width, height);
  return context;
}
