// SPDX-License-Identifier: Apache-2.0
// One row a vCPU: what it does, where, and where its time went in each second of the last minute.

import { KEPT, TERMS, inWords } from "./history.js";
import { byId, cleared, colour, element, percent, rate, say } from "./words.js";

const STRIP = { width: 300, height: 26 };

/// Columns with numbers: what is shown of a slice, and how.
const NUMBERS = [
  ["guest", (slice) => slice.shares.guest, percent],
  ["waiting", (slice) => slice.shares.waiting, percent],
  ["events", (slice) => slice.events, rate],
  ["yields", (slice) => slice.yields, rate],
  ["balance", (slice) => slice.balance, signed],
];

/// What a vCPU got of other vCPUs' time, less what it gave.
function signed(share) {
  if (Math.abs(share) < 0.0005) return "0 %";
  return `${share > 0 ? "+" : "−"}${percent(Math.abs(share))}`;
}

export class Ledger {
  #body;
  #rows = [];
  #order = { column: "index", descending: false };
  #slices = [];

  constructor(table) {
    this.#body = table.tBodies[0];
    for (const button of table.tHead.querySelectorAll("button[data-column]")) {
      button.addEventListener("click", () => this.#sortBy(button.dataset.column));
    }
    byId("legend").replaceChildren(...TERMS.map((term) =>
      element("li", {}, element("span", { class: `swatch ${term}` }), byId("terms").dataset[term])));
  }

  show(vcpus, history) {
    while (this.#rows.length > vcpus.length) this.#rows.pop().row.remove();
    this.#slices = history.slices.at(-1) ?? [];
    const colours = Object.fromEntries(TERMS.map((term) => [term, colour(term)]));
    for (const vcpu of vcpus) {
      const row = this.#rows[vcpu.index] ?? this.#row(vcpu.index);
      row.state.dataset.state = vcpu.state;
      say(row.state, vcpu.state);
      say(row.cpu, vcpu.last_cpu === undefined ? "–" : String(vcpu.last_cpu));
      const slice = this.#slices[vcpu.index];
      for (const [column, of, write] of NUMBERS) say(row[column], slice === undefined ? "–" : write(of(slice)));
      row.past = history.of(vcpu.index);
      row.canvas.setAttribute("aria-label", slice === undefined ? "nothing yet" : `last second: ${inWords(slice)}`);
      draw(row, colours);
    }
    this.#sort();
  }

  #row(index) {
    const canvas = element("canvas", { class: "strip", role: "img" });
    const cells = Object.fromEntries(NUMBERS.map(([column]) => [column, element("td", { class: "number" })]));
    const state = element("span", { class: "state" });
    const cpu = element("td", { class: "number" });
    const row = element(
      "tr",
      {},
      element("th", { scope: "row" }, String(index)),
      element("td", {}, state),
      cpu,
      element("td", { class: "strip-cell" }, canvas),
      ...Object.values(cells),
    );
    const made = { index, row, canvas, state, cpu, past: [], ...cells };
    canvas.addEventListener("mousemove", (event) => {
      const at = slot(event.offsetX / canvas.clientWidth, made.past);
      canvas.title = at === undefined ? "" : `${ago(at, made.past)}: ${inWords(made.past[at])}`;
    });
    this.#rows[index] = made;
    this.#body.append(row);
    return made;
  }

  #sortBy(column) {
    const again = this.#order.column === column;
    this.#order = { column, descending: again ? !this.#order.descending : column !== "index" };
    for (const head of this.#body.parentElement.tHead.querySelectorAll("th")) {
      const own = head.querySelector("button")?.dataset.column === column;
      if (own) head.setAttribute("aria-sort", this.#order.descending ? "descending" : "ascending");
      else head.removeAttribute("aria-sort");
    }
    this.#sort();
  }

  #sort() {
    const { column, descending } = this.#order;
    const of = NUMBERS.find(([name]) => name === column)?.[1];
    const value = (row) => {
      const slice = this.#slices[row.index];
      return of === undefined || slice === undefined ? row.index : of(slice);
    };
    const sorted = this.#rows.toSorted((one, other) =>
      (descending ? value(other) - value(one) : value(one) - value(other)) || one.index - other.index);
    // Rows that stand right stay where they are: moving one takes the focus off it.
    sorted.forEach(({ row }, at) => {
      if (this.#body.rows[at] !== row) this.#body.insertBefore(row, this.#body.rows[at] ?? null);
    });
  }
}

/// Which slice is drawn at a place from 0 (left) to 1: the newest is at the right.
function slot(place, past) {
  const at = Math.floor(place * KEPT) - (KEPT - past.length);
  return at >= 0 && at < past.length ? at : undefined;
}

function ago(at, past) {
  const slices = past.length - 1 - at;
  return slices === 0 ? "now" : `${slices} s ago`;
}

function draw({ canvas, past }, colours) {
  const width = canvas.clientWidth || STRIP.width;
  const height = canvas.clientHeight || STRIP.height;
  const context = cleared(canvas, width, height);
  const step = width / KEPT;
  past.forEach((slice, at) => {
    const left = (KEPT - past.length + at) * step;
    let bottom = height;
    for (const term of TERMS) {
      const tall = slice.shares[term] * height;
      context.fillStyle = colours[term];
      context.fillRect(left, bottom - tall, Math.max(step - 1, 1), tall);
      bottom -= tall;
    }
  });
}
