// SPDX-License-Identifier: Apache-2.0
// The host as boxes in boxes (node, last-level cache, cluster, core, CPU), with each vCPU's thread where it was last.

import { element, say } from "./words.js";

/// Groups of CPUs, from the outside to the inside, and what each is called.
const LEVELS = [
  ["node", "node"],
  ["package", "package"],
  ["llc", "cache"],
  ["cluster", "cluster"],
  ["core", "core"],
];
/// Least width of a CPU with what surrounds it, in pixels.
const WIDTH = 72;
/// How long a thread takes to wander to its new CPU on the page.
const WANDER_MS = 350;

const still = window.matchMedia("(prefers-reduced-motion: reduce)");

export class HostMap {
  #root;
  #shape = "";
  /// By number of the CPU: its box, where its threads stand, and its text.
  #cpus = new Map();
  #chips = new Map();
  #nowhere;

  constructor(root) {
    this.#root = root;
  }

  /// Draws the host, if it is another than before.
  host(host) {
    const shape = JSON.stringify(host.cpus);
    if (shape === this.#shape) return;
    this.#shape = shape;
    this.#cpus.clear();
    this.#chips.clear();
    const boxes = this.#boxes(host.cpus, LEVELS);
    this.#nowhere = element("div", { class: "chips" });
    const waiting = element("div", { class: "nowhere" }, element("span", { class: "box-name" }, "on no CPU yet"), this.#nowhere);
    this.#root.replaceChildren(element("div", { class: "boxes" }, ...boxes), waiting);
  }

  /// The boxes of one level. A level that divides nothing, or into single CPUs, is left out.
  #boxes(cpus, levels) {
    if (levels.length === 0) return cpus.map((cpu) => this.#cpu(cpu));
    const [[key, name], ...inner] = levels;
    const groups = Map.groupBy(cpus, (cpu) => cpu[key]);
    const divides = groups.size > 1 && (key === "node" || groups.size < cpus.length);
    if (!divides) return this.#boxes(cpus, inner);
    return [...groups].map(([number, members]) => {
      const box = element(
        "div",
        { class: `box box-${key}`, role: "group", "aria-label": `${name} ${number}` },
        element("span", { class: "box-name", "aria-hidden": "true" }, `${name} ${number}`),
        element("div", { class: "boxes" }, ...this.#boxes(members, inner)),
      );
      // By the number of its CPUs, whatever stands in them: a box does not grow when a thread comes.
      box.style.flex = `${members.length} 1 ${members.length * WIDTH}px`;
      return box;
    });
  }

  #cpu(cpu) {
    const chips = element("div", { class: "chips" });
    const spoken = element("span", { class: "spoken" });
    const title = `CPU ${cpu.cpu}, core ${cpu.core}, thread ${cpu.thread}${cpu.usable ? "" : ": not for this machine"}`;
    const box = element(
      "div",
      { class: cpu.usable ? "cpu" : "cpu foreign", title },
      element("span", { class: "box-name", "aria-hidden": "true" }, String(cpu.cpu)),
      spoken,
      chips,
    );
    this.#cpus.set(cpu.cpu, { box, chips, spoken });
    return box;
  }

  /// Puts each thread where it is now.
  vcpus(vcpus) {
    const before = this.#places();
    const here = new Map();
    for (const vcpu of vcpus) {
      const chip = this.#chip(vcpu);
      const cpu = this.#cpus.get(vcpu.last_cpu);
      const where = cpu === undefined ? this.#nowhere : cpu.chips;
      if (chip.parentElement !== where) where.append(chip);
      if (cpu !== undefined) here.set(vcpu.last_cpu, [...(here.get(vcpu.last_cpu) ?? []), vcpu]);
    }
    for (const [index, chip] of this.#chips) {
      if (index < vcpus.length) continue;
      chip.remove();
      this.#chips.delete(index);
    }
    for (const [number, { box, spoken }] of this.#cpus) {
      const threads = here.get(number) ?? [];
      const shared = threads.filter((vcpu) => vcpu.state === "running" || vcpu.state === "waiting").length > 1;
      box.classList.toggle("shared", shared);
      const who = threads.map((vcpu) => `vCPU ${vcpu.index} ${vcpu.state}`).join(", ");
      say(spoken, `CPU ${number}: ${who || "no vCPU"}`);
    }
    this.#nowhere.parentElement.hidden = this.#nowhere.childElementCount === 0;
    this.#wander(before);
  }

  #chip(vcpu) {
    let chip = this.#chips.get(vcpu.index);
    if (chip === undefined) {
      chip = element("span", { class: "chip", "aria-hidden": "true" }, String(vcpu.index));
      this.#chips.set(vcpu.index, chip);
    }
    chip.dataset.state = vcpu.state;
    const thread = vcpu.tid === undefined ? "" : `, thread ${vcpu.tid}`;
    chip.title = `vCPU ${vcpu.index}: ${vcpu.state}${thread}, may use CPUs ${vcpu.affinity}`;
    return chip;
  }

  #places() {
    if (still.matches) return undefined;
    return new Map([...this.#chips].map(([index, chip]) => [index, chip.getBoundingClientRect()]));
  }

  #wander(before) {
    if (before === undefined) return;
    for (const [index, chip] of this.#chips) {
      const from = before.get(index);
      const to = chip.getBoundingClientRect();
      if (from === undefined || from.width === 0) continue;
      const [across, down] = [from.left - to.left, from.top - to.top];
      if (Math.abs(across) + Math.abs(down) < 1) continue;
      const away = `translate(${across}px, ${down}px)`;
      chip.animate([{ transform: away }, { transform: "none" }], { duration: WANDER_MS, easing: "ease-in-out" });
    }
  }
}
