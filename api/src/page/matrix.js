// SPDX-License-Identifier: Apache-2.0
// Who yielded to whom since the guest started: rows yield, columns are yielded to.

import { byId, cleared, colour, count, element, say } from "./words.js";

/// Pairs that are listed below the matrix.
const LISTED = 5;
const MARGIN = 22;
/// Widest cell, in pixels.
const WIDEST = 38;

export class Matrix {
  #canvas;
  #size = 0;
  /// By `from * size + to`.
  #yields = new Map();
  #cursor;

  constructor(canvas) {
    this.#canvas = canvas;
    canvas.addEventListener("mousemove", (event) => this.#point(this.#at(event.offsetX, event.offsetY)));
    canvas.addEventListener("mouseleave", () => this.#point(undefined));
    canvas.addEventListener("blur", () => this.#point(undefined));
    canvas.addEventListener("focus", () => this.#point(this.#cursor ?? { from: 0, to: 0 }));
    canvas.addEventListener("keydown", (event) => this.#key(event));
  }

  show(size, pairs) {
    this.#size = size;
    this.#canvas.style.maxWidth = `${MARGIN + size * WIDEST}px`;
    this.#yields = new Map(pairs.map((pair) => [pair.from * size + pair.to, pair.yields]));
    this.#draw();
    const most = pairs.toSorted((one, other) => other.yields - one.yields).slice(0, LISTED);
    const sum = pairs.reduce((total, pair) => total + pair.yields, 0);
    byId("pairs").replaceChildren(...most.map((pair) =>
      element("li", {}, `vCPU ${pair.from} → vCPU ${pair.to}`, element("span", { class: "number" }, count(pair.yields)))));
    say(byId("pairs-sum"), sum === 0 ? "Nobody has yielded yet." : `${count(sum)} yields between ${count(pairs.length)} pairs.`);
    this.#canvas.setAttribute("aria-label", `Yields, ${size} by ${size} vCPUs: ${byId("pairs-sum").textContent} Arrow keys read a cell.`);
  }

  #cell() {
    return Math.max((this.#canvas.clientWidth - MARGIN) / Math.max(this.#size, 1), 1);
  }

  #at(across, down) {
    const cell = this.#cell();
    const [to, from] = [Math.floor((across - MARGIN) / cell), Math.floor((down - MARGIN) / cell)];
    const inside = [from, to].every((index) => index >= 0 && index < this.#size);
    return inside ? { from, to } : undefined;
  }

  #point(cursor) {
    this.#cursor = cursor;
    const { from, to } = cursor ?? {};
    const yields = cursor === undefined ? undefined : this.#yields.get(from * this.#size + to) ?? 0;
    say(byId("cell"), cursor === undefined ? "" : `vCPU ${from} → vCPU ${to}: ${count(yields)}`);
    this.#draw();
  }

  #key(event) {
    const steps = { ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1] };
    const step = steps[event.key];
    if (step === undefined || this.#size === 0) return;
    event.preventDefault();
    const { from, to } = this.#cursor ?? { from: 0, to: 0 };
    const within = (index) => Math.min(Math.max(index, 0), this.#size - 1);
    this.#point({ from: within(from + step[0]), to: within(to + step[1]) });
  }

  #draw() {
    const side = this.#canvas.clientWidth;
    const context = cleared(this.#canvas, side, side);
    const cell = this.#cell();
    const gap = cell > 8 ? 1.5 : cell > 4 ? 0.5 : 0;
    const most = Math.max(1, ...this.#yields.values());
    const [empty, full, text, mark] = ["cell", "accent", "quiet", "text"].map(colour);
    for (let from = 0; from < this.#size; from += 1) {
      for (let to = 0; to < this.#size; to += 1) {
        const yields = this.#yields.get(from * this.#size + to) ?? 0;
        const [left, top] = [MARGIN + to * cell, MARGIN + from * cell];
        context.globalAlpha = from === to ? 0.35 : 1;
        context.fillStyle = empty;
        context.fillRect(left, top, cell - gap, cell - gap);
        if (yields === 0) continue;
        context.globalAlpha = 0.15 + 0.85 * (Math.log1p(yields) / Math.log1p(most));
        context.fillStyle = full;
        context.fillRect(left, top, cell - gap, cell - gap);
      }
    }
    context.globalAlpha = 1;
    context.fillStyle = text;
    context.font = "11px system-ui, sans-serif";
    context.textAlign = "center";
    context.textBaseline = "middle";
    const every = Math.max(1, Math.ceil(18 / cell));
    for (let index = 0; index < this.#size; index += every) {
      const middle = MARGIN + (index + 0.5) * cell;
      context.fillText(String(index), middle, MARGIN / 2);
      context.fillText(String(index), MARGIN / 2, middle);
    }
    if (this.#cursor === undefined) return;
    context.strokeStyle = mark;
    context.lineWidth = 2;
    context.strokeRect(MARGIN + this.#cursor.to * cell, MARGIN + this.#cursor.from * cell, cell - gap, cell - gap);
  }
}
