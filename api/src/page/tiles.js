// SPDX-License-Identifier: Apache-2.0
// The machine in a few numbers, each with the line of its last minute.

import { KEPT, TERMS } from "./history.js";
import { byId, element, percent, rate, say } from "./words.js";

const SVG = "http://www.w3.org/2000/svg";
const LINE = { width: 120, height: 28 };

const share = (term) => (history) => {
  const part = history.over((vcpu) => vcpu.shares[term]);
  const whole = history.over((vcpu) => TERMS.reduce((sum, name) => sum + vcpu.shares[name], 0));
  return part.map((value, at) => (whole[at] === 0 ? 0 : value / whole[at]));
};
const each = (name) => (history) => history.over((vcpu) => vcpu[name]);

/// Name, how it is written, the least value that the line's top stands for, the numbers of the minute, and a remark.
const TILES = [
  ["In guest code", percent, 1, share("guest"), () => "of the vCPUs’ time"],
  ["Stolen", percent, 0.05, share("waiting"), () => "runnable, without a CPU"],
  ["Pause events", rate, 10, each("events"), () => "a second"],
  ["Yields", rate, 10, each("yields"), boosted],
  ["Bailed out", rate, 10, each("bailed"), () => "a second: nothing to do"],
];

function boosted(history) {
  const all = each("yields")(history).at(-1) ?? 0;
  const gone = each("boosted")(history).at(-1) ?? 0;
  return all > 0 ? `a second, ${percent(gone / all)} boosted` : "a second";
}

export class Tiles {
  #tiles;

  constructor(root) {
    this.#tiles = TILES.map(([name, write, top, numbers, remark]) => {
      const value = element("dd", { class: "tile-value" }, "–");
      const below = element("dd", { class: "tile-remark" });
      const line = document.createElementNS(SVG, "svg");
      line.setAttribute("viewBox", `0 0 ${LINE.width} ${LINE.height}`);
      line.setAttribute("preserveAspectRatio", "none");
      line.setAttribute("aria-hidden", "true");
      const [area, path] = ["area", "line"].map((kind) => {
        const made = document.createElementNS(SVG, "path");
        made.setAttribute("class", kind);
        line.append(made);
        return made;
      });
      const tile = element("div", { class: "tile" }, element("dt", {}, name), value, below);
      tile.append(line);
      root.append(tile);
      return { write, top, numbers, remark, value, below, path, area };
    });
  }

  show(history) {
    for (const tile of this.#tiles) {
      const numbers = tile.numbers(history);
      say(tile.value, numbers.length === 0 ? "–" : tile.write(numbers.at(-1)));
      say(tile.below, tile.remark(history));
      const highest = Math.max(tile.top, ...numbers);
      const points = numbers.map((number, at) => {
        const across = ((KEPT - numbers.length + at) / (KEPT - 1)) * LINE.width;
        return [across, LINE.height - 1 - (number / highest) * (LINE.height - 2)].map((part) => part.toFixed(1)).join(" ");
      });
      const line = points.length < 2 ? "" : `M${points.join("L")}`;
      tile.path.setAttribute("d", line);
      const left = points[0]?.split(" ")[0];
      tile.area.setAttribute("d", line && `${line}L${LINE.width} ${LINE.height}L${left} ${LINE.height}Z`);
    }
  }
}

/// The line above the tiles: what kind of machine this is.
export function describe(vm, host) {
  const nodes = vm.nodes === 1 ? "1 node" : `${vm.nodes} nodes`;
  const kind = host.kvm === undefined ? "no KVM" : `KVM ${host.kvm}`;
  say(byId("machine"), `${vm.cpus} vCPUs, ${nodes} · pid ${vm.pid} · vmm ${vm.version}`);
  say(byId("host-line"), `${host.cpus.length} CPUs, ${kind}, Linux ${host.kernel}`);
}
